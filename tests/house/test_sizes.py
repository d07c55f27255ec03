"""Rooms stay small enough to be read at one sitting.

Goal: no file, class or function outgrows its limit but those that ARCHITECTURE.md lists, with a
reason each. Method: count the lines of all sources; no list is kept here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT

FILE_LINES_MAX = 500
CLASS_LINES_MAX = 300
FUNCTION_LINES_MAX = 60
C_LINES_MAX = 650
EXCEPTIONS_MAX = 5
#: A row of ARCHITECTURE's table: | `lmdbio/a/b.py:Name` | why |
ROW = re.compile(r"^\| `([\w/.]+(?::\w+)?)` \| (.+) \|$", re.MULTILINE)


def outgrown() -> Iterator[str]:
    """Yield ``path`` or ``path:name`` of each file, class and function above its limit."""
    for path in sorted((ROOT / "lmdbio").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        source = path.read_text(encoding="utf-8")
        if source.count("\n") > FILE_LINES_MAX:
            yield name
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                is_class = isinstance(node, ast.ClassDef)
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > (CLASS_LINES_MAX if is_class else FUNCTION_LINES_MAX):
                    yield f"{name}:{node.name}"
    for folder in (ROOT / "csrc", ROOT / "lmdbio/_core/glue"):
        for path in sorted(folder.glob("*.[ch]")):
            if path.read_text(encoding="utf-8").count("\n") > C_LINES_MAX:
                yield path.relative_to(ROOT).as_posix()


def excepted(root: Path) -> dict[str, str]:
    """Return the exceptions that ARCHITECTURE.md lists, and the reason for each."""
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, _, section = text.partition("\n## Exceptions\n")
    return dict(ROW.findall(section.partition("\n## ")[0]))


def test_only_what_architecture_excepts_outgrows_its_limit() -> None:
    assert sorted(outgrown()) == sorted(excepted(ROOT))


def test_the_exceptions_are_few_and_have_reasons() -> None:
    exceptions = excepted(ROOT)
    assert len(exceptions) <= EXCEPTIONS_MAX
    assert all(len(why) > 20 for why in exceptions.values())
