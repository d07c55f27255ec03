"""The parts of Environment and Transaction that are C (lmdbio/_core/glue/transaction.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmdbio._core._lmdbio import lib
from lmdbio._core.owner import made_type

if TYPE_CHECKING:

    class Begins:
        """Base of an environment: ``begin`` is C, and else calls ``_begin``."""

        def _know(
            self,
            kind: type,
            opened: Any,
            watch: Any,
            find: Any,
            buffers: bool,
            take: Any = None,
            number: Any = None,
        ) -> None:
            """Let transactions of class ``kind`` begin on a snapshot, as long as ``watch`` holds.

            Args:
                kind: derived from ``Transacts``.
                opened: the snapshot.
                watch: of ``watch``.
                find: of ``Lookup``, in the main database. Where it or ``watch`` is another
                    callable or None, nothing is known.
                buffers: transactions that lend views, not those that give bytes.
                take: takes the reader slot that such a transaction holds until it ends, by a
                    transaction of py-lmdb's; None: it holds none.
                number: returns the number of the snapshot that one holds.
            """

        def _forget(self) -> None:
            """Know no snapshot."""

        def _living(self) -> list[Any]:
            """Return the transactions that have not ended."""
            return []

    class Transacts:
        """Base of a transaction: ``get``, ``abort``, ``with`` are C, or call ``_get``, ``_end``.

        C keeps what stands below, and lets go of ``_slot``, a transaction of py-lmdb's, at the
        end. ``_ended`` is true before it begins, too.
        """

        _env: Any
        _opened: Any
        _db: Any
        _slot: Any
        _open_cursors: Any
        _find: Any
        _past: int
        _ended: bool

        def _started(self) -> None:
            """Begin, once ``_env`` is there."""

        def __enter__(self) -> Any: ...

        def __exit__(self, *_: object) -> None: ...

else:
    Begins = made_type(lib.lio_begins_type)
    Transacts = made_type(lib.lio_transacts_type)
