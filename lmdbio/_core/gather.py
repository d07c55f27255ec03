"""Small batches of records out of the page cache (lio_engine_gather)."""

from __future__ import annotations

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import pointer_to
from lmdbio._core.cursor import Snapshot
from lmdbio._core.engine import Engine
from lmdbio._core.extents import Packed


class Gatherer:
    """Copies what the page cache holds of an engine's file, guarded.

    Args:
        engine: Engine of the file; it stays open.
        snapshot: Snapshot, asked after the copies.
    """

    __slots__ = ("_keep",)

    def __init__(self, engine: Engine, snapshot: Snapshot) -> None:
        self._keep = engine.pointer, snapshot.pages.pointer, snapshot.pointer

    def copy(self, packed: Packed, address: int) -> bool:
        """Copies records to their places in memory, if nobody need wait.

        Args:
            packed: extents of the records in the file, and offsets in the memory.
            address: address of ``packed.room`` bytes, which the caller owns.

        Returns:
            Whether all of it is there, and belongs to the snapshot. If not, nothing is said about
            what the memory holds.
        """
        return bool(
            lib.lio_glue_gather(
                *self._keep,
                pointer_to(packed.extents, "lio_extent *"),
                pointer_to(packed.offsets, "uint64_t *"),
                len(packed.extents),
                ffi.cast("uint8_t *", address),
                packed.room,
            )
        )
