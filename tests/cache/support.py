"""A small file, the two that keep a shard of it, and disks that fail.

``by_records`` has a process of a Loader read it, which waits for what it needs, and ``by_reader``
a Reader, whose root polls. Both compare each record.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

from lmdbio import Cache, Mode
from lmdbio.cache import CacheLimits, CacheShard, claim, find, state_of, verify
from lmdbio.cache.layout import HEADER_BYTES
from lmdbio.observe.stats import Stats
from lmdbio.reader import shard_rows
from lmdbio.reader.reader import Reader
from lmdbio.records.records import Records
from lmdbio.records.shard import PROCESS_LIMITS, cache_part, even_homes
from tests.support import databases

COUNT, GRAIN = 240, 4096
ROOM = 1 << 30
EPOCHS = 3
#: Sweeps of the root that are small, as the grains are.
SMALL = CacheLimits(piece_bytes=64 << 10)


def value(i: int) -> bytes:
    """Inline, overflow and empty values of every length class."""
    return bytes([i % 251]) * ((i * 37) % 60 if i % 3 else (i * 997) % 12_000)


VALUES = [value(i) for i in range(COUNT)]
EVERY = list(range(COUNT))


def written(path: Path, values: list[bytes] = VALUES) -> Path:
    with databases.open_writable(path, 1) as env:
        databases.write(env, [(b"%08d" % i, one) for i, one in enumerate(values)])
    return path


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


# --- who reads


def opened(
    path: Path,
    folder: Path,
    memory: int = 0,
    disk: int = ROOM,
    part: int = 0,
    parts: int = 1,
    limits: CacheLimits = PROCESS_LIMITS,
    **options: Any,
) -> tuple[Records, CacheShard]:
    records = Records(path, **options)
    try:
        state = state_of(records._source)
        file = claim(folder, state, part, parts, "cache", is_alone=parts == 1)
        homes = even_homes(records, parts)
        return records, cache_part(records, homes, part, memory, file, disk, limits)
    except BaseException:
        records.close()
        raise


def read(records: Records, indices: list[int]) -> None:
    """Read records both ways."""
    expected = [VALUES[i] for i in indices]
    assert [bytes(view) for view in records.read(indices)] == expected
    assert list(records.values(np.array(indices, np.int64))) == expected


class Job(NamedTuple):
    """The counts of a job.

    Attributes:
        stats: counts of all of it.
        last: sources of its records in the last epoch, empty ones aside.
        told: sentence about what it kept; empty: it has none.
    """

    stats: Stats
    last: set[str]
    told: str = ""


def by_records(
    path: Path,
    folder: Path,
    memory: int = 0,
    disk: int = ROOM,
    *,
    limits: CacheLimits = PROCESS_LIMITS,
    at: Callable[[int], None] = lambda _: None,
    is_awaited: bool = False,
    **more: Any,
) -> Job:
    records, _ = opened(path, folder, memory, disk, limits=limits, **more)
    number, before = 0, Stats()
    with records:
        for epoch in range(EPOCHS):
            before = records.stats()
            order = np.random.default_rng(epoch).permutation(COUNT)
            for batch in np.array_split(order, 7):
                read(records, batch.tolist())
                at(number)
                number += 1
        stats = records.stats()
    last = stats - before
    counts = {"own": last.own_bytes, "disk": last.disk_bytes, "file": last.file_bytes}
    return Job(stats, {source for source, size in counts.items() if size})


def by_reader(
    path: Path,
    folder: Path,
    memory: int = 0,
    disk: int = ROOM,
    *,
    limits: CacheLimits = SMALL,
    at: Callable[[int], None] = lambda _: None,
    is_awaited: bool = False,
    warm: Any = "demand",
) -> Job:
    """Read; ``is_awaited``: use no second batch before all of the file is on the disk."""
    cache, told = Cache(memory, str(folder), disk, warm=warm), 0
    needed = (path / "data.mdb").stat().st_size - 10 * GRAIN  # but meta pages, and free ones
    # Blocks are small, so that the root works while its rank does.
    words: dict[str, Any] = {"mode": Mode(locate="scan", block_iterations=1), "epochs": EPOCHS}
    words |= {"shuffle": "global", "seed": 2, "request_bytes_max": 8192}
    limits = limits if limits is not PROCESS_LIMITS else SMALL
    with (
        mock.patch.object(shard_rows, "LIMITS", limits),
        Reader(path, 7, cache=cache, **words) as reader,
    ):
        for number, batch in enumerate(reader):
            for i, index in enumerate(batch.indices.tolist()):
                assert bytes(batch[i]) == VALUES[index]
            told += len(batch)
            at(number)
            if is_awaited and not number:
                wait_for(lambda: reader.stats().cache_disk_bytes >= needed)
    assert told == EPOCHS * COUNT
    last = {source for source, (_, size) in reader.sources()[EPOCHS - 1].items() if size}
    return Job(reader.stats(), last, reader.caching.text)


# --- what becomes of a disk


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


class UnderWay:
    """Reads of a disk that are under way when they are looked at.

    Args:
        error: error that they fail with when they are looked at again; None: they never end.
    """

    def __init__(self, error: OSError | None = None) -> None:
        self._error, self._looks = error, 0

    def poll(self, timeout_ms: int = 0) -> bool:
        self._looks += 1
        if self._error is not None and self._looks > 1:
            raise self._error
        time.sleep(timeout_ms / 1000)
        return False

    def left(self) -> float:
        return 1.0

    def close(self) -> None:
        """Nothing: they are no reads."""


class OneByOne:
    """``engine.submit`` of a disk that serves what it was given one by one, slowly.

    Args:
        submit: starts the reads.
        each_s: seconds that it takes for each.
    """

    def __init__(self, submit: Callable[..., Any], each_s: float) -> None:
        self._submit, self._each_s, self._free_s = submit, each_s, 0.0

    def __call__(self, reads: Any, keep: object = None) -> _Served:
        self._free_s = max(self._free_s, time.monotonic()) + self._each_s
        return _Served(self._submit(reads, keep), self._free_s)


class _Served:
    """Reads that end at some time, and not before."""

    def __init__(self, reads: Any, ends_s: float) -> None:
        self._reads, self._ends_s, self.close = reads, ends_s, reads.close

    def poll(self, timeout_ms: int = 0) -> bool:
        time.sleep(min(timeout_ms, 5) / 1000)
        return time.monotonic() >= self._ends_s and bool(self._reads.poll(timeout_ms))

    def left(self) -> float:
        return float(time.monotonic() < self._ends_s)


def flip(file: Path, offset: int) -> None:
    with file.open("r+b") as cache:
        cache.seek(offset)
        byte = cache.read(1)
        cache.seek(offset)
        cache.write(bytes([byte[0] ^ 4]))


def flip_pages(path: Path, file: Path, count: int) -> None:
    """Flip a bit of so many pages that are kept."""
    size, chance = (path / "data.mdb").stat().st_size, random.Random(3)
    begin = file.stat().st_size - -(-size // 4096) * 4096
    with file.open("rb") as cache:
        cache.seek(begin)
        pages = [i for i in range(size // 4096) if any(cache.read(4096)) and i > 1]
    for page in chance.sample(pages, count):
        flip(file, begin + page * 4096 + chance.randrange(4096))
    assert verify(file)[1] == count


def flip_sums(file: Path) -> None:
    for page in range(20, 40):
        flip(file, HEADER_BYTES + 4 * page)


def only_file(folder: Path) -> Path:
    (entry,) = find(folder)
    return entry.path
