"""The records that a root holds which keeps those it uses again soonest (csrc/soonest.h). Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import lib
from lmdbio._core.arrays import pointer_to
from lmdbio._core.brief import brief_up_to
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import Status

__all__ = ["NEVER", "Soonest", "Used"]

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: When a record is used next that is not used again.
NEVER = 2**63 - 1


class Used(NamedTuple):
    """Records that were used one after the other, and whether they were held.

    Attributes:
        found: each was held before it was used.
        kept: each is held after the last one was.
        dropped: records that are held no more; some may not have been before.
    """

    found: Flags
    kept: Flags
    dropped: I64


class Soonest:
    """Says what is held, use by use.

    Args:
        records: of the data set, below 2**32.
        capacity: in the unit of the sizes.

    Raises:
        MemoryError: there is no memory for all records.
    """

    def __init__(self, records: int, capacity: int) -> None:
        self._records = records
        status = Status("records that are used again")
        cell = cell_of("lio_soonest", "soonest_close")
        status.check(lib.lio_soonest_open(records, capacity, cell, status.error))
        self._pointer = held(cell)

    def use(self, records: I64, following: I64, sizes: npt.NDArray[np.uint64]) -> Used:
        """Use records one after the other.

        Args:
            records: shape (n,).
            following: when each is used again, ascending with time, or ``NEVER``.
            sizes: of each, at most 2**63 all together.

        Raises:
            ValueError: a record lies outside, or these are not as many.
        """
        count = len(records)
        if not count == len(following) == len(sizes):
            raise ValueError(f"{count} records, {len(following)} next uses, {len(sizes)} sizes")
        if count and not 0 <= int(records.min()) <= int(records.max()) < self._records:
            raise ValueError(f"a record lies outside the {self._records}")
        records, following = (np.ascontiguousarray(one, np.int64) for one in (records, following))
        sizes = np.ascontiguousarray(sizes, np.uint64)
        found, kept = np.empty(count, np.bool_), np.empty(count, np.bool_)
        dropped = np.empty(count + int(lib.lio_soonest_held(self._pointer)), np.int64)
        gone = brief_up_to("lio_soonest_use", count)(
            self._pointer,
            pointer_to(records, "int64_t *"),
            pointer_to(following, "int64_t *"),
            pointer_to(sizes, "uint64_t *"),
            count,
            pointer_to(found.view(np.uint8), "uint8_t *"),
            pointer_to(kept.view(np.uint8), "uint8_t *"),
            pointer_to(dropped, "int64_t *"),
        )
        return Used(found, kept, dropped[:gone].copy())
