"""Reader slots, taken and given back for each transaction without Python.

Goal: a transaction begun with ``lock=True`` reads the snapshot that its slot holds, beside
whatever writers do; when it has ended, nothing of it holds pages or slots back; a child leaves its
parent's alone. Method: writers in processes of their own, and slots that are refused or come late.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.system import reader_slots

COUNT = 120
NONE = "(no active readers)\n"

#: Each transaction writes its number into all records, and says so.
WRITER = """
import lmdb, sys, time
path, count, turns, pause = sys.argv[1:]
env = lmdb.open(path, map_size=1 << 28, sync=False)
for _ in range(int(turns)):
    with env.begin(write=True) as txn:
        for i in range(int(count)):
            txn.put(b"%04d" % i, b"%08d" % txn.id() * (i % 7 * 100 + 1))
    time.sleep(float(pause))
env.close()
"""


def writer(path: Path, turns: int, pause: float = 0.0) -> subprocess.Popen[bytes]:
    words = [str(path), str(COUNT), str(turns), str(pause)]
    return subprocess.Popen([sys.executable, "-c", WRITER, *words])


def commit(path: Path, turns: int = 1) -> None:
    assert writer(path, turns).wait(60) == 0


def value(txnid: int, i: int) -> bytes:
    return b"%08d" % txnid * (i % 7 * 100 + 1)


def read(txn: Any, i: int = 3) -> int:
    """Hold a record against the snapshot, and return the number of that."""
    assert txn.get(b"%04d" % i) == value(txn.id(), i)
    return int(txn.id())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    commit(tmp_path)
    (tmp_path / "lock.mdb").unlink()  # or its size would say how many slots there are
    return tmp_path


@pytest.fixture
def env(path: Path) -> Iterator[Any]:
    with lmdbio.open(str(path), readonly=True) as env:
        for _ in range(2):
            with env.begin() as txn:  # the next one begins without Python
                read(txn)
        yield env


@pytest.fixture
def without_python(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Transactions that begin in C alone, from now on."""

    def refuse(*_: Any) -> None:
        raise AssertionError("it began in Python")

    return lambda: monkeypatch.setattr(lmdbio.Environment, "_begin", refuse)


def given(env: Any, txn: Any, take: Any) -> None:
    """Let ``take`` give the slots of the transactions that begin next."""
    opened = txn._opened
    known = opened, opened.is_newest, opened.finds, False
    env._know(*known, take)


def test_each_transaction_holds_a_slot_as_long_as_it_lives(env: Any, without_python: Any) -> None:
    without_python()
    for ends in ("abort", "commit"):
        one, two = env.begin(), env.begin()
        assert read(one) == read(two)
        assert env.readers().split().count(str(one.id())) == 2
        getattr(one, ends)()
        assert env.readers().split().count(str(two.id())) == 1
        del two
        assert env.readers() == NONE


def test_views_are_held_as_bytes_are(env: Any, without_python: Any) -> None:
    for _ in range(2):
        env.begin(buffers=True).get(b"0003")
    without_python()
    with env.begin(buffers=True) as txn:
        assert bytes(txn.get(b"0003")) == value(txn.id(), 3)
        assert str(txn.id()) in env.readers().split()


@pytest.mark.parametrize("commits", [1, 2, 5])
def test_a_slot_that_holds_a_later_snapshot_is_not_used_for_the_one_before(
    env: Any, path: Path, commits: int
) -> None:
    take = env._file.lock.slots.take

    def late() -> Any:
        commit(path, commits)  # the meta pages were looked at before
        return take()

    with env.begin() as txn:
        before = read(txn)
        given(env, txn, late)
    with env.begin() as txn:
        assert read(txn) == before + commits
        assert txn._slot.id() == before + commits


def test_a_slot_that_is_refused_is_asked_for_again_by_python(env: Any) -> None:
    refused = []

    def refuse() -> None:
        refused.append(1)
        raise lmdb.ReadersFullError("full")

    with env.begin() as txn:
        read(txn)
        given(env, txn, refuse)
    with env.begin() as txn:
        assert refused == [1]
        read(txn)
        assert txn._slot is not None


@pytest.mark.parametrize("ends", ["_forget", "close"])
def test_an_environment_may_be_closed_while_a_slot_is_taken(env: Any, ends: str) -> None:
    take = env._file.lock.slots.take

    def closing() -> Any:
        slot = take()
        getattr(env, ends)()
        return slot

    with env.begin() as txn:
        read(txn)
        given(env, txn, closing)
    if ends == "close":
        with pytest.raises(lmdb.Error):
            env.begin()
        assert not reader_slots._shared
    else:
        with env.begin() as txn:
            read(txn)


