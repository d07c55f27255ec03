"""Grain writes: grains of a home on their way from memory to the disk, oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import DiskTier, GrainPages, PageWrite

__all__ = ["GrainWrites", "Written"]

I64 = npt.NDArray[np.int64]


class Written(NamedTuple):
    """Grains whose write has ended.

    Attributes:
        grains: their places in the home.
        is_there: whether the disk has them.
        seconds: time that it took.
        buffer: buffer that is free again; None: the grains have a place in memory.
    """

    grains: I64
    is_there: bool
    seconds: float
    buffer: _core.Memory | None


@dataclass(slots=True)
class _Write:
    """A run of grains."""

    grains: I64
    write: PageWrite
    buffer: _core.Memory | None
    begun_s: float


class GrainWrites:
    """Writes grains of one home.

    Args:
        disk: tier that takes them; borrowed.
        pages: pages of the home's grains.
    """

    def __init__(self, disk: DiskTier, pages: GrainPages) -> None:
        self._disk, self._pages = disk, pages
        self._writes: deque[_Write] = deque()

    def __len__(self) -> int:
        return len(self._writes)

    @property
    def begun_s(self) -> float:
        """When the oldest one began, by ``time.monotonic``."""
        return self._writes[0].begun_s

    @property
    def awaited(self) -> PageWrite:
        """The oldest one."""
        return self._writes[0].write

    def start(
        self, grains: I64, memory: _core.Memory, addresses: I64, *, is_buffer: bool = False
    ) -> None:
        """Start to write grains, each run of neighbours in the file and in memory for itself.

        Args:
            grains: their places in the home, ascending.
            memory: memory that is held until the grains are written.
            addresses: address of each grain in that memory.
            is_buffer: whether the memory is a buffer, which is free then.
        """
        runs = self._pages.runs(grains, addresses)
        for run in runs:
            pages = self._pages.under(int(grains[run[0]]), len(run))
            write = self._disk.write(memory, int(addresses[run[0]]), *pages)
            buffer = memory if is_buffer and run is runs[-1] else None
            self._writes.append(_Write(grains[run], write, buffer, monotonic()))

    def ended(self) -> Iterator[Written]:
        """Yield those that have ended."""
        while self._writes and self._writes[0].write.poll():
            one = self._writes.popleft()
            if self._writes:  # which has begun now
                self._writes[0].begun_s = monotonic()
            yield Written(one.grains, one.write.has_written, one.write.seconds, one.buffer)

    def close(self) -> None:
        """Give them up."""
        self._writes.clear()
