"""DiskTier: grains on a local disk, in a cache file that outlives the job.

    grains in memory -> summed, written by a thread of its own -> on the disk, for later jobs too
    rows, or grains  -> read into the caller's memory -> compared with their sums

Threads share it. No page is used whose sum is not right. A disk that is full takes nothing more,
one that fails is asked no more, and one that does not answer is asked again after a while: the
data file has everything.

Source: HDMLP thesis (Dryden et al.), section 4.3 (tiers of a node).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from threading import Lock
from time import monotonic

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.cache_file import CacheFile
from lmdbio.cache.grains import PAGE_BYTES, GrainMap
from lmdbio.cache.table import GrainTable
from lmdbio.cache.tier import LIMITS, CacheLimits, Take, TierReads
from lmdbio.cache.writer import TierWrite, TierWriter
from lmdbio.machine.overrides import Overrides
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.reading.direct_path import DirectPath
from lmdbio.reading.engines import choose_reading
from lmdbio.system import fork
from lmdbio.system.log import WARNING, log

__all__ = ["DiskTier", "on_disk"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

#: A disk of this machine begins a request so quickly that more unneeded bytes take longer to read.
GAP_BYTES_MAX = 4 << 10
#: Requests in flight.
DEPTH = 32
#: Bytes that are written at once.
WRITE_BYTES = 4 << 20
#: Bound of the doublings of the time until a disk is asked again, which has a bound of its own.
DOUBLINGS_MAX = 1 << 16


class DiskTier:
    """Grains of one data file on a disk.

    Threads may share it. After fork a child reads what is there, and writes nothing.

    Args:
        file: cache file, open and locked; owned from now on.
        grains: grains of the shard.
        places: grains that it has room for, the last ones of the shard.
        is_direct: whether rows are read past the page cache, while that is no loss.
        limits: bounds of the trust in it.

    Attributes:
        places: grains that it has room for.
        limits: bounds of the trust in the disk.
        is_over: whether the disk has failed, and nothing is read or written any more.
        is_full: whether nothing is written any more.
        damaged_pages: number of pages that were not as they had been written.

    Raises:
        OSError: the file cannot be written, or opened again.
    """

    def __init__(
        self,
        file: CacheFile,
        grains: GrainMap,
        places: range,
        *,
        is_direct: bool = False,
        limits: CacheLimits = LIMITS,
    ) -> None:
        weakref.finalize(self, file.close)
        self._file, self._grains, self.places, self.limits = file, grains, places, limits
        self._sums = file.keep(*grains.span(places.start))
        self._first = file.header.first
        self._seed, self._shift = file.header.source.seed, file.header.data_offset
        self._engine = file.open_engine(DEPTH)
        choice = choose_reading(self._engine, "batch", Overrides(engine="pread"))
        self._direct_path = DirectPath(
            self._engine, self.kept_bytes, depth=choice.depth, wanted=is_direct
        )
        self._options = PlanOptions(GAP_BYTES_MAX, choice.request_bytes_max)
        self._writer: TierWriter | None = TierWriter(limits.stuck_s)
        weakref.finalize(self, self._writer.waiting.put, None)
        self._lock = Lock()
        self.is_over = self.is_full = False
        self.damaged_pages = 0
        self._stuck_s, self._doublings = -limits.retry_s, 1
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

    def left(self) -> Flags:
        """Return which of its ``places`` an earlier job has left there whole."""
        return self._grains.present(self._sums, self.places.start)

    # --- what goes wrong

    @property
    def is_stuck(self) -> bool:
        """Whether the disk did not answer lately, or has not taken what it was given."""
        writer = self._writer
        return self._is_left_alone or (writer is not None and writer.is_late)

    @property
    def _is_left_alone(self) -> bool:
        """Whether it is not asked again yet."""
        wait_s = min(self._doublings * self.limits.retry_s, self.limits.retry_s_max)
        return monotonic() < self._stuck_s + wait_s

    @property
    def is_away(self) -> bool:
        """Whether the disk has failed, or did not answer lately: the data file serves."""
        return self.is_over or self.is_stuck

    @property
    def was_stuck(self) -> bool:
        """Whether it did not answer once: reads that were given up may still fill memory."""
        return self._stuck_s > 0

    def note_failure(self, error: object) -> None:
        """Note that the disk has failed."""
        with self._lock:
            was_over, self.is_over, self.is_full = self.is_over, True, True
        if not was_over:
            log(f"{self.path}: is read no more: {error}", WARNING)

    def note_stuck(self) -> None:
        """Note that the disk does not answer."""
        with self._lock:
            was_away, now_s = self.is_over or self._is_left_alone, monotonic()
            if not was_away and self._stuck_s > 0:
                self._doublings = min(2 * self._doublings, DOUBLINGS_MAX)
            self._stuck_s = now_s
        if not was_away:
            log(f"{self.path}: does not answer; the data file serves meanwhile", WARNING)

    def _fill_up(self, error: BaseException | None) -> None:
        """Note that the disk takes no more."""
        with self._lock:
            was_full, self.is_full = self.is_full, True
        if not was_full:
            text = getattr(error, "strerror", None) or error or "it was given up"
            log(f"{self.path}: keeps {self.kept_bytes >> 20} MiB and no more: {text}", WARNING)

    def _note_damage(self, pages: int) -> None:
        with self._lock:
            before = self.damaged_pages
            self.damaged_pages += pages
        if not before:
            log(f"{self.path}: damaged pages are read from the data file again", WARNING)
        if before + pages > self.limits.damaged_max:
            self.note_failure(f"it has damaged {before + pages} pages")

    # --- reading

    def room_for(self, extents: _core.Extents) -> int:
        """Return the bytes of the pages that rows touch, at most."""
        return int((extents["length"] + np.uint64(2 * PAGE_BYTES)).sum())

    def read_rows(self, extents: _core.Extents, take: Take) -> TierReads:
        """Start to read rows, all requests in flight at once; as ``Tier`` says."""
        shifted = extents.copy()
        shifted["offset"] += np.uint64(self._shift)
        room = self.room_for(extents)
        plan = plan_reads(shifted, self._options, alignment=PAGE_BYTES, room_bytes=room)
        size = plan.totals.buffer_bytes
        memory, address = take(size)
        direct = self._direct_path.engine(size)

        def judge(ticket: _core.Ticket) -> tuple[Flags, I64]:
            if direct is not None:
                self._direct_path.record(size, ticket.times)
            wrong, pages = self._compare(extents, plan.slices, address)
            offsets = pages.astype(np.int64) * PAGE_BYTES
            return wrong, np.searchsorted(self._grains.begins, offsets, side="right") - 1

        return TierReads(
            self,
            plan.slices + np.uint64(address),
            lambda: (direct or self._engine).submit_plan(plan, address, memory),
            judge,
        )

    def read(self, grains: I64, addresses: I64, memory: _core.Memory) -> TierReads:
        """Start to read grains whole; as ``Tier`` says."""
        reads = self._grains.reads(grains, addresses, self._options.request_bytes_max)
        reads["offset"] += np.uint64(self._shift)
        reads["needed"] = reads["length"]
        extents = np.zeros(len(grains), _core.EXTENT)
        extents["offset"] = begins = self._grains.begins[grains]
        extents["length"] = np.minimum(self._grains.size, self._grains.limit - begins)

        def judge(_: _core.Ticket) -> tuple[Flags, I64]:
            base = int(addresses.min())
            wrong, _pages = self._compare(extents, (addresses - base).astype(np.uint64), base)
            return wrong, grains[wrong]

        return TierReads(
            self,
            addresses.astype(np.uint64),
            lambda: self._engine.submit(reads, memory),
            judge,
        )

    def _compare(self, extents: _core.Extents, slices: U64, address: int) -> tuple[Flags, U64]:
        """Return which extents lie on pages that are not as they were written, and these.

        Of pages, some thousands at most. Gaps between rows do not matter: they may be written now.
        """
        self._doublings = 1  # it answers again
        wrong, found, pages = _core.compare_sums(
            self._seed, extents, slices, address, self._sums, self._first
        )
        if found:
            self._note_damage(found)
        return np.asarray(wrong), np.unique(pages) if found else pages

    # --- writing

    def write(self, grains: I64, addresses: I64, memory: _core.Memory) -> list[TierWrite]:
        """Start to write grains, each run of neighbours for itself; as ``Tier`` says."""
        writes = []
        for first, count in zip(*self._grains.runs(grains, addresses, WRITE_BYTES), strict=True):
            run = grains[first : first + count]
            work = partial(self._write, memory, int(addresses[first]), int(run[0]), int(run[-1]))
            writes.append(self._begin_write(run, work))
        return writes

    def _begin_write(self, grains: I64, work: Callable[[], bool]) -> TierWrite:
        writer = self._writer
        if writer is not None:
            try:
                return writer.begin(grains, work)
            except RuntimeError:
                self._fill_up(None)
        return TierWrite.ended(grains)

    def _write(self, memory: _core.Memory, address: int, first: int, last: int) -> bool:
        """Write the pages of neighbouring grains; the writer's thread does."""
        if self.is_full:
            return False
        page, end = int(self._grains.firsts[first]), int(self._grains.ends[last])
        try:
            sums = _core.sum_pages(self._seed, address, page, end - page)
            view = memoryview(_core.lend(address, (end - page) * PAGE_BYTES, memory)).cast("B")
            self._file.write(view, page, sums)
        except BaseException as error:
            self._fill_up(error)
            raise
        self._sums[page - self._first : end - self._first] = sums
        return True

    def close(self) -> None:
        """Give up writes, wait for the one that is under way, if the disk answers, and unlock.

        May be called twice.
        """
        is_stuck = self.is_stuck  # also where a read has failed meanwhile
        self.is_over = self.is_full = True
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.end(waits=not is_stuck)
        self._direct_path.close()
        self._engine.close()
        self._file.close()


def on_disk(
    file: CacheFile, *, is_direct: bool = False, limits: CacheLimits = LIMITS
) -> Callable[[GrainTable], DiskTier | None]:
    """Return what opens the tier of a shard on a disk, if that has room for some of its grains.

    Args:
        file: cache file, open and locked; owned once it is called.
        is_direct: whether rows are read past the page cache, while that is no loss.
        limits: bounds of the trust in it.
    """

    def open_tier(table: GrainTable) -> DiskTier | None:
        places = table.tiers.disk
        if len(places):
            return DiskTier(file, table.map, places, is_direct=is_direct, limits=limits)
        file.close()
        return None

    return open_tier
