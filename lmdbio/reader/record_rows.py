"""record_rows: records that a root caches one by one, and brings to all ranks in all later epochs.

    block -> the records of this root that any team uses in it
          -> those that are not there yet: read together with others, in the order of the file
             (``FileRows``), and copied to their places, where they stay
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

from lmdbio import _core
from lmdbio.observe.stats import Source, Stats
from lmdbio.placement.base import Placement
from lmdbio.placement.owners import RecordSources, room_of
from lmdbio.placement.sources import RoundUses
from lmdbio.planning.reads import spread
from lmdbio.reader.flow import Awaited
from lmdbio.reader.roots import RootSource
from lmdbio.reader.round_cache import BlockCache, LoadedRound, RootContext
from lmdbio.reader.rows import FileRows

__all__ = ["RecordRows", "RecordStore", "record_rooms"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

#: Of a record.
ABSENT, COMING, PRESENT = range(3)
#: Fetches that are under way; each has a buffer of a part of the memory, within these bounds.
FETCHES, BUFFER_PART, BUFFER_BYTES_MIN, BUFFER_BYTES_MAX = 2, 20, 64 << 10, 8 << 20
#: Records that are looked at at once.
PART = 2**16


@dataclass(slots=True, kw_only=True)
class RecordBlock(LoadedRound):
    """The cached records of a root that are used in one block.

    Attributes:
        absent: records that it waits for, by their places among the cached ones.
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
    """Records on their way, by their places among the cached ones."""

    places: I64
    rows: FileRows


class RecordRows(BlockCache[RecordBlock]):
    """The records that one root caches.

    Args:
        sources: says what the root brings.
        memory: memory for the records.
        context, waits: arguments of ``RoundCache``.
    """

    def __init__(
        self,
        context: RootContext,
        sources: RecordSources,
        memory: _core.Memory,
        *,
        waits: bool,
    ) -> None:
        super().__init__(context, waits=waits)
        self._sources, self._root, self._memory = sources, context.root, memory
        self._records = sources.owners.owned(context.root)
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
            raise RuntimeError(f"{self._size} bytes are cached in {memory.size}")
        self._addresses: U64 = (ends - sizes).astype(np.uint64) + np.uint64(memory.address)
        part = self._size // BUFFER_PART
        self._buffer_bytes = min(max(part, BUFFER_BYTES_MIN), BUFFER_BYTES_MAX)
        mean = max(1, self._size // max(1, len(self._records)))
        self._at_once = min(max(1, self._buffer_bytes // mean), PART)  # records of a buffer, about
        self._pool = _core.MemoryPool()
        self._wanted: deque[I64] = deque()
        self._coming: deque[_Coming] = deque()
        self._landed_s = 0.0
        if waits:
            self._want(np.argsort(begins, kind="stable"))

    def _extents(self, places: I64) -> _core.Extents:
        """Return where records lie in the file, by their places among the cached ones."""
        return self._source.index.extents(self._records[places].view(np.uint64))

    @property
    def awaited(self) -> Awaited | None:
        """The oldest reads that are under way; None: there are none."""
        return self._coming[0].rows.reads.awaited if self._coming else None

    @property
    def counts(self) -> Stats:
        """The memory for what is cached."""
        return Stats(cache_bytes=0 if self._is_closed else self._size)

    @property
    def is_cold(self) -> bool:
        """Whether records are missing that are to be there before anything is handed out."""
        return not self._is_closed and self._waits and self._left > 0

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes of records that are there, about, and of all of them."""
        count = len(self._records)
        return self._size * (count - self._left) // max(1, count), self._size

    def _advance(self) -> None:
        while self._coming and self._land(self._coming[0]):
            self._coming.popleft()
        self._fetch()
        super()._advance()

    def close(self) -> None:
        """Give up what is under way."""
        super().close()
        for coming in self._coming:
            coming.rows.close()
        self._coming.clear()
        self._wanted.clear()

    def free(self) -> None:
        """Free the memory of all records."""
        self._memory = _core.Memory(1)
        del self._pool

    # --- blocks

    def _read_ahead(self, number: int) -> RecordBlock:
        """Find what a block needs of this root, and start to read what is not there."""
        begun = monotonic_ns()
        uses = self._sources.uses(number, self._root)
        extents = self._source.index.extents(uses.records.view(np.uint64))
        places = np.searchsorted(self._records, uses.records)
        self._counter.span("locate", begun, located_records=len(uses.records))
        absent, fresh = self._find_absent(uses, places)
        self._fetch()
        return RecordBlock(
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

    def _is_there(self, one: RecordBlock) -> bool:
        one.absent = one.absent[self._states[one.absent] != PRESENT]
        return not len(one.absent)

    # --- reading

    def _want(self, places: I64) -> None:
        """Read records as soon as there is a buffer for them."""
        self._states[places] = COMING
        step = self._at_once
        self._wanted.extend(places[i : i + step] for i in range(0, len(places), step))

    def _fetch(self) -> None:
        """Start to read what is wanted: the first of it, with all that has room beside it."""
        while self._wanted and len(self._coming) < FETCHES and not self._is_closed:
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
            rows = FileRows(
                self._source,
                self._options,
                extents[order],
                self._addresses[places[order]],
                self._pool,
                may_bypass=True,
            )
            self._coming.append(_Coming(places[order], rows))
            self._counter.planned(begun, rows.totals)

    def _land(self, coming: _Coming) -> bool:
        """Take in records that have arrived; return whether they have."""
        if not coming.rows.poll():
            return False
        begun_s, ended_s = coming.rows.reads.ticket.times
        took_s = ended_s - max(begun_s, self._landed_s)  # not behind those before
        self._landed_s = ended_s
        self._slowest_s = max(took_s, 0.9 * self._slowest_s)
        coming.rows.close()
        self._states[coming.places] = PRESENT
        self._left -= len(coming.places)
        self._counter.count(warm_bytes=coming.rows.totals.buffer_bytes)
        self._sign()
        return True


@dataclass(frozen=True, slots=True)
class RecordStore:
    """The memory for the records that one root caches.

    Attributes:
        rule: placement by which roots cache them.
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

    def open(self, context: RootContext) -> tuple[RecordSources, RecordRows]:
        """Return which root brings what by a schedule, and what this one has in memory.

        Args:
            context: values by which the root brings rows; borrowed.
        """
        schedule, sizes = context.schedule, record_rooms(context.source)
        owners = self.rule.owners(schedule, sizes, self.rooms, is_warm=self.is_warm)
        sources = RecordSources(schedule, owners)
        return sources, RecordRows(context, sources, self.memory, waits=self.is_warm)


def record_rooms(source: RootSource) -> I64:
    """Return the bytes that each record takes in memory."""
    return np.concatenate([room_of(extents["length"]) for extents in source.all_extents()])