def test_one_slot_serves_one_transaction_after_the_other(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, max_readers=1) as env:
        for _ in range(50):
            with env.begin() as txn:
                read(txn)
                with pytest.raises(lmdb.ReadersFullError):
                    env.begin()
                with pytest.raises(lmdb.ReadersFullError):
                    env.begin(buffers=True)
        assert env.readers() == NONE


def test_slots_are_free_for_other_processes_between_transactions(path: Path) -> None:
    code = "import lmdb, sys; lmdb.open(sys.argv[1], readonly=True).begin()"
    with lmdbio.open(str(path), readonly=True, max_readers=1) as env:
        for _ in range(3):
            with env.begin() as txn:
                read(txn)
            subprocess.run([sys.executable, "-c", code, str(path)], check=True)
            env.reader_check()


def test_an_environment_at_rest_lets_writers_reuse_pages(env: Any, path: Path) -> None:
    data = path / "data.mdb"
    commit(path, 10)
    with env.begin() as txn:
        read(txn)
    before = data.stat().st_size
    commit(path, 60)
    assert data.stat().st_size <= before * 1.2
    txn = env.begin()
    old = read(txn)
    commit(path, 60)
    assert data.stat().st_size > before * 5  # it keeps all that was written since
    assert [read(txn, i) for i in range(COUNT)] == [old] * COUNT


def test_the_end_of_the_environment_ends_its_slots(env: Any, path: Path) -> None:
    txn = env.begin()
    read(txn)
    again = lmdbio.open(str(path), readonly=True)
    env.close()
    assert again.readers() == NONE
    with pytest.raises(lmdb.Error):
        txn.get(b"0003")
    del again
    gc.collect()
    assert not reader_slots._shared


@pytest.mark.parametrize("threads", [1, 4])
def test_what_transactions_read_beside_a_busy_writer_is_of_one_snapshot(
    env: Any, path: Path, threads: int
) -> None:
    wrong: list[BaseException] = []
    seen: set[int] = set()
    busy = writer(path, 1_000_000, 0.002)

    def work(seed: int) -> None:
        draw = random.Random(seed)
        try:
            while len(seen) < 100:
                with env.begin(buffers=draw.random() < 0.3) as txn:
                    assert txn._slot is not None
                    seen.add(read(txn, draw.randrange(COUNT)))
                    if draw.random() < 0.02:
                        time.sleep(0.05)  # some commits, after which its pages would be used again
                        for i in range(COUNT):
                            read(txn, i)
        except BaseException as error:
            wrong.append(error)

    working = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for one in working:
        one.start()
    for one in working:
        one.join()
    busy.kill()
    busy.wait()
    assert not wrong
    assert env.readers() == NONE


def in_child(work: Any) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_takes_no_slot_and_leaves_its_parents(
    env: Any, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lmdbio")
    txn = env.begin()
    old = read(txn)
    cursor = txn.cursor()
    held = env.readers()

    def work() -> None:
        for begins in range(300):  # more than there are slots
            with env.begin(buffers=bool(begins % 2)) as other:
                assert bytes(other.get(b"0003")) == value(other.id(), 3)
                assert other._slot is None
        assert "the process that this one was forked from has it open" in caplog.text
        with lmdbio.open(str(path), readonly=True) as own, own.begin() as other:
            read(other)
            assert other._slot is None
        assert cursor.get(b"0003") == value(old, 3)
        txn.abort()
        gc.collect()
        env.close()
        with lmdbio.open(str(path), readonly=True) as own, own.begin() as other:
            read(other)

    in_child(work)
    assert env.readers() == held
    commit(path, 5)
    assert [read(txn, i) for i in range(COUNT)] == [old] * COUNT
    with env.begin() as other:
        assert read(other) == old + 5
        assert other._slot is not None
    txn.abort()


def test_a_child_opens_what_its_parent_has_closed_with_slots(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True) as env, env.begin() as txn:
        read(txn)

    def work() -> None:
        with lmdbio.open(str(path), readonly=True) as env:
            for _ in range(300):
                with env.begin() as txn:
                    read(txn)
                    assert txn._slot is not None
            assert env.readers() == NONE

    in_child(work)
