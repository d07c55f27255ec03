"""A part of a file brought to the page cache before its readers ask (csrc/prefetch.h)."""

from __future__ import annotations

from typing import Any

import numpy as np

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, Extents, pointer_to
from lmdbio._core.engine import Engine
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import SLICE_MS

#: The C function's answer where a sweep is of no use.
NOTHING_STAYS = 2**64 - 1


def _range_of(extent: Any) -> range:
    return range(int(extent.offset), int(extent.offset + extent.length))


class Prefetch:
    """Brings a file to the page cache, in its order, before its readers ask.

    Attributes:
        is_stream: one stream asks for all.

    Args:
        engine: Engine through the page cache; others need none. Kept alive.
        file_end: end of what may be asked for, bytes.
        piece: bytes that one thread asks for at once; 0: one stream asks for all, as suits
            a disk.
        sweep_bytes_max: bytes of the largest file that is brought there whole; 0: none is.
    """

    #: Bytes of a step of a sweep, and those that it asks for at a time (csrc/prefetch.c).
    STEP_BYTES, ASKED_BYTES = 4 << 20, 64 << 20

    __slots__ = ("_pointer", "is_stream")

    def __init__(
        self, engine: Engine, file_end: int, *, piece: int, sweep_bytes_max: int = 0
    ) -> None:
        self.is_stream = piece == 0
        cell = cell_of("lio_prefetch", "prefetch_close", engine.pointer)
        lib.lio_prefetch_open(engine.pointer, file_end, piece, sweep_bytes_max, cell)
        self._pointer: Any = held(cell) if cell[0] else None

    def sweep(self, extents: Extents, *, block_bytes: int) -> range | None:
        """Bring the file there whole, in its order, once that pays for such records.

        Returns:
            The bytes of the file that must have come before they are read: ``wait`` for these.
            None: it is not swept.
        """
        extents = np.ascontiguousarray(extents, EXTENT)
        pointer = self._pointer if self._pointer is not None else ffi.NULL
        awaited = ffi.new("lio_extent *")
        is_swept = lib.lio_prefetch_sweep(
            pointer, pointer_to(extents, "lio_extent *"), len(extents), block_bytes, awaited
        )
        return _range_of(awaited) if is_swept else None

    def sweep_all(self) -> int | None:
        """Bring the whole file there, or go on with that.

        Returns:
            How many bytes have not come yet. None: nothing stays in a page cache here.
        """
        if self._pointer is None:
            return None
        left = int(lib.lio_prefetch_sweep_all(self._pointer))
        return None if left == NOTHING_STAYS else left

    @property
    def asked_bytes(self) -> int:
        """Bytes that were asked for so far."""
        return int(lib.lio_prefetch_asked(self._pointer)) if self._pointer is not None else 0

    def cover(self, extents: Extents, *, block_bytes: int, ahead: int) -> range | None:
        """Has the file around some records, and ``ahead`` bytes more, there by and by.

        Returns:
            As ``sweep``. None: they do not lie dense enough for that.
        """
        extents = np.ascontiguousarray(extents, EXTENT)
        pointer = self._pointer if self._pointer is not None else ffi.NULL
        awaited = ffi.new("lio_extent *")
        is_covered = lib.lio_prefetch_cover(
            pointer, pointer_to(extents, "lio_extent *"), len(extents), block_bytes, ahead, awaited
        )
        return _range_of(awaited) if is_covered else None

    def wait(self, awaited: range) -> None:
        """Wait until bytes of the file have come, as far as they were asked for."""
        while not self.poll(awaited, SLICE_MS):
            pass

    def poll(self, awaited: range, timeout_ms: int = 0) -> bool:
        """Return whether they have, after ``timeout_ms`` at most."""
        if self._pointer is None:
            return True
        part = ffi.new("lio_extent *", (awaited.start, len(awaited)))[0]
        return bool(lib.lio_prefetch_wait(self._pointer, part, timeout_ms) == lib.LIO_OK)

    def close(self) -> None:
        """Ends what is under way. May be called twice."""
        self._pointer = None
