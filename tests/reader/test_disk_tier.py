"""Goal: a disk that is full, fails, lies, or is somebody else's costs time and changes no byte.

Method: one process and a small file with small grains. Bytes of cache files are flipped, cut and
replaced between two Readers, and while one reads; writes fail after so many bytes.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from lmdbio import Cache, Mode
from lmdbio.cache import CacheFile, CacheLimits, clear, find, verify
from lmdbio.cache.disk import DiskTier
from lmdbio.cache.layout import HEADER_BYTES
from lmdbio.planning import homes
from lmdbio.reader import shard_store
from lmdbio.reader.reader import Reader
from tests.reader.support import KEPT_COUNT as COUNT

EPOCHS = 3
#: Blocks are small, so that the root works while its rank does.
FEW_AHEAD = Mode(locate="scan", block_iterations=1)


@pytest.fixture(autouse=True)
def _small_grains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "GRAIN_BYTES_MIN", 4096)
    monkeypatch.setattr(shard_store, "LIMITS", CacheLimits(piece_bytes=64 << 10))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture
def read(path: Path, folder: Path, values: list[bytes]) -> Callable[..., Reader]:
    """Return a call that reads all epochs, compares each record, and returns the Reader."""

    def work(
        memory: int | str = 0,
        disk_bytes: int | str | None = None,
        at: Callable[[int], None] = lambda _: None,
        until: Callable[[Reader], bool] | None = None,
        last: int = 0,
        **more: Any,
    ) -> Reader:
        """Read; with ``until``, use no batch after number ``last`` before that holds."""
        words = {"shuffle": "global", "seed": 2, "epochs": EPOCHS, "request_bytes_max": 8192}
        cache = Cache(memory, str(folder), disk_bytes, warm=more.pop("warm", "demand"))
        told = 0
        with Reader(path, 7, cache=cache, **{**words, **more}) as reader:
            for number, batch in enumerate(reader):
                for i, index in enumerate(batch.indices.tolist()):
                    assert bytes(batch[i]) == values[index]
                told += len(batch)
                at(number)
                if until is not None and number == last:
                    wait_for(lambda: until(reader))
        assert told == EPOCHS * COUNT
        return reader

    return work


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def is_on_disk(path: Path) -> Callable[[Reader], bool]:
    """Return whether all of the file is on the disk but its meta pages, and free ones."""
    return lambda reader: reader.stats().cache_disk_bytes >= size(path) - 10 * 4096


def size(path: Path) -> int:
    return (path / "data.mdb").stat().st_size


def by_epoch(reader: Reader) -> dict[int, dict[str, int]]:
    return {
        epoch: {source: records for source, (records, _) in sources.items()}
        for epoch, sources in reader.sources().items()
    }


# --- what is kept, and for whom


@pytest.mark.parametrize("memory", [0, "300K", "1M", "1G"])
@pytest.mark.parametrize("warm", ["demand", "preload"])
def test_the_next_job_reads_nothing_of_the_data_file(
    read: Callable[..., Reader], path: Path, memory: Any, warm: str
) -> None:
    first = read(memory, warm=warm, until=is_on_disk(path), mode=FEW_AHEAD).stats()
    assert 0 < first.warm_bytes == first.read_bytes <= size(path)
    second = read(memory, warm=warm)
    assert second.stats().warm_bytes == second.stats().read_bytes == 0
    assert "an earlier job" in second.caching.text
    assert all("file" not in sources for sources in by_epoch(second).values())


def test_rows_come_from_memory_and_disk_as_the_tiers_say(read: Callable[..., Reader]) -> None:
    counts = by_epoch(read("500K"))
    assert counts[0] == {"file": COUNT}
    assert counts[1] == counts[2] and set(counts[1]) == {"own", "disk"}
    assert sum(counts[1].values()) == COUNT


def test_two_tiers_keep_as_much_as_both_have_room_for(
    read: Callable[..., Reader], path: Path, folder: Path
) -> None:
    part = size(path) // 4
    reader = read(part, part)
    stats = reader.stats()
    assert 1.9 * part <= stats.warm_bytes <= 2 * part
    assert stats.cache_disk_bytes <= part
    (entry,) = find(folder)
    assert entry.disk_bytes <= part + part // 256 + 3 * HEADER_BYTES
    assert set(by_epoch(reader)[2]) == {"own", "disk", "file"}


def test_a_smaller_room_gives_the_rest_of_the_disk_back(
    read: Callable[..., Reader], folder: Path, path: Path
) -> None:
    read()
    before = find(folder)[0]
    reader = read(0, size(path) // 4)
    (after,) = find(folder)
    assert after.kept_bytes < before.kept_bytes / 2 and after.disk_bytes < before.disk_bytes / 2
    assert reader.stats().warm_bytes == 0, "that part was there"


def test_memory_is_written_to_the_disk_too_for_the_next_job(
    read: Callable[..., Reader], folder: Path, path: Path
) -> None:
    read("1G", until=is_on_disk(path), mode=FEW_AHEAD)
    (entry,) = find(folder)
    assert entry.kept_bytes > 0 and entry.state == "current" and not entry.is_open
    again = read("1G")
    assert again.stats().read_bytes == 0 and "(some in both)" in again.caching.text


# --- files that are not as they were


def flip(file: Path, offset: int) -> None:
    with file.open("r+b") as cache:
        cache.seek(offset)
        byte = cache.read(1)
        cache.seek(offset)
        cache.write(bytes([byte[0] ^ 4]))


def data_offset(file: Path, path: Path) -> int:
    return file.stat().st_size - -(-size(path) // 4096) * 4096


@pytest.mark.parametrize("memory", [0, "1M", "1G"])
def test_a_flipped_bit_is_found_and_mended(
    read: Callable[..., Reader], path: Path, folder: Path, memory: Any
) -> None:
    read(memory, until=is_on_disk(path), mode=FEW_AHEAD)
    file, chance = find(folder)[0].path, random.Random(3)
    begin = data_offset(file, path)
    with file.open("rb") as cache:  # of pages that are there
        cache.seek(begin)
        pages = [i for i in range(size(path) // 4096) if any(cache.read(4096)) and i > 1]
    for page in chance.sample(pages, 20):
        flip(file, begin + page * 4096 + chance.randrange(4096))
    assert verify(file)[1] == 20
    # All pages are used in the first epoch, whose damage is mended soon.
    reader = read(
        memory, until=lambda _: verify(file)[1] == 0, last=2 * COUNT // 7, mode=FEW_AHEAD
    )
    assert 0 < reader.stats().damaged_pages <= 20 * EPOCHS
    assert 0 < reader.stats().warm_bytes <= 20 * 8192 * 2
    assert read(memory).stats().damaged_pages == 0


def test_a_flipped_sum_is_found(read: Callable[..., Reader], folder: Path) -> None:
    read()
    file = find(folder)[0].path
    for page in range(20, 40):
        flip(file, HEADER_BYTES + 4 * page)
    assert read().stats().damaged_pages > 0
    assert verify(file)[1] == 0


@pytest.mark.parametrize("kept", [0, 10, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 50, -5000])
def test_a_cut_file_is_filled_anew(read: Callable[..., Reader], folder: Path, kept: int) -> None:
    read()
    file = find(folder)[0].path
    os.truncate(file, kept if kept >= 0 else file.stat().st_size + kept)
    assert find(folder)[0].state == "damaged"
    assert read().stats().warm_bytes > 0
    assert read().stats().warm_bytes == 0


def test_a_file_that_is_cut_while_it_is_read_is_given_up(
    read: Callable[..., Reader], folder: Path
) -> None:
    read()
    file = find(folder)[0].path
    reader = read(
        at=lambda number: os.truncate(file, HEADER_BYTES) if number == 5 else None, mode=FEW_AHEAD
    )
    assert by_epoch(reader)[2]["file"] > 0
    assert read().stats().warm_bytes > 0


def test_a_foreign_file_under_its_name_is_filled_anew(
    read: Callable[..., Reader], folder: Path
) -> None:
    read()
    file = find(folder)[0].path
    file.write_bytes(os.urandom(100_000))
    assert find(folder)[0].why == "it is no cache file"
    assert read().stats().warm_bytes > 0 and find(folder)[0].state == "current"


def test_a_data_file_that_was_written_to_fills_it_anew(
    read: Callable[..., Reader], path: Path, folder: Path, values: list[bytes]
) -> None:
    read()
    values[7] = b"another value"
    with lmdb.open(str(path), map_size=1 << 28) as env, env.begin(write=True) as txn:
        txn.put(b"%08d" % 7, values[7])
    assert find(folder)[0].state == "outdated"
    assert read().stats().warm_bytes > 0
    assert len(find(folder)) == 1 and find(folder)[0].state == "current"


# --- disks that fail


class Failing:
    """``os.pwrite`` that fails when so many bytes have been written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int, code: int) -> None:
        self._left, self._code, self._write = left, code, os.pwrite
        monkeypatch.setattr(os, "pwrite", self)

    def __call__(self, fd: int, data: Any, offset: int) -> int:
        if self._left <= 0:
            raise OSError(self._code, os.strerror(self._code))
        written = self._write(fd, memoryview(data)[: self._left], offset)
        self._left -= written
        return written


