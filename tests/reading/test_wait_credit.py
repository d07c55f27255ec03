"""Goal: single gets that wait bring the whole file to the page cache; nobody pays who gets a few.

Method: a file of a few MiB is put out of the page cache, some of its records are got one by one,
and the kernel is asked how much of the file it has. Values are those that were put.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lmdb
import pytest

import lmdbio
from lmdbio import _core
from lmdbio.reading import file_cache, wait_credit
from lmdbio.records import routes
from tests.support import cold

ROOT = Path(__file__).parents[2]
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
    data, end = made / "data.mdb", time.monotonic() + 5
    cold.put_out(data)
    time.sleep(0.01)
    while cold.cached_bytes(data):  # the kernel still brings what the test before has asked for
        assert time.monotonic() < end, "the file does not leave the page cache"
        cold.put_out(data)
        time.sleep(0.01)
    return made


def opened(path: Path, surface: str, *, readahead: bool = True) -> Any:
    """The file's records: by key (``open``), or by number (``Records``)."""
    if surface == "open":
        return lmdbio.open(str(path), readonly=True, lock=False, readahead=readahead)
    return lmdbio.Records(path, readahead=None if readahead else False)


def gets(source: Any, indices: list[int]) -> None:
    """Get records one by one, and hold them against what was put."""
    if isinstance(source, lmdbio.Records):
        for index in indices:
            assert source[index] == value(index)
        return
    with source.begin() as txn:
        for index in indices:
            assert txn.get(key(index)) == value(index)


def brings_all(path: Path, seconds: float = 5) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if cold.cached_bytes(path / "data.mdb") >= FILE_BYTES_MIN:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("surface", "readahead"), [("open", True), ("open", False), ("Records", True)]
)
@pytest.mark.parametrize("order", ["random", "every fifth"])
def test_many_gets_bring_the_file(path: Path, order: str, surface: str, readahead: bool) -> None:
    indices = list(range(0, COUNT, 5))
    if order == "random":
        random.Random(1).shuffle(indices)
    with opened(path, surface, readahead=readahead) as source:
        gets(source, indices)
        assert brings_all(path)


