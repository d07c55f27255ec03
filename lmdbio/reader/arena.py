"""Arena: records that a root keeps one by one, and brings to all ranks in all later epochs.

    block -> the records of this root that any team uses in it
          -> those that are not there yet: read together with others (``Fetch``), there for ever
          -> handed on

A record has its place from the beginning, behind those of lower numbers. One that was read is
never written again, and stays until the Reader ends.

Source: LBANN's data store; locality-aware loading (Yang and Cong), section V; HDMLP thesis,
section 4.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.cache import Region, StagingRing
from lmdbio.locate.cursor_walk import CursorWalk
from lmdbio.observe.stats import Source, StageCounter, Stats
from lmdbio.placement.base import Placement
from lmdbio.placement.keepers import RecordSources, room_of
from lmdbio.placement.sources import RoundUses
from lmdbio.planning.reads import PlanOptions, spread
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.fetching import Fetch
from lmdbio.reader.flight import Awaited
from lmdbio.reader.holdings import BLOCKS_AT_ONCE, Holding, Holdings, KeptHoldings
from lmdbio.reader.roots import RootSource

__all__ = ["Arena", "RecordStore", "record_rooms"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

#: Of a record.
ABSENT, COMING, PRESENT = range(3)
#: Fetches that are under way; each has a buffer of a part of the memory, within these bounds.
FETCHES, BUFFER_PART, BUFFER_BYTES_MIN, BUFFER_BYTES_MAX = 2, 20, 64 << 10, 8 << 20
#: Records that are looked at at once.
PART = 2**16
#: Records whose extents are asked of the index at once.
EXTENTS_CHUNK = 2**18


@dataclass(slots=True, kw_only=True)
class Span(Holding):
    """The records of an arena that are used in one block.

    Attributes:
        absent: records that it waits for, by their places in the arena.
        fresh: records that are read for it, ascending.
    """

    absent: I64
    fresh: I64

    def by_source(self, records: I64) -> Iterator[tuple[Source, Flags]]:
        """Yield the sources of some of its records, and which of them come from each."""
        is_first = np.zeros(len(records), np.bool_)
        if len(self.fresh):
            is_first[np.unique(records, return_index=True)[1]] = True
            is_first &= np.isin(records, self.fresh)
        yield "file", is_first
        yield "own", ~is_first


class _Coming(NamedTuple):
    """Records on their way, by their places in the arena; and the region that they are read to."""

    places: I64
    fetch: Fetch
    region: Region


class Arena(KeptHoldings[Span]):
    """The records that one root keeps.

    Args:
        source: the root's open data set and engines; borrowed.
        sources: says what the root brings.
        root: index of the root in the schedule.
        memory: memory for the records.
        options: options of the reads.
        exchange: takes rows to other roots; None: this is the only one.
        counter: counts what is located, submitted and kept.
        waits: whether nothing is handed out before all is there.
    """

    def __init__(
        self,
        source: RootSource,
        sources: RecordSources,
        root: int,
        memory: _core.Memory,
        options: PlanOptions,
        exchange: share.Exchange | None,
        counter: StageCounter,
        *,
        waits: bool,
    ) -> None:
        super().__init__(sources.schedule.blocks, exchange)
        self._source, self._sources, self._root = source, sources, root
        self._memory, self._options, self._counter = memory, options, counter
        self._records = sources.keepers.kept(root)
        self._states = np.zeros(len(self._records), np.uint8)
        self._left = len(self._records)  # records that are not there
        sizes = np.zeros(len(self._records), np.int64)
        begins = np.zeros(len(self._records), np.uint64)
        for first in range(0, len(self._records), PART):
            extents = self._extents(np.arange(first, min(len(self._records), first + PART)))
            sizes[first : first + PART] = room_of(extents["length"])
            begins[first : first + PART] = extents["offset"]
        ends = np.cumsum(sizes)
        self._size = int(ends[-1]) if len(ends) else 0
        if self._size > memory.size:
            raise RuntimeError(f"{self._size} bytes are kept in {memory.size}")
        self._addresses: U64 = (ends - sizes).astype(np.uint64) + np.uint64(memory.address)
        part = self._size // BUFFER_PART
        self._buffer_bytes = min(max(part, BUFFER_BYTES_MIN), BUFFER_BYTES_MAX)
        mean = max(1, self._size // max(1, len(self._records)))
        self._at_once = min(max(1, self._buffer_bytes // mean), PART)  # records of a buffer, about
        self._ring = StagingRing(FETCHES * self._buffer_bytes)
        self._wanted: deque[I64] = deque()
        self._coming: deque[_Coming] = deque()
        self._waits = waits
        self._landed_s = 0.0
        if waits:
            self._want(np.argsort(begins, kind="stable"))

    def _extents(self, places: I64) -> _core.Extents:
        """Return where records lie in the file, by their places in the arena."""
        return self._source.index.extents(self._records[places].view(np.uint64))

    @property
    def awaited(self) -> Awaited | None:
        """The oldest reads that are under way; None: there are none."""
        reads = self._coming[0].fetch.reads if self._coming else None
        return None if reads is None else reads.awaited

    @property
    def counts(self) -> Stats:
        """The memory for what is kept."""
        return Stats(cache_bytes=0 if self._has_ended else self._size)

    @property
    def is_cold(self) -> bool:
        """Whether records are missing that are to be there before anything is handed out."""
        return not self._has_ended and self._waits and self._left > 0

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes of records that are there, about, and of all of them."""
        count = len(self._records)
        return self._size * (count - self._left) // max(1, count), self._size

    def tend(self) -> None:
        """Hand on blocks whose records are there, look at more blocks, and read what they need.

        Raises:
            OSError, Error: a record cannot be read.
        """
        while self._coming and self._land(self._coming[0]):
            self._coming.popleft()
        self._fetch()
        self._hand_on_in_order()
        while self._spans and self._spans[0].is_used_up:
            self._spans.popleft()
        for _ in range(BLOCKS_AT_ONCE):
            if self._may_look_ahead():
                self._spans.append(self._look_at(self._next))
                self._next += 1
                self._fetch()
                self._hand_on_in_order()

    def close(self) -> None:
        """Give up what is under way."""
        self._has_ended = True
        for coming in self._coming:
            coming.fetch.close()
        for span in self._spans:
            span.copies.clear()
        self._coming.clear()
        self._wanted.clear()
        self._spans.clear()

    def free(self) -> None:
        """Free the memory of all records."""
        self._memory = _core.Memory(1)
        del self._ring

    # --- blocks

    def _look_at(self, number: int) -> Span:
        """Find what a block needs of this root, and start to read what is not there."""
        begun = monotonic_ns()
        uses = self._sources.uses(number, self._root)
        extents = self._source.index.extents(uses.records.view(np.uint64))
        places = np.searchsorted(self._records, uses.records)
        self._counter.span("locate", begun, located_records=len(uses.records))
        absent, fresh = self._find_absent(uses, places)
        return Span(
            number=number,
            uses=uses,
            loaded=_core.Loaded(uses.records, extents, self._addresses[places], 0),
            own_left=0 if self._is_for_others else uses.own,
            absent=absent,
            fresh=fresh,
        )

    def _find_absent(self, uses: RoundUses, places: I64) -> tuple[I64, I64]:
        """Return what a block waits for, and which records are read for it from now on."""
        if not self._left:
            return places[:0], places[:0]
        if self._is_for_others:  # who use some of them, or none
            places = places[uses.order]
        absent = np.unique(places[self._states[places] != PRESENT])
        new = absent[self._states[absent] == ABSENT]
        if len(new):
            self._want(new)
        return absent, self._records[new]

    def _hand_on_in_order(self) -> None:
        """Hand on blocks that are there: other roots expect rows in the order of blocks."""
        for span in self._spans:
            if span.has_arrived:
                continue
            if len(span.absent):
                span.absent = span.absent[self._states[span.absent] != PRESENT]
            if len(span.absent):
                break
            self._hand_on(span)

    # --- reading

    def _want(self, places: I64) -> None:
        """Read records as soon as there is a buffer for them."""
        self._states[places] = COMING
        step = self._at_once
        self._wanted.extend(places[i : i + step] for i in range(0, len(places), step))

    def _fetch(self) -> None:
        """Start to read what is wanted: the first of it, with all that has room beside it."""
        while self._wanted and len(self._coming) < FETCHES and not self._has_ended:
            begun = monotonic_ns()
            some = [self._wanted.popleft()]
            while self._wanted and sum(map(len, some)) + len(self._wanted[0]) <= self._at_once:
                some.append(self._wanted.popleft())
            places = np.concatenate(some)
            extents = self._extents(places)
            order = np.argsort(extents["offset"], kind="stable")
            ends = np.cumsum(spread(extents[order], self._options.gap_bytes_max))
            fits = max(1, int(np.searchsorted(ends, self._buffer_bytes, side="right")))
            if fits < len(order):
                self._wanted.appendleft(places[order[fits:]])
                order = order[:fits]
            fetch = Fetch(self._source, self._options, extents[order])
            region = self._ring.take(fetch.size)
            if region is None:  # of a record that is larger than a buffer
                self._wanted.appendleft(places[order])
                break
            fetch.start(region)
            self._coming.append(_Coming(places[order], fetch, region))
            self._counter.planned(begun, fetch.totals)

    def _land(self, coming: _Coming) -> bool:
        """Take in records that have arrived; return whether they have."""
        fetch = coming.fetch
        if not fetch.poll():
            return False
        begun_s, ended_s = fetch.times
        took_s = ended_s - max(begun_s, self._landed_s)  # not behind those before
        self._landed_s = ended_s
        self.slowest_s = max(took_s, 0.9 * self.slowest_s)
        fetch.copy_to(self._addresses[coming.places])
        fetch.close()
        self._ring.give_back(coming.region)
        self._states[coming.places] = PRESENT
        self._left -= len(coming.places)
        self._counter.count(warm_bytes=fetch.totals.buffer_bytes)
        self._tell_reading()
        return True


