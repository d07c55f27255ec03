"""wait_credit: single gets that wait pay for a stream that brings the whole file.

A program that gets one record at a time, which do not follow each other, waits for the storage at
each of them. py-lmdb brings what lies around with each fault of its mapping: as much as the kernel
reads ahead. Here each such get pays for as much of the file, at least, and once they have paid for
a fifth of it, a ``FileCache`` reads all of it to memory, in order, where there is room. With its
``readahead=False`` py-lmdb brings nothing else, and ``lmdbio.open`` nothing until gets have waited
as long as all of the file would take. The same holds on file systems that others share: a program
that gets a few records of such a file should not have it read whole.
"""

from __future__ import annotations

from lmdbio.system.log import INFO, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lmdbio import _core
    from lmdbio.reading.file_cache import FileCache

__all__ = ["WaitCredit"]

#: In the time of one get that waits a disk of this machine streams about as much.
WAIT_BYTES = 256 << 10
#: Waits between two looks at the stream; a program that gets fewer records loads none.
WAITS = 16
#: They pay for the stream when they have cost one in so many of its bytes.
READAHEAD_SHARE = 5
#: A get that waits so little behind the one before goes through the file in order, and follows the
#: stream; others wait for its end, since single requests meanwhile would slow it down.
IN_ORDER_BYTES = 64 << 20


class WaitCredit:
    """Counts the gets of one file that waited, and lets the stream go on for them.

    Threads may share it. It refers to no environment: the C core holds it.

    Args:
        engine: Engine that reads the file.
        size: bytes of the file that are in use.
        readahead_bytes: distance that the kernel reads ahead, bytes, 0 if unknown; None: nothing
            else than what gets ask for is to be read before they have paid for all.
        file_cache: FileCache of the file that other reads pay for too; None: each stream has one
            of its own, to the page cache.
    """

    __slots__ = ("_at", "_cache", "_engine", "_given", "_size", "_waits", "_waits_paid")

    def __init__(
        self,
        engine: _core.Engine,
        size: int,
        *,
        readahead_bytes: int | None,
        file_cache: FileCache | None = None,
    ) -> None:
        self._engine: _core.Engine | None = engine
        self._size, self._waits, self._given, self._at = size, 0, file_cache, 0
        self._cache: FileCache | None = None
        share = 1 if readahead_bytes is None else READAHEAD_SHARE
        waits = size // (share * max(WAIT_BYTES, readahead_bytes or 0))
        #: So many pay for a stream.
        self._waits_paid = max(WAITS, waits)

    def __call__(self, offset: int) -> None:
        """Note a get that has waited. It has its value, also where the stream fails.

        Args:
            offset: offset of the value in the file, bytes; 0: it is not known.
        """
        self._waits += 1
        is_in_order = not offset or 0 <= offset - self._at < IN_ORDER_BYTES
        self._at = offset or self._at
        engine = self._engine  # once: another thread may close it meanwhile
        if self._waits % WAITS or engine is None:
            return
        try:
            if self._waits >= self._waits_paid:
                self._begin(engine)
            if (cache := self._cache) is not None:
                cache.credit(0, waits=not is_in_order)
        except Exception as error:  # such as no descriptor for a module that is loaded late
            self.close()
            log(f"{engine.path}: records are got one by one: {error}", INFO)
        if self._engine is None:
            self.close()  # another thread has closed the file meanwhile

    def _begin(self, engine: _core.Engine) -> None:
        """Begin a stream, if none is under way and there is room."""
        self._waits, before = 0, self._cache
        if before is not None and before.is_under_way:
            return
        if before is not None and before.has_come:
            self._waits_paid *= 2  # the kernel drops it again: to keep bringing it gains little
        made = self._cache = self._given or self._make(engine)
        made.expect(self._size)
        if before is not None and before is not made:
            before.close()

    def _make(self, engine: _core.Engine) -> FileCache:
        from lmdbio.reading.file_cache import FileCache  # others begin sooner without it

        return FileCache(engine, self._size, memory_bytes_max=0, wanted=None)

    def close(self) -> None:
        """End the stream, if it is none of others' too. May be called twice."""
        cache, self._cache, self._engine = self._cache, None, None
        if cache is not None and cache is not self._given:
            cache.close()
