"""A shard in memory and in a tier behind it: the same bytes, whatever the tier does.

Goal: a process of a Loader that waits and a root that polls get what is in the file, from memory,
the tier or the file itself; the next job finds on a disk what the last one has left. A disk that
is full, fails, lies, hangs, or is somebody else's costs time and changes no byte.

Method: one suite for both, and for a third tier as far as it needs no cache file. Bytes of cache
files are flipped, cut and replaced between two jobs, and while one reads; writes fail after so
many bytes.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import pytest

from lmdbio.cache import CacheFile, CacheLimits, clear, find, verify
from lmdbio.cache.disk import DiskTier
from lmdbio.cache.layout import HEADER_BYTES
from lmdbio.reader import shard_rows
from lmdbio.records import shard
from tests.cache import files_tier
from tests.cache.support import (
    COUNT,
    EVERY,
    GRAIN,
    ROOM,
    SMALL,
    Failing,
    Job,
    UnderWay,
    by_reader,
    by_records,
    flip,
    flip_pages,
    flip_sums,
    only_file,
    opened,
    read,
    wait_for,
)
from tests.support import long_run

MEMORIES = [0, 60 * GRAIN, ROOM]
#: Those of the third tier, which no user has.
FILES_MEMORIES = long_run.one_of(*MEMORIES)
TIERS = [*(("disk", m) for m in MEMORIES), *(("files", m) for m in FILES_MEMORIES)]


@pytest.fixture(params=[by_records, by_reader])
def job(request: pytest.FixtureRequest, path: Path, folder: Path) -> Callable[..., Job]:
    """Return a call that reads all epochs, compares each record, and tells what it has read."""

    def work(*rooms: int, **more: Any) -> Job:
        done: Job = request.param(path, folder, *rooms, **more)
        return done

    return work


@pytest.fixture(params=["disk", "files"])
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tier behind memory: a new one is a module, and a line where each of both opens it."""
    if request.param == "files":
        monkeypatch.setattr(shard, "on_disk", files_tier.on_files)
        monkeypatch.setattr(shard_rows, "on_disk", files_tier.on_files)
    return str(request.param)