@pytest.mark.parametrize("surface", ["open", "Records"])
def test_a_few_gets_do_not(path: Path, surface: str) -> None:
    with opened(path, surface) as source:
        gets(source, random.Random(2).sample(range(COUNT), wait_credit.WAITS // 4))
        assert not brings_all(path, seconds=0.3)


def test_records_of_a_network_file_system_come_to_the_page_cache(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once single ones have paid for all of it; processes share it there."""
    for room in (file_cache, routes):
        monkeypatch.setattr(room, "is_on_disk", lambda engine: False)
    pay_for_a_part = 2 * FILE_BYTES_MIN // wait_credit.WAIT_BYTES // 3
    with opened(path, "Records") as source:
        assert source._routes.file_cache.place == "memory"
        indices = random.Random(3).sample(range(COUNT), 800)
        gets(source, indices[:pay_for_a_part])
        assert not brings_all(path, seconds=0.3)
        gets(source, indices)
        assert brings_all(path)
        assert not source.stats().ahead_bytes


def test_records_without_readahead_bring_nothing_else(path: Path) -> None:
    with opened(path, "Records", readahead=False) as source:
        gets(source, random.Random(9).sample(range(COUNT), 800))
        assert not brings_all(path, seconds=0.3)


@pytest.mark.parametrize("megabytes", [0, 64])
def test_records_that_are_expected_come_with_the_first(
    path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int
) -> None:
    """At once where the file is small, else behind the first of them."""
    monkeypatch.setattr(file_cache, "SMALL_BYTES", megabytes << 20)
    with opened(path, "Records") as source:
        source.expect(COUNT)
        gets(source, [7])
        assert brings_all(path)


def test_a_failure_of_the_credit_leaves_batches_their_stream(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: file_cache.FileCache, size: int) -> None:
        raise RuntimeError("no room to look")

    with opened(path, "Records") as source:
        with monkeypatch.context() as patch:
            patch.setattr(file_cache.FileCache, "expect", fail)
            gets(source, random.Random(1).sample(range(COUNT), 800))
        source.expect(COUNT)
        assert [bytes(one) for one in source.read([7])] == [value(7)]
        assert brings_all(path)


@pytest.fixture
def awaited(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Streams bring nothing; the event says that somebody waits for one."""
    waits = threading.Event()

    def wait(self: object) -> None:
        waits.set()
        time.sleep(0.02)

    monkeypatch.setattr(file_cache._ToPageCache, "wait", wait)
    monkeypatch.setattr(file_cache._ToPageCache, "go_on", lambda stream, credit: stream._size)
    monkeypatch.setattr(file_cache._ToPageCache, "is_paid", True)
    return waits


def test_gets_in_order_do_not_wait_for_a_thread_that_waits_for_the_stream(
    path: Path, awaited: threading.Event
) -> None:
    with opened(path, "Records") as source:
        cache = source._routes.file_cache
        thread = threading.Thread(target=cache.expect, args=(cache.size,))
        thread.start()
        assert awaited.wait(30)
        begun = time.monotonic()
        cache.credit(0, waits=False)
        assert time.monotonic() - begun < file_cache.EXPECTED_WAIT_SECONDS_MAX / 4
    thread.join(30)
    assert not thread.is_alive()


def test_records_that_are_to_be_read_ahead_come_after_a_few(path: Path) -> None:
    with lmdbio.Records(path, readahead=True) as source:
        gets(source, random.Random(9).sample(range(COUNT), 2 * wait_credit.WAITS))
        assert brings_all(path)


@pytest.mark.parametrize("readahead", [True, False])
def test_without_readahead_gets_pay_for_all_of_it_first(path: Path, readahead: bool) -> None:
    pay_for_a_part = 2 * FILE_BYTES_MIN // wait_credit.WAIT_BYTES // 3
    with lmdbio.open(str(path), readonly=True, lock=False, readahead=readahead) as env:
        gets(env, random.Random(3).sample(range(COUNT), pay_for_a_part))
        assert brings_all(path, seconds=5 if readahead else 0.3) is readahead


@pytest.mark.parametrize(
    ("readahead_bytes", "waits"),
    [(None, 4096), (0, 820), (128 << 10, 820), (1 << 20, 208), (8 << 20, 32), (1 << 40, 16)],
)
def test_a_get_pays_for_what_the_kernel_would_read_ahead(
    monkeypatch: pytest.MonkeyPatch, readahead_bytes: int | None, waits: int
) -> None:
    monkeypatch.setattr(file_cache, "FileCache", _Cache)
    engine: Any = object()
    counted = wait_credit.WaitCredit(engine, 1 << 30, readahead_bytes=readahead_bytes)
    assert waits - wait_credit.WAITS < _waits_to_begin(counted) <= waits + wait_credit.WAITS


class _Cache:
    """A FileCache without a file, whose streams have come at once, and do not stay."""

    begun = 0
    is_under_way, has_come = False, True

    def __init__(self, *given: object, **options: object) -> None: ...

    def expect(self, size: int) -> None:
        type(self).begun += 1

    def credit(self, size: int, *, waits: bool) -> None: ...

    def close(self) -> None: ...


def _waits_to_begin(counted: wait_credit.WaitCredit) -> int:
    begun = _Cache.begun
    for waits in range(1, 100_000):
        counted(0)
        if _Cache.begun > begun:
            return waits
    raise AssertionError("no stream begins")


def test_gets_in_order_follow_the_stream_and_others_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    class Cache(_Cache):
        def credit(self, size: int, *, waits: bool) -> None:
            asked.append(waits)

    monkeypatch.setattr(file_cache, "FileCache", Cache)
    engine: Any = object()
    for order, is_waited in ((lambda at: at, False), (lambda at: (1 << 30) - at, True)):
        asked.clear()
        counted = wait_credit.WaitCredit(engine, 1 << 30, readahead_bytes=8 << 20)
        for at in range(4096, 1 << 30, 8 << 20):
            counted(order(at))
        assert set(asked) == {is_waited}


def test_a_file_that_does_not_stay_is_brought_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_cache, "FileCache", _Cache)
    engine: Any = object()
    counted = wait_credit.WaitCredit(engine, 1 << 30, readahead_bytes=8 << 20)
    assert [_waits_to_begin(counted) for _ in range(4)] == [32, 32, 64, 112]


#: Nothing of what a stream needs is loaded before.
NO_DESCRIPTORS = f"""
import os, random, resource, sys
import lmdbio
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with lmdbio.open(sys.argv[1], readonly=True, lock=False) as env, env.begin() as txn:
    txn.get(b"000000")
    try:
        while True:
            os.open("/dev/null", os.O_RDONLY)
    except OSError:
        pass
    assert "lmdbio.reading.file_cache" not in sys.modules
    for index in random.Random(6).sample(range({COUNT}), 800):
        assert txn.get(b"%06d" % index) == random.Random(index).randbytes({VALUE_BYTES})
"""


def test_gets_go_on_where_no_descriptor_is_left(path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTORS, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("surface", ["open", "Records"])
def test_a_signals_handler_may_close_the_file_amid_a_look_at_the_stream(
    path: Path, monkeypatch: pytest.MonkeyPatch, surface: str
) -> None:
    sweep_all = _core.Prefetch.sweep_all

    def close(prefetch: _core.Prefetch) -> int | None:
        left = sweep_all(prefetch)
        source.close()
        return left

    monkeypatch.setattr(_core.Prefetch, "sweep_all", close)
    source = opened(path, surface)
    with pytest.raises(lmdb.Error, match="closed"):
        gets(source, random.Random(7).sample(range(COUNT), 800))


@pytest.mark.parametrize("surface", ["open", "Records"])
def test_closing_does_not_wait_for_the_stream(
    path: Path, awaited: threading.Event, surface: str
) -> None:
    source = opened(path, surface)

    def read() -> None:
        with contextlib.suppress(lmdb.Error):
            gets(source, random.Random(8).sample(range(COUNT), 800))

    thread = threading.Thread(target=read)
    thread.start()
    assert awaited.wait(30)
    begun = time.monotonic()
    source.close()
    assert time.monotonic() - begun < file_cache.EXPECTED_WAIT_SECONDS_MAX / 4
    thread.join(30)
    assert not thread.is_alive()


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
    def interrupt(self: wait_credit.WaitCredit, offset: int) -> None:
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


@pytest.mark.parametrize("surface", ["open", "Records"])
def test_threads_get_while_it_comes_and_closing_ends_it(path: Path, surface: str) -> None:
    failures: list[BaseException] = []

    def read(seed: int) -> None:
        try:
            gets(source, random.Random(seed).sample(range(COUNT), 600))
        except BaseException as error:
            failures.append(error)

    source = opened(path, surface)
    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    if surface == "open":
        with source.begin() as txn:
            kept = txn.get
    else:
        kept = source.__getitem__
    source.close()
    with pytest.raises(lmdb.Error):
        kept(key(0) if surface == "open" else 0)
