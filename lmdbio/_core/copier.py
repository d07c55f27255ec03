"""Rows that a thread of C's copies to their places in a slot (csrc/copier.h)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import lib
from lmdbio._core.arrays import pointer_to
from lmdbio._core.brief import brief_up_to
from lmdbio._core.owner import cell_of, held
from lmdbio._core.rows import LaidOut, Loaded
from lmdbio._core.status import Status

__all__ = ["Copier", "Copying"]

I64 = npt.NDArray[np.int64]


class Copier:
    """The thread, until ``close``.

    Raises:
        MemoryError, OSError: it cannot be started.
    """

    def __init__(self) -> None:
        self._status = Status("rows that are copied")
        cell = cell_of("lio_copier", "copier_close")
        self._status.check(lib.lio_copier_open(cell, self._status.error))
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
        code = brief_up_to("lio_copier_start", len(rows))(
            self._pointer,
            loaded.pointer,
            pointer_to(rows, "int64_t *"),
            len(rows),
            pointer_to(records, "int64_t *"),
            pointer_to(laid.lengths, "uint64_t *"),
            pointer_to(laid.offsets, "uint64_t *"),
            data,
            cell,
            self._status.error,
        )
        self._status.check(code)
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
        if timeout_ms:
            code = lib.lio_copying_wait(self._owner, timeout_ms)
        else:
            code = lib.lio_copying_poll(self._owner)
        return bool(code == lib.LIO_OK)
