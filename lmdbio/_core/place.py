"""Where a cursor stands, written down; where the records lie that it comes by (csrc/place.h)."""

from __future__ import annotations

import numpy as np

from lmdbio._core.cursor import Cursor
from lmdbio._core.status import EXTENT, Extents, Status, pointer_to
from lmdbio._lmdbio import ffi, lib
from lmdbio.errors import CorruptedError

#: No place takes more bytes.
PLACE_BYTES_MAX = int(lib.LIO_PLACE_BYTES_MAX)


def place_of(cursor: Cursor) -> bytes:
    """The place of a cursor, for another process with the same file.

    Raises:
        Error: it stands nowhere.
    """
    out, size = ffi.new("uint8_t[]", PLACE_BYTES_MAX), ffi.new("size_t *")
    status = Status(cursor.engine.path)
    status.check(lib.lio_place_write(cursor.pointer, out, size, status.error))
    return bytes(ffi.buffer(out, size[0]))


def leaf_of(cursor: Cursor) -> bytes:
    """The leaf, with its key, that a cursor stands on, for whoever goes to its place.

    Raises:
        Error: it stands nowhere.
    """
    page = bytearray(cursor.page_size)
    status = Status(cursor.engine.path)
    status.check(lib.lio_place_leaf(cursor.pointer, ffi.from_buffer(page), status.error))
    return bytes(page)


def go_to(cursor: Cursor, place: bytes, leaf: bytes = b"") -> None:
    """Puts a cursor on a place of its database.

    Args:
        leaf: the page that ``leaf_of`` gave there, which is not read then; empty: it is.

    Raises:
        CorruptedError: there is no such place, or the leaf is none.
        OSError, ShortReadError: a page cannot be read.
    """
    status = Status(cursor.engine.path)
    if leaf and len(leaf) != cursor.page_size:
        raise CorruptedError(f"{cursor.engine.path}: {len(leaf)} bytes are no leaf")
    page = ffi.from_buffer(leaf) if leaf else ffi.NULL
    status.check(lib.lio_place_go(cursor.pointer, place, len(place), page, status.error))


def walk_records(cursor: Cursor, count: int) -> Extents:
    """Moves a cursor over the next ``count`` records, and says where their values lie.

    Returns:
        Extents (dtype ``EXTENT``), in the order of the keys; fewer than ``count`` at the end.

    Raises:
        CorruptedError, OSError, ShortReadError: from the file.
    """
    extents = np.empty(count, EXTENT)
    return extents[: _walk(cursor, count, pointer_to(extents, "lio_extent *"))]


def skip_records(cursor: Cursor, count: int) -> int:
    """Moves a cursor over the next ``count`` records; how many there were."""
    return _walk(cursor, count, ffi.NULL)


def _walk(cursor: Cursor, count: int, out: object) -> int:
    made = ffi.new("size_t *")
    status = Status(cursor.engine.path)
    code = lib.lio_place_walk(cursor.pointer, count, out, made, status.error)
    if code != lib.LIO_NOTFOUND:
        status.check(code)
    return int(made[0])
