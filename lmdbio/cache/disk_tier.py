"""disk_tier: pages of a data file on a local disk, in a cache file that outlives the job.

    pages in memory -> summed, written by a thread of its own -> on the disk, also for the next job
    rows, or pages  -> read into the caller's memory -> compared with their sums

Threads share it. No page is used whose sum is not right. A disk that is full takes nothing more,
one that fails is asked no more, and one that does not answer is asked again after a while: the
data file has everything.

Source: HDMLP thesis (Dryden et al.), section 4.3 (tiers of a node).
"""

from __future__ import annotations

import _thread
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.cache_file import CacheFile
from lmdbio.errors import Error
from lmdbio.machine.overrides import Overrides
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.reading.direct_path import DirectPath
from lmdbio.reading.engines import choose_reading
from lmdbio.system import fork
from lmdbio.system.log import WARNING, tell

__all__ = ["PAGE_BYTES", "DiskLimits", "DiskTier", "NoAnswerError", "PageWrite", "RowReads"]

Flags = npt.NDArray[np.bool_]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

PAGE_BYTES = _core.CHECKED_PAGE_BYTES
#: A disk of this machine begins a request so quickly that more unneeded bytes take longer to read.
GAP_BYTES_MAX = 4 << 10
#: Requests in flight.
DEPTH = 32
#: Bound of the doublings of the time until a disk is asked again, which has a bound of its own.
PATIENCE_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """Bounds of the trust in a disk.

    Attributes:
        damaged_max: number of damaged pages after which it is asked no more.
        stuck_s: seconds without progress after which nobody waits for it.
        retry_s, retry_s_max: seconds until it is asked again, at first; each time twice as long,
            up to the second of these.
    """

    damaged_max: int = 1024
    stuck_s: float = 2.0
    retry_s: float = 10.0
    retry_s_max: float = 600.0


LIMITS = DiskLimits()

#: Reads that a disk did not answer: their memory is given back when the process ends.
_ABANDONED: list[object] = []


class NoAnswerError(Error):
    """The disk does not answer; its reads may fill their memory later."""


class PageWrite:
    """A write of pages, which the tier's thread makes and others wait for.

    Ctrl-C may end any step of one that waits, and it waits again: so nobody holds a lock but the
    thread that writes, until the end of the write.

    Args:
        work: writes, and returns whether it has.

    Attributes:
        is_done: whether the write was made, or has failed.
        has_written: whether the write was made.
        seconds: time that it took; 0 before its end, or if it failed.
    """

    __slots__ = ("_under_way", "_work", "has_written", "is_done", "seconds")

    def __init__(self, work: Callable[[], bool]) -> None:
        self._work: Callable[[], bool] | None = work
        self.has_written, self.is_done, self.seconds = False, False, 0.0
        self._under_way = Lock()
        self._under_way.acquire()

    def run(self) -> None:
        """Make the write; the tier's thread does."""
        work, self._work = self._work, None
        begun_s = monotonic()
        try:
            if work is not None and work():
                self.has_written, self.seconds = True, monotonic() - begun_s
        except BaseException:
            self.has_written = False  # ``DiskTier._write`` has told why
        finally:
            self.is_done = True
            self._under_way.release()

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether it is done, after ``timeout_ms`` at most."""
        if timeout_ms and not self.is_done:
            self._under_way.acquire(timeout=timeout_ms / 1000)
        return self.is_done


class _Writer:
    """The thread that makes the writes, one after another; the first of them starts it."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[PageWrite | None] = SimpleQueue()
        self._has_begun, self._is_alive = False, Lock()

    def begin(self, work: Callable[[], bool]) -> PageWrite:
        """Have a write made.

        Raises:
            RuntimeError: there is no thread for it, or the interpreter ends.
        """
        if not self._has_begun:
            # Ctrl-C between these two starts a second thread later, which ends at once.
            _thread.start_new_thread(_write_all, (self.waiting, self._is_alive))
            self._has_begun = True
        one = PageWrite(work)
        self.waiting.put(one)
        return one

    def end(self, *, waits: bool) -> None:
        """End the thread behind the writes that wait; ``waits``: until it has ended."""
        self.waiting.put(None)
        if waits:
            self._is_alive.acquire()


def _write_all(waiting: SimpleQueue[PageWrite | None], is_alive: _thread.LockType) -> None:
    if not is_alive.acquire(blocking=False):
        return
    try:
        while (one := waiting.get()) is not None:
            one.run()
            del one  # nothing is kept while this waits
    finally:
        is_alive.release()


