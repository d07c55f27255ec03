"""cache: parts of data sets on a local disk, in files that outlive the job.

Uses ``errors``, ``_core``, ``remote`` and ``system``.

    source      which state of which data file a cache file holds parts of
    layout      header | sums | pages: the cache file, byte by byte
    cache_file  one cache file, open and locked: written, checked, taken again
    claim       the cache file of one process of a job, and how much it may hold
    folder      all cache files of a folder: listed, verified, cleared
"""

from lmdbio.cache.cache_file import CacheFile
from lmdbio.cache.claim import claim, room_on_disk, state_of
from lmdbio.cache.folder import Entry, clear, find, verify
from lmdbio.cache.source import SourceState, named

__all__ = [
    "CacheFile",
    "Entry",
    "SourceState",
    "named",
    "claim",
    "clear",
    "find",
    "room_on_disk",
    "state_of",
    "verify",
]
