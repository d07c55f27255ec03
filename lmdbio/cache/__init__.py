"""cache: parts of data sets on a local disk, in files that outlive the job.

Uses ``errors``, ``_core`` and ``system``.

    source      which state of which data file a cache file holds parts of
    layout      header | sums | pages: the cache file, byte by byte
    cache_file  one cache file, open and locked: written, checked, taken again
    folder      all cache files of a folder: listed, verified, cleared
"""

from lmdbio.cache.cache_file import CacheFile
from lmdbio.cache.folder import Entry, clear, find, verify
from lmdbio.cache.source import SourceState

__all__ = ["CacheFile", "Entry", "SourceState", "clear", "find", "verify"]
