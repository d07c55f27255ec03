"""The array types of the seam. They take NumPy, which a file that is opened and read does not."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib


def dtype_of(struct: str) -> np.dtype[Any]:
    """The structured dtype of a struct of C's, in which a pointer is an address."""
    fields = dict(ffi.typeof(struct).fields)
    kinds = ("i" if one.type.cname.startswith("int") else "u" for one in fields.values())
    return np.dtype(
        {
            "names": list(fields),
            "formats": [
                f"<{kind}{ffi.sizeof(one.type)}"
                for kind, one in zip(kinds, fields.values(), strict=True)
            ],
            "offsets": [one.offset for one in fields.values()],
            "itemsize": ffi.sizeof(struct),
        }
    )


EXTENT = dtype_of("lio_extent")
#: One request and the address it fills.
READ = dtype_of("lio_read")
REQUEST = dtype_of("lio_request")
SPAN = dtype_of("lio_span")

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