@pytest.mark.parametrize("left", [0.1, 0.5, 0.7])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("memory", [0, "400K"])
def test_a_disk_that_takes_no_more_keeps_what_it_has(
    read: Callable[..., Reader],
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    left: float,
    code: int,
    memory: Any,
) -> None:
    with monkeypatch.context() as patched:
        Failing(patched, HEADER_BYTES + int(left * size(path)) + 77, code)
        reader = read(memory)
    counts = by_epoch(reader)
    assert counts[1]["file"] > 0 and counts[1]["disk"] > 0
    assert reader.stats().cache_disk_bytes > 0
    again = read(memory).stats()
    assert 0 < again.warm_bytes < size(path), "what was kept is used"


def test_a_disk_that_is_full_from_the_start_keeps_nothing(
    read: Callable[..., Reader], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        Failing(patched, 100, errno.ENOSPC)
        reader = read()
    assert "no room" in reader.caching.text and not list(folder.iterdir())
    with monkeypatch.context() as patched:
        Failing(patched, 100, errno.ENOSPC)
        assert "in memory" in read("1G").caching.text


class BrokenReads:
    """Reads that are under way when they are looked at first, and then have failed."""

    def __init__(self) -> None:
        self._looks = 0

    def poll(self, timeout_ms: int = 0) -> bool:
        self._looks += 1
        if self._looks > 1:
            raise OSError(errno.EIO, "the disk is on fire")
        return False

    def left(self) -> float:
        return 1.0

    def close(self) -> None:
        """Nothing: they are no reads."""


def test_a_disk_that_fails_while_it_is_waited_for_is_given_up(
    read: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    read()
    begin, left = DiskTier.read_rows, [5]

    def breaks(self: DiskTier, *arguments: Any) -> Any:
        left[0] -= 1
        reads = begin(self, *arguments)
        if left[0] < 0:
            reads._reads.wait()
            reads._reads = BrokenReads()  # type: ignore[assignment]
        return reads

    monkeypatch.setattr(DiskTier, "read_rows", breaks)
    assert by_epoch(read(mode=FEW_AHEAD))[2]["file"] > 0


class StuckReads:
    """Reads that a disk never answers."""

    def poll(self, timeout_ms: int = 0) -> bool:
        time.sleep(timeout_ms / 1000)
        return False

    def left(self) -> float:
        return 1.0


@pytest.fixture
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = CacheLimits(piece_bytes=64 << 10, stuck_s=0.2)
    monkeypatch.setattr(shard_store, "LIMITS", limits)


@pytest.mark.usefixtures("_little_patience")
def test_reads_that_a_disk_does_not_answer_are_not_waited_for(
    read: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    read()
    begin, left = DiskTier.read_rows, [5]

    def hangs(self: DiskTier, *arguments: Any) -> Any:
        left[0] -= 1
        reads = begin(self, *arguments)
        if left[0] < 0:
            reads._reads.wait()
            reads._reads = StuckReads()  # type: ignore[assignment]
        return reads

    monkeypatch.setattr(DiskTier, "read_rows", hangs)
    begun = time.monotonic()
    assert by_epoch(read(mode=FEW_AHEAD))[2]["file"] > 0
    assert time.monotonic() - begun < 20, "once, and not for each block"


@pytest.mark.usefixtures("_little_patience")
@pytest.mark.parametrize("memory", [0, "400K"])
def test_writes_that_a_disk_does_not_answer_are_not_waited_for(
    read: Callable[..., Reader], folder: Path, monkeypatch: pytest.MonkeyPatch, memory: Any
) -> None:
    write, answers, left = os.pwrite, threading.Event(), [8]

    def hangs(fd: int, data: Any, offset: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            answers.wait(60)
        return write(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", hangs)
    try:
        assert by_epoch(read(memory, mode=FEW_AHEAD))[2]["file"] > 0
        # Its number must not be another file's before the write has ended.
        assert find(folder)[0].is_open
    finally:
        answers.set()
    wait_for(lambda: not find(folder)[0].is_open)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "dangling link"])
def test_no_file_under_its_name_is_passed_over(
    read: Callable[..., Reader], folder: Path, tmp_path: Path, kind: str
) -> None:
    read()
    name = find(folder)[0].path
    name.unlink()
    if kind == "pipe":
        os.mkfifo(name)
    elif kind == "folder":
        name.mkdir()
    else:
        name.symlink_to(tmp_path / ("db" if kind == "link" else "nowhere"))
    assert read().stats().warm_bytes > 0
    other, made = find(folder)
    assert other.path == name and other.state == "damaged" and other.why
    assert made.state == "current" and read().stats().warm_bytes == 0


def test_room_that_others_have_taken_costs_nothing_that_is_kept(
    read: Callable[..., Reader], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read()
    kept = find(folder)[0].kept_bytes
    monkeypatch.setattr(CacheFile, "free_bytes", 0)
    assert read().stats().warm_bytes == 0 and find(folder)[0].kept_bytes == kept


def test_a_folder_that_is_not_there_or_no_folder_is_an_error(path: Path, tmp_path: Path) -> None:
    for wrong in (tmp_path / "nowhere", path / "data.mdb"):
        with pytest.raises(OSError, match=str(wrong)):
            Reader(path, 7, cache=Cache(disk=str(wrong)))


# --- several jobs


def test_two_jobs_in_one_folder_have_a_file_each(
    read: Callable[..., Reader], path: Path, folder: Path
) -> None:
    with Reader(path, 7, cache=Cache(disk=str(folder))) as one:
        next(one)
        assert read().stats().warm_bytes > 0
        entries = find(folder)
        assert [entry.is_open for entry in entries] == [True, False]
        assert [clear(entry) for entry in entries] == [False, True]
    assert [entry.is_open for entry in find(folder)] == [False]


def test_a_file_that_is_removed_while_it_is_read_serves_on(
    read: Callable[..., Reader], folder: Path
) -> None:
    read()
    file = find(folder)[0].path
    reader = read(at=lambda number: file.unlink() if number == 20 else None)
    assert reader.stats().read_bytes == 0


def test_a_file_in_which_nothing_was_kept_is_removed(path: Path, folder: Path) -> None:
    with lmdb.open(str(path)) as env:
        assert env.stat()["entries"] == COUNT
    with pytest.raises(ValueError, match="window"):
        Reader(path, 7, cache=Cache(disk=str(folder)), memory_bytes_max=1000)
    for entry in find(folder):
        assert not entry.is_open and entry.kept_bytes == 0


def test_a_taken_file_is_not_another_jobs(path: Path, folder: Path) -> None:
    from lmdbio.cache import SourceState
    from lmdbio.system.file_identity import FileIdentity

    file = path / "data.mdb"
    state = SourceState.of([str(file)], FileIdentity.of(file.stat()), b"metas")
    one, two = CacheFile.take(folder, state), CacheFile.take(folder, state)
    assert one.path != two.path
    one.close()
    two.close()
    assert not list(folder.iterdir())


# --- memory

PEAK = """
import sys, lmdbio
from lmdbio import Cache
def of_status(name):
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith(name))
def read(**words):
    with lmdbio.Reader(sys.argv[1], 16, shuffle=sys.argv[4], **words) as reader:
        for batch in reader:
            pass
    return reader
read(cache=Cache("1M", sys.argv[2], "1M"), iterations=2)  # loads what is loaded once
before = of_status("VmRSS")
windows = read(cache=sys.argv[3], memory_bytes_max="96M", epochs=3).windows.text
assert "each byte is read once" in windows or "mixed" not in sys.argv[3], windows
print(of_status("VmHWM") - before)
"""


@pytest.mark.parametrize(
    ("memory", "cache", "shuffle"),
    [
        (0, "disk={}", "global"),
        (24, "memory=24M,disk={}", "global"),
        (24, "memory=24M", "global"),
        (24, "memory=24M,placement=mixed", "windows:20x5"),
    ],
)
def test_memory_stays_within_both_budgets(
    tmp_path: Path, folder: Path, memory: int, cache: str, shuffle: str
) -> None:
    """Law 7 of the design: the most that a process has had, within a tenth."""
    path = tmp_path / "large"
    with lmdb.open(str(path), map_size=1 << 30) as env, env.begin(write=True) as txn:
        for i in range(2000):
            txn.put(b"%04d" % i, bytes([i % 251]) * 100_000)
    words = [str(path), str(folder), cache.format(folder), shuffle]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *words], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) <= 1.1 * (memory + 96) * 2**20
