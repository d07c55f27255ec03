"""Bring documents that lie elsewhere in the repository into the site.

FORMAT, ARCHITECTURE, CONTRIBUTING and the READMEs of folders stay where a reader of the code looks
for them. The site shows the same text; a link to a file that the site does not have becomes the
file's name. Help texts of commands show their examples and lists as the terminal does.
"""

from __future__ import annotations

import posixpath
import re
from functools import partial
from pathlib import Path
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

#: Pages of the site, and the files of the repository that they are made of.
PAGES = {
    "reference/format.md": ("provenance/FORMAT.md",),
    "benchmarks/programs.md": ("benchmarks/README.md",),
    "examples.md": (
        "examples/ddp/README.md",
        "examples/caffe/README.md",
        "examples/patterns/README.md",
    ),
    "contributing/architecture.md": ("ARCHITECTURE.md",),
    "contributing/index.md": ("CONTRIBUTING.md",),
    "changelog.md": ("CHANGELOG.md",),
}
#: Headings that are questions, as people type them, go before those that merely share words.
SEARCH_BOOST = {"faq.md": 2}
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


class SetOff(Preprocessor):
    """Sets off indented lines that follow a sentence: Markdown would run them into it."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the lines, with an empty one before each indented run outside of fences."""
        out, is_fenced = [""], False
        for line in lines:
            is_fenced ^= line.startswith("```")
            if line.startswith("    ") and not is_fenced and out[-1][:1].strip():
                out.append("")
            out.append(line)
        return out[1:]


class HelpTexts(Extension):
    """Sets off what help texts of commands indent, on the page that mkdocs-click makes of them."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (its base has it so)
        """Run after mkdocs-click (141), and before the rest."""
        if "mk_click" in md.preprocessors:
            md.preprocessors.register(SetOff(md), "set_off", 140)


def on_config(config: Any) -> None:
    """Add the extension."""
    config.markdown_extensions.append(HelpTexts())


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that other folders hold."""
    root = Path(config.config_file_path).parent
    homes = {source: page for page, sources in PAGES.items() for source in sources}
    for page, sources in PAGES.items():
        texts = []
        for source in sources:
            text = (root / source).read_text(encoding="utf-8")
            link = partial(moved, source=source, page=page, homes=homes)
            texts.append(LINK.sub(link, text))
        files.append(File.generated(config, page, content="\n\n".join(texts)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> None:
    """Tell the search how much the headings of a page count."""
    del markdown
    if page.file.src_uri in SEARCH_BOOST:
        page.meta["search"] = {"boost": SEARCH_BOOST[page.file.src_uri]}


def moved(match: re.Match[str], *, source: str, page: str, homes: dict[str, str]) -> str:
    """Return a link of ``source`` as ``page`` has it."""
    text, target, part = match[1], match[2], match[3] or ""
    if "://" in target:
        return match[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    home = homes.get(path)
    if home is None and path.startswith("docs/"):
        home = path.removeprefix("docs/")
    if home is None:
        return text if text.strip("`") == path else f"{text} (`{path}`)"
    return f"[{text}]({posixpath.relpath(home, posixpath.dirname(page) or '.')}{part})"
