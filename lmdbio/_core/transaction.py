"""The parts of Environment and Transaction that are C (lmdbio/_core/glue/transaction.h)."""

from __future__ import annotations

from lmdbio._core._lmdbio import lib
from lmdbio._core.owner import made_type

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
            watch: Any,
            finds: dict[Any, Any],
            buffers: bool,
            take: Any = None,
        ) -> None:
            """Let transactions begin on a snapshot, as long as ``watch`` holds.

            Args:
                opened: the snapshot.
                watch: function that ``watch`` returned.
                finds: functions of ``finder`` by the name of their database; more may come. In
                    another one no transaction begins, nor where ``watch`` is another callable.
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
        _past: int
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
    Begins = made_type(lib.lio_begins_type)
    Names = made_type(lib.lio_names_type)
    Transacts = made_type(lib.lio_transacts_type)
