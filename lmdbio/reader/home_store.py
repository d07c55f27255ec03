"""The store of a home: memory and a cache file for the grains that one root keeps.

homes, room of this root -> tiers -> memory is taken, pages of the cache file are claimed
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import CacheFile
from lmdbio.planning.homes import HomeSources, Room, Tiers

__all__ = ["HomeStore"]

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]

PAGE_BYTES = _core.CHECKED_PAGE_BYTES


@dataclass(frozen=True, slots=True)
class HomeStore:
    """The memory and the cache file that a root keeps its home in.

    Attributes:
        sources: says what the root brings.
        root: of the home.
        tiers: which of its grains are where.
        memory: of those in the first tier, one behind the other.
        file: with those in the second one; borrowed. None: there is no disk.
        sums: of its pages, 0 where one is not there yet.
        waits: nothing is handed out before all is there.
    """

    sources: HomeSources
    root: int
    tiers: Tiers
    memory: _core.Memory
    file: CacheFile | None
    sums: U32
    waits: bool

    @classmethod
    def of(
        cls,
        sources: HomeSources,
        root: int,
        room: Room,
        file: CacheFile | None,
        *,
        waits: bool,
    ) -> HomeStore:
        """Take what a root's home needs; the system gives memory page by page, when it is used.

        Raises:
            MemoryError: there is no room for it.
            OSError: the cache file cannot be written.
        """
        homes = sources.homes
        tiers = Tiers.of(len(homes.kept(root)), room, homes.grains.bits)
        memory = _core.MappedMemory(max(1, len(tiers.memory) << homes.grains.bits))
        made = cls(sources, root, tiers, memory, file, np.empty(0, np.uint32), waits)
        if file is None:
            return made
        return replace(made, sums=file.keep(*made._pages()))

    def warm(self, is_warm: bool) -> HomeStore:
        """Return the same store, whose sources say whether all of it is there beforehand."""
        return replace(self, sources=replace(self.sources, is_warm=is_warm))

    @property
    def grain_bytes(self) -> int:
        """Bytes of a grain."""
        return self.sources.homes.grains.size

    @property
    def span_max(self) -> int:
        """Grains that one record lies in, at most."""
        return self.sources.homes.grains.span_max

    @property
    def begins(self) -> I64:
        """Where each grain of the home begins in the data file, bytes."""
        homes = self.sources.homes
        kept = homes.kept(self.root)
        return np.asarray(homes.grains.used[kept.start : kept.stop] * self.grain_bytes, np.int64)

    @property
    def limit(self) -> int:
        """Where the last record of the home ends in the data file: nothing is read behind it."""
        return self.sources.homes.limit(self.root)

    @property
    def is_split(self) -> bool:
        """Whether some grains have no place in memory."""
        return len(self.begins) > len(self.tiers.memory)

    def _pages(self) -> tuple[int, int]:
        """Return the pages that the cache file is to keep: the first, and the end of the last."""
        begins = self.begins[self.tiers.disk.start :]
        if not len(begins):
            return 0, 0
        first = int(begins[0]) // PAGE_BYTES
        end = min(int(begins[-1]) + self.grain_bytes, self.limit)
        return first, max(first, -(-end // PAGE_BYTES))

    @property
    def left(self) -> I64:
        """The grains that an earlier job has left on the disk, by their places in the home."""
        grains = np.arange(self.tiers.disk.start, len(self.begins))
        begins = self.begins[grains]
        grains, begins = grains[begins < self.limit], begins[begins < self.limit]
        if self.file is None or not len(grains):
            return grains[:0]
        ends = np.minimum(begins + self.grain_bytes, self.limit)
        first, there = self._pages()[0], np.concatenate(([0], np.cumsum(self.sums != 0)))
        low, high = begins // PAGE_BYTES - first, -(-ends // PAGE_BYTES) - first
        return np.asarray(grains[there[high] - there[low] == high - low], np.int64)

    @property
    def is_full(self) -> bool:
        """Whether an earlier job has left all grains on the disk."""
        return len(self.left) == int((self.begins < self.limit).sum())
