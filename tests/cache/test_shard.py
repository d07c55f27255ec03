"""Records of which a process keeps a part: the same bytes, each grain read once and whole.

Goal: batches are those of the file whatever is kept, also while many threads fill it, after Ctrl-C
or a fork anywhere, and when the file is written, cut, or cannot be read at a place; nothing is
read twice, and no memory is taken beyond the room.

Method: small grains of small files; engines that fail at the reads of grains alone; counts of what
was read to be kept. Threads begin together, and wait for each other by conditions.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import lmdbio
from lmdbio import _core
from lmdbio.cache import CacheLimits, CacheShard
from lmdbio.placement.homes import Room
from lmdbio.records.records import Records
from lmdbio.records.shard import PROCESS_LIMITS, cache_part, even_homes
from tests.cache.support import COUNT, GRAIN, ROOM, VALUES, written
from tests.support import databases, long_run
from tests.support.interrupts import interrupt


def opened(
    path: Path,
    part: int = 0,
    parts: int = 1,
    room: int = ROOM,
    limits: CacheLimits = PROCESS_LIMITS,
    **options: Any,
) -> tuple[Records, CacheShard]:
    records = Records(path, **options)
    return records, cache_part(records, even_homes(records, parts), part, room, limits=limits)


def some(seed: int, size: int = 60) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(-COUNT, COUNT, size).tolist()
    return found


def all_values(records: Records) -> list[bytes]:
    return list(records.values(np.arange(COUNT)))


def read_all_ways(records: Records, indices: list[int]) -> None:
    expected = [VALUES[i] for i in indices]
    assert [bytes(view) for view in records.read(indices)] == expected
    assert list(records.values(np.array(indices))) == expected
    assert records.begin_values(np.array(indices)).taken() == expected
    with_views = records.begin(indices)
    assert len(with_views) == len(indices)
    assert [bytes(view) for view in with_views.values()] == expected


@pytest.mark.parametrize("engine", ["auto", "pread", "direct", "mmap"])
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("room", [0, 40 * GRAIN, ROOM])
def test_batches_are_those_of_the_file(path: Path, engine: str, part: int, room: int) -> None:
    records, kept = opened(path, part, 3, room, engine=engine)
    with records:
        for seed in range(6):
            read_all_ways(records, some(seed))
        read_all_ways(records, [])
        assert kept.kept_bytes <= room
        stats = records.stats()
        assert (stats.own_records > 0) or not room
        assert stats.file_records > 0
        assert stats.own_records + stats.file_records == 6 * 4 * 60


def test_all_parts_together_have_each_record_once(path: Path) -> None:
    with Records(path) as records:
        found = even_homes(records, 4)
        assert np.bincount(found.records, minlength=4).all()
        sizes = np.array(list(map(len, VALUES)))
        parts = np.bincount(found.records, sizes)
        assert parts.max() < 1.2 * parts.min(), "they are even by bytes"


def test_a_whole_file_is_read_once(path: Path) -> None:
    records, kept = opened(path)
    with records:
        read_all_ways(records, list(range(COUNT)))
        stats = records.stats()
        assert 0 <= kept.kept_bytes - stats.warm_bytes < GRAIN
        assert stats.read_bytes == stats.warm_bytes, "and nothing but its grains"
        assert stats.cache_bytes == kept.kept_bytes
        before = records.stats()
        read_all_ways(records, some(1))
        after = records.stats()
        for name in ("read_bytes", "requests", "page_bytes", "ahead_bytes", "warm_bytes"):
            assert getattr(after, name) == getattr(before, name), name


def test_a_grain_is_read_when_a_record_in_it_is_needed(path: Path) -> None:
    records, kept = opened(path)
    with records:
        longest = max(range(COUNT), key=lambda i: len(VALUES[i]))
        assert bytes(records.read([longest])[0]) == VALUES[longest]
        assert len(VALUES[longest]) <= records.stats().warm_bytes <= 5 * GRAIN
        kept.preload()
        assert 0 <= kept.kept_bytes - records.stats().warm_bytes < GRAIN


def test_the_file_cache_keeps_nothing_besides(path: Path) -> None:
    records, _ = opened(path, 0, 2, readahead=True)
    with records:
        for seed in range(20):
            records.read(some(seed))
        assert records.stats().ahead_bytes == 0


@settings(max_examples=long_run.cases(40), deadline=None)
@given(seed=st.integers(0, 2**32), parts=st.integers(1, 9), grains=st.integers(0, 150))
def test_any_part_and_any_room_give_the_same(
    lasting: Path, seed: int, parts: int, grains: int
) -> None:
    records, kept = opened(lasting, seed % parts, parts, grains * GRAIN + seed % GRAIN)
    with records:
        assert kept.kept_bytes <= grains * GRAIN
        read_all_ways(records, some(seed, seed % 90))


# --- threads


@pytest.mark.parametrize("round_", range(5))
def test_threads_that_need_the_same_grains_read_them_once(path: Path, round_: int) -> None:
    records, kept = opened(path)
    threads = 8
    together = threading.Barrier(threads)

    def work(number: int) -> None:
        draw = np.random.default_rng(100 * round_ + number)
        together.wait()
        for _ in range(30):
            indices = draw.integers(0, COUNT, 20)
            expected = [VALUES[i] for i in indices.tolist()]
            assert list(records.values(indices)) == expected
            assert [bytes(one) for one in records.read(indices)] == expected

    with records, ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
        assert records.stats().warm_bytes <= kept.kept_bytes
        assert records.stats().own_records == threads * 30 * 2 * 20


class _Slow:
    """Engine calls that wait before reads of grains until they may go on."""

    def __init__(self, records: Records, before: Callable[[], None]) -> None:
        self._engine, self._before = records._routes.engine, before
        self._memory = records._routes.shard.memory  # type: ignore[union-attr]
        self._submit = self._engine.submit
        self.calls = 0

    def __call__(self, reads: Any, keep: object = None) -> _core.Ticket:
        if keep is self._memory:
            self.calls += 1
            self._before()
        return self._submit(reads, keep)


def interpose(
    monkeypatch: pytest.MonkeyPatch, records: Records, before: Callable[[], None]
) -> _Slow:
    slow = _Slow(records, before)
    monkeypatch.setattr(records._routes.engine, "submit", slow)
    return slow


def test_a_thread_goes_on_with_what_another_one_has_begun(path: Path) -> None:
    """Nobody waits for a thread that began a load and does something else."""
    records, kept = opened(path)
    with records:
        begun = records.begin_values(np.arange(COUNT))  # and is not asked for its values
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(all_values, records).result(60)
        assert found == VALUES
        begun.close()
        assert records.stats().warm_bytes <= kept.kept_bytes


def test_no_thread_sees_a_grain_before_it_is_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, _ = opened(path, engine="pread")
    may_go_on, has_begun = threading.Event(), threading.Event()

    def before() -> None:
        has_begun.set()
        assert may_go_on.wait(60)

    slow = interpose(monkeypatch, records, before)
    with records, ThreadPoolExecutor(2) as pool:
        first = pool.submit(all_values, records)
        assert has_begun.wait(60)
        second = pool.submit(all_values, records)
        may_go_on.set()
        assert first.result(60) == second.result(60) == VALUES
        assert slow.calls == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_reading_goes_on_after_ctrl_c_at_any_moment(path: Path) -> None:
    for moment in range(40):
        records, kept = opened(path, limits=CacheLimits(load_bytes=4 * GRAIN))

        def work(records: Records = records) -> None:
            for _ in range(30):  # an end, for Python may lose the exception
                all_values(records)

        interrupt(work, 0.0002 + 0.0001 * moment)
        with records, ThreadPoolExecutor(1) as pool:
            assert pool.submit(all_values, records).result(60) == VALUES
            assert kept.covered(records._source.run(0, COUNT)) is None, "nothing is lost"


def test_a_forked_child_reads_what_its_parent_had_begun(path: Path) -> None:
    records, _ = opened(path)
    with records:
        begun = records.begin_values(np.arange(COUNT // 2))
        child = os.fork()
        if not child:
            code = 1
            try:
                code = list(records.values(np.arange(COUNT))) != VALUES
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert list(begun.values()) == VALUES[: COUNT // 2]
        read_all_ways(records, list(range(COUNT)))


def test_a_child_sees_what_a_thread_of_its_parent_was_marking(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, kept = opened(path)
    marks, may_go_on = threading.Event(), threading.Event()
    find_missing, forks = kept.table._find_missing, threading.get_ident()

    def held(**given: bool) -> Any:
        if threading.get_ident() != forks:
            marks.set()
            may_go_on.wait(60)
        return find_missing(**given)

    monkeypatch.setattr(kept.table, "_find_missing", held)
    with records, ThreadPoolExecutor(1) as pool:
        found = pool.submit(all_values, records)
        assert marks.wait(60)
        child = os.fork()
        if not child:
            code = 1
            try:
                signal.alarm(20)
                code = all_values(records) != VALUES
            finally:
                os._exit(code)
        may_go_on.set()
        assert os.waitpid(child, 0)[1] == 0
        assert found.result(60) == VALUES


# --- when something fails


def test_grains_that_cannot_be_read_are_done_without(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    records, kept = opened(path, engine="pread")

    def fail() -> None:
        raise OSError(5, "Input/output error")

    slow = interpose(monkeypatch, records, fail)
    with records:
        read_all_ways(records, list(range(COUNT)))
        calls = slow.calls
        assert calls
        read_all_ways(records, list(range(COUNT)))
        assert slow.calls == calls, "they are not tried again"
        assert not records.stats().warm_bytes
        assert "read one by one" in caplog.text and "data.mdb" in caplog.text
        assert kept.covered(records._source.run(0, COUNT)) is not None


def test_some_that_cannot_be_read_cost_the_others_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = CacheLimits(load_bytes=8 * GRAIN)
    records, _ = opened(path, limits=limits, engine="pread")
    turn = iter(range(10**6))

    def fail_at_times() -> None:
        if next(turn) % 3 == 1:
            raise OSError(5, "Input/output error")

    interpose(monkeypatch, records, fail_at_times)
    with records:
        for _ in range(2):
            read_all_ways(records, list(range(COUNT)))
        before = records.stats()
        read_all_ways(records, list(range(COUNT)))
        after = records.stats() - before
        assert after.own_records and after.file_records and not after.warm_bytes


def rewrite(path: Path) -> None:
    """Commit so often that the pages of the state that readers have opened may be others."""
    with lmdb.open(str(path), map_size=1 << 28) as env:
        for turn in range(4):
            with env.begin(write=True) as txn:
                for i in range(COUNT):
                    txn.put(b"%08d" % i, bytes([turn]) * 1000)


def test_a_file_that_is_written_gives_its_old_bytes_or_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "db")
    records, kept = opened(path)
    with records:
        records.read(list(range(COUNT // 2)))
        rewrite(path)
        there = list(range(COUNT // 2))
        assert [bytes(one) for one in records.read(there)] == [VALUES[i] for i in there]
        for _ in range(2):
            with pytest.raises(lmdbio.Error, match=r"data\.mdb: changed while it was read"):
                list(records.values(np.arange(COUNT)))
            with pytest.raises(lmdbio.Error, match=r"data\.mdb: changed while it was read"):
                kept.preload()
    part, _ = opened(written(tmp_path / "other"), 0, 2)
    with part:
        part.read(list(range(COUNT)))
        rewrite(tmp_path / "other")
        with pytest.raises(lmdbio.Error, match=r"data\.mdb: changed while it was read"):
            part.read(list(range(COUNT)))


def test_a_file_that_is_cut_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "db")
    records, _ = opened(path)
    with records:
        near = list(range(COUNT // 4))
        records.read(near)
        os.truncate(path / "data.mdb", 64 * GRAIN)
        assert [bytes(one) for one in records.read(near)] == [VALUES[i] for i in near]
        with pytest.raises((lmdbio.Error, OSError), match=r"data\.mdb"):
            records.read(list(range(COUNT)))


def test_closed_records_say_so_and_views_live_on(path: Path) -> None:
    records, kept = opened(path)
    views = list(records.read(list(range(COUNT))))
    begun = records.begin_values(np.arange(3))
    records.close()
    records.close()
    gc.collect()
    assert [bytes(view) for view in views] == VALUES
    assert kept.memory_bytes == records.stats().cache_bytes == 0
    for call in (records.read, records.begin, lambda i: list(records.values(i)), records.values):
        with pytest.raises(lmdbio.Error, match=r"data\.mdb: was closed"):
            call([1, 2])
    with pytest.raises(lmdbio.Error, match=r"data\.mdb: was closed"):
        list(begun.values())


def test_what_was_never_filled_is_closed(path: Path) -> None:
    with Records(path) as records:
        homes = even_homes(records, 1)
        kept = CacheShard(homes, 0, Room(ROOM), int(homes.limits.max()))
        assert kept.memory_bytes
        for _ in range(2):
            kept.close()
        assert not kept.memory_bytes


@pytest.fixture(params=[0, 1])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with databases.open_writable(tmp_path / "none", 1) as env:
        databases.write(env, [(b"%d" % i, b"") for i in range(request.param)])
    yield tmp_path / "none"


def test_nothing_to_keep_is_no_matter(empty: Path) -> None:
    records, kept = opened(empty, 1, 3)
    with records:
        assert kept.kept_bytes == 0
        kept.preload()
        indices = list(range(len(records)))
        assert [bytes(one) for one in records.read(indices)] == [b""] * len(records)
        assert list(records.values(np.array(indices, np.int64))) == [b""] * len(records)