@dataclass(slots=True)
class RowReads:
    """Rows that are read from the disk, in whole pages.

    Attributes:
        plan: plan of the reads, in the cache file.
        ticket: ticket of them.
        address: beginning of the memory that they fill.
        is_direct: whether the reads bypass the page cache.
    """

    plan: _core.Plan
    ticket: _core.Ticket
    address: int
    is_direct: bool

    @property
    def addresses(self) -> U64:
        """Where each row begins in memory."""
        return np.asarray(self.plan.slices + np.uint64(self.address), np.uint64)


class DiskTier:
    """Pages of one data file on a disk.

    Threads may share it. After fork a child reads what is there, and writes nothing.

    Args:
        file: cache file, open and locked; borrowed.
        sums: sums of the pages that it keeps, 0 where one is not there yet, uint32 (n,); owned.
        is_direct: whether rows are read past the page cache, while that is no loss.
        limits: bounds of the trust in it; None: ``LIMITS``.

    Attributes:
        limits: bounds of the trust in the disk.
        is_over: whether the disk has failed, and nothing is read or written any more.
        is_full: whether nothing is written any more.
        damaged_pages: number of pages that were not as they had been written.

    Raises:
        OSError: the file cannot be opened again.
    """

    def __init__(
        self,
        file: CacheFile,
        sums: U32,
        *,
        is_direct: bool = False,
        limits: DiskLimits | None = None,
    ) -> None:
        self._file, self._sums, self._first = file, sums, file.header.first
        self.limits = LIMITS if limits is None else limits
        self._seed, self._shift = file.header.source.seed, file.header.data_offset
        self._engine = file.open_engine(DEPTH)
        choice = choose_reading(self._engine, "batch", Overrides(engine="pread"))
        self._direct_path = DirectPath(
            self._engine, self.kept_bytes, depth=choice.depth, wanted=is_direct
        )
        self._options = PlanOptions(GAP_BYTES_MAX, choice.request_bytes_max)
        self._writer: _Writer | None = _Writer()
        weakref.finalize(self, self._writer.waiting.put, None)
        self._lock = Lock()
        self.is_over = self.is_full = False
        self.damaged_pages = 0
        self._stuck_s, self._patience = -self.limits.retry_s, 1
        self.moved_s = 0.0  # when the writer last began or ended something
        fork.register(self)

    def _after_fork(self) -> None:
        # The file is the parent's to write; its pages are read as far as they are there.
        self._lock, self._writer, self.is_full = Lock(), None, True

    @property
    def path(self) -> str:
        """Path of the cache file."""
        return self._file.path

    @property
    def kept_bytes(self) -> int:
        """Bytes of pages that were written, or were there."""
        return int(np.count_nonzero(self._sums)) * PAGE_BYTES

    # --- what goes wrong

    @property
    def is_stuck(self) -> bool:
        """Whether the disk did not answer lately."""
        wait_s = min(self._patience * self.limits.retry_s, self.limits.retry_s_max)
        return monotonic() < self._stuck_s + wait_s

    @property
    def is_away(self) -> bool:
        """Whether the disk has failed, or did not answer lately: the data file serves."""
        return self.is_over or self.is_stuck

    def note_failure(self, error: object) -> None:
        """Note that the disk does not answer (``NoAnswerError``), or has failed."""
        if isinstance(error, NoAnswerError):
            self.note_stuck()
            return
        with self._lock:
            was_over, self.is_over, self.is_full = self.is_over, True, True
        if not was_over:
            tell(f"{self.path}: is read no more: {error}", WARNING)

    def note_stuck(self) -> None:
        """Note that the disk does not answer."""
        with self._lock:
            was_away, now_s = self.is_away, monotonic()
            if not was_away and self._stuck_s > 0:
                self._patience = min(2 * self._patience, PATIENCE_MAX)
            self._stuck_s = now_s
        if not was_away:
            tell(f"{self.path}: does not answer; the data file serves meanwhile", WARNING)

    def abandon(self, reads: object) -> None:
        """Wait no more for reads, which still fill their memory when the disk answers."""
        _ABANDONED.append(reads)  # to end them would be to wait for them
        self.note_stuck()

    def _fill_up(self, error: BaseException | None) -> None:
        """Note that the disk takes no more."""
        with self._lock:
            was_full, self.is_full = self.is_full, True
        if not was_full:
            text = getattr(error, "strerror", None) or error or "it was given up"
            tell(f"{self.path}: keeps {self.kept_bytes >> 20} MiB and no more: {text}", WARNING)

    def _note_damage(self, pages: int) -> None:
        with self._lock:
            before = self.damaged_pages
            self.damaged_pages += pages
        if not before:
            tell(f"{self.path}: damaged pages are read from the data file again", WARNING)
        if before + pages > self.limits.damaged_max:
            self.note_failure(f"it has damaged {before + pages} pages")

    # --- reading

    @staticmethod
    def room_for(extents: _core.Extents) -> int:
        """Return the bytes of the pages that rows touch, at most."""
        return int((extents["length"] + np.uint64(2 * PAGE_BYTES)).sum())

    def plan(self, extents: _core.Extents, room_bytes: int | None = None) -> _core.Plan:
        """Return the reads of rows, in the cache file.

        Args:
            extents: places of the rows in the data file, on pages that are there.
            room_bytes: bytes that the reads may fill; None: as many as they like.
        """
        shifted = extents.copy()
        shifted["offset"] += np.uint64(self._shift)
        return plan_reads(shifted, self._options, alignment=PAGE_BYTES, room_bytes=room_bytes)

    def read(self, plan: _core.Plan, address: int, memory: _core.Memory) -> RowReads:
        """Start to read rows.

        Args:
            plan: reads of them.
            address: beginning of the bytes of the memory that they fill.
            memory: memory that is held until the reads have ended.

        Raises:
            OSError, Error: the engine refuses.
        """
        direct = self._direct_path.engine(plan.totals.buffer_bytes)
        ticket = (direct or self._engine).submit_plan(plan, address, memory)
        return RowReads(plan, ticket, address, direct is not None)

    def damaged(self, extents: _core.Extents, reads: RowReads) -> tuple[Flags, U64]:
        """Return which rows have arrived on pages that are not as they were written, and these.

        Of pages, some thousands at most. Gaps between rows do not matter: they may be written now.

        Args:
            extents: places of the rows, as they were planned.
            reads: reads of these rows, which have arrived.
        """
        self._patience = 1  # it answers again
        if reads.is_direct:
            self._direct_path.record(reads.plan.totals.buffer_bytes, reads.ticket.times)
        wrong, found, pages = _core.compare_sums(
            self._seed, extents, reads.plan.slices, reads.address, self._sums, self._first
        )
        if found:
            self._note_damage(found)
        return np.asarray(wrong), np.unique(pages) if found else pages

    def read_pages(self, reads: npt.NDArray[Any], memory: _core.Memory) -> _core.Ticket:
        """Start to read pages.

        Args:
            reads: requests (``READ``), whole pages from a page on; offsets in the data file.
            memory: memory that is held until the reads have ended.

        Raises:
            OSError, Error: the engine refuses.
        """
        shifted = reads.copy()
        shifted["offset"] += np.uint64(self._shift)
        shifted["needed"] = shifted["length"]
        return self._engine.submit(shifted, memory)

    def is_right(self, address: int, page: int, count: int) -> bool:
        """Return whether pages in memory are as they were written."""
        sums = _core.sum_pages(self._seed, address, page, count)
        wrong = int((sums != self._sums[page - self._first :][:count]).sum())
        if wrong:
            self._note_damage(wrong)
        return not wrong

    def wait(self, ticket: _core.Ticket) -> None:
        """Wait for reads.

        Raises:
            NoAnswerError: the disk does nothing.
            OSError, Error: it fails.
        """
        left, moved_s = 1.0, monotonic()
        while not ticket.poll(_core.SLICE_MS):
            if ticket.left() < left:
                left, moved_s = ticket.left(), monotonic()
            elif monotonic() > moved_s + self.limits.stuck_s:
                _ABANDONED.append((ticket, ticket.out))
                raise NoAnswerError(f"{self.path}: does not answer")

    # --- writing

    def write(self, memory: _core.Memory, address: int, page: int, count: int) -> PageWrite:
        """Start to write pages, behind those that are under way.

        Args:
            memory: memory that is held until the pages are written.
            address: beginning of the first one there.
            page: number of the first one in the data file.
            count: number of pages.

        Returns:
            The write, which has ended already where nothing is written any more.
        """
        work = partial(self._write, memory, address, page, count)
        writer = self._writer
        if writer is not None:
            try:
                return writer.begin(work)
            except RuntimeError:
                self._fill_up(None)
        never = PageWrite(lambda: False)
        never.run()
        return never

    def _write(self, memory: _core.Memory, address: int, page: int, count: int) -> bool:
        if self.is_full:
            return False
        self.moved_s = monotonic()
        try:
            sums = _core.sum_pages(self._seed, address, page, count)
            view = memoryview(_core.lend(address, count * PAGE_BYTES, memory)).cast("B")
            self._file.write(view, page, sums)
        except BaseException as error:
            self._fill_up(error)
            raise
        self._sums[page - self._first :][:count] = sums
        self.moved_s = monotonic()
        return True

    def close(self) -> None:
        """Give up writes, and wait for the one that is under way, if the disk answers.

        May be called twice.
        """
        is_stuck = self.is_stuck  # also where a read has failed meanwhile
        self.is_over = self.is_full = True
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.end(waits=not is_stuck)
        self._direct_path.close()
        self._engine.close()
