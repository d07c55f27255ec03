"""ApartRows: rows that do not lie in memory as a whole, on their way there from another tier.

the tier has them -> read, and compared with what was written -> memory
                  -> damaged: their grains are written again
the others are lost: their user reads them from the data file
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.loads import GrainLoads
from lmdbio.cache.table import GrainTable
from lmdbio.cache.tier import Take, Tier, TierReads

__all__ = ["ApartRows"]

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
        self._loads, self.is_abandoned = loads, False
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
        if len(reads.damaged):
            self._loads.forget(reads.damaged)
        self._reads = None
        return True

    def close(self) -> None:
        """Give up what is under way."""
        if self._reads is not None:
            self._reads.close()
        self._reads = None
