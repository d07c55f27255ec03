"""Tables of extents, found, packed and split (csrc/extent.h). Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, U64, Extents, pointer_to
from lmdbio._core.brief import brief_up_to


class Packed(NamedTuple):
    """Records placed one after another.

    Attributes:
        extents: extents in the file, dtype ``EXTENT``, C-contiguous.
        lengths: length of each record, bytes, uint64.
        offsets: offset of each record in the memory, bytes, uint64.
        size: the sum of the lengths, bytes.
        room: size of the memory that they need, bytes.
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
    if not (indices.flags.c_contiguous and indices.flags.aligned):
        indices = indices.copy()
    count = len(indices)
    places, found = np.empty(count, np.uint64), np.empty(count, EXTENT)
    inside = brief_up_to("lio_extents_find", count)(
        pointer_to(table, "lio_extent *"),
        len(table),
        pointer_to(indices, "int64_t *"),
        count,
        pointer_to(places, "uint64_t *"),
        pointer_to(found, "lio_extent *"),
    )
    return (places, found) if inside == count else None


def take_extents(table: Extents, indices: U64, path: str) -> Extents:
    """Takes records out of a table of all, dtype ``EXTENT``. Pure.

    Args:
        indices: uint64, shape (n,).
        path: name of the file, for the error.

    Raises:
        IndexError: one is not below the table's length.
    """
    indices = np.ascontiguousarray(indices, np.uint64)
    found = np.empty(len(indices), EXTENT)
    inside = brief_up_to("lio_extents_take", len(indices))(
        pointer_to(table, "lio_extent *"),
        len(table),
        pointer_to(indices, "uint64_t *"),
        len(indices),
        pointer_to(found, "lio_extent *"),
    )
    if inside < len(indices):
        raise IndexError(f"{path}: record {indices[inside]} of {len(table)}")
    return found


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


def split_rows(address: int, count: int, room: int) -> tuple[U64, U64, int, int] | None:
    """Splits a table of extents (dtype ``EXTENT``) inside of ``room`` bytes.

    Args:
        address: address of the table, which has ``count`` rows.

    Returns:
        Offsets, from the first byte of all on, and lengths, shape (count,); that first byte, and
        the bytes up to the last one. None when a row lies outside.
    """
    offsets, lengths = np.empty(count, np.uint64), np.empty(count, np.uint64)
    span = ffi.new("lio_extent *")
    inside = lib.lio_extents_split(
        ffi.cast("lio_extent *", address),
        count,
        room,
        pointer_to(lengths, "uint64_t *"),
        pointer_to(offsets, "uint64_t *"),
        span,
    )
    return (offsets, lengths, span.offset, span.length) if inside == count else None


def count_same(
    memory: npt.NDArray[np.uint8],
    extents: Extents,
    other: npt.NDArray[np.uint8],
    others: Extents,
) -> int:
    """How many extents, from the first on, have the same bytes in two memories. Pure.

    Args:
        memory, other: uint8, shape (n,), C-contiguous.
        extents, others: extents inside of them, as many of each, dtype ``EXTENT``.
    """
    if len(extents) != len(others):
        raise ValueError(f"{len(extents)} extents against {len(others)}")
    extents, others = (np.ascontiguousarray(one, EXTENT) for one in (extents, others))
    for table, room in ((extents, len(memory)), (others, len(other))):
        offsets, lengths = (np.ascontiguousarray(table[name]) for name in ("offset", "length"))
        if count_inside(offsets, lengths, room) != len(table):
            raise ValueError(f"an extent ends beyond its memory of {room} bytes")
    return int(
        lib.lio_extents_same(
            pointer_to(memory, "uint8_t *"),
            pointer_to(extents, "lio_extent *"),
            pointer_to(other, "uint8_t *"),
            pointer_to(others, "lio_extent *"),
            len(extents),
        )
    )


def mark_extents(extents: Extents, mark: int = 0) -> int:
    """Goes on with a mark that two lists have in common by chance once in 2**64. Pure.

    Args:
        extents: extents, contiguous.
        mark: mark of the extents before these.
    """
    return int(lib.lio_extents_mark(pointer_to(extents, "lio_extent *"), len(extents), mark))


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


def footprint(
    extents: Extents, alignment: int, last: tuple[int, int], needed: npt.NDArray[np.int64]
) -> tuple[tuple[int, int], int, int]:
    """The bytes, in whole pieces, that each extent needs beyond the one before it.

    Args:
        alignment: size of a piece, bytes, a power of two.
        last: the first byte and the end of what the one before the first needs.
        needed: result: int64, shape (n,), C-contiguous.

    Returns:
        ``last`` for those that follow; the most that two neighbours share; the sum.
    """
    if len(needed) != len(extents):
        raise ValueError(f"{len(extents)} extents, and room for {len(needed)}")
    extents = np.ascontiguousarray(extents, EXTENT)
    ends, shared_max = ffi.new("uint64_t[2]", last), ffi.new("uint64_t *")
    total = lib.lio_extents_footprint(
        pointer_to(extents, "lio_extent *"),
        len(extents),
        alignment,
        ends,
        pointer_to(needed, "int64_t *"),
        shared_max,
    )
    return (ends[0], ends[1]), shared_max[0], total


def place_extents(extents: Extents, bits: int, numbers: npt.NDArray[np.uint32], first: int) -> U64:
    """Returns where extents begin in memory that keeps grains of the file. Pure.

    Args:
        extents: dtype ``EXTENT``, shape (n,).
        bits: binary logarithm of a grain's size in bytes.
        numbers: number of each grain of the file among those that are cached anywhere.
        first: the number of the first one here.
    """
    extents = np.ascontiguousarray(extents, EXTENT)
    places = np.empty(len(extents), np.uint64)
    brief_up_to("lio_extents_place", len(extents))(
        pointer_to(extents, "lio_extent *"),
        len(extents),
        bits,
        pointer_to(numbers, "uint32_t *"),
        len(numbers),
        first,
        pointer_to(places, "uint64_t *"),
    )
    return places


def extents_beyond(extents: Extents, places: U64, limit: int) -> npt.NDArray[np.int64]:
    """Returns the numbers of extents that end beyond ``limit`` in memory, empty ones aside. Pure.

    Args:
        extents: dtype ``EXTENT``, shape (n,).
        places: offsets of the extents in the memory, bytes (``place_extents``).
    """
    extents = np.ascontiguousarray(extents, EXTENT)
    beyond = np.empty(len(extents) + 1, np.int64)
    found = brief_up_to("lio_extents_beyond", len(extents))(
        pointer_to(extents, "lio_extent *"),
        pointer_to(places, "uint64_t *"),
        len(extents),
        limit,
        pointer_to(beyond, "int64_t *"),
    )
    return beyond[:found]
