"""Calls that keep Python's lock while they are short (glue/brief.h)."""

from __future__ import annotations

from lmdbio._core._lmdbio import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["BYTES_MAX", "brief_up_to"]

#: A brief call is given no more records, which take some 100 ns each, or bytes, which are copied.
RECORDS_MAX, BYTES_MAX = 16384, 65536


def brief_up_to(name: str, given: int, most: int = RECORDS_MAX) -> Any:
    """Return a function of C that is brief, or, where it is given more, lets go of the lock."""
    if given <= most:
        return getattr(lib, name)
    return ffi.addressof(lib, name)  # called as any pointer to a function: without the lock
