"""Paths that mean another file later, and paths that are no text.

Goal: what is open goes on with its own files when the process changes its folder, and so does what
is pickled there; a path of any bytes is one like others. Method: two folders have files of the
same names with other records, and the process goes from one to the other.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.convert.convert import convert

COUNT, FILES = 40, 80
ODD = os.fsencode("/") + b"\xff\xfe odd"


def value(i: int, mark: bytes) -> bytes:
    return b"%s %04d" % (mark, i) * 90


def write(path: Path | bytes, mark: bytes, count: int = COUNT, first: int = 0) -> None:
    with lmdb.open(os.fsencode(path), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for i in range(count):
            txn.put(b"%04d" % i, value(first + i, mark))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Begin in a folder with files; the call goes on in another one, whose files are others."""
    for mark in (b"right", b"wrong"):
        folder = tmp_path / os.fsdecode(mark)
        (folder / "shards").mkdir(parents=True)
        write(folder / "set", mark)
        write(folder / "copy", mark)
        convert(folder / "set", output=folder / "told.prov")
        for i in range(FILES if mark == b"right" else 2):
            write(folder / "shards" / f"{i:03}.lmdb", mark, 2, 2 * i)
    monkeypatch.chdir(tmp_path / "right")
    return lambda: monkeypatch.chdir(tmp_path / "wrong")


def right(i: int) -> bytes:
    return value(i, b"right")


@pytest.mark.parametrize("lock", [True, False])
def test_an_environment_goes_on_with_its_file(
    elsewhere: Callable[[], None], tmp_path: Path, lock: bool
) -> None:
    with lmdbio.open("set", readonly=True, lock=lock) as env:
        told = pickle.dumps(env)
        elsewhere()
        assert env.path() == "set"  # as py-lmdb
        with env.begin() as txn:
            assert txn.get(b"0003") == right(3)
            assert [data for _, data in txn.cursor()] == [right(i) for i in range(COUNT)]
            cursor = txn.cursor()
            assert cursor.set_index(7)
            assert cursor.value() == right(7)
        (tmp_path / "copied").mkdir()
        env.copy(str(tmp_path / "copied"))
        with pickle.loads(told) as again, again.begin() as txn:
            assert txn.get(b"0003") == right(3)
    with lmdb.open(str(tmp_path / "copied"), lock=False) as copied, copied.begin() as txn:
        assert txn.get(b"0003") == right(3)


def test_an_environment_that_gets_its_slots_later_gets_those_of_its_file(
    elsewhere: Callable[[], None], tmp_path: Path
) -> None:
    with lmdb.open("set") as theirs:
        env = lmdbio.open("set", readonly=True)  # no slot can be had
        elsewhere()
        theirs.close()
    with env, env.begin() as txn:
        assert txn._slot is not None
        assert str(txn.id()) in env.readers()
        with lmdb.open(str(tmp_path / "wrong/set"), readonly=True) as other:
            assert other.readers() == "(no active readers)\n"


@pytest.mark.parametrize("source", ["shards", "shards/*.lmdb", ["shards/003.lmdb", "set"]])
def test_records_of_many_files_go_on_with_their_files(
    elsewhere: Callable[[], None], source: Any
) -> None:
    with lmdbio.Records(source) as records:
        expected = [bytes(one) for one in records]
        keys = [records.key(i) for i in range(len(records))]
        told = pickle.dumps(records)
    for make in (lambda: lmdbio.Records(source), lambda: pickle.loads(told)):
        with make() as records:
            elsewhere()
            assert all(one.startswith(b"right") for one in expected)
            assert [records[i] for i in range(len(records))] == expected
            assert [records.key(i) for i in range(len(records))] == keys
        os.chdir("../right")


def test_records_by_a_named_provenance_file_are_pickled_with_it(
    elsewhere: Callable[[], None],
) -> None:
    with lmdbio.Records("set", provenance="told.prov", locate="provenance") as records:
        told = pickle.dumps(records)
        elsewhere()
        with pickle.loads(told) as again:
            assert again[3] == records[3] == right(3)
            assert again.located_by == "provenance"


def test_provenance_files_in_a_named_folder_are_found_again(
    elsewhere: Callable[[], None], tmp_path: Path
) -> None:
    for name in ("set", "copy"):
        (tmp_path / "right/prov").mkdir(exist_ok=True)
        convert(name, output="prov/")
    names = ["set", "copy"]
    with lmdbio.Records(names, provenance="prov", locate="provenance") as records:
        elsewhere()
        assert [records.key(i) for i in (3, COUNT + 3)] == [b"0003", b"0003"]


@pytest.mark.parametrize("cache", [None, "memory=4K,disk=cache"])
def test_a_reader_goes_on_with_its_file_and_its_cache(
    elsewhere: Callable[[], None], tmp_path: Path, cache: str | None
) -> None:
    (tmp_path / "right/cache").mkdir()
    how: dict[str, Any] = {} if cache is None else {"cache": cache, "shuffle": True}
    with lmdbio.Reader("set", 4, epochs=3, **how) as reader:
        got = [bytes(next(iter(reader))[0])]
        elsewhere()
        got += [bytes(record) for batch in reader for record in batch]
    assert all(one.startswith(b"right") for one in got)
    assert not (tmp_path / "wrong/cache").exists()


@pytest.mark.parametrize("given", [bytes, os.fsdecode])
def test_a_path_of_any_bytes_is_a_path(tmp_path: Path, given: Any) -> None:
    path = os.fsencode(tmp_path) + ODD
    write(path, b"odd")
    named = given(path)
    with lmdbio.open(named, readonly=True) as env, env.begin() as txn:
        assert txn._slot is not None
        assert txn.get(b"0003") == value(3, b"odd")
        assert os.fsencode(env.path()) == path
        with pickle.loads(pickle.dumps(env)) as again:
            assert again.stat()["entries"] == COUNT
        env.copy(os.fsencode(tmp_path))
    with lmdbio.Records(named) as records:
        assert records[3] == value(3, b"odd")
        assert pickle.loads(pickle.dumps(records))[4] == value(4, b"odd")
    with lmdbio.Records([named, tmp_path]) as records:
        assert len(records) == 2 * COUNT
    with lmdbio.Reader(named, 4, iterations=1) as reader:
        assert bytes(next(iter(reader))[1]) == value(1, b"odd")
