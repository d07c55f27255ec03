"""The lint of words finds headless clauses and lets plain sentences be.

Goal: a clause without an actor is found in every kind of text, with its line; code, quotations,
questions and relative clauses are not. Method: tables of sentences of both kinds.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

from tests.house import words
from tests.support import ROOT

HEADLESS = [
    "Who has waited so long asks for the cursor.",
    "A slot is freed. Whoever asks too early gets an error.",
    "A turn ends; and who has not asked is passed over.",
    "What a plan trades.",
    "Bytes lie ahead of who reads them.",
    "Whose turn does not come reads out of turn.",
]
PLAIN = [
    "A root that has waited for four turns asks for the cursor.",
    "Return what the page cache holds.",
    "Who reads the file?",
    "The rank who failed is named: `What it says` stands in the message.",
    'The message is "Who holds the slot".',
    "Copies of what the page cache holds are cheap.",
    "Read the pages on which the leaves lie.",
]


@pytest.mark.parametrize("sentence", HEADLESS)
def test_a_headless_clause_is_found(sentence: str) -> None:
    assert list(words.headless(words.Text(1, sentence)))


@pytest.mark.parametrize("sentence", PLAIN)
def test_a_plain_sentence_is_let_be(sentence: str) -> None:
    assert not list(words.headless(words.Text(1, sentence)))


@pytest.mark.parametrize(
    ("name", "source", "line"),
    [
        (
            "a.py",
            'x = "Who calls"\n\n\ndef f():\n    """Read it.\n\n    Who calls waits.\n    """\n',
            7,
        ),
        ("a.py", "x = 1\n# The rank reads.\n# Who calls waits.\n", 3),
        ("a.h", '/* Reads.\n * Who calls waits. */\nchar *who = "Who calls";\n', 2),
        ("a.md", "# Title\n\n```\nWho calls\n```\n\n- one\n- Who calls waits.\n", 8),
    ],
)
def test_a_finding_names_file_and_line(tmp_path: Path, name: str, source: str, line: int) -> None:
    path = tmp_path / name
    path.write_text(source)
    (finding,) = words.judge(path)
    assert finding == f"{path}:{line}: Who calls waits"


# --- names -----------------------------------------------------------------------------------

#: Words of an inner language that had grown here, in the place of the field's own.
PRIVATE = frozenset(
    {"arena", "effort", "glance", "glimpse", "holder", "holders", "holding", "holdings", "keeper"}
    | {"keepers", "kept", "look", "looked", "patience", "peek", "recurring", "shown", "survey"}
    | {"tell", "told", "touched", "watch", "wish"}
)
#: A field of ``lmdbio cache list --json``, which programs read.
PROMISED = re.compile(r"kept_bytes")


def private_names(text: str) -> set[str]:
    """Return the names in a module of which a part is such a word."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    parts = {name: re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name) for name in names}
    return {
        name
        for name, words in parts.items()
        if not PROMISED.fullmatch(name) and any(word.casefold() in PRIVATE for word in words)
    }


def test_names_are_the_fields_own_words() -> None:
    files = sorted((ROOT / "lmdbio").rglob("*.py"))
    found = {str(path.relative_to(ROOT)): private_names(path.read_text("utf-8")) for path in files}
    assert len(found) > 200
    assert {path: names for path, names in found.items() if names} == {}


def test_a_private_name_is_found() -> None:
    assert private_names("def _look_at(told): return KeptParts(lio_storage_look)\n") == {
        "_look_at",
        "told",
        "KeptParts",
        "lio_storage_look",
    }
    assert private_names("outlook = overlooked = lookup = kept_bytes\n") == set()