@dataclass(frozen=True, slots=True)
class RecordStore:
    """The memory for the records that one root keeps.

    Attributes:
        rule: placement by which roots keep them.
        root: index of the root in the schedule.
        rooms: size of each root's memory, bytes.
        memory: memory of this root.
        is_warm: whether all is read before the first block.
    """

    rule: Placement
    root: int
    rooms: tuple[int, ...]
    memory: _core.Memory
    is_warm: bool = False

    def warm(self, is_warm: bool) -> RecordStore:
        """Return the same store, which says whether all of it is read beforehand."""
        return replace(self, is_warm=is_warm)

    def open(
        self,
        source: RootSource,
        schedule: Schedule,
        options: PlanOptions,
        exchange: share.Exchange | None,
        counter: StageCounter,
    ) -> tuple[RecordSources, Holdings]:
        """Return which root brings what by a schedule, and what this one holds.

        Args:
            source: the root's open data set and engines; borrowed.
            schedule: schedule of the job.
            options: options of the reads.
            exchange: takes rows to other roots; None: nothing is sent.
            counter: counts what is located, planned and submitted.
        """
        sizes = record_rooms(source, schedule.count)
        keepers = self.rule.keepers(schedule, sizes, self.rooms, is_warm=self.is_warm)
        sources = RecordSources(schedule, keepers)
        arena = Arena(
            source, sources, self.root, self.memory, options, exchange, counter, waits=self.is_warm
        )
        return sources, arena


def record_rooms(source: RootSource, count: int) -> I64:
    """Return the bytes that each record takes in memory."""
    index = source.index
    assert not isinstance(index, CursorWalk)  # refused with the arguments
    rooms = np.empty(count, np.int64)
    for first in range(0, count, EXTENTS_CHUNK):
        last = min(count, first + EXTENTS_CHUNK)
        rooms[first:last] = room_of(index.run(first, last)["length"])
    return rooms
