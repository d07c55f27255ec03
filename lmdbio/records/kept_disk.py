"""kept_disk: the grains of a file that a process keeps on a disk, in a file that outlives the job.

    grains in memory -> summed, written by a thread of its own -> there, also for the next job
    rows of a batch  -> read, whole pages, into memory of their own -> compared with their sums
    grains           -> read whole, compared -> memory that keeps them

Threads share it. No page is used whose sum is not right. A disk that is full takes nothing more,
one that fails is asked no more, and one that does not answer is asked again after a while: the
data file has everything.

Source: HDMLP thesis (Dryden et al.), section 4.3 (tiers of a node).
"""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Lock
from time import monotonic
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import CacheFile
from lmdbio.errors import Error
from lmdbio.machine.overrides import Overrides
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.reading.engines import choose_reading
from lmdbio.system import fork
from lmdbio.system.log import WARNING, tell

__all__ = ["DiskRows", "KeptDisk", "NoAnswerError"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

PAGE_BYTES = _core.CHECKED_PAGE_BYTES
#: A disk that has damaged so many pages is trusted no more.
DAMAGED_MAX = 1024
#: A disk of this machine begins a request so quickly that more unneeded bytes take longer to read.
GAP_BYTES_MAX = 4 << 10
#: A disk that has done nothing for so long is waited for no more, and asked again after so long:
#: each time twice as long, up to a bound.
STUCK_SECONDS, RETRY_SECONDS, RETRY_SECONDS_MAX = 2.0, 10.0, 600.0
#: Bytes that are written at once.
WRITE_BYTES = 4 << 20
#: Requests in flight.
DEPTH = 32

#: Reads that a disk did not answer: their memory is given back when the process ends.
_ABANDONED: list[object] = []


class NoAnswerError(Error):
    """The disk does not answer; its reads may fill their memory later."""


class DiskRows(NamedTuple):
    """Rows that were read from the disk.

    Attributes:
        memory: that has them.
        places: where each begins there.
        wrong: those that have not arrived as they were written.
    """

    memory: _core.Memory
    places: U64
    wrong: Flags


class _Write:
    """A write, which the writer makes and another thread waits for.

    Ctrl-C may end any step of the one that waits, and it waits again: so nobody holds a lock but
    the writer, until the end of the write.

    Args:
        work: writes, and returns whether it has.

    Attributes:
        is_done: it was made, or has failed.
        has_written: it was made.
    """

    __slots__ = ("_under_way", "_work", "has_written", "is_done")

    def __init__(self, work: Callable[[], bool]) -> None:
        self._work: Callable[[], bool] | None = work
        self.has_written = self.is_done = False
        self._under_way = Lock()
        self._under_way.acquire()

    def run(self) -> None:
        work, self._work = self._work, None
        try:
            self.has_written = work is not None and work()
        except BaseException:
            self.has_written = False  # ``KeptDisk._write`` has told why
        finally:
            self.is_done = True
            self._under_way.release()

    def wait(self, seconds: float) -> bool:
        """Return whether it is done, after so long at most."""
        if not self.is_done:
            self._under_way.acquire(timeout=seconds)
        return self.is_done


class _Writer:
    """The thread that makes the writes, one after another; the first of them starts it."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[_Write | None] = SimpleQueue()
        self._has_begun, self._is_alive = False, Lock()

    def begin(self, work: Callable[[], bool]) -> _Write:
        """Have a write made.

        Raises:
            RuntimeError: there is no thread for it.
        """
        if not self._has_begun:
            # Ctrl-C between these two starts a second thread later, which ends at once.
            _thread.start_new_thread(_write_all, (self.waiting, self._is_alive))
            self._has_begun = True
        one = _Write(work)
        self.waiting.put(one)
        return one

    def end(self, *, waits: bool) -> None:
        """End the thread behind the writes that wait; ``waits``: until it has ended."""
        self.waiting.put(None)
        if waits:
            self._is_alive.acquire()


def _write_all(waiting: SimpleQueue[_Write | None], is_alive: _thread.LockType) -> None:
    if not is_alive.acquire(blocking=False):
        return
    try:
        while (one := waiting.get()) is not None:
            one.run()
            del one  # nothing is kept while this waits
    finally:
        is_alive.release()


class KeptDisk:
    """Grains of a file on a disk.

    Threads may share it. After fork a child reads what is there, and writes nothing.

    Args:
        file: open and locked; owned from now on.
        begins: where each grain begins in the data file, ascending.
        size: of a grain, bytes.
        limit: nothing of the data file is kept behind it.

    Attributes:
        is_over: the disk has failed, and nothing is read or written any more.
        is_full: nothing is written any more.
        damaged_pages: that were not as they had been written.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, file: CacheFile, begins: I64, size: int, limit: int) -> None:
        weakref.finalize(self, file.close)
        self._file, self._begins, self._size = file, begins, size
        #: Pages of each grain: from the first one up to the end.
        self._pages = begins // PAGE_BYTES
        ends = np.minimum(begins + size, limit)
        self._page_ends = np.maximum(-(-ends // PAGE_BYTES), self._pages)
        self._first = int(self._pages[0])
        self._sums: U32 = file.keep(self._first, int(self._page_ends[-1]))
        self._seed, self._shift = file.header.source.seed, file.header.data_offset
        self._engine = file.open_engine(DEPTH)
        choice = choose_reading(self._engine, "batch", Overrides(engine="pread"))
        self._options = PlanOptions(GAP_BYTES_MAX, choice.request_bytes_max)
        self._writer: _Writer | None = _Writer()
        weakref.finalize(self, self._writer.waiting.put, None)
        self._lock = Lock()
        self.is_over = self.is_full = False
        self.damaged_pages = 0
        self._stuck_s, self._patience = -RETRY_SECONDS, 1
        self._stuck_write: _Write | None = None  # that was waited for in vain
        self._written_s = 0.0  # when the writer last began or ended something
        fork.register(self)

    def _after_fork(self) -> None:
        # The file is the parent's to write; its pages are read as far as they are there.
        self._lock, self._writer, self.is_full = Lock(), None, True

    @property
    def path(self) -> str:
        """Of the cache file."""
        return self._file.path

    @property
    def kept_bytes(self) -> int:
        """Bytes of pages that were written, or were there."""
        return int(np.count_nonzero(self._sums)) * PAGE_BYTES

    @property
    def _retry_s(self) -> float:
        """When the disk is asked again, by ``time.monotonic``."""
        return self._stuck_s + min(self._patience * RETRY_SECONDS, RETRY_SECONDS_MAX)

    @property
    def is_away(self) -> bool:
        """Whether the disk has failed, or did not answer lately: the data file serves."""
        return self.is_over or monotonic() < self._retry_s

    @property
    def left(self) -> Flags:
        """Whether an earlier job has left each grain there whole: shape (grains,)."""
        there = np.concatenate(([0], np.cumsum(self._sums != 0)))
        low, high = self._pages - self._first, self._page_ends - self._first
        return np.asarray(there[high] - there[low] == high - low)

    # --- what goes wrong

    def end(self, why: object) -> None:
        """Note that the disk has failed."""
        with self._lock:
            was_over, self.is_over, self.is_full = self.is_over, True, True
        if not was_over:
            tell(f"{self.path}: is read no more: {why}", WARNING)

    def _fill_up(self, error: BaseException | None) -> None:
        """Note that the disk takes no more."""
        with self._lock:
            was_full, self.is_full = self.is_full, True
        if not was_full:
            text = getattr(error, "strerror", None) or error or "it was given up"
            tell(f"{self.path}: keeps {self.kept_bytes >> 20} MiB and no more: {text}", WARNING)

    def _note_stuck(self) -> None:
        with self._lock:
            was_away, now_s = self.is_away, monotonic()
            if not was_away and self._stuck_s > 0:
                self._patience *= 2
            self._stuck_s = now_s
        if not was_away:
            tell(f"{self.path}: does not answer; the data file serves meanwhile", WARNING)

    def _note_damage(self, pages: int) -> None:
        with self._lock:
            before = self.damaged_pages
            self.damaged_pages += pages
        if not before:
            tell(f"{self.path}: damaged pages are read from the data file again", WARNING)
        if before + pages > DAMAGED_MAX:
            self.end(f"it has damaged {before + pages} pages")

    # --- rows

    def read_rows(self, extents: _core.Extents, pool: _core.MemoryPool) -> DiskRows:
        """Read rows, all requests in flight at once.

        Args:
            extents: in the data file, inside of grains that are there; none of them is empty.
            pool: of memory for them.
        """
        shifted = extents.copy()
        shifted["offset"] += np.uint64(self._shift)
        plan = plan_reads(shifted, self._options, alignment=PAGE_BYTES)
        memory = pool.take(plan.totals.buffer_bytes)
        try:
            with self._engine.submit_plan(plan, memory.address, memory) as ticket:
                self.wait(ticket)
        except (OSError, Error) as error:
            self._note_failure(error)
            return DiskRows(memory, plan.slices, np.ones(len(extents), np.bool_))
        wrong, found, _ = _core.compare_sums(
            self._seed, extents, plan.slices, memory.address, self._sums, self._first
        )
        if found:
            self._note_damage(found)
        return DiskRows(memory, plan.slices, np.asarray(wrong))

    def wait(self, ticket: _core.Ticket) -> None:
        """Wait for reads from the disk.

        Raises:
            NoAnswerError: the disk does nothing.
            OSError, Error: it fails.
        """
        left, moved_s = 1.0, monotonic()
        while not ticket.poll(_core.SLICE_MS):
            if ticket.left() < left:
                left, moved_s = ticket.left(), monotonic()
            elif monotonic() > moved_s + STUCK_SECONDS:
                _ABANDONED.append((ticket, ticket.out))  # to end them would be to wait for them
                raise NoAnswerError(f"{self.path}: does not answer")

    def _note_failure(self, error: Exception) -> None:
        if isinstance(error, NoAnswerError):
            self._note_stuck()
        else:
            self.end(error)

    # --- grains

    def submit(self, grains: I64, addresses: I64, memory: _core.Memory) -> _core.Ticket:
        """Start to read grains whole.

        Args:
            grains: by their numbers here.
            addresses: where each is to lie in the memory.

        Raises:
            OSError, Error: the engine refuses.
        """
        reads = np.zeros(len(grains), _core.READ)
        reads["offset"] = self._begins[grains] + self._shift
        reads["length"] = (self._page_ends - self._pages)[grains] * PAGE_BYTES
        reads["needed"], reads["into"] = reads["length"], addresses
        return self._engine.submit(reads, memory)

    def finish(self, ticket: _core.Ticket, grains: I64, addresses: I64) -> Flags:
        """Wait for grains, and return which of them have arrived as they were written.

        Raises:
            NoAnswerError: the disk does not answer.
        """
        try:
            self.wait(ticket)
        except (OSError, Error) as error:
            self._note_failure(error)
            if isinstance(error, NoAnswerError):
                raise
            return np.zeros(len(grains), np.bool_)
        right, damaged = np.ones(len(grains), np.bool_), 0
        for number, grain in enumerate(grains.tolist()):
            found = self._sum(grain, int(addresses[number]))
            wrong = int((found != self._sums_of(grain)).sum())
            right[number] = not wrong
            damaged += wrong
        if damaged:
            self._note_damage(damaged)
        return right

    def _sum(self, grain: int, address: int) -> U32:
        first = int(self._pages[grain])
        return _core.sum_pages(self._seed, address, first, int(self._page_ends[grain]) - first)

    def _sums_of(self, grain: int) -> U32:
        low, high = self._pages[grain] - self._first, self._page_ends[grain] - self._first
        return self._sums[low:high]

    def write(self, grains: I64, addresses: I64, memory: _core.Memory) -> Flags:
        """Write grains, and return which of them are there.

        Those that are not: the disk is full, fails, or does not answer.

        Args:
            grains: by their numbers here, ascending.
            addresses: where each lies in the memory.
        """
        there, writes = np.zeros(len(grains), np.bool_), []
        for part in self._runs(grains, addresses):
            one = self._begin_write(grains[part], int(addresses[part[0]]), memory)
            if one is None:
                break
            writes.append((part, one))
        for part, one in writes:
            there[part] = self._has_written(one)
        return there

    def _runs(self, grains: I64, addresses: I64) -> list[I64]:
        """Return the places of grains that lie side by side, in both, some of them at a time."""
        is_near = (np.diff(self._begins[grains]) == self._size) & (
            np.diff(addresses) == self._size
        )
        runs = np.split(np.arange(len(grains)), np.flatnonzero(~is_near) + 1)
        at_once = max(1, WRITE_BYTES // self._size)
        parts = [run[at : at + at_once] for run in runs for at in range(0, len(run), at_once)]
        return [part for part in parts if len(part)]

    def _begin_write(self, grains: I64, address: int, memory: _core.Memory) -> _Write | None:
        """Start to write grains that lie side by side; None: nothing is written any more."""
        writer, first = self._writer, int(self._pages[grains[0]])
        count = int(self._page_ends[grains[-1]]) - first
        if writer is None or self.is_full or self.is_away:
            return None
        stuck = self._stuck_write
        if stuck is not None and not stuck.is_done:
            return None  # it would wait behind that one
        try:
            return writer.begin(partial(self._write, memory, address, first, count))
        except RuntimeError:  # there is no thread for it, or the interpreter ends
            return None

    def _write(self, memory: _core.Memory, address: int, page: int, count: int) -> bool:
        if self.is_full:
            return False
        self._written_s = monotonic()
        sums = _core.sum_pages(self._seed, address, page, count)
        view = memoryview(_core.lend(address, count * PAGE_BYTES, memory)).cast("B")
        try:
            self._file.write(view, page, sums)
        except BaseException as error:
            self._fill_up(error)
            raise
        self._sums[page - self._first :][:count] = sums
        self._written_s = monotonic()
        return True

    def _has_written(self, one: _Write) -> bool:
        """Wait for a write, and return whether its grains are there."""
        begun_s = monotonic()
        while not one.wait(_core.SLICE_MS / 1000):
            if self.is_away or monotonic() > max(begun_s, self._written_s) + STUCK_SECONDS:
                self._stuck_write = one
                self._note_stuck()
                return False
        return one.has_written

    def close(self) -> None:
        """Give up writes, wait for the one that is under way, if the disk answers, and unlock.

        May be called twice.
        """
        is_stuck = self.is_away and not self.is_over
        self.is_over = self.is_full = True
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.end(waits=not is_stuck)
        self._engine.close()
        self._file.close()
