"""recording: py-lmdb's transactions and cursors, which note the keys that they put and delete.

    Recording.begin -> RecordingTransaction -> RecordingCursor
                              commit -> the recording's log of each database

py-lmdb's classes can't be derived from: objects of them are wrapped, and all calls that write
nothing are theirs. A key counts once its transaction is committed, and in the order of commits;
that is the order of begins, since LMDB lets one writer in at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import lmdb

from lmdbio.insertion import KeyLog

__all__ = ["Recording", "RecordingCursor", "RecordingTransaction"]

Name = bytes | None


def _forwarded(kind: type, own: frozenset[str]) -> tuple[str, ...]:
    """The public methods of py-lmdb's ``kind`` that are not ``own``."""
    return tuple(name for name in dir(kind) if name not in own and not name.startswith("__"))


Logs = dict[Name, KeyLog]


def _extend(logs: Logs, later: Logs) -> None:
    for name, log in later.items():
        logs.setdefault(name, KeyLog()).extend(log)


class Recording:
    """What is put into the databases of one environment.

    Args:
        environment: py-lmdb's.
        before: the keys that are there, of each database, as they were put.
    """

    def __init__(self, environment: Any, before: Logs) -> None:
        self._environment = environment
        self._numbers = itertools.count(1)
        self._committed: list[tuple[int, Logs]] = [(0, before)]
        self._handles: dict[tuple[Any, ...], Any] = {}
        self._names: dict[
            int, tuple[Name, Any]
        ] = {}  # by a handle's id; with it, so that it lives

    def open_db(self, key: Name, txn: Any, **kwargs: Any) -> Any:
        """py-lmdb's handle, one for all that ask alike, whose database is known from then on."""
        opened = self._environment.open_db(key, txn=unwrapped(txn), **kwargs)
        handle = self._handles.setdefault((key, *sorted(kwargs.items())), opened)
        self._names[id(handle)] = key, handle
        return handle

    def begin(self, db: Any, parent: Any, buffers: bool) -> RecordingTransaction:
        """A transaction that writes."""
        opened = self._environment.begin(
            db=db, parent=unwrapped(parent), write=True, buffers=buffers
        )
        try:
            return RecordingTransaction(self, opened, next(self._numbers), db, parent)
        except BaseException:
            opened.abort()  # or nobody could ever write again
            raise

    def name(self, db: Any) -> Name:
        """The database of a handle; that of None is the main one."""
        return None if db is None else self._names[id(db)][0]

    def forget(self, db: Any) -> None:
        """Its database is not there any more: who opens one of its name gets another handle."""
        for asked in list(self._handles):
            if asked[0] == self.name(db):
                del self._handles[asked]

    def commit(self, number: int, logs: Logs) -> None:
        """What transaction ``number`` put and deleted."""
        for log in logs.values():
            log.pack()
        self._committed.append((number, logs))

    def logs(self) -> Logs:
        """The keys that were put and deleted, of each database, also before this began."""
        found: Logs = {}
        for _, logs in sorted(self._committed, key=lambda one: one[0]):
            _extend(found, logs)
        return found


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
        "_number",
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
        number: int,
        db: Any,
        parent: RecordingTransaction | None,
    ) -> None:
        self._recording, self._transaction, self._db = recording, transaction, db
        self._number, self._parent = number, parent
        self._own = KeyLog()
        self._logs = {recording.name(db): self._own}
        self._put = transaction.put
        for name in self.FORWARDED:
            setattr(self, name, getattr(transaction, name))

    def _log(self, db: Any) -> KeyLog:
        name = self._recording.name(self._db if db is None else db)
        return self._logs.setdefault(name, KeyLog())

    def put(
        self,
        key: Any,
        value: Any,
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
        db: Any = None,
    ) -> bool:
        """As py-lmdb's."""
        done: bool = self._put(key, value, dupdata, overwrite, append, db)
        if done:
            log = self._own if db is None else self._log(db)
            log.put(key if type(key) is bytes else bytes(key))
        return done

    def replace(self, key: Any, value: Any, db: Any = None) -> Any:
        """As py-lmdb's."""
        found = self._transaction.replace(key, value, db)
        self._log(db).put(bytes(key))
        return found

    def delete(self, key: Any, value: Any = b"", db: Any = None) -> bool:
        """As py-lmdb's."""
        done: bool = self._transaction.delete(key, value, db)
        if done:
            self._log(db).delete(bytes(key))
        return done

    def pop(self, key: Any, db: Any = None) -> Any:
        """As py-lmdb's."""
        found = self._transaction.pop(key, db)
        if found is not None:
            self._log(db).delete(bytes(key))
        return found

    def drop(self, db: Any, delete: bool = True) -> None:
        """As py-lmdb's."""
        self._transaction.drop(db, delete)
        self._log(db).clear()
        if delete:
            self._recording.forget(db)

    def cursor(self, db: Any = None) -> RecordingCursor:
        """As py-lmdb's."""
        opened = self._transaction.cursor(db)
        return RecordingCursor(opened, partial(self._log, db))

    def commit(self) -> None:
        """As py-lmdb's."""
        self._transaction.commit()
        self._end()

    def abort(self) -> None:
        """As py-lmdb's."""
        self._logs = {}
        self._transaction.abort()

    def _end(self) -> None:
        """What was noted counts, once."""
        logs, self._logs = self._logs, {}
        if self._parent is None:
            self._recording.commit(self._number, logs)
        else:
            _extend(self._parent._logs, logs)

    def __enter__(self) -> RecordingTransaction:
        self._transaction.__enter__()
        return self

    def __exit__(self, kind: Any, *rest: Any) -> Any:
        ended = self._transaction.__exit__(kind, *rest)
        if kind is None:
            self._end()
        return ended


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
        key: Any,
        value: Any,
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
    ) -> bool:
        """As py-lmdb's."""
        done: bool = self._cursor.put(key, value, dupdata, overwrite, append)
        if done:
            self._log().put(bytes(key))
        return done

    def putmulti(
        self,
        items: Iterable[Any],
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
    ) -> tuple[int, int]:
        """As py-lmdb's."""
        counts: tuple[int, int] = self._cursor.putmulti(
            self._noted(items), dupdata, overwrite, append
        )
        return counts

    def _noted(self, items: Iterable[Any]) -> Iterator[Any]:
        """Who asks for the next item has put this one, or found that its key is there."""
        log = self._log()
        for item in items:
            yield item
            log.put(bytes(item[0]))

    def replace(self, key: Any, value: Any) -> Any:
        """As py-lmdb's."""
        found = self._cursor.replace(key, value)
        self._log().put(bytes(key))
        return found

    def delete(self, dupdata: bool = False) -> bool:
        """As py-lmdb's."""
        key = bytes(self._cursor.key())
        done: bool = self._cursor.delete(dupdata)
        if done:
            self._log().delete(key)
        return done

    def pop(self, key: Any) -> Any:
        """As py-lmdb's."""
        found = self._cursor.pop(key)
        if found is not None:
            self._log().delete(bytes(key))
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def __enter__(self) -> RecordingCursor:
        self._cursor.__enter__()
        return self

    def __exit__(self, *rest: Any) -> Any:
        return self._cursor.__exit__(*rest)
