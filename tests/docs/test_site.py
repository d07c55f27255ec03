"""The site: its first pages run as they are, its reference is whole, and its search finds answers.

Goal: nothing that somebody new copies fails, no parameter with a default is called required, no
public name is missing, and common questions lead to their answers, also in a site opened from a
file. Method: run the lines of the first pages in an empty folder; build the site, read its HTML,
and ask the theme's own search, in Node (search.js).
"""

from __future__ import annotations

import html
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest

import lmdbio
from tests.support import ROOT

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Commands of the first pages that measure for minutes, or write gigabytes.
LONG = ("bench", "tune", "demo")
#: A heading of the reference, the title of a table under it, or a row of that.
PART = re.compile(
    r'<h\d id="(lmdbio[\w.]*)"|<span class="doc-section-title">(.*?)</span>'
    r'|<tr class="doc-section-item">\s*<td>\s*<code>([\w*]+)</code>(.*?)</tr>',
    re.DOTALL,
)
TRAINERS = ("lightning", "accelerate", "or", "transformers")
FRAMEWORKS = ("jax", "tensorflow", "ray", "dali", "or", "hugging", "face")
#: Queries, as people type them, and the section that answers each.
ANSWERS = {
    "How do I resume": "faq.html#how-do-i-resume",
    "why is it slow": "faq.html#why-is-it-slow",
    "how do I make a set": "faq.html#how-do-i-make-a-data-set",
    "does it work with Lightning": f"faq.html#does-it-work-with-{'-'.join(TRAINERS)}",
    "what does it do with broken records": "faq.html#what-happens-to-broken-records",
    "lmdbio or WebDataset": "faq.html#lmdbio-webdataset-or-mds",
    "uneven shards": "faq.html#my-shards-have-different-sizes-do-ranks-stay-in-step",
    "/dev/shm": "faq.html#what-are-the-files-in-devshm",
    "memory grows": "faq.html#memory-grows-or-runs-out-is-that-a-leak",
    "out of memory": "faq.html#memory-grows-or-runs-out-is-that-a-leak",
    "corrupt": "faq.html#what-happens-to-broken-records",
    "does it work with JAX": f"faq.html#does-it-work-with-{'-'.join(FRAMEWORKS)}",
    "Ray": f"faq.html#does-it-work-with-{'-'.join(FRAMEWORKS)}",
}


def commands(*pages: str) -> Iterator[list[str]]:
    """Yield what the first pages have a reader run, but for the installation."""
    for page in pages:
        for language, code in FENCE.findall((ROOT / "docs" / page).read_text("utf-8")):
            if language == "python":
                yield [sys.executable, "-W", "error", "-c", code]
            for line in code.splitlines() if language == "sh" else ():
                words = shlex.split(line, comments=True)
                if words[:1] == ["lmdbio"] and words[1] not in LONG:
                    yield [sys.executable, "-m", *words]


@pytest.mark.more
def test_the_first_pages_run_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the first page trains with PyTorch")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = []
    first = next(commands("index.md"))
    for command in [first, first, *commands("index.md", "start.md")]:  # who tries does so again
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert not done.returncode, f"{shlex.join(command)}\n{done.stderr}"
        said.append(done.stdout)
    assert said[0] == said[1] == said[2]
    del said[:2]
    assert re.findall(r"^(\d+) (\d\.\d+)$", said[0], re.MULTILINE)[-1] == (
        "232",
        "4.5344827586206895",
    )
    assert "1,000 entries" in said[1]
    assert said[2].count("torch.Size([256, 3, 32, 32])") == 3
    assert len(said) >= 7


