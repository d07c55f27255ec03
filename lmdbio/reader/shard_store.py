"""ShardStore: what one root keeps of the file, and what it is kept for.

homes, room of this root -> memory is taken, pages of the cache file are claimed
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lmdbio.cache import LIMITS, CacheFile, CacheShard, on_disk
from lmdbio.placement.homes import Room
from lmdbio.placement.sources import HomeSources

__all__ = ["ShardStore"]


@dataclass(frozen=True)
class ShardStore:
    """The shard of one root.

    Attributes:
        sources: says what the root brings.
        root: index of the root that owns the shard.
        shard: memory for its grains, and the cache file.
        waits: whether nothing is handed out before all is there.
    """

    sources: HomeSources
    root: int
    shard: CacheShard
    waits: bool

    @classmethod
    def of(
        cls, sources: HomeSources, root: int, room: Room, file: CacheFile | None, *, waits: bool
    ) -> ShardStore:
        """Take what a root's shard needs; the system gives memory page by page, when it is used.

        Raises:
            MemoryError: there is no room for it.
            OSError: the cache file cannot be written.
        """
        homes, limit = sources.homes, sources.homes.limit(root)
        back = None if file is None else on_disk(file, is_direct=True, limits=LIMITS)
        return cls(sources, root, CacheShard(homes, root, room, limit, back, LIMITS), waits)

    def warm(self, is_warm: bool) -> ShardStore:
        """Return the same store, whose sources say whether all of it is there beforehand."""
        return replace(self, sources=replace(self.sources, is_warm=is_warm))
