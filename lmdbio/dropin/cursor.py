"""cursor: Cursor as in py-lmdb: moves, reads, iterators, and the number of a record."""

from __future__ import annotations

import errno

from lmdbio import _core
from lmdbio._core import Move
from lmdbio.dropin.arguments import as_optional_bytes
from lmdbio.dropin.iterator import CursorIterator
from lmdbio.dropin.position import Position
from lmdbio.errors import (
    MDB_BAD_VALSIZE,
    MDB_INCOMPATIBLE,
    MDB_NOTFOUND,
    CorruptedError,
    lmdb_error,
)
from lmdbio.system import pylmdb
from lmdbio.system.pylmdb import Counterpart
from lmdbio.system.slim import index as as_index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

__all__ = ["Cursor"]


class Cursor(Position, metaclass=Counterpart, of="Cursor"):
    """py-lmdb's Cursor. Made by ``Transaction.cursor``, or as py-lmdb's is.

    All moves return whether the cursor stands on a record then, and raise ``lmdb.Error`` where
    py-lmdb does, or where a writer may have overwritten the snapshot; ``OSError`` where a page
    cannot be read.
    """

    def __new__(cls, db: Any, txn: Any) -> Any:
        if db is not None and hasattr(txn, "_record_of"):
            return txn.cursor(db)
        if db is None or txn is None or isinstance(txn, pylmdb.lmdb.Transaction):
            return pylmdb.lmdb.Cursor(db, txn)
        raise TypeError("invalid type")

    # --- moving

    def first_dup(self) -> bool:
        """Move to the first value of the current key."""
        return self._move(Move.FIRST_DUP)

    def last_dup(self) -> bool:
        """Move to the last value of the current key."""
        return self._move(Move.LAST_DUP)

    def next_dup(self) -> bool:
        """Move to the next value of the current key."""
        return self._move(Move.NEXT_DUP)

    def prev_dup(self) -> bool:
        """Move to the value before, of the current key."""
        return self._move(Move.PREV_DUP)

    def set_key_dup(self, key: Any = b"", value: Any = b"") -> bool:
        """Move to exactly ``key`` and ``value``."""
        return self._move(Move.BOTH, as_optional_bytes(key), as_optional_bytes(value))

    def set_range_dup(self, key: Any = b"", value: Any = b"") -> bool:
        """Move to exactly ``key`` and its first value not below ``value``."""
        return self._move(Move.BOTH_RANGE, as_optional_bytes(key), as_optional_bytes(value))

    # --- reading

    def count(self) -> int:
        """Return the number of values of the current key."""
        if self._run is not None:
            self._settle()
        try:
            found = self._c.count()
        except _core.UnplacedError:
            raise lmdb_error("mdb_cursor_count", errno.EINVAL) from None
        except _core.NoDuplicatesError:
            raise lmdb_error("mdb_cursor_count", MDB_INCOMPATIBLE) from None
        if not found:
            raise lmdb_error("mdb_cursor_count", MDB_NOTFOUND)
        return found

    # --- by number (not in py-lmdb)

    def index(self) -> int:
        """Return the number, from 0, of the current record: its index in ``Records``.

        By arithmetic where ``lmdbio convert`` proved that keys count, else from its leaf, all
        leaves being counted once. Among the values of a key it is counted from the first.

        Raises:
            lmdb.Error: the cursor stands nowhere, or the keys cannot be read.
        """
        key = bytes(self.key())
        if not key:
            raise lmdb_error("the cursor stands nowhere", errno.EINVAL)
        first = self._txn._keys(self._db).record(key)
        if first is None:
            raise CorruptedError(
                f"{self._txn._opened.pages.engine.path}: key {key!r} is not where it was found"
            )
        found = first + (self._dups_before(key, bytes(self.value())) if self._dup else 0)
        self._txn._verify()
        return found

    def _dups_before(self, key: bytes, value: bytes) -> int:
        """Return how many values of ``key`` come before this one."""
        with self._txn.cursor(self._db) as other:
            there, before = other.set_key(key), 0
            while there and bytes(other.value()) != value:
                there, before = other.next_dup(), before + 1
        return before

    def set_index(self, index: int) -> bool:
        """Move to the record of a number; return False where there is none, and stay.

        Raises:
            lmdb.Error: the keys cannot be read, or are others than the provenance file computes.
        """
        at, keys = as_index(index), self._txn._keys(self._db)
        if not 0 <= at < self._txn._record_of(self._db).entries:
            return False
        key = keys.key(at)
        if not self.set_key(key):
            raise CorruptedError(
                f"{self._txn._opened.pages.engine.path}: record {at} is not at key {key!r}"
            )
        if keys.groups is not None:
            for _ in range(at - keys.groups[keys.groups.key_of(at)].start):
                self.next_dup()
        return True

    def getmulti(
        self,
        keys: Iterable[Any],
        dupdata: bool = False,
        dupfixed_bytes: int | None = None,
        keyfixed: bool = False,
        values: bool = True,
    ) -> Any:
        """Return key and value of each of ``keys`` that exists (py-lmdb's ``getmulti``)."""
        self._c  # noqa: B018
        if dupfixed_bytes and dupfixed_bytes < 0:
            raise OverflowError("can't convert negative value to unsigned int")
        if (dupfixed_bytes or keyfixed) and not dupdata:
            raise TypeError("dupdata is required for dupfixed_bytes/keyfixed.")
        if keyfixed and not dupfixed_bytes:
            raise TypeError("dupfixed_bytes is required for keyfixed.")
        if not values and dupdata:
            raise TypeError("values=False is incompatible with dupdata.")
        found: list[Any] = []
        first, step = (
            (Move.MULTIPLE, Move.NEXT_MULTIPLE) if dupfixed_bytes else (None, Move.NEXT_DUP)
        )
        for key in keys:
            if not self.set_key(key):
                continue
            if not values:
                found.append(self.key())
                continue
            placed = self._move(first) if first is not None else True
            while placed:
                name, data = self.item()
                if dupfixed_bytes:
                    found += [
                        (name, data[at : at + dupfixed_bytes])
                        for at in range(0, len(data), dupfixed_bytes)
                    ]
                else:
                    found.append((name, data))
                placed = dupdata and self._move(step)
        if not keyfixed:
            return found
        if len({len(name) for name, _ in found}) > 1:
            raise ValueError("keyfixed=True requires all keys to be the same size")
        return memoryview(b"".join(part for pair in found for part in pair))

    # --- iterating

    def iternext(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        """Iterate over the current record (the first, on a fresh cursor) and those after it."""
        if not self._is_placed():
            self.first()
        return CursorIterator(self, Move.NEXT, keys is None or keys, values is None or values)

    __iter__ = iternext

    def iternext_dup(self, keys: bool = False, values: bool = True) -> Iterator[Any]:
        """Iterate over the current value and those after it of the same key."""
        self._is_placed()
        return CursorIterator(self, Move.NEXT_DUP, keys, values is None or values)

    def iternext_nodup(self, keys: bool = True, values: bool = False) -> Iterator[Any]:
        """Iterate over the current key and those after it, with their first values."""
        if not self._is_placed():
            self.first()
        return CursorIterator(self, Move.NEXT_NODUP, keys is None or keys, values)

    def iterprev(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        """Iterate over the current record (the last, on a fresh cursor) and those before it."""
        if not self._is_placed():
            self.last()
        return CursorIterator(self, Move.PREV, keys is None or keys, values is None or values)

    def iterprev_dup(self, keys: bool = False, values: bool = True) -> Iterator[Any]:
        """Iterate over the current value and those before it of the same key."""
        self._is_placed()
        return CursorIterator(self, Move.PREV_DUP, keys, values is None or values)

    def iterprev_nodup(self, keys: bool = True, values: bool = False) -> Iterator[Any]:
        """Iterate over the current key and those before it, with their last values."""
        if not self._is_placed():
            self.last()
        return CursorIterator(self, Move.PREV_NODUP, keys is None or keys, values)

    def _iter_from(self, k: Any, reverse: bool) -> Iterator[Any]:
        found = self.first() if not k and not reverse else self.set_range(k)
        if reverse:
            if not found:
                self.last()
            return self.iterprev()
        return self.iternext() if found else iter(())

    # Writing, refused as py-lmdb refuses it.

    def put(
        self,
        key: Any = b"",
        value: Any = b"",
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
    ) -> Any:
        """Raise ReadonlyError."""
        self._c  # noqa: B018
        as_optional_bytes(key), as_optional_bytes(value)
        del dupdata, overwrite, append
        raise self._txn._refuse("mdb_put")

    def replace(self, key: Any = b"", value: Any = b"") -> Any:
        """Raise ReadonlyError."""
        if self._dup and not as_optional_bytes(key):
            raise lmdb_error("mdb_cursor_get", MDB_BAD_VALSIZE)
        return self.put(key, value)

    def putmulti(
        self,
        items: Iterable[Any],
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
    ) -> tuple[int, int]:
        """Raise ReadonlyError; return (0, 0) where there are no items."""
        self._c  # noqa: B018
        del dupdata, overwrite, append
        for item in items:
            if type(item) is not tuple or len(item) != 2:
                raise TypeError("putmulti() elements must be 2-tuples")
            raise self._txn._refuse("mdb_cursor_put() element #0")
        self._move(Move.CURRENT)
        return 0, 0

    def delete(self, dupdata: bool = False) -> bool:
        """Raise ReadonlyError; return False where the cursor stands nowhere."""
        del dupdata
        if not self._is_placed():
            return False
        raise self._txn._refuse("mdb_cursor_del")

    def pop(self, key: Any = b"") -> Any:
        """Raise ReadonlyError; return None where there is no such key."""
        if not self.set_key(as_optional_bytes(key)):
            return None
        raise self._txn._refuse("mdb_cursor_del")
