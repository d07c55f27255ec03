"""A warning points at the program that called, through however many rooms it went."""

from __future__ import annotations

import warnings
from pathlib import Path

import lmdb
import pytest

import lmdbio
from lmdbio.convert.convert import convert


@pytest.fixture
def stale(tmp_path: Path) -> Path:
    """An environment that was written to after it was converted."""
    with lmdb.open(str(tmp_path)) as env:
        for key in (b"one", b"two"):
            with env.begin(write=True) as txn:
                txn.put(key, b"value")
            if key == b"one":
                convert(tmp_path)
    return tmp_path


@pytest.mark.parametrize("surface", ["records", "joined", "reader"])
def test_the_place_is_the_callers(stale: Path, surface: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if surface == "records":
            lmdbio.Records(stale).close()
        elif surface == "joined":
            lmdbio.Records([stale, stale]).close()
        else:
            lmdbio.Reader(stale, 1, iterations=1).close()
    told = [one for one in caught if "the tree is walked instead" in str(one.message)]
    assert {one.filename for one in told} == {__file__}


def test_a_warning_at_the_end_of_writing_too(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no provenance file describes") as caught:
        with lmdbio.open(str(tmp_path / "set"), provenance=True) as env:
            with env.begin(write=True) as txn:
                txn.put(b"key", b"value")
            (tmp_path / "set" / "data.mdb").rename(tmp_path / "set" / "moved")
            (tmp_path / "set" / "data.mdb").write_bytes(b"")
    assert caught[0].filename == __file__
