"""Rows of a block in its slot: laid out, copied, and written down (csrc/rows.h, copier.h)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, U64, Extents, pointer_to
from lmdbio._core.brief import brief_up_to
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import Status

__all__ = [
    "ROW_ALIGNMENT",
    "TABLE_ROW_BYTES",
    "Copier",
    "Copying",
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


class Copier:
    """The thread, until ``close``.

    Raises:
        MemoryError, OSError: it cannot be started.
    """

    def __init__(self) -> None:
        self._status = Status("rows that are copied")
        cell = cell_of("lio_copier", "copier_close")
        self._status.call(lib.lio_copier_open, cell)
        self._pointer = held(cell)

    def start(self, loaded: Loaded, rows: I64, records: I64, laid: LaidOut, data: int) -> Copying:
        """Starts to copy rows of a block to their places in a slot.

        Args:
            loaded: the rows are among these records.
            rows: rows of the block that are copied, shape (n,).
            records, laid: record numbers and places of all rows of the block.
            data: address of the slot's data. The caller owns it, and the records' memory, until
                the copy is over.

        Raises:
            ValueError: a record is not loaded.
        """
        if self._pointer is None:
            raise ValueError("the thread that copies has ended")
        cell = cell_of("lio_copying", "copying_close", self._pointer)
        self._status.call(
            brief_up_to("lio_copier_start", len(rows)),
            self._pointer,
            loaded.pointer,
            pointer_to(rows, "int64_t *"),
            len(rows),
            pointer_to(records, "int64_t *"),
            pointer_to(laid.lengths, "uint64_t *"),
            pointer_to(laid.offsets, "uint64_t *"),
            data,
            cell,
        )
        return Copying(cell)

    def close(self) -> None:
        """Wait for the copy that is being made; drop all others, and make no more.

        So nothing is read, or written, any more, whoever still refers to copies (the frames of an
        exception do). May be called twice, by the thread that starts copies.
        """
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            lib.lio_copier_end(pointer)


class Copying:
    """Rows that are copied; given up, or waited for, when nothing refers to them any more.

    Never over where the copier was closed before it came to them.
    """

    __slots__ = ("_owner",)

    def __init__(self, cell: Any) -> None:
        self._owner = held(cell)

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether all rows are in their places, after ``timeout_ms`` at most."""
        wait = brief_up_to("lio_copying_wait", timeout_ms, 0)
        return bool(wait(self._owner, timeout_ms) == lib.LIO_OK)
