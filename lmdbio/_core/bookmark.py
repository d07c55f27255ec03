"""Where a cursor stands, written down; where the records lie that it comes by.

Source: csrc/bookmark.h.
"""

from __future__ import annotations

import numpy as np

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, Extents, pointer_to
from lmdbio._core.cursor import Cursor
from lmdbio._core.status import Status

#: No bookmark takes more bytes.
BOOKMARK_BYTES_MAX = int(lib.LIO_BOOKMARK_BYTES_MAX)


def bookmark_of(cursor: Cursor) -> bytes:
    """Return a bookmark of a cursor, for another process with the same file.

    Raises:
        Error: it stands nowhere.
    """
    out, size = ffi.new("uint8_t[]", BOOKMARK_BYTES_MAX), ffi.new("size_t *")
    Status(cursor.engine.path).call(lib.lio_bookmark_write, cursor.pointer, out, size)
    return bytes(ffi.buffer(out, size[0]))


def go_to(cursor: Cursor, bookmark: bytes) -> None:
    """Puts a cursor on a bookmark of its database.

    Raises:
        CorruptedError: there is no such bookmark.
        OSError, ShortReadError: a page cannot be read.
    """
    Status(cursor.engine.path).call(lib.lio_bookmark_go, cursor.pointer, bookmark, len(bookmark))


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
    code = lib.lio_bookmark_walk(cursor.pointer, count, out, made, status.error)
    if code != lib.LIO_NOTFOUND:
        status.check(code)
    return int(made[0])
