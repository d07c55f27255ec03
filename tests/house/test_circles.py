"""No circle among the C files, and none among modules: whoever is called knows no caller.

Imports within functions, and those for types alone, count as well: who reads one module of a
circle has to read them all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support import ROOT

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
#: A function, or a table of calls, that other files may use.
DEFINED = re.compile(r"^(?!static\b)[\w \t*]*?\b(lio_\w+)(?:\([^;{}]*\)\n\{| = \{)", re.MULTILINE)


def check_circles(sources: Mapping[str, str]) -> None:
    """Raise ``CycleError`` where files use each other's functions or tables in a circle."""
    texts = {name: COMMENT.sub("", text) for name, text in sources.items()}
    owner = {symbol: name for name, text in texts.items() for symbol in DEFINED.findall(text)}
    uses = {
        name: {owner[symbol] for symbol in re.findall(r"\blio_\w+", text) if symbol in owner}
        - {name}
        for name, text in texts.items()
    }
    TopologicalSorter(uses).prepare()


def test_no_c_files_use_each_other_in_a_circle() -> None:
    sources = {path.name: path.read_text("utf-8") for path in (ROOT / "csrc").glob("*.c")}
    assert len(sources) > 20
    assert sum(len(DEFINED.findall(text)) for text in sources.values()) > 150
    check_circles(sources)


def test_a_circle_of_two_files_of_one_room_is_found() -> None:
    call = "int lio_{0}(void)\n{{\n    return lio_{1}();\n}}\n"
    with pytest.raises(CycleError):
        check_circles({"engine.c": call.format("a", "b"), "engine_queue.c": call.format("b", "a")})
    check_circles({"engine.c": call.format("a", "b"), "engine_queue.c": call.format("b", "c")})


# --- modules ------------------------------------------------------------------------------


def modules(folder: Path) -> dict[str, Path]:
    """Return the modules of a package and of those within, by name."""
    found = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(text: str, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules, of some that are known, that a text imports anywhere."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            names = (f"{node.module}.{one.name}" for one in node.names)
            yield from (name if name in known else node.module for name in names)


def check_modules(folder: Path) -> None:
    """Raise ``CycleError`` where modules of a package import each other in a circle."""
    known = modules(folder)
    uses = {name: {*imported(path.read_text("utf-8"), known)} for name, path in known.items()}
    TopologicalSorter({name: used - {name} for name, used in uses.items()}).prepare()


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert len(modules(ROOT / "lmdbio")) > 200
    check_modules(ROOT / "lmdbio")


@pytest.mark.parametrize("how", ["from room import a", "def f():\n    import room.a as a"])
def test_a_circle_of_two_modules_is_found(tmp_path: Path, how: str) -> None:
    room = tmp_path / "room"
    room.mkdir()
    for name, text in (("__init__", ""), ("a", "from room.b import c"), ("b", "")):
        (room / f"{name}.py").write_text(text)
    check_modules(room)
    (room / "b.py").write_text(how)
    with pytest.raises(CycleError):
        check_modules(room)
