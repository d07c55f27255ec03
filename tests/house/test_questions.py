"""A newcomer's ten questions are answered where CONTRIBUTING.md says.

Goal: no place that it names is gone, and no heading. Method: read its table, and look.
"""

from __future__ import annotations

import re

from tests.support import ROOT

ROW = re.compile(r"^\| ([^|]+\?) \| ([^|]+) \|$", re.MULTILINE)


def answers() -> dict[str, str]:
    """Return the places of the answer to each question."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Ten questions\n")[2].partition("\n## ")[0]
    return dict(ROW.findall(section))


def test_there_are_ten_questions() -> None:
    assert len(answers()) == 10


def test_each_answer_names_a_place_that_is_there() -> None:
    for question, places in answers().items():
        paths = [name for name in re.findall(r"`([^`]+)`", places) if re.search(r"[/.]\w*", name)]
        paths = [name for name in paths if not name.startswith("python ")]
        assert paths or "ARCHITECTURE.md" in places, question
        for path in paths:
            assert (ROOT / path).exists(), f"{question} {path}"


def test_each_answer_names_a_heading_that_is_there() -> None:
    for question, places in answers().items():
        for document, heading in re.findall(r"([\w/]+\.md)`?, \"([^\"]+)\"", places):
            text = (ROOT / document).read_text(encoding="utf-8")
            assert re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE), question
