"""portable_file: one database of one data file, open in py-lmdb, in the state of that moment.

    open -> read transaction (S) -> all keys -> values, by their numbers ->  guard: S or S + 1

Invariants:
  - no reader slot is held: values are handed out only if the file has not moved past S + 1 since
    (``locate/open_database`` says why);
  - py-lmdb opens a file once in a process, so that those who read it share an environment, forked
    processes, too: without a lock file it is a mapping that nobody writes to;
  - a transaction is used by one thread at a time.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from lmdbio.errors import NotFoundError, closed_error, cut_error, lmdb_error, moved_error
from lmdbio.inside.keytext import show_key
from lmdbio.locate.key_index import Single
from lmdbio.locate.refusals import DATABASES_MAX, only_named
from lmdbio.provenance.keys import KeyPattern
from lmdbio.provenance.values import DUPSORT, INTEGERKEY, REVERSEKEY
from lmdbio.system import fork, pylmdb

__all__ = ["LmdbFile"]

#: Flags of a database by py-lmdb's names, as the file has them.
_FLAGS = {"reverse_key": REVERSEKEY, "dupsort": DUPSORT, "integerkey": INTEGERKEY}
#: First word of a meta page, 16 or 24 bytes into the file, and of the page size, behind it.
MAGIC, PAGE_SIZE_AT, HEAD_BYTES = b"\xde\xc0\xef\xbe", 24, 64
#: Size of the record of a named database, bytes.
NAMED_BYTES = 48
#: Of the first and of the last keys, those that layouts look at.
ENDS = 16


class _Shared:
    """The environments of this process by device and inode, open as long as they are used."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: WeakValueDictionary[tuple[int, int], Any] = WeakValueDictionary()
        fork.register(self)

    def _after_fork(self) -> None:
        self._lock = Lock()

    def open(self, path: str) -> Any:
        """Return the environment of a file.

        Raises:
            OSError, Error: it cannot be opened.
            ShortReadError: it ends before its meta pages do: py-lmdb would end the process.
        """
        with Path(path).open("rb") as file:
            status, head = os.fstat(file.fileno()), file.read(HEAD_BYTES)
        begin = head.find(MAGIC, 16, 28)
        if begin >= 0 and len(head) == HEAD_BYTES:
            metas = 2 * int.from_bytes(head[begin + PAGE_SIZE_AT :][:4], "little")
            if status.st_size < metas:
                raise cut_error(path, status.st_size, metas)
        key = status.st_dev, status.st_ino
        with self._lock:
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = _open(path)
            return found


def _open(path: str) -> Any:
    """Return py-lmdb's environment of a data file, as nobody here has it."""
    options: dict[str, Any] = {"subdir": False, "readonly": True, "lock": False}
    try:
        return pylmdb.lmdb.open(path, max_dbs=DATABASES_MAX, create=False, **options)
    except pylmdb.lmdb.Error as error:
        if "already open in this process" not in str(error):
            raise
        raise lmdb_error(
            f"{path}: is open in this process, by lmdbio.open or lmdb.open, and py-lmdb, by which "
            "lmdbio reads here, opens a file once: close that environment first"
        ) from error


_shared = _Shared()


