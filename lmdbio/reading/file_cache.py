"""FileCache: brings a whole file to memory behind random reads, once they pay for it.

Random reads build up credit for a stream that reads the whole file. A request for one record
takes as long as reading ``gap_bytes_max`` more in a stream would. ``credit`` adds up what
requests cost beyond the bytes that they bring. As long as that sum is less than a fifth of what
the whole stream would cost, there is no stream, and a caller that reads a few batches gets these
at the disk's full speed. Large records come at that speed anyway and add nothing. A small file is
there before one could say whether it pays, so its first batch brings all of it. A caller that says
beforehand how many records it will read (``expect``) has its credit at once.

The stream runs while records are read the usual way. Callers wait for its end alone, once that is
near, since single requests in between would slow it down. Where the bytes go:

    page cache   the file is on a disk of this machine, and fits half of the memory that is
                 available: records are copied out of a mapping then, as py-lmdb's are. Other file
                 systems, too, where the file exceeds the budget
    memory       it fits the memory budget: once all of it is there, the cache lends records
                 without a copy, a request or a system call
    mapping      the engine is "mmap", and the page cache has nearly all of the file already
    nowhere      the file is larger than that

Memory is filled once, before it lends the first record, and never written again. Pages that the
kernel drops are requested again, and a new stream begins when that has cost as much.
A stream that fails ends, and records are read as without one: whether a record can be read does
not depend on the rest of the file.
"""

from __future__ import annotations

import mmap
import threading
import time
from typing import Any, Literal

import numpy as np

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.machine.budget import cached_bytes_max
from lmdbio.reading.engines import is_on_disk
from lmdbio.system import fork
from lmdbio.system.frozen import dataclass
from lmdbio.system.log import INFO, WARNING, log

__all__ = ["FileCache", "Lent", "Place"]

Place = Literal["memory", "mapping", "page cache", "nowhere"]

#: Bytes asked for at a time; two such steps are under way.
STEP_BYTES = 16 << 20
STEPS = 3
#: Requests in flight, on threads of their own: single records must not queue behind them. They
#: go through the page cache, so that the next process finds the file there.
DEPTH, REQUEST_BYTES = 8, 1 << 20
#: How many times its cost a request adds to the credit. With 4, one in sixty of the 3 KB records
#: of a file pays for all of it once the stream has begun.
PREFETCH_BUDGET_FACTOR = 4
#: The stream begins when requests have cost one in so many of its bytes: when one in sixty of such
#: records was read.
REQUESTS_SHARE = 5
#: A file up to this size takes a tenth of a second, and a stream of it begins sooner. It is waited
#: for, as others are whose pace is known.
SMALL_BYTES, SMALL_REQUESTS_SHARE = 64 << 20, 16
AWAITED_BYTES = 256 << 20
#: The first batches of many, which are wanted soon, do not wait for the stream of a larger file.
#: It begins behind the first of them; so many, one for each of a few threads, are read past it.
PASSES = 4
#: Callers wait for the end of the stream when it is no further off than this; the longer time,
#: where they said beforehand what they will read: single requests meanwhile would slow it down.
WAIT_SECONDS_MAX, EXPECTED_WAIT_SECONDS_MAX = 1.0, 4.0


@dataclass(frozen=True, slots=True)
class Lent:
    """The memory of a whole file, which outlives its cache where somebody keeps it.

    Attributes:
        address, size: address of the first byte, and number of bytes.
        owner: object that keeps it alive.
    """

    address: int
    size: int
    owner: object


