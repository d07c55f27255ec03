"""Records in memory that is cut into cells (csrc/cells.h)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import lib
from lmdbio._core.arrays import U64, pointer_to
from lmdbio._core.memory import Memory
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import Status

__all__ = ["Cells"]

I64 = npt.NDArray[np.int64]


class Cells:
    """Records that come and go. One thread at a time.

    Args:
        memory: of all cells.
        size: of a cell, bytes.
        records: of the data set, below 2**32.

    Raises:
        MemoryError: there is no memory for the list of cells.
        ValueError: there are more cells than numbers for them.
    """

    def __init__(self, memory: Memory, size: int, records: int) -> None:
        count = memory.size // size
        if count >= 2**32 or records >= 2**32:
            raise ValueError(f"{count} cells for {records} records are too many")
        self._records = records
        status, cell = Status("cells for records"), cell_of("lio_cells", "cells_close", memory)
        status.check(lib.lio_cells_open(memory.address, size, count, records, cell, status.error))
        self._owner = held(cell)

    def put(self, records: I64, lengths: U64, sources: U64) -> None:
        """Copy records into free cells; those that are there already stay as they are.

        Args:
            records: shape (n,).
            lengths: of each, bytes.
            sources: address of each; the caller owns the memory.

        Raises:
            RuntimeError: there are too few free cells.
        """
        done = self._move(lib.lio_cells_put, records, lengths, sources)
        if done < len(records):
            raise RuntimeError(f"no cells are free for record {int(records[done])}")

    def get(self, records: I64, lengths: U64, targets: U64) -> None:
        """Copy records to addresses.

        Raises:
            RuntimeError: one is not there.
        """
        done = self._move(lib.lio_cells_get, records, lengths, targets)
        if done < len(records):
            raise RuntimeError(f"record {int(records[done])} is in no cells")

    def drop(self, records: I64) -> None:
        """Free the cells of records, as far as they have some."""
        records = self._inside(records)
        lib.lio_cells_drop(self._owner, pointer_to(records, "int64_t *"), len(records))

    def _move(self, move: Callable[..., int], records: I64, lengths: U64, addresses: U64) -> int:
        """Return how many records were copied, from the first on."""
        if not len(records) == len(lengths) == len(addresses):
            raise ValueError(f"{len(records)} records, {len(lengths)} lengths, {len(addresses)}")
        records = self._inside(records)
        lengths, addresses = (np.ascontiguousarray(one, np.uint64) for one in (lengths, addresses))
        pointers = (pointer_to(one, "uint64_t *") for one in (lengths, addresses))
        return int(move(self._owner, pointer_to(records, "int64_t *"), *pointers, len(records)))

    def _inside(self, records: I64) -> I64:
        records = np.ascontiguousarray(records, np.int64)
        if len(records) and not 0 <= int(records.min()) <= int(records.max()) < self._records:
            raise ValueError(f"a record lies outside the {self._records}")
        return records
