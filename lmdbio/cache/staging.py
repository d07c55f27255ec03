"""StagingRing: memory for rows from a disk, taken and given back in the order of their blocks.

| free | block 7 | block 8 | block 9 | free |      taken at the end, given back at the beginning
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from lmdbio import _core

__all__ = ["Region", "StagingRing"]


@dataclass(frozen=True, eq=False, slots=True)
class Region:
    """A part of the ring.

    Attributes:
        first, end: bytes from the beginning of the memory on.
        memory: memory in which it lies.
    """

    first: int
    end: int
    memory: _core.Memory

    @property
    def address(self) -> int:
        """Of its first byte."""
        return self.memory.address + self.first


class StagingRing:
    """Memory for rows on their way.

    Args:
        size: bytes; a region that is alone may be larger.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._memory: _core.Memory | None = None
        self._regions: deque[Region] = deque()

    def has_room(self, size: int) -> bool:
        """Return whether a region of so many bytes can be taken."""
        return self._place(size) is not None

    def take(self, size: int) -> Region | None:
        """Return a region; None: there is no room beside those that are taken.

        Raises:
            MemoryError: the system has none.
        """
        first = self._place(size)
        if first is None:
            return None
        if self._memory is None or self._memory.size < size:
            self._memory = _core.MappedMemory(max(size, self._size))
        self._regions.append(Region(first, first + size, self._memory))
        return self._regions[-1]

    def _place(self, size: int) -> int | None:
        if not self._regions:
            return 0
        tail, head = self._regions[0].first, self._regions[-1].end
        if head > tail:  # free behind the last one, and before the first
            room = self._regions[0].memory.size
            return head if head + size <= room else 0 if size <= tail else None
        return head if head + size <= tail else None

    def give_back(self, region: Region) -> None:
        """Give the oldest region back, or the newest."""
        if self._regions and self._regions[0] is region:
            self._regions.popleft()
        elif self._regions and self._regions[-1] is region:
            self._regions.pop()

    def leave(self) -> None:
        """Take other memory from now on: something may still be written to this one."""
        self._memory = None
        self._regions.clear()