# --- what is kept


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(by_records, id="by_records"),
        pytest.param(partial(by_records, engine="direct"), id="direct"),
        pytest.param(by_reader, id="by_reader"),
        pytest.param(partial(by_reader, warm="preload"), id="preload"),
    ],
    indirect=True,
)
@pytest.mark.parametrize(("tier", "memory"), TIERS, indirect=["tier"])
def test_the_next_job_reads_nothing_of_the_data_file(
    job: Callable[..., Job], tier: str, folder: Path, memory: int
) -> None:
    first = job(memory, is_awaited=True)
    assert 0 < first.stats.warm_bytes == first.stats.read_bytes
    assert first.last == ({"own"} if memory == ROOM else {"own", "disk"} if memory else {"disk"})
    if tier == "disk":
        (entry,) = find(folder)
        assert entry.state == "current" and not entry.is_open
        assert verify(entry.path) == (entry.kept_bytes // 4096, 0)
    for other in (memory, 0, ROOM):
        second = job(other)
        assert second.stats.warm_bytes == second.stats.read_bytes == 0
        assert "file" not in second.last
        assert "an earlier job" in second.told or not second.told


def test_tiers_keep_as_much_as_both_have_room_for(
    job: Callable[..., Job], tier: str, folder: Path
) -> None:
    done = job(70 * GRAIN, 80 * GRAIN)
    assert 140 * GRAIN <= done.stats.warm_bytes <= 150 * GRAIN
    assert done.stats.cache_disk_bytes <= 80 * GRAIN
    assert done.last == {"own", "disk", "file"}
    if tier == "disk":
        assert find(folder)[0].disk_bytes <= 80 * GRAIN + 3 * HEADER_BYTES
        less = job(0, 40 * GRAIN)
        assert less.stats.warm_bytes == 0 or less.stats.cache_disk_bytes <= 40 * GRAIN
        assert find(folder)[0].disk_bytes <= 40 * GRAIN + 3 * HEADER_BYTES, (
            "the rest is given back"
        )


@pytest.mark.parametrize("tier", ["files"], indirect=True)
@pytest.mark.parametrize("memory", FILES_MEMORIES)
def test_grains_that_another_tier_has_damaged_are_written_again(
    job: Callable[..., Job], tier: str, folder: Path, memory: int
) -> None:
    job(memory, is_awaited=True)
    for file in sorted(folder.glob("grain-*"))[10:20]:
        flip(file, 100)
    assert job(memory, is_awaited=True).stats.damaged_pages > 0, tier
    assert job(memory).stats.damaged_pages == 0


def test_room_that_others_have_taken_costs_nothing_that_is_kept(
    job: Callable[..., Job], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job()
    kept = find(folder)[0].kept_bytes
    monkeypatch.setattr(CacheFile, "free_bytes", 0)
    assert job().stats.warm_bytes == 0 and find(folder)[0].kept_bytes == kept


def test_two_jobs_in_one_folder_have_a_file_each(
    job: Callable[..., Job], path: Path, folder: Path
) -> None:
    records, _ = opened(path, folder)
    with records:
        read(records, EVERY[::2])
        assert job().stats.warm_bytes > 0
        entries = find(folder)
        assert [entry.is_open for entry in entries] == [True, False]
        assert [clear(entry) for entry in entries] == [False, True]
        read(records, EVERY)
    assert [entry.is_open for entry in find(folder)] == [False]


def test_a_file_that_is_removed_while_it_is_read_serves_on(
    job: Callable[..., Job], folder: Path
) -> None:
    job()
    file = only_file(folder)
    again = job(at=lambda number: file.unlink() if number == 5 else None)
    assert again.stats.read_bytes == 0


# --- files that are not as they were


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_flipped_bit_is_found_and_mended(
    job: Callable[..., Job],
    path: Path,
    folder: Path,
    memory: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job(memory, is_awaited=True)
    file = only_file(folder)
    flip_pages(path, file, 20)

    def at(number: int) -> None:
        if number == 2 * COUNT // 7:  # all pages are used in the first epoch
            wait_for(lambda: verify(file)[1] == 0)

    stats = job(memory, at=at).stats
    assert 0 < stats.damaged_pages <= 60
    assert 0 < stats.warm_bytes <= 80 * GRAIN
    assert verify(file)[1] == 0
    assert job(memory).stats.damaged_pages == 0
    assert f"{file}: damaged pages are read from the data file again" in caplog.text


@pytest.mark.parametrize("memory", [0, ROOM])
def test_a_disk_that_goes_on_to_damage_pages_is_given_up(
    job: Callable[..., Job],
    path: Path,
    folder: Path,
    memory: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job(memory, is_awaited=True)
    flip_pages(path, only_file(folder), 60)
    again = job(memory, limits=CacheLimits(damaged_max=30))
    assert again.stats.damaged_pages > 30
    assert "is read no more: it has damaged" in caplog.text
    assert memory or again.last == {"file"}


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_damaged_page_on_a_full_disk_is_given_up(
    job: Callable[..., Job],
    path: Path,
    folder: Path,
    memory: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job(memory, is_awaited=True)
    flip_pages(path, only_file(folder), 10)
    Failing(monkeypatch, HEADER_BYTES, errno.ENOSPC)
    again = job(memory)
    assert 0 < again.stats.damaged_pages <= 20 * 6
    assert ("file" in again.last) == (memory != ROOM)


def test_a_flipped_sum_is_found(job: Callable[..., Job], folder: Path) -> None:
    job()
    flip_sums(only_file(folder))
    assert job().stats.damaged_pages > 0
    assert verify(only_file(folder))[1] == 0


@pytest.mark.parametrize("left", [0, 10, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 50, -5000])
def test_a_cut_file_is_filled_anew(job: Callable[..., Job], folder: Path, left: int) -> None:
    job()
    file = only_file(folder)
    os.truncate(file, left if left >= 0 else file.stat().st_size + left)
    assert find(folder)[0].state == "damaged"
    assert job().stats.warm_bytes > 0
    assert job().stats.warm_bytes == 0


@pytest.mark.parametrize("memory", [0, 60 * GRAIN])
def test_a_file_that_is_cut_while_it_is_read_is_given_up(
    job: Callable[..., Job], folder: Path, memory: int, caplog: pytest.LogCaptureFixture
) -> None:
    job(memory, is_awaited=True)
    file = only_file(folder)
    again = job(memory, at=lambda number: os.truncate(file, HEADER_BYTES) if number == 2 else None)
    assert "file" in again.last and f"{file}: is read no more" in caplog.text
    assert job(memory).stats.warm_bytes > 0


@pytest.mark.parametrize("kind", ["bytes", "pipe", "folder", "link", "dangling link"])
def test_what_is_no_cache_file_is_filled_anew_or_passed_over(
    job: Callable[..., Job], path: Path, folder: Path, kind: str
) -> None:
    job()
    name = only_file(folder)
    name.unlink()
    if kind == "bytes":
        name.write_bytes(os.urandom(100_000))
        assert find(folder)[0].why == "it is no cache file"
    elif kind == "pipe":
        os.mkfifo(name)
    elif kind == "folder":
        name.mkdir()
    else:
        name.symlink_to(path if kind == "link" else folder.parent / "nowhere")
    assert job().stats.warm_bytes > 0
    assert job().stats.warm_bytes == 0
    assert [entry.state for entry in find(folder)] == (
        ["current"] if kind == "bytes" else ["damaged", "current"]
    )


def test_a_data_file_that_was_written_to_fills_it_anew(
    job: Callable[..., Job], path: Path, folder: Path
) -> None:
    job()
    with lmdb.open(str(path), map_size=1 << 28) as env, env.begin(write=True) as txn:
        txn.put(b"%08d" % COUNT, b"one more")
        txn.delete(b"%08d" % COUNT)
    assert find(folder)[0].state == "outdated"
    assert job().stats.warm_bytes > 0
    assert [entry.state for entry in find(folder)] == ["current"]


# --- disks that fail


@pytest.mark.more
@pytest.mark.parametrize("left", [0, 77, 150_077, 400_000])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("memory", MEMORIES)
def test_a_disk_that_takes_no_more_keeps_what_it_has(
    job: Callable[..., Job],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    left: int,
    code: int,
    memory: int,
) -> None:
    with monkeypatch.context() as patched:
        # The header is written when the file is taken, and once more when its part is known.
        Failing(patched, 2 * HEADER_BYTES + left, code)
        done = job(memory)
    assert "and no more" in caplog.text and str(folder) in caplog.text
    assert ("file" in done.last) == (memory != ROOM)
    assert ("disk" in done.last) == (left > 100 and memory != ROOM)
    (entry,) = find(folder)
    assert entry.kept_bytes >= done.stats.cache_disk_bytes and not entry.is_open
    again = job(memory, is_awaited=True)
    assert "file" not in again.last and again.stats.damaged_pages == 0
    written = again.stats.cache_disk_bytes - done.stats.cache_disk_bytes
    assert again.stats.warm_bytes <= written, "what was kept is used"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("memory", [0, ROOM])
def test_a_disk_that_is_full_from_the_start_keeps_nothing(
    job: Callable[..., Job],
    folder: Path,
    memory: int,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    Failing(monkeypatch, 500, code)
    if code == errno.EIO:
        with pytest.raises(OSError, match=str(folder)):
            job(memory)
    else:
        assert "disk" not in job(memory).last
        assert "nothing is kept on this disk" in caplog.text
    assert not list(folder.iterdir()), "and nothing is left behind"


@pytest.mark.parametrize("memory", [0, 60 * GRAIN])
def test_writes_that_a_disk_does_not_answer_are_not_waited_for(
    job: Callable[..., Job],
    path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    memory: int,
) -> None:
    write, answers, left = os.pwrite, threading.Event(), [8]

    def hangs(fd: int, data: Any, offset: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            answers.wait(60)
        return write(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", hangs)
    begun = time.monotonic()
    try:
        # It is asked again, again and again: that costs the time of a few looks.
        limits = CacheLimits(piece_bytes=SMALL.piece_bytes, stuck_s=0.2, retry_s=0.3)
        done = job(memory, limits=limits)
        assert "file" in done.last and "does not answer" in caplog.text
        assert done.stats.warm_bytes <= (path / "data.mdb").stat().st_size, "each grain once"
        # Its number must not be another file's before the write has ended.
        assert find(folder)[0].is_open
    finally:
        answers.set()
    assert time.monotonic() - begun < 20
    wait_for(lambda: not find(folder)[0].is_open)
    monkeypatch.undo()


@pytest.mark.parametrize("memory", [0, 60 * GRAIN])
@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "the disk is on fire")])
def test_reads_that_fail_or_are_not_answered_are_done_without(
    job: Callable[..., Job],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    memory: int,
    error: OSError | None,
) -> None:
    job(memory, is_awaited=True)
    begin, left = DiskTier.read_rows, [3]

    def breaks(self: DiskTier, *arguments: Any) -> Any:
        left[0] -= 1
        reads = begin(self, *arguments)
        if left[0] < 0:
            while not reads.poll(100):
                pass
            reads._reads = UnderWay(error)
        return reads

    monkeypatch.setattr(DiskTier, "read_rows", breaks)
    begun = time.monotonic()
    limits = CacheLimits(piece_bytes=SMALL.piece_bytes, stuck_s=0.2)
    assert "file" in job(memory, limits=limits).last
    assert time.monotonic() - begun < 20, "once, and not for each block"
    assert ("is read no more: [Errno 5] the disk is on fire" in caplog.text) == bool(error)


@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "the disk is on fire")])
def test_grains_of_a_disk_that_fails_or_hangs_are_read_from_the_data_file(
    job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    job(60 * GRAIN, is_awaited=True)
    begin = DiskTier.read

    def breaks(self: DiskTier, *arguments: Any) -> Any:
        reads = begin(self, *arguments)
        while not reads.poll(100):
            pass
        reads._reads = UnderWay(error)
        return reads

    monkeypatch.setattr(DiskTier, "read", breaks)
    begun = time.monotonic()
    assert "file" in job(60 * GRAIN, limits=CacheLimits(stuck_s=0.2)).last
    assert time.monotonic() - begun < 20
