"""The disk tier of a home: pages of the file on a local disk, in a file that outlives the job.

    grains in memory -> summed, written by a thread of its own -> there for all later blocks
    rows of a block -> read, whole pages -> compared with their sums -> memory, for as long as the
                       block needs them

No page is used whose sum is not right: the home fetches from the data file again what a disk
damages. A disk that is full, or fails, keeps nothing more. The data file has everything.

Source: HDMLP thesis (Dryden et al.), section 4.3 (tiers of a node).
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import CacheFile
from lmdbio.errors import Error
from lmdbio.machine.overrides import Overrides
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.reader.stage import Region, Stage
from lmdbio.reading.direct_path import DirectPath
from lmdbio.reading.engines import choose_reading
from lmdbio.system.log import WARNING, tell

__all__ = ["PAGE_BYTES", "DiskReads", "DiskTier", "DiskWrite"]

Flags = npt.NDArray[np.bool_]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

PAGE_BYTES = _core.CHECKED_PAGE_BYTES
#: A disk that has damaged so many pages is trusted no more.
DAMAGED_MAX = 1024
#: A disk of this node begins a request so quickly that more unneeded bytes take longer to read.
GAP_BYTES_MAX = 4 << 10
#: A disk that has done nothing for so long is waited for no more, and asked again after so long.
STUCK_SECONDS, RETRY_SECONDS = 2.0, 10.0
#: Of the engine that opens the file, until one is chosen by what is under it.
DEPTH = 32


#: Reads of disks that did not answer: their memory is given back when the process ends.
_ABANDONED: list[object] = []


@dataclass(slots=True)
class DiskWrite:
    """Pages on their way to the disk.

    Attributes:
        result: of the write: seconds that it took.
    """

    result: Future[float]

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether it has ended, after ``timeout_ms`` at most; ``error`` says how."""
        if timeout_ms and not self.result.done():
            wait([self.result], timeout_ms / 1000)
        return self.result.done()

    @property
    def seconds(self) -> float:
        """How long a write took that has ended."""
        has_failed = self.result.cancelled() or self.result.exception() is not None
        return 0.0 if has_failed else self.result.result()

    @property
    def error(self) -> BaseException | None:
        """The failure of a write that has ended; None: there was none."""
        return None if self.result.cancelled() else self.result.exception()


