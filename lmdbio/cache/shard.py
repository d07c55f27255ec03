"""CacheShard: the part of a file that one process, or one root, keeps, grain by grain.

    the first grains   memory, from which records are lent
    the last ones      another tier, a disk for instance; some are in both
    rows of these      read from there, compared, and lost where they are damaged: the user reads
                       them from the data file, and their grains are written again

Its grains are read when a record in them is first needed (``waiting``), or by a thread that also
reads what nobody needs yet (``polling``). Rows that are lent from memory need no look at the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.loads import GrainLoads
from lmdbio.cache.polling import PollingLoads
from lmdbio.cache.source import SourceState
from lmdbio.cache.table import PRESENT, GrainTable
from lmdbio.cache.tier import LIMITS, CacheLimits, Take, Tier, TierReads
from lmdbio.cache.waiting import WaitingLoads
from lmdbio.observe.stats import StageCounter, Stats
from lmdbio.placement.homes import Homes, Room
from lmdbio.reading.guarded import GuardedSource

__all__ = ["ApartRows", "CacheShard", "LeftGrains"]

U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


class ApartRows:
    """Rows that are read from a tier.

    Args:
        table: grains of the shard.
        loads: loads that bring damaged grains once more.
        back: tier that keeps them.
        extents: places of the rows in the data file; none is empty.
        take: gives memory for them.

    Attributes:
        addresses: address of each row in memory, of those that are not lost.
        lost: mask of the rows that only the data file has; final when ``poll`` has said True.
        is_abandoned: whether the tier has not answered, and may still fill the memory.
    """

    def __init__(
        self,
        table: GrainTable,
        loads: GrainLoads,
        back: Tier,
        extents: _core.Extents,
        take: Take,
    ) -> None:
        self._loads, self._back, self.is_abandoned = loads, back, False
        self.lost: Flags = table.lacks(extents) | back.is_away
        self.addresses: U64 = np.zeros(len(extents), np.uint64)
        self._reads: TierReads | None = None
        if not self.lost.all():
            self._reads = back.read_rows(extents[~self.lost], take)
            self.addresses[~self.lost] = self._reads.addresses

    @property
    def awaited(self) -> TierReads | None:
        """The reads that are under way; None: there are none."""
        return self._reads

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether nothing is under way any more, after ``timeout_ms`` at most."""
        reads = self._reads
        if reads is None:
            return True
        if not reads.poll(timeout_ms):
            if not reads.is_late:
                return False
            reads.abandon()
            self.is_abandoned = True
        self.lost[np.flatnonzero(~self.lost)[~reads.right()]] = True
        if len(reads.damaged) and not self._back.is_over:  # which is asked no more
            self._loads.forget(reads.damaged)
        self._reads = None
        return True

    def close(self) -> None:
        """Give up what is under way."""
        if self._reads is not None:
            self._reads.close()
        self._reads = None


class LeftGrains(NamedTuple):
    """The grains that a closed shard has left in memory, for the next one of the same part.

    Attributes:
        state: state of the data file that they were read from.
        shard: the closed shard; nothing of it is under way any more.
        memory: memory of its grains.
    """

    state: SourceState
    shard: CacheShard
    memory: _core.Memory

    @property
    def present(self) -> npt.NDArray[np.int64]:
        """The grains that are there, by their places in the shard."""
        return np.flatnonzero(self.shard.table.front == PRESENT)

    @property
    def present_bytes(self) -> int:
        """Bytes of memory that the grains take, about."""
        return len(self.present) * self.shard.table.map.size

    def suits(self, table: GrainTable) -> bool:
        """Return whether a shard with this table may go on with them."""
        back = self.shard.back
        return table.has_memory_of(self.shard.table) and (back is None or not back.was_stuck)


