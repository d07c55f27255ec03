"""Records of which a process keeps a part on a disk: the same bytes, whatever the disk does.

Goal: batches are those of the file, from memory, a disk or the file itself; the next job finds on
the disk what the last one has left. A disk that is full, fails, lies, hangs, or is somebody else's
costs time and changes no byte; nothing is left open.

Method: small grains of a small file. Bytes of cache files are flipped, cut and replaced between
two jobs, and while one reads; writes fail after so many bytes. Threads wait by conditions.
"""

from __future__ import annotations

import errno
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import lmdbio
from lmdbio import _core
from lmdbio.cache import CacheLimits, find, verify
from lmdbio.cache.disk import DiskTier
from lmdbio.cache.layout import HEADER_BYTES
from lmdbio.cache.table import LOST
from lmdbio.observe.stats import Stats
from lmdbio.records.records import Records
from tests.cache.support import (
    COUNT,
    EVERY,
    GRAIN,
    ROOM,
    VALUES,
    Failing,
    OneByOne,
    UnderWay,
    by_records,
    flip,
    flip_pages,
    only_file,
    opened,
    read,
    wait_for,
    written,
)
from tests.support import databases, long_run
from tests.support.interrupts import interrupt


def some(seed: int, size: int = 60) -> list[int]:
    found: list[int] = np.random.default_rng(seed).integers(-COUNT, COUNT, size).tolist()
    return found


def job(path: Path, folder: Path, memory: int = 0, disk: int = ROOM, **more: Any) -> Stats:
    return by_records(path, folder, memory, disk, **more).stats


# --- what is kept, and for whom


def test_what_is_read_beforehand_is_read_once(path: Path, folder: Path) -> None:
    for memory, again in ((40 * GRAIN, False), (0, True), (ROOM, True)):
        records, kept = opened(path, folder, memory)
        with records:
            assert kept.is_behind == again
            kept.preload()
            before = records.stats()
            assert kept.is_behind and bool(before.warm_bytes) != again
            read(records, EVERY)
            assert records.stats().read_bytes == before.read_bytes <= kept.kept_bytes


def test_parts_have_files_of_their_own_numbers(path: Path, folder: Path) -> None:
    jobs = [opened(path, folder, 0, ROOM, part, 3) for part in range(3)]
    for records, _ in jobs:
        read(records, EVERY)
        assert records.stats().disk_records and records.stats().file_records
    entries = find(folder)
    assert [entry.is_open for entry in entries] == [True] * 3
    assert [entry.path.stem[-2:] for entry in entries] == ["-0", "-1", "-2"]
    for records, _ in jobs:
        records.close()
    for part in (2, 0, 1):
        assert job(path, folder, 0, ROOM, part=part, parts=3).warm_bytes == 0
    assert len(find(folder)) == 3


def test_two_jobs_of_very_many_processes_have_a_file_for_each(path: Path, folder: Path) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            records, _ = opened(path, folder, part=12_000, parts=12_001)
            stack.callback(records.close)
            read(records, some(1))
        files = sorted(entry.name for entry in folder.iterdir())
        assert [name.split(".")[0].split("-")[-1] for name in files] == ["12000", "24001"]


@settings(max_examples=long_run.cases(25), deadline=None)
@example(seed=4294967295, parts=1, rooms=[(8, 150), (7, 150)], flips=1)
@given(
    seed=st.integers(0, 2**32),
    parts=st.integers(1, 5),
    rooms=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), min_size=1, max_size=3),
    flips=st.integers(0, 20),
)
def test_any_part_and_rooms_give_the_same(
    lasting: Path, seed: int, parts: int, rooms: list[tuple[int, int]], flips: int
) -> None:
    chance, flipped = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as name:
        for memory, disk in rooms:
            place = Path(name), memory * GRAIN + seed % GRAIN, disk * GRAIN
            records, kept = opened(lasting, *place, seed % parts, parts)
            with records:
                assert kept.kept_bytes <= (memory + disk) * GRAIN
                for turn in range(3):
                    read(records, some(seed + turn, seed % 90))
                stats = records.stats()
                assert stats.cache_disk_bytes <= disk * GRAIN
                assert stats.own_records + stats.disk_records + stats.file_records == 6 * (
                    seed % 90
                )
            for entry in find(Path(name)):
                # Damage that nobody came by is still there; there is no other.
                assert not entry.is_open and verify(entry.path)[1] <= flipped
                flipped += flips
                for _ in range(flips):
                    flip(entry.path, chance.randrange(HEADER_BYTES, entry.path.stat().st_size))