def test_the_six_lines_are_six() -> None:
    code = next(commands("index.md"))[-1]
    assert len([line for line in code.splitlines() if line]) == 6


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from this tree."""
    pytest.importorskip("mkdocs_click", reason="the docs extra is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.returncode, done.stderr
    return folder


def parameters(page: str) -> Iterator[tuple[str, str, bool]]:
    """Yield what the tables of a page say: the call, a parameter of it, and if it is required."""
    call, is_table = "", False
    for heading, title, name, rest in PART.findall(page):
        call, is_table = heading or call, not heading and (title == "Parameters:" or is_table)
        is_table = is_table and title in ("", "Parameters:")
        if name and is_table:
            yield call, name.lstrip("*"), "<em>required</em>" in rest


def has_default(path: str, name: str) -> bool:
    """Return whether the parameter of a call may be left out, as Python itself sees it."""
    call = resolve_name(path)
    if inspect.isclass(call) and "__new__" in vars(call):
        call = call.__new__
    parameter = inspect.signature(call).parameters[name]
    is_open = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return is_open or parameter.default is not parameter.empty


@pytest.mark.more
def test_no_parameter_with_a_default_is_called_required(site: Path) -> None:
    pages = [page.read_text("utf-8") for page in (site / "reference").glob("*.html")]
    rows = [row for page in pages for row in parameters(page)]
    loader = {name for call, name, _ in rows if call == "lmdbio.torch.Loader"}
    assert loader == set(inspect.signature(resolve_name("lmdbio.torch.Loader")).parameters)
    assert len(rows) > 200
    assert not [page for page in pages if re.search(r"<td>\s*<code>[\w*]+,", page)]
    assert not [row for row in rows if row[2] == has_default(*row[:2])]


def named(site: Path) -> set[str]:
    """Return the names that the reference explains: of its headings, and in its code."""
    names: set[str] = set()
    for page in (site / "reference").glob("*.html"):
        text = page.read_text("utf-8")
        names.update(re.findall(r'id="lmdbio\.([\w.]+)"', text))
        for code in re.findall(r"<code>([^<]*)</code>", text):
            names.add(html.unescape(code).removeprefix("lmdbio."))
        for heading in re.findall(r"<h2 [^>]*>(.*?)<a class", text, re.DOTALL):
            names.update(re.findall(r"lmdbio\.([\w.]+)", re.sub(r"<[^>]+>", "", heading)))
    return names


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    torch_names = resolve_name("lmdbio.torch").__all__
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = set(re.findall(r"\blmdbio\.((?:torch\.)?[A-Za-z]\w*)", readme))
    for line in re.findall(r"from lmdbio\.torch import (.*)", readme):
        shown.update(f"torch.{name.strip()}" for name in line.split(","))
    assert {"open", "Records", "Reader", "torch.Loader"} <= shown
    public = {*lmdbio.__all__, *(f"torch.{name}" for name in torch_names)}
    assert not (public | shown - {"torch", "bench"}) - named(site)


def test_a_frozen_value_shows_what_it_is_made_of(site: Path) -> None:
    text = re.sub(r"<[^>]*>", "", (site / "reference/api.html").read_text("utf-8"))
    shown = re.search(r"\bCache\((\s.*?)\)", text, re.DOTALL)
    assert shown is not None
    assert re.findall(r"(\w+):", shown[1]) == list(inspect.signature(lmdbio.Cache).parameters)


def test_the_list_of_commands_has_a_line_for_each(site: Path) -> None:
    page = (site / "reference" / "cli.html").read_text("utf-8")
    for code in re.findall(r"<p>(.*?)</p>", page, re.DOTALL):
        assert code.count("lmdbio ") < 3, "a list that runs together"


def test_questions_lead_to_their_answers(site: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js, which runs the theme's search, is not installed")
    command = [node, str(Path(__file__).with_name("search.js")), str(site), *ANSWERS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found = {
        query: pages[0] for query, pages in zip(ANSWERS, json.loads(done.stdout), strict=True)
    }
    assert found == ANSWERS


def test_a_site_that_was_opened_from_a_file_searches_and_fetches_nothing(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text("utf-8").startswith("var __index = ")
    page = (site / "index.html").read_text("utf-8")
    scripts = re.findall(r'<script src="([^"]+)"', page)
    assert "assets/iframe-worker.js" in scripts
    assert all((site / script).is_file() for script in scripts), scripts
