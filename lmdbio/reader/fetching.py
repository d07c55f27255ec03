"""Fetching: records on their way from the file to places in memory, guarded before they are there.

extents -> plan -> large requests, in the order of the file -> a buffer -> each to its place
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.reader.guarded import GuardedReads
from lmdbio.reader.roots import RootSource

__all__ = ["Fetch"]

U64 = npt.NDArray[np.uint64]

#: Gaps that are read over take memory: no more than so many times the records' bytes.
ROOM_FACTOR = 2


class Fetch:
    """Records that are read.

    Args:
        source: what the root reads with, and from; borrowed.
        options: of the plan.
        extents: of the records, in the order of the file.

    Attributes:
        totals: of the plan.
        addresses: of each record in the buffer.
        reads: that fill it.
    """

    def __init__(self, source: RootSource, options: PlanOptions, extents: _core.Extents) -> None:
        self._lengths = np.ascontiguousarray(extents["length"], np.uint64)
        room = int(ROOM_FACTOR * self._lengths.sum())
        plan = plan_reads(extents, options, alignment=source.read_alignment, room_bytes=room)
        self.totals = plan.totals
        memory = _core.Memory(max(1, plan.totals.buffer_bytes))
        self._memory = memory
        self.addresses: U64 = plan.slices + np.uint64(memory.address)
        self.reads = GuardedReads.begin(
            source,
            plan.totals.buffer_bytes,
            lambda engine: engine.submit_plan(plan, memory.address, memory),
        )

    def poll(self) -> bool:
        """Return whether all records are in the buffer, and the file is as it was.

        Raises:
            OSError, Error: it cannot be read, or has changed.
        """
        return self.reads.poll()

    def copy_to(self, targets: U64) -> None:
        """Copy the records, which have arrived, to some addresses."""
        _core.copy_rows(self.addresses, self._lengths, targets)

    def close(self) -> None:
        """Give up what is under way."""
        self.reads.close()
