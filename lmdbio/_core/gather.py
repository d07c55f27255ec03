"""Small batches of records out of the page cache (csrc/gather.h)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio._core.cursor import Snapshot
from lmdbio._core.engine import Engine
from lmdbio._core.memory import Memory
from lmdbio._core.status import EXTENT, U64, Extents, pointer_to
from lmdbio._lmdbio import ffi, lib


class Packed(NamedTuple):
    """Records placed one after another.

    Attributes:
        extents: of the file, dtype ``EXTENT``, C-contiguous.
        lengths: uint64, bytes of each.
        offsets: uint64, where each begins.
        size: the sum of the lengths, bytes.
        room: what they need, bytes.
    """

    extents: Extents
    lengths: U64
    offsets: U64
    size: int
    room: int


def find_extents(table: Extents, indices: npt.NDArray[np.int64]) -> tuple[U64, Extents] | None:
    """Looks up records in a table of all, dtype ``EXTENT``. Pure.

    Args:
        indices: int64, shape (n,); negative ones count from the end.

    Returns:
        The indices from the beginning, and the extents; None when one is out of range.
    """
    count = len(indices)
    places, found = np.empty(count, np.uint64), np.empty(count, EXTENT)
    inside = lib.lio_table_find(
        pointer_to(table, "lio_extent *"),
        len(table),
        pointer_to(np.ascontiguousarray(indices), "int64_t *"),
        count,
        pointer_to(places, "uint64_t *"),
        pointer_to(found, "lio_extent *"),
    )
    return (places, found) if inside == count else None


def pack_extents(extents: Extents) -> Packed:
    """Places records one after another. Pure."""
    extents, count = np.ascontiguousarray(extents, EXTENT), len(extents)
    lengths, offsets = np.empty(count, np.uint64), np.empty(count, np.uint64)
    room = ffi.new("uint64_t *")
    size = lib.lio_extents_pack(
        pointer_to(extents, "lio_extent *"),
        count,
        pointer_to(lengths, "uint64_t *"),
        pointer_to(offsets, "uint64_t *"),
        room,
    )
    return Packed(extents, lengths, offsets, size, room[0])


def count_inside(offsets: U64, lengths: U64, room: int) -> int:
    """How many records, from the first on, lie inside of ``room`` bytes. Pure."""
    return int(
        lib.lio_places_inside(
            pointer_to(offsets, "uint64_t *"),
            pointer_to(lengths, "uint64_t *"),
            len(offsets),
            room,
        )
    )


class Gatherer:
    """Copies what the page cache holds of an engine's file, guarded.

    Args:
        engine: reads; it stays open.
        snapshot: asked after the copies.
        size_min: bytes that the file has as long as nobody cuts it.
    """

    __slots__ = ("_keep", "_size_min")

    def __init__(self, engine: Engine, snapshot: Snapshot, *, size_min: int) -> None:
        self._keep = engine.pointer, snapshot.pages.pointer, snapshot.pointer
        self._size_min = size_min

    def copy(self, packed: Packed, memory: Memory) -> bool:
        """Copies records to their places in memory, if nobody need wait.

        Returns:
            Whether all of it is there, and belongs to the snapshot. If not, nothing is said about
            what the memory holds.
        """
        return bool(
            lib.lio_glue_gather(
                *self._keep,
                self._size_min,
                pointer_to(packed.extents, "lio_extent *"),
                pointer_to(packed.offsets, "uint64_t *"),
                len(packed.extents),
                ffi.cast("uint8_t *", memory.address),
                memory.size,
            )
        )
