"""Recurring: records that a root keeps while its own ranks use them again sooner than others.

    block -> its records, when each is used again (``NextUses``) -> which are held (``Soonest``)
          -> these are copied out of their cells, others read from the file -> handed on
          -> cells of what is held no more are free for what is held from now on

Records lie in cells of one size (``_core.Cells``), so that what comes has room in the place of
what goes, whatever their lengths are. All blocks do so in their order.

Source: Belady, A Study of Replacement Algorithms for a Virtual-Storage Computer (1966).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic_ns

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.observe.stats import Source, StageCounter, Stats
from lmdbio.planning.keepers import room_of
from lmdbio.planning.kept_sources import NextUses, OwnUses
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.sources import RoundUses
from lmdbio.reader.fetching import Fetch
from lmdbio.reader.flight import Awaited
from lmdbio.reader.holdings import Holding, Holdings
from lmdbio.reader.roots import RootSource
from lmdbio.reader.stage import Region, Stage

__all__ = ["Recurring"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

#: Blocks that are looked at ahead, at most; those that are read have room in a part of the memory,
#: or in as much as so many times the first block needs.
BLOCKS_AHEAD, BUFFER_PART, BUFFER_BLOCKS = 64, 20, 2.5


@dataclass(slots=True, kw_only=True)
class Batch(Holding):
    """The records of one block.

    Attributes:
        is_own: of each row, in the order of use, whether its record was held.
        lengths, addresses: of its records in the block's buffers.
        held: records that are copied out of cells, by their places in ``uses.records``.
        kept: the same of those that are held from then on.
        dropped: records that are not.
        missed: records that are not held, as of ``held``, in the order of the file.
        fetch: of the others.
        size: bytes of all of them.
        region: with all of them; None: it is not there yet.
    """

    is_own: Flags
    lengths: U64
    addresses: U64
    held: I64
    kept: I64
    dropped: I64
    missed: I64
    fetch: Fetch
    size: int
    region: Region | None = None

    def by_source(self, records: I64) -> Iterator[tuple[Source, Flags]]:
        """Yield the sources of its rows, and which of them come from each."""
        assert len(records) == len(self.is_own)  # all rows of the block are one run
        yield "own", self.is_own
        yield "file", ~self.is_own


class Recurring(Holdings):
    """The records that one root keeps for its own ranks; no other root gets one.

    Args:
        source: what the root reads with, and from; borrowed.
        schedule: of the job.
        root: by its index in the schedule.
        memory: for the records.
        cell: bytes of the pieces into which it is cut.
        options: of reads.
        counter: counts what is located, planned and submitted.
    """

    def __init__(
        self,
        source: RootSource,
        schedule: Schedule,
        root: int,
        memory: _core.Memory,
        cell: int,
        options: PlanOptions,
        counter: StageCounter,
    ) -> None:
        super().__init__(None)
        self._source, self._options, self._counter = source, options, counter
        self._uses, self._next = NextUses(schedule, root), 0
        self._cell, self._memory_bytes = cell, memory.size
        capacity = memory.size // cell
        self._soonest = _core.Soonest(schedule.count, capacity)
        self._cells: _core.Cells | None = _core.Cells(memory, cell, schedule.count)
        self._ring: Stage | None = None  # of buffers
        self._batches: deque[Batch] = deque()
        self._has_ended = False

    @property
    def _rounds(self) -> Sequence[Batch]:
        return self._batches

    @property
    def awaited(self) -> Awaited | None:
        """The reads of the block that is handed on next; None: none are under way."""
        first = next((one for one in self._batches if not one.has_arrived), None)
        reads = None if first is None else first.fetch.reads
        return None if reads is None else reads.awaited

    @property
    def progress(self) -> int:
        """The oldest block that is not used up."""
        return self._batches[0].number if self._batches else self._next

    @property
    def counts(self) -> Stats:
        """The memory for what is kept."""
        return Stats(cache_bytes=0 if self._cells is None else self._memory_bytes)

    def tend(self) -> None:
        """Hand on blocks that have arrived, and read more.

        Raises:
            OSError, Error: a record cannot be read.
        """
        self._hand_on_in_order()
        while self._batches and self._batches[0].is_used_up:
            self._end(self._batches.popleft())
        while not self._has_ended and len(self._batches) < BLOCKS_AHEAD:
            if self._batches and not self._start(self._batches[-1]):
                break
            uses = self._uses.take()
            if uses is None:
                self._has_ended = True
                break
            self._batches.append(self._look_at(uses))
            self._next += 1
        if self._batches:
            self._start(self._batches[-1])
        self._hand_on_in_order()

    def close(self) -> None:
        """Give up what is under way."""
        self._has_ended = True
        for batch in self._batches:
            batch.copies.clear()
            batch.region = None
            self._end(batch)
        self._batches.clear()

    def free(self) -> None:
        """Free the memory of all records."""
        self._cells = self._ring = None

    def _end(self, batch: Batch) -> None:
        batch.fetch.close()
        if batch.region is not None and self._ring is not None:
            self._ring.give_back(batch.region)

    # --- blocks

    def _look_at(self, own: OwnUses) -> Batch:
        """Settle what is held of a block's records, and plan the reads of the others."""
        begun = monotonic_ns()
        records, first, which = np.unique(own.records, return_index=True, return_inverse=True)
        extents = self._source.index.extents(records.view(np.uint64))
        lengths = np.ascontiguousarray(extents["length"], np.uint64)
        begun = self._counter.located(begun, len(records))
        cells = -(-lengths.astype(np.int64) // self._cell)
        used = self._soonest.use(own.records, own.following, cells[which].astype(np.uint64))
        is_held = used.found[first]
        held, missed = np.flatnonzero(is_held), np.flatnonzero(~is_held)
        missed = missed[np.argsort(extents["offset"][missed], kind="stable")]
        fetch = Fetch(self._source, self._options, extents[missed])
        self._counter.planned(begun, fetch.totals)
        addresses, nobody = np.zeros(len(records), np.uint64), np.empty(0, np.int64)
        return Batch(
            number=self._next,
            uses=RoundUses(
                records, len(own.records), nobody, nobody, nobody, np.zeros(1, np.int64)
            ),
            loaded=_core.Loaded(records, extents, addresses, 0),
            own_left=len(own.records),
            is_own=used.found,
            lengths=lengths,
            addresses=addresses,
            held=held,
            kept=np.flatnonzero(used.kept[first]),
            dropped=used.dropped,
            missed=missed,
            fetch=fetch,
            size=fetch.size + self._in_pages(int(room_of(lengths[held]).sum())),
        )

    def _in_pages(self, size: int) -> int:
        alignment = self._source.read_alignment
        return -(-size // alignment) * alignment

    def _start(self, batch: Batch) -> bool:
        """Start to read a block, if it has not begun and has room; return whether it has begun."""
        if batch.region is not None:
            return True
        begun = monotonic_ns()
        if self._ring is None:
            part = self._memory_bytes // BUFFER_PART
            self._ring = Stage(self._in_pages(max(part, int(BUFFER_BLOCKS * batch.size))))
        batch.region = self._ring.take(batch.size)
        if batch.region is None:
            return False
        batch.addresses[batch.missed] = batch.fetch.start(batch.region)
        rooms = room_of(batch.lengths[batch.held])
        first = batch.region.address + batch.fetch.size
        batch.addresses[batch.held] = (np.cumsum(rooms) - rooms + first).astype(np.uint64)
        self._counter.submitted(begun)
        return True

    def _hand_on_in_order(self) -> None:
        """Hand on blocks that are there, and keep of them what is held from then on."""
        for batch in self._batches:
            if batch.has_arrived:
                continue
            if not batch.fetch.poll():
                break
            self._turn_over(batch)
            self._hand_on(batch)

    def _turn_over(self, batch: Batch) -> None:
        """Copy what is held to the block's buffer, and what it brings into the cells."""
        assert self._cells is not None
        records, held, kept = batch.uses.records, batch.held, batch.kept
        self._cells.get(records[held], batch.lengths[held], batch.addresses[held])
        self._cells.drop(batch.dropped)
        self._cells.put(records[kept], batch.lengths[kept], batch.addresses[kept])
        begun_s, ended_s = batch.fetch.times
        self.slowest_s = max(ended_s - begun_s, 0.9 * self.slowest_s)
