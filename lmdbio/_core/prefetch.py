"""A part of a file brought to the page cache before its readers ask (csrc/prefetch.h)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, Extents, pointer_to
from lmdbio._core.engine import Engine
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import SLICE_MS


class Sweep(IntEnum):
    """How records lie in a file that was asked for whole."""

    NONE = lib.LIO_SWEEP_NONE  #: it was not
    DENSE = lib.LIO_SWEEP_DENSE  #: in its order: they come in time
    SCATTERED = lib.LIO_SWEEP_SCATTERED  #: all over it: ``wait`` for the rest


class Prefetch:
    """Brings a file to the page cache, in its order, before its readers ask.

    Args:
        engine: goes through the page cache; others need none. Kept alive.
        file_end: nothing is asked for beyond, bytes.
        piece: bytes that one thread asks for at once.
        sweep_bytes_max: bytes of the largest file that is brought there whole; 0: none is.
    """

    __slots__ = ("_pointer",)

    def __init__(
        self, engine: Engine, file_end: int, *, piece: int, sweep_bytes_max: int = 0
    ) -> None:
        cell = cell_of("lio_prefetch", "prefetch_close", engine.pointer)
        lib.lio_cell_prefetch_open(engine.pointer, file_end, piece, sweep_bytes_max, cell)
        self._pointer: Any = held(cell) if cell[0] else None

    def sweep(self, extents: Extents, *, block_bytes: int) -> Sweep:
        """Bring the file there whole, in its order, once that pays for such records."""
        extents = np.ascontiguousarray(extents, EXTENT)
        pointer = self._pointer if self._pointer is not None else ffi.NULL
        return Sweep(
            lib.lio_prefetch_sweep(
                pointer, pointer_to(extents, "lio_extent *"), len(extents), block_bytes
            )
        )

    def wait(self) -> None:
        """Wait until all of a file that is swept has been asked for."""
        while self._pointer is not None:
            if lib.lio_prefetch_wait(self._pointer, SLICE_MS) == lib.LIO_OK:
                return

    def cover(self, extents: Extents, *, block_bytes: int, ahead: int) -> bool:
        """Has the file around some records, and ``ahead`` bytes more, there by and by.

        Returns:
            False: they do not lie dense enough for that.
        """
        extents = np.ascontiguousarray(extents, EXTENT)
        pointer = self._pointer if self._pointer is not None else ffi.NULL
        return bool(
            lib.lio_prefetch_cover(
                pointer, pointer_to(extents, "lio_extent *"), len(extents), block_bytes, ahead
            )
        )

    def close(self) -> None:
        """Ends what is under way. May be called twice."""
        self._pointer = None
