"""The parts of Environment, Transaction and Cursor that are C (lmdbio/_core/glue/position.h)."""

from __future__ import annotations

from lmdbio._core._lmdbio import lib
from lmdbio._core.cursor import WANT_KEY, WANT_VALUE, Move
from lmdbio._core.owner import make_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

if TYPE_CHECKING:

    class Begins:
        """Base of an environment: ``begin`` is C, and else calls ``_begin``."""

        def _make(self, transaction: type, cursor: type, handle: type) -> None:
            """Say of which classes transactions and their cursors are, before the first one.

            Args:
                transaction: class of transactions, derived from ``Transacts``.
                cursor: class of their cursors, derived from ``Stands``.
                handle: class of the handles of databases, derived from ``Names``.
            """

        def _know(
            self,
            opened: Any,
            monitor: Any,
            finds: dict[Any, Any],
            buffers: bool,
            take: Any = None,
        ) -> None:
            """Let transactions begin on a snapshot, as long as ``monitor`` holds.

            Args:
                opened: the snapshot.
                monitor: function that ``monitor`` returned.
                finds: functions of ``finder`` by the name of their database; more may come. In
                    another one no transaction begins, nor where ``monitor`` is another callable.
                buffers: transactions that lend views, not those that give bytes.
                take: function that takes the reader slot which such a transaction holds until it
                    ends, by a transaction of py-lmdb's; None: it holds none.
            """

        def _forget(self) -> None:
            """Know no snapshot."""

        def _shut(self) -> None:
            """Know no snapshot any more, and let no transaction begin."""

        def _living(self) -> list[Any]:
            """Return the transactions that have not ended."""
            return []

    class Names:
        """Base of a database's handle: C looks at what stands below."""

        _env: Any
        _name: Any

    class Stands:
        """Base of a position: what programs call for each record is C, or calls Python.

        Python has ``_move``, ``_seek_key``, ``_seek_range``, ``_get_key``, ``_peek``, ``_check``
        and ``_end_run`` for it. A transaction makes it (``Transacts``).
        """

        _lookup: Any  #: of C, with the cursor; None: closed
        _txn: Any
        _db: Any  #: None: the transaction's database
        _dup: bool
        _made: Any  #: what Python has made of the cursor
        _guard_lock: Any
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

        def _set_guard_lock(self, guard: Any) -> Any:
            """Return the guard that was brought first, by any thread."""

        def close(self) -> None:
            """Close the cursor and free its pages. May be called twice."""

        def _move(self, move: int) -> bool: ...

        def _seek_key(self, key: Any) -> bool: ...

        def _seek_range(self, key: Any) -> bool: ...

        def _get_key(self, key: Any, default: Any = None) -> Any: ...

        def _item_here(self, wanted: int) -> Any: ...

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
            return self._item_here(WANT_KEY)

        def value(self) -> Any:
            """Return the current value; empty when the cursor stands nowhere."""
            return self._item_here(WANT_VALUE)

        def item(self) -> Any:
            """Return the current key and value."""
            return self._item_here(WANT_KEY | WANT_VALUE)

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

        def set_range(self, key: Any) -> bool:
            """Move to the first key not below ``key``; the first of all, where that is empty."""
            return self._seek_range(key)

    class Transacts:
        """Base of a transaction: ``abort`` and ``with`` are C; ``get`` and ``cursor`` are, or call
        ``_get`` and ``_cursor``.

        C keeps what stands below, and lets go of ``_slot``, a transaction of py-lmdb's, at the
        end, when it has closed the cursors. ``_ended`` is true before it begins, too.
        """

        _env: Any
        _opened: Any
        _finds: dict[Any, Any]
        _db: Any
        _slot: Any
        _find: Any
        _reads_direct: int
        _ended: bool

        def _started(self) -> bool:
            """Begin, once ``_env`` is there; return False where that is shut."""
            return True

        def _stand(self, find: Any, db: Any) -> Any:
            """Return a cursor over ``db``, in which ``find`` finds; None: it has ended."""

        def _cursors(self) -> list[Any]:
            """Return the cursors that are open."""
            return []

        def __enter__(self) -> Any: ...

        def __exit__(self, *_: object) -> None: ...

else:
    Begins = make_object(lib.lio_begins_type)
    Names = make_object(lib.lio_names_type)
    Stands = make_object(lib.lio_stands_type)
    Transacts = make_object(lib.lio_transacts_type)
