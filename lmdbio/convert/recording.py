"""recording: py-lmdb's transactions and cursors, which note the keys that they put and delete.

    Recording.begin -> RecordingTransaction -> RecordingCursor
                              commit -> the recording's log of each database

py-lmdb's classes can't be derived from: objects of them are wrapped, and all calls that write
nothing are theirs. A key counts once its transaction is committed, and in the order of commits;
that is the order of begins, since LMDB lets one writer in at a time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from lmdbio.convert.put_order import KeyLog
from lmdbio.system.pylmdb import lmdb

__all__ = ["Recording", "RecordingCursor", "RecordingTransaction"]

Name = bytes | None

#: Transactions whose keys are kept apart.
ENTRIES_MAX = 64
#: Handles that are kept without a look whether anybody has them.
HANDLES_MIN = 64


def _forwarded(kind: type, own: frozenset[str]) -> tuple[str, ...]:
    """The public methods of py-lmdb's ``kind`` that are not ``own``."""
    return tuple(name for name in dir(kind) if name not in own and not name.startswith("__"))


Logs = dict[Name, KeyLog]


def _extend(logs: Logs, later: Logs) -> None:
    for name, log in later.items():
        logs.setdefault(name, KeyLog()).extend(log)


class _Entry:
    """Puts and deletes of one transaction, as far as it was committed.

    Attributes:
        is_certain: whether its commit has ended well.
    """

    __slots__ = ("is_certain", "logs")

    def __init__(self, logs: Logs) -> None:
        self.logs, self.is_certain = logs, False


class Recording:
    """Puts into the databases of one environment.

    Args:
        environment: environment of py-lmdb.
        before: the keys that are there, of each database, as they were put.
        txnid: the transaction that put the last of them.
        name_end: end of a database's name where the main one has it as a key.
    """

    def __init__(self, environment: Any, before: Logs, txnid: int, name_end: bytes) -> None:
        self._environment, self._name_end = environment, name_end
        self._total = before
        self._entries: list[_Entry] = []  # not yet part of it, in the order of commits
        self._guard = threading.Lock()
        #: Up to which transaction all are ours, and ours beyond; whether there are any.
        self._until, self._beyond, self._has_any = txnid, set[int](), False
        # By a handle's id, which is kept with it: it must not become another's.
        self._names: dict[int, tuple[Name, Any]] = {}
        self._in_use = HANDLES_MIN  # of these, when they were last looked through

    def open_db(self, key: Any, txn: Any, **kwargs: Any) -> Any:
        """py-lmdb's handle, whose database is known from then on."""
        before = self._environment.info()["last_txnid"]
        handle = self._environment.open_db(key, txn=unwrapped(txn), **kwargs)
        # LMDB takes a name as C does.
        name = None if key is None else bytes(key).partition(b"\0")[0]
        if len(self._names) >= 2 * self._in_use:
            self._forget()
        self._names[id(handle)] = name, handle
        if name is None:
            return handle
        if isinstance(txn, RecordingTransaction):
            txn._log_of(None).put(name + self._name_end)
        elif self._environment.info()["last_txnid"] == before + 1:
            # It was made, by a transaction of its own.
            entry = _Entry({None: KeyLog([name + self._name_end])})
            entry.is_certain = True
            with self._guard:
                self._entries.append(entry)
            self._is_ours(before + 1)
        return handle

    def _forget(self) -> None:
        """Handles that the program has dropped: one for each transaction would add up."""
        held = [one for one in self._names.values() if sys.getrefcount(one[1]) > 2]
        self._names = {id(handle): (name, handle) for name, handle in held}
        self._in_use = max(HANDLES_MIN, len(held))

    def begin(self, db: Any, parent: Any, buffers: bool) -> RecordingTransaction:
        """A transaction that writes."""
        opened = self._environment.begin(
            db=db, parent=unwrapped(parent), write=True, buffers=buffers
        )
        try:
            return RecordingTransaction(self, opened, db, parent)
        except BaseException:
            opened.abort()  # or nobody could ever write again
            raise

    def name(self, db: Any) -> Name:
        """The database of a handle; that of None is the main one."""
        return None if db is None else self._names[id(db)][0]

    def commit(self, txn: RecordingTransaction, call: Callable[[], Any]) -> Any:
        """Commits a transaction by ``call``.

        Its puts are noted before: Ctrl-C may come as soon as the call has ended.
        """
        entry, number = _Entry(txn._logs), txn._transaction.id()
        for log in entry.logs.values():
            log.pack()
        with self._guard:
            self._entries.append(entry)
        try:
            done = call()
        except BaseException as error:
            if isinstance(error, lmdb.Error) or _is_active(txn._transaction):
                with self._guard:
                    self._entries.remove(entry)
            else:
                self._committed(entry, number)
            raise
        self._committed(entry, number)
        if len(self._entries) > ENTRIES_MAX:
            self._fold(certain=True)
        return done

    def _committed(self, entry: _Entry, txnid: int) -> None:
        # One that changed nothing leaves its number to the next, whosever that is.
        if self.last_txnid >= txnid:
            self._is_ours(txnid)
        entry.is_certain = True

    def _is_ours(self, txnid: int) -> None:
        with self._guard:
            self._has_any = True
            self._beyond.add(txnid)
            while self._until + 1 in self._beyond:
                self._until += 1
                self._beyond.remove(self._until)

    def _fold(self, *, certain: bool) -> None:
        """Adds entries to the total, up to the first that may not be committed."""
        with self._guard:
            while self._entries and (self._entries[0].is_certain or not certain):
                _extend(self._total, self._entries.pop(0).logs)

    def logs(self) -> Logs | None:
        """The keys that were put and deleted, of each database, also before this began; None:
        others committed meanwhile, and nobody knows what.
        """
        if self._until < self.last_txnid:
            return None
        self._fold(certain=False)
        return self._total

    @property
    def is_idle(self) -> bool:
        """Nothing was committed, by whomever."""
        return not self._has_any and self.last_txnid == self._until

    def known(self) -> set[Name]:
        """The databases that something was noted of."""
        with self._guard:
            logs = [self._total, *(entry.logs for entry in self._entries)]
        return {name for some in logs for name in some}

    @property
    def last_txnid(self) -> int:
        """The last transaction that was committed, by whomever."""
        return int(self._environment.info()["last_txnid"])


