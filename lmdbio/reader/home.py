"""Home: the part of the file that a root keeps, and brings to all ranks in all epochs.

    block -> the records of this home that any team uses in it
          -> grains that are not there yet: read whole (``Filling``), there for all later blocks
          -> rows that lie on the disk: brought to memory (``StagedRows``) until it is used up
          -> handed on
    nothing to read for a block -> the next grains that are not there, in the order of the file

Each grain has one home, which reads it once; so each byte leaves the file system once a job. A
grain that was read is never written again, and stays until the Reader ends; on a disk, longer.

Source: DeepIO (Zhu et al.), section III; locality-aware loading (Yang and Cong), section V; HDMLP
thesis, section 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic_ns

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.cache import DiskTier
from lmdbio.observe.stats import Source, StageCounter, Stats
from lmdbio.planning.reads import PlanOptions
from lmdbio.reader.filling import Filling
from lmdbio.reader.flight import Awaited, Settled
from lmdbio.reader.holdings import BLOCKS_AT_ONCE, Holding, KeptHoldings
from lmdbio.reader.home_store import HomeStore
from lmdbio.reader.roots import RootSource
from lmdbio.reader.stage import Stage
from lmdbio.reader.staged import StagedRows

__all__ = ["Home"]

I64 = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class Span(Holding):
    """The records of a home that are used in one block.

    Attributes:
        absent: grains that it waits for, by their places in the home.
        places: offset of each record in the home's memory, bytes.
        apart: records that are not in memory, by their places in ``uses.records``.
        stage_bytes: size of the ``apart`` records in the stage, bytes, about.
        staged: reads of the ``apart`` records; None: not begun.
        is_there: whether all records are in memory.
    """

    absent: I64
    places: npt.NDArray[np.uint64]
    apart: I64
    stage_bytes: int
    staged: StagedRows | None = None
    is_there: bool = False

    def by_source(self, records: I64) -> Iterator[tuple[Source, npt.NDArray[np.bool_]]]:
        """Yield the sources of some of its records, and which of them come from each."""
        if self.staged is None:
            yield "own", np.ones(len(records), np.bool_)
            return
        # Of all records of the span: 0 in memory, 1 on the disk, 2 in the file alone.
        kinds = np.zeros(len(self.uses.records), np.uint8)
        kinds[self.apart] = 1 + self.staged.lost
        found = kinds[np.searchsorted(self.uses.records, records)]
        sources: tuple[Source, ...] = ("own", "disk", "file")
        for kind, source in enumerate(sources):
            yield source, found == kind


class Home(KeptHoldings[Span]):
    """The home of one root.

    Args:
        source: the root's open data set and engines; borrowed.
        store: memory and disk for the grains, and what they are used for.
        options: options of the reads from the data file.
        stage_bytes_max: largest size of rows on their way from the disk; more only for one block.
        exchange: takes rows to other roots; None: this is the only one.
        counter: counts what is located and submitted.
    """

    def __init__(
        self,
        source: RootSource,
        store: HomeStore,
        options: PlanOptions,
        stage_bytes_max: int,
        exchange: share.Exchange | None,
        counter: StageCounter,
    ) -> None:
        super().__init__(store.sources.blocks, exchange)
        self._source, self._store, self._counter = source, store, counter
        self._sources, self._memory, self._team = store.sources, store.memory, store.root
        homes = store.sources.homes
        self._grains, self._kept = homes.grains, homes.kept(store.root)
        self._memory_bytes = len(store.tiers.memory) * self._grains.size
        self._disk = (
            None if store.file is None else DiskTier(store.file, store.sums, is_direct=True)
        )
        self._filling = Filling(source, store, self._disk, options.request_bytes_max, counter)
        self._states, self._waits = self._filling.states, store.waits
        self._options, self._ring = options, Stage(stage_bytes_max)
        self._told_at = 0  # step, when other roots were told
        self._is_held_up = False

    @property
    def awaited(self) -> Awaited | None:
        """The oldest reads or writes that are under way; None: there are none."""
        first = next((span for span in self._spans if not span.has_arrived), None)
        if first is not None and first.staged is not None and first.staged.ticket is not None:
            return Settled(first.staged.ticket)
        return self._filling.awaited

    @property
    def counts(self) -> Stats:
        """The memory for what is kept, what is on the disk, and what that has damaged."""
        memory = 0 if self._has_ended else self._memory.size
        if self._disk is None:
            return Stats(cache_bytes=memory)
        return Stats(
            cache_bytes=memory,
            cache_disk_bytes=self._disk.kept_bytes,
            damaged_pages=self._disk.damaged_pages,
        )

    @property
    def is_cold(self) -> bool:
        """Whether grains are missing that are to be there before anything is handed out."""
        return self._waits and not self._has_ended and not self._states.is_full

    @property
    def is_held_up(self) -> bool:
        """Whether a block cannot be staged beside those before it, which others have not taken."""
        return self._is_held_up

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes of grains that are there, and of all of them."""
        return self._states.warmth

    def tend(self) -> None:
        """Hand on blocks whose grains are there, look at more blocks, and read what they need.

        Raises:
            OSError, Error: a grain cannot be read.
        """
        self._filling.tend()
        self.slowest_s = self._filling.slowest_s
        if self._filling.steps != self._told_at:
            self._told_at = self._filling.steps
            self._tell_reading()
        self._hand_on_in_order()
        while self._spans and self._spans[0].is_used_up:
            span = self._spans.popleft()
            if span.staged is not None:
                span.staged.release()
        for _ in range(BLOCKS_AT_ONCE):
            if self._may_look_ahead():
                self._spans.append(self._look_at(self._next))
                self._next += 1
                self._hand_on_in_order()
        if not self._has_ended:
            self._filling.sweep()

    def close(self) -> None:
        """Give up what is under way."""
        self._has_ended = True
        self._filling.close()
        for span in self._spans:
            span.copies.clear()
            if span.staged is not None:
                span.staged.close()
        self._spans.clear()
        if self._disk is not None:
            self._disk.close()

    def free(self) -> None:
        """Free the memory of all grains."""
        self._memory = _core.Memory(1)
        del self._store, self._filling, self._ring

    # --- blocks

    def _look_at(self, number: int) -> Span:
        """Find what a block needs of this home, and start to read what is not there."""
        begun = monotonic_ns()
        uses = self._sources.uses(number, self._team)
        extents = self._source.index.extents(uses.records.view(np.uint64))
        places = _core.place_extents(
            extents, self._grains.bits, self._grains.numbers, self._kept.start
        )
        apart = np.empty(0, np.int64)
        if self._store.is_split:
            apart = _core.extents_beyond(extents, places, self._memory_bytes)
        self._counter.span("locate", begun, located_records=len(uses.records))
        return Span(
            number=number,
            uses=uses,
            loaded=_core.Loaded(uses.records, extents, places, self._memory.address),
            own_left=0 if self._is_for_others else uses.own,
            absent=self._absent(extents),
            places=places,
            apart=apart,
            stage_bytes=0 if self._disk is None else self._disk.room_for(extents[apart]),
        )

    def _absent(self, extents: _core.Extents) -> I64:
        """Return the grains under some records that are not there, and want them."""
        if self._filling.states.is_full:
            return np.empty(0, np.int64)
        own = slice(self._kept.start, self._kept.stop)
        return self._filling.missing(self._grains.under(extents)[own])

    def _hand_on_in_order(self) -> None:
        """Hand on blocks that are there: other roots expect rows in the order of blocks.

        Rows of the next ones are staged meanwhile.
        """
        is_next = True
        for span in self._spans:
            if span.has_arrived:
                continue
            if not span.is_there:
                span.is_there = self._is_there(span)
            is_next &= span.is_there
            if is_next:
                self._hand_on(span)
            elif span.staged is None:
                break

    def _is_there(self, span: Span) -> bool:
        """Return whether all rows of a block are in memory; stage those that are on the disk."""
        span.absent = self._filling.still_missing(span.absent)
        if len(span.absent) and self._filling.is_stuck:
            self._do_without(span)
        return not len(span.absent) and (not len(span.apart) or self._stage(span))

    def _do_without(self, span: Span) -> None:
        """Read rows from the data file whose grains wait for a disk that does not answer."""
        is_absent = np.zeros(len(self._kept), np.bool_)
        is_absent[span.absent] = True
        some = np.flatnonzero(span.loaded.extents["length"])
        is_under = self._grains.touch(span.loaded.extents[some], is_absent, self._kept.start)
        is_apart = np.zeros(len(span.places), np.bool_)
        is_apart[span.apart] = is_apart[some[is_under]] = True
        span.apart, span.absent = np.flatnonzero(is_apart), span.absent[:0]

    # --- rows that are not in memory

    def _stage(self, span: Span) -> bool:
        """Bring rows of a block to memory that are not there; return whether they are by now."""
        if span.staged is None:
            span.staged = self._begin_to_stage(span)
            self._is_held_up = span.staged is None and self._spans[0].has_arrived
            if span.staged is None:
                return False
        staged_rows = span.staged
        if not staged_rows.poll():
            return False
        if len(staged_rows.damaged):
            self._filling.fetch_again(staged_rows.damaged)
        base = np.uint64(self._memory.address)
        span.places[span.apart] = staged_rows.addresses - base  # modulo 2**64, as C adds it
        return True

    def _begin_to_stage(self, span: Span) -> StagedRows | None:
        """Start to bring rows to memory; None: there is no room beside those of other blocks."""
        assert self._disk is not None
        if not self._ring.has_room(span.stage_bytes):
            return None
        extents = span.loaded.extents[span.apart]
        lost = np.zeros(len(extents), np.bool_)
        if self._filling.has_lost:
            lost = self._grains.touch(extents, self._filling.states.lost, self._kept.start)
        return StagedRows(
            self._source,
            self._options,
            self._disk,
            span.uses.records[span.apart],
            extents,
            lost,
            self._ring,
        )
