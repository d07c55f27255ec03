"""A main database that holds nothing but named ones gives no records.

Goal: every reader by index refuses it and names the databases; beside plain records they stay
entries as before. Method: environments by py-lmdb in both data formats, with and without a
provenance file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio import _core, cli
from lmdbio.convert.convert import convert


def make(path: Path, names: list[bytes], plain: int, version: int = 0) -> Path:
    with lmdb.open(str(path), map_size=64 << 20, max_dbs=2000, lib_version=version) as env:
        for name in names:
            db = env.open_db(name)
            with env.begin(write=True, db=db) as txn:
                txn.put(b"key", name)
        with env.begin(write=True) as txn:
            for number in range(plain):
                txn.put(b"%08d" % number, b"value")
    return path


def readers() -> dict[str, Callable[[Path], Any]]:
    def reader(mode: str) -> Callable[[Path], Any]:
        return lambda path: lmdbio.Reader(path, 1, mode=mode, iterations=1)

    return {
        "records": lmdbio.Records,
        "joined": lambda path: lmdbio.Records([path, path]),
        "demanded": lambda path: lmdbio.Records(path, locate="provenance"),
        **{
            f"reader-{mode}": reader(mode) for mode in ("auto", "LMDB", "LMM", "LMM-DM", "LMM-DIO")
        },
    }


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("surface", readers())
def test_a_reader_names_the_databases(
    tmp_path: Path, version: int, converted: bool, surface: str
) -> None:
    path = make(tmp_path / "set", [b"train", b"val"], 0, version)
    if converted:
        convert(path)
    with pytest.raises(LookupError) as caught, warnings.catch_warnings():
        warnings.simplefilter("error")  # it would say that the tree is walked instead
        readers()[surface](path)
    assert "holds only named databases (train, val): say db='train'" in str(caught.value)
    with lmdbio.Records(path, db="train") as records:
        assert list(records) == [b"train"]


@pytest.mark.parametrize("words", [["plan"], ["bench", "--html", "bench/page.html"]])
def test_a_command_names_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = make(tmp_path / "set", [b"train"], 0)
    done = CliRunner().invoke(cli.cli, [words[0], str(path), *words[1:]])
    assert isinstance(done.exception, cli.EXPECTED)
    assert "--db train" in str(done.exception)


def test_many_are_not_all_shown(tmp_path: Path) -> None:
    path = make(tmp_path / "set", [b"%04d" % n for n in range(300)], 0)
    with pytest.raises(LookupError, match=r"\(0000, .*, 0007, \.\.\.\): say db='0000'"):
        lmdbio.Records(path)


def test_beside_plain_records_they_stay_entries(tmp_path: Path) -> None:
    path = make(tmp_path / "set", [b"train"], 5)
    with lmdbio.Records(path) as records:
        assert len(records) == 6
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        assert txn.stat()["entries"] == 6


def test_an_ordinary_database_is_not_read_for_it(tmp_path: Path) -> None:
    path = make(tmp_path / "set", [], 2000)
    convert(path)
    with lmdbio.Records(path) as records:
        assert records.located_by == "provenance"
        assert records._source.counts().bytes <= 2 * 8192


def test_pages_of_another_state_decide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer overwrites the leaf of headers while it is looked at."""
    path = make(tmp_path / "set", [b"train", b"val"], 0)
    found = _core.leaf_databases

    def late(*words: Any) -> Any:
        with lmdb.open(str(path), map_size=64 << 20, max_dbs=2) as env:
            db = env.open_db(b"train")
            for number in range(3):
                with env.begin(write=True, db=db) as txn:
                    txn.put(b"%d" % number, b"value")
        return found(*words)[:1]

    monkeypatch.setattr(_core, "leaf_databases", late)
    for locate in ("auto", "scan"):
        with pytest.raises(lmdbio.Error, match="was committed to while it was opened"):
            lmdbio.Records(path, locate=locate)