def test_empty_records_need_nothing(tmp_path: Path, folder: Path) -> None:
    with databases.open_writable(tmp_path / "none", 1) as env:
        databases.write(env, [(b"%d" % i, b"") for i in range(5)])
    records, kept = opened(tmp_path / "none", folder)
    with records:
        kept.preload()
        assert [bytes(one) for one in records.read(range(5))] == [b""] * 5
        assert list(records.values(np.arange(5))) == [b""] * 5
    assert not list(folder.iterdir()), "nothing was kept"


# --- threads and children


@pytest.mark.parametrize("memory", [0, 60 * GRAIN])
def test_threads_read_each_grain_once(path: Path, folder: Path, memory: int) -> None:
    for turn in range(3):
        records, kept = opened(path, folder, memory)
        threads = 6
        together = threading.Barrier(threads)

        def work(
            number: int, records: Records = records, together: threading.Barrier = together
        ) -> None:
            draw = np.random.default_rng(number)
            together.wait()
            for _ in range(15):
                read(records, draw.integers(0, COUNT, 20).tolist())

        with records, ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
            stats = records.stats()
            assert stats.warm_bytes <= (0 if turn else kept.kept_bytes)
            assert stats.own_records + stats.disk_records == threads * 15 * 2 * 20
            assert not stats.file_records and not stats.damaged_pages


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_reading_goes_on_after_ctrl_c_at_any_moment(path: Path, folder: Path) -> None:
    job(path, folder, 60 * GRAIN)  # loads its modules, whose locks Python leaves held at Ctrl-C
    limits = CacheLimits(load_bytes=4 * GRAIN, piece_bytes=4 * GRAIN)
    for moment in range(30):
        if moment % 5 == 0:
            for file in folder.iterdir():
                file.unlink()
        records, _ = opened(path, folder, 60 * GRAIN, limits=limits)

        def work(records: Records = records) -> None:
            for _ in range(20):  # an end, for Python may lose the exception
                list(records.values(np.arange(COUNT)))

        interrupt(work, 0.0003 + 0.0004 * moment)
        with records, ThreadPoolExecutor(1) as pool:
            pool.submit(read, records, EVERY).result(60)
            assert records.stats().damaged_pages == 0
    assert all(verify(entry.path)[1] == 0 for entry in find(folder))


