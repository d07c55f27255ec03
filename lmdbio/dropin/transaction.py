"""transaction: Transaction as in py-lmdb: a snapshot of a data file, and gets in it."""

from __future__ import annotations

import errno

from lmdbio import _core
from lmdbio.dropin.arguments import as_optional_bytes
from lmdbio.dropin.cursor import Cursor
from lmdbio.dropin.data_file import DataFile
from lmdbio.dropin.database import _Database, stat_of
from lmdbio.errors import Error, closed_error, lmdb_error
from lmdbio.observe import active
from lmdbio.system import pylmdb, reader_slots
from lmdbio.system.pylmdb import Counterpart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from lmdbio.dropin.open_snapshot import OpenSnapshot
    from lmdbio.locate.key_index import KeyIndex

    Made = TypeVar("Made")

__all__ = ["Transaction", "begin", "in_own"]


class Transaction(_core.Transacts, metaclass=Counterpart, of="Transaction"):
    """A read-only transaction: one snapshot. Made by ``Environment.begin``, or as py-lmdb's is.

    On py-lmdb's own environments it makes py-lmdb's transactions.

    Raises:
        ReadonlyError, lmdb.Error: a write or nested transaction was asked for.
        TypeError: ``db`` is no handle.
    """

    __slots__ = ("__weakref__",)
    if TYPE_CHECKING:
        _opened: OpenSnapshot
        _db: _Database | None
        _slot: Any  # of py-lmdb

    def __new__(
        cls,
        env: Any,
        db: Any = None,
        parent: Any = None,
        write: bool = False,
        buffers: bool = False,
    ) -> Any:
        if type(getattr(env, "_file", None)) is not DataFile:
            if getattr(type(env), "_stands_for", None) is pylmdb.lmdb.Environment:
                return env.begin(db, parent, write, buffers)  # it leaves a provenance file
            theirs: Any = pylmdb.lmdb.Transaction
            return theirs(env, db, parent, write, buffers)
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
        file: DataFile = env._file
        file.open_engine()
        if parent is not None and type(parent) is not Transaction:
            raise TypeError("invalid type")
        _check_handle(db, env)
        if parent is not None:
            raise lmdb_error("Read-only transactions cannot be nested.", errno.EINVAL)
        if write:
            raise lmdb_error(
                file.refusal("Cannot start write transaction with read-only environment."),
                errno.EACCES,
            )
        opened, slot = file.open_snapshot(bool(buffers))
        active.touch()
        self._env, self._db, self._opened = env, db, opened
        if slot is not None:
            self._slot = slot
        opened.find_in(None, self._verify)  # for C, which begins the next one where it is there
        self._finds = opened.finds
        self._find = opened.finds.get(None if db is None else db._name)
        slots = file.lock.slots if slot is not None else None
        if slots is not None or not file.lock.wanted:
            known = opened, opened.is_newest, opened.finds, buffers
            take = None if slots is None else slots.take
            env._know(*known, take)
        if not self._started():
            raise closed_error()  # by another thread

    @property
    def _file(self) -> DataFile:
        file: DataFile = self._env._file
        return file

    def __repr__(self) -> str:
        if self._ended:
            return "<Transaction: ended>"
        return f"<Transaction on state {self._opened.meta.txnid} of {self._env._path!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Transaction' object")

    def _after_fork(self) -> None:
        self._opened.snapshot.lose()
        if self._slot is not None:
            reader_slots.keep_inherited(self._slot)
            self._slot = None
        for cursor in self._cursors():
            cursor._after_fork()

    def _check(self) -> None:
        if self._ended:
            raise closed_error()

    def _verify(self) -> None:
        """Refuse, after reads without a slot, what a writer may have overwritten.

        Raises:
            lmdb.Error: the snapshot may be gone, or another thread has ended the transaction.
        """
        self._check()
        if self._slot is not None:
            return
        direct = self._file.direct_requests()
        self._opened.snapshot.check(
            doubt=direct != self._reads_direct or self._opened.mapping is not None
        )
        self._reads_direct = direct

    def _database(self, db: _Database | None) -> _Database | None:
        _check_handle(db, self._env)
        return self._db if db is None else db

    def _record(self, name: bytes | None) -> _core.Database:
        """Return the database record of ``name`` in this snapshot.

        Raises:
            NotFoundError, IncompatibleError, BadValsizeError: there is no such database.
        """
        self._check()
        return self._opened.record(name, self._verify)

    def _record_of(self, db: _Database | None) -> _core.Database:
        """Return the database record of ``db`` (None: the transaction's database)."""
        self._check()
        db = self._database(db)
        return self._record(db._name if db is not None else None)

    if TYPE_CHECKING:  # of C, which calls _get for what it does not find at once

        def get(self, key: Any, default: Any = None, db: _Database | None = None) -> Any:
            """Return the first value of ``key``, or ``default``.

            Raises:
                TypeError, BadValsizeError: ``key`` is no key, or empty.
                lmdb.Error: the transaction has ended, or a writer overwrote the snapshot.
                OSError: a page cannot be read.
            """
            return self._get(key, default, db)

    def _get(self, key: Any, default: Any = None, db: _Database | None = None) -> Any:
        self._check()
        found = self._find_in(self._database(db))(key, default)
        self._check()
        return found

    def _find_in(self, db: _Database | None) -> Callable[[Any, Any], Any]:
        """Return the C core's ``get`` in a database."""
        find = self._opened.find_in(None if db is None else db._name, self._verify)
        if db is self._db:
            self._find = find
        return find

    def _keys(self, db: _Database | None) -> KeyIndex:
        """Return the keys of ``db`` (None: the transaction's database) by number."""
        record = self._record_of(db)
        db = self._database(db)
        name = None if db is None else db._name
        return self._opened.keys(name, record)

    if TYPE_CHECKING:  # of C, which calls _cursor in a database that is not known yet

        def cursor(self, db: _Database | None = None) -> Cursor:
            """Return a cursor over ``db`` (None: the transaction's database)."""
            return self._cursor(db)

    def _cursor(self, db: _Database | None = None) -> Cursor:
        self._check()
        cursor: Cursor | None = self._stand(self._find_in(self._database(db)), db)
        if cursor is None:
            raise closed_error()
        return cursor

    def stat(self, db: _Database | None = None) -> dict[str, int]:
        """Return the sizes and counts of a database in this snapshot."""
        return stat_of(self._opened.meta.layout, self._record_of(db))

    def id(self) -> int:
        """Return the number of the transaction that wrote the snapshot."""
        self._check()
        return self._opened.meta.txnid

    def commit(self) -> None:
        """End the transaction.

        Raises:
            lmdb.Error: it has ended already.
        """
        self._check()
        self.abort()

    if TYPE_CHECKING:  # of C

        def abort(self) -> None:
            """End the transaction. May be called again, also after ``commit``."""

    # Writing, refused as py-lmdb refuses it.

    def _refuse(self, what: str) -> Error:
        """Return the refusal of a write.

        As in py-lmdb, cursors look again where they stand after one: a cursor that had come to an
        end shows its last record.
        """
        for cursor in self._cursors():
            cursor._is_stale = True
        return self._file.read_only(what)

    def put(
        self,
        key: Any = b"",
        value: Any = b"",
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
        db: Any = None,
    ) -> Any:
        """Raise ReadonlyError."""
        self._check()
        as_optional_bytes(key), as_optional_bytes(value), self._database(db)
        del dupdata, overwrite, append
        raise self._refuse("mdb_put")

    def replace(self, key: Any = b"", value: Any = b"", db: Any = None) -> Any:
        """Raise ReadonlyError."""
        self._check()
        return self.cursor(self._database(db)).replace(key, value)

    def delete(self, key: Any = b"", value: Any = b"", db: Any = None) -> Any:
        """Raise ReadonlyError."""
        self._check()
        as_optional_bytes(key), as_optional_bytes(value), self._database(db)
        raise self._refuse("mdb_del")

    def pop(self, key: Any = b"", db: Any = None) -> Any:
        """Raise ReadonlyError; return None where there is no such key."""
        self._check()
        return self.cursor(self._database(db)).pop(key)

    def drop(self, db: Any, delete: bool = True) -> Any:
        """Raise ReadonlyError."""
        self._check()
        del delete
        if db is None:
            raise TypeError("'db' argument required.")
        self._database(db)
        raise self._refuse("mdb_drop")


def _check_handle(db: Any, env: Any) -> None:
    """Refuse what is no handle of a database of this environment.

    Raises:
        TypeError: it is no handle.
        lmdb.Error: it is another environment's.
    """
    if db is not None and type(db) is not _Database:
        raise TypeError("invalid type")
    if db is not None and db._env is not env:
        raise lmdb_error("Database handle belongs to another environment.")


def begin(
    env: Any,
    db: _Database | None = None,
    parent: Transaction | None = None,
    write: bool = False,
    buffers: bool = False,
) -> Transaction:
    """Begin a transaction of an environment, whose ``begin`` says more."""
    txn: Transaction = object.__new__(Transaction)  # Transaction() would ask whose env it is
    txn._start(env, db, parent, write, buffers)
    return txn


def in_own(env: Any, step: Callable[[Transaction], Made]) -> Made:
    """Return what a step gives in a transaction of its own; in a newer one, where that is gone."""
    from lmdbio.locate.open_database import settled

    def run() -> Made:
        with env.begin() as txn:
            return step(txn)

    return settled(env._path, run)
