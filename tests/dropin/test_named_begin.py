"""Transactions, gets and cursors in named databases that C finds by their handles.

Goal: each reads in the database of its handle, on the newest snapshot, and refuses the handles
that Python refuses. Method: environments with databases of equal keys; Python's `_begin`, `_get`
and `_cursor` refused.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio

NAMES = (b"one", b"two")
KEY = b"key"


@pytest.fixture
def path(tmp_path: Path) -> str:
    with lmdb.open(str(tmp_path), map_size=1 << 24, max_dbs=4) as env:
        write(env, b"")
    return str(tmp_path)


def write(env: Any, ending: bytes) -> None:
    handles = [env.open_db(name) for name in NAMES]
    with env.begin(write=True) as txn:
        txn.put(KEY, b"main" + ending)
        for name, handle in zip(NAMES, handles, strict=True):
            txn.put(KEY, name + ending, db=handle)


@pytest.fixture(params=[True, False], ids=["lock", "no lock"])
def env(request: pytest.FixtureRequest, path: str):
    with lmdbio.open(path, readonly=True, lock=request.param, max_dbs=4) as opened:
        yield opened


@pytest.fixture
def handles(env: Any) -> list[Any]:
    """Of both databases, in which a transaction has searched."""
    found = [env.open_db(name) for name in NAMES]
    for handle in found:
        with env.begin(db=handle) as txn:
            assert txn.get(KEY) is not None
    return found


@pytest.fixture
def without_python(handles: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where Python is asked."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("Python was asked")

    monkeypatch.setattr(lmdbio.Environment, "_begin", refuse)
    for name in ("_get", "_cursor"):
        monkeypatch.setattr(lmdbio.Transaction, name, refuse)


@pytest.mark.usefixtures("without_python")
def test_each_is_read_in_its_own_database(env: Any, handles: list[Any]) -> None:
    for name, handle in zip(NAMES, handles, strict=True):
        for txn in (env.begin(handle), env.begin(db=handle, buffers=False)):
            with txn:
                assert txn.get(KEY) == txn.get(key=KEY, default=b"no") == name
                assert txn.get(b"none") is txn.get(b"none", db=None) is None
                assert txn.get(b"none", default=b"no") == txn.get(b"none", b"no", handle) == b"no"
                with txn.cursor() as cursor:
                    assert list(cursor) == [(KEY, name)]
                for other, its in zip(NAMES, handles, strict=True):
                    assert txn.get(KEY, db=its) == txn.get(KEY, None, its) == other
                    assert list(txn.cursor(its)) == list(txn.cursor(db=its)) == [(KEY, other)]
        with env.begin() as txn:
            assert txn.get(KEY) == b"main"
            assert txn.get(KEY, db=handle) == name
            assert txn.cursor(handle).get(KEY) == name


def test_a_commit_is_seen_by_the_next_one(path: str) -> None:
    # py-lmdb opens a file once in a process, so none of its slots is held.
    with lmdbio.open(path, readonly=True, lock=False, max_dbs=4) as env:
        handles = [env.open_db(name) for name in NAMES]
        for number in range(3):
            ending = b" %d" % number
            with lmdb.open(path, map_size=1 << 24, max_dbs=4) as writable:
                before = [env.begin(handle) for handle in handles]
                write(writable, ending)
            for name, handle, txn in zip(NAMES, handles, before, strict=True):
                for _ in range(2):
                    with env.begin(db=handle) as newer:
                        assert newer.get(KEY) == newer.get(KEY, db=handle) == name + ending
                        assert newer.id() > txn.id()
                txn.abort()


def test_a_handle_of_another_environment_is_refused(env: Any, path: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "other")
    with lmdb.open(folder, map_size=1 << 24, max_dbs=4) as writable:
        write(writable, b"")
    with lmdbio.open(folder, readonly=True, lock=False, max_dbs=4) as other:
        own, its = env.open_db(b"one"), other.open_db(b"one")
        for handle, place in ((own, env), (its, other)):
            with place.begin(db=handle) as txn:
                assert txn.get(KEY) == b"one"
        with pytest.raises(lmdb.Error, match="another environment"):
            env.begin(db=its)
        with env.begin() as txn:
            for call in (lambda: txn.get(KEY, db=its), lambda: txn.cursor(its)):
                with pytest.raises(lmdb.Error, match="another environment"):
                    call()
            for wrong in (b"one", 1, lmdbio):
                with pytest.raises(TypeError):
                    txn.get(KEY, db=wrong)
                with pytest.raises(TypeError):
                    env.begin(db=wrong)


def test_an_ended_transaction_reads_in_no_database(env: Any, handles: list[Any]) -> None:
    txn = env.begin(db=handles[0])
    assert txn.get(KEY, db=handles[1]) == b"two"
    txn.abort()
    for call in (lambda: txn.get(KEY, db=handles[1]), lambda: txn.cursor(handles[1])):
        with pytest.raises(lmdb.Error):
            call()
    env.close()
    with pytest.raises(lmdb.Error):
        env.begin(db=handles[0])


def test_handles_and_environments_of_one_cycle_are_collected(path: str) -> None:
    gc.collect()
    before = sum(type(one) is lmdbio.Environment for one in gc.get_objects())
    for _ in range(5):
        env = lmdbio.open(path, readonly=True, lock=False, max_dbs=4)
        handle = env.open_db(b"one")
        with env.begin(db=handle) as txn:
            assert txn.get(KEY) == b"one"
        cycle: list[Any] = [env, handle, txn]
        cycle.append(cycle)
        del env, handle, txn, cycle
    gc.collect()
    assert sum(type(one) is lmdbio.Environment for one in gc.get_objects()) == before
