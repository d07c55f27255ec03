"""ShardHoldings: the shard of the file that a root keeps, and brings to all ranks in all epochs.

    block -> the records of this shard that any team uses in it
          -> grains that are not there yet: read whole (``PollingLoads``), for all later blocks
          -> rows that lie on the disk: brought to memory (``StagedRows``) until it is used up
          -> handed on
    nothing to read for a block -> the next grains that are not there, in the order of the file

Each grain has one owner, which reads it once; so each byte leaves the file system once a job. A
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
from lmdbio.cache import StagingRing
from lmdbio.observe.stats import Source, StageCounter, Stats
from lmdbio.planning.reads import PlanOptions
from lmdbio.reader.flight import Awaited
from lmdbio.reader.holdings import BLOCKS_AT_ONCE, Holding, KeptHoldings
from lmdbio.reader.roots import RootSource
from lmdbio.reader.shard_store import ShardStore
from lmdbio.reader.staged_rows import StagedRows

__all__ = ["ShardHoldings"]

I64 = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class Span(Holding):
    """The records of a shard that are used in one block.

    Attributes:
        absent: grains that it waits for, by their places in the shard.
        places: offset of each record in the shard's memory, bytes.
        apart: records that are not in memory, by their places in ``uses.records``.
        stage_bytes: size of the ``apart`` records in the ring, bytes, about.
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


class ShardHoldings(KeptHoldings[Span]):
    """The holdings of one root's shard.

    Args:
        source: the root's open data set and engines; borrowed.
        store: shard of the root, and what it is used for.
        options: options of the reads from the data file.
        stage_bytes_max: largest size of rows on their way from the disk; more only for one block.
        exchange: takes rows to other roots; None: this is the only one.
        counter: counts what is located and submitted.
    """

    def __init__(
        self,
        source: RootSource,
        store: ShardStore,
        options: PlanOptions,
        stage_bytes_max: int,
        exchange: share.Exchange | None,
        counter: StageCounter,
    ) -> None:
        super().__init__(store.sources.blocks, exchange)
        self._source, self._counter, self._options = source, counter, options
        self._sources, self._team, self._waits = store.sources, store.root, store.waits
        self._shard = store.shard.open(source, options.request_bytes_max, counter)
        self._table, self._polling = self._shard.table, self._shard.polling
        self._memory: _core.Memory | None = self._shard.memory
        self._address = self._shard.memory.address
        self._ring = StagingRing(stage_bytes_max)
        self._told_at = 0  # step, when other roots were told
        self._is_held_up = False

    @property
    def awaited(self) -> Awaited | None:
        """The oldest reads or writes that are under way; None: there are none."""
        first = next((span for span in self._spans if not span.has_arrived), None)
        if first is not None and first.staged is not None and first.staged.awaited is not None:
            return first.staged.awaited
        return self._polling.awaited

    @property
    def counts(self) -> Stats:
        """The memory for what is kept, what is on the disk, and what that has damaged."""
        return self._shard.counts

    @property
    def is_cold(self) -> bool:
        """Whether grains are missing that are to be there before anything is handed out."""
        return self._waits and not self._has_ended and not self._table.is_full

    @property
    def is_held_up(self) -> bool:
        """Whether a block cannot be staged beside those before it, which others have not taken."""
        return self._is_held_up

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes of grains that are there, and of all of them."""
        return self._table.warmth

    def tend(self) -> None:
        """Hand on blocks whose grains are there, look at more blocks, and read what they need.

        Raises:
            OSError, Error: a grain cannot be read.
        """
        self._polling.tend()
        self.slowest_s = self._polling.slowest_s
        if self._polling.steps != self._told_at:
            self._told_at = self._polling.steps
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
            self._polling.sweep()

    def close(self) -> None:
        """Give up what is under way."""
        self._has_ended = True
        self._shard.close()
        for span in self._spans:
            span.copies.clear()
            if span.staged is not None:
                span.staged.close()
        self._spans.clear()

    def free(self) -> None:
        """Free the memory of all grains."""
        self._memory = None
        del self._ring

    # --- blocks

    def _look_at(self, number: int) -> Span:
        """Find what a block needs of this shard, and start to read what is not there."""
        begun = monotonic_ns()
        uses = self._sources.uses(number, self._team)
        extents = self._source.index.extents(uses.records.view(np.uint64))
        places, apart = self._table.places(extents), self._table.apart(extents)
        aside = np.empty(0, np.int64) if apart is None else np.flatnonzero(apart)
        self._counter.span("locate", begun, located_records=len(uses.records))
        back = self._shard.back
        return Span(
            number=number,
            uses=uses,
            loaded=_core.Loaded(uses.records, extents, places, self._address),
            own_left=0 if self._is_for_others else uses.own,
            absent=self._absent(extents),
            places=places,
            apart=aside,
            stage_bytes=0 if back is None else back.room_for(extents[aside]),
        )

    def _absent(self, extents: _core.Extents) -> I64:
        """Return the grains under some records that are not there, and want them."""
        if self._table.is_full:
            return np.empty(0, np.int64)
        return self._polling.want(self._table.under(extents))

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
        span.absent = self._polling.still_missing(span.absent)
        if len(span.absent) and self._polling.is_stuck:
            self._do_without(span)
        return not len(span.absent) and (not len(span.apart) or self._stage(span))

    def _do_without(self, span: Span) -> None:
        """Read rows from the data file whose grains wait for a disk that does not answer."""
        is_apart = self._table.touches(span.loaded.extents, span.absent)
        is_apart[span.apart] = True
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
        base = np.uint64(self._address)
        span.places[span.apart] = staged_rows.addresses - base  # modulo 2**64, as C adds it
        return True

    def _begin_to_stage(self, span: Span) -> StagedRows | None:
        """Start to bring rows to memory; None: there is no room beside those of other blocks."""
        if not self._ring.has_room(span.stage_bytes):
            return None
        records, extents = span.uses.records[span.apart], span.loaded.extents[span.apart]
        return StagedRows(self._source, self._options, self._shard, records, extents, self._ring)