class CacheShard:
    """A part of a file in memory, and in a tier behind it.

    Threads may share it. After fork the child goes on with a copy of its own, and reads what is on
    the disk by then.

    Args:
        homes: owners of the file's records.
        number: number of the shard's owner.
        room: capacity of each tier.
        limit: end of what is needed of the data file, bytes.
        back: opens the tier behind memory; None: there is none.
        limits: bounds of what is under way, and of the trust in a tier.
        left: grains in memory that a shard of the same part of the same file has left; None:
            there are none.

    Attributes:
        table: grains of the shard, and their states.
        back: tier that keeps the last ones; None: there is none.

    Raises:
        MemoryError: there is no memory.
        OSError: the tier behind it cannot be opened.
    """

    def __init__(
        self,
        homes: Homes,
        number: int,
        room: Room,
        limit: int,
        back: Callable[[GrainTable], Tier | None] | None = None,
        limits: CacheLimits = LIMITS,
        left: LeftGrains | None = None,
    ) -> None:
        self.table = GrainTable(homes, number, Room(room.memory) if back is None else room, limit)
        if left is not None and left.suits(self.table):
            memory = left.memory
            self.table.mark(self.table.front, left.present, PRESENT)
        else:
            memory = _core.MappedMemory(max(1, self.tier_bytes[0]))
        self.back = None if back is None else back(self.table)
        if self.back is not None:
            there = self.back.places.start + np.flatnonzero(self.back.left())
            self.table.mark(self.table.back, there, PRESENT)
        self._loads = GrainLoads(self.table, memory, self.back, limits)
        self.waiting, self.polling = WaitingLoads(self._loads), PollingLoads(self._loads)

    def open(
        self, source: GuardedSource, request_bytes_max: int, counter: StageCounter
    ) -> CacheShard:
        """Have it filled from now on, and return it.

        Args:
            source: open data set and its engines; borrowed.
            request_bytes_max: bytes per request to the data file.
            counter: counts what is submitted, waited for and kept.
        """
        self._loads.open(source, request_bytes_max, counter)
        return self

    @property
    def kept_bytes(self) -> int:
        """Bytes of the file that it keeps, or will."""
        return len(self.table.owned) * self.table.map.size

    @property
    def tier_bytes(self) -> tuple[int, int]:
        """Bytes of the file that it keeps, or will, in memory and behind it."""
        tiers, size = self.table.tiers, self.table.map.size
        return len(tiers.memory) * size, len(tiers.disk) * size

    @property
    def is_behind(self) -> bool:
        """Whether all that is to be in the tier behind memory is there."""
        return bool((self.table.back[self.table.tiers.disk.start :] == PRESENT).all())

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory for what it keeps; 0 after ``close``."""
        memory = self._loads.front
        return 0 if memory is None else memory.size

    @property
    def memory(self) -> _core.Memory:
        """The grains in memory, one behind the other; good as long as anybody holds it.

        Raises:
            Error: it is closed.
        """
        return self._loads.memory

    def leave(self, state: SourceState) -> LeftGrains | None:
        """Return the grains in memory, which outlive this shard; None: it is closed.

        Args:
            state: state of the data file when it was opened.
        """
        memory = self._loads.front
        return None if memory is None else LeftGrains(state, self, memory)

    @property
    def counts(self) -> Stats:
        """The memory for what is kept, what is on the disk, and what that has damaged."""
        if self.back is None:
            return Stats(cache_bytes=self.memory_bytes)
        return Stats(
            cache_bytes=self.memory_bytes,
            cache_disk_bytes=self.back.kept_bytes,
            damaged_pages=self.back.damaged_pages,
        )

    # --- records

    def covered(self, extents: _core.Extents) -> Flags | None:
        """Return which records can be had from here, empty ones included; None: all."""
        return self.table.covered(extents, is_away=self.back is not None and self.back.is_away)

    def read_apart(self, extents: _core.Extents, take: Take) -> ApartRows:
        """Start to read records that are covered, and do not lie in memory as a whole.

        Args:
            extents: places of the records in the data file.
            take: gives memory for them.
        """
        assert self.back is not None
        return ApartRows(self.table, self._loads, self.back, extents, take)

    # --- threads that wait

    def start(self, extents: _core.Extents) -> None:
        """Start to read the grains of records that are covered, as far as they are absent.

        Raises:
            Error: it is closed.
        """
        if self.memory is not None and not self.table.is_full:
            self.waiting.start(self.table.under(extents))

    def bring(self, extents: _core.Extents) -> None:
        """Wait until the grains of records that are covered are present, or lost.

        Those of a tier that does not answer may still be absent.

        Raises:
            Error: the file has moved on, or it is closed.
        """
        if self.memory is not None and not self.table.is_full:
            self.waiting.bring(self.table.under(extents))

    def preload(self) -> None:
        """Read all grains.

        Raises:
            Error: the file has moved on.
        """
        self.waiting.bring(np.ones(len(self.table.owned), np.bool_), ahead=True)

    def close(self) -> None:
        """Give up what is under way, and the memory, unless somebody holds that; unlock the file.

        May be called twice, and before ``open``.
        """
        self._loads.close()
        if self.back is not None:
            self.back.close()