def _is_active(transaction: Any) -> bool:
    try:
        transaction.id()
    except lmdb.Error:
        return False
    return True


def _noted(key: Any) -> bytes:
    """A key as it is before the call: a view of the database may show another one afterwards. The
    call will say what is none.
    """
    if type(key) is bytes:
        return key
    try:
        return bytes(memoryview(key))
    except TypeError:
        return b""


def unwrapped(txn: Any) -> Any:
    """py-lmdb's own transaction."""
    return txn._transaction if isinstance(txn, RecordingTransaction) else txn


class RecordingTransaction:
    """py-lmdb's transaction that writes, with a log. Made by ``Recording.begin``.

    Every call but those below is py-lmdb's own.
    """

    OWN = frozenset(("put", "replace", "delete", "pop", "drop", "cursor", "commit", "abort"))
    FORWARDED = _forwarded(lmdb.Transaction, OWN)
    __slots__ = (
        "__weakref__",
        "_db",
        "_logs",
        "_own",
        "_parent",
        "_put",
        "_recording",
        "_transaction",
        *FORWARDED,
    )

    def __init__(
        self,
        recording: Recording,
        transaction: Any,
        db: Any,
        parent: RecordingTransaction | None,
    ) -> None:
        self._recording, self._transaction, self._db = recording, transaction, db
        self._parent = parent
        self._own = KeyLog()
        self._logs = {recording.name(db): self._own}
        self._put = transaction.put
        for name in self.FORWARDED:
            setattr(self, name, getattr(transaction, name))

    def _log_of(self, name: Name) -> KeyLog:
        return self._logs.setdefault(name, KeyLog())

    def _log(self, db: Any) -> KeyLog:
        return self._log_of(self._recording.name(self._db if db is None else db))

    def put(
        self,
        key: Any = b"",
        value: Any = b"",
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
        db: Any = None,
    ) -> bool:
        """As py-lmdb's."""
        noted = key if type(key) is bytes else _noted(key)
        done: bool = self._put(key, value, dupdata, overwrite, append, db)
        if done:
            log = self._own if db is None else self._log(db)
            log.put(noted)
        return done

    def replace(self, key: Any = b"", value: Any = b"", db: Any = None) -> Any:
        """As py-lmdb's."""
        noted = _noted(key)
        found = self._transaction.replace(key, value, db)
        self._log(db).put(noted)
        return found

    def delete(self, key: Any = b"", value: Any = b"", db: Any = None) -> bool:
        """As py-lmdb's."""
        noted = _noted(key)
        done: bool = self._transaction.delete(key, value, db)
        if done:
            self._log(db).delete(noted)
        return done

    def pop(self, key: Any = b"", db: Any = None) -> Any:
        """As py-lmdb's."""
        noted = _noted(key)
        found = self._transaction.pop(key, db)
        if found is not None:
            self._log(db).delete(noted)
        return found

    def drop(self, db: Any, delete: bool = True) -> None:
        """As py-lmdb's."""
        self._transaction.drop(db, delete)
        self._log(db).clear()
        name = self._recording.name(db)
        if name is None:  # with all that are named in it
            for other in {*self._recording.known(), *self._logs}:
                self._log_of(other).clear()
        elif delete:
            self._log_of(None).delete(name + self._recording._name_end)

    def cursor(self, db: Any = None) -> RecordingCursor:
        """As py-lmdb's."""
        opened = self._transaction.cursor(db)
        return RecordingCursor(opened, partial(self._log, db))

    def _commit(self, call: Callable[[], Any]) -> Any:
        """``call`` commits; what was noted counts, once."""
        if not _is_active(self._transaction):
            return call()  # which says so
        if self._parent is None:
            done = self._recording.commit(self, call)
        else:
            done = call()
            _extend(self._parent._logs, self._logs)
        self._logs = {}
        return done

    def commit(self) -> None:
        """As py-lmdb's."""
        self._commit(self._transaction.commit)

    def abort(self) -> None:
        """As py-lmdb's."""
        self._logs = {}
        self._transaction.abort()

    def __enter__(self) -> RecordingTransaction:
        self._transaction.__enter__()
        return self

    def __exit__(self, kind: Any, *rest: Any) -> Any:
        if kind is not None:
            self._logs = {}
            return self._transaction.__exit__(kind, *rest)
        return self._commit(lambda: self._transaction.__exit__(kind, *rest))


