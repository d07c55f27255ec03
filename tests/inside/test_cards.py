"""Cards for notebooks: of Records and environments; bounded, and raising nothing."""

from __future__ import annotations

import os
from pathlib import Path

import lmdb
import pytest

import lmdbio
from tests.cli.test_gallery import Page
from tests.inside import samples
from tests.support.databases import CASES, FORMATS, Case, build


@pytest.fixture
def images(tmp_path: Path) -> Path:
    path = tmp_path / "images_lmdb"
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for index in range(40):
            txn.put(b"image-%04d" % index, samples.image("JPEG", 90 + index, 60))
    return path


def test_records_have_a_card(images: Path) -> None:
    with lmdbio.Records(images) as records:
        shown = Page(records._repr_html_())
    assert len(shown.images()) == 6
    words = " ".join(shown.words)
    assert "40" in words and "JPEG" in words and "[39]" in words


def test_an_environment_has_a_card(images: Path) -> None:
    with lmdbio.open(str(images), readonly=True, lock=False) as env:
        shown = Page(env._repr_html_())
    assert len(shown.images()) == 6
    assert "image-0000" in " ".join(shown.words)


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_shape_has_one(case: Case, version: int, tmp_path: Path) -> None:
    path = build(case, tmp_path, version)
    for name in case.databases or (None,):
        with lmdbio.Records(path, db=name) as records:
            assert f"{len(records):,}" in " ".join(Page(records._repr_html_()).words)
    with lmdbio.open(str(path), readonly=True, lock=False, max_dbs=8) as env:
        Page(env._repr_html_())


def test_cards_of_what_cannot_be_read_raise_nothing(images: Path) -> None:
    records = lmdbio.Records(images)
    env = lmdbio.open(str(images), readonly=True, lock=False)
    os.truncate(images / "data.mdb", 8192)
    for shown in (records, env):
        assert Page(shown._repr_html_()).found[0][0] == "pre"
        shown.close()
        assert Page(shown._repr_html_()).found[0][0] == "pre"


def test_a_card_takes_few_reads(images: Path) -> None:
    with lmdbio.Records(images) as records:
        before = records.stats().page_requests
        records._repr_html_()
        assert records.stats().page_requests - before < 40
