"""Transactions on one state of the file have its pages, cursors and databases in common.

Goal: a transaction begins on the newest state whatever was opened before; who ends one ends it for
nobody else; nothing is shared by what reads as bytes and what lends views.
Method: a database that py-lmdb writes between transactions; what is shared is looked at.
"""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio

COUNT = 300


def write(path: Path, value: bytes, *, name: bytes | None = None) -> None:
    with lmdb.open(str(path), map_size=1 << 26, max_dbs=4) as env:
        db = env.open_db(name) if name else None
        with env.begin(write=True, db=db) as txn:
            for i in range(COUNT):
                txn.put(b"%04d" % i, value)


def commit(path: Path, value: bytes) -> None:
    """Write from a process of its own: this one has the file open in py-lmdb, for its slots."""
    words = [str(path), value.decode()]
    code = f"from __future__ import annotations\nimport lmdb, sys\nCOUNT = {COUNT}\n"
    code += f"{inspect.getsource(write)}\nwrite(sys.argv[1], sys.argv[2].encode())"
    subprocess.run([sys.executable, "-c", code, *words], check=True, timeout=60)


@pytest.fixture(params=[False, True], ids=["no slots", "slots"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    write(tmp_path, b"old")
    write(tmp_path, b"named", name=b"other")
    with lmdbio.open(str(tmp_path), readonly=True, lock=request.param, max_dbs=4) as env:
        yield env


def test_transactions_on_one_state_share_it_and_a_commit_ends_that(
    env: Any, tmp_path: Path
) -> None:
    with env.begin() as one, env.begin() as two:
        assert one._opened is two._opened
        assert one.get(b"0007") == two.get(b"0007") == b"old"
        commit(tmp_path, b"new")
        with env.begin() as three:
            assert three._opened is not one._opened
            assert (one.get(b"0007"), three.get(b"0007")) == (b"old", b"new")
            assert three.id() == one.id() + 1
    with env.begin() as four:
        assert four.get(b"0007") == b"new"


def test_a_transaction_that_ends_is_closed_alone(env: Any) -> None:
    one, two = env.begin(), env.begin()
    assert one.get(b"0001") == b"old"
    one.abort()
    with pytest.raises(lmdb.Error):
        one.get(b"0001")
    assert two.get(b"0001") == b"old"
    two.abort()


def test_databases_and_keys_by_number_are_found_once_for_all(env: Any) -> None:
    db = env.open_db(b"other", create=False)
    for _ in range(3):
        with env.begin(db=db) as txn:
            assert txn.get(b"0003") == b"named"
            assert txn.get(b"0003", db=db) == b"named"
            assert txn._keys(None) is txn._opened.tables[b"other"]
        with env.begin() as txn:
            assert txn.get(b"0003") == b"old"


def test_views_and_bytes_come_from_snapshots_of_their_own(env: Any) -> None:
    with env.begin() as plain, env.begin(buffers=True) as views:
        assert plain._opened is not views._opened
        assert type(plain.get(b"0005")) is bytes
        view = views.get(b"0005")
        assert type(view) is memoryview
    assert bytes(view) == b"old"


def test_the_file_is_looked_at_once_for_each_transaction(env: Any, tmp_path: Path) -> None:
    with env.begin() as txn:
        opened = txn._opened
    assert opened.is_newest()
    commit(tmp_path, b"new")
    assert not opened.is_newest()


def test_threads_that_begin_for_each_record_get_the_right_ones(env: Any) -> None:
    wrong: list[object] = []

    def read(seed: int) -> None:
        for i in range(3000):
            key = b"%04d" % ((i * 7 + seed) % (COUNT + 1))
            with env.begin(buffers=bool(i % 2)) as txn:
                found = txn.get(key)
            if (None if found is None else bytes(found)) != (
                None if key == b"%04d" % COUNT else b"old"
            ):
                wrong.append((key, found))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_file_that_is_cut_is_an_error_at_the_next_begin(tmp_path: Path) -> None:
    write(tmp_path, b"old")
    with lmdbio.open(str(tmp_path), readonly=True, lock=False) as env:
        with env.begin() as txn:
            assert txn.get(b"0000") == b"old"
        with (tmp_path / "data.mdb").open("r+b") as file:
            file.truncate(100)
        with pytest.raises((lmdb.Error, OSError), match=r"data\.mdb"):
            env.begin()


def test_a_closed_environment_begins_nothing(tmp_path: Path) -> None:
    write(tmp_path, b"old")
    env = lmdbio.open(str(tmp_path), readonly=True, lock=False)
    env.begin().abort()
    env.close()
    with pytest.raises(lmdb.Error):
        env.begin()


def test_what_is_let_go_of_ends_and_what_is_kept_ends_with_the_environment(env: Any) -> None:
    for _ in range(3):
        env.begin().get(b"0001")  # let go of
    assert env._living() == []
    kept = [env.begin() for _ in range(3)]
    assert kept[0].get(b"0001") == b"old"
    assert set(map(id, env._living())) == set(map(id, kept))
    del kept[1]
    assert len(env._living()) == 2
    env.close()
    assert env._living() == []
    for one in kept:
        with pytest.raises(lmdb.Error):
            one.get(b"0001")
        one.abort()


def test_a_cycle_of_transactions_is_found_by_the_garbage_collector(env: Any) -> None:
    class Holder:
        pass

    for _ in range(3):
        holder: Any = Holder()
        holder.txn, holder.itself = env.begin(), holder
        holder.txn.get(b"0001")
        del holder
    gc.collect()
    assert env._living() == []


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((), {}),
        ((None,), {}),
        ((None, None, False, False), {}),
        ((), {"write": False}),
        ((), {"db": None, "parent": None, "write": False, "buffers": False}),
        ((None,), {"buffers": None, "write": None}),
        ((), {"buffers": 0, "write": 0}),
    ],
)
def test_plain_transactions_are_begun_alike_however_they_are_asked_for(
    env: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    for _ in range(4):
        with env.begin(*arguments, **keywords) as txn:
            assert txn.get(b"0001") == b"old"
            assert txn.get(key=b"none", default=5) == 5
            assert txn.get(b"none", 6, None) == 6
            assert txn.id() == 3


def test_wrong_arguments_are_refused_also_when_a_snapshot_is_known(env: Any) -> None:
    for _ in range(3):
        with env.begin() as txn:
            txn.get(b"0001")
            for bad in ({"key": b"a", "keys": 1}, {}):
                with pytest.raises(TypeError):
                    txn.get(**bad)
            with pytest.raises(TypeError):
                txn.get(b"a", 1, 2, 3)
            with pytest.raises(TypeError):
                txn.get(7)
        for wrong in ({"wrote": True}, {"db": 7}):
            with pytest.raises(TypeError):
                env.begin(**wrong)
        with pytest.raises(TypeError):
            env.begin(None, None, False, False, None)
        with pytest.raises(lmdb.Error):
            env.begin(write=True)


def test_a_transaction_begins_once(env: Any) -> None:
    txn = env.begin()
    with pytest.raises(SystemError):
        txn._started()
    assert txn.get(b"0001") == b"old"
    txn.abort()
    blank = object.__new__(lmdbio.Transaction)
    assert blank._ended
    with pytest.raises((lmdb.Error, SystemError)):
        blank._started()


def test_an_environment_outlives_its_name_while_a_transaction_is_there(tmp_path: Path) -> None:
    write(tmp_path, b"old")
    env = lmdbio.open(str(tmp_path), readonly=True, lock=False)
    txn = env.begin()
    alive = weakref.ref(env)
    del env
    assert txn.get(b"0001") == b"old"
    assert alive() is not None
    del txn
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("ends", ["_forget", "close"])
def test_the_garbage_collector_may_end_all_while_a_transaction_is_made(
    tmp_path: Path, ends: str
) -> None:
    write(tmp_path, b"old")
    calls = 0
    for _ in range(30):
        env = lmdbio.open(str(tmp_path), readonly=True, lock=False)
        for _ in range(2):
            env.begin().get(b"0001")  # known from here on

        def collecting(phase: str, _: object, env: Any = env) -> None:
            nonlocal calls
            if phase == "start":
                calls += 1
                getattr(env, ends)()

        before = gc.get_threshold()
        gc.callbacks.append(collecting)
        gc.set_threshold(1, 1, 1)
        try:
            for _ in range(5):
                try:
                    found = env.begin().get(b"0001")
                except lmdb.Error:
                    assert ends == "close"
                else:
                    assert found == b"old"
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(collecting)
            env.close()
    assert calls > 30


def test_a_slot_is_taken_as_soon_as_there_is_one(tmp_path: Path) -> None:
    write(tmp_path, b"old")
    held = lmdb.open(str(tmp_path))  # py-lmdb lends no slot of a file that this process has open
    with lmdbio.open(str(tmp_path), readonly=True, lock=True) as env:
        for _ in range(3):
            with env.begin() as txn:
                assert txn.get(b"0001") == b"old"
                assert txn._slot is None
        held.close()
        for _ in range(2):
            with env.begin() as txn:
                assert txn._slot is not None
                assert txn.get(b"0001") == b"old"
