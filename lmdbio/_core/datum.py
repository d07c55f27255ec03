"""Caffe's Datum, many at once (csrc/datum.h). Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import U64, dtype_of, pointer_to

__all__ = ["DATUM", "copy_datum_floats", "parse_datums"]

DATUM = dtype_of("lio_datum")


def parse_datums(memory: npt.NDArray[np.uint8], offsets: U64, lengths: U64) -> npt.NDArray[Any]:
    """Parses values; the caller has seen to it that all of them lie in ``memory``.

    Args:
        memory: uint8, C-contiguous.
        offsets, lengths: place and size of each value, bytes, shape (n,).

    Returns:
        The contents of each, dtype ``DATUM``, shape (n,).
    """
    found = np.empty(len(offsets), DATUM)
    lib.lio_datums_parse(*_values(memory, offsets, lengths), pointer_to(found, "lio_datum *"))
    return found


def copy_datum_floats(
    memory: npt.NDArray[np.uint8], offsets: U64, lengths: U64, each: int, address: int
) -> int:
    """Copies float_data of values, as ``parse_datums`` takes them.

    Args:
        each: count of numbers in each value.
        address: address of memory for float32, shape (n, each), which the caller owns.

    Returns:
        The number of values, from the first on, that have so many.
    """
    values = _values(memory, offsets, lengths)
    return int(lib.lio_datums_floats(*values, each, ffi.cast("float *", address)))


def _values(memory: npt.NDArray[np.uint8], offsets: U64, lengths: U64) -> tuple[Any, ...]:
    offsets, lengths = (np.ascontiguousarray(one, np.uint64) for one in (offsets, lengths))
    pointers = (pointer_to(one, "uint64_t *") for one in (offsets, lengths))
    return pointer_to(memory, "uint8_t *"), *pointers, len(offsets)
