"""Copied: records of other homes that a root has copied out of its blocks, for its own team.

    block is there -> its rows of records that are to be copied, and are not yet -> memory
    later block    -> rows that the schedule says are copied (``planning.copies``) <- memory

A copy is made once, and never written again. Its rows were guarded before they were sent, and
nothing is read from the file for them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.observe.stats import StageCounter, Stats
from lmdbio.planning.copies import COPIED, CopiedSources, copy_most_used
from lmdbio.planning.keepers import Keepers, room_of
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.sources import BlockSources, RoundUses
from lmdbio.reader.holdings import Holding
from lmdbio.reader.home import Home
from lmdbio.reader.home_store import HomeStore
from lmdbio.reader.record_store import record_lengths
from lmdbio.reader.roots import RootSource
from lmdbio.reader.rows import Assembly
from lmdbio.system.log import tell

__all__ = ["CopyingHome", "with_copies"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


def with_copies(store: HomeStore, source: RootSource) -> HomeStore:
    """Return a root's store whose sources know all copies; the same one where there are none.

    Args:
        store: whose schedule has its blocks.
        source: what the root reads with, and from.
    """
    home = store.sources
    sizes = room_of(record_lengths(source, home.schedule.count))
    copies = copy_most_used(home.schedule, home.homes, sizes, store.spares)
    if copies is None:
        tell(
            f"{source.index.path}: no copies are kept: one root, or an epoch shorter than a block"
        )
        return store
    sources = CopiedSources(home.schedule, home.homes, home.is_warm, copies)
    return replace(store, sources=sources)


class _Copies:
    """The copies of one root.

    Args:
        copies: of all roots.
        root: whose.
        source: where records lie.

    Attributes:
        size: bytes of memory for them.
    """

    def __init__(self, copies: Keepers, root: int, source: RootSource) -> None:
        self._source, self._records = source, copies.kept(root)
        rooms = room_of(record_lengths(source, len(copies.begins) - 1)[self._records])
        self.size = int(rooms.sum())
        self._memory = _core.MappedMemory(max(1, self.size))
        begins = (np.cumsum(rooms) - rooms).astype(np.uint64)
        self._addresses: U64 = begins + np.uint64(self._memory.address)
        self._is_there = np.zeros(len(rooms), np.bool_)
        self._left = len(rooms)

    def take(self, records: I64, addresses: U64, lengths: U64) -> None:
        """Copy those of some rows that are to be copied, and are not yet."""
        if not self._left:
            return
        places = np.searchsorted(self._records, records)
        places[places == len(self._records)] = 0
        is_new = (self._records[places] == records) & ~self._is_there[places]
        rows = np.flatnonzero(is_new)
        new, first = np.unique(places[rows], return_index=True)
        rows = rows[first]
        _core.copy_rows(addresses[rows], lengths[rows], self._addresses[new])
        self._is_there[new] = True
        self._left -= len(new)

    def bring(self, records: I64) -> Holding:
        """Return the copies of some rows; they have not arrived where a block before has not."""
        wanted = np.unique(records)
        places = np.searchsorted(self._records, wanted)
        if not self._is_there[places].all():
            wanted, places = wanted[:0], places[:0]
        extents = self._source.index.extents(wanted.view(np.uint64))
        nobody = np.empty(0, np.int64)
        return Holding(
            number=COPIED,
            uses=RoundUses(wanted, len(records), nobody, nobody, nobody, np.zeros(1, np.int64)),
            loaded=_core.Loaded(wanted, extents, self._addresses[places], 0),
            own_left=len(records),
            has_arrived=len(wanted) > 0,
        )


class CopyingHome(Home):
    """The home of one root, which keeps copies of what its team uses besides.

    Args:
        As ``Home``; the sources of its store have copies.
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
        super().__init__(source, store, options, stage_bytes_max, exchange, counter)
        assert isinstance(store.sources, CopiedSources) and store.sources.copies is not None
        self._copies: _Copies | None = _Copies(store.sources.copies, store.root, source)

    @property
    def counts(self) -> Stats:
        """The memory for the home and its copies, and what is on a disk."""
        copies = None if self._has_ended else self._copies  # another thread may free them
        size = 0 if copies is None else copies.size
        return super().counts + Stats(cache_bytes=size)

    def find(self, sources: BlockSources, run: int) -> Holding | None:
        """Return what there is for a run of a block's rows; None: nothing yet."""
        if int(sources.rounds[run]) != COPIED or self._copies is None:
            return super().find(sources, run)
        return self._copies.bring(sources.records[sources.rows(run)])

    def landed(self, block: Assembly) -> None:
        """Copy rows of a block that is there."""
        if self._copies is not None:
            addresses = block.laid.offsets + np.uint64(block.data)
            self._copies.take(block.sources.records, addresses, block.laid.lengths)

    def free(self) -> None:
        """Free the memory of all grains and copies."""
        super().free()
        self._copies = None
