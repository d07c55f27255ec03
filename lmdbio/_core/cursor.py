"""Pages of a snapshot, and cursors over them (csrc/pages.h, cursor.h)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from lmdbio import errors, forked
from lmdbio._core.engine import Engine
from lmdbio._core.format import (
    Database,
    Layout,
    database_of,
    database_to_c,
    layout_to_c,
    newest_txnid_of,
)
from lmdbio._core.owner import owned
from lmdbio._core.status import Status, own
from lmdbio._lmdbio import ffi, lib

WANT_KEY = 1
WANT_VALUE = 2


class Move(IntEnum):
    """Where a cursor can be moved (``enum lio_move``)."""

    FIRST = 0
    FIRST_DUP = 1
    LAST = 2
    LAST_DUP = 3
    NEXT = 4
    NEXT_DUP = 5
    NEXT_NODUP = 6
    PREV = 7
    PREV_DUP = 8
    PREV_NODUP = 9
    CURRENT = 10
    MULTIPLE = 11
    NEXT_MULTIPLE = 12
    SET = 13
    SET_RANGE = 14
    BOTH = 15
    BOTH_RANGE = 16


class UnplacedError(Exception):
    """The move needs a cursor that stands somewhere."""


class NoDuplicatesError(Exception):
    """The move is for databases with duplicates."""


class EmptyKeyError(Exception):
    """No record has an empty key."""


class Pages:
    """The pages of one snapshot, cached (csrc/pages.h).

    Args:
        engine: kept alive.
        layout: of the file.
        cache_bytes: bound of the cache.
    """

    __slots__ = ("__weakref__", "_layout", "_pointer", "_status", "engine", "layout")

    def __init__(self, engine: Engine, layout: Layout, cache_bytes: int) -> None:
        self.engine, self.layout = engine, layout
        self._layout = layout_to_c(layout)
        self._status = status = Status(engine.path)
        out = ffi.new("lio_pages **")
        status.check(
            lib.lio_pages_open(engine.pointer, self._layout, cache_bytes, out, status.error)
        )
        self._pointer = owned(out[0], lib.lio_pages_close, engine.pointer)
        forked.register(self)

    def _before_fork(self) -> None:
        lib.lio_pages_lock(self._pointer)

    def _after_fork_in_parent(self) -> None:
        lib.lio_pages_unlock(self._pointer)

    def _after_fork(self) -> None:
        lib.lio_pages_forked(self._pointer)

    def requests(self) -> int:
        """Reads that the engine has issued: unchanged when nothing was read since."""
        return self.engine.counters().requests

    @property
    def pointer(self) -> Any:
        """The ``lio_pages *``, for other rooms of this file."""
        return self._pointer

    def newest(self) -> int:
        """The newest transaction in the file, now."""
        return newest_txnid_of(self.engine, self._layout, self._status)

    def parse_database(self, record: bytes) -> Database:
        """Decodes the record under which the main database keeps a named one."""
        out = ffi.new("lio_db *")
        status = Status(self.engine.path)
        status.check(
            lib.lio_db_parse(layout_to_c(self.layout), record, len(record), 0, out, status.error)
        )
        return database_of(out)


class Cursor:
    """A position in one tree (csrc/cursor.h)."""

    __slots__ = ("_pages", "_pointer", "_status")

    def __init__(self, pages: Pages, db: Database) -> None:
        self._pages = pages
        self._status = Status(pages.engine.path)
        out = ffi.new("lio_cursor **")
        self._status.check(
            lib.lio_cursor_open(pages.pointer, database_to_c(db), out, self._status.error)
        )
        self._pointer = owned(out[0], lib.lio_cursor_close, pages.engine.pointer)

    @property
    def engine(self) -> Engine:
        return self._pages.engine

    def _failed(self, code: int) -> Exception:
        found = self._status.exception(code)
        if code == lib.LIO_ERR_UNPLACED:
            return UnplacedError(str(found))
        if code == lib.LIO_ERR_UNSUPPORTED:
            return NoDuplicatesError(str(found))
        if code == lib.LIO_ERR_ARGUMENT:
            return EmptyKeyError(str(found))
        return found

    def move(self, move: int, key: bytes = b"", value: bytes = b"") -> bool:
        """Moves; False when there is no such place.

        Raises:
            UnplacedError, NoDuplicatesError, EmptyKeyError: a move that cannot be.
            CorruptedError, ShortReadError, OSError: from the file.
        """
        code = lib.lio_glue_move(
            self.pointer, move, key, len(key), value, len(value), 0, 0, own.error
        )
        if code == lib.LIO_OK:
            return True
        if code == lib.LIO_NOTFOUND:
            return False
        raise self._failed(code)

    def item(self, wanted: int) -> tuple[bytes, bytes]:
        """Key and value of where the last move ended; ``b""`` for what is not wanted."""
        cell: list[bytes] = [b"", b""]
        code = lib.lio_glue_item(self.pointer, wanted, id(cell), own.error)
        if code not in (lib.LIO_OK, lib.LIO_NOTFOUND):
            raise self._failed(code)
        return cell[0], cell[1]

    def find(self, key: bytes) -> bytes | None:
        """Moves to ``key`` and returns its (first) value, None when there is no such key."""
        cell: list[bytes] = [b"", b""]
        code = lib.lio_glue_move(
            self.pointer,
            lib.LIO_MOVE_SET,
            key,
            len(key),
            b"",
            0,
            WANT_VALUE,
            id(cell),
            own.error,
        )
        if code == lib.LIO_OK:
            return cell[1]
        if code == lib.LIO_NOTFOUND:
            return None
        raise self._failed(code)

    def holds_database(self) -> bool:
        """True when the current record describes a named database."""
        item = lib.lio_cursor_item(self.pointer)
        return bool(item != ffi.NULL and item.node_flags == lib.LIO_N_SUBDATA)

    def holds_duplicates(self) -> bool:
        """True when the current key has a page or tree of duplicates."""
        item = lib.lio_cursor_item(self.pointer)
        return bool(item != ffi.NULL and item.node_flags & lib.LIO_N_DUPDATA)

    def count(self) -> int:
        """Number of values of the current key; 0 when there is no current key."""
        out = ffi.new("uint64_t *")
        code = lib.lio_cursor_count(self.pointer, out, own.error)
        if code == lib.LIO_NOTFOUND:
            return 0
        if code != lib.LIO_OK:
            raise self._failed(code)
        return int(out[0])

    @property
    def pointer(self) -> Any:
        """The ``lio_cursor *``, for other rooms of this file."""
        if self._pointer is None:
            raise errors.Error("Attempt to operate on closed/deleted/dropped object.")
        return self._pointer

    def close(self) -> None:
        self._pointer = None
