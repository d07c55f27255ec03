"""Bring documents that lie elsewhere in the repository into the site.

FORMAT, ARCHITECTURE, CONTRIBUTING and the READMEs of folders stay where a reader of the code looks
for them. The site shows the same text; a link to a file that the site does not have becomes the
file's name.
"""

from __future__ import annotations

import posixpath
import re
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

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
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


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
