"""Keys as they were put and deleted, in the order of their database (csrc/insertion.h)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import U64, pointer_to
from lmdbio._core.status import Status

_NEVER = 2**64 - 1


def settle_keys(
    db_flags: int, keys: bytes | bytearray, ends: U64, gone: npt.NDArray[np.uint8]
) -> tuple[U64, int | None]:
    """Reduce events of a database with ``db_flags`` to those that count.

    Args:
        keys: keys of all events, one after the other.
        ends: offset of the end of each event's key, bytes, uint64.
        gone: flag of each event, uint8: 1 where the key was deleted, 0 where it was put.

    Returns:
        Of each key that is left, in key order, the event in which it was put since it was last
        deleted (uint64); and one that puts a key that is there, None: none does.
    """
    kept, status = np.empty(len(ends), np.uint64), Status()
    count, again = ffi.new("size_t *"), ffi.new("uint64_t *")
    status.check(
        lib.lio_insertion_settle(
            db_flags,
            ffi.from_buffer("uint8_t[]", keys),
            len(keys),
            pointer_to(ends, "uint64_t *"),
            pointer_to(gone, "uint8_t *"),
            len(ends),
            pointer_to(kept, "uint64_t *"),
            count,
            again,
            status.error,
        )
    )
    return kept[: int(count[0])], None if again[0] == _NEVER else int(again[0])


def compare_keys(db_flags: int, a: bytes, b: bytes) -> int:
    """Below, at or above 0 as ``a`` comes before, is or comes after ``b`` in a database."""
    return int(lib.lio_key_compare(db_flags, a, len(a), b, len(b)))
