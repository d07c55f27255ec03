"""Environment, Transaction and Cursor as in py-lmdb, reading by explicit reads.

``lmdbio.open`` takes every keyword of ``lmdb.open``. With ``readonly=False`` (py-lmdb's
default) the environment returned is py-lmdb's own, reads included. With ``readonly=True`` it is
the one below: the same calls, results, positions and exceptions, but no mapping of the file.
Pages and values are read through an engine (csrc/engine.h), and iteration reads ahead in
blocks.

Known differences:

* a file may be opened any number of times in one process;
* a damaged or truncated file raises (``lmdb.Error`` family or ``OSError``, naming the file)
  where py-lmdb may die by a signal;
* ``buffers=True`` lends read-only memoryviews that own their bytes: they stay readable after
  the transaction;
* ``info()["map_addr"]`` is 0: there is no mapping; ``MapResizedError`` does not occur;
* a handle from ``open_db`` may be used in transactions that began before it.

Snapshots. With ``lock=True`` each transaction holds a reader slot (lmdbio/snapshot.py). Where
none can be had (``lock=False``; no lock file possible; the same process has the file open in
py-lmdb; a transaction inherited through fork; a file grown beyond what py-lmdb has mapped), the
meta pages are read again after each batch of reads, and results are refused with ``lmdb.Error``
once a writer is two commits past the snapshot, since it may then have reused its pages. On file
systems that cache attributes (NFS) that check can come late.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any, cast

import lmdb

from lmdbio import _core, forked, snapshot
from lmdbio._core import WANT_KEY, WANT_VALUE, Move
from lmdbio.errors import (
    MDB_BAD_VALSIZE,
    MDB_DBS_FULL,
    MDB_INCOMPATIBLE,
    MDB_IS_READONLY,
    MDB_NOTFOUND,
    CorruptedError,
    closed_error,
    lmdb_error,
)
from lmdbio.locate import READAHEAD_BYTES_LARGE, readahead_bytes

__all__ = ["Cursor", "Environment", "Transaction", "open"]

CACHE_BYTES = 8 << 20
BLOCK_BYTES_MAX = 8 << 20
#: Records turned into objects at once: few enough to stay in the processor's cache.
CHUNK_RECORDS = 256
#: Single steps of an iterator before it reads ahead.
STEPS_BEFORE_SCAN = 2
STEPS_BEFORE_SCAN_MAX = 1024

_DUP_EDGES = (Move.FIRST_DUP, Move.LAST_DUP)
_WANT_ITEM = WANT_KEY | WANT_VALUE


def _bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        raise TypeError("Won't implicitly convert Unicode to bytes; use .encode()")
    try:
        return bytes(memoryview(value))
    except TypeError:
        name = type(value).__name__
        raise TypeError(f"a bytes-like object is required, not '{name}'") from None


def _lend(value: bytes) -> memoryview:
    return memoryview(value)


def open(path: str | bytes, *args: Any, readonly: bool = False, **kwargs: Any) -> Any:
    """Opens an environment; the keywords are those of ``lmdb.open``.

    Returns:
        ``lmdb.Environment`` when ``readonly`` is false, else ``Environment``.
    """
    kwargs.update(zip(_POSITIONAL, args, strict=False), readonly=readonly)
    if len(args) > _POSITIONAL.index("readonly"):
        kwargs["readonly"] = args[_POSITIONAL.index("readonly")]
    if not kwargs["readonly"]:
        return lmdb.open(path, **kwargs)
    return Environment(path, **kwargs)


_POSITIONAL = (
    "map_size",
    "subdir",
    "readonly",
    "metasync",
    "sync",
    "map_async",
    "mode",
    "create",
    "readahead",
    "writemap",
    "meminit",
    "max_readers",
    "max_dbs",
    "max_spare_txns",
    "lock",
)


class _Database:
    """A handle from ``Environment.open_db``."""

    __slots__ = ("__weakref__", "_env", "_flags", "_name")

    def __init__(self, env: Environment, name: bytes | None, flags: int) -> None:
        self._env, self._name, self._flags = env, name, flags

    def flags(self, *args: Any) -> dict[str, bool]:
        """The stored flags, under the names of ``open_db``'s keywords."""
        if len(args) > 1:
            raise TypeError("flags takes 0 or 1 arguments")
        return {
            "reverse_key": bool(self._flags & 0x02),
            "dupsort": bool(self._flags & 0x04),
            "integerkey": bool(self._flags & 0x08),
            "integerdup": bool(self._flags & 0x20),
            "dupfixed": bool(self._flags & 0x10),
        }


