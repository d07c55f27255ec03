"""wait_credit: single gets that wait pay for a stream that brings the whole file.

A program that gets one record at a time, by keys that do not follow each other, waits for the
storage at each of them. py-lmdb brings what lies around with each fault of its mapping; here a
``FileCache`` reads the whole file to the page cache, in order, once such gets have cost a part of
that, where it has room there.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lmdbio import _core
    from lmdbio.reading.file_cache import FileCache

__all__ = ["WaitCredit"]

#: In the time of one get that waits a disk of this machine streams about as much.
WAIT_BYTES = 256 << 10
#: Waits that are credited together; a program that gets a few records loads no stream.
WAITS = 64


class WaitCredit:
    """Counts the gets of one file that waited, and lets the stream go on for them.

    Threads may share it. It refers to no environment: the C core holds it.

    Args:
        engine: Engine that reads the file.
        size: bytes of the file that are in use.
    """

    __slots__ = ("_cache", "_engine", "_size", "_waits")

    def __init__(self, engine: _core.Engine, size: int) -> None:
        self._engine: _core.Engine | None = engine
        self._size, self._waits = size, 0
        self._cache: FileCache | None = None

    def __call__(self) -> None:
        """Note a get that has waited."""
        self._waits += 1
        engine = self._engine  # once: another thread may close it meanwhile
        if self._waits % WAITS or engine is None:
            return
        cache = self._cache
        if cache is None:
            from lmdbio.reading.file_cache import FileCache  # others begin sooner without it

            made = FileCache(engine, self._size, memory_bytes_max=0, wanted=None)
            cache = self._cache = self._cache or made
        cache.credit(WAITS * WAIT_BYTES)
        if self._engine is None:
            cache.close()  # another thread has closed the file meanwhile

    def close(self) -> None:
        """End the stream. May be called twice."""
        cache, self._cache, self._engine = self._cache, None, None
        if cache is not None:
            cache.close()
