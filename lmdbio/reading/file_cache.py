"""FileCache: brings a whole file to memory behind random reads, once they pay for it.

Random reads build up credit for a stream that reads the whole file. A request for one record
takes as long as reading ``gap_bytes_max`` more in a stream would. ``credit`` adds up what
requests cost beyond the bytes that they bring. As long as that sum is less than a third of what
the whole stream would cost, there is no stream, and a caller that reads a few batches gets these
at the disk's full speed. From then on each request adds a multiple of its cost
(PREFETCH_BUDGET_FACTOR): a caller that reads all records gets the file at the speed of a stream.
Large records come at that speed anyway and add nothing. A record that the page cache serves costs
a copy, and adds its bytes; the stream that would save the copies begins when they have cost as
much.

A caller that says beforehand how many records it will read (``expect``) has that credit at once.

The stream runs while records are read the usual way. Callers wait for its end alone, once the
credit covers all of it, since single requests in between would slow it down. Where the bytes go:

    memory       the file fits the memory budget: once all of it is there, the cache lends records
                 without a copy, a request or a system call
    mapping      the engine is "mmap", and the page cache has nearly all of the file already
    page cache   the file exceeds the budget, but fits half of the memory that is available:
                 requests then find records in the page cache
    nowhere      the file is larger than that

The cache is filled once, before it lends the first record, and never written again. A stream that
fails ends, and records are read as without one: whether a record can be read does not depend on
the rest of the file.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.machine.budget import cached_bytes_max
from lmdbio.system import fork
from lmdbio.system.log import INFO, WARNING, tell

__all__ = ["FileCache", "Lent", "Place"]

Place = Literal["memory", "mapping", "page cache", "nowhere"]

#: Bytes asked for at a time; two such steps are under way.
STEP_BYTES = 16 << 20
STEPS = 3
#: Requests in flight, on threads of their own: single records must not queue behind them. They
#: go through the page cache, so that the next process finds the file there.
DEPTH, REQUEST_BYTES = 8, 1 << 20
#: A disk of this machine is read by two streams, for which the kernel reads ahead in large pages;
#: with cores to spare by some more, since to copy takes longer than a fast disk does. The copy has
#: small pages: huge ones took 4 s for 645 MiB, and small ones 1.5, on a virtual machine whose
#: host takes free memory back, for they are made of memory that nobody has used of late.
DISK_REQUEST_BYTES = 4 << 20
DISK_STREAMS_MAX = 4
#: How many times its cost a request adds to the credit. With 4, one in sixty of the 3 KB records
#: of a file pays for all of it once the stream has begun.
PREFETCH_BUDGET_FACTOR = 4
#: The stream begins when requests have cost one in so many of its bytes: when one in fifty of such
#: records was read, which are few enough to be read again with the rest (lio_engine_clear_way).
REQUESTS_SHARE = 3
#: Callers wait for the end of the stream when it is no further off than this; the longer time,
#: where they said beforehand what they will read: single requests meanwhile would slow it down.
WAIT_SECONDS_MAX, EXPECTED_WAIT_SECONDS_MAX = 1.0, 4.0


def _disk_streams() -> int:
    return max(2, min(DISK_STREAMS_MAX, len(os.sched_getaffinity(0)) // 2))


@dataclass(frozen=True, slots=True)
class Lent:
    """The memory of a whole file, which outlives its cache where somebody keeps it.

    Attributes:
        address, size: of the first byte, and bytes.
        keep: the owner.
    """

    address: int
    size: int
    keep: object


class FileCache:
    """The stream behind the random reads of one file.

    Threads may share it. After fork the child goes on with a copy of its own.

    Args:
        engine: reads the file; streams go through the page cache, so only "pread" has one, "mmap"
            what it maps, and "remote" memory.
        size: bytes of the file that are in use.
        memory_bytes_max: what the cache may take.
        wanted: False: never stream; True: from the first read on, and also into the page cache
            of a small memory.
    """

    def __init__(
        self, engine: _core.Engine, size: int, *, memory_bytes_max: int, wanted: bool | None
    ) -> None:
        self._size = size
        self.place: Place = "nowhere"
        if engine.kind in ("pread", "remote") and size and wanted is not False:
            if size <= memory_bytes_max:
                self.place = "memory"
            elif engine.kind == "remote":
                pass  # whose bytes no page cache keeps
            elif wanted or size <= cached_bytes_max():
                self.place = "page cache"
        # The kernel counts each page for the answer, so it is asked only where that matters.
        cached = (
            (self.place == "page cache" or engine.kind == "mmap")
            and size > 0
            and 10 * (engine.cached_bytes() or 0) >= 9 * size
        )
        if self.place == "page cache" and cached:
            self.place = "nowhere"  # it is there already
        self._given, self._is_wanted = engine, bool(wanted)
        if wanted and size and engine.kind not in ("pread", "mmap", "remote"):
            self._tell(f'readahead=True brings nothing to memory with engine="{engine.kind}"')
        self._engine: _core.Engine | None = None
        self._request = REQUEST_BYTES
        self._map: mmap.mmap | None = None
        self._lock = threading.Lock()
        #: Requests, and where in the file they end; without gaps from ``_done`` on.
        self._under_way: list[tuple[_core.Ticket, int]] = []
        self._done = self._credited = 0
        #: Cost of the reads so far, in bytes of the stream, as far as that counts.
        self._spent = size if wanted else 0
        self._begun = 0.0
        self._is_expected = False
        self.address = 0
        self._keep: object = None
        if cached and engine.kind == "mmap":
            self._adopt(*engine.span())
        fork.register(self)

    def _adopt(self, address: int, size: int, keep: object) -> None:
        """Lend from the engine's mapping, where that has the whole file."""
        if size >= self._size:
            self.place, self._done = "mapping", self._size
            self.address, self._keep = address, keep

    def _after_fork(self) -> None:
        # The reads under way were the parent's.
        self._lock, self._under_way = threading.Lock(), []

    @property
    def keep(self) -> object:
        """The owner of the memory, for those who lend from it."""
        return self._keep

    def lend(self) -> Lent:
        """Return the memory, once it is ``complete``."""
        return Lent(self.address, self._size, self._keep)

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the cache will take."""
        return self._size if self.place == "memory" else 0

    @property
    def size(self) -> int:
        """Bytes at ``address``."""
        return self._size

    def credit(self, size: int, *, anew: bool = False, copies: bool = False) -> None:
        """Let the stream go on for reads that cost as much as ``size`` bytes of it.

        Args:
            size: bytes.
            anew: the file was read once already: it will be read again.
            copies: it was copies that cost them, not requests.
        """
        if self._done == self._size or (size <= 0 and not self._is_expected):
            return
        counted = max(0, size) * (1 if copies else REQUESTS_SHARE)
        self._spent = self._size if anew else self._spent + counted
        if self._spent < self._size and not self._is_expected:
            return
        self._go_on(PREFETCH_BUDGET_FACTOR * max(0, size))

    def expect(self, size: int) -> None:
        """Let the stream go on for reads to come that will cost as much as ``size`` bytes of it.

        They pay for all of it or for nothing.
        """
        if size >= self._size > self._done:
            self._is_expected = True
            self._go_on(self._size)

    def _go_on(self, credit: int) -> None:
        failure: BaseException | None = None
        with self._lock:
            if self.place == "nowhere":
                return
            self._credited += credit
            try:
                self._advance()
                while self._nearly_there():
                    self._under_way[0][0].wait()
                    self._advance()
            except (OSError, MemoryError, Error) as error:
                failure = error
                self._stop()
        if failure is not None:
            why = str(failure) or type(failure).__name__
            self._tell(f"records are read one by one: it cannot be brought to memory: {why}")

    def _tell(self, text: str) -> None:
        tell(f"{self._given.path}: {text}", WARNING if self._is_wanted else INFO)

    @property
    def _at(self) -> int:
        """Where the next request begins."""
        return self._under_way[-1][1] if self._under_way else self._done

    def _advance(self) -> None:
        """Take what has arrived, ask for what the credit covers, and never wait.

        An exception between any two steps (Ctrl-C) loses or repeats a request at most.
        """
        while self._under_way and self._under_way[0][0].poll():
            self._done = self._under_way[0][1]
            del self._under_way[0]
        while (
            (at := self._at) < self._size
            and len(self._under_way) < STEPS
            and self._credited >= min(STEP_BYTES, self._size - at)
        ):
            step = min(STEP_BYTES, self._size - at)
            self._credited -= step
            self._under_way.append((self._start(at, step), at + step))

    def _nearly_there(self) -> bool:
        """Return whether the credit covers all, and the stream ends soon at its own pace."""
        rest = self._size - self._done
        if self.place not in ("memory", "page cache") or not rest or not self._under_way:
            return False
        if not self._done:
            return self._is_expected  # the first step tells the pace
        longest = EXPECTED_WAIT_SECONDS_MAX if self._is_expected else WAIT_SECONDS_MAX
        pace = self._done / (time.monotonic() - self._begun)
        return self._credited >= self._size - self._at and rest <= longest * pace

    def complete(self) -> bool:
        """The whole file is in memory, at ``address``; we do not write there again."""
        return self._done == self._size and self.place in ("memory", "mapping")

    def _start(self, at: int, step: int) -> _core.Ticket:
        if self._engine is None:
            depth = DEPTH
            if self._given.kind == "pread" and _core.look_at(self._given.fd).disk:
                self._given.clear_way(self._size)
                depth, self._request = _disk_streams(), DISK_REQUEST_BYTES
            self._engine = self._given.again("pread", depth)
            self._begun = time.monotonic()
        if self.place == "page cache":
            return self._engine.populate(at, step)
        if self._map is None:
            memory = mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.address = _core.address_of(memory)
            self._map = self._keep = memory
        offsets = np.arange(at, at + step, self._request, dtype=np.uint64)
        reads: Any = np.empty(len(offsets), _core.READ)
        reads["offset"] = offsets
        reads["length"] = np.minimum(np.uint64(self._request), np.uint64(at + step) - offsets)
        reads["needed"] = reads["length"]
        reads["into"] = offsets + np.uint64(self.address)
        return self._engine.submit(reads, self._map)

    def counts(self) -> _core.EngineCounts:
        """Return the requests and bytes of the stream; also after ``close``."""
        engine = self._engine
        return _core.EngineCounts() if engine is None else engine.counts()

    def close(self) -> None:
        """Stop the stream. Records that were lent stay. May be called twice."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        self.place = "nowhere"
        for ticket, _ in self._under_way:
            ticket.close()
        self._under_way = []
        if self._engine is not None:
            self._engine.close()
