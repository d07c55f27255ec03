"""Windows: a root reads its slice of each window of a shuffled order once, into memory of its own.

    round -> records of this root's slice -> large requests, in the order of the file -> memory
          -> own rows are copied out of it, other roots' are handed to the exchange -> next round

A window's memory is free when the last of its rows is copied or packed. Meanwhile the next one is
read. Where the root has a shard, the records that nobody owns stream through windows beside it:

    round -> its slice of the window      read, as above
          -> records of its shard         in memory: grains are read once a job (``CacheShard``)
          -> all of them are there: handed on

Source: DeepIO (Zhu et al.), sections III-B and III-C: two buffers, of which one is read while the
other is shuffled in memory; asynchronous I/O (Lee et al.), section III-B.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.sources import HybridSources, WindowSources
from lmdbio.planning.reads import plan_reads
from lmdbio.planning.rounds import Round
from lmdbio.reader.flow import Awaited
from lmdbio.reader.round_cache import LoadedRound, RootContext, RoundCache
from lmdbio.reading.guarded import GuardedReads

if TYPE_CHECKING:
    from lmdbio.cache import CacheShard  # others begin sooner without it

__all__ = ["Windows"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


@dataclass(slots=True, kw_only=True)
class Window(LoadedRound):
    """A window that is read, or under way.

    Attributes:
        reads: reads that bring it.
        address: address of the memory that they fill.
        absent: grains that it waits for, by their places in the shard.
        is_read: whether the reads have arrived, and the file is as it was.
    """

    reads: GuardedReads
    address: int
    absent: I64
    is_read: bool = False

    def close(self) -> None:
        LoadedRound.close(self)
        self.reads.close()


class Windows(RoundCache[Window]):
    """The windows of one root, in the order of their rounds, and its shard, if it has one.

    Args:
        sources: says which root brings which rows.
        context, shard, waits: arguments of ``RoundCache``.
    """

    def __init__(
        self,
        context: RootContext,
        sources: WindowSources | HybridSources,
        shard: CacheShard | None = None,
        *,
        waits: bool = False,
    ) -> None:
        super().__init__(context, shard, waits=waits)
        self._sources, self._team = sources, context.root
        buffers, schedule = context.buffers, context.schedule
        self._buffers = buffers
        gap_bytes_max = context.source.choice.gap_bytes_max
        self._options = replace(context.options, gap_bytes_max=gap_bytes_max)
        self._following: Iterator[Round] = sources.sequence.from_place(schedule.first_place)
        self._end = None if schedule.end is None else schedule.first_place + schedule.end
        self._of_epoch = sources.sequence.per_epoch
        self._memory = _core.Memory(buffers.count * buffers.size)
        first, end = self._memory.address, self._memory.address + self._memory.size
        self._spare = list(range(first, end - buffers.size + 1, buffers.size))
        self._has_ended = False  # there is no further window

    @property
    def awaited(self) -> Awaited | None:
        """Reads of the window that is handed on next, or of grains; None: none are under way."""
        first = next((one for one in self._rounds if not one.has_arrived), None)
        if first is not None and not first.is_read:
            return first.reads.awaited
        return None if self._shard is None else self._shard.polling.awaited

    @property
    def progress(self) -> int | None:
        """The round of the oldest window in memory; None: there is none."""
        return self._rounds[0].number if self._rounds else None

    def _advance(self) -> None:
        """Hand on windows that have arrived, and read more where there is memory for them."""
        for window in self._rounds:  # other roots expect rows in the order of rounds
            if not window.has_arrived and not self._land(window):
                break
        self._drop_used_up()
        while self._spare and not (self._has_ended or self._is_closed):
            following = next(self._following)
            self._has_ended = self._end is not None and following.begin >= self._end
            if not self._has_ended:
                self._rounds.append(self._read(following))

    def _release(self, one: Window) -> None:
        one.close()
        self._spare.append(one.address)

    # --- reading

    def _read(self, following: Round) -> Window:
        """Start to read a window into memory of its own, and the grains that its round needs."""
        begun = monotonic_ns()
        uses = self._sources.uses(following, self._team)
        extents = self._source.index.extents(uses.records.view(np.uint64))
        self._counter.span("locate", begun, located_records=len(uses.records))
        streams, absent = self._sources.passing(uses.records), np.empty(0, np.int64)
        if self._shard is None or streams is None:
            places, address, reads = self._begin_reads(extents)
        else:
            cached, table = extents[~streams], self._shard.table
            absent = self._shard.polling.want(cached)
            slices, address, reads = self._begin_reads(extents[streams])
            places = np.empty(len(extents), np.uint64)
            places[streams] = slices
            # Modulo 2**64, as C adds the address of the buffer.
            base = np.uint64((self._shard.memory.address - address) % 2**64)
            places[~streams] = base + table.places(cached)
        return Window(
            number=following.epoch * self._of_epoch + following.number,
            uses=uses,
            loaded=_core.Loaded(uses.records, extents, places, address),
            reads=reads,
            address=address,
            own_left=0 if self._is_for_others else uses.own,
            absent=absent,
        )

    def _begin_reads(self, extents: _core.Extents) -> tuple[U64, int, GuardedReads]:
        """Start to read records into a buffer.

        Returns:
            Where each begins in it, its address, and the reads.
        """
        begun = monotonic_ns()
        plan = plan_reads(
            extents,
            self._options,
            alignment=self._source.read_alignment,
            room_bytes=self._buffers.size,
        )
        begun = self._counter.planned(begun, plan.totals)
        size = plan.totals.buffer_bytes
        if size > self._buffers.size:
            raise RuntimeError(
                f"{self._source.index.path}: a window of {len(extents)} records needs {size} "
                f"bytes, and its buffer has {self._buffers.size}"
            )
        address = self._spare.pop()
        reads = GuardedReads.begin(
            self._source,
            size,
            lambda engine: engine.submit_plan(plan, address, self._memory),
        )
        self._counter.span("submit", begun)
        return plan.slices, address, reads

    def _land(self, window: Window) -> bool:
        """Hand on a window that has arrived, with the grains that it waits for.

        Returns:
            Whether it has.
        """
        if not window.is_read:
            if not window.reads.poll():
                return False
            begun_s, ended_s = window.reads.ticket.times
            self._slowest_s = max(ended_s - begun_s, 0.9 * self._slowest_s)
            window.is_read = True
        if self._shard is not None:
            window.absent = self._shard.polling.still_missing(window.absent)
        if len(window.absent):
            return False
        self._hand_on(window)
        self._sign()
        return True
