"""Cursors are made, shared and ended without Python.

Goal: a cursor lives as long as its transaction and no longer, whoever ends either meanwhile:
another thread, the garbage collector, a child. Method: a small database; each end is brought about
while cursors are made or read.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.dropin.position import Run
from tests.support import databases

COUNT, TURNS = 400, 500
RECORDS = {b"%04d" % i: databases.value(i, (5, 300, 3000)[i % 3]) for i in range(COUNT)}


@pytest.fixture(params=["auto", "direct"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with lmdb.open(str(tmp_path / "env"), map_size=1 << 28, max_dbs=2) as theirs:
        for name in (None, b"other"):
            db = theirs.open_db(name) if name else None
            with theirs.begin(write=True, db=db) as txn:
                for key, value in RECORDS.items():
                    txn.put(key, value)
    options = {"lock": False, "cache_bytes": 1, "max_dbs": 2, "engine": request.param}
    with lmdbio.open(str(tmp_path / "env"), readonly=True, **options) as env:
        yield env


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take the GIL from each other all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def records(cursor: Any) -> list[Any]:
    """Read on to the end; the record of the named database, the last one, is left out."""
    return list(cursor)[:-1]


def refused(cursor: Any) -> bool:
    for call in (
        cursor.first,
        cursor.next_dup,
        cursor.key,
        cursor.count,
        cursor.iternext,
        lambda: cursor.get(b"0001"),
        lambda: cursor.set_range(b"0001"),
        lambda: cursor.set_key(key=b"0001"),
    ):
        with pytest.raises(lmdb.Error, match="closed"):
            call()
    return True


def test_the_end_of_a_transaction_closes_its_cursors(env: Any) -> None:
    txn = env.begin()
    cursors = [txn.cursor() for _ in range(5)]
    assert cursors[0].get(b"0007") == RECORDS[b"0007"]
    running = iter(cursors[1])
    assert [next(running) for _ in range(60)] == list(RECORDS.items())[:60]
    cursors[2].close()
    del cursors[3]
    assert len(txn._cursors()) == 3
    txn.abort()
    assert txn._cursors() == []
    assert all(map(refused, cursors))
    with pytest.raises(lmdb.Error, match="closed"):
        next(running)
    with pytest.raises(lmdb.Error, match="closed"):
        txn.cursor()


def test_a_cursor_keeps_its_transaction_and_that_does_not_keep_it(env: Any) -> None:
    cursor = env.begin().cursor()
    gc.collect()
    (txn,) = env._living()
    assert cursor.get(b"0005") == RECORDS[b"0005"]
    gone = weakref.ref(cursor)
    del cursor
    assert gone() is None
    assert txn._cursors() == []
    assert txn.get(b"0005") == RECORDS[b"0005"]


def test_cursors_of_other_databases_are_closed_as_well(env: Any) -> None:
    other = env.open_db(b"other", create=False)
    for _ in range(2):
        with env.begin() as txn, env.begin(db=other) as second:
            one, two = txn.cursor(other), second.cursor()
            three, four = txn.cursor(db=other), lmdbio.Cursor(other, second)
            for cursor in (one, two, three, four):
                assert cursor.get(b"0001") == RECORDS[b"0001"]
                assert not cursor.set_key(b"other")
            assert txn.cursor().set_key(b"other")
        assert all(map(refused, (one, two, three, four)))


def test_a_run_that_cannot_be_ended_leaves_no_cursor_open(
    env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = env.begin()
    cursors = [txn.cursor() for _ in range(3)]
    for _ in zip(range(60), databases.scanning(cursors[1]), strict=False):
        pass

    def interrupted(_: Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        txn.abort()
    assert all(map(refused, cursors))
    txn.abort()


@pytest.mark.parametrize("ends", ["txn", "env"])
def test_the_garbage_collector_may_end_all_while_a_cursor_is_made(env: Any, ends: str) -> None:
    env.begin().get(b"0001")
    txn, calls = env.begin(), 0

    def collecting(phase: str, _: object) -> None:
        nonlocal calls
        if phase == "start":
            calls += 1
            txn.abort() if ends == "txn" else env.close()

    before = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(1, 1, 1)
    try:
        with pytest.raises(lmdb.Error, match="closed"):
            for _ in range(10):
                txn.cursor().first()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collecting)
    assert calls > 0


def test_a_cursor_in_a_ring_is_closed_when_that_is_collected(env: Any) -> None:
    class Ring:
        pass

    for _ in range(20):
        ring: Any = Ring()
        ring.ring, ring.cursor = ring, env.begin().cursor()
        ring.cursor.first()
    del ring
    gc.collect()
    assert env._living() == []


def start(work: Callable[[int], None], count: int) -> Callable[[], bool]:
    """Start threads, and return a call that waits for them, and says whether all have ended."""
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()

    def have_ended() -> bool:
        for thread in threads:
            thread.join(60)
        return not any(thread.is_alive() for thread in threads)

    return have_ended


@pytest.mark.usefixtures("restless")
def test_threads_make_and_close_cursors_while_others_read(env: Any) -> None:
    """A thread with the lock of the pages may wait for the GIL; none with that for the lock."""
    wrong: list[BaseException] = []
    keys = list(RECORDS)
    with env.begin() as txn:

        def work(seed: int) -> None:
            draw = random.Random(seed)
            try:
                for _ in range(500):
                    with txn.cursor() as cursor:
                        key = draw.choice(keys)
                        assert cursor.get(key) == RECORDS[key]
                        assert cursor.item() == (key, RECORDS[key])
                    if draw.random() < 0.1:
                        assert records(txn.cursor()) == list(RECORDS.items())
            except BaseException as error:
                wrong.append(error)

        assert start(work, 4)()
    assert not wrong


@pytest.mark.usefixtures("restless")
def test_a_cursor_that_another_thread_closes_reads_what_is_right_or_is_closed(env: Any) -> None:
    wrong: list[BaseException] = []
    keys, begun = list(RECORDS), threading.Barrier(3)
    shared: list[Any] = [None]

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(TURNS):
            begun.wait(60)
            cursor = shared[0]
            try:
                for _ in range(draw.randrange(8)):
                    cursor.set_key(draw.choice(keys))
                    cursor._c.holds_database()
                    key, value = cursor.item()  # of this thread's move or the other's
                    assert not key or RECORDS[key] == value
            except lmdb.Error as error:
                if "closed" not in str(error):
                    wrong.append(error)
            except BaseException as error:
                wrong.append(error)
            begun.wait(60)

    have_ended = start(work, 2)
    for number in range(TURNS):
        with env.begin() as txn:
            shared[0] = txn.cursor()
            begun.wait(60)
            if number % 2:
                shared[0].close()
        begun.wait(60)
    assert have_ended()
    assert not wrong


def test_a_child_goes_on_with_a_cursor_that_a_thread_of_its_parent_has_locked(env: Any) -> None:
    cursor = env.begin().cursor()
    assert len([item for _, item in zip(range(60), cursor, strict=False)]) == 60
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with cursor._guard:
            held.set()
            go.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert cursor.item() == list(RECORDS.items())[59]
            assert records(cursor) == list(RECORDS.items())[59:]
            cursor._txn.abort()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    go.set()
    holder.join()
    assert cursor.item() == list(RECORDS.items())[59]
