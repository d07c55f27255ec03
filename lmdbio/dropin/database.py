"""database: handles of a file's databases."""

from __future__ import annotations

from lmdbio import _core
from lmdbio._core import WANT_KEY
from lmdbio.errors import MDB_DBS_FULL, Error, NotFoundError, lmdb_error
from lmdbio.system.pylmdb import Counterpart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Handles", "_Database", "stat_of"]


class _Database(_core.Names, metaclass=Counterpart, of="_Database"):
    """A handle from ``Environment.open_db``, for transactions of that environment alone."""

    __slots__ = ("__weakref__", "_flags")

    _name: bytes | None
    _flags: int

    def __new__(cls, *_: Any, **__: Any) -> _Database:
        raise TypeError("cannot create '_Database' instances")

    @classmethod
    def _of(cls, env: Any, name: bytes | None, flags: int) -> _Database:
        handle = super().__new__(cls)
        handle._env, handle._name, handle._flags = env, name, flags
        return handle

    def __reduce__(self) -> Any:
        return _Database._of, (self._env, self._name, self._flags)

    def flags(self, *args: Any) -> dict[str, bool]:
        """Return the stored flags, under the names of ``open_db``'s keywords.

        Raises:
            TypeError: more than one argument (py-lmdb takes a transaction, and ignores it).
        """
        if len(args) > 1:
            raise TypeError("flags takes 0 or 1 arguments")
        return {
            "reverse_key": bool(self._flags & 0x02),
            "dupsort": bool(self._flags & 0x04),
            "integerkey": bool(self._flags & 0x08),
            "integerdup": bool(self._flags & 0x20),
            "dupfixed": bool(self._flags & 0x10),
        }


class Handles:
    """The named databases that an environment has opened: at most ``max_dbs`` of them."""

    def __init__(self, max_dbs: int) -> None:
        self._names: set[bytes] = set()
        self._max_dbs = max_dbs

    def open(self, env: Any, key: bytes | None, txn: Any, create: bool) -> _Database:
        """Return a handle of the database ``key`` (None: the main one).

        Raises:
            ReadonlyError: there is no such database (NotFoundError without ``create``).
            IncompatibleError: the name is the key of a plain record.
            DbsFullError: more names than ``max_dbs``.
        """
        if key is None:
            return _Database._of(env, None, txn._record(None).flags)
        if key not in self._names and len(self._names) >= self._max_dbs:
            raise lmdb_error("mdb_dbi_open", MDB_DBS_FULL)
        try:
            record = txn._record(key)
        except NotFoundError:
            if create:
                raise env._file.read_only("mdb_dbi_open") from None
            raise
        self._names.add(key)
        return _Database._of(env, key, record.flags)

    def names(self, env: Any, txn: Any) -> list[bytes]:
        """Return the names of the named databases, as far as ``max_dbs`` goes."""
        found = []
        cursor = txn.cursor(_Database._of(env, None, 0))
        placed = cursor.first()
        while placed:
            if cursor._c.holds_database():
                name = cursor._get(WANT_KEY)
                name = name[:-1] if name[-1:] == b"\0" else name
                try:
                    self.open(env, name, txn, create=False)
                except Error:
                    pass
                else:
                    found.append(name)
            placed = cursor.next()
        cursor.close()
        return found


def stat_of(layout: _core.Layout, db: _core.Database) -> dict[str, int]:
    """Return the sizes and counts of a database, under py-lmdb's names."""
    return {
        "psize": layout.page_size,
        "depth": db.depth,
        "branch_pages": db.branch_pages,
        "leaf_pages": db.leaf_pages,
        "overflow_pages": db.overflow_pages,
        "entries": db.entries,
    }
