"""``lmdbio gallery``: one page that needs nothing else, and shows records from all over the file.

Goal: the page is sound HTML whatever keys and values hold, asks for nothing from elsewhere, runs
nothing, and is made by few reads. Method: the page is parsed; hostile keys and values; a file of a
terabyte; Pillow taken away.
"""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import lmdb
import numpy as np
import pytest

from lmdbio.cli import gallery as command
from lmdbio.inside.page import histogram_svg
from lmdbio.inside.summary import size_bins
from tests.cli.test_cli import answer, call, process
from tests.inside import samples
from tests.support.databases import CASES, FORMATS, Case, build
from tests.support.far import spread_out

VOID = {"meta", "img", "input"}


class Page(HTMLParser):
    """A page, taken apart: fails where its tags do not close one another."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def cards(self) -> int:
        return sum(tag == "figure" for tag, _ in self.found)

    def images(self) -> list[str]:
        return [attrs["src"] or "" for tag, attrs in self.found if tag == "img"]


def make(path: Path, tmp_path: Path, *options: object) -> Page:
    out = tmp_path / "page.html"
    done = call("gallery", path, "-o", out, *options)
    assert done.exit_code == 0, done.output
    text = out.read_text(encoding="utf-8")
    # Nothing is run, and nothing comes from elsewhere.
    assert "<script" not in text and not re.search(r"\bon\w+\s*=\s*[\"']", text)
    assert not re.search(r"(src|href)=[\"'](?!data:)", text) and "url(" not in text
    return Page(text)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    path = tmp_path / "images_lmdb"
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for index in range(60):
            txn.put(b"image-%09d" % index, samples.image("JPEG", 90 + index, 60))
            txn.put(b"label-%09d" % index, b"%d" % index)
    return path


def test_the_page_shows_every_record_of_a_small_set(images: Path, tmp_path: Path) -> None:
    page = make(images, tmp_path)
    assert page.cards() == 120
    assert len(page.images()) == 60
    assert all(uri.startswith("data:image/jpeg;base64,") for uri in page.images())
    words = " ".join(page.words)
    assert "all 120 records" in words
    assert "image-%09d" in words and "label-%09d" in words
    assert "JPEG 95x60" in words


def test_records_are_spread_evenly_also_where_they_are_of_different_sizes(
    images: Path, tmp_path: Path
) -> None:
    page = make(images, tmp_path, "--limit", 30)
    assert page.cards() == 30 and 14 <= len(page.images()) <= 16
    assert "30 of 120 records, spread evenly" in " ".join(page.words)


def test_the_first_records_or_some_by_chance_are_shown_as_asked(
    images: Path, tmp_path: Path
) -> None:
    first = make(images, tmp_path, "--limit", 30, "--first")
    assert len(first.images()) == 30
    by_chance = [make(images, tmp_path, "--limit", 30, "--random", s).words for s in (1, 1, 2)]
    assert by_chance[0] == by_chance[1] != by_chance[2]
    assert process("gallery", images, "--first", "--random", "1").returncode == 2


def test_types_can_be_chosen(images: Path, tmp_path: Path) -> None:
    page = make(images, tmp_path)
    radios = [attrs["id"] for tag, attrs in page.found if tag == "input"]
    labels = [attrs["for"] for tag, attrs in page.found if tag == "label"]
    assert radios == labels == ["all", "t0", "t1"]


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_shape_of_database_has_its_page(case: Case, version: int, tmp_path: Path) -> None:
    path = build(case, tmp_path, version)
    for name in (None, *case.databases):
        make(path, tmp_path, "--limit", 20, *([] if name is None else ["--db", name.decode()]))


def test_keys_and_values_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    hostile = b"</b><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    path = tmp_path / "hostile"
    with lmdb.open(str(path)) as env, env.begin(write=True) as txn:
        txn.put(hostile, hostile)
        txn.put(b"svg", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
        txn.put(b"json", json.dumps({"</pre><script>": "</style>"}).encode())
        txn.put(b"msgpack", b"\x81\xa8<script>\x01")
        txn.put(b"\xff\xfe\x00<i>", b"\x00\x01<script>")
    page = make(path, tmp_path)
    assert page.cards() == 5 and page.images() == []
    assert any("</b><script>alert(1)</script>" in word for word in page.words)


def test_arrays_are_drawn_and_anything_else_has_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "kinds"
    with lmdb.open(str(path), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for number, (_, _, _, value) in enumerate(samples.GOOD):
            txn.put(b"%03d" % number, value)
        txn.put(b"npy", samples.npy(np.random.default_rng(1).random((40, 30))))
    page = make(path, tmp_path)
    assert page.cards() == len(samples.GOOD) + 1
    drawn = [name for name, *_ in samples.GOOD if name in ("JPEG", "PNG", "GIF", "BMP", "TIFF")]
    assert len(page.images()) > len(drawn)
    assert "empty" in " ".join(page.words)


def test_without_pillow_the_page_says_what_would_help(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "has_pillow", lambda: False)
    assert len(make(images, tmp_path).images()) == 60  # as they are
    monkeypatch.setattr(command, "PLAIN_BYTES", 5000)
    done = call("gallery", images, "-o", tmp_path / "small.html")
    assert done.exit_code == 0 and "pip install pillow" in done.stderr
    assert 0 < len(Page((tmp_path / "small.html").read_text()).images()) < 60


def test_a_file_of_a_terabyte_has_its_page_at_once(tmp_path: Path) -> None:
    path = tmp_path / "far.mdb"
    spread_out(path, records=3000, gap_bytes=1 << 30)
    assert path.stat().st_size > 1 << 40
    begun = time.process_time()
    assert make(path, tmp_path).cards() == 200
    assert time.process_time() - begun < 5


# --- samples of several records -----------------------------------------------------------


def ocr_set(path: Path, count: int, said: int | None = None) -> Path:
    """Write a set of images and labels as mmocr reads it."""
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for number in range(1, count + 1):
            txn.put(b"image-%09d" % number, samples.image("JPEG", 90 + number, 60))
            txn.put(b"label-%09d" % number, b"word %d" % number)
        txn.put(b"num-samples", b"%d" % (count if said is None else said))
    return path


def captions(page: Page) -> list[str]:
    """Return the texts of the page that tell an image and its label."""
    return [word for word in page.words if "x60, word" in word]


def test_with_a_layout_image_and_label_are_one_card(tmp_path: Path) -> None:
    path = ocr_set(tmp_path / "ocr", 60)
    for layout in ("auto", "ocr"):
        page = make(path, tmp_path, "--layout", layout)
        assert page.cards() == len(page.images()) == 60
        assert captions(page) == [f"JPEG {90 + n}x60, word {n}" for n in range(1, 61)]
        assert "all 60 samples" in page.words
    facts = answer("gallery", path, "-o", tmp_path / "page.html", "--layout", "ocr")
    assert (facts["samples"], facts["records"], facts["pictures"]) == (60, 120, 60)
    assert facts["types"] == {"JPEG": 60}
    assert make(path, tmp_path).cards() == 121  # without, each record has one


def test_samples_are_spread_over_all_of_a_set(tmp_path: Path) -> None:
    path = ocr_set(tmp_path / "ocr", 60)
    few = captions(make(path, tmp_path, "--layout", "auto", "-n", 6))
    assert [int(text.split()[-1]) for text in few] == [6, 16, 26, 36, 46, 56]
    first = captions(make(path, tmp_path, "--layout", "auto", "-n", 6, "--first"))
    assert [int(text.split()[-1]) for text in first] == [1, 2, 3, 4, 5, 6]
    drawn = [captions(make(path, tmp_path, "--layout", "auto", "-n", 6, "--random", 3))] * 2
    assert drawn[0] == drawn[1] and len(drawn[0]) >= 4


def test_samples_of_several_files_are_shown_together(tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    folder.mkdir()
    for number in range(3):
        ocr_set(folder / f"part{number}.lmdb", 4)
    page = make(folder, tmp_path, "--layout", "auto")
    assert page.cards() == 12 and "all 12 samples" in page.words


def test_a_layout_that_a_set_has_not_is_told(images: Path, tmp_path: Path) -> None:
    done = process("gallery", images, "-o", tmp_path / "page.html", "--layout", "caffe")
    assert done.returncode == 1 and "has not the layout 'caffe'" in done.stderr
    done = process("gallery", images, "-o", tmp_path / "page.html", "--layout", "cafe")
    assert done.returncode == 2 and "'caffe'" in done.stderr and "'auto'" in done.stderr
    # None is found: each record has a card.
    assert make(images, tmp_path, "--layout", "auto").cards() == 120


def test_a_set_that_says_more_samples_than_it_has_shows_those(tmp_path: Path) -> None:
    path = ocr_set(tmp_path / "ocr", 5, said=10**17)
    assert make(path, tmp_path, "--layout", "auto").cards() == 5


def test_json_tells_what_was_made(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    facts = answer("gallery", images, "-o", out, "--limit", 20)
    assert facts["records"] == 20 and facts["pictures"] == 10
    assert facts["page"] == str(out) and facts["bytes"] == out.stat().st_size
    assert facts["types"] == {"JPEG": 10, "integer text": 10}


def test_a_page_that_cannot_be_written_is_told_in_one_line(images: Path, tmp_path: Path) -> None:
    done = process("gallery", images, "-o", tmp_path / "no" / "page.html")
    assert done.returncode == 1 and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "sizes", [[], [5], [0, 0, 0], [3, 4], [0, 1 << 40], list(range(1000)), [7] * 50 + [9000]]
)
def test_histograms_count_all(sizes: list[int]) -> None:
    bins = size_bins(sizes)
    assert sum(each.count for each in bins) == len(sizes)
    for before, after in pairwise(bins):
        assert before.high == pytest.approx(after.low)
    if sizes:
        assert "NaN" not in histogram_svg(sizes)
