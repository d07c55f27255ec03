"""Environment and Transaction as in py-lmdb, reading by explicit reads.

``lmdbio.open`` takes every keyword of ``lmdb.open``. With ``readonly=False`` (py-lmdb's
default) the environment returned is py-lmdb's own, reads included; with ``provenance=True`` as
well it leaves a provenance file when it is closed (lmdbio/convert/on_close.py). With
``readonly=True`` it is the one below: the same calls, results, positions and exceptions, but no
mapping of the file.
Pages and values are read through an engine (csrc/engine.h), and iteration reads ahead in
blocks.

Known differences:

* a file may be opened any number of times in one process;
* a damaged or truncated file raises (``lmdb.Error`` family or ``OSError``, naming the file)
  where py-lmdb may die by a signal;
* ``buffers=True`` lends read-only memoryviews that own their bytes: they stay readable after
  the transaction. With ``engine="mmap"`` those of values in overflow pages (larger than about
  half a page) are lent from the mapping, uncopied: they keep the file mapped as long as they
  live, show whatever a writer puts there once the transaction has ended, and raise SIGBUS when
  the file is cut, as py-lmdb's do;
* ``info()["map_addr"]`` is 0: there is no mapping; ``MapResizedError`` does not occur;
* a handle from ``open_db`` may be used in transactions that began before it.

Snapshots. With ``lock=True`` each transaction holds a reader slot
(lmdbio/pylmdb/reader_slots.py). Where none can be had (``lock=False``; no lock file possible; the
same process has the file open in py-lmdb; a transaction inherited through fork; a file grown
beyond what py-lmdb has mapped), the
meta pages are read again after each batch of reads, and results are refused with ``lmdb.Error``
once a writer is two commits past the snapshot, since it may then have reused its pages, or once
the snapshot's meta page is another, since another file was then written over this one. On file
systems that cache attributes (NFS) that check can come late.
"""

from __future__ import annotations

import errno
import operator
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, cast

from lmdbio import _core
from lmdbio._core import WANT_KEY
from lmdbio.dropin.cursor import (
    STEPS_BEFORE_SCAN as STEPS_BEFORE_SCAN,
    STEPS_BEFORE_SCAN_MAX as STEPS_BEFORE_SCAN_MAX,
    Cursor,
    as_bytes,
)
from lmdbio.errors import (
    MDB_BAD_VALSIZE,
    MDB_DBS_FULL,
    MDB_INCOMPATIBLE,
    MDB_INVALID,
    MDB_IS_READONLY,
    MDB_NOTFOUND,
    CorruptedError,
    closed_error,
    lmdb_error,
)
from lmdbio.locate.key_index import KeyTable
from lmdbio.locate.source import Counted, Order, count_keys
from lmdbio.machine import storage
from lmdbio.machine.budget import budget_bytes
from lmdbio.machine.choice import READAHEAD_BYTES_LARGE, Choice
from lmdbio.machine.overrides import Overrides
from lmdbio.observe import tracing
from lmdbio.observe.stats import Stats, Tally
from lmdbio.pylmdb import reader_slots
from lmdbio.pylmdb.find import lmdb
from lmdbio.pylmdb.mirror import Counterpart
from lmdbio.reading.direct_path import Bypass
from lmdbio.reading.engines import choose_reading, open_engine
from lmdbio.system import fork

__all__ = ["Cursor", "Environment", "Transaction", "open"]

#: Data formats by the first number of LMDB's version.
_FORMATS = {0: 1, 1: 3}
#: Keywords of ``lmdb.open`` that are not negative.
_NUMBERS = ("map_size", "mode", "max_readers", "max_dbs", "max_spare_txns")
CACHE_BYTES = 64 << 20
BLOCK_BYTES_MAX = 8 << 20
#: What an environment takes of the budget besides what it copies out of a mapping.
OWN_BYTES = CACHE_BYTES + 4 * BLOCK_BYTES_MAX