class _ToPageCache:
    """The stream to the page cache, in the file's order.

    It begins with a gift of ``AWAITED_BYTES``, so that smaller files come in one go.
    """

    def __init__(self, engine: _core.Engine, size: int) -> None:
        self._given, self._size = engine, size
        self._prefetch: _core.Prefetch | None = None
        self._credited = AWAITED_BYTES
        self._come = 0
        #: Bytes asked for by this stream, and by those before.
        self._asked = self._asked_before = 0

    @property
    def is_paid(self) -> bool:
        """Whether the credit so far covers all of the file."""
        return self._credited >= self._size

    def go_on(self, credit: int) -> int | None:
        """Ask for what is paid for, and never wait.

        Args:
            credit: number of bytes that are paid for now, beside those of before.

        Returns:
            How many bytes of the file have not come yet; None: none ever stays.

        Raises:
            OSError, MemoryError, Error: it cannot be brought there.
        """
        self._credited += credit
        if self._credited < min(self._size, self._come + _core.Prefetch.ASKED_BYTES):
            return self._size - self._come
        prefetch = self._prefetch
        if prefetch is None:
            engine, piece = self._given, 0
            if not is_on_disk(engine):
                engine, piece = engine.again("pread", DEPTH), REQUEST_BYTES
            prefetch = self._prefetch = _core.Prefetch(
                engine, self._size, piece=piece, sweep_bytes_max=self._size
            )
        left = prefetch.sweep_all()
        if self._prefetch is prefetch:  # no signal's handler has closed it
            self._come = self._size - (left or 0)
            self._asked = prefetch.asked_bytes
        return left

    def wait(self) -> None:
        """Wait a moment for what was asked for."""
        if self._prefetch is not None:
            self._prefetch.poll(range(self._size), _core.SLICE_MS)

    def lend(self) -> Lent | None:
        """Return the memory of the file that has come; None: it came to the page cache."""
        return None

    def after_fork(self) -> None:
        """Begin anew: the reads under way were the parent's."""
        self._prefetch = None

    def counts(self) -> _core.EngineCounts:
        """Return the requests and bytes; also after ``close``."""
        asked = self._asked_before + self._asked
        return _core.EngineCounts(requests=-(-asked // _core.Prefetch.STEP_BYTES), bytes=asked)

    def close(self) -> None:
        """End what is under way. May be called twice."""
        self._prefetch, self._credited = None, AWAITED_BYTES
        self._asked_before, self._asked = self._asked_before + self._asked, 0
        self._come = 0


class _ToMemory:
    """The stream to memory of this process, as far as it is paid for; see ``_ToPageCache``."""

    def __init__(self, engine: _core.Engine, size: int) -> None:
        self._given, self._size = engine, size
        self._engine: _core.Engine | None = None
        #: Requests, and where in the file they end; without gaps from ``_done`` on.
        self._under_way: list[tuple[_core.Ticket, int]] = []
        self._done = self._credited = 0
        #: None: nothing was asked for yet.
        self._lent: Lent | None = None

    @property
    def is_paid(self) -> bool:
        return self._credited >= self._size - self._at

    @property
    def _at(self) -> int:
        """Where the next request begins."""
        return self._under_way[-1][1] if self._under_way else self._done

    def go_on(self, credit: int) -> int | None:
        # An exception between any two steps (Ctrl-C) loses or repeats a request at most.
        self._credited += credit
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
        return self._size - self._done

    def _start(self, at: int, step: int) -> _core.Ticket:
        if self._engine is None:
            self._engine = self._given.again("pread", DEPTH)
        if self._lent is None:
            memory = mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._lent = Lent(_core.address_of(memory), self._size, memory)
        offsets = np.arange(at, at + step, REQUEST_BYTES, dtype=np.uint64)
        reads: Any = np.empty(len(offsets), _core.READ)
        reads["offset"] = offsets
        reads["length"] = np.minimum(np.uint64(REQUEST_BYTES), np.uint64(at + step) - offsets)
        reads["needed"] = reads["length"]
        reads["into"] = offsets + np.uint64(self._lent.address)
        return self._engine.submit(reads, self._lent.owner)

    def wait(self) -> None:
        if self._under_way:
            self._under_way[0][0].wait()

    def lend(self) -> Lent | None:
        return self._lent

    def after_fork(self) -> None:
        self._under_way = []

    def counts(self) -> _core.EngineCounts:
        engine = self._engine
        return _core.EngineCounts() if engine is None else engine.counts()

    def close(self) -> None:
        for ticket, _ in self._under_way:
            ticket.close()
        self._under_way = []
        if self._engine is not None:
            self._engine.close()


class FileCache:
    """The stream behind the random reads of one file.

    Threads may share it. After fork the child goes on with a copy of its own.

    Args:
        engine: reads the file; streams go through the page cache, so only "pread" has one, "mmap"
            what it maps, and "remote" memory.
        size: bytes of the file that are in use.
        memory_bytes_max: largest size of the cache, bytes.
        wanted: False: never stream; True: from the first read on, and also into the page cache
            of a small memory.

    Attributes:
        place: destination of the stream.
        size: bytes of the file that are in use.
        deferred: bytes of credit of a stream that begins once a first batch is there.
        has_come: whether a stream has brought it to the page cache.
    """

    has_come = False

    def __init__(
        self, engine: _core.Engine, size: int, *, memory_bytes_max: int, wanted: bool | None
    ) -> None:
        self.size = size
        self._given, self._is_wanted, self._budget = engine, bool(wanted), memory_bytes_max
        self.place = "nowhere" if wanted is False else self._choose_place(memory_bytes_max)
        if wanted and size and engine.kind not in ("pread", "mmap", "remote"):
            self._log(f'readahead=True brings nothing to memory with engine="{engine.kind}"')
        #: Of one thread again and again: a signal's handler may read or close while it waits here.
        self._lock = threading.RLock()
        #: The memory that it lends from, once that is filled.
        self._lent: Lent | None = None
        kind = _ToMemory if self.place == "memory" else _ToPageCache
        self._stream: _ToMemory | _ToPageCache = kind(engine, size)
        #: Cost of the reads so far, in bytes of the stream, as far as that counts.
        self._spent = size if wanted else 0
        #: Bytes of the file that have not come yet.
        self._left = size
        self._begun: float | None = None
        self._is_expected = self._is_awaited = False
        #: Batches that need not wait for the stream.
        self._passes, self._guard = 0, threading.RLock()
        self.deferred = 0
        self._counted = _core.EngineCounts()  # of streams before this one
        if engine.kind == "mmap" and size and self._is_cached():
            self._adopt(*engine.span())
        fork.register(self)

    def _choose_place(self, memory_bytes_max: int, *, is_shared: bool = False) -> Place:
        kind, size = self._given.kind, self.size
        if kind not in ("pread", "remote") or not size:
            return "nowhere"
        if kind == "remote":  # whose bytes no page cache keeps
            return "memory" if size <= memory_bytes_max else "nowhere"
        has_room = size <= cached_bytes_max()
        if has_room and (is_shared or is_on_disk(self._given)):
            return "page cache"
        if size <= memory_bytes_max:
            return "memory"
        return "page cache" if has_room or self._is_wanted else "nowhere"

    def _is_cached(self) -> bool:
        """Whether nearly all of it is in the page cache; the kernel counts each page for that."""
        return 10 * (self._given.cached_bytes() or 0) >= 9 * self.size

    def _adopt(self, address: int, size: int, owner: object) -> None:
        """Lend from the engine's mapping, where that has the whole file."""
        if size >= self.size:
            self.place, self._left = "mapping", 0
            self._lent = Lent(address, self.size, owner)

    def _after_fork(self) -> None:
        self._lock, self._guard = threading.RLock(), threading.RLock()
        self._is_awaited = False  # by a thread of the parent's
        self._stream.after_fork()

    @property
    def is_under_way(self) -> bool:
        """Whether a stream has begun, and has not ended."""
        return self._begun is not None and self.place != "nowhere" and self._left > 0

    def complete(self) -> bool:
        """Return whether the whole file is in memory; we do not write there again."""
        return self.lend() is not None

    def lend(self) -> Lent | None:
        """Return that memory; None: it is not ``complete``, or closed."""
        return None if self.place == "nowhere" else self._lent

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the cache will take."""
        return self.size if self.place == "memory" else 0

    def share(self, processes: int) -> None:
        """Take a part of the budget alone, where several processes read the file alike.

        Children share already the copy that a parent made before it forked.

        Args:
            processes: number of processes.
        """
        with self._lock:
            if self.place != "memory" or self._lent is not None:
                return
            place = self._choose_place(self._budget // processes, is_shared=True)
            if place == "memory":
                return
            self._stop()
            self._counted += self._stream.counts()
            self.place, self._left, self._begun = place, self.size, None
            if place == "page cache":
                self._stream = _ToPageCache(self._given, self.size)

    def credit(
        self, size: int, *, anew: bool = False, copies: bool = False, waits: bool = True
    ) -> None:
        """Let the stream go on for reads that cost as much as ``size`` bytes of it.

        Args:
            size: bytes.
            anew: whether the file was read once already: it will be read again.
            copies: whether copies out of the page cache were the cost, not requests.
            waits: whether to wait for the end of a stream that is near.
        """
        if self._lent is not None or (size <= 0 and not self._is_expected):
            return
        if copies and self.place == "page cache":
            return
        self.begin_deferred()
        share = SMALL_REQUESTS_SHARE if self.size <= SMALL_BYTES else REQUESTS_SHARE
        counted = max(0, size) * (1 if copies else share)
        self._spent = self.size if anew else self._spent + counted
        if self._spent < self.size and not self._is_expected:
            return
        self._go_on(PREFETCH_BUDGET_FACTOR * max(0, size), waits=waits)

    def expect(self, size: int) -> None:
        """Let the stream go on for reads to come that will cost as much as ``size`` bytes of it.

        They pay for all of it or for nothing, and for nothing where the page cache has it.
        """
        wants = size >= self.size and self._left and self.place != "nowhere"
        if wants and not self._is_cached():
            self._is_expected = True
            if self.place != "page cache" or self.size <= SMALL_BYTES:
                self._go_on(self.size)
            else:
                self._passes, self.deferred = PASSES, self.size

    def begin_deferred(self) -> None:
        """Begin the stream that was expected, now that a batch is there, which it had delayed."""
        with self._guard:
            credit, self.deferred = self.deferred, 0
            if credit and self.size <= AWAITED_BYTES:
                self._passes = 0  # the others find all of it there soon
        if credit:
            self._go_on(credit, waits=False)

    def takes_pass(self) -> bool:
        """Return whether a batch need not wait for the stream, nor cost it anything.

        It is to be read past the page cache: pages that are there by themselves halve the stream's
        rate.
        """
        with self._guard:
            self._passes, is_given = max(0, self._passes - 1), self._passes > 0
        return is_given

    def _go_on(self, credit: int, *, waits: bool = True) -> None:
        failure: BaseException | None = None
        if self._is_awaited and not (waits or credit):
            return  # the thread that waits has it go on
        with self._lock:
            if self.place == "nowhere" or not self._left:
                return
            try:
                self._advance(credit)
                self._is_awaited = waits
                while waits and self._is_near():
                    self._stream.wait()
                    if self.is_under_way:
                        self._advance(0)
            except (OSError, MemoryError, Error) as error:
                failure = error
                self._stop()
            finally:
                self._is_awaited = False
        if failure is not None:
            why = str(failure) or type(failure).__name__
            self._log(f"records are read one by one: it cannot be brought to memory: {why}")

    def _log(self, text: str) -> None:
        log(f"{self._given.path}: {text}", WARNING if self._is_wanted else INFO)

    def _advance(self, credit: int) -> None:
        if self._begun is None:
            if self.has_come and self._is_cached():
                self._spent = 0
                return
            self._begun = time.monotonic()
        left = self._stream.go_on(credit)
        if self.place == "nowhere":  # a signal's handler has closed it
            return
        if left is None:
            self._stop()
        elif left:
            self._left = left
        elif (lent := self._stream.lend()) is not None:
            self._lent, self._left = lent, 0
        else:
            self._end_in_page_cache()

    def _end_in_page_cache(self) -> None:
        """Let another stream begin once the kernel has dropped the file, where it says that."""
        self.has_come = True
        if self._given.cached_bytes() is None:
            self._stop()
            return
        self._stream.close()
        self._spent, self._left, self._begun, self._is_expected = 0, self.size, None, False

    def _is_near(self) -> bool:
        """Whether the stream ends soon at its own pace, and is paid for."""
        if not self.is_under_way or not self._stream.is_paid:
            return False
        longest = EXPECTED_WAIT_SECONDS_MAX if self._is_expected else WAIT_SECONDS_MAX
        come, seconds = self.size - self._left, time.monotonic() - (self._begun or 0.0)
        if not come:
            is_short = self._is_expected or self.size <= AWAITED_BYTES
            return is_short and seconds <= longest
        return self._left * seconds <= longest * come

    def counts(self) -> _core.EngineCounts:
        """Return the requests and bytes of the stream; also after ``close``."""
        return self._counted + self._stream.counts()

    def close(self) -> None:
        """Stop the stream. Records that were lent stay. May be called twice."""
        self.place = "nowhere"  # so that a thread that waits for the stream lets go of the lock
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        self.place = "nowhere"
        self._stream.close()
