"""Fetching: records on their way from the file to places in memory, guarded before they are there.

extents -> plan -> large requests, in the order of the file -> a region of a ring (``StagingRing``)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import Region
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.reader.roots import RootSource
from lmdbio.reading.guarded import GuardedReads

__all__ = ["Fetch"]

U64 = npt.NDArray[np.uint64]

#: Gaps that are read over take memory: no more than so many times the records' bytes.
ROOM_FACTOR = 2


class Fetch:
    """Records that are to be read, or are.

    Args:
        source: the root's open data set and engines; borrowed.
        options: options of the plan.
        extents: extents of the records, in the order of the file.

    Attributes:
        size: bytes of the region that they need, in whole pages.
        totals: totals of the plan.
        reads: reads that fill the region; None: not begun, or there is nothing to read.
    """

    def __init__(self, source: RootSource, options: PlanOptions, extents: _core.Extents) -> None:
        self._source = source
        self._lengths = np.ascontiguousarray(extents["length"], np.uint64)
        room, alignment = int(ROOM_FACTOR * self._lengths.sum()), source.read_alignment
        self._plan = plan_reads(extents, options, alignment=alignment, room_bytes=room)
        self.totals = self._plan.totals
        self.size = -(-self.totals.buffer_bytes // alignment) * alignment
        self._addresses: U64 = self._plan.slices
        self._has_begun = False
        self.reads: GuardedReads | None = None

    def start(self, region: Region) -> None:
        """Start to read into the beginning of a region."""
        plan, address = self._plan, region.address
        self._addresses, self._has_begun = plan.slices + np.uint64(address), True
        if self.totals.requests:
            self.reads = GuardedReads.begin(
                self._source,
                self.totals.buffer_bytes,
                lambda engine: engine.submit_plan(plan, address, region.memory),
            )

    def poll(self) -> bool:
        """Return whether all records are in the region, and the file is as it was.

        Raises:
            OSError, Error: it cannot be read, or has changed.
        """
        return self._has_begun and (self.reads is None or self.reads.poll())

    @property
    def times(self) -> tuple[float, float]:
        """When the reads, which have arrived, began and ended, by ``time.monotonic``."""
        return (0.0, 0.0) if self.reads is None else self.reads.ticket.times

    def copy_to(self, targets: U64) -> None:
        """Copy the records, which have arrived, to some addresses."""
        _core.copy_rows(self._addresses, self._lengths, targets)

    def close(self) -> None:
        """Give up what is under way."""
        if self.reads is not None:
            self.reads.close()
