"""No circle among the C files: whoever is called knows nothing of its callers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

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
