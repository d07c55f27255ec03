"""cache: parts of data sets on a local disk, in files that outlive the job.

Uses ``errors``, ``_core``, ``remote``, ``planning``, ``machine``, ``reading`` and ``system``.

    source      which state of which data file a cache file holds parts of
    layout      header | sums | pages: the cache file, byte by byte
    cache_file  one cache file, open and locked: written, checked, taken again
    grain_pages which pages of a data file grains lie on
    disk_tier   pages of one data file on a disk: read and compared, written, trusted no further
    claim       the cache file of one process of a job, and how much it may hold
    folder      all cache files of a folder: listed, verified, cleared
"""

from lmdbio.cache.cache_file import CacheFile
from lmdbio.cache.claim import claim, room_on_disk, state_of
from lmdbio.cache.disk_tier import PAGE_BYTES, DiskTier, NoAnswerError, PageWrite, RowReads
from lmdbio.cache.folder import Entry, clear, find, verify
from lmdbio.cache.grain_pages import GrainPages
from lmdbio.cache.source import SourceState, named

__all__ = [
    "PAGE_BYTES",
    "CacheFile",
    "DiskTier",
    "Entry",
    "GrainPages",
    "NoAnswerError",
    "PageWrite",
    "RowReads",
    "SourceState",
    "named",
    "claim",
    "clear",
    "find",
    "room_on_disk",
    "state_of",
    "verify",
]
