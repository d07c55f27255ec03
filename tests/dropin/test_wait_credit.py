"""Goal: single gets that wait bring the whole file to the page cache; nobody pays who gets a few.

Method: a file of a few MiB is put out of the page cache, some of its records are got one by one,
and the kernel is asked how much of the file it has. Values are those that were put.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import lmdb
import pytest

import lmdbio
from lmdbio.dropin import wait_credit
from lmdbio.reading import file_cache
from tests.support import cold

COUNT, VALUE_BYTES = 4000, 3000
FILE_BYTES_MIN = COUNT * VALUE_BYTES


def key(index: int) -> bytes:
    return b"%06d" % index


def value(index: int) -> bytes:
    return random.Random(index).randbytes(VALUE_BYTES)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gets")
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for index in range(COUNT):
            txn.put(key(index), value(index), append=True)
    return path


@pytest.fixture
def path(made: Path) -> Path:
    why = cold.why_warm(made)
    if why:
        pytest.skip(why)
    cold.put_out(made / "data.mdb")
    return made


def gets(env: lmdbio.Environment, indices: list[int]) -> None:
    with env.begin() as txn:
        for index in indices:
            assert txn.get(key(index)) == value(index)


def brings_all(path: Path, seconds: float = 5) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if cold.cached_bytes(path / "data.mdb") >= FILE_BYTES_MIN:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("order", ["random", "every fifth"])
def test_many_gets_bring_the_file(path: Path, order: str) -> None:
    indices = list(range(0, COUNT, 5))
    if order == "random":
        random.Random(1).shuffle(indices)
    with lmdbio.open(str(path), readonly=True, lock=False) as env:
        gets(env, indices)
        assert brings_all(path)


def test_a_few_gets_do_not(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False) as env:
        gets(env, random.Random(2).sample(range(COUNT), wait_credit.WAITS // 4))
        assert not brings_all(path, seconds=0.3)


def test_without_readahead_nothing_is_brought(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False, readahead=False) as env:
        gets(env, random.Random(3).sample(range(COUNT), 400))
        assert not brings_all(path, seconds=0.3)


def test_cursors_that_are_set_bring_it_too(path: Path) -> None:
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        cursor = txn.cursor()
        for index in random.Random(4).sample(range(COUNT), 800):
            assert cursor.set_key(key(index))
            assert cursor.value() == value(index)
        assert brings_all(path)


def test_what_an_exception_breaks_off_is_got_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: wait_credit.WaitCredit) -> None:
        raise KeyboardInterrupt

    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        with monkeypatch.context() as patch:
            patch.setattr(wait_credit.WaitCredit, "__call__", interrupt)
            with pytest.raises(KeyboardInterrupt):
                txn.get(key(2345))
        assert txn.get(key(2345)) == value(2345)


def test_a_signals_handler_may_close_the_file_while_a_get_waits_for_the_stream(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []

    def wait(self: object) -> None:  # where a handler runs, in the thread that has the lock
        env.close()
        closed.append(True)

    monkeypatch.setattr(file_cache._ToPageCache, "wait", wait)
    env = lmdbio.open(str(path), readonly=True, lock=False)
    with pytest.raises(lmdb.Error):
        gets(env, random.Random(5).sample(range(COUNT), 800))
    assert closed == [True]


def test_threads_get_while_it_comes_and_closing_ends_it(path: Path) -> None:
    failures: list[BaseException] = []

    def read(seed: int) -> None:
        try:
            gets(env, random.Random(seed).sample(range(COUNT), 600))
        except BaseException as error:
            failures.append(error)

    env = lmdbio.open(str(path), readonly=True, lock=False)
    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with env.begin() as txn:
        kept = txn.get
        env.close()
    with pytest.raises(lmdb.Error):
        kept(key(0))
