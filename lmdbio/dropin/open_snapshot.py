"""open_snapshot: a snapshot with all that reads it, which transactions on it have in common.

A program that begins a transaction for each record pays for the first one alone: the next one
looks whether the meta pages are as they were (one short read), and goes on with the pages, cursors
and databases that are there.
"""

from __future__ import annotations

from lmdbio import _core
from lmdbio.dropin.arguments import as_get_key
from lmdbio.errors import (
    MDB_BAD_VALSIZE,
    MDB_INCOMPATIBLE,
    MDB_NOTFOUND,
    lmdb_error,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lmdbio.locate.key_index import KeyIndex

__all__ = ["OpenSnapshot"]


class OpenSnapshot:
    """A snapshot of a data file, and what transactions have opened on it.

    Attributes:
        meta, pages: the state of the file, and its pages, cached.
        snapshot: Snapshot, which vouches for all that is read of them.
        buffers: keys and values are handed out as memoryviews.
        mapping: mapping of the engine, from which views are lent; None: values are bytes.
        finds: the C core's ``get`` in each database that one was asked of, by name.
        tables: the keys of databases by number, by name.
        is_newest: quick check that the file still has this state; False where it cannot say.

    Args:
        meta, pages, buffers: attributes of the same names.
        raw: bytes of both meta pages, as they were; None: they have moved on.
        held: reader slots keep the pages from being overwritten.
        waited: called after each ``get`` that waited for the storage; None: nobody asks.
    """

    __slots__ = (
        "_records",
        "_waited",
        "buffers",
        "finds",
        "is_newest",
        "mapping",
        "meta",
        "pages",
        "snapshot",
        "tables",
    )

    def __init__(
        self,
        meta: _core.Meta,
        pages: _core.Pages,
        raw: bytes | None,
        *,
        held: bool,
        buffers: bool,
        waited: Callable[[int], None] | None,
    ) -> None:
        self._waited = waited
        self.meta, self.pages, self.buffers = meta, pages, buffers
        self.snapshot = _core.Snapshot(pages, meta, held=held)
        self.mapping = pages.engine.mapping() if buffers else None
        self.finds: dict[bytes | None, Callable[[Any, Any], Any]] = {}
        self.tables: dict[bytes | None, KeyIndex] = {}
        self._records: dict[bytes | None, _core.Database] = {None: meta.main_db}
        #: ``bool()`` is False.
        self.is_newest = bool if raw is None else _core.monitor(pages.engine, meta.layout, raw)

    def record(self, name: bytes | None, verify: Callable[[], None]) -> _core.Database:
        """Return the database record of ``name``.

        Args:
            name: name of the database; None: the main one.
            verify: function that raises where a writer may have overwritten what was read.

        Raises:
            NotFoundError, IncompatibleError, BadValsizeError: there is no such database.
        """
        found = self._records.get(name)
        if found is not None:
            return found
        assert name is not None
        key = name + b"\0" if self.meta.layout.version == 3 else name
        cursor = _core.Cursor(self.pages, self.meta.main_db)
        try:
            record = cursor.find(key)
            holds = cursor.holds_database()
        except _core.EmptyKeyError:
            raise lmdb_error("mdb_dbi_open", MDB_BAD_VALSIZE) from None
        except Exception:
            verify()  # a page of another state is no damage
            raise
        finally:
            cursor.close()
        verify()
        if record is None:
            raise lmdb_error("mdb_dbi_open", MDB_NOTFOUND)
        if not holds:
            raise lmdb_error("mdb_dbi_open", MDB_INCOMPATIBLE)
        found = self._records[name] = self.pages.parse_database(record)
        return found

    def keys(self, name: bytes | None, record: _core.Database) -> KeyIndex:
        """Return the keys of database ``name`` by number; the leaves are counted once.

        Raises:
            OSError, Error: the tree cannot be read, or a writer may have overwritten it.
        """
        if name not in self.tables:
            from lmdbio.locate.open import number_keys

            try:
                found = number_keys(self.pages, self.meta, record, name, self.doubt)
            except Exception:
                self.doubt()  # a page of another state is no damage
                raise
            self.doubt()
            self.tables[name] = found
        return self.tables[name]

    def doubt(self) -> None:
        """Refuse, after reads that the engine has not counted, what a writer may have overwritten.

        Raises:
            lmdb.Error: the snapshot may be gone.
        """
        self.snapshot.check(doubt=True)

    def find_in(self, name: bytes | None, verify: Callable[[], None]) -> Callable[[Any, Any], Any]:
        """Return the C core's ``get`` in one database; see ``record``."""
        find = self.finds.get(name)
        if find is None:
            find = self.finds[name] = _core.finder(
                _core.Cursor(self.pages, self.record(name, verify)),
                self.snapshot,
                as_key=as_get_key,
                buffers=self.buffers,
                mapping=self.mapping,
                waited=self._waited,
            )
        return find