def in_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def test_a_forked_child_reads_and_leaves_the_file_to_its_parent(path: Path, folder: Path) -> None:
    records, _ = opened(path, folder, 40 * GRAIN)
    with records:
        read(records, EVERY[: COUNT // 2])

        def work() -> None:
            read(records, EVERY)
            stats = records.stats()
            assert stats.disk_records and stats.file_records
            assert stats.cache_disk_bytes == 0, "more than before"
            records.close()

        assert os.waitpid(in_child(work), 0)[1] == 0
        assert find(folder)[0].is_open, "the child's end unlocks nothing"
        read(records, EVERY)
    assert job(path, folder).warm_bytes == 0


def test_a_child_that_lives_on_holds_no_lock(path: Path, folder: Path) -> None:
    records, _ = opened(path, folder)
    read(records, EVERY)
    wait_here, go_on = os.pipe()
    child = in_child(lambda: (os.close(go_on), os.read(wait_here, 1), read(records, EVERY))[2])
    os.close(wait_here)
    records.close()
    assert not find(folder)[0].is_open
    assert job(path, folder).warm_bytes == 0, "while the child lives"
    os.close(go_on)
    assert os.waitpid(child, 0)[1] == 0


# --- files that are not as they were


def rewrite(path: Path) -> None:
    """Commit so often that the pages of the state that readers have opened may be others."""
    with lmdb.open(str(path), map_size=1 << 28) as env:
        for turn in range(4):
            with env.begin(write=True) as txn:
                for i in range(COUNT):
                    txn.put(b"%08d" % i, bytes([turn]) * 1000)


@pytest.mark.parametrize("memory", [0, 60 * GRAIN])
def test_a_database_that_is_rewritten_gives_its_old_bytes_or_an_error(
    tmp_path: Path, folder: Path, memory: int
) -> None:
    path = written(tmp_path / "db")
    records, kept = opened(path, folder, memory)
    there = EVERY[: COUNT // 2]
    with records:
        read(records, there)
        rewrite(path)
        read(records, there)
        for _ in range(2):
            with pytest.raises(lmdbio.Error, match=r"data\.mdb: changed while it was read"):
                records.read(EVERY)
            with pytest.raises(lmdbio.Error, match=r"data\.mdb: changed while it was read"):
                kept.preload()
    assert find(folder)[0].state == "outdated"
    fresh, _ = opened(path, folder, memory)
    with fresh:
        expected = [bytes([3]) * 1000] * COUNT
        assert [bytes(one) for one in fresh.read(EVERY)] == expected
        assert fresh.stats().warm_bytes > 0
    assert [entry.state for entry in find(folder)] == ["current"]


# --- disks that fail


def test_spare_buffers_have_a_bound_and_none_that_failed_is_used_again(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = CacheLimits(piece_bytes=4 * GRAIN, buffer_bytes=8 * GRAIN, loads=8)
    records, kept = opened(path, folder, limits=limits, engine="pread")
    engine, buffers = records._routes.engine, list[Any]()
    submit, size = engine.submit, max(limits.piece_bytes, kept.table.map.size)

    def fails(reads: Any, keep: Any = None) -> _core.Ticket:
        buffers.append(keep)
        if keep is buffers[0]:
            raise OSError(errno.EIO, "the disk is on fire")
        return submit(reads, keep)

    monkeypatch.setattr(engine, "submit", fails)
    with records:
        read(records, EVERY[: COUNT // 2])
        assert 0 < len(kept._loads._spare) * size <= limits.buffer_bytes
        read(records, EVERY[: 2 * COUNT // 3])
        lost = np.count_nonzero(kept.table.back == LOST)
        assert 0 < lost * kept.table.map.size <= size, "one load is"
    assert not kept._loads._spare


def test_a_disk_that_is_given_up_for_damage_is_given_no_grains(path: Path, folder: Path) -> None:
    job(path, folder)
    flip_pages(path, only_file(folder), 30)
    records, kept = opened(path, folder, limits=CacheLimits(damaged_max=0))
    with records:
        for _ in range(2):
            read(records, EVERY)
        assert kept.back is not None and kept.back.is_over
        assert kept.table.is_full, "nothing is to be read"


def test_a_file_whose_part_cannot_be_noted_is_an_error_and_closed(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    Failing(monkeypatch, HEADER_BYTES + 10, errno.EIO)
    failure: BaseException | None = None
    try:
        job(path, folder)
    except OSError as error:
        failure = error  # whose frames hold what was made
    assert failure is not None and str(folder) in str(failure)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert not any(entry.is_open for entry in find(folder))


@pytest.mark.parametrize("left", [0, 1, HEADER_BYTES // 2, HEADER_BYTES - 1])
@pytest.mark.parametrize("memory", [0, 60 * GRAIN])
def test_a_disk_without_room_to_note_the_part_is_done_without(
    path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    left: int,
    memory: int,
) -> None:
    Failing(monkeypatch, HEADER_BYTES + left, errno.ENOSPC)
    stats = job(path, folder, memory)
    assert f"nothing is kept on this disk: {os.strerror(errno.ENOSPC)}" in caplog.text
    assert stats.disk_records == 0 < stats.file_records and stats.cache_disk_bytes == 0
    assert not any(entry.is_open for entry in find(folder))


HASTY = CacheLimits(stuck_s=0.2)


def test_closing_waits_for_no_write_of_a_disk_whose_reads_have_failed_as_well(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, answers = os.pwrite, threading.Event()

    def hangs(fd: int, data: Any, offset: int) -> int:
        answers.wait(60)
        return write(fd, data, offset)

    records, kept = opened(path, folder, 0, limits=HASTY)
    monkeypatch.setattr(os, "pwrite", hangs)
    begun = time.monotonic()
    try:
        with records:
            read(records, EVERY)
            assert isinstance(kept.back, DiskTier) and kept.back.is_stuck
            kept.back.note_failure(OSError(errno.EIO, "the disk is on fire"))
        assert time.monotonic() - begun < 20
    finally:
        answers.set()
    wait_for(lambda: not find(folder)[0].is_open)


@pytest.mark.parametrize("memory", [0, 60 * GRAIN])
def test_reads_that_a_disk_does_not_answer_are_not_waited_for(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, memory: int
) -> None:
    job(path, folder, memory)
    records, kept = opened(path, folder, memory, limits=HASTY)
    assert isinstance(kept.back, DiskTier)
    hanging = UnderWay()
    for name in ("submit", "submit_plan"):
        monkeypatch.setattr(kept.back._engine, name, lambda *_, **__: hanging)
    begun = time.monotonic()
    with records:
        for _ in range(2):
            read(records, EVERY)
        assert records.stats().file_records > 0
        monkeypatch.undo()
        monkeypatch.setattr(kept.back, "_stuck_s", -CacheLimits().retry_s_max)
        before = records.stats()
        read(records, EVERY)
        assert records.stats().disk_records > before.disk_records, "it is asked again"
    assert time.monotonic() - begun < 20, "once, and not for each batch"


def test_a_slow_disk_is_none_that_does_not_answer(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(path, folder)
    limits = CacheLimits(load_bytes=9 * GRAIN, stuck_s=0.5)
    records, kept = opened(path, folder, ROOM, limits=limits)
    assert isinstance(kept.back, DiskTier)
    engine = kept.back._engine
    monkeypatch.setattr(engine, "submit", OneByOne(engine.submit, 0.08))
    begun = time.monotonic()
    with records:
        read(records, EVERY)  # all loads begin at once, and the last one ends late
        assert time.monotonic() - begun > 2 * limits.stuck_s
        assert not records.stats().file_records and not kept.table.has_lost


@pytest.mark.parametrize("memory", [0, 60 * GRAIN])
def test_a_disk_that_comes_and_goes_changes_nothing(path: Path, folder: Path, memory: int) -> None:
    job(path, folder, memory)
    for is_away_first in (True, False):
        records, kept = opened(path, folder, memory, 60 * GRAIN)
        with records:
            assert isinstance(kept.back, DiskTier)
            away, here = time.monotonic() + 60, -CacheLimits().retry_s
            kept.back._stuck_s = away if is_away_first else here
            begun = records.begin_values(np.arange(COUNT)), records.begin(EVERY)
            kept.back._stuck_s = here if is_away_first else away
            assert list(begun[0].values()) == VALUES
            assert [bytes(one) for one in begun[1].values()] == VALUES
            assert records.stats().file_records > 0
            kept.back._stuck_s = here
            read(records, EVERY)


# --- the end


def test_closed_records_say_so_and_leave_nothing_open(path: Path, folder: Path) -> None:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    records, kept = opened(path, folder, 40 * GRAIN)
    views = list(records.read(EVERY))
    begun = records.begin_values(np.arange(COUNT))
    threads = len(list(Path("/proc/self/task").iterdir()))
    records.close()
    records.close()
    assert len(list(Path("/proc/self/task").iterdir())) < threads
    assert [bytes(view) for view in views] == VALUES
    for call in (records.read, lambda i: list(records.values(i))):
        with pytest.raises(lmdbio.Error, match=r"data\.mdb: was closed"):
            call(EVERY)
    with pytest.raises(lmdbio.Error, match=r"data\.mdb: was closed"):
        list(begun.values())
    assert records.stats().cache_bytes == kept.memory_bytes == 0
    assert not find(folder)[0].is_open
    del begun
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_records_that_nobody_closes_leave_nothing_open(path: Path, folder: Path) -> None:
    records, kept = opened(path, folder)
    read(records, EVERY)
    del records, kept
    wait_for(lambda: not find(folder)[0].is_open)
    assert job(path, folder).warm_bytes == 0


def test_a_taken_file_is_closed_where_there_is_no_memory(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise MemoryError("no memory for a buffer")

    monkeypatch.setattr(_core, "MappedMemory", refuse)
    failure: BaseException | None = None
    try:
        opened(path, folder, ROOM)
    except MemoryError as error:
        failure = error  # whose frames hold what was made
    assert failure is not None
    assert not any(entry.is_open for entry in find(folder))
