"""Cursor as in py-lmdb, and its iterators, which read ahead.

A cursor moves step by step through the C core's. An iterator that has gone some steps forwards
begins a *run*: records are read ahead in blocks (csrc/scan.h) and handed out by C alone, until
they end or the cursor is moved otherwise.
"""

from __future__ import annotations

import errno
import operator
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from lmdbio import _core
from lmdbio._core import WANT_KEY, WANT_VALUE, Move
from lmdbio.errors import (
    MDB_BAD_VALSIZE,
    MDB_INCOMPATIBLE,
    BadValsizeError,
    CorruptedError,
    Error,
    closed_error,
    lmdb_error,
)
from lmdbio.locate.key_index import KeyTable
from lmdbio.pylmdb.find import lmdb
from lmdbio.pylmdb.mirror import Counterpart
from lmdbio.reading.direct_path import Bypass

__all__ = ["Cursor", "as_bytes"]

#: Single steps of an iterator before it reads ahead.
STEPS_BEFORE_SCAN = 2
STEPS_BEFORE_SCAN_MAX = 1024
#: Blocks that grow, up to those that are large enough to pass by the page cache.
BLOCKS_BEFORE_BYPASS = 3

_DUP_EDGES = (Move.FIRST_DUP, Move.LAST_DUP)
_WANT_ITEM = WANT_KEY | WANT_VALUE


def as_bytes(value: Any) -> bytes:
    """A key or value as py-lmdb takes it: bytes, or what has a buffer of them.

    Raises:
        TypeError: it is a str, or has none.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        raise TypeError("Won't implicitly convert Unicode to bytes; use .encode()")
    try:
        return bytes(memoryview(value))
    except TypeError:
        name = type(value).__name__
        raise TypeError(f"a bytes-like object is required, not '{name}'") from None


def _closed(_argument: Any) -> Any:
    raise closed_error()


class _Environment(Protocol):
    """What a cursor asks of its transaction's environment."""

    _advised: bool
    _dense: bool
    _block_bytes_max: int


class _Transaction(Protocol):
    """What a cursor asks of its transaction."""

    _buffers: bool
    _bypass: Bypass
    _mapping: memoryview | None
    _snapshot: _core.Snapshot
    _cursors: weakref.WeakSet[Cursor]

    @property
    def _env(self) -> _Environment: ...

    @property
    def _engine(self) -> _core.Engine: ...

    def _record_of(self, db: Any) -> _core.Database: ...

    def _lookup(
        self, record: _core.Database, as_key: Callable[[Any], bytes], call: str
    ) -> tuple[_core.Cursor, _core.Lookup]: ...

    def _keys(self, db: Any) -> KeyTable: ...

    def _verify(self) -> None: ...

    def _refuse(self, what: str) -> Error: ...


