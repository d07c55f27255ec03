"""The lint of words finds headless clauses and lets plain sentences be.

Goal: a clause without an actor is found in every kind of text, with its line; code, quotations,
questions and relative clauses are not. Method: tables of sentences of both kinds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import words

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
