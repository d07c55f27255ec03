"""A description of a parameter or an attribute is a noun phrase with a head noun of its own.

A tooltip shows it alone: "of the file" says nothing there, "size of the file, bytes" does. So none
begins with a preposition, a relative or a question word. Method: all docstrings of the product.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator

import pytest

from tests.support import ROOT

SECTION = re.compile(r"(?:Args|Attributes):$")
ENTRY = re.compile(r"    (?P<names>[\w*][\w*, ]*): (?P<text>.*)$")
HEADLESS = re.compile(
    r"(?:of|in|on|at|by|for|from|to|with|without|between|before|after|as|that|which|who|whose"
    r"|where|when|behind|beside|up to|within|into|under|over|through|until|while|how|why|what)\b",
    re.IGNORECASE,
)


def entries(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield the names that a docstring describes, and the first line of each description."""
    is_inside = False
    for line in docstring.split("\n"):
        if line[:1].strip():
            is_inside = SECTION.match(line) is not None
        elif is_inside and (found := ENTRY.match(line)):
            yield found["names"], found["text"]


def described(text: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of all docstrings in a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from entries(ast.get_docstring(node) or "")


def headless(entries: Iterable[tuple[str, str]]) -> list[str]:
    """Return the descriptions that have no head noun, with their names."""
    return [f"{names}: {words}" for names, words in entries if HEADLESS.match(words)]


def test_every_description_has_a_head_noun() -> None:
    files = sorted((ROOT / "lmdbio").rglob("*.py"))
    found = {path.relative_to(ROOT): [*described(path.read_text("utf-8"))] for path in files}
    assert sum(map(len, found.values())) > 2000
    assert [f"{path}: {one}" for path, told in found.items() for one in headless(told)] == []


@pytest.mark.parametrize(
    ("words", "is_headless"),
    [
        ("of the file", True),
        ("that has them", True),
        ("what is read", True),
        ("size of the file, bytes", False),
        ("whether it is read", False),
        ("another one", False),
        ("offset in the file", False),
    ],
)
def test_a_description_without_one_is_found(words: str, is_headless: bool) -> None:
    text = f'def f(a):\n    """Do it.\n\n    Args:\n        a: {words}.\n    """\n'
    assert bool(headless(described(text))) == is_headless


def unknown_names(text: str) -> set[str]:
    """Return names that docstrings of a module describe, and its code does not know."""
    named = {name.strip(" *") for names, _ in described(text) for name in names.split(",")}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {token.string for token in tokens if token.type == tokenize.NAME}
    return {name for name in named if name.isidentifier()} - code


def test_every_described_name_is_one_of_the_code() -> None:
    """A name that was changed is changed in its description, too."""
    files = sorted((ROOT / "lmdbio").rglob("*.py"))
    found = {str(path.relative_to(ROOT)): unknown_names(path.read_text("utf-8")) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_name_that_is_gone_is_found() -> None:
    text = 'def f(new):\n    """Do.\n\n    Args:\n        old, new: numbers.\n    """\n'
    assert unknown_names(text) == {"old"}
