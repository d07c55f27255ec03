"""The array types of the seam. They take NumPy, which a file that is opened and read does not."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib

#: Structured dtype of ``lio_extent``.
EXTENT = np.dtype([("offset", "<u8"), ("length", "<u8")])
#: Structured dtype of ``lio_read``: one request and the address it fills.
READ = np.dtype([("offset", "<u8"), ("length", "<u8"), ("needed", "<u8"), ("into", "<u8")])
#: Structured dtype of ``lio_request``.
REQUEST = np.dtype(
    [("offset", "<u8"), ("length", "<u8"), ("needed", "<u8"), ("buffer_offset", "<u8")]
)

#: Structured dtype of ``lio_span``.
SPAN = np.dtype(
    [
        ("queued_ns", "<u8"),
        ("begun_ns", "<u8"),
        ("ended_ns", "<u8"),
        ("offset", "<u8"),
        ("amount", "<u8"),
        ("kind", "<u4"),
        ("thread", "<u4"),
        ("engine", "<u4"),
        ("count", "<u4"),
        ("depth", "<u4"),
        ("depth_after", "<u4"),
        ("failed", "<u4"),
        ("reserved", "<u4"),
    ]
)
assert SPAN.itemsize == ffi.sizeof("lio_span")

Extents = npt.NDArray[Any]  # of dtype EXTENT
U64 = npt.NDArray[np.uint64]


class SpanKind(IntEnum):
    """The stage of a span (``enum lio_stage``)."""

    LOCATE = lib.LIO_STAGE_LOCATE
    PLAN = lib.LIO_STAGE_PLAN
    WAIT = lib.LIO_STAGE_WAIT
    COPY = lib.LIO_STAGE_COPY
    REQUEST = lib.LIO_SPAN_REQUEST
    CACHED = lib.LIO_SPAN_CACHED
    POPULATE = lib.LIO_SPAN_POPULATE


class _ArrayTypes(dict[str, Any]):
    """The type of an array whose elements a pointer type points to."""

    def __missing__(self, ctype: str) -> Any:
        self[ctype] = found = ffi.typeof(f"{ctype.removesuffix('*').rstrip()}[]")
        return found


_array_types = _ArrayTypes()


def pointer_to(array: npt.NDArray[Any], ctype: str) -> Any:
    """The elements of a C-contiguous array, for a C function that takes a pointer to them."""
    return ffi.from_buffer(_array_types[ctype], array)
