"""position: where a cursor stands in one database, and how it is moved and read there.

The C cursor (``_core.Cursor``) makes the moves. While an iterator hands out records of a run
(``Run``), the position is that of the record handed out last; any move puts the C cursor there
first (``_settle``). Both py-lmdb's surface (``Cursor``) and the iterators stand on this.
"""

from __future__ import annotations

import errno
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from lmdbio import _core
from lmdbio._core import WANT_KEY, WANT_VALUE, Move
from lmdbio.dropin.arguments import as_bytes
from lmdbio.dropin.data_file import DataFile
from lmdbio.dropin.run import Run
from lmdbio.errors import (
    MDB_BAD_VALSIZE,
    MDB_INCOMPATIBLE,
    BadValsizeError,
    CorruptedError,
    Error,
    closed_error,
    lmdb_error,
)
from lmdbio.locate.key_index import KeyIndex
from lmdbio.reading.direct_path import DirectPath

__all__ = ["WANT_ITEM", "Position", "Snapshotted"]

WANT_ITEM = WANT_KEY | WANT_VALUE
_DUP_EDGES = (Move.FIRST_DUP, Move.LAST_DUP)


class Snapshotted(Protocol):
    """The part of a transaction that its cursors use."""

    @property
    def _file(self) -> DataFile: ...

    @property
    def _buffers(self) -> bool: ...

    @property
    def _cursors(self) -> weakref.WeakSet[Any]: ...

    @property
    def _direct_path(self) -> DirectPath: ...

    @property
    def _engine(self) -> _core.Engine: ...

    @property
    def _mapping(self) -> memoryview | None: ...

    @property
    def _snapshot(self) -> _core.Snapshot: ...

    def _record_of(self, db: Any) -> _core.Database: ...

    def _lookup(
        self, record: _core.Database, as_key: Callable[[Any], bytes], call: str
    ) -> tuple[_core.Cursor, _core.Lookup]: ...

    def _keys(self, db: Any) -> KeyIndex: ...

    def _verify(self) -> None: ...

    def _refuse(self, what: str) -> Error: ...


