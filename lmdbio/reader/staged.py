"""Staged rows: those of a block that are not in memory, on their way there from the disk.

on the disk -> whole pages, compared with their sums -> memory
damaged, or the disk has not taken them -> read from the data file -> memory
"""

from __future__ import annotations

from time import monotonic

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import DiskTier, RowReads
from lmdbio.errors import Error
from lmdbio.planning.reads import PlanOptions
from lmdbio.reader.roots import RootSource
from lmdbio.reader.rows import FileRows
from lmdbio.reader.stage import Region, Stage

__all__ = ["StagedRows"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


class StagedRows:
    """Rows of one block that their home has not in memory.

    Args:
        source: reads from the data file.
        options: options of the reads from the data file.
        disk: disk that has the rows, as far as it has taken them.
        records, extents: numbers and extents of the rows, ascending.
        lost: mask of the rows that only the data file has.
        stage: memory for what is read from the disk.

    Attributes:
        addresses: address of each row in memory, when all have arrived.
        lost: rows that are, or were, read from the data file.
        damaged: pages that the disk had not as they were written.
    """

    def __init__(
        self,
        source: RootSource,
        options: PlanOptions,
        disk: DiskTier,
        records: I64,
        extents: _core.Extents,
        lost: Flags,
        stage: Stage,
    ) -> None:
        self._source, self._options, self._disk = source, options, disk
        self._records, self._extents = records, extents
        self.addresses, self.lost = np.zeros(len(records), np.uint64), lost.copy()
        self.damaged: U64 = np.empty(0, np.uint64)
        self._reads: RowReads | None = None
        self._file_rows: FileRows | None = None
        self._memory: _core.Memory | None = None  # of rows from the data file
        self._region: Region | None = None  # of the others
        self._stage = stage
        self._begun_s = monotonic()
        if disk.is_away:
            self.lost[:] = True
        if not self.lost.all():
            self._begin()
        self._is_waiting_for_file = bool(self.lost.any())

    def _begin(self) -> None:
        there = ~self.lost
        extents = self._extents[there]
        plan = self._disk.plan(extents, self._disk.room_for(extents))
        region = self._stage.take(plan.totals.buffer_bytes)
        if region is None:
            raise MemoryError(f"{self._disk.path}: rows need more memory than was to be there")
        try:
            self._reads = self._disk.read(plan, region.address, region.memory)
        except BaseException as error:
            self._stage.give_back(region)
            if not isinstance(error, OSError | Error):
                raise
            self._give_up(error)
            return
        self._region = region
        self.addresses[there] = self._reads.addresses

    def _give_up(self, why: object) -> None:
        """Read all rows from the data file."""
        self._disk.note_failure(why)
        self.lost[:] = True

    @property
    def ticket(self) -> _core.Ticket | None:
        """Reads that are under way; None: there are none."""
        if self._reads is not None:
            return self._reads.ticket
        return None if self._file_rows is None else self._file_rows.ticket

    def poll(self) -> bool:
        """Return whether all rows are in memory.

        Raises:
            OSError, Error: the data file cannot be read, or has changed.
        """
        if self._reads is not None and not self._take(self._reads):
            return False
        if self._is_waiting_for_file and self._file_rows is None:
            self._read_lost()
        if self._file_rows is not None:
            if not self._file_rows.poll():
                return False
            self._file_rows = None
        self._is_waiting_for_file = False
        return True

    def _take(self, reads: RowReads) -> bool:
        """Look whether rows from the disk have arrived, and are as they were written."""
        try:
            if not reads.ticket.poll():
                return self._is_stuck(reads)
            there = np.flatnonzero(~self.lost)
            wrong, self.damaged = self._disk.damaged(self._extents[there], reads)
            self.lost[there[wrong]] = True
        except (OSError, Error) as error:
            self._give_up(error)
        reads.ticket.close()
        self._reads = None
        if self._disk.is_over:
            self.lost[:] = True
        self._is_waiting_for_file = bool(self.lost.any())
        return True

    def _is_stuck(self, reads: RowReads) -> bool:
        """Return whether reads from the disk take too long; then the data file serves."""
        if monotonic() < self._begun_s + self._disk.limits.stuck_s:
            return False
        self._disk.abandon(reads)
        self._stage.leave()
        self._reads, self.lost[:], self._is_waiting_for_file = None, True, True
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
            self._stage.give_back(self._region)

    def close(self) -> None:
        """Give up what is under way."""
        if self._reads is not None:
            self._reads.ticket.close()
        if self._file_rows is not None:
            self._file_rows.ticket.close()
        self._reads = self._file_rows = None
