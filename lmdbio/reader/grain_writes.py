"""Grain writes: grains of a home on their way from memory to the disk, oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.reader.disk_tier import DiskTier, DiskWrite
from lmdbio.reader.home_store import HomeStore

__all__ = ["GrainWrites", "Written"]

I64 = npt.NDArray[np.int64]
#: First page of a grain and those behind it, and how many there are: of a number and a count.
Pages = Callable[[int, int], tuple[int, int]]


class Written(NamedTuple):
    """Grains whose write has ended.

    Attributes:
        grains: by their places in the home.
        is_there: the disk has them.
        seconds: that it took.
        buffer: which nothing is on its way through any more; None: they have a place in memory.
    """

    grains: I64
    is_there: bool
    seconds: float
    buffer: _core.Memory | None


@dataclass(slots=True)
class _Write:
    """A run of grains."""

    grains: I64
    write: DiskWrite
    buffer: _core.Memory | None
    begun_s: float


class GrainWrites:
    """Writes grains of one home.

    Args:
        store: of the home.
        disk: borrowed.
        pages: of grains.
    """

    def __init__(self, store: HomeStore, disk: DiskTier, pages: Pages) -> None:
        self._home, self._begins, self._size = store.memory, store.begins, store.grain_bytes
        self._disk, self._pages = disk, pages
        self._writes: deque[_Write] = deque()

    def __len__(self) -> int:
        return len(self._writes)

    @property
    def begun_s(self) -> float:
        """When the oldest one began, by ``time.monotonic``."""
        return self._writes[0].begun_s

    @property
    def awaited(self) -> DiskWrite:
        """The oldest one."""
        return self._writes[0].write

    def start(self, grains: I64, memory: _core.Memory, address: int) -> None:
        """Start to write grains, each run of neighbours in the file and in memory for itself.

        Args:
            memory: of the home, or a buffer.
            address: of the first grain; of another one as it lies from that.
        """
        # In the home's memory grains lie by their places, in a buffer one behind the other.
        order = grains - grains[0] if memory is self._home else np.arange(len(grains))
        is_new = (np.diff(self._begins[grains]) != self._size) | (np.diff(order) != 1)
        parts = np.split(np.arange(len(grains)), np.flatnonzero(is_new) + 1)
        for part in parts:
            page, count = self._pages(int(grains[part[0]]), len(part))
            at = address + int(order[part[0]]) * self._size
            write = self._disk.write(memory, at, page, count)
            is_last = part is parts[-1] and memory is not self._home
            buffer = memory if is_last else None
            self._writes.append(_Write(grains[part], write, buffer, monotonic()))

    def ended(self) -> Iterator[Written]:
        """Yield those that have ended."""
        while self._writes and self._writes[0].write.poll():
            one = self._writes.popleft()
            if self._writes:  # which has begun now
                self._writes[0].begun_s = monotonic()
            is_there = self._disk.note(one.write)
            yield Written(one.grains, is_there, one.write.seconds, one.buffer)

    def close(self) -> None:
        """Give them up."""
        self._writes.clear()