class Cursor(metaclass=Counterpart, of=lmdb.Cursor):
    """A position in one database. Made by ``Transaction.cursor``, or as py-lmdb's is.

    While an iterator hands out records that were read ahead (a *run*), the position is that of
    the record last handed out; any move puts the C cursor there first (``_settle``).
    """

    def __new__(cls, db: Any, txn: Any) -> Any:
        if db is None or txn is None or isinstance(txn, lmdb.Transaction):
            return lmdb.Cursor(db, txn)
        if not hasattr(txn, "_record_of"):
            raise TypeError("invalid type")
        return cls._on(db, txn)

    @classmethod
    def _on(cls, db: Any, txn: _Transaction) -> Cursor:
        """A cursor over ``db`` (None: the transaction's database)."""
        self = super().__new__(cls)
        self._start(db, txn)
        return self

    def _start(self, db: Any, txn: _Transaction) -> None:
        record = txn._record_of(db)
        self._txn, self._db = txn, db
        self._placed = self._keyless = self._is_stale = False
        # The last move could not be made; or it was, but could not be proved to have stayed in
        # the snapshot. A step may be made again, and passes over nothing.
        self._failed = False
        self._unproved: Move | None = None
        self._guard = threading.RLock()  # of the run
        self._run: _Run | None = None
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
        if self._open is None:
            raise closed_error()
        return self._open

    def close(self) -> None:
        """Closes the cursor. May be called twice."""
        run, self._run = self._run, None
        if run is not None:
            run.end()
        cursor, self._open = self._open, None
        self._seek = self._read = _closed
        if cursor is not None:
            cursor.close()

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- moving

    def _settle(self) -> None:
        """Ends a run and puts the C cursor on the record it last handed out."""
        with self._guard:
            self._settle_guarded()

    def _settle_guarded(self) -> None:
        run = self._run
        if run is None:
            return
        # Should this fail, the run stays, which knows where we are.
        try:
            run.settle(self._c)
        except CorruptedError:
            self._txn._verify()
            raise
        self._run = None
        run.end()

    def _move(self, move: Move, key: bytes = b"", value: bytes = b"") -> bool:
        if self._run is not None:
            self._settle()
        cursor = self._open
        if cursor is None:
            raise closed_error()
        # LMDB's first_dup and last_dup tell no key: py-lmdb shows the one it had.
        keyless = move in _DUP_EDGES and (self._keyless or not self._placed)
        again, self._unproved = self._unproved is move, None
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

    def first(self) -> bool:
        """Moves to the first record; whether there is one, as of all moves."""
        return self._move(Move.FIRST)

    def first_dup(self) -> bool:
        """Moves to the first value of the current key."""
        return self._move(Move.FIRST_DUP)

    def last(self) -> bool:
        """Moves to the last record, and to its last value."""
        return self._move(Move.LAST)

    def last_dup(self) -> bool:
        """Moves to the last value of the current key."""
        return self._move(Move.LAST_DUP)

    def next(self) -> bool:
        """Moves to the next value, or key; on a fresh cursor to the first record."""
        return self._move(Move.NEXT)

    def next_dup(self) -> bool:
        """Moves to the next value of the current key."""
        return self._move(Move.NEXT_DUP)

    def next_nodup(self) -> bool:
        """Moves to the first value of the next key."""
        return self._move(Move.NEXT_NODUP)

    def prev(self) -> bool:
        """Moves to the value before, or key; on a fresh cursor to the last record."""
        return self._move(Move.PREV)

    def prev_dup(self) -> bool:
        """Moves to the value before, of the current key."""
        return self._move(Move.PREV_DUP)

    def prev_nodup(self) -> bool:
        """Moves to the last value of the key before."""
        return self._move(Move.PREV_NODUP)

    def set_key(self, key: Any) -> bool:
        """Moves to exactly ``key``."""
        if type(key) is not bytes:
            key = as_bytes(key)  # which may raise, and leaves everything as it was then
        if self._run is not None:
            self._settle()
        self._placed = self._keyless = self._is_stale = False
        self._failed, self._unproved = True, None
        try:
            self._placed = placed = self._seek(key)
        except BadValsizeError:
            self._failed = False
            raise
        self._failed = False
        return placed

    def set_key_dup(self, key: Any, value: Any) -> bool:
        """Moves to exactly ``key`` and ``value``."""
        return self._move(Move.BOTH, as_bytes(key), as_bytes(value))

    def set_range(self, key: Any) -> bool:
        """Moves to the first key not below ``key``; the first of all, where that is empty."""
        key = as_bytes(key)
        return self._move(Move.SET_RANGE, key) if key else self._move(Move.FIRST)

    def set_range_dup(self, key: Any, value: Any) -> bool:
        """Moves to exactly ``key`` and its first value not below ``value``."""
        return self._move(Move.BOTH_RANGE, as_bytes(key), as_bytes(value))

    # --- reading

    def _get(self, wanted: int) -> Any:
        """The current key, value or item, read from where the last move ended."""
        found = self._read(wanted)
        if not self._keyless or wanted == WANT_VALUE:
            return found
        return (self._empty, found[1]) if wanted == _WANT_ITEM else self._empty

    def _shape(self, key: Any, value: Any, wanted: int) -> Any:
        if self._keyless:
            key = b""
        if self._txn._buffers:
            key, value = memoryview(key), memoryview(value)
        if wanted == _WANT_ITEM:
            return key, value
        return key if wanted == WANT_KEY else value

    def _peek(self, wanted: int) -> Any:
        if self._open is None:
            raise closed_error()
        if self._is_stale:
            self._look_again()
        if not self._placed:
            return (self._empty, self._empty) if wanted == _WANT_ITEM else self._empty
        if self._run is not None:
            with self._guard:  # of the block that it is in the middle of
                run = self._run
                if run is not None and (wanted == WANT_KEY or run.values):
                    key, value = bool(wanted & WANT_KEY), bool(wanted & WANT_VALUE)
                    place = run.last(keys=key, values=value)
                    if place is not None:
                        return self._shape(*place, wanted)
                self._settle()
            self._move(Move.CURRENT)
        return self._get(wanted)

    def key(self) -> Any:
        """The current key; empty when the cursor stands nowhere."""
        return self._peek(WANT_KEY)

    def value(self) -> Any:
        """The current value; empty when the cursor stands nowhere."""
        if self._placed and self._run is None:
            return self._read(WANT_VALUE)
        return self._peek(WANT_VALUE)

    def item(self) -> Any:
        """The current key and value."""
        return self._peek(_WANT_ITEM)

    def get(self, key: Any, default: Any = None) -> Any:
        """Moves to ``key`` and returns its value, else ``default``."""
        return self._read(WANT_VALUE) if self.set_key(key) else default

    def count(self) -> int:
        """Number of values of the current key."""
        if self._run is not None:
            self._settle()
        try:
            return self._c.count()
        except _core.UnplacedError:
            raise lmdb_error("mdb_cursor_count", errno.EINVAL) from None
        except _core.NoDuplicatesError:
            raise lmdb_error("mdb_cursor_count", MDB_INCOMPATIBLE) from None

    # --- by number (not in py-lmdb)

    def index(self) -> int:
        """The number, from 0, of the record that the cursor stands on: its index in ``Records``.

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
                f"{self._txn._engine.path}: key {key!r} is not where it was found"
            )
        return first + (self._dups_before(key, bytes(self.value())) if self._dup else 0)

    def _dups_before(self, key: bytes, value: bytes) -> int:
        """Values of ``key`` before this one."""
        with Cursor._on(self._db, self._txn) as other:
            there, before = other.set_key(key), 0
            while there and bytes(other.value()) != value:
                there, before = other.next_dup(), before + 1
        return before

    def set_index(self, index: int) -> bool:
        """Moves to the record of a number; False where there is none, and it stays where it is.

        Raises:
            lmdb.Error: the keys cannot be read, or are others than the provenance file computes.
        """
        at, keys = operator.index(index), self._txn._keys(self._db)
        if not 0 <= at < self._txn._record_of(self._db).entries:
            return False
        key = keys.key(at)
        if not self.set_key(key):
            raise CorruptedError(f"{self._txn._engine.path}: record {at} is not at key {key!r}")
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
        """Key and value of each of ``keys`` that exists (py-lmdb's ``getmulti``)."""
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
        """Yields the current record (the first, on a fresh cursor) and those after it."""
        if not self._is_placed():
            self.first()
        return _Iterator(self, Move.NEXT, keys, values)

    __iter__ = iternext

    def iternext_dup(self, keys: bool = False, values: bool = True) -> Iterator[Any]:
        """Yields the current value and those after it of the same key."""
        self._is_placed()
        return _Iterator(self, Move.NEXT_DUP, keys, values)

    def iternext_nodup(self, keys: bool = True, values: bool = False) -> Iterator[Any]:
        """Yields the current key and those after it, with their first values."""
        if not self._is_placed():
            self.first()
        return _Iterator(self, Move.NEXT_NODUP, keys, values)

    def iterprev(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        """Yields the current record (the last, on a fresh cursor) and those before it."""
        if not self._is_placed():
            self.last()
        return _Iterator(self, Move.PREV, keys, values)

    def iterprev_dup(self, keys: bool = False, values: bool = True) -> Iterator[Any]:
        """Yields the current value and those before it of the same key."""
        self._is_placed()
        return _Iterator(self, Move.PREV_DUP, keys, values)

    def iterprev_nodup(self, keys: bool = True, values: bool = False) -> Iterator[Any]:
        """Yields the current key and those before it, with their last values."""
        if not self._is_placed():
            self.last()
        return _Iterator(self, Move.PREV_NODUP, keys, values)

    def _iter_from(self, k: Any, reverse: bool) -> Iterator[Any]:
        found = self.first() if not k and not reverse else self.set_range(k)
        if reverse:
            if not found:
                self.last()
            return self.iterprev()
        return self.iternext() if found else iter(())

    def _look_again(self) -> None:
        """Shows where the C cursor stands, be it after a move that could not be made."""
        self._is_stale = False
        if self._open is not None and (self._keyless or not self._placed):
            self._move(Move.CURRENT)

    def _is_placed(self) -> bool:
        if self._open is None:
            raise closed_error()
        return self._placed

    # Writing, refused as py-lmdb refuses it.

    def put(
        self,
        key: Any,
        value: Any,
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
    ) -> Any:
        """Raises ReadonlyError."""
        self._c  # noqa: B018
        as_bytes(key), as_bytes(value)
        del dupdata, overwrite, append
        raise self._txn._refuse("mdb_put")

    def replace(self, key: Any, value: Any) -> Any:
        """Raises ReadonlyError."""
        return self.put(key, value)

    def putmulti(
        self,
        items: Iterable[Any],
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
    ) -> tuple[int, int]:
        """Raises ReadonlyError; (0, 0) where there are no items."""
        self._c  # noqa: B018
        del dupdata, overwrite, append
        for item in items:
            if type(item) is not tuple or len(item) != 2:
                raise TypeError("putmulti() elements must be 2-tuples")
            raise self._txn._refuse("mdb_cursor_put() element #0")
        self._move(Move.CURRENT)
        return 0, 0

    def delete(self, dupdata: bool = False) -> bool:
        """Raises ReadonlyError; False where the cursor stands nowhere."""
        del dupdata
        if not self._is_placed():
            return False
        raise self._txn._refuse("mdb_cursor_del")

    def pop(self, key: Any) -> Any:
        """Raises ReadonlyError; None where there is no such key."""
        if not self.set_key(key):
            return None
        raise self._txn._refuse("mdb_cursor_del")


class _Run:
    """Records that an iterator hands out from blocks read ahead.

    Attributes:
        owner: the iterator.
        values: values are read.
    """

    __slots__ = ("_block", "_blocks", "_bypass", "_dup", "_kept", "_past", "_pid", "_scan",
                 "_tail", "owner", "values")  # fmt: skip

    def __init__(
        self, owner: _Iterator, scan: _core.Scan, bypass: Bypass, *, values: bool, dup: bool
    ) -> None:
        self.owner, self.values = owner, values
        self._bypass, self._past, self._blocks = bypass, (0, 0.0), 0
        self._scan, self._dup, self._pid = scan, dup, os.getpid()
        #: Records before the block that is handed out, and in it.
        self._block = 0, 0
        self._kept = 0  # records of a block that was taken back
        #: Key and value (of duplicates) of the last record of the block before.
        self._tail: tuple[bytes, bytes] | None = None

    @property
    def inherited(self) -> bool:
        """The reads ahead were begun by the parent of this process."""
        return self._pid != os.getpid()

    def next_block(self) -> bool:
        """Gives the iterator a block to hand out; False at the end."""
        # Ctrl-C may come between any two of these; ``last`` tells the same place all the while.
        handed_out = self._handed_out()
        self._tail = self._at(handed_out, keys=True, values=self._dup)
        self._block = self._block[0] + handed_out, 0
        self.owner.block(0)
        if not self._kept:
            self._kept = self._scan.advance()
        count = self._kept
        self.owner.block(count)
        self._block, self._kept = (self._block[0], count), 0
        if count:
            self._pass_by()
        return count != 0

    def take_back(self) -> None:
        """A new block is handed out to nobody yet: what was last before it stays the place."""
        left = self.owner.left()
        if left:
            self._block, self._kept = (self._block[0], 0), left
            self.owner.block(0)

    def _pass_by(self) -> None:
        """Asks for the way of the blocks to come, and tells how fast the last one was."""
        self._blocks += 1
        if self._blocks < BLOCKS_BEFORE_BYPASS:
            return
        size, seconds = self._scan.past()
        if size > self._past[0]:
            now = time.monotonic()
            self._bypass.took(size - self._past[0], (now - seconds + self._past[1], now))
            self._past = size, seconds
        self._scan.go_past(self._bypass.engine())

    def last(self, *, keys: bool, values: bool) -> tuple[bytes, bytes] | None:
        """Key and value of the record last handed out; None: nothing was."""
        return self._at(self._handed_out(), keys=keys, values=values)

    def settle(self, cursor: _core.Cursor) -> None:
        """Puts the cursor from which it began on the record last handed out, if any was.

        Raises: as ``Scan.settle``.
        """
        handed_out = self._handed_out()
        place = self._at(handed_out, keys=True, values=self._dup)
        if place is not None:
            self._scan.settle(cursor, self._block[0] + handed_out, *place, both=self._dup)

    def _handed_out(self) -> int:
        """Records of the block; 0: none yet, the last one before it counts."""
        return max(0, self._block[1] - self.owner.left())

    def _at(self, handed_out: int, *, keys: bool, values: bool) -> tuple[bytes, bytes] | None:
        if not handed_out:
            return self._tail
        names, data = self._scan.records(handed_out - 1, 1, keys=keys, values=values)
        return names[0] if keys else b"", data[0] if values else b""

    def end(self) -> None:
        self.owner.stop()
        self._scan.close()


class _Iterator(_core.Items):
    """py-lmdb's cursor iterator: it shares the cursor, and revives when that is moved."""

    __slots__ = ("_cursor", "_move", "_started", "_steps", "_wait", "_wanted")

    def __init__(self, cursor: Cursor, move: Move, keys: bool, values: bool) -> None:
        self._cursor, self._move = cursor, move
        self._wanted = WANT_KEY if not values else WANT_VALUE if not keys else _WANT_ITEM
        self._started = False
        self._steps, self._wait = 0, STEPS_BEFORE_SCAN

    def stop(self) -> None:
        """The run was ended by someone else's move."""
        self.end()
        self._steps = 0
        self._wait = min(self._wait * 2, STEPS_BEFORE_SCAN_MAX)

    def advance(self) -> Any:
        """The next item where no block has one."""
        with self._cursor._guard:
            return self._advance()

    def _advance(self) -> Any:
        cursor = self._cursor
        if not cursor._is_placed() and not (cursor._failed and self._started):
            raise StopIteration
        if not self._started:
            item = cursor._peek(self._wanted)
            self._started = True
            return item
        if cursor._run is None and self._steps >= self._wait and self._scans():
            self._begin()
        run = cursor._run
        if run is not None and run.owner is self:
            # Another thread may have had the next block meanwhile.
            if self.left() or self._next_block(run):
                return next(self)
            cursor._settle()
        if not cursor._move(self._move):
            self._steps = 0
            raise StopIteration
        self._steps += 1
        self._started = False  # until it is handed out
        item = cursor._get(self._wanted)
        self._started = True
        return item

    def _scans(self) -> bool:
        """Whether reading ahead pays, and leaves a position that can be found again."""
        cursor = self._cursor
        if not cursor._placed or self._move not in (Move.NEXT, Move.NEXT_NODUP):
            return False
        return not cursor._dup or bool(self._wanted & WANT_VALUE)

    def _begin(self) -> None:
        cursor = self._cursor
        txn, env = cursor._txn, cursor._txn._env
        values = bool(self._wanted & WANT_VALUE)
        scan = _core.Scan(
            cursor._c,
            self._move,
            values=values,
            advised=env._advised,
            dense=env._dense,
            block_bytes_max=env._block_bytes_max,
        )
        self.begin(
            scan,
            txn._snapshot,
            wanted=self._wanted,
            buffers=txn._buffers,
            mapping=txn._mapping if values else None,
        )
        cursor._run = _Run(self, scan, txn._bypass, values=values, dup=cursor._dup)

    def _next_block(self, run: _Run) -> bool:
        cursor = self._cursor
        if run.inherited:
            return False
        try:
            found = run.next_block()
            cursor._txn._verify()
        except BaseException:
            run.take_back()
            try:
                cursor._txn._verify()
            finally:
                cursor._settle()
            raise
        return found