class _Database(metaclass=Counterpart, of=lmdb._Database):
    """A handle from ``Environment.open_db``."""

    __slots__ = ("__weakref__", "_env", "_flags", "_name")

    _env: Environment
    _name: bytes | None
    _flags: int

    def __new__(cls, *_: Any, **__: Any) -> _Database:
        raise TypeError("cannot create '_Database' instances")

    @classmethod
    def _of(cls, env: Environment, name: bytes | None, flags: int) -> _Database:
        handle = super().__new__(cls)
        handle._env, handle._name, handle._flags = env, name, flags
        return handle

    def __reduce__(self) -> Any:
        return _Database._of, (self._env, self._name, self._flags)

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


class Environment(metaclass=Counterpart, of=lmdb.Environment):
    """``open``: a database, by the keywords of ``lmdb.open`` and some more.

    With ``readonly=False`` (py-lmdb's default) this gives py-lmdb's own environment, reads
    included; with ``provenance`` as well, what wraps it. ``isinstance(env, lmdbio.Environment)``
    holds for either. With ``readonly=True`` (see the module):

    Args:
        path: folder, or file with ``subdir=False``.
        map_size: bytes; only shown by ``info()``.
        lock: hold reader slots.
        engine: how to read: "pread", "direct", "uring", "mmap" (csrc/engine.h), or "auto": chosen
            (``lmdbio.choice``), long iterations past the page cache while that is as good
            (``lmdbio.bypass``).
        depth: requests in flight; None: chosen.
        cache_bytes: bound of the page cache of one snapshot.
        block_bytes_max: values that iteration reads ahead, twice.
        provenance: with ``readonly=False``: ``close()`` leaves a provenance file, at its usual
            place (True), or in a file or folder (``collect.CollectingEnvironment``).
        order: with ``provenance``: "insertion" has that file tell the order in which records are
            put, too (``collect.RecordingEnvironment``), which readers may ask for.

    Raises:
        lmdb.Error: no such file, as in py-lmdb.
        InvalidError, VersionMismatchError, CorruptedError: not a readable LMDB file.
        TypeError: a keyword about reading with ``readonly=False``.
        ValueError: ``provenance`` with ``readonly=True``, which writes nothing to be described.
    """

    def __new__(
        cls,
        path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
        map_size: int = 10485760,
        subdir: bool = True,
        readonly: bool = False,
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
        engine: str = "auto",
        depth: int | None = None,
        cache_bytes: int = CACHE_BYTES,
        block_bytes_max: int = BLOCK_BYTES_MAX,
        provenance: bool | str | os.PathLike[str] | None = None,
        order: Order = "key",
    ) -> Any:
        try:
            path = os.fspath(path)
        except TypeError:
            raise TypeError("Filesystem path must be Unicode or bytes.") from None
        theirs: dict[str, Any] = {
            "map_size": map_size,
            "subdir": subdir,
            "metasync": metasync,
            "sync": sync,
            "map_async": map_async,
            "mode": mode,
            "create": create,
            "readahead": readahead,
            "writemap": writemap,
            "meminit": meminit,
            "max_readers": max_readers,
            "max_dbs": max_dbs,
            "max_spare_txns": max_spare_txns,
            "lock": lock,
            "lib_version": lib_version,
        }
        collects = provenance is not None and provenance is not False
        if order != "key" and not collects:
            raise ValueError("order= is of a provenance file, which provenance=True leaves")
        if not readonly:
            ways = engine, depth, cache_bytes, block_bytes_max
            if ways != ("auto", None, CACHE_BYTES, BLOCK_BYTES_MAX):
                raise TypeError(
                    "engine=, depth=, cache_bytes= and block_bytes_max= say how lmdbio reads: "
                    "they need readonly=True, for with readonly=False py-lmdb reads"
                )
            return _open_writable(path, provenance if collects else None, order, theirs)
        for name in _NUMBERS:
            if operator.index(theirs[name]) < 0:
                raise OverflowError("Integer argument must be >= 0")
        if collects:
            raise ValueError(
                "provenance= leaves a provenance file of what was written, and readonly=True "
                "writes nothing: lmdbio convert makes one"
            )
        self = super().__new__(cls)
        self._open(path, Overrides(engine, depth), cache_bytes, block_bytes_max, theirs)
        return self

    def _open(
        self,
        path: str | bytes,
        wish: Overrides,
        cache_bytes: int,
        block_bytes_max: int,
        theirs: dict[str, Any],
    ) -> None:
        """Opens the file.

        Args:
            wish: how to read.
            theirs: keywords of ``lmdb.open``.
        """
        self._path = os.fsdecode(path)
        self._subdir, self._max_dbs = theirs["subdir"], theirs["max_dbs"]
        self._max_readers = theirs["max_readers"]
        self._flags = {
            "subdir": bool(self._subdir),
            "readonly": True,
            "metasync": bool(theirs["metasync"]),
            "sync": bool(theirs["sync"]),
            "map_async": bool(theirs["map_async"]),
            "readahead": bool(theirs["readahead"]),
            "writemap": False,  # LMDB ignores it when it only reads
            "meminit": bool(theirs["meminit"]),
            "lock": bool(theirs["lock"]),
        }
        self._arguments = {
            **theirs,
            "readonly": True,
            "engine": wish.engine,
            "depth": wish.depth,
            "cache_bytes": cache_bytes,
            "block_bytes_max": block_bytes_max,
        }
        self._lib_version = wanted = theirs["lib_version"]
        if wanted is not None and wanted not in _FORMATS:
            raise lmdb_error(f"lib_version={wanted}: this build has no LMDB {wanted}.x engine.")
        self._map_size = int(theirs["map_size"])
        self._cache_bytes, self._block_bytes_max = cache_bytes, block_bytes_max
        self._guard = threading.Lock()
        fork.register(self)
        self._transactions: weakref.WeakSet[Transaction] = weakref.WeakSet()
        self._names: set[bytes] = set()
        self._state: tuple[bytes, _core.Meta, _core.Pages] | None = None
        #: The state whose keys are numbered, and what does it for each database.
        self._numbered: tuple[tuple[int, int], dict[bytes | None, Counted]] = (0, 0), {}
        self._slots: reader_slots.Slots | None = None
        self._engine: _core.Engine | None = None
        self._bypass: Bypass | None = None
        self._last = Stats()
        self._tally = Tally(self._engines)
        file = self._path
        if self._subdir:
            file = os.path.join(file, "data.mdb")  # noqa: PTH118
        try:
            self._engine = _core.Engine(file)
        except OSError as error:
            raise lmdb_error(self._path, error.errno or 0) from error
        try:
            choice = self._choose(wish)
            meta = _core.read_meta(self._engine)
            self._check_version(meta.layout.version)
            self._version, self._page_size = meta.layout.version, meta.layout.page_size
            self._bypass = Bypass(
                self._engine,
                (meta.last_pgno + 1) * self._page_size,
                depth=choice.depth,
                wanted=choice.past_cache,
            )
            if theirs["lock"]:
                self._acquire()
        except BaseException:
            self.close()
            raise

    def _choose(self, wish: Overrides) -> Choice:
        """How to read: opens the engine that was chosen instead of the first one."""
        first = self._open_engine()
        found = storage.look(first, cached=False)
        self._advised = (found.readahead_bytes or 0) < READAHEAD_BYTES_LARGE
        # A disk of this machine is passed by, or does not mind the order.
        self._dense = self._advised and not found.disk
        choice = choose_reading(first, "single", wish)
        if (choice.engine, choice.depth) != (first.kind, first.depth):
            self._engine = open_engine(first, choice)
            first.close()
        if choice.maps_cached:
            self._open_engine().map_cached(max(0, budget_bytes(None) - OWN_BYTES))
        return choice

    def __reduce__(self) -> Any:
        """Pickles as the call that opened it: the copy opens the file anew."""
        return _reopen, (self._path, self._arguments)

    def _after_fork(self) -> None:
        self._guard = threading.Lock()
        for txn in list(self._transactions):
            txn._after_fork()

    def _check_version(self, version: int) -> None:
        if version != _FORMATS.get(self._lib_version, version):
            raise lmdb_error(
                f"{self._path}: the file has data format {version}, which "
                f"lib_version={self._lib_version} does not read",
                MDB_INVALID,
            )

    def _acquire(self) -> None:
        """Gets at the reader slots, if there are any to be had."""
        status = os.fstat(self._open_engine().fd)
        options: dict[str, Any] = {"subdir": self._subdir, "max_readers": self._max_readers}
        self._slots = reader_slots.acquire(self._path, (status.st_dev, status.st_ino), **options)

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

    def _open_bypass(self) -> Bypass:
        if self._bypass is None:
            raise closed_error()
        return self._bypass

    def _read_only(self, what: str) -> lmdb.Error:
        """The refusal to write, under the code of the LMDB that writes this format."""
        return lmdb_error(what, errno.EACCES if self._version == 1 else MDB_IS_READONLY)

    # --- snapshots

    def _newest(self, txnid: int | None) -> tuple[_core.Meta, _core.Pages]:
        """The state of ``txnid`` (None: the newest), and its pages.

        Raises:
            LookupError: the file has moved past ``txnid``: then the next commit but one may be
                writing over its meta page at this moment.
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
            elif txnid is not None:
                raise LookupError(f"{engine.path}: moved past transaction {txnid}")
            return meta, pages

    def _counted(self, meta: _core.Meta, db: _core.Database, name: bytes | None) -> Counted:
        """What numbers the keys of a database; kept for the state last asked of."""
        state = meta.txnid, meta.mark
        with self._guard:
            if self._numbered[0] != state:
                self._numbered = state, {}
            known = self._numbered[1]
        counted = known.get(name)
        if counted is None:
            counted = known[name] = count_keys(self._open_engine(), meta, db, name)
        return counted

    def _forget_counted(self, name: bytes | None) -> None:
        """What was counted may be of another state."""
        self._numbered[1].pop(name, None)

    # --- py-lmdb's surface

    def begin(
        self,
        db: _Database | None = None,
        parent: Transaction | None = None,
        write: bool = False,
        buffers: bool = False,
    ) -> Transaction:
        """Starts a transaction on the newest snapshot."""
        return cast(Transaction, Transaction(self, db, parent, write, buffers))

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
            key = as_bytes(key).split(b"\0", 1)[0]  # a C string, for LMDB
        if txn is not None:
            if type(txn) is not Transaction:
                raise TypeError("invalid type")
            return self._open_db(key, txn, create)
        with self.begin() as own:
            return self._open_db(key, own, create)

    def _open_db(self, key: bytes | None, txn: Transaction, create: bool) -> _Database:
        if key is None:
            return _Database._of(self, None, txn._record(None).flags)
        if key not in self._names and len(self._names) >= self._max_dbs:
            raise lmdb_error("mdb_dbi_open", MDB_DBS_FULL)
        try:
            record = txn._record(key)
        except lmdb.NotFoundError:
            if create:
                raise self._read_only("mdb_dbi_open") from None
            raise
        self._names.add(key)
        return _Database._of(self, key, record.flags)

    def dbs(self, txn: Transaction | None = None) -> list[bytes]:
        """Names of the named databases, as far as ``max_dbs`` goes."""
        if txn is None:
            with self.begin() as own:
                return self.dbs(own)
        found = []
        cursor = txn.cursor(_Database._of(self, None, 0))
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
        """Raises ReadonlyError."""
        del force
        self._open_engine()
        raise self._read_only("mdb_env_sync")

    def set_mapsize(self, map_size: int) -> None:
        """Sets what ``info()`` shows, and ends all transactions, as in py-lmdb."""
        self._open_engine()
        for txn in list(self._transactions):
            txn.abort()
        self._map_size = int(map_size)

    def _engines(self) -> Stats:
        """What the engines counted."""
        engine, bypass = self._engine, self._bypass
        if engine is not None and bypass is not None:
            self._last = Stats.of(engine.tally() + bypass.tally())
        return self._last

    def stats(self) -> Stats:
        """What was read so far, by all transactions; also after ``close``. Not in py-lmdb.

        Single gets and moves are counted, and not timed: that would be felt.
        """
        return self._tally.stats()

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
        """What it was opened with, under the names of ``open``'s keywords."""
        self._open_engine()
        return dict(self._flags)

    def path(self) -> str:
        """The path as it was given."""
        self._open_engine()
        return self._path

    def lib_version(self) -> tuple[int, int, int]:
        """The version of LMDB that py-lmdb would read the file with."""
        if self._version == 1:
            return lmdb.version()
        return lmdb.version(lib_version=1)

    def max_key_size(self) -> int:
        """The longest key that the file's format takes, bytes."""
        self._open_engine()
        if self._version == 1:
            return 511
        return ((self._page_size - 24) // 2 & ~1) - 2 - 8 - 48  # room for a database record

    def max_readers(self) -> int:
        """Reader slots of the lock file; without one, as asked for."""
        return self.info()["max_readers"]

    def readers(self) -> str:
        """A table of the lock file's readers."""
        self._open_engine()
        if self._slots is None:
            return "(no reader locks)\n"
        return cast(str, self._lock_file().readers())

    def reader_check(self) -> int:
        """Frees the slots of processes that have died; how many there were."""
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
        self._engines()
        self._engine = self._bypass = None  # closed with the last call that uses them

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        slots, self._slots = getattr(self, "_slots", None), None
        if slots is not None:
            slots.release()


#: As in py-lmdb: one and the same.
open = Environment


def _open_writable(
    path: str | bytes,
    provenance: bool | str | os.PathLike[str] | None,
    order: Order,
    theirs: dict[str, Any],
) -> Any:
    """py-lmdb's environment; what wraps it, where a provenance file is wanted."""
    if theirs["lib_version"] is None:
        del theirs["lib_version"]  # which older ones do not know
    if provenance is None:
        return lmdb.open(path, readonly=False, **theirs)
    from lmdbio.convert.on_close import (
        open_collecting,  # with all of convert: who reads needs none
    )

    return open_collecting(path, provenance, order, readonly=False, **theirs)


def _reopen(path: str, arguments: dict[str, Any]) -> Environment:
    return cast(Environment, Environment(path, **arguments))


def _as_get_key(key: Any) -> bytes:
    if key is None:
        raise TypeError("key must be given.")
    return as_bytes(key)


def _closed(_key: Any, _default: Any) -> Any:
    raise closed_error()


def _stat(layout: _core.Layout, db: _core.Database) -> dict[str, int]:
    return {
        "psize": layout.page_size,
        "depth": db.depth,
        "branch_pages": db.branch_pages,
        "leaf_pages": db.leaf_pages,
        "overflow_pages": db.overflow_pages,
        "entries": db.entries,
    }


class Transaction(metaclass=Counterpart, of=lmdb.Transaction):
    """A snapshot. Made by ``Environment.begin``, or on an environment, py-lmdb's as well."""

    def __new__(
        cls,
        env: Any,
        db: Any = None,
        parent: Any = None,
        write: bool = False,
        buffers: bool = False,
    ) -> Any:
        if type(env) is not Environment:
            if isinstance(env, Environment) and not isinstance(env, lmdb.Environment):
                return env.begin(db, parent, write, buffers)  # that leaves a provenance file
            return cast(Any, lmdb.Transaction)(env, db, parent, write, buffers)
        self = super().__new__(cls)
        self._start(env, db, parent, write, buffers)
        return self

    def _start(
        self,
        env: Environment,
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
        engine = env._open_engine()
        tracing.touch()
        self._env, self._db, self._buffers = env, db, bool(buffers)
        self._engine, self._bypass = engine, env._open_bypass()
        #: What values are lent from.
        self._mapping = engine.mapping() if self._buffers else None
        self._meta, self._pages = self._begin()
        held = self._slot is not None
        self._snapshot = _core.Snapshot(self._pages, self._meta, held=held)
        self._ended = False
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        self._finds: dict[bytes | None, Callable[[Any, Any], Any]] = {}
        self._tables: dict[bytes | None, KeyTable] = {}
        self._records: dict[bytes | None, _core.Database] = {None: self._meta.main_db}
        self._past = 0  # requests past the page cache, when last asked
        env._transactions.add(self)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Transaction' object")

    def _after_fork(self) -> None:
        self._snapshot.lose()  # the slot is the parent's to release
        for cursor in list(self._cursors):
            cursor._after_fork()

    def _begin(self) -> tuple[_core.Meta, _core.Pages]:
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
                slot.release()  # a commit in between
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
        past = self._bypass.counters().requests
        self._snapshot.check(doubt=past != self._past or self._mapping is not None)
        self._past = past

    def _doubt(self) -> None:
        """After reads by other engines than the snapshot's."""
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

    def _record_of(self, db: _Database | None) -> _core.Database:
        """The database record of ``db`` (None: the transaction's database)."""
        self._check()
        db = self._database(db)
        return self._record(db._name if db is not None else None)

    def get(self, key: Any, default: Any = None, db: _Database | None = None) -> Any:
        """The first value of ``key``, or ``default``."""
        if db is None:
            return self._find(key, default)
        self._check()
        db = self._database(db)
        return self._find_in(None if db is None else db._name)(key, default)

    def _find(self, key: Any, default: Any) -> Any:
        """``get`` in the transaction's database. Hidden by a faster one from then on."""
        self._check()
        find = self._find_in(None if self._db is None else self._db._name)
        self._find = find  # type: ignore[assignment, method-assign]
        return find(key, default)

    def _find_in(self, name: bytes | None) -> Callable[[Any, Any], Any]:
        """``get`` in one database."""
        find = self._finds.get(name)
        if find is None:
            find = self._lookup(self._record(name), _as_get_key, "mdb_get")[1].find
            self._finds[name] = find
        return find

    def _lookup(
        self, record: _core.Database, as_key: Callable[[Any], bytes], call: str
    ) -> tuple[_core.Cursor, _core.Lookup]:
        """A cursor of the C core's, and searches on it."""
        cursor = _core.Cursor(self._pages, record)
        return cursor, _core.Lookup(
            cursor,
            self._snapshot,
            as_key=as_key,
            call=call,
            buffers=self._buffers,
            mapping=self._mapping,
        )

    def _keys(self, db: _Database | None) -> KeyTable:
        """The keys of ``db`` (None: the transaction's database) by number."""
        record = self._record_of(db)
        db = self._database(db)
        name = None if db is None else db._name
        if name not in self._tables:
            # The walk reads by an engine of its own, which the snapshot knows nothing of.
            try:
                counted = self._env._counted(self._meta, record, name)
            except CorruptedError:
                self._doubt()  # a page of another state is no damage
                raise
            try:
                self._doubt()
            except BaseException:
                self._env._forget_counted(name)
                raise
            self._tables[name] = KeyTable(
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
        """A cursor over ``db`` (None: the transaction's database)."""
        return Cursor._on(db, self)

    def stat(self, db: _Database | None = None) -> dict[str, int]:
        """Sizes and counts of a database in this snapshot."""
        return _stat(self._meta.layout, self._record_of(db))

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
        self._finds.clear()
        self._find = _closed  # type: ignore[assignment, method-assign]
        if self._slot is not None:
            self._slot.release()
        self._env._transactions.discard(self)

    # Writing, refused as py-lmdb refuses it.

    def _refuse(self, what: str) -> lmdb.Error:
        """The refusal of a write. As in py-lmdb, cursors that are asked after one look again where
        they stand: one that had come to an end shows its last record."""
        for cursor in list(self._cursors):
            cursor._is_stale = True
        return self._env._read_only(what)

    def put(
        self,
        key: Any,
        value: Any,
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
        db: Any = None,
    ) -> Any:
        """Raises ReadonlyError."""
        self._check()
        as_bytes(key), as_bytes(value)
        del dupdata, overwrite, append, db
        raise self._refuse("mdb_put")

    def replace(self, key: Any, value: Any, db: Any = None) -> Any:
        """Raises ReadonlyError."""
        return self.put(key, value, db=db)

    def delete(self, key: Any, value: Any = b"", db: Any = None) -> Any:
        """Raises ReadonlyError."""
        self._check()
        as_bytes(key), as_bytes(value)
        del db
        raise self._refuse("mdb_del")

    def pop(self, key: Any, db: Any = None) -> Any:
        """Raises ReadonlyError; None where there is no such key."""
        self._check()
        return self.cursor(db).pop(key)

    def drop(self, db: Any, delete: bool = True) -> Any:
        """Raises ReadonlyError."""
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
