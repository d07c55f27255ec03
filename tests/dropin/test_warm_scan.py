"""Iterating over what a mapping holds: by steps, or by a scan that copies by the handful.

Goal: each record comes once, in order, with its own bytes, whatever comes between: the loop is
broken off, another cursor moves, the file is cut or committed to. Method: a warm file of values
that tell their key, long enough to be mapped; py-lmdb's cursor beside ours.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import pytest
from lmdbio._core._lmdbio import lib

import lmdbio
from lmdbio import _core
from lmdbio.bench import measure
from lmdbio.dropin.iterator import CursorIterator
from tests.dropin.test_open_snapshot import commit
from tests.support import databases

COUNT = 3000
SIZES = (3000, 2500, 0, 9000, 40_000, 100, 2039)


def value(i: int) -> bytes:
    return (b"%08d" % i * (SIZES[i % len(SIZES)] // 8 + 1))[: SIZES[i % len(SIZES)]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warm") / "env"
    env = databases.open_writable(folder, 1)
    databases.write(env, ((key, value(i)) for i, key in enumerate(databases.keys(COUNT))))
    env.close()
    return folder


RECORDS = [(key, value(i)) for i, key in enumerate(databases.keys(COUNT))]


@pytest.fixture(params=[False, True], ids=["steps", "scans"])
def scans(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let iterators believe that they had to wait for the storage, so that they begin a scan."""
    if request.param:
        begun = CursorIterator.__init__

        def waited(self: CursorIterator, *args: Any) -> None:
            begun(self, *args)
            self._has_waited = True

        monkeypatch.setattr(CursorIterator, "__init__", waited)
    return bool(request.param)


@pytest.fixture(params=[False, True], ids=["bytes", "buffers"])
def txn(request: pytest.FixtureRequest, path: Path, scans: bool) -> Iterator[Any]:
    (path / "data.mdb").read_bytes()
    with lmdbio.open(str(path), readonly=True, lock=False) as env:
        with env.begin(buffers=request.param) as txn:
            for key, _ in RECORDS[:40]:
                txn.get(key)  # enough reads for a mapping to be made
            yield txn


def plain(pairs: Any) -> list[tuple[bytes, bytes]]:
    return [(bytes(key), bytes(data)) for key, data in pairs]


