"""The part of a cursor that is C (lmdbio/_core/glue/position.h)."""

from __future__ import annotations

from lmdbio._core._lmdbio import lib
from lmdbio._core.cursor import WANT_KEY, WANT_VALUE, Move
from lmdbio._core.owner import made_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

if TYPE_CHECKING:

    class Stands:
        """Base of a position: what programs call for each record is C, or calls Python.

        Python has ``_move``, ``_seek_key``, ``_get_key``, ``_peek``, ``_check`` and ``_end_run``
        for it. A transaction makes it (``Transacts``).
        """

        _lookup: Any  #: of C, with the cursor; None: closed
        _txn: Any
        _db: Any  #: None: the transaction's database
        _dup: bool
        _made: Any  #: what Python has made of the cursor
        _kept_guard: Any
        _run: Any  #: records read ahead; None: none
        _unproved: int | None
        _placed: bool
        _keyless: bool
        _is_stale: bool
        _failed: bool

        def _seek(self, key: bytes) -> bool:
            """Move the C core's cursor to ``key``; return whether it is there."""
            return bool(key)

        def _read(self, wanted: int) -> Any:
            """Return key, value, or both in a tuple, of where its last move ended."""

        def _keep_guard(self, guard: Any) -> Any:
            """Return the guard that was brought first, by any thread."""

        def close(self) -> None:
            """Close the cursor and free its pages. May be called twice."""

        def _move(self, move: int) -> bool: ...

        def _seek_key(self, key: Any) -> bool: ...

        def _get_key(self, key: Any, default: Any = None) -> Any: ...

        def _peek(self, wanted: int) -> Any: ...

        def first(self) -> bool:
            """Move to the first record."""
            return self._move(Move.FIRST)

        def last(self) -> bool:
            """Move to the last record, and to its last value."""
            return self._move(Move.LAST)

        def next(self) -> bool:
            """Move to the next value, or key; on a fresh cursor to the first record."""
            return self._move(Move.NEXT)

        def next_nodup(self) -> bool:
            """Move to the first value of the next key."""
            return self._move(Move.NEXT_NODUP)

        def prev(self) -> bool:
            """Move to the value before, or key; on a fresh cursor to the last record."""
            return self._move(Move.PREV)

        def prev_nodup(self) -> bool:
            """Move to the last value of the key before."""
            return self._move(Move.PREV_NODUP)

        def key(self) -> Any:
            """Return the current key; empty when the cursor stands nowhere."""
            return self._peek(WANT_KEY)

        def value(self) -> Any:
            """Return the current value; empty when the cursor stands nowhere."""
            return self._peek(WANT_VALUE)

        def item(self) -> Any:
            """Return the current key and value."""
            return self._peek(WANT_KEY | WANT_VALUE)

        def get(self, key: Any, default: Any = None) -> Any:
            """Move to ``key`` and return its value, else ``default``."""
            return self._get_key(key, default)

        def set_key(self, key: Any) -> bool:
            """Move to exactly ``key``; return whether it is there.

            Raises:
                BadValsizeError: ``key`` is empty.
                TypeError: it is no key; the position stays as it was then.
                lmdb.Error, OSError: a writer may have overwritten the snapshot; a page cannot be
                    read.
            """
            return self._seek_key(key)

else:
    Stands = made_type(lib.lio_stands_type)
