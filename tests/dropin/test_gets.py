"""Single gets: one call each, whatever happens meanwhile.

Goal: what a get returns is right, or it raises as py-lmdb does: beside writers, other threads,
forks and cuts; and views lent from a mapping never dangle. Method: bring about each situation on
small databases, and compare with what was written.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from tests.support import databases

#: In leaf pages, in one overflow page, in several, and beyond what is read under the GIL.
LENGTHS = (0, 1, 900, 3000, 20_000, 100_000)
COUNT = 240
CUT_BYTES = 64 << 10

WRITER = """
import lmdb, sys
env = lmdb.open(sys.argv[1], map_size=1 << 28)
for turn in range(int(sys.argv[2])):
    with env.begin(write=True) as txn:
        txn.put(b"%08d" % turn, b"changed" * 500)
"""


def value(index: int) -> bytes:
    return databases.value(index, LENGTHS[index % len(LENGTHS)])


EXPECTED = {b"%08d" % i: value(i) for i in range(COUNT)}


def commit(path: Path, turns: int) -> None:
    subprocess.run([sys.executable, "-c", WRITER, str(path), str(turns)], check=True, timeout=60)


@pytest.fixture(params=[1, 3])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "env"
    env = databases.open_writable(folder, request.param)
    databases.write(env, EXPECTED.items())
    env.close()
    return folder


def readings(env: Any, txn: Any) -> list[Any]:
    """Every way to one value, as callables of a key."""
    cursor = txn.cursor()

    def by_value(key: bytes) -> Any:
        return cursor.value() if cursor.set_key(key) else None

    def by_item(key: bytes) -> Any:
        return cursor.item()[1] if cursor.set_key(key) else None

    return [txn.get, lambda key: txn.get(key, db=env.open_db()), cursor.get, by_value, by_item]


@pytest.mark.parametrize("engine", ["auto", "pread", "direct", "mmap"])
@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("lock", [False, True])
def test_every_way_to_a_value_gives_it(path: Path, engine: str, buffers: bool, lock: bool) -> None:
    try:
        env = lmdbio.open(str(path), readonly=True, engine=engine, lock=lock, cache_bytes=1)
    except lmdb.Error as error:
        assert engine == "direct"
        pytest.skip(f"no O_DIRECT here: {error}")
    with env, env.begin(buffers=buffers) as txn:
        for read in readings(env, txn):
            for key, expected in EXPECTED.items():
                found = read(key)
                assert type(found) is (memoryview if buffers else bytes)
                assert found == expected
            assert read(b"missing") is None
        assert txn.get(bytearray(b"00000003")) == EXPECTED[b"00000003"]
        assert txn.get(b"missing", 5) == 5
        assert txn.cursor().get(b"missing", default=6) == 6


def test_a_key_that_cannot_be_searched_for_leaves_the_cursor_where_it_was(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        cursor = txn.cursor()
        assert cursor.set_key(b"00000002")
        with pytest.raises(TypeError):
            cursor.set_key("00000003")
        assert cursor.key() == b"00000002"
        with pytest.raises(TypeError, match="key must be given"):
            txn.get(None)
        for search in (txn.get, cursor.set_key, cursor.get):
            with pytest.raises(lmdb.BadValsizeError):
                search(b"")
        assert cursor.key() == b""


def test_what_is_closed_raises_for_who_kept_its_methods(path: Path) -> None:
    env = lmdbio.open(str(path), readonly=True, lock=False)
    txn = env.begin()
    cursor = txn.cursor()
    calls = [txn.get, cursor.set_key, cursor.get]
    assert [call(b"00000001") for call in calls] == [value(1), True, value(1)]
    txn.abort()
    for call in [*calls, lambda _key: cursor.value(), lambda _key: cursor.item()]:
        with pytest.raises(lmdb.Error, match="closed/deleted/dropped"):
            call(b"00000001")
    env.close()


@pytest.mark.parametrize("buffers", [False, True])
def test_a_transaction_that_is_forgotten_is_gone_at_once(path: Path, buffers: bool) -> None:
    gc.disable()
    try:
        for engine in ("pread", "mmap"):
            env = lmdbio.open(str(path), readonly=True, engine=engine)
            txn = env.begin(buffers=buffers)
            cursor = txn.cursor()
            assert txn.get(b"00000004") == cursor.get(b"00000004") == value(4)
            gone = [weakref.ref(each) for each in (cursor, txn, env)]
            del cursor, txn, env
            assert [reference() for reference in gone] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("engine", ["pread", "mmap"])
def test_without_a_slot_gets_end_when_a_writer_may_have_reused_pages(
    path: Path, engine: str
) -> None:
    key = b"00000099"  # not what is written, and in no page read before
    with lmdbio.open(str(path), readonly=True, lock=False, engine=engine) as env:
        for buffers in (False, True):
            with env.begin(buffers=buffers) as txn:
                reads = readings(env, txn)
                commit(path, 1)
                for read in reads:
                    assert read(key) == EXPECTED[key]
                commit(path, 1)
                for read in reads:
                    with pytest.raises(lmdb.Error, match="no longer protected"):
                        read(key)
            with env.begin() as txn:
                assert txn.get(key) == EXPECTED[key]


def test_records_by_index_end_when_a_writer_may_have_reused_pages(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    env = databases.open_writable(folder, 1)
    databases.write(env, EXPECTED.items())
    env.close()
    with lmdbio.Records(folder, locate="scan", engine="pread") as records:
        assert [records[i] for i in range(-COUNT, COUNT)] == 2 * list(EXPECTED.values())
        commit(folder, 1)
        assert records[99] == value(99)
        commit(folder, 1)
        with pytest.raises(lmdb.Error, match="changed while it was read"):
            records[99]
    with pytest.raises(lmdb.Error, match="closed"):
        records[99]


def test_a_child_does_not_trust_its_parents_slot(path: Path) -> None:
    env = lmdbio.open(str(path), readonly=True, lock=True)
    txn = env.begin()
    cursor = txn.cursor()
    assert txn.get(b"00000003") == cursor.get(b"00000003") == value(3)
    begin, go = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.read(begin, 1)  # the parent has let go of the slot by now
            for read in (txn.get, cursor.get):
                try:
                    read(b"00000099")
                except lmdb.Error as error:
                    assert "no longer protected" in str(error)
                else:
                    raise AssertionError("read what a writer may have overwritten")
            code = 0
        finally:
            os._exit(code)
    commit(path, 3)
    assert txn.get(b"00000099") == cursor.get(b"00000099") == value(99)
    txn.abort()
    os.write(go, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(begin), os.close(go)
    env.close()


@pytest.mark.parametrize("engine", ["pread", "mmap"])
def test_threads_get_what_they_ask_for_from_one_transaction(path: Path, engine: str) -> None:
    failures: list[BaseException] = []
    options = {"engine": engine, "cache_bytes": 1, "lock": False}
    with lmdbio.open(str(path), readonly=True, **options) as env, env.begin() as txn:

        def work(seed: int) -> None:
            draw, cursor = random.Random(seed), txn.cursor()
            try:
                for _ in range(300):
                    key = b"%08d" % draw.randrange(COUNT)
                    assert txn.get(key) == EXPECTED[key]
                    assert cursor.get(key) == EXPECTED[key]
                    assert cursor.item() == (key, EXPECTED[key])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not failures


def test_a_file_that_is_cut_is_an_error_of_its_own_for_gets(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        cursor = txn.cursor()
        records = lmdbio.Records(path, locate="scan", engine="pread")
        assert txn.get(b"00000005") == records[5] == value(5)
        os.truncate(path / "data.mdb", CUT_BYTES)
        failed = 0
        for read in (txn.get, cursor.get, lambda key: records[int(key)]):
            for key, expected in EXPECTED.items():
                try:
                    assert read(key) == expected
                except (lmdb.Error, OSError) as error:
                    assert "data.mdb" in str(error)
                    failed += 1
        assert failed > COUNT
        records.close()


def mapped(path: Path) -> bool:
    return str(path / "data.mdb") in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_views_lent_from_a_mapping_outlive_everything_but_keep_it(path: Path) -> None:
    env = lmdbio.open(str(path), readonly=True, lock=False, engine="mmap")
    txn = env.begin(buffers=True)
    cursor = txn.cursor()
    large = [key for key, expected in EXPECTED.items() if len(expected) >= 3000]
    views = [txn.get(key) for key in large]
    views += [cursor.get(key) for key in large]
    cursor.first()
    views += [data for _, data in cursor if len(data) >= 3000]
    assert cursor.set_key(large[0])
    views.append(cursor.item()[1])
    assert all(view.readonly and view.format == "B" and view.ndim == 1 for view in views)
    txn.abort()
    env.close()
    del txn, cursor, env
    gc.collect()
    assert mapped(path)
    assert views == [EXPECTED[key] for key in [*large * 3, large[0]]]
    last = views.pop(1)[10:20]
    del views
    gc.collect()
    assert mapped(path)
    assert last == EXPECTED[large[1]][10:20]
    del last
    gc.collect()
    assert not mapped(path)


@pytest.mark.parametrize("what", [{}, {"keys": False}, {"values": False}])
def test_iterating_over_a_mapping_gives_views_of_every_record(
    path: Path, what: dict[str, bool]
) -> None:
    with lmdb.open(str(path), readonly=True, lock=False) as other, other.begin() as txn:
        expected = list(txn.cursor().iternext(**what))
    with (
        lmdbio.open(str(path), readonly=True, lock=False, engine="mmap") as env,
        env.begin(buffers=True) as txn,
    ):
        cursor = txn.cursor()
        found = list(cursor.iternext(**what))
        assert found == expected
        for item in found:
            parts = item if isinstance(item, tuple) else (item,)
            assert all(type(part) is memoryview for part in parts)
        iterator = cursor.iternext()
        for _ in range(100):
            key, data = next(iterator)
            assert cursor.item() == (key, data)  # where the run stands, moved there or not


def test_what_a_file_grew_by_since_it_was_mapped_is_read(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False, engine="mmap") as env:
        before = env._file.engine.size()
        later = [(b"later%04d" % i, bytes([i]) * 50_000) for i in range(40)]
        writer = lmdb.open(str(path), map_size=1 << 28)
        databases.write(writer, later)
        writer.close()
        assert env._file.engine.size() > before
        with env.begin(buffers=True) as txn:
            assert [txn.get(key) for key, _ in later] == [data for _, data in later]
            assert [(bytes(k), bytes(v)) for k, v in txn.cursor()] == [
                *EXPECTED.items(),
                *later,
            ]
