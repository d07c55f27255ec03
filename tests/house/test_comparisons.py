"""Nobody compares the words of a placement, a warm-up or an assignment: they are asked as values.

Goal: a new placement is one more value, and no other file knows its word. Method: read all
comparisons and cases of lmdbio, as trees. Words are parsed by tables (``placement.cache``,
``Assignment.named``), which compare with no literal.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.layers import PACKAGE

WORDS = {"placement", "warm", "assignment"}


def named(node: ast.expr) -> bool:
    """Whether an expression is one of the words, by itself or of something."""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name.lstrip("_") in WORDS


def literal(node: ast.AST) -> bool:
    """Whether a string stands in an expression or a pattern."""
    return any(
        isinstance(one, ast.Constant) and isinstance(one.value, str) for one in ast.walk(node)
    )


def compared(text: str) -> Iterator[int]:
    """Yield the lines in which a word is compared with strings."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(named, sides)) and any(literal(one) for one in sides if not named(one)):
                yield node.lineno
        if isinstance(node, ast.Match) and named(node.subject):
            yield from (case.pattern.lineno for case in node.cases if literal(case.pattern))


def test_no_word_is_compared() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in compared(path.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "cache.placement == 'home'",
        "'local' != self._assignment",
        "warm in ('demand', 'preload')",
        "match job.assignment:\n    case 'strided' | 'local':\n        pass",
    ],
)
def test_a_comparison_is_found(text: str) -> None:
    assert list(compared(text))
    assert not list(compared("cache.placement == other.placement\nname == 'placement'"))