def test_values_are_copied_out_of_the_mapping(
    txn: Any, scans: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    advance = _core.Scan.advance

    def advanced(self: Any) -> int:
        found.append(lib.lio_scan_is_in_place(self.pointer))
        return advance(self)

    monkeypatch.setattr(_core.Scan, "advance", advanced)
    assert plain(txn.cursor()) == RECORDS
    assert any(found) is scans, "this machine maps nothing"


def test_an_iteration_that_is_broken_off_anywhere_leaves_the_cursor_there(txn: Any) -> None:
    for stop in (1, 2, 3, 4, 7, 11, 12, 13, 20, 100, 777, COUNT - 1, COUNT):
        cursor = txn.cursor()
        assert plain(islice(cursor, stop)) == RECORDS[:stop]
        assert plain([cursor.item()]) == RECORDS[stop - 1 : stop]
        assert cursor.next() is (stop < COUNT)
        if stop < COUNT:
            assert plain(cursor.iternext()) == RECORDS[stop:]


def test_moves_between_items_end_the_handful(txn: Any) -> None:
    rng = random.Random(7)
    cursor = txn.cursor()
    iterator, at = iter(cursor), 0
    for _ in range(400):
        for _ in range(rng.randrange(12)):
            got = next(iterator, None)
            if got is None:
                break
            assert plain([got]) == RECORDS[at : at + 1]
            at += 1
        at = rng.randrange(COUNT - 200)
        assert cursor.set_key(RECORDS[at][0])
        at += 1


def test_keys_alone_and_values_alone(txn: Any) -> None:
    assert [bytes(k) for k in txn.cursor().iternext(values=False)] == [k for k, _ in RECORDS]
    assert [bytes(v) for v in txn.cursor().iternext(keys=False)] == [v for _, v in RECORDS]


def test_threads_that_share_an_iterator_get_each_record_once(txn: Any) -> None:
    iterator, seen = iter(txn.cursor()), []

    def run() -> None:
        for key, data in iterator:
            seen.append((bytes(key), bytes(data)))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == RECORDS


@pytest.mark.usefixtures("scans")
def test_a_file_that_is_cut_meanwhile_is_an_error_and_no_wrong_byte(tmp_path: Path) -> None:
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, iter(RECORDS))
    env.close()
    data = tmp_path / "env" / "data.mdb"
    data.read_bytes()
    with lmdbio.open(str(data.parent), readonly=True, lock=False) as env, env.begin() as txn:
        for key, _ in RECORDS[:40]:
            txn.get(key)
        iterator = iter(txn.cursor())
        got = plain(islice(iterator, 200))
        os.truncate(data, data.stat().st_size // 2)
        with pytest.raises((lmdb.Error, OSError), match=r"data\.mdb"):
            got.extend(plain([item])[0] for item in iterator)
        assert got == RECORDS[: len(got)]


@pytest.mark.usefixtures("scans")
def test_what_a_writer_may_have_overwritten_is_not_handed_out(tmp_path: Path) -> None:
    env = databases.open_writable(tmp_path, 1)
    databases.write(env, iter(RECORDS))
    env.close()
    (tmp_path / "data.mdb").read_bytes()
    with lmdbio.open(str(tmp_path), readonly=True, lock=False) as env, env.begin() as txn:
        for key, _ in RECORDS[:40]:
            txn.get(key)
        iterator = iter(txn.cursor())
        got = plain(islice(iterator, 100))
        for number in range(3):
            commit(tmp_path, b"%d" % number)
        with pytest.raises(lmdb.Error, match="no longer protected"):
            got.extend(plain([item])[0] for item in iterator)
        assert got == RECORDS[: len(got)]
        assert len(got) < 120, "no more than a handful after the commit"


@pytest.mark.parametrize("asked", [30, 300, 1500])
def test_keys_are_not_collected_far_ahead_of_those_that_are_asked_for(
    path: Path, asked: int
) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        keys = txn.cursor().iternext(values=False)
        assert list(islice(keys, asked)) == [key for key, _ in RECORDS[:asked]]
        assert env.stats().located_records < 6 * asked
        assert list(keys) == [key for key, _ in RECORDS[asked:]]


NUMBERS = [(i, j) for i in range(61) for j in range(600 if i % 3 == 0 else 2)]


@pytest.fixture
def dups(tmp_path: Path) -> Path:
    """Keys whose values lie in a tree beside, or with them."""
    env = lmdb.open(str(tmp_path), map_size=1 << 26, max_dbs=1)
    db = env.open_db(b"dups", dupsort=True)
    with env.begin(write=True, db=db) as txn:
        for i, j in NUMBERS:
            txn.put(b"%04d" % i, b"%08d" % j)
    env.close()
    return tmp_path


@pytest.mark.parametrize("engine", ["pread", "mmap"])
def test_a_step_that_had_to_wait_half_way_passes_over_nothing(dups: Path, engine: str) -> None:
    """To the next key, but not yet to its values."""
    keys = [b"%04d" % i for i in range(61)]
    for start in range(12):
        measure.drop_file(dups / "data.mdb")  # as far as no mapping of before holds it
        options: Any = {"readonly": True, "lock": False, "max_dbs": 1, "engine": engine}
        with lmdbio.open(str(dups), **options) as env:
            with env.begin(db=env.open_db(b"dups")) as txn, txn.cursor() as cursor:
                assert cursor.set_key(keys[start])
                assert [k for k, _ in cursor.iternext_nodup(values=True)] == keys[start:]


@pytest.mark.parametrize("engine", ["pread", "mmap"])
@pytest.mark.parametrize("kind", ["", "_dup", "_nodup"])
@pytest.mark.parametrize("way", ["next", "prev"])
def test_a_first_step_that_had_to_wait_half_way_is_py_lmdb_s(
    dups: Path, engine: str, way: str, kind: str
) -> None:
    """Gets of other keys bring the first and last pages of keys, but no values of these."""
    found = []
    for module, options in ((lmdb, {}), (lmdbio, {"engine": engine})):
        measure.drop_file(dups / "data.mdb")
        with module.open(str(dups), readonly=True, lock=False, max_dbs=1, **options) as env:
            with env.begin(db=env.open_db(b"dups")) as txn:
                assert txn.get(b"0003") == txn.get(b"0057") == b"%08d" % 0
                cursor = txn.cursor()
                found.append((getattr(cursor, way + kind)(), cursor.item(), cursor.prev()))
    assert found[0] == found[1]