class LmdbFile:
    """One database of one data file. Threads may share it; it is a layout's ``Keys``, too.

    Args:
        path: path of the data file.
        db: name of a database; None: the main one.

    Attributes:
        flags: flags of the database, as the file has them.
        keys: key of each record, by its number: in key order, until samples are chosen.
        lengths: size of each value, bytes.
        columns: records of a sample.
        layout: layout of the samples; None: it has none.

    Raises:
        OSError, Error: the file cannot be opened, or is committed to meanwhile.
        LookupError: it has no such database, or named ones alone.
    """

    pattern: KeyPattern | None = None  # which proves more than a look at all keys is worth here

    def __init__(self, path: str, db: bytes | None) -> None:
        self.path, self._db, self._is_closed = path, db, False
        self._lock, self._numbers = Lock(), dict[bytes, int]()
        self.columns = 1
        self.layout: str | None = None
        self._in_key_order: npt.NDArray[np.int64] | None = None  # records; None: as numbered
        self._open()
        env, self._state = self._environment, self._transaction.id()
        size, pages = Path(path).stat().st_size, env.info()["last_pgno"] + 1
        if size < pages * env.stat()["psize"]:
            raise cut_error(path, size, pages * env.stat()["psize"])
        flags: Any = (env.open_db() if self._handle is None else self._handle).flags()
        self.flags = sum(bit for name, bit in _FLAGS.items() if flags[name])
        self.keys: list[bytes] = []
        #: The values of keys that may have many: one is found by its number alone.
        self._values: list[bytes] | None = [] if self.flags & DUPSORT else None
        self.lengths = array("Q")
        self._walk()
        self._refuse_headers()
        fork.register(self)

    def _open(self) -> None:
        """Begin a transaction on the newest state."""
        self._environment = env = _shared.open(self.path)
        self._handle = None
        if self._db is not None:
            try:
                self._handle = env.open_db(self._db, create=False)
            except NotFoundError:
                name = show_key(self._db)
                raise LookupError(f"{self.path}: has no database named {name}") from None
        self._transaction = env.begin(db=self._handle, buffers=True)

    def _walk(self) -> None:
        """Read all keys, and the sizes of their values."""
        for key, value in self._transaction.cursor():
            self.keys.append(bytes(key))
            self.lengths.append(len(value))
            if self._values is not None:
                self._values.append(bytes(value))
        self._guard()

    def _refuse_headers(self) -> None:
        """Raise LookupError for a main database that holds named ones alone."""
        is_few = 0 < len(self.keys) <= DATABASES_MAX and self._db is None and not self.flags
        if not is_few or set(self.lengths) != {NAMED_BYTES}:
            return
        try:
            for key in self.keys:
                self._environment.open_db(key, create=False)
        except pylmdb.lmdb.Error:  # a plain record
            return
        raise only_named(self.path, self.keys)

    def _before_fork(self) -> None:
        self._lock.acquire()  # a child finds the transaction whole

    def _after_fork_in_parent(self) -> None:
        self._lock.release()

    _after_fork = _after_fork_in_parent

    def _guard(self) -> None:
        """Raise MovedError where the file has moved on (``OpenDatabase.guard``)."""
        now = self._environment.info()["last_txnid"]
        if not self._state <= now <= self._state + 1:
            raise moved_error(
                f"{self.path}: changed while it was read (transaction {self._state} when opened, "
                f"{now} now); open it again"
            )

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the values of records by their numbers.

        Raises:
            Error: the file has moved on, or was closed.
        """
        with self._lock:
            if self._is_closed:
                raise closed_error()
            if self._values is not None:
                return [self._values[number] for number in numbers]
            get, keys = self._transaction.get, self.keys
            found = [bytes(get(keys[number], b"")) for number in numbers]
            self._guard()
        return found

    def choose(
        self, order: npt.NDArray[np.int64] | None, columns: int, layout: str | None
    ) -> None:
        """Number the records of samples, instead of all; once, and of keys that have one each.

        Args:
            order: records of the samples, by their numbers in key order; None: all, in key order.
            columns, layout: values of ``FoundSamples``.
        """
        self.columns, self.layout = columns, layout
        if order is None:
            return
        self._in_key_order = np.argsort(order, kind="stable")
        self._numbers = {}
        numbers = order.tolist()
        self.keys = [self.keys[number] for number in numbers]
        self.lengths = array("Q", [self.lengths[number] for number in numbers])

    @property
    def groups(self) -> Sequence[range]:
        """The records of each key, in key order; or the samples."""
        if self._in_key_order is not None:
            return Single(self.count, self._in_key_order // self.columns)
        if not self.flags & DUPSORT:
            return Single(self.count, None)
        ends = np.cumsum([len(list(some)) for _, some in groupby(self.keys)]).tolist()
        return [range(*span) for span in zip([0, *ends[:-1]], ends, strict=True)]

    def close(self) -> None:
        """Close the file. May be called twice."""
        with self._lock:
            self._is_closed = True
            self._environment = self._handle = self._transaction = None

    # --- its keys, as layouts look at them (``layouts.Keys``)

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.keys)

    @property
    def first(self) -> bytes:
        """The first key; empty: there is none."""
        return self.keys[0] if self.keys else b""

    @property
    def last(self) -> bytes:
        """The last key; empty: there is none."""
        return self.keys[-1] if self.keys else b""

    @property
    def ends(self) -> list[bytes]:
        """The first few keys and the last few, each once."""
        return self.keys[:ENDS] + self.keys[max(ENDS, self.count - ENDS) :]

    def has(self, key: bytes) -> bool:
        """Return whether a key is there."""
        return self.index(key) is not None

    def value(self, key: bytes) -> bytes | None:
        """Return the value of a key; None: it is not there."""
        number = self.index(key)
        return None if number is None else self.read([number])[0]

    def index(self, key: bytes) -> int | None:
        """Return the first record of a key; None: it is not there."""
        if not self._numbers:
            last = len(self.keys) - 1
            self._numbers = {key: last - at for at, key in enumerate(reversed(self.keys))}
        return self._numbers.get(key)

    def all(self) -> Iterator[list[bytes]]:
        """Iterate over all keys, some at a time."""
        yield self.keys
