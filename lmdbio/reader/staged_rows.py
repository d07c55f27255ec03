"""Staged rows: those of a block that are not in memory, on their way there from another tier.

the tier has them -> a region of a ring
damaged, or the tier has not taken them -> read from the data file -> memory
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import CacheShard, Region, StagingRing
from lmdbio.planning.reads import PlanOptions
from lmdbio.reader.flight import Awaited
from lmdbio.reader.roots import RootSource
from lmdbio.reader.rows import FileRows

__all__ = ["StagedRows"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


class StagedRows:
    """Rows of one block that their shard has not in memory.

    Args:
        source: reads from the data file.
        options: options of the reads from the data file.
        shard: shard that has the rows, as far as its tier has taken them.
        records, extents: numbers and extents of the rows, ascending.
        ring: memory for what is read from the tier.

    Attributes:
        addresses: address of each row in memory, when all have arrived.
    """

    def __init__(
        self,
        source: RootSource,
        options: PlanOptions,
        shard: CacheShard,
        records: I64,
        extents: _core.Extents,
        ring: StagingRing,
    ) -> None:
        self._source, self._options, self._ring = source, options, ring
        self._records, self._extents = records, extents
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
        return self._rows.awaited or (self._file_rows and self._file_rows.ticket)

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
        lengths = self._extents["length"][rows]
        rounding = np.uint64(_core.ROW_ALIGNMENT)
        room = (lengths + rounding - np.uint64(1)) // rounding * rounding
        ends = np.cumsum(room)
        self._memory = _core.Memory(max(1, int(ends[-1])))
        self.addresses[rows] = ends - room + np.uint64(self._memory.address)
        self._file_rows = FileRows(
            self._source, self._options, self._records[rows], self.addresses[rows]
        )

    def release(self) -> None:
        """Give the memory back: nobody uses the rows any more."""
        if self._region is not None:
            self._ring.give_back(self._region)

    def close(self) -> None:
        """Give up what is under way."""
        self._rows.close()
        if self._file_rows is not None:
            self._file_rows.ticket.close()
        self._file_rows = None
