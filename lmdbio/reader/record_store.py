"""Record store: the memory in which one root keeps records one by one, and how it chooses them.

placement, rooms of all roots, memory --schedule--> what each root brings, and its holdings
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.locate.cursor_walk import CursorWalk
from lmdbio.observe.stats import StageCounter
from lmdbio.placement.keepers import keep, room_of
from lmdbio.placement.kept_sources import KeptSources
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.arena import Arena
from lmdbio.reader.holdings import Holdings
from lmdbio.reader.roots import RootSource

__all__ = ["RecordStore", "record_lengths"]

#: Records whose extents are looked up at once.
PART = 2**18


@dataclass(frozen=True, slots=True)
class RecordStore:
    """The memory for the records that one root keeps.

    Attributes:
        placement: "first" or "frequency".
        root: index of the root in the schedule.
        rooms: size of each root's memory, bytes.
        memory: memory of this root.
        is_warm: whether all is read before the first block.
    """

    placement: str
    root: int
    rooms: tuple[int, ...]
    memory: _core.Memory
    is_warm: bool

    def open(
        self,
        source: RootSource,
        schedule: Schedule,
        options: PlanOptions,
        exchange: share.Exchange | None,
        counter: StageCounter,
    ) -> tuple[KeptSources, Holdings]:
        """Return which root brings what by a schedule, and what this one holds.

        Args:
            source: the root's open data set and engines; borrowed.
            schedule: schedule of the job.
            options: options of the reads.
            exchange: takes rows to other roots; None: nothing is sent.
            counter: counts what is located, planned and submitted.
        """
        sizes = room_of(record_lengths(source, schedule.count))
        keepers = keep(self.placement, schedule, sizes, self.rooms, is_warm=self.is_warm)
        sources = KeptSources(schedule, keepers)
        arena = Arena(
            source, sources, self.root, self.memory, options, exchange, counter, waits=self.is_warm
        )
        return sources, arena


def record_lengths(source: RootSource, count: int) -> npt.NDArray[np.uint64]:
    """Return the bytes of all records."""
    index = source.index
    assert not isinstance(index, CursorWalk)  # refused with the arguments
    lengths = np.empty(count, np.uint64)
    for first in range(0, count, PART):
        last = min(count, first + PART)
        lengths[first:last] = index.run(first, last)["length"]
    return lengths