class Environment:
    """A read-only environment. Keywords: those of ``lmdb.open`` (see the module).

    Args:
        path: folder, or file with ``subdir=False``.
        map_size: bytes; only shown by ``info()``.
        lock: hold reader slots.
        engine: how to read ("pread", "direct", "mmap"; csrc/engine.h).
        depth: requests in flight.
        cache_bytes: bound of the page cache of one snapshot.
        block_bytes_max: values that iteration reads ahead, twice.

    Raises:
        lmdb.Error: no such file, as in py-lmdb.
        InvalidError, VersionMismatchError, CorruptedError: not a readable LMDB file.
    """

    def __init__(
        self,
        path: str | bytes,
        map_size: int = 10485760,
        subdir: bool = True,
        readonly: bool = True,
        metasync: bool = True,
        sync: bool = True,
        map_async: bool = False,
        mode: int = 0o755,
        create: bool = True,
        readahead: bool = True,
        writemap: bool = False,
        meminit: bool = True,
        max_readers: int = 126,
        max_dbs: int = 0,
        max_spare_txns: int = 0,
        lock: bool = True,
        lib_version: int | None = None,
        *,
        engine: str = "pread",
        depth: int = 8,
        cache_bytes: int = CACHE_BYTES,
        block_bytes_max: int = BLOCK_BYTES_MAX,
    ) -> None:
        if not isinstance(path, (str, bytes)):
            raise TypeError("Filesystem path must be Unicode or bytes.")
        del mode, create, writemap, max_spare_txns
        self._path = os.fsdecode(path)
        self._subdir, self._max_readers, self._max_dbs = subdir, max_readers, max_dbs
        self._flags = {
            "subdir": bool(subdir),
            "readonly": True,
            "metasync": bool(metasync),
            "sync": bool(sync),
            "map_async": bool(map_async),
            "readahead": bool(readahead),
            "writemap": False,  # LMDB ignores it when it only reads
            "meminit": bool(meminit),
            "lock": bool(lock),
        }
        self._arguments = {
            **self._flags,
            "map_size": map_size,
            "max_readers": max_readers,
            "max_dbs": max_dbs,
            "lib_version": lib_version,
            "engine": engine,
            "depth": depth,
            "cache_bytes": cache_bytes,
            "block_bytes_max": block_bytes_max,
        }
        self._lib_version = lib_version
        self._map_size = int(map_size)
        self._cache_bytes, self._block_bytes_max = cache_bytes, block_bytes_max
        self._guard = threading.Lock()
        forked.register(self)
        self._transactions: weakref.WeakSet[Transaction] = weakref.WeakSet()
        self._names: set[bytes] = set()
        self._state: tuple[bytes, _core.Meta, _core.Pages] | None = None
        self._slots: snapshot.Slots | None = None
        self._engine: _core.Engine | None = None
        file = os.path.join(self._path, "data.mdb") if subdir else self._path  # noqa: PTH118
        try:
            self._engine = _core.Engine(file, engine, depth)
        except OSError as error:
            raise lmdb_error(self._path, error.errno or 0) from error
        self._advised = readahead_bytes(self._engine.fd) < READAHEAD_BYTES_LARGE
        try:
            meta = _core.read_meta(self._engine)
            self._check_version(meta.layout.version)
            self._version, self._page_size = meta.layout.version, meta.layout.page_size
            if lock:
                self._acquire()
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> Any:
        """Pickles as the call that opened it: the copy opens the file anew."""
        return _reopen, (self._path, self._arguments)

    def _after_fork(self) -> None:
        self._guard = threading.Lock()
        for txn in list(self._transactions):
            for cursor in list(txn._cursors):
                cursor._guard = threading.RLock()

    def _check_version(self, version: int) -> None:
        wanted = {None: version, 0: 1, 1: 3}.get(self._lib_version)
        if wanted is None:
            raise lmdb_error(
                f"lib_version={self._lib_version}: this build has no LMDB "
                f"{self._lib_version}.x engine."
            )
        if wanted != version:
            raise lmdb.InvalidError(
                f"{self._path}: MDB_INVALID: the file has data format {version}, which "
                f"lib_version={self._lib_version} does not read"
            )

    def _acquire(self) -> None:
        """Gets at the reader slots, if there are any to be had."""
        status = os.fstat(self._open_engine().fd)
        options: dict[str, Any] = {"subdir": self._subdir, "max_readers": self._max_readers}
        self._slots = snapshot.acquire(self._path, (status.st_dev, status.st_ino), **options)

    def _lock_file(self) -> Any:
        """py-lmdb's environment, which maps the file: a cut one is refused, or it dies of it.

        Raises:
            ShortReadError: the file ends inside its meta pages.
        """
        assert self._slots is not None
        engine = self._open_engine()
        if engine.size() < 2 * self._page_size:
            _core.read_meta(engine)
        return self._slots.env

    def _open_engine(self) -> _core.Engine:
        if self._engine is None:
            raise closed_error()
        return self._engine

    def _read_only(self, what: str) -> lmdb.Error:
        """The refusal to write, under the code of the LMDB that writes this format."""
        return lmdb_error(what, errno.EACCES if self._version == 1 else MDB_IS_READONLY)

    # --- snapshots

    def _newest(self, txnid: int | None) -> tuple[_core.Meta, _core.Pages]:
        """The state of ``txnid`` (None: the newest), and its pages.

        Raises:
            LookupError: the file has moved past ``txnid``.
        """
        engine = self._open_engine()
        with self._guard:
            if self._state is not None:
                raw, meta, pages = self._state
                if _core.meta_bytes(engine, meta.layout) == raw and txnid in (None, meta.txnid):
                    return meta, pages
            meta = _core.read_meta(engine, txnid)
            pages = _core.Pages(engine, meta.layout, self._cache_bytes)
            raw = _core.meta_bytes(engine, meta.layout)
            if _core.newest_txnid(engine, meta.layout) == meta.txnid:
                self._state = raw, meta, pages
            return meta, pages

    # --- py-lmdb's surface

    def begin(
        self,
        db: _Database | None = None,
        parent: Transaction | None = None,
        write: bool = False,
        buffers: bool = False,
    ) -> Transaction:
        """Starts a transaction on the newest snapshot."""
        return Transaction(self, db, parent, write, buffers)

    def open_db(
        self,
        key: bytes | None = None,
        txn: Transaction | None = None,
        reverse_key: bool = False,
        dupsort: bool = False,
        create: bool = True,
        integerkey: bool = False,
        integerdup: bool = False,
        dupfixed: bool = False,
    ) -> _Database:
        """A handle of a named database (None: the main one). Stored flags win over asked ones.

        Raises:
            ReadonlyError: there is no such database (NotFoundError with ``create=False``).
            IncompatibleError: the name is the key of a plain record.
            DbsFullError: more names than ``max_dbs``.
        """
        self._open_engine()
        if key is None:
            if reverse_key or dupsort or integerkey or integerdup or dupfixed:
                raise ValueError("May not set flags on the main database")
        else:
            key = _bytes(key).split(b"\0", 1)[0]  # a C string, for LMDB
        if txn is not None:
            return self._open_db(key, txn, create)
        with self.begin() as own:
            return self._open_db(key, own, create)

    def _open_db(self, key: bytes | None, txn: Transaction, create: bool) -> _Database:
        if key is None:
            return _Database(self, None, txn._record(None).flags)
        if key not in self._names and len(self._names) >= self._max_dbs:
            raise lmdb_error("mdb_dbi_open", MDB_DBS_FULL)
        try:
            record = txn._record(key)
        except lmdb.NotFoundError:
            if create:
                raise self._read_only("mdb_dbi_open") from None
            raise
        self._names.add(key)
        return _Database(self, key, record.flags)

    def dbs(self, txn: Transaction | None = None) -> list[bytes]:
        """Names of the named databases, as far as ``max_dbs`` goes."""
        if txn is None:
            with self.begin() as own:
                return self.dbs(own)
        found = []
        cursor = Cursor(_Database(self, None, 0), txn)
        placed = cursor.first()
        while placed:
            if cursor._c.holds_database():
                name = cursor._get(WANT_KEY)
                name = name[:-1] if name[-1:] == b"\0" else name
                try:
                    self._open_db(name, txn, create=False)
                except lmdb.Error:
                    pass
                else:
                    found.append(name)
            placed = cursor.next()
        cursor.close()
        return found

    def copy(self, path: str, compact: bool = False, txn: Any = None) -> None:
        """Copies the environment into folder or file ``path``, by py-lmdb."""
        self._by_lmdb(lambda env: env.copy(path, compact=compact))
        del txn

    def copyfd(self, fd: int, compact: bool = False, txn: Any = None) -> None:
        """Copies the environment to a descriptor, by py-lmdb."""
        self._by_lmdb(lambda env: env.copyfd(fd, compact=compact))
        del txn

    def _by_lmdb(self, call: Callable[[Any], Any]) -> Any:
        """Asks py-lmdb for what we have no part in (copies, the lock file's readers)."""
        self._open_engine()
        if self._slots is not None:
            return call(self._lock_file())
        with lmdb.open(
            self._path, readonly=True, lock=False, subdir=self._subdir, create=False
        ) as env:
            return call(env)

    def sync(self, force: bool = False) -> None:
        del force
        self._open_engine()
        raise self._read_only("mdb_env_sync")

    def set_mapsize(self, map_size: int) -> None:
        """Sets what ``info()`` shows, and ends all transactions, as in py-lmdb."""
        self._open_engine()
        for txn in list(self._transactions):
            txn.abort()
        self._map_size = int(map_size)

    def stat(self) -> dict[str, int]:
        """Sizes and counts of the main database."""
        meta, _ = self._newest(None)
        return _stat(meta.layout, meta.main_db)

    def info(self) -> dict[str, int]:
        """Sizes, the newest transaction, and the reader slots in use."""
        meta, _ = self._newest(None)
        readers, used = self._max_readers, 0
        if self._slots is not None:
            known = self._lock_file().info()
            readers, used = known["max_readers"], known["num_readers"]
        return {
            "map_addr": 0,
            "map_size": max(self._map_size, (meta.last_pgno + 1) * meta.layout.page_size),
            "last_pgno": meta.last_pgno,
            "last_txnid": meta.txnid,
            "max_readers": readers,
            "num_readers": used,
        }

    def flags(self) -> dict[str, bool]:
        self._open_engine()
        return dict(self._flags)

    def path(self) -> str:
        self._open_engine()
        return self._path

    def lib_version(self) -> tuple[int, int, int]:
        """The version of LMDB that py-lmdb would read the file with."""
        if self._version == 1:
            return lmdb.version()
        return lmdb.version(lib_version=1)

    def max_key_size(self) -> int:
        self._open_engine()
        if self._version == 1:
            return 511
        return ((self._page_size - 24) // 2 & ~1) - 2 - 8 - 48  # room for a database record

    def max_readers(self) -> int:
        return self.info()["max_readers"]

    def readers(self) -> str:
        self._open_engine()
        if self._slots is None:
            return "(no reader locks)\n"
        return cast(str, self._lock_file().readers())

    def reader_check(self) -> int:
        self._open_engine()
        return 0 if self._slots is None else cast(int, self._lock_file().reader_check())

    def close(self) -> None:
        """Ends all transactions and closes the file. May be called twice."""
        for txn in list(getattr(self, "_transactions", ())):
            txn.abort()
        self._state = None
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.release()
        self._engine = None  # closed with the last call that uses it

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        slots, self._slots = getattr(self, "_slots", None), None
        if slots is not None:
            slots.release()


def _reopen(path: str, arguments: dict[str, Any]) -> Environment:
    return Environment(path, **arguments)


def _stat(layout: _core.Layout, db: _core.Database) -> dict[str, int]:
    return {
        "psize": layout.page_size,
        "depth": db.depth,
        "branch_pages": db.branch_pages,
        "leaf_pages": db.leaf_pages,
        "overflow_pages": db.overflow_pages,
        "entries": db.entries,
    }


class Transaction:
    """A snapshot. Made by ``Environment.begin``."""

    def __init__(
        self,
        env: Environment,
        db: _Database | None = None,
        parent: Transaction | None = None,
        write: bool = False,
        buffers: bool = False,
    ) -> None:
        self._ended = True
        self._slot: snapshot.Slot | None = None
        if write:
            raise lmdb_error(
                "Cannot start write transaction with read-only environment.", errno.EACCES
            )
        if parent is not None:
            raise lmdb_error("Read-only transactions cannot be nested.", errno.EINVAL)
        if db is not None and not isinstance(db, _Database):
            raise TypeError("invalid type")
        engine = env._open_engine()
        self._env, self._db, self._buffers = env, db, bool(buffers)
        self._engine = engine
        self._meta, self._pages = self._snapshot()
        self._ended = False
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        self._getters: dict[bytes | None, _core.Cursor] = {}
        self._records: dict[bytes | None, _core.Database] = {None: self._meta.main_db}
        self._seen = -1
        env._transactions.add(self)

    def _snapshot(self) -> tuple[_core.Meta, _core.Pages]:
        env = self._env
        if env._flags["lock"] and env._slots is None:
            env._acquire()  # what was in the way may have gone
        if env._slots is None:
            return env._newest(None)
        for _ in range(1000):
            env._lock_file()
            try:
                slot = env._slots.begin()
            except lmdb.MapResizedError:
                return env._newest(None)
            try:
                state = env._newest(slot.txnid)
            except LookupError:
                slot.release()  # two commits in between
                continue
            except BaseException:
                slot.release()
                raise
            self._slot = slot
            return state
        raise lmdb_error(f"{env._path}: writers commit faster than a snapshot can be taken")

    def _check(self) -> None:
        if self._ended:
            raise closed_error()

    def _verify(self) -> None:
        """After reads without a slot: refuses what a writer may have overwritten."""
        if self._slot is not None and self._slot.held:
            return
        # Counted before the look at the meta pages, which is one request more: what another
        # thread reads after that look must not pass for seen.
        requests = self._pages.requests()
        if requests == self._seen:
            return
        newest = self._pages.newest()
        if newest > self._meta.txnid + 1:
            raise lmdb_error(
                f"{self._engine.path}: snapshot {self._meta.txnid} is no longer protected: "
                f"transaction {newest} may have overwritten its pages; begin a new transaction "
                f"(or open with lock=True)"
            )
        self._seen = requests + 1

    def _database(self, db: _Database | None) -> _Database | None:
        if db is None:
            return self._db
        if not isinstance(db, _Database):
            raise TypeError("invalid type")
        if db._env is not self._env:
            raise lmdb_error("Database handle belongs to another environment.")
        return db

    def _record(self, name: bytes | None) -> _core.Database:
        """The database record of ``name`` in this snapshot."""
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

    def get(self, key: Any, default: Any = None, db: _Database | None = None) -> Any:
        """The first value of ``key``, or ``default``."""
        self._check()
        if key is None:
            raise TypeError("key must be given.")
        if type(key) is not bytes:
            key = _bytes(key)
        db = self._database(db) if db is not None else self._db
        name = db._name if db is not None else None
        cursor = self._getters.get(name)
        if cursor is None:
            cursor = self._getters[name] = _core.Cursor(self._pages, self._record(name))
        try:
            value = cursor.find(key)
        except _core.EmptyKeyError:
            raise lmdb_error("mdb_get", MDB_BAD_VALSIZE) from None
        except CorruptedError:
            self._verify()
            raise
        self._verify()
        if value is None:
            return default
        return _lend(value) if self._buffers else value

    def cursor(self, db: _Database | None = None) -> Cursor:
        """A cursor over ``db`` (None: the transaction's database)."""
        return Cursor(db, self)

    def stat(self, db: _Database | None = None) -> dict[str, int]:
        """Sizes and counts of a database in this snapshot."""
        self._check()
        db = self._database(db)
        return _stat(self._meta.layout, self._record(db._name if db is not None else None))

    def id(self) -> int:
        """The transaction that wrote the snapshot."""
        self._check()
        return self._meta.txnid

    def commit(self) -> None:
        """Ends the transaction.

        Raises:
            lmdb.Error: it has ended already.
        """
        self._check()
        self.abort()

    def abort(self) -> None:
        """Ends the transaction. May be called again, also after ``commit``."""
        if self._ended:
            return
        self._ended = True
        for cursor in list(self._cursors):
            cursor.close()
        for getter in self._getters.values():
            getter.close()
        self._getters.clear()
        if self._slot is not None:
            self._slot.release()
        self._env._transactions.discard(self)

    # Writing, refused as py-lmdb refuses it.

    def put(self, key: Any, value: Any, *args: Any, db: Any = None, **kwargs: Any) -> Any:
        self._check()
        _bytes(key), _bytes(value)
        del args, db, kwargs
        raise self._env._read_only("mdb_put")

    def replace(self, key: Any, value: Any, db: Any = None) -> Any:
        return self.put(key, value, db=db)

    def delete(self, key: Any, value: Any = b"", db: Any = None) -> Any:
        self._check()
        _bytes(key), _bytes(value)
        del db
        raise self._env._read_only("mdb_del")

    def pop(self, key: Any, db: Any = None) -> Any:
        self._check()
        return self.cursor(db).pop(key)

    def drop(self, db: Any, delete: bool = True) -> Any:
        self._check()
        del delete
        if db is None:
            raise TypeError("'db' argument required.")
        raise self._env._read_only("mdb_drop")

    def __enter__(self) -> Transaction:
        self._check()
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self.abort()

    def __del__(self) -> None:
        if not self._ended:
            self.abort()


class Cursor:
    """A position in one database. Made by ``Transaction.cursor``.

    While an iterator hands out records that were read ahead (a *run*), the position is that of
    the record last handed out; any move puts the C cursor there first (``_settle``).
    """

    def __init__(self, db: _Database | None, txn: Transaction) -> None:
        txn._check()
        db = txn._database(db)
        self._txn = txn
        self._placed = self._keyless = False
        self._guard = threading.RLock()  # of the run
        self._run: _Run | None = None
        self._dup = False
        record = txn._record(db._name if db is not None else None)
        self._dup = bool(record.flags & 0x04)
        self._open: _core.Cursor | None = _core.Cursor(txn._pages, record)
        self._empty: Any = b""
        if txn._buffers:
            self._empty = _lend(b"")
        txn._cursors.add(self)

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
        self._run = None
        place = run.last(keys=True, values=self._dup)
        run.end()
        if place is not None:
            self._c.move(Move.BOTH if self._dup else Move.SET, *place)

    def _move(self, move: Move, key: bytes = b"", value: bytes = b"") -> bool:
        if self._run is not None:
            self._settle()
        cursor = self._open
        if cursor is None:
            raise closed_error()
        # LMDB's first_dup and last_dup tell no key: py-lmdb shows the one it had.
        keyless = move in _DUP_EDGES and (self._keyless or not self._placed)
        self._placed = self._keyless = False
        try:
            placed = cursor.move(move, key, value)
        except _core.UnplacedError:
            if move is Move.CURRENT:
                return False
            raise lmdb_error("mdb_cursor_get", errno.EINVAL) from None
        except _core.NoDuplicatesError:
            raise lmdb_error("mdb_cursor_get", MDB_INCOMPATIBLE) from None
        except _core.EmptyKeyError:
            raise lmdb_error("mdb_cursor_get", MDB_BAD_VALSIZE) from None
        except CorruptedError:
            self._txn._verify()
            raise
        self._txn._verify()
        self._placed = placed
        self._keyless = keyless and placed and cursor.holds_duplicates()
        return placed

    def first(self) -> bool:
        return self._move(Move.FIRST)

    def first_dup(self) -> bool:
        return self._move(Move.FIRST_DUP)

    def last(self) -> bool:
        return self._move(Move.LAST)

    def last_dup(self) -> bool:
        return self._move(Move.LAST_DUP)

    def next(self) -> bool:
        return self._move(Move.NEXT)

    def next_dup(self) -> bool:
        return self._move(Move.NEXT_DUP)

    def next_nodup(self) -> bool:
        return self._move(Move.NEXT_NODUP)

    def prev(self) -> bool:
        return self._move(Move.PREV)

    def prev_dup(self) -> bool:
        return self._move(Move.PREV_DUP)

    def prev_nodup(self) -> bool:
        return self._move(Move.PREV_NODUP)

    def set_key(self, key: Any) -> bool:
        """Moves to exactly ``key``."""
        return self._move(Move.SET, _bytes(key))

    def set_key_dup(self, key: Any, value: Any) -> bool:
        """Moves to exactly ``key`` and ``value``."""
        return self._move(Move.BOTH, _bytes(key), _bytes(value))

    def set_range(self, key: Any) -> bool:
        """Moves to the first key not below ``key``."""
        key = _bytes(key)
        return self._move(Move.SET_RANGE, key) if key else self._move(Move.FIRST)

    def set_range_dup(self, key: Any, value: Any) -> bool:
        """Moves to exactly ``key`` and its first value not below ``value``."""
        return self._move(Move.BOTH_RANGE, _bytes(key), _bytes(value))

    # --- reading

    def _get(self, wanted: int) -> Any:
        """The current key, value or item, read from where the last move ended."""
        try:
            key, value = self._c.item(wanted)
        except CorruptedError:
            self._txn._verify()
            raise
        self._txn._verify()
        return self._shape(key, value, wanted)

    def _shape(self, key: Any, value: Any, wanted: int) -> Any:
        if self._keyless:
            key = b""
        if self._txn._buffers:
            key, value = _lend(key), _lend(value)
        if wanted == _WANT_ITEM:
            return key, value
        return key if wanted == WANT_KEY else value

    def _peek(self, wanted: int) -> Any:
        if self._open is None:
            raise closed_error()
        if not self._placed:
            return (self._empty, self._empty) if wanted == _WANT_ITEM else self._empty
        run = self._run
        if run is not None:
            if wanted == WANT_KEY or run.values:
                place = run.last(keys=bool(wanted & WANT_KEY), values=bool(wanted & WANT_VALUE))
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
        return self._peek(WANT_VALUE)

    def item(self) -> Any:
        """The current key and value."""
        return self._peek(_WANT_ITEM)

    def get(self, key: Any, default: Any = None) -> Any:
        """Moves to ``key`` and returns its value, else ``default``."""
        return self.value() if self.set_key(key) else default

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

    def getmulti(
        self,
        keys: Iterable[Any],
        dupdata: bool = False,
        dupfixed_bytes: int | None = None,
        keyfixed: bool = False,
        values: bool = True,
    ) -> Any:
        """Key and value of each of ``keys`` that exists (py-lmdb's ``getmulti``)."""
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
        return memoryview(bytearray(b"".join(part for pair in found for part in pair)))

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

    def _iter_from(self, key: Any, reverse: bool) -> Iterator[Any]:
        found = self.first() if not key and not reverse else self.set_range(key)
        if reverse:
            if not found:
                self.last()
            return self.iterprev()
        return self.iternext() if found else iter(())

    def _is_placed(self) -> bool:
        if self._open is None:
            raise closed_error()
        return self._placed

    # Writing, refused as py-lmdb refuses it.

    def put(self, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        self._c  # noqa: B018
        _bytes(key), _bytes(value)
        del args, kwargs
        raise self._txn._env._read_only("mdb_put")

    def replace(self, key: Any, value: Any) -> Any:
        return self.put(key, value)

    def putmulti(self, items: Iterable[Any], *args: Any, **kwargs: Any) -> tuple[int, int]:
        self._c  # noqa: B018
        del args, kwargs
        for item in items:
            if type(item) is not tuple or len(item) != 2:
                raise TypeError("putmulti() elements must be 2-tuples")
            raise self._txn._env._read_only("mdb_cursor_put() element #0")
        self._move(Move.CURRENT)
        return 0, 0

    def delete(self, dupdata: bool = False) -> bool:
        del dupdata
        if not self._is_placed():
            return False
        raise self._txn._env._read_only("mdb_cursor_del")

    def pop(self, key: Any) -> Any:
        if not self.set_key(key):
            return None
        raise self._txn._env._read_only("mdb_cursor_del")


class _Run:
    """Records that an iterator hands out from blocks read ahead.

    Attributes:
        owner: the iterator.
        values: values are read.
    """

    __slots__ = (
        "_block",
        "_chunk",
        "_dup",
        "_first",
        "_hint",
        "_pid",
        "_scan",
        "_tail",
        "owner",
        "values",
    )

    def __init__(self, owner: _Iterator, scan: _core.Scan, *, values: bool, dup: bool) -> None:
        self.owner, self.values = owner, values
        self._scan, self._dup, self._pid = scan, dup, os.getpid()
        self._block = self._first = self._chunk = 0
        self._hint: Any = iter(())
        self._tail: tuple[bytes, bytes] | None = None

    @property
    def inherited(self) -> bool:
        """The reads ahead were begun by the parent of this process."""
        return self._pid != os.getpid()

    def fill(self, *, keys: bool, buffers: bool) -> Iterator[Any] | None:
        """The next chunk as an iterator over what is wanted; None at the end."""
        if self._chunk:
            # What says where we are must outlive the records, and whatever fails below.
            at = self._first + self._chunk
            names, data = self._scan.records(at - 1, 1, keys=True, values=self._dup)
            self._tail = names[0], data[0] if data else b""
            self._first, self._chunk = at, 0
        if self._first == self._block:
            self._block = self._first = 0
            self._block = self._scan.advance()
            if self._block == 0:
                return None
        loaded = self._scan.load(self._first, min(CHUNK_RECORDS, self._block - self._first))
        names, data = self._scan.records(self._first, loaded, keys=keys, values=self.values)
        lead: list[Any] = names if keys else data
        pair: list[Any] = data
        if buffers:
            # All at once: were they made on the way, threads that share the iterator could
            # come between a key and its value.
            lead, pair = list(map(_lend, lead)), list(map(_lend, pair)) if keys else pair
        self._chunk = loaded
        self._hint = iter(lead)
        return zip(self._hint, pair, strict=False) if keys and self.values else self._hint

    def last(self, *, keys: bool, values: bool) -> tuple[bytes, bytes] | None:
        """Key and value of the record last handed out; None: nothing was."""
        if not self._chunk:
            return self._tail
        at = self._first + self._chunk - length_hint(self._hint) - 1
        names, data = self._scan.records(at, 1, keys=keys, values=values)
        return names[0] if keys else b"", data[0] if values else b""

    def end(self) -> None:
        self.owner._stop()
        self._scan.close()


class _Iterator:
    """py-lmdb's cursor iterator: it shares the cursor, and revives when that is moved."""

    __slots__ = ("_chunk", "_cursor", "_move", "_started", "_steps", "_wait", "_wanted")

    def __init__(self, cursor: Cursor, move: Move, keys: bool, values: bool) -> None:
        self._cursor, self._move = cursor, move
        self._wanted = WANT_KEY if not values else WANT_VALUE if not keys else _WANT_ITEM
        self._started = False
        self._steps, self._wait = 0, STEPS_BEFORE_SCAN
        self._chunk: Iterator[Any] | None = None

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Any:
        chunk = self._chunk
        if chunk is not None:
            for item in chunk:
                return item
        with self._cursor._guard:
            return self._advance()

    def _stop(self) -> None:
        """The run was ended by someone else's move."""
        self._chunk = None
        self._steps = 0
        self._wait = min(self._wait * 2, STEPS_BEFORE_SCAN_MAX)

    def _advance(self) -> Any:
        cursor = self._cursor
        if not cursor._is_placed():
            raise StopIteration
        if not self._started:
            self._started = True
            return cursor._peek(self._wanted)
        if cursor._run is None and self._steps >= self._wait and self._scans():
            self._begin()
        run = cursor._run
        if run is not None and run.owner is self:
            chunk = self._chunk
            for item in chunk if chunk is not None else ():
                return item  # another thread has filled it meanwhile
            chunk = self._fill(run)
            if chunk is not None:
                self._chunk = chunk
                return next(chunk)
            cursor._settle()
        if not cursor._move(self._move):
            self._steps = 0
            raise StopIteration
        self._steps += 1
        return cursor._get(self._wanted)

    def _scans(self) -> bool:
        """Whether reading ahead pays, and leaves a position that can be found again."""
        cursor = self._cursor
        if not cursor._placed or self._move not in (Move.NEXT, Move.NEXT_NODUP):
            return False
        return not cursor._dup or bool(self._wanted & WANT_VALUE)

    def _begin(self) -> None:
        cursor = self._cursor
        values = bool(self._wanted & WANT_VALUE)
        scan = cursor._c.scan(
            self._move,
            values=values,
            advised=cursor._txn._env._advised,
            block_bytes_max=cursor._txn._env._block_bytes_max,
        )
        cursor._run = _Run(self, scan, values=values, dup=cursor._dup)

    def _fill(self, run: _Run) -> Iterator[Any] | None:
        cursor = self._cursor
        if run.inherited:
            return None
        try:
            chunk = run.fill(keys=bool(self._wanted & WANT_KEY), buffers=cursor._txn._buffers)
        except BaseException:
            cursor._txn._verify()
            cursor._settle()
            raise
        cursor._txn._verify()
        return chunk
