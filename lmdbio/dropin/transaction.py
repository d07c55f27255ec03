"""transaction: Transaction as in py-lmdb: a snapshot of a data file, and gets in it."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Callable
from typing import Any, cast

from lmdbio import _core
from lmdbio.dropin.arguments import as_bytes, as_get_key
from lmdbio.dropin.cursor import Cursor
from lmdbio.dropin.data_file import DataFile
from lmdbio.dropin.database import _Database, stat_of
from lmdbio.errors import (
    MDB_BAD_VALSIZE,
    MDB_INCOMPATIBLE,
    MDB_NOTFOUND,
    closed_error,
    lmdb_error,
)
from lmdbio.locate.key_index import KeyIndex
from lmdbio.observe import tracing
from lmdbio.pylmdb import reader_slots
from lmdbio.pylmdb.find import lmdb
from lmdbio.pylmdb.mirror import Counterpart

__all__ = ["Transaction"]


def _closed(_key: Any, _default: Any) -> Any:
    raise closed_error()


class Transaction(metaclass=Counterpart, of=lmdb.Transaction):
    """A read-only transaction: one snapshot. Made by ``Environment.begin``, or as py-lmdb's is.

    On py-lmdb's own environments it makes py-lmdb's transactions.

    Raises:
        ReadonlyError, lmdb.Error: a write or nested transaction was asked for.
        TypeError: ``db`` is no handle.
    """

    def __new__(
        cls,
        env: Any,
        db: Any = None,
        parent: Any = None,
        write: bool = False,
        buffers: bool = False,
    ) -> Any:
        if type(getattr(env, "_file", None)) is not DataFile:
            if getattr(type(env), "_stands_for", None) is lmdb.Environment:
                return env.begin(db, parent, write, buffers)  # it leaves a provenance file
            return cast(Any, lmdb.Transaction)(env, db, parent, write, buffers)
        self = super().__new__(cls)
        self._start(env, db, parent, write, buffers)
        return self

    def _start(
        self,
        env: Any,
        db: _Database | None,
        parent: Transaction | None,
        write: bool,
        buffers: bool,
    ) -> None:
        self._ended = True
        self._slot: reader_slots.Slot | None = None
        if write:
            raise lmdb_error(
                "Cannot start write transaction with read-only environment.", errno.EACCES
            )
        if parent is not None:
            raise lmdb_error("Read-only transactions cannot be nested.", errno.EINVAL)
        if db is not None and type(db) is not _Database:
            raise TypeError("invalid type")
        file: DataFile = env._file
        engine = file.open_engine()
        tracing.touch()
        self._env, self._file, self._db, self._buffers = env, file, db, bool(buffers)
        self._engine, self._direct_path = engine, file.open_direct_path()
        #: Values are lent from here.
        self._mapping = engine.mapping() if self._buffers else None
        if file.wants_slots:
            self._meta, self._pages, self._slot = file.hold_newest()
        else:
            self._meta, self._pages = file.newest(None)
        held = self._slot is not None
        self._snapshot = _core.Snapshot(self._pages, self._meta, held=held)
        self._ended = False
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        self._finds: dict[bytes | None, Callable[[Any, Any], Any]] = {}
        self._tables: dict[bytes | None, KeyIndex] = {}
        self._records: dict[bytes | None, _core.Database] = {None: self._meta.main_db}
        self._past = 0  # requests past the page cache, when last asked
        env._transactions.add(self)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Transaction' object")

    def _after_fork(self) -> None:
        self._snapshot.lose()  # the slot is the parent's to release
        for cursor in list(self._cursors):
            cursor._after_fork()

    def _check(self) -> None:
        if self._ended:
            raise closed_error()

    def _verify(self) -> None:
        """Refuse, after reads without a slot, what a writer may have overwritten.

        Raises:
            lmdb.Error: the snapshot may be gone.
        """
        if self._slot is not None and self._slot.held:
            return
        past = self._direct_path.counters().requests
        self._snapshot.check(doubt=past != self._past or self._mapping is not None)
        self._past = past

    def _doubt(self) -> None:
        """As ``_verify``, after reads by other engines than the snapshot's."""
        if self._slot is None or not self._slot.held:
            self._snapshot.check(doubt=True)

    def _database(self, db: _Database | None) -> _Database | None:
        if db is None:
            return self._db
        if type(db) is not _Database:
            raise TypeError("invalid type")
        if db._env is not self._env:
            raise lmdb_error("Database handle belongs to another environment.")
        return db

    def _record(self, name: bytes | None) -> _core.Database:
        """Return the database record of ``name`` in this snapshot.

        Raises:
            NotFoundError, IncompatibleError, BadValsizeError: there is no such database.
        """
        self._check()
        found = self._records.get(name)
        if found is not None:
            return found
        assert name is not None
        key = name + b"\0" if self._meta.layout.version == 3 else name
        cursor = _core.Cursor(self._pages, self._meta.main_db)
        try:
            record = cursor.find(key)
            holds = cursor.holds_database()
        except _core.EmptyKeyError:
            raise lmdb_error("mdb_dbi_open", MDB_BAD_VALSIZE) from None
        finally:
            cursor.close()
        self._verify()
        if record is None:
            raise lmdb_error("mdb_dbi_open", MDB_NOTFOUND)
        if not holds:
            raise lmdb_error("mdb_dbi_open", MDB_INCOMPATIBLE)
        found = self._records[name] = self._pages.parse_database(record)
        return found

    def _record_of(self, db: _Database | None) -> _core.Database:
        """Return the database record of ``db`` (None: the transaction's database)."""
        self._check()
        db = self._database(db)
        return self._record(db._name if db is not None else None)

    def get(self, key: Any, default: Any = None, db: _Database | None = None) -> Any:
        """Return the first value of ``key``, or ``default``.

        Raises:
            TypeError, BadValsizeError: ``key`` is no key, or empty.
            lmdb.Error: the transaction has ended, or a writer overwrote the snapshot.
            OSError: a page cannot be read.
        """
        if db is None:
            return self._find(key, default)
        self._check()
        db = self._database(db)
        return self._find_in(None if db is None else db._name)(key, default)

    def _find(self, key: Any, default: Any) -> Any:
        """``get`` in the transaction's database; the C core's own call hides it from then on."""
        self._check()
        find = self._find_in(None if self._db is None else self._db._name)
        self._find = find  # type: ignore[assignment, method-assign]
        return find(key, default)

    def _find_in(self, name: bytes | None) -> Callable[[Any, Any], Any]:
        """Return the C core's ``get`` in one database."""
        find = self._finds.get(name)
        if find is None:
            find = self._lookup(self._record(name), as_get_key, "mdb_get")[1].find
            self._finds[name] = find
        return find

    def _lookup(
        self, record: _core.Database, as_key: Callable[[Any], bytes], call: str
    ) -> tuple[_core.Cursor, _core.Lookup]:
        """Return a cursor of the C core's, and searches on it."""
        cursor = _core.Cursor(self._pages, record)
        return cursor, _core.Lookup(
            cursor,
            self._snapshot,
            as_key=as_key,
            call=call,
            buffers=self._buffers,
            mapping=self._mapping,
        )

    def _keys(self, db: _Database | None) -> KeyIndex:
        """Return the keys of ``db`` (None: the transaction's database) by number."""
        record = self._record_of(db)
        db = self._database(db)
        name = None if db is None else db._name
        if name not in self._tables:
            counted = self._file.counted(self._meta, record, name, self._doubt)
            self._tables[name] = KeyIndex(
                self._engine,
                self._meta,
                record,
                pattern=counted.pattern,
                leaves=lambda: counted.leaves,
                groups=counted.groups,
                guard=self._verify,
                pages=self._pages,
            )
        return self._tables[name]

    def cursor(self, db: _Database | None = None) -> Cursor:
        """Return a cursor over ``db`` (None: the transaction's database)."""
        return Cursor._on(db, self)

    def stat(self, db: _Database | None = None) -> dict[str, int]:
        """Return the sizes and counts of a database in this snapshot."""
        return stat_of(self._meta.layout, self._record_of(db))

    def id(self) -> int:
        """Return the number of the transaction that wrote the snapshot."""
        self._check()
        return self._meta.txnid

    def commit(self) -> None:
        """End the transaction.

        Raises:
            lmdb.Error: it has ended already.
        """
        self._check()
        self.abort()

    def abort(self) -> None:
        """End the transaction. May be called again, also after ``commit``."""
        if self._ended:
            return
        self._ended = True
        for cursor in list(self._cursors):
            cursor.close()
        self._finds.clear()
        self._find = _closed  # type: ignore[assignment, method-assign]
        if self._slot is not None:
            self._slot.release()
        self._env._transactions.discard(self)

    # Writing, refused as py-lmdb refuses it.

    def _refuse(self, what: str) -> lmdb.Error:
        """Return the refusal of a write.

        As in py-lmdb, cursors look again where they stand after one: a cursor that had come to an
        end shows its last record.
        """
        for cursor in list(self._cursors):
            cursor._is_stale = True
        return self._file.read_only(what)

    def put(
        self,
        key: Any,
        value: Any,
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
        db: Any = None,
    ) -> Any:
        """Raise ReadonlyError."""
        self._check()
        as_bytes(key), as_bytes(value)
        del dupdata, overwrite, append, db
        raise self._refuse("mdb_put")

    def replace(self, key: Any, value: Any, db: Any = None) -> Any:
        """Raise ReadonlyError."""
        return self.put(key, value, db=db)

    def delete(self, key: Any, value: Any = b"", db: Any = None) -> Any:
        """Raise ReadonlyError."""
        self._check()
        as_bytes(key), as_bytes(value)
        del db
        raise self._refuse("mdb_del")

    def pop(self, key: Any, db: Any = None) -> Any:
        """Raise ReadonlyError; return None where there is no such key."""
        self._check()
        return self.cursor(db).pop(key)

    def drop(self, db: Any, delete: bool = True) -> Any:
        """Raise ReadonlyError."""
        self._check()
        del delete
        if db is None:
            raise TypeError("'db' argument required.")
        raise self._refuse("mdb_drop")

    def __enter__(self) -> Transaction:
        self._check()
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self.abort()

    def __del__(self) -> None:
        if not self._ended:
            self.abort()
