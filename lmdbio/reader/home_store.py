"""The store of a home: memory and a cache file for the grains that one root keeps.

homes, room of this root -> tiers -> memory is taken, pages of the cache file are claimed
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import CacheFile, GrainPages
from lmdbio.placement.homes import Room, Tiers
from lmdbio.placement.sources import HomeSources

__all__ = ["HomeStore"]

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class HomeStore:
    """The memory and the cache file that a root keeps its home in.

    Attributes:
        sources: says what the root brings.
        root: index of the root whose home this is.
        tiers: places of its grains in memory, and on the disk.
        memory: memory of the grains in the first tier, one behind the other.
        file: file with the grains in the second tier; borrowed. None: there is no disk.
        sums: checksums of its pages, 0 where one is not there yet.
        waits: whether nothing is handed out before all is there.
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
        return replace(made, sums=file.keep(*made.pages.span(tiers.disk.start)))

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

    @cached_property
    def pages(self) -> GrainPages:
        """The pages of the data file that the grains lie on."""
        return GrainPages(self.begins, self.grain_bytes, self.limit)

    @property
    def left(self) -> I64:
        """The grains that an earlier job has left on the disk, by their places in the home."""
        start = self.tiers.disk.start
        if self.file is None:
            return np.empty(0, np.int64)
        is_there = self.pages.present(self.sums, start) & (self.begins[start:] < self.limit)
        return np.asarray(start + np.flatnonzero(is_there), np.int64)

    @property
    def is_full(self) -> bool:
        """Whether an earlier job has left all grains on the disk."""
        return len(self.left) == int((self.begins < self.limit).sum())