class Settled(NamedTuple):
    """Reads from the disk as something to wait for: they have arrived, or have failed.

    A failure concerns nobody that waits: the data file has the rows.

    Attributes:
        ticket: of the reads.
    """

    ticket: _core.Ticket

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether they have ended, after ``timeout_ms`` at most."""
        try:
            return self.ticket.poll(timeout_ms)
        except (OSError, Error):
            return True


@dataclass(slots=True)
class DiskReads:
    """Rows that are read from the disk, in whole pages.

    Attributes:
        plan: of the reads, in the cache file.
        ticket: of them.
        region: that they fill.
        past: they pass by the page cache.
    """

    plan: _core.Plan
    ticket: _core.Ticket
    region: Region
    past: bool

    @property
    def addresses(self) -> U64:
        """Where each row begins in memory."""
        return np.asarray(self.plan.slices + np.uint64(self.region.address), np.uint64)


class DiskTier:
    """The disk tier of one root. Owns the thread that writes, and borrows the file.

    Args:
        file: open and locked.
        sums: of its pages, those of its range.

    Attributes:
        is_over: the disk has failed, and nothing is read or written any more.
        is_full: nothing is written any more.
        damaged_pages: that were not as they had been written.
    """

    def __init__(self, file: CacheFile, sums: U32) -> None:
        self._file, self._sums, self._first = file, sums, file.header.first
        self._seed, self._shift = file.header.source.seed, file.header.data_offset
        self._engine = file.open_engine(DEPTH)
        choice = choose_reading(self._engine, "batch", Overrides(engine="pread"))
        self._direct_path = DirectPath(
            self._engine, self.kept_bytes, depth=choice.depth, wanted=True, kind="direct"
        )
        self._options = PlanOptions(GAP_BYTES_MAX, choice.request_bytes_max)
        self._writer = ThreadPoolExecutor(1, "lmdbio disk tier")
        self.is_over = self.is_full = False
        self.damaged_pages = 0
        self._stuck_s = -RETRY_SECONDS

    @property
    def path(self) -> str:
        """Of the cache file."""
        return self._file.path

    @property
    def kept_bytes(self) -> int:
        """Bytes of pages that were written, or were there."""
        return int(np.count_nonzero(self._sums)) * PAGE_BYTES

    def write(self, memory: _core.Memory, address: int, page: int, count: int) -> DiskWrite:
        """Start to write pages.

        Args:
            memory: that has them; held until they are written.
            address: of the first one.
            page: its number.
        """

        def work() -> float:
            begun_s = monotonic()
            sums = _core.sum_pages(self._seed, address, page, count)
            view = memoryview(_core.lend(address, count * PAGE_BYTES, memory)).cast("B")
            self._file.write(view, page, sums)
            self._sums[page - self._first :][:count] = sums
            return monotonic() - begun_s

        try:
            result = self._writer.submit(work)
        except RuntimeError:  # the interpreter ends
            result = Future()
            result.cancel()
        return DiskWrite(result)

    def note(self, write: DiskWrite) -> bool:
        """Return whether pages are on the disk whose write has ended; else it keeps no more."""
        error = write.error
        if error is None and not write.result.cancelled():
            return True
        if not self.is_full:
            self.is_full = True
            text = getattr(error, "strerror", None) or error or "it was given up"
            tell(f"{self.path}: keeps {self.kept_bytes >> 20} MiB and no more: {text}", WARNING)
        return False

    # --- reading

    @staticmethod
    def room_for(extents: _core.Extents) -> int:
        """Return the bytes of the pages that rows touch, at most."""
        return int((extents["length"] + np.uint64(2 * PAGE_BYTES)).sum())

    def read(self, extents: _core.Extents, stage: Stage) -> DiskReads:
        """Start to read rows.

        Args:
            extents: in the data file.
            stage: has ``room_for`` them.

        Raises:
            OSError, Error: the engine refuses.
        """
        shifted, room_bytes = extents.copy(), self.room_for(extents)
        shifted["offset"] += np.uint64(self._shift)
        plan = plan_reads(shifted, self._options, alignment=PAGE_BYTES, room_bytes=room_bytes)
        region = stage.take(plan.totals.buffer_bytes)
        if region is None:
            raise MemoryError(f"{self.path}: rows need more memory than was to be there")
        past = self._direct_path.engine(plan.totals.buffer_bytes)
        try:
            ticket = (past or self._engine).submit_plan(plan, region.address, region.memory)
        except BaseException:
            stage.give_back(region)
            raise
        return DiskReads(plan, ticket, region, past is not None)

    def read_grains(self, reads: npt.NDArray[Any], memory: _core.Memory) -> _core.Ticket:
        """Start to read grains whole (``READ``, offsets in the data file).

        Raises:
            OSError, Error: the engine refuses.
        """
        shifted = reads.copy()
        shifted["offset"] += np.uint64(self._shift)
        shifted["needed"] = shifted["length"]
        return self._engine.submit(shifted, memory)

    def damaged(self, extents: _core.Extents, reads: DiskReads) -> tuple[Flags, U64]:
        """Return which rows have arrived on pages that are not as they were written, and these.

        Of pages, some thousands at most. Gaps between rows do not matter: they may be written now.

        Args:
            extents: as they were given to ``read``.
        """
        if reads.past:
            self._direct_path.record(reads.plan.totals.buffer_bytes, reads.ticket.times)
        address = reads.region.address
        wrong, found, pages = _core.compare_sums(
            self._seed, extents, reads.plan.slices, address, self._sums, self._first
        )
        if found:
            self._note_damage(found)
        return wrong, np.unique(pages) if found else pages

    def is_right(self, address: int, page: int, count: int) -> bool:
        """Return whether pages in memory are as they were written."""
        sums = _core.sum_pages(self._seed, address, page, count)
        wrong = int((sums != self._sums[page - self._first :][:count]).sum())
        if wrong:
            self._note_damage(wrong)
        return not wrong

    def _note_damage(self, pages: int) -> None:
        if not self.damaged_pages:
            tell(f"{self.path}: damaged pages are read from the data file again", WARNING)
        self.damaged_pages += pages
        if self.damaged_pages > DAMAGED_MAX:
            self.end(f"it has damaged {self.damaged_pages} pages")

    def end(self, why: object) -> None:
        """Note that the disk has failed: the data file serves."""
        if not self.is_over:
            tell(f"{self.path}: is read no more: {why}", WARNING)
        self.is_over = self.is_full = True

    @property
    def is_stuck(self) -> bool:
        """Whether the disk did not answer lately: the data file serves."""
        return monotonic() < self._stuck_s + RETRY_SECONDS

    def note_stuck(self) -> None:
        """Note that the disk does not answer."""
        if not self.is_stuck:
            tell(f"{self.path}: does not answer; the data file serves meanwhile", WARNING)
        self._stuck_s = monotonic()

    def abandon(self, reads: object) -> None:
        """Wait no more for reads, which still fill their memory when the disk answers."""
        _ABANDONED.append(reads)
        self.note_stuck()

    def close(self) -> None:
        """Give up writes, and wait for the one that is under way, if the disk answers.

        May be called twice.
        """
        self._writer.shutdown(wait=not self.is_stuck, cancel_futures=True)
        self._direct_path.close()
        self._engine.close()
