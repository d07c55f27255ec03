"""cache: parts of data sets, in memory and on a local disk, in files that outlive the job.

Uses ``errors``, ``_core``, ``remote``, ``placement``, ``planning``, ``observe``, ``machine``,
``locate``, ``reading`` and ``system``.

    tier        what a tier has to do, and the limits of a cache
    disk        grains on a disk: read and compared, written, trusted no further
    writer      the thread that writes to a tier
    grains      where the grains of a shard lie in the data file
    table       which grains each tier has, and where records lie
    loads       grains on their way between the data file and the tiers
    waiting     threads that wait for them
    polling     one thread that polls, and reads on
    shard       the part of a file that a process or a root keeps: all of the above
    staging     memory for rows on their way, a ring
    source      which state of which data file a cache file holds parts of
    layout      header | sums | pages: the cache file, byte by byte
    cache_file  one cache file, open and locked: written, checked, taken again
    claim       the cache file of one process of a job, and how much it may hold
    folder      all cache files of a folder: listed, verified, cleared
"""

from lmdbio.cache.cache_file import CacheFile
from lmdbio.cache.claim import claim, room_on_disk, state_of
from lmdbio.cache.disk import on_disk
from lmdbio.cache.folder import Entry, clear, find, verify
from lmdbio.cache.shard import ApartRows, CacheShard, LeftGrains
from lmdbio.cache.source import SourceState, named
from lmdbio.cache.staging import Region, StagingRing
from lmdbio.cache.tier import LIMITS, CacheLimits, TierReads
from lmdbio.cache.writer import TierWrite

__all__ = [
    "LIMITS",
    "ApartRows",
    "CacheFile",
    "CacheLimits",
    "CacheShard",
    "Entry",
    "LeftGrains",
    "Region",
    "SourceState",
    "StagingRing",
    "TierReads",
    "TierWrite",
    "claim",
    "clear",
    "find",
    "named",
    "on_disk",
    "room_on_disk",
    "state_of",
    "verify",
]