class Position(_core.Stands):
    """A position in one database of a snapshot.

    Threads may share it as py-lmdb's cursors are shared: the run is guarded, moves are not.
    """

    # The last move could not be made (_failed); or it was, but could not be proved to have stayed
    # in the snapshot (_unproved). A step may be made again, and passes over nothing.
    if TYPE_CHECKING:
        _run: Run | None
        _seek: Callable[[bytes], bool] | None
    __slots__ = ("__weakref__", "_db", "_dup", "_empty", "_guard", "_open", "_read", "_txn")

    def _start(self, db: Any, txn: Snapshotted) -> None:
        record = txn._record_of(db)
        self._txn, self._db = txn, db
        self._guard = threading.RLock()  # of the run
        self._dup = bool(record.flags & 0x04)
        opened, lookup = txn._lookup(record, as_bytes, "mdb_cursor_get")
        self._open: _core.Cursor | None = opened
        self._seek, self._read = lookup.seek, lookup.read
        self._empty: Any = memoryview(b"") if txn._buffers else b""
        txn._cursors.add(self)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Cursor' object")

    def _after_fork(self) -> None:
        self._guard = threading.RLock()

    @property
    def _c(self) -> _core.Cursor:
        """The C cursor.

        Raises:
            lmdb.Error: this cursor is closed.
        """
        if self._open is None:
            raise closed_error()
        return self._open

    def close(self) -> None:
        """Close the cursor and free its pages. May be called twice."""
        run, self._run = self._run, None
        if run is not None:
            run.end()
        cursor, self._open = self._open, None
        self._seek = None
        if cursor is not None:
            cursor.close()

    def _settle(self) -> None:
        """End a run, if there is one, and put the C cursor on the record it last handed out."""
        with self._guard:
            self._settle_guarded()

    def _settle_guarded(self) -> None:
        run = self._run
        if run is None:
            return
        # Should this fail, the run stays: it alone knows the position.
        try:
            run.settle(self._c)
        except CorruptedError:
            self._txn._verify()
            raise
        self._run = None
        run.end()

    def _move(self, move: Move, key: bytes = b"", value: bytes = b"") -> bool:
        """Move the C cursor; return whether it stands on a record then.

        Raises:
            lmdb.Error: LMDB refuses the move, or a writer may have overwritten the snapshot.
            OSError: a page cannot be read.
        """
        if self._run is not None:
            self._settle()
        cursor = self._open
        if cursor is None:
            raise closed_error()
        # LMDB's first_dup and last_dup tell no key: py-lmdb shows the one it had.
        keyless = move in _DUP_EDGES and (self._keyless or not self._placed)
        again, self._unproved = self._unproved == move, None
        self._failed = True
        self._placed = self._keyless = self._is_stale = False
        try:
            placed = again or cursor.move(move, key, value)
        except _core.UnplacedError:
            self._failed = False
            if move is Move.CURRENT:
                return False
            raise lmdb_error("mdb_cursor_get", errno.EINVAL) from None
        except _core.NoDuplicatesError:
            self._failed = False
            raise lmdb_error("mdb_cursor_get", MDB_INCOMPATIBLE) from None
        except _core.EmptyKeyError:
            self._failed = False
            raise lmdb_error("mdb_cursor_get", MDB_BAD_VALSIZE) from None
        except CorruptedError:
            self._txn._verify()
            raise
        if placed and not key:
            self._unproved = move
        self._txn._verify()
        self._placed, self._failed, self._unproved = placed, False, None
        self._keyless = keyless and placed and cursor.holds_duplicates()
        return placed

    def _seek_key(self, key: Any) -> bool:
        """Move to exactly ``key``; return whether it is there.

        Raises:
            BadValsizeError: ``key`` is empty.
            TypeError: it is no key; the position stays as it was then.
            lmdb.Error, OSError: as for ``_move``.
        """
        seek = self._seek
        if seek is None:
            raise closed_error()
        key = as_bytes(key)
        if self._run is not None:
            self._settle()
        self._placed = self._keyless = self._is_stale = False
        self._failed, self._unproved = True, None
        try:
            self._placed = placed = seek(key)
        except BadValsizeError:
            self._failed = False
            raise
        self._failed = False
        return placed

    def _get_key(self, key: Any, default: Any = None) -> Any:
        return self._read(WANT_VALUE) if self._seek_key(key) else default

    def _get(self, wanted: int) -> Any:
        """Return the key, value or item on which the last move ended."""
        found = self._read(wanted)
        if not self._keyless or wanted == WANT_VALUE:
            return found
        return (self._empty, found[1]) if wanted == WANT_ITEM else self._empty

    def _shape(self, key: Any, value: Any, wanted: int) -> Any:
        """Return key, value or both as the transaction hands them out."""
        if self._keyless:
            key = b""
        if self._txn._buffers:
            key, value = memoryview(key), memoryview(value)
        if wanted == WANT_ITEM:
            return key, value
        return key if wanted == WANT_KEY else value

    def _peek(self, wanted: int) -> Any:
        """Return the current key, value or item, empty where the cursor stands nowhere."""
        if self._open is None:
            raise closed_error()
        if self._is_stale:
            self._look_again()
        if not self._placed:
            return (self._empty, self._empty) if wanted == WANT_ITEM else self._empty
        if self._run is not None:
            with self._guard:  # no other thread ends the run meanwhile
                run = self._run
                if run is not None and (wanted == WANT_KEY or run.values):
                    key, value = bool(wanted & WANT_KEY), bool(wanted & WANT_VALUE)
                    place = run.last(keys=key, values=value)
                    if place is not None:
                        return self._shape(*place, wanted)
                self._settle()
            self._move(Move.CURRENT)
        return self._get(wanted)

    def _look_again(self) -> None:
        """Take the place of the C cursor as ours, also after a move that failed."""
        self._is_stale = False
        if self._open is not None and (self._keyless or not self._placed):
            self._move(Move.CURRENT)

    def _is_placed(self) -> bool:
        """Return whether the cursor stands on a record.

        Raises:
            lmdb.Error: it is closed.
        """
        if self._open is None:
            raise closed_error()
        return self._placed
