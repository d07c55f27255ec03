"""shard_rows: the shard of the file that a root caches, and brings to all ranks in all epochs.

    owners, room of this root -> memory is taken, pages of the cache file are claimed
    block -> the records of this shard that any team uses in it
          -> grains that are not there yet: read whole (``PollingLoads``), for all later blocks
          -> rows that lie on the disk: brought to a region of a ring until it is used up; damaged
             ones, and those that the disk has not taken, are read from the data file
          -> handed on
    nothing to read for a block -> the next grains that are not there, in the order of the file

Each grain has one owner, which reads it once; so each byte leaves the file system once a job. A
grain that was read is never written again, and stays until the Reader ends; on a disk, longer.

Source: DeepIO (Zhu et al.), section III; locality-aware loading (Yang and Cong), section V; HDMLP
thesis, section 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import (
    LIMITS,
    CacheShard,
    LeftGrains,
    Region,
    SourceState,
    StagingRing,
    on_disk,
)
from lmdbio.observe.stats import Source
from lmdbio.placement.homes import Room
from lmdbio.placement.owners import room_of
from lmdbio.placement.sources import HomeSources, HybridSources
from lmdbio.planning.reads import PlanOptions
from lmdbio.reader.flow import Awaited
from lmdbio.reader.roots import RootSource
from lmdbio.reader.round_cache import BlockCache, LoadedRound, RootContext, RoundCache
from lmdbio.reader.rows import FileRows

__all__ = ["ShardRows", "ShardStore"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


class ShardStore:
    """The shard of one root; the system gives memory for it page by page, when it is used.

    Args:
        sources: says what the root brings.
        root: index of the root.
        room: room of the root.
        source: the root's open data set, and its cache file.
        left: grains that an earlier Reader of this process has left in memory; None: there are
            none.
        waits: whether nothing is handed out before all is there.

    Attributes:
        sources: the argument.
        shard: memory for the grains, and the cache file.

    Raises:
        MemoryError: there is no room for it.
        OSError: the cache file cannot be written.
    """

    def __init__(
        self,
        sources: HomeSources,
        root: int,
        room: Room,
        source: RootSource,
        left: LeftGrains | None,
        *,
        waits: bool,
    ) -> None:
        homes, limit = sources.homes, sources.homes.limit(root)
        file, index = source.cache_file, source.index
        back = None if file is None else on_disk(file, is_direct=True, limits=LIMITS)
        self._state = SourceState.of(index.locations, index.identity, index.metas())
        if left is not None and left.state != self._state:
            left = None
        self.sources, self._waits = sources, waits
        self.shard = CacheShard(homes, root, room, limit, back, LIMITS, left)

    def leave(self) -> LeftGrains | None:
        """Return the grains in memory, for the next Reader; before this one is closed."""
        return self.shard.leave(self._state)

    def warm(self, is_warm: bool) -> ShardStore:
        """Return this store, whose sources say from now on whether all is there beforehand."""
        self.sources = replace(self.sources, is_warm=is_warm)
        return self

    def open(self, context: RootContext) -> tuple[HomeSources | HybridSources, RoundCache[Any]]:
        """Return which root brings what by a schedule, and what this one has in memory.

        Args:
            context: values by which the root brings rows; borrowed.
        """
        sources = replace(self.sources, schedule=context.schedule)
        size = context.options.request_bytes_max
        shard = self.shard.open(context.source, size, context.counter)
        if not context.buffers.count:
            return sources, ShardRows(context, sources, shard, waits=self._waits)
        from lmdbio.reader.windows import Windows

        hybrid = HybridSources(sources)
        return hybrid, Windows(context, hybrid, shard, waits=self._waits)


class StagedRows:
    """Rows of one block that their shard has not in memory.

    Args:
        source: reads from the data file.
        options: options of the reads from the data file.
        shard: shard that has the rows, as far as its tier has taken them.
        extents: extents of the rows.
        ring: memory for what is read from the tier.

    Attributes:
        addresses: address of each row in memory, when all have arrived.
    """

    def __init__(
        self,
        source: RootSource,
        options: PlanOptions,
        shard: CacheShard,
        extents: _core.Extents,
        ring: StagingRing,
    ) -> None:
        self._source, self._options, self._ring = source, options, ring
        self._extents = extents
        self._region: Region | None = None
        self._rows = shard.read_apart(extents, self._take)
        self.addresses: U64 = self._rows.addresses
        self._file_rows: FileRows | None = None
        self._memory: _core.Memory | None = None  # of rows from the data file

    def _take(self, size: int) -> tuple[_core.Memory, int]:
        self._region = self._ring.take(size)
        if self._region is None:
            raise MemoryError(f"{self._source.index.path}: rows need more memory than was there")
        return self._region.memory, self._region.address

    @property
    def lost(self) -> Flags:
        """The rows that are, or were, read from the data file."""
        return self._rows.lost

    @property
    def awaited(self) -> Awaited | None:
        """Reads that are under way; None: there are none."""
        return self._rows.awaited or (self._file_rows and self._file_rows.reads.awaited)

    def poll(self) -> bool:
        """Return whether all rows are in memory.

        Raises:
            OSError, Error: the data file cannot be read, or has changed.
        """
        if not self._rows.poll():
            return False
        if self._rows.is_abandoned and self._region is not None:
            self._ring.leave()
            self._region = None
        if self._memory is None and self.lost.any():
            self._read_lost()
        if self._file_rows is not None:
            if not self._file_rows.poll():
                return False
            self._file_rows = None
        return True

    def _read_lost(self) -> None:
        """Start to read rows from the data file."""
        rows = np.flatnonzero(self.lost)
        extents = self._extents[rows]
        room = room_of(extents["length"])
        ends = np.cumsum(room)
        self._memory = _core.Memory(max(1, int(ends[-1])))
        self.addresses[rows] = (ends - room).astype(np.uint64) + np.uint64(self._memory.address)
        self._file_rows = FileRows(self._source, self._options, extents, self.addresses[rows])

    def release(self) -> None:
        """Give the memory back: nobody uses the rows any more."""
        if self._region is not None:
            self._ring.give_back(self._region)

    def close(self) -> None:
        """Give up what is under way."""
        self._rows.close()
        if self._file_rows is not None:
            self._file_rows.close()
        self._file_rows = None


@dataclass(slots=True, kw_only=True)
class ShardBlock(LoadedRound):
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

    def close(self) -> None:
        """Give up what is under way."""
        LoadedRound.close(self)
        if self.staged is not None:
            self.staged.close()

    def by_source(self, records: I64) -> Iterator[tuple[Source, Flags]]:
        """Yield the sources of some of its records, and which of them come from each."""
        if self.staged is None:
            yield "own", np.ones(len(records), np.bool_)
            return
        # Of all records of the block: 0 in memory, 1 on the disk, 2 in the file alone.
        kinds = np.zeros(len(self.uses.records), np.uint8)
        kinds[self.apart] = 1 + self.staged.lost
        found = kinds[np.searchsorted(self.uses.records, records)]
        sources: tuple[Source, ...] = ("own", "disk", "file")
        for kind, source in enumerate(sources):
            yield source, found == kind


class ShardRows(BlockCache[ShardBlock]):
    """The rows of one root's shard.

    Args:
        sources: says what the root brings.
        context, shard, waits: arguments of ``RoundCache``.
    """

    def __init__(
        self, context: RootContext, sources: HomeSources, shard: CacheShard, *, waits: bool
    ) -> None:
        super().__init__(context, shard, waits=waits)
        self._sources, self._team, self._own = sources, context.root, shard
        self._table, self._polling = shard.table, shard.polling
        self._address = shard.memory.address
        self._ring = StagingRing(context.stage_bytes_max)
        self._is_held_up = False

    @property
    def awaited(self) -> Awaited | None:
        """The oldest reads or writes that are under way; None: there are none."""
        first = next((block for block in self._rounds if not block.has_arrived), None)
        if first is not None and first.staged is not None and first.staged.awaited is not None:
            return first.staged.awaited
        return self._polling.awaited

    @property
    def is_held_up(self) -> bool:
        """Whether a block cannot be staged beside those before it, which others have not taken."""
        return self._is_held_up

    def _release(self, one: ShardBlock) -> None:
        if one.staged is not None:
            one.staged.release()

    def free(self) -> None:
        """Free the memory of all grains, and of rows on their way."""
        super().free()
        del self._ring

    # --- blocks

    def _read_ahead(self, number: int) -> ShardBlock:
        """Find what a block needs of this shard, and start to read what is not there."""
        begun = monotonic_ns()
        uses = self._sources.uses(number, self._team)
        extents = self._source.index.extents(uses.records.view(np.uint64))
        places, apart = self._table.places(extents), self._table.apart(extents)
        aside = np.empty(0, np.int64) if apart is None else np.flatnonzero(apart)
        self._counter.span("locate", begun, located_records=len(uses.records))
        back = self._own.back
        return ShardBlock(
            number=number,
            uses=uses,
            loaded=_core.Loaded(uses.records, extents, places, self._address),
            own_left=0 if self._is_for_others else uses.own,
            absent=self._polling.want(extents),
            places=places,
            apart=aside,
            stage_bytes=0 if back is None else back.room_for(extents[aside]),
        )

    def _hand_on_in_order(self) -> None:
        """Hand on blocks that are there: other roots expect rows in the order of blocks.

        Rows of the next ones are staged meanwhile.
        """
        is_next = True
        for block in self._rounds:
            if block.has_arrived:
                continue
            if not block.is_there:
                block.is_there = self._is_there(block)
            is_next &= block.is_there
            if is_next:
                self._hand_on(block)
            elif block.staged is None:
                break

    def _is_there(self, block: ShardBlock) -> bool:
        """Return whether all rows of a block are in memory; stage those that are on the disk."""
        block.absent = self._polling.still_missing(block.absent)
        if len(block.absent) and self._polling.is_stuck:
            self._do_without(block)
        return not len(block.absent) and (not len(block.apart) or self._stage(block))

    def _do_without(self, block: ShardBlock) -> None:
        """Read rows from the data file whose grains wait for a disk that does not answer."""
        is_apart = self._table.touches(block.loaded.extents, block.absent)
        is_apart[block.apart] = True
        block.apart, block.absent = np.flatnonzero(is_apart), block.absent[:0]

    # --- rows that are not in memory

    def _stage(self, block: ShardBlock) -> bool:
        """Bring rows of a block to memory that are not there; return whether they are by now."""
        if block.staged is None:
            block.staged = self._begin_to_stage(block)
            self._is_held_up = block.staged is None and self._rounds[0].has_arrived
            if block.staged is None:
                return False
        staged_rows = block.staged
        if not staged_rows.poll():
            return False
        base = np.uint64(self._address)
        block.places[block.apart] = staged_rows.addresses - base  # modulo 2**64, as C adds it
        return True

    def _begin_to_stage(self, block: ShardBlock) -> StagedRows | None:
        """Start to bring rows to memory; None: there is no room beside those of other blocks."""
        if not self._ring.has_room(block.stage_bytes):
            return None
        extents = block.loaded.extents[block.apart]
        return StagedRows(self._source, self._options, self._own, extents, self._ring)
