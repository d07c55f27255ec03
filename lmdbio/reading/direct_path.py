"""DirectPath: large reads go past the page cache, while that is no loss.

O_DIRECT into huge pages that are used again spares the kernel the bookkeeping of the page
cache, a copy, and the disk the many small pieces of memory: on a virtio disk 1.5 times the
bandwidth at a third of the CPU. But what it brings is found by nobody again. So it is for disks
of this machine that are so fast that a cache would serve large reads little faster, and it ends

    when the disk turns out slow    a second epoch should find the file in memory
    when the file was read once     who comes again will come a third time

and does not begin where part of the file is in the page cache already.
"""

from __future__ import annotations

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.machine.choice import DIRECT_RATE_MIN
from lmdbio.system import fork
from lmdbio.system.log import log
from lmdbio.system.slim import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

__all__ = ["DirectPath"]

#: Smaller reads are better cached. Their memory has huge pages (csrc/buffer.h).
BATCH_BYTES_MIN = 4 << 20
#: The disk's rate is looked at every so many bytes, since a batch or two say little; the first
#: of these count for nothing, since in them the huge pages are made.
RATE_BYTES = 64 << 20
#: More than one in so many of the file's bytes in the page cache: read them there.
CACHED_SHARE = 8


class DirectPath:
    """An engine for large batches, for as long as it pays.

    Threads may share it; the times it sums up are only roughly right then.

    Args:
        engine: reads through the page cache; any other kind has no direct path.
        size: bytes of the file that are in use.
        depth: requests in flight.
        wanted: whether reads may bypass the page cache (``Choice.may_bypass_cache``).
        kind: "direct", or "staged" for memory without huge pages.
        readers: number of readers that share the file, each reading another part of it.
    """

    def __init__(
        self,
        engine: _core.Engine,
        size: int,
        *,
        depth: int,
        wanted: bool,
        kind: Literal["direct", "staged"] = "direct",
        readers: int = 1,
    ) -> None:
        self._given, self._size, self._depth = engine, size, depth
        self._kind, self._share = kind, size // readers
        self._read = self._window = 0
        self._seconds = self._ended = 0.0
        self._warm = False
        self._direct: _core.Engine | None = None
        #: Of a closed engine.
        self._counts = _core.EngineCounts()
        self._guard = Lock()  # of opening and closing
        fork.register(self)
        #: None: not yet known.
        self._pays: bool | None = None if wanted and engine.kind == "pread" else False

    def _after_fork(self) -> None:
        self._guard = Lock()

    @property
    def once_over(self) -> bool:
        """As much was read in large reads as there is to read."""
        return 0 < self._share <= self._read

    def engine(self, size: int = BATCH_BYTES_MIN) -> _core.Engine | None:
        """The engine for a read of ``size`` bytes; None: the page cache's."""
        if self._pays is False or size < BATCH_BYTES_MIN:
            return None
        if self._pays is None:
            why = ""
            with self._guard:
                if self._pays is None:
                    self._direct, why = self._open()
                    self._pays = self._direct is not None
            if why:
                self._log(why)
        return self._direct if self._pays else None

    def _open(self) -> tuple[_core.Engine | None, str]:
        """Open the engine; None, and why, where nothing is passed by.

        It is a matter of speed, so no failure ends the reading: O_DIRECT may be refused,
        descriptors be used up, or the right to open the file be gone.
        """
        try:
            cached = self._given.cached_bytes()
            if cached is None:
                return None, "the kernel does not say how much of it is there already"
            if CACHED_SHARE * cached > self._size:
                return None, f"more than 1/{CACHED_SHARE} of it is there already"
            return self._given.again(self._kind, self._depth), ""
        except (OSError, Error, MemoryError) as error:
            return None, str(error) or type(error).__name__

    def _log(self, why: str) -> None:
        log(f"{self._given.path}: large reads go through the page cache: {why}")

    def record(self, size: int, times: tuple[float, float]) -> None:
        """A read of ``size`` bytes had this beginning and end (``Ticket.times``).

        Reads that are under way together wait for each other; the time of each is what it took
        after the one before.
        """
        begun, ended = times
        self._read += size
        self._window += size
        self._seconds += max(0.0, ended - max(begun, self._ended))
        self._ended = ended
        slow = False
        if self._window >= RATE_BYTES:
            slow = self._warm and self._window < DIRECT_RATE_MIN * self._seconds
            self._window, self._seconds, self._warm = 0, 0.0, True
        if slow or self.once_over:
            least = f"the disk gives less than {DIRECT_RATE_MIN >> 20} MiB a second"
            self.stop(least if slow else "it has been read once, and may be again")

    def stop(self, why: str) -> None:
        """Have all reads go through the page cache from now on."""
        paid, self._pays = self._pays, False
        if paid:
            self._log(why)

    def counts(self) -> _core.EngineCounts:
        """Return all counts of this way; also after ``close``."""
        direct = self._direct
        return self._counts if direct is None else direct.counts()

    def close(self) -> None:
        """Closes the file. May be called twice."""
        with self._guard:
            self._pays = False
            direct, self._direct = self._direct, None
            if direct is not None:
                direct.close()
                self._counts = direct.counts()
