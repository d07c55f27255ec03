"""Goal: a cursor goes on as py-lmdb's does from wherever a search or a failure has left it.

Method: small databases and deep ones; steps after searches that found nothing, scans that are
counted, and checks of the snapshot that fail once, after which the move is made again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import lmdb
import pytest

from lmdbio.dropin import environment as lmdbio_env
from tests.support import databases

every_format = pytest.mark.parametrize("version", databases.FORMATS)


@pytest.mark.parametrize("key", [b"\0", b"~"])
def test_steps_after_a_search_that_found_nothing_are_not_held_against_the_tree(tmp_path, key):
    path = databases.build(next(c for c in databases.CASES if c.name == "one_large"), tmp_path, 1)

    def steps(module):
        with module.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
            cursor = txn.cursor()
            return [
                cursor.prev(),
                cursor.set_key(key),
                cursor.prev(),
                cursor.prev(),
                cursor.prev(),
            ]

    assert steps(lmdbio_env) == steps(lmdb)


@pytest.mark.parametrize("version", databases.FORMATS)
def test_first_dup_at_the_end_is_left_as_each_lmdb_leaves_it(tmp_path, version):
    case = next(c for c in databases.CASES if c.name == "duplicates")
    path = databases.build(case, tmp_path, version)

    def steps(module):
        with module.open(str(path), readonly=True, lock=False, max_dbs=8) as env:
            with env.begin(db=env.open_db(b"dup", create=False)) as txn:
                cursor = txn.cursor()
                return [cursor.last(), cursor.first_dup(), cursor.next(), cursor.item()]

    assert steps(lmdbio_env) == steps(lmdb)


def test_a_scan_of_a_deep_tree_reads_each_leaf_about_once(tmp_path):
    """Read ahead must go on where one branch page ends and the next begins."""
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(env, ((b"%0200d" % i, b"v" * 500) for i in range(20_000)))
    env.close()
    path = str(tmp_path / "env")
    with lmdbio_env.open(path, readonly=True, lock=False) as env, env.begin() as txn:
        stat = txn.stat()
        assert stat["depth"] >= 4
        pages = stat["leaf_pages"] + stat["branch_pages"]
        assert sum(1 for _ in databases.scanning(txn.cursor())) == stat["entries"]
        assert env._file.engine.counts().bytes <= 1.1 * pages * stat["psize"]
        assert env._file.engine.counts().requests <= pages / 4


def test_values_and_the_leaves_between_them_come_in_one_stretch_without_a_disk(tmp_path):
    """tmpfs stands for FUSE and the network, where stretches of the file are asked for whole."""
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        pytest.skip("no /dev/shm to write to")
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        path = str(Path(folder) / "env")
        env = databases.open_writable(Path(path), 1)
        databases.write(env, ((b"%08d" % i, b"%08d" % i * 400) for i in range(12_000)))
        env.close()
        with lmdbio_env.open(path, readonly=True, lock=False) as env, env.begin() as txn:
            assert env._file.dense
            count = 0
            for key, value in txn.cursor():
                assert value == key * 400
                count += 1
            assert count == 12_000


@pytest.mark.parametrize("failing", range(1, 14))
def test_iteration_passes_over_nothing_where_the_snapshot_could_not_be_checked(
    tmp_path, monkeypatch, failing
):
    """The check comes after a chunk was read: what it could not vouch for is handed out later."""
    path = tmp_path / "env"
    env = databases.open_writable(path, 1)
    databases.write(env, databases.records(1500, lambda i: 3000 if i % 7 == 0 else 20))
    env.close()
    calls, check = [0], lmdbio_env.Transaction._verify

    def fail_once(txn):
        calls[0] += 1
        if calls[0] == failing:
            raise OSError(5, "Input/output error")
        check(txn)

    with lmdbio_env.open(str(path), readonly=True, lock=False) as ours, ours.begin() as txn:
        records, got, failures = iter(txn.cursor()), [], 0
        monkeypatch.setattr(lmdbio_env.Transaction, "_verify", fail_once)
        while True:
            try:
                got.append(next(records))
            except OSError:
                failures += 1
            except StopIteration:
                break
    assert failures == (calls[0] >= failing)
    assert got == databases.content(path)


@every_format
@pytest.mark.parametrize("large", [False, True], ids=["a page in the node", "a tree"])
def test_a_step_after_a_missed_search_enters_the_duplicates_of_the_key_it_stands_at(
    tmp_path, version, large
):
    writer = databases.open_writable(tmp_path / "env", version)
    values = [b"%04d" % i for i in range(2000 if large else 3)]
    db = writer.open_db(b"d", dupsort=True)
    databases.write(
        writer, [(key, value) for key in (b"a", b"c", b"e") for value in values], db=db
    )
    writer.close()
    found = []
    for module in (lmdb, lmdbio_env):
        with module.open(str(tmp_path / "env"), readonly=True, lock=False, max_dbs=1) as env:
            db = env.open_db(b"d")
            with env.begin(db=db) as txn:
                cursor = txn.cursor()
                for move in ("next", "prev", "next_dup", "prev_dup", "next_nodup", "prev_nodup"):
                    cursor.first()
                    assert not cursor.set_key(b"b")
                    found.append((module is lmdb, move, getattr(cursor, move)(), cursor.item()))
    half = len(found) // 2
    assert [one[1:] for one in found[half:]] == [one[1:] for one in found[:half]]


def test_a_cursor_whose_snapshot_is_gone_says_so_wherever_it_is_asked_to_go(tmp_path):
    folder = str(tmp_path / "env")
    write = """
        import lmdb, sys
        env = lmdb.open(sys.argv[1], map_size=1 << 28)
        for size in map(int, sys.argv[2:]):
            with env.begin(write=True) as txn:
                for i in range(5000):
                    txn.put(b"%06d" % i, b"x" * size)
    """
    run = [sys.executable, "-c", textwrap.dedent(write), folder]
    subprocess.run([*run, "300"], check=True)
    options = {"cache_bytes": 0, "block_bytes_max": 1 << 20}
    with lmdbio_env.open(folder, readonly=True, lock=False, **options) as env:
        cursor = env.begin().cursor()
        records = iter(cursor)
        for _ in range(300):
            next(records)
        subprocess.run([*run, *["200", "6000"] * 3], check=True)
        for go in (
            lambda: list(records),
            lambda: cursor.set_key(b"000100"),
            cursor.last,
            cursor.next,
            lambda: list(records),
        ):
            with pytest.raises(lmdb.Error, match="no longer protected") as raised:
                go()
            assert not isinstance(raised.value, lmdb.CorruptedError)


@pytest.mark.parametrize("move", ["first_dup", "last_dup"])
def test_a_move_among_values_that_could_not_be_checked_tells_its_key_when_made_again(
    tmp_path, monkeypatch, move
):
    env = databases.open_writable(tmp_path / "env", 1)
    pairs = [(b"key", b"%04d" % i) for i in range(2000)]
    databases.write(env, pairs, db=env.open_db(b"d", dupsort=True))
    env.close()

    def fail(txn):
        raise OSError(5, "Input/output error")

    with lmdbio_env.open(str(tmp_path / "env"), readonly=True, lock=False, max_dbs=1) as ours:
        with ours.begin(db=ours.open_db(b"d")) as txn, txn.cursor() as cursor:
            cursor.set_key_dup(*pairs[1000])
            with monkeypatch.context() as patched:
                patched.setattr(lmdbio_env.Transaction, "_verify", fail)
                with pytest.raises(OSError, match="Input"):
                    getattr(cursor, move)()
                assert cursor.item() == (b"", b"")
            assert getattr(cursor, move)()
            assert cursor.item() == (pairs[0] if move == "first_dup" else pairs[-1])
