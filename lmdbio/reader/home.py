"""Home: the part of the file that a root keeps in memory, and brings to all ranks in all epochs.

    block -> the records of this home that any team uses in it -> grains that are not there yet
          -> whole, in large requests, at their places -> guarded -> there for all later blocks
    nothing to read for a block -> the next grains that are not there, in the order of the file

Each grain has one home, which reads it once; so each byte leaves the file system once a job. A
grain that was read is never written again, and stays until the Reader ends.

Source: DeepIO (Zhu et al.), section III; locality-aware loading (Yang and Cong), section V.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.observe.stats import StageCounter
from lmdbio.planning.homes import HomeSources
from lmdbio.reader.guarded import GuardedReads
from lmdbio.reader.holdings import Holding, Holdings
from lmdbio.reader.roots import RootSource

__all__ = ["Home", "HomeMemory"]

I64 = npt.NDArray[np.int64]

#: Of a grain.
ABSENT, COMING, PRESENT = range(3)
#: Blocks that are looked at ahead, so that other roots find their rows whatever this one's ranks
#: do; of many rows, each of which takes 60 bytes, at least so many; and how many at a time.
BLOCKS_AHEAD, BLOCKS_AHEAD_MIN, ROWS_AHEAD, BLOCKS_AT_ONCE = 64, 4, 2**19, 2
#: Bytes that are swept at a time, and parts of the sweep under way: blocks wait behind them.
SWEEP_BYTES, SWEEPS = 8 << 20, 2
#: Bytes that are guarded together: a block's first reads may be those of the whole home.
LOAD_BYTES = 32 << 20


class HomeMemory(NamedTuple):
    """Memory of a root for its home.

    Attributes:
        sources: says what the root brings.
        memory: of its grains, one behind the other.
    """

    sources: HomeSources
    memory: _core.Memory

    @classmethod
    def of(cls, sources: HomeSources, root: int) -> HomeMemory:
        """Take the memory that a root's home needs; the system gives it page by page, when used.

        Raises:
            MemoryError: there is no room for it.
        """
        size = len(sources.homes.kept(root)) << sources.homes.grains.bits
        return cls(sources, _core.Memory(max(1, size)))


@dataclass(slots=True, kw_only=True)
class Span(Holding):
    """The records of a home that are used in one block.

    Attributes:
        absent: grains that it waits for, by their places in memory.
    """

    absent: I64


class Load(NamedTuple):
    """Grains on their way to memory.

    Attributes:
        grains: by their places there.
        reads: that bring them.
    """

    grains: I64
    reads: GuardedReads


class Home(Holdings):
    """The home of one root.

    Args:
        source: what the root reads with, and from; borrowed.
        kept: memory for the grains, and what they are used for.
        team: of the root.
        request_bytes_max: bytes per request.
        exchange: takes rows to other roots; None: this is the only one.
        counter: counts what is located and submitted.
    """

    def __init__(
        self,
        source: RootSource,
        kept: HomeMemory,
        team: int,
        request_bytes_max: int,
        exchange: share.Exchange | None,
        counter: StageCounter,
    ) -> None:
        super().__init__(exchange)
        self._source, self._team, self._counter = source, team, counter
        self._sources, self._memory = kept.sources, kept.memory
        homes = kept.sources.homes
        self._grains, self._kept = homes.grains, homes.kept(team)
        self._request_bytes_max = max(request_bytes_max, self._grains.size)
        self._state = np.full(len(self._kept), ABSENT, np.uint8)
        self._limit = int(homes.limits[team])
        # Grains behind it hold parts of records that another root keeps.
        begins = self._grains.used[self._kept.start : self._kept.stop] * self._grains.size
        self._state[begins >= self._limit] = PRESENT
        self._left = int((self._state == ABSENT).sum())  # grains that are not there
        self._swept = 0  # grains that were looked at
        self._spans: deque[Span] = deque()
        self._loads: deque[Load] = deque()
        self._next = 0  # block
        self._landed_s = 0.0  # when the last grains had come
        self._has_ended = False

    @property
    def _rounds(self) -> Sequence[Span]:
        return self._spans

    @property
    def awaited(self) -> _core.Ticket | None:
        """The reads of the oldest grains that are under way; None: there are none."""
        return self._loads[0].reads.awaited if self._loads else None

    @property
    def kept_bytes(self) -> int:
        """Memory of all grains."""
        return 0 if self._has_ended else self._memory.size

    @property
    def is_cold(self) -> bool:
        """Whether grains are missing that are to be there before anything is handed out."""
        return self._sources.is_warm and self._left > 0 and not self._has_ended

    @property
    def progress(self) -> int:
        """The oldest block that is not used up."""
        return self._spans[0].number if self._spans else self._next

    @property
    def pace(self) -> None:
        """Nothing: how far this root is with its own part says nothing of others' parts."""

    def tend(self) -> None:
        """Hand on blocks whose grains are there, look at more blocks, and read what they need.

        Raises:
            OSError, Error: a grain cannot be read.
        """
        while self._loads and self._land(self._loads[0]):
            self._loads.popleft()
        for span in self._spans:  # other roots expect rows in the order of blocks
            if not span.has_arrived and not self._hand_on_if_there(span):
                break
        while self._spans and self._spans[0].is_used_up:
            self._spans.popleft()
        for _ in range(BLOCKS_AT_ONCE):
            if self._may_look_ahead():
                self._spans.append(self._look_at(self._next))
                self._next += 1
        while self._may_sweep():
            self._sweep()

    def take_back(self) -> None:
        """Take rows of all blocks back that roots far behind have not asked for.

        Memory for them is no matter, but that the others wait once, and not for each block.
        """
        for span in self._spans:
            if span.has_arrived and span.shipment is not None:
                span.shipment.expire()

    def close(self) -> None:
        """Give up what is under way."""
        self._has_ended = True
        for load in self._loads:
            load.reads.close()
        self._loads.clear()
        for span in self._spans:
            span.copies.clear()
        self._spans.clear()

    def free(self) -> None:
        """Free the memory of all grains."""
        self._memory = _core.Memory(1)

    # --- blocks

    def _may_look_ahead(self) -> bool:
        blocks = self._sources.blocks
        is_over = self._has_ended or (blocks is not None and self._next >= blocks)
        is_early = self._sources.is_warm and self._left > 0
        if is_over or is_early or len(self._spans) >= BLOCKS_AHEAD:
            return False
        rows = len(self._spans) * len(self._spans[0].uses.records) if self._spans else 0
        return rows < ROWS_AHEAD or len(self._spans) < BLOCKS_AHEAD_MIN

    def _look_at(self, number: int) -> Span:
        """Find what a block needs of this home, and start to read what is not there."""
        begun = monotonic_ns()
        uses = self._sources.uses(number, self._team)
        extents = self._source.index.extents(uses.records.view(np.uint64))
        places = _core.place_extents(
            extents, self._grains.bits, self._grains.numbers, self._kept.start
        )
        self._counter.located(begun, len(uses.records))
        span = Span(
            number=number,
            uses=uses,
            loaded=_core.Loaded(uses.records, extents, places, self._memory.address),
            own_left=0 if self._is_for_others else uses.own,
            absent=self._absent(extents),
        )
        wanted = span.absent[self._state[span.absent] == ABSENT]
        if len(wanted):
            self._read(wanted)
        if not self._spans or self._spans[-1].has_arrived:
            self._hand_on_if_there(span)
        return span

    def _absent(self, extents: _core.Extents) -> I64:
        """Return the grains under some records that are not there, by their places in memory."""
        if not self._left:
            return np.empty(0, np.int64)
        own = slice(self._kept.start, self._kept.stop)
        is_under = self._grains.under(extents)[own]
        return np.flatnonzero(is_under & (self._state != PRESENT))

    def _hand_on_if_there(self, span: Span) -> bool:
        if len(span.absent):
            span.absent = span.absent[self._state[span.absent] != PRESENT]
        if len(span.absent):
            return False
        self._hand_on(span)
        return True

    # --- grains

    def _may_sweep(self) -> bool:
        is_over = self._has_ended or self._swept >= len(self._state)
        return not is_over and len(self._loads) < SWEEPS

    def _sweep(self) -> None:
        """Start to read the next grains that nobody has needed yet."""
        end = self._swept + max(1, SWEEP_BYTES >> self._grains.bits)
        absent = self._swept + np.flatnonzero(self._state[self._swept : end] == ABSENT)
        self._swept = min(end, len(self._state))
        if len(absent):
            self._read(absent)

    def _read(self, grains: I64) -> None:
        """Start to read grains, each whole.

        Args:
            grains: by their places in memory, ascending.
        """
        begun, at_once = monotonic_ns(), max(1, LOAD_BYTES >> self._grains.bits)
        for first in range(0, len(grains), at_once):
            some = grains[first : first + at_once]
            self._loads.append(Load(some, self._begin(self._reads(some))))
            self._state[some] = COMING
        self._counter.submitted(begun)

    def _begin(self, reads: npt.NDArray[Any]) -> GuardedReads:
        size = int(reads["length"].sum())
        return GuardedReads.begin(
            self._source, size, lambda engine: engine.submit(reads, self._memory)
        )

    def _reads(self, grains: I64) -> npt.NDArray[Any]:
        """Return requests for grains: for neighbours in the file together."""
        size = self._grains.size
        at = self._grains.used[self._kept.start + grains]
        most = self._request_bytes_max // size
        is_new = np.ones(len(grains), np.bool_)
        is_new[1:] = np.diff(at) != 1
        run = np.cumsum(is_new) - 1
        within = np.arange(len(grains)) - np.flatnonzero(is_new)[run]
        first = np.flatnonzero(within % most == 0)
        count = np.diff(np.append(first, len(grains)))
        reads = np.zeros(len(first), _core.READ)
        reads["offset"] = at[first] * size
        needed = np.minimum(count * size, self._limit - at[first] * size)
        alignment = self._source.read_alignment
        reads["needed"] = needed
        reads["length"] = -(-needed // alignment) * alignment
        reads["into"] = self._memory.address + grains[first] * size
        return reads

    def _land(self, load: Load) -> bool:
        """Take in grains that have arrived; return whether all of a load have."""
        if not load.reads.poll():
            return False
        begun_s, ended_s = load.reads.ticket.times
        took_s = ended_s - max(begun_s, self._landed_s)  # not behind those before
        self.slowest_s, self._landed_s = max(took_s, 0.9 * self.slowest_s), ended_s
        self._state[load.grains] = PRESENT
        self._left -= len(load.grains)
        self._counter.warmed(load.reads.size)
        self._tell_reading()
        load.reads.close()
        return True
