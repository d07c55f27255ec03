"""Rows of a block in its slot: laid out, copied, and written down (csrc/rows.h)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, U64, Extents, pointer_to
from lmdbio._core.brief import brief_up_to

__all__ = [
    "ROW_ALIGNMENT",
    "TABLE_ROW_BYTES",
    "LaidOut",
    "Loaded",
    "lay_out",
    "rows_room",
    "write_table",
]

#: Rows that come in runs begin at multiples of it in a slot.
ROW_ALIGNMENT = int(lib.LIO_ROW_ALIGNMENT)
#: The table has so many for each row: offset and length, uint64 each.
TABLE_ROW_BYTES = 16

I64 = npt.NDArray[np.int64]


class LaidOut(NamedTuple):
    """The rows of a block, placed.

    Attributes:
        lengths: length of each row, bytes, uint64.
        offsets: offset of each row in the slot's data, bytes, uint64.
        run_offsets: offset of each run of rows there, and the end of the last, bytes.
    """

    lengths: U64
    offsets: U64
    run_offsets: U64


def lay_out(extents: Extents, order: I64, begins: I64) -> LaidOut:
    """Places rows in a slot, run by run. Pure.

    Args:
        extents: extents of the rows, dtype ``EXTENT``, shape (n,).
        order: the rows by runs, shape (n,).
        begins: index in ``order`` of each run's first row, and the end of the last.
    """
    extents, runs = np.ascontiguousarray(extents, EXTENT), len(begins) - 1
    lengths, offsets = np.empty(len(extents), np.uint64), np.empty(len(extents), np.uint64)
    run_offsets = np.empty(runs + 1, np.uint64)
    brief_up_to("lio_rows_lay_out", len(extents))(
        pointer_to(extents, "lio_extent *"),
        pointer_to(order, "int64_t *"),
        pointer_to(begins, "int64_t *"),
        runs,
        pointer_to(lengths, "uint64_t *"),
        pointer_to(offsets, "uint64_t *"),
        pointer_to(run_offsets, "uint64_t *"),
    )
    return LaidOut(lengths, offsets, run_offsets)


def rows_room(lengths: U64) -> int:
    """Returns what rows take in a slot, each rounded up, bytes. Pure."""
    lengths = np.ascontiguousarray(lengths, np.uint64)
    room = brief_up_to("lio_rows_room", len(lengths))
    return int(room(pointer_to(lengths, "uint64_t *"), len(lengths)))


def write_table(address: int, offsets: U64, lengths: U64) -> None:
    """Writes the table of a slot at ``address``: where each row begins, and how long it is."""
    offsets, lengths = (np.ascontiguousarray(one, np.uint64) for one in (offsets, lengths))
    brief_up_to("lio_rows_write_table", len(lengths))(
        address,
        pointer_to(offsets, "uint64_t *"),
        pointer_to(lengths, "uint64_t *"),
        len(lengths),
    )


class Loaded:
    """Records in memory.

    Args:
        records: record numbers, ascending, shape (n,).
        extents: extent of each record in the file, dtype ``EXTENT``.
        slices: offset of each from ``address``, bytes, shape (n,); the caller owns the memory.

    Raises:
        ValueError: these are not as many.
    """

    __slots__ = ("_keep", "extents", "pointer")

    def __init__(self, records: I64, extents: Extents, slices: U64, address: int) -> None:
        if not len(records) == len(extents) == len(slices):
            raise ValueError(
                f"{len(records)} records, {len(extents)} extents, {len(slices)} slices"
            )
        self.extents: Extents = np.ascontiguousarray(extents, EXTENT)
        self._keep = records, slices
        self.pointer: Any = ffi.new("lio_loaded *")
        self.pointer.records = pointer_to(records, "int64_t *")
        self.pointer.slices = pointer_to(slices, "uint64_t *")
        self.pointer.count, self.pointer.base = len(records), address
