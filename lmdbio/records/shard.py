"""shard: a part of a file that batches of open records cache, even with other processes' parts."""

from __future__ import annotations

import errno
from dataclasses import replace

from lmdbio.cache import LIMITS, CacheFile, CacheLimits, CacheShard, on_disk
from lmdbio.machine import storage
from lmdbio.placement.homes import Homes, Room
from lmdbio.planning.reads import REQUEST_BYTES_MAX
from lmdbio.records.records import Records
from lmdbio.system.amounts import BYTES_MAX
from lmdbio.system.log import WARNING, log

__all__ = ["PROCESS_LIMITS", "even_homes", "is_far", "cache_part"]

#: Threads that wait for a batch have all of its reads in flight.
PROCESS_LIMITS = replace(LIMITS, load_bytes=32 << 20)


def even_homes(records: Records, parts: int) -> Homes:
    """Return the records of a file in so many parts, even by bytes; all of them have a home.

    Nothing but the file and the number of parts matters, so that processes find the same homes
    without asking each other.

    Raises:
        ValueError: there are too many parts.
        OSError, Error: where records lie cannot be read.
    """
    index, rooms = records._source, [Room(BYTES_MAX)] * parts
    return Homes.fitting(index.run, index.count, rooms, REQUEST_BYTES_MAX)


def is_far(records: Records) -> bool:
    """Return whether a file lies on storage that other machines have."""
    found = storage.inspect(records._source.pages, cached=False)
    return not (found.disk or found.in_memory)


def cache_part(
    records: Records,
    homes: Homes,
    part: int,
    room: int,
    file: CacheFile | None = None,
    disk_room: int = 0,
    limits: CacheLimits = PROCESS_LIMITS,
) -> CacheShard:
    """Have the batches of open records cache a part of the file, as far as there is room.

    The file cache caches nothing besides.

    Args:
        records: records that no thread reads yet, and of which nothing is cached.
        homes: homes of these records.
        part: number of the part that is cached.
        room: bytes of memory.
        file: file on a disk, open and locked; owned from now on.
        disk_room: capacity on that disk, bytes.
        limits: bounds of what is under way, and of the trust in the disk.

    Raises:
        MemoryError: there is none.
        OSError: the file on the disk cannot be written.
    """
    records._routes.file_cache.close()
    limit, shard = int(homes.limits.max(initial=0)), None
    if file is not None:
        try:
            back = on_disk(file, limits=limits)
            shard = CacheShard(homes, part, Room(room, disk_room), limit, back, limits)
        except BaseException as error:
            file.close()
            if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            log(f"{file.path}: nothing is kept on this disk: {error.strerror}", WARNING)
    if shard is None:
        shard = CacheShard(homes, part, Room(room), limit, limits=limits)
    blocks = records._routes.blocks
    records._routes.shard = shard.open(blocks, blocks.options.request_bytes_max, blocks.counter)
    return shard