class RecordingCursor:
    """py-lmdb's cursor, whose writing is noted. Made by ``RecordingTransaction.cursor``."""

    OWN = frozenset(("put", "putmulti", "replace", "delete", "pop"))
    FORWARDED = _forwarded(lmdb.Cursor, OWN)
    __slots__ = ("__weakref__", "_cursor", "_log", *FORWARDED)

    def __init__(self, cursor: Any, log: Callable[[], KeyLog]) -> None:
        self._cursor, self._log = cursor, log
        for name in self.FORWARDED:
            setattr(self, name, getattr(cursor, name))

    def put(
        self,
        key: Any = b"",
        value: Any = b"",
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
    ) -> bool:
        """As py-lmdb's."""
        noted = _noted(key)
        done: bool = self._cursor.put(key, value, dupdata, overwrite, append)
        if done:
            self._log().put(noted)
        return done

    def putmulti(
        self,
        items: Iterable[Any],
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
    ) -> tuple[int, int]:
        """As py-lmdb's."""
        if append:  # what does not come last is passed over, and nothing says which
            return self._put_each(items, dupdata, overwrite)
        counts: tuple[int, int] = self._cursor.putmulti(
            self._each(items), dupdata, overwrite, append
        )
        return counts

    def _each(self, items: Iterable[Any]) -> Iterator[Any]:
        """A request for the next item shows that this one was put, or that its key was there."""
        log = self._log()
        for item in items:
            noted = _noted(item[0])
            yield item
            log.put(noted)

    def _put_each(self, items: Iterable[Any], dupdata: bool, overwrite: bool) -> tuple[int, int]:
        log, consumed, added = self._log(), 0, 0
        for item in items:
            noted = _noted(item[0])
            one = self._cursor.putmulti((item,), dupdata, overwrite, True)
            consumed, added = consumed + one[0], added + one[1]
            if one[1]:
                log.put(noted)
        return consumed, added

    def replace(self, key: Any = b"", value: Any = b"") -> Any:
        """As py-lmdb's."""
        noted = _noted(key)
        found = self._cursor.replace(key, value)
        self._log().put(noted)
        return found

    def delete(self, dupdata: bool = False) -> bool:
        """As py-lmdb's."""
        noted = bytes(self._cursor.key())
        done: bool = self._cursor.delete(dupdata)
        if done:
            self._log().delete(noted)
        return done

    def pop(self, key: Any = b"") -> Any:
        """As py-lmdb's."""
        noted = _noted(key)
        found = self._cursor.pop(key)
        if found is not None:
            self._log().delete(noted)
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def __enter__(self) -> RecordingCursor:
        self._cursor.__enter__()
        return self

    def __exit__(self, *rest: Any) -> Any:
        return self._cursor.__exit__(*rest)
