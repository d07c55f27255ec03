"""Environments, transactions and cursors that end while they are called, or are interrupted.

Goal: a call that another thread's ``close`` or ``abort`` overtakes ends as it would have, or
raises ``lmdb.Error``; never another exception, and nothing stays open behind it. Method: the end
is brought about after each instruction that Python executes of a call in lmdbio, one after the
other (in ``make test``, each third one): there another thread can interrupt it. Then, threads
race. Ctrl-C comes where Python looks for signals: after each call, and where a function or a
round of a loop begins.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio.dropin import environment
from lmdbio.dropin.position import Run
from lmdbio.system import reader_slots
from tests.support import databases, interrupts, long_run
from tests.support.interrupts import ctrl_c

COUNT = 60
LENGTHS = (0, 100, 900, 3000, 40_000)
VALUES = {b"%08d" % i: databases.value(i, LENGTHS[i % 5]) for i in range(COUNT)}
#: Their instructions count.
FILES = (str(Path(environment.__file__).parent), reader_slots.__file__)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("closing") / "env"
    env = databases.open_writable(folder, 1)
    databases.write(env, VALUES.items())
    for name, flags in ((b"dup", {"dupsort": True}), (b"plain", {})):
        db = env.open_db(name, **flags)
        databases.write(env, ((b"%02d" % (i // 40), b"%08d" % i) for i in range(400)), db=db)
    env.close()
    return str(folder)


after = functools.partial(interrupts.after, files=FILES)


def opened(path: str, *, lock: bool, **named: Any) -> Any:
    return lmdbio.open(path, readonly=True, lock=lock, max_dbs=4, **named)


def iterate(cursor: Any, count: int) -> list[Any]:
    iterator = databases.scanning(cursor)
    return [item for _, item in zip(range(count), iterator, strict=False)]


def move(txn: Any) -> None:
    cursor = txn.cursor()
    cursor.set_range(b"00000030")
    cursor.item()
    cursor.prev()
    cursor.getmulti([b"00000003", b"00000004"])
    list(zip(range(3), cursor.iterprev(), strict=False))


def duplicates(env: Any, txn: Any) -> None:
    cursor = txn.cursor(env.open_db(b"dup", txn))
    cursor.first()
    cursor.last_dup()
    cursor.count()
    iterate(cursor, 60)


def number(txn: Any) -> None:
    cursor = txn.cursor()
    assert cursor.set_index(17)
    assert cursor.index() == 17


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "begin": lambda env, txn: (env._forget(), env.begin()),  # in Python
    "begin with buffers": lambda env, txn: env.begin(buffers=True),
    "stat": lambda env, txn: (env.stat(), txn.stat()),
    "info": lambda env, txn: (env.info(), env.max_readers()),
    "readers": lambda env, txn: (env.readers(), env.reader_check()),
    "names": lambda env, txn: env.dbs(),
    "open_db": lambda env, txn: env.open_db(b"plain", create=False),
    "flags": lambda env, txn: (env.flags(), env.path(), env.max_key_size(), env.stats()),
    "copy": lambda env, txn: env.copyfd(_nowhere(), compact=True),
    "copy of a transaction": lambda env, txn: env.copyfd(_nowhere(), True, txn),
    "set_mapsize": lambda env, txn: env.set_mapsize(1 << 20),
    "close": lambda env, txn: env.close(),
    "drop": lambda env, txn: opened(env.path(), lock=True).begin().cursor().first(),
    "get": lambda env, txn: txn.get(bytearray(b"00000004")),
    "get elsewhere": lambda env, txn: txn.get(b"01", db=env.open_db(b"plain", txn)),
    "cursor": lambda env, txn: move(txn),
    "iterate": lambda env, txn: iterate(txn.cursor(), 40),
    "duplicates": duplicates,
    "number": lambda env, txn: number(txn),
}
_null: list[int] = []


def _nowhere() -> int:
    if not _null:
        _null.append(os.open(os.devnull, os.O_WRONLY))
    return _null[0]


def nothing_is_left(env: Any, path: str) -> None:
    """Assert that a closed environment holds nothing, and that nothing begins in it."""
    with pytest.raises(lmdb.Error):
        env.begin()
    file = env._file
    assert not env._living()
    assert (file.engine, file._state, file._opened) == (None, None, [None] * 4)
    assert file.lock.slots is None
    lmdb.open(path, readonly=True).close()  # which it refuses where it is open still


@pytest.mark.parametrize("lock", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_close_overtakes_raises_of_the_closed_environment(
    path: str, name: str, lock: bool
) -> None:
    refused = 0
    for at in long_run.moments():
        env = opened(path, lock=lock, block_bytes_max=1 << 16)
        txn = env.begin()
        try:
            with after(at, env.close) as counted:
                CALLS[name](env, txn)
        except lmdb.Error:
            refused += 1
        env.close()
        nothing_is_left(env, path)
        if at > counted[0]:
            break
    assert counted[0] > 3
    assert refused or name in ("close", "set_mapsize")


@pytest.mark.parametrize("name", ["get", "get elsewhere", "cursor", "iterate", "duplicates"])
def test_a_call_that_abort_overtakes_raises_of_the_ended_transaction(path: str, name: str) -> None:
    refused = 0
    with opened(path, lock=True, block_bytes_max=1 << 16) as env:
        for at in long_run.moments():
            txn = env.begin()
            try:
                with after(at, txn.abort) as counted:
                    CALLS[name](env, txn)
            except lmdb.Error:
                refused += 1
            assert txn._slot is None or not txn._ended
            txn.abort()
            assert not env._living()
            if at > counted[0]:
                break
    assert refused


def test_an_iterator_hands_out_nothing_of_a_run_that_could_not_be_ended(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Run) -> None:
        raise KeyboardInterrupt

    with opened(path, lock=True) as env:
        txn = env.begin()
        cursor = txn.cursor()
        iterator = databases.scanning(cursor)
        assert [next(iterator)[0] for _ in range(9)] == list(VALUES)[:9]
        assert cursor._run is not None
        monkeypatch.setattr(Run, "end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            txn.abort()
        with pytest.raises(lmdb.Error):
            next(iterator)


# One that comes in a destructor is told as ignored, and lost: so none is written in Python.
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "name", ["begin", "info", "get", "iterate", "duplicates", "close", "open", "drop"]
)
def test_ctrl_c_at_any_call_leaves_an_environment_that_reads_and_can_be_closed(
    path: str, name: str
) -> None:
    for at in long_run.moments():
        env = None
        if name == "open":
            with contextlib.suppress(KeyboardInterrupt), after(at, ctrl_c) as counted:
                env = opened(path, lock=True)
            if env is not None:
                env.close()
        env = opened(path, lock=True, block_bytes_max=1 << 16)
        txn = env.begin()
        if name != "open":
            with contextlib.suppress(KeyboardInterrupt), after(at, ctrl_c) as counted:
                CALLS[name](env, txn)
        if name != "close":
            assert txn.get(b"00000004") == VALUES[b"00000004"]
            with env.begin() as other:
                assert dict(iterate(other.cursor(), COUNT)) == VALUES
        env.close()
        nothing_is_left(env, path)
        if at > counted[0]:
            break
    assert counted[0] > 3


def test_what_a_finalizer_calls_of_a_collected_environment_leaves_nothing(path: str) -> None:
    met: list[bytes | None] = []

    class Late:
        """Of the same garbage, it may be ended after the environment."""

        def __init__(self, env: Any) -> None:
            self.env = env

        def __del__(self) -> None:
            met.append(self.env.begin().get(b"00000001"))

    env = opened(path, lock=True)
    env.begin().get(b"00000001")
    env.late = Late(env)
    del env
    gc.collect()
    assert met == [VALUES[b"00000001"]]
    assert not reader_slots._shared
    lmdb.open(path, readonly=True).close()


@pytest.mark.parametrize("lock", [True, False])
def test_threads_that_race_the_end_of_an_environment_meet_no_other_error(
    path: str, lock: bool
) -> None:
    wrong: list[BaseException] = []
    counts = [0, 0]

    def work(env: Any) -> None:
        mine = [CALLS[name] for name in CALLS if name not in ("close", "set_mapsize")]
        while env._file.engine is not None:
            for call in mine:
                try:
                    with env.begin() as txn:
                        call(env, txn)
                        for key in list(VALUES)[:20]:
                            assert txn.get(key) == VALUES[key]
                    counts[0] += 1
                except lmdb.Error:
                    counts[1] += 1
                except BaseException as error:  # to be shown by the main thread
                    wrong.append(error)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        end = time.monotonic() + long_run.cases(3, 1)  # seconds
        while time.monotonic() < end and not wrong:
            env = opened(path, lock=lock, block_bytes_max=1 << 16)
            threads = [threading.Thread(target=work, args=(env,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.005)
            env.close()
            assert not env._living()
            for thread in threads:
                thread.join()
            nothing_is_left(env, path)
    finally:
        sys.setswitchinterval(switch)
    gc.collect()
    assert not wrong, wrong[:3]
    assert all(counts)
