"""The guides: each answers one question, is short, is in the site's list, and shows what exists.

Goal: no guide takes more than one sitting, none is forgotten or mistaken for another, and no
snippet shows an option that a command lacks, or Python that does not parse. Method: read the
pages, and ask click for the commands.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lmdbio import cli
from tests.support import ROOT

DOCS = ROOT / "docs"
GUIDES = [
    page
    for room in ("guides", "concepts", "benchmarks")
    for page in sorted((DOCS / room).glob("*.md"))
]
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
WORDS_MAX = 1500
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: Path, *languages: str) -> Iterator[str]:
    """Yield the code blocks of a page that are in one of these languages."""
    for language, code in FENCE.findall(page.read_text(encoding="utf-8")):
        if language in languages:
            yield code


def title(page: Path) -> str:
    """Return the title of a page."""
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def calls(code: str) -> Iterator[list[str]]:
    """Yield the words of each call of ``lmdbio`` in a block of shell."""
    for line in code.replace("\\\n", " ").splitlines():
        for part in re.split(r"[|;]|&&", line.removeprefix("$ ").partition(" #")[0]):
            if re.search(r"(^|\s)lmdbio\s", part):
                words = shlex.split(part)
                yield words[words.index("lmdbio") + 1 :]


def command_of(words: list[str]) -> click.Command:
    """Return the command that words call."""
    command: click.Command = cli.cli
    for word in words:
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        assert found is not None, f"lmdbio {' '.join(words)}"
        command = found
    return command


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_is_short_and_asks_its_question_first(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) <= WORDS_MAX
    assert re.match(r"# [^\n]+\n\n\*\*[^*]+\?\*\*", text), "a title, then a question in bold"


def test_titles_can_be_told_apart() -> None:
    titles = [title(page) for page in PAGES]
    assert len({name.lower() for name in titles} - {"lmdbio"}) == len(titles) - 2


def test_every_page_is_in_the_list_of_the_site() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    missing = {str(page.relative_to(DOCS)) for page in PAGES[1:]} - set(listed)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_snippets_parse(page: Path) -> None:
    for code in snippets(page, "python"):
        ast.parse(code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_have_the_options_that_pages_show(page: Path) -> None:
    for code in snippets(page, "sh", "console"):
        for words in calls(code):
            command = command_of(words)
            known = {option for param in command.params for option in param.opts}
            known |= {option for param in command.params for option in param.secondary_opts}
            shown = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
            if command.name == "run":  # options behind the program are its own
                continue
            unknown = {*shown} - known - {"--help", "--version"}
            assert not unknown, f"lmdbio {' '.join(words)}: {unknown}"
