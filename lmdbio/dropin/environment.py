"""environment: ``lmdbio.open`` and Environment as in py-lmdb, reading by explicit reads.

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
(lmdbio/system/reader_slots.py). Where none can be had (``lock=False``; no lock file possible; the
same process has the file open in py-lmdb, or py-lmdb is older than 2.0; a child whose parent has
it open; a file grown beyond what py-lmdb has mapped), the meta pages are read again after each
batch of reads, and results are refused with ``lmdb.Error`` once a writer is two commits past the
snapshot, since it may then have reused its pages, or once the snapshot's meta page is another,
since another file was then written over this one. On file systems that cache attributes (NFS) that
check can come late.
"""

from __future__ import annotations

import errno
import os

from lmdbio import _core
from lmdbio.dropin.arguments import (
    IMPOSED,
    LmdbKeywords,
    as_bytes,
    as_number,
    imposes_readonly,
)
from lmdbio.dropin.cursor import Cursor
from lmdbio.dropin.data_file import BLOCK_BYTES_MAX, CACHE_BYTES, DataFile
from lmdbio.dropin.database import Handles, _Database, stat_of
from lmdbio.dropin.transaction import Transaction, begin, in_own
from lmdbio.errors import MDB_BAD_TXN, Error, MovedError, lmdb_error
from lmdbio.machine.overrides import Overrides
from lmdbio.observe import active
from lmdbio.remote import is_url, label
from lmdbio.system import fork, pylmdb
from lmdbio.system.amounts import BYTES_MAX, whole
from lmdbio.system.log import log
from lmdbio.system.pylmdb import Counterpart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lmdbio.locate.open import Order
    from lmdbio.observe.ledger import Facts
    from lmdbio.observe.stats import Stats

__all__ = ["Cursor", "Environment", "Transaction", "_Database", "open"]


class Environment(_core.Begins, metaclass=Counterpart, of="Environment"):
    """``lmdbio.open``: a database, by the keywords of ``lmdb.open`` and some more.

    With ``readonly=True`` lmdbio reads, as follows. With ``readonly=False`` (py-lmdb's default)
    this returns py-lmdb's own environment, which also reads; a program that then writes nothing
    gets a warning. With ``provenance`` as well it returns a wrapper around that environment.
    ``isinstance(env, lmdbio.Environment)`` holds for all of them.

    Args:
        path: folder, or file with ``subdir=False``; or the URL of a file, which takes no lock.
        map_size: size that ``info()`` shows, bytes.
        readonly: whether nothing is written; None: False, or True with ``LMDBIO_READONLY=1``.
        lock: whether to hold reader slots.
        engine: engine that reads: "pread", "direct", "uring", "mmap", or "auto": chosen by the
            storage (``lmdbio info``), with long iterations past the page cache while that pays.
        depth: number of requests in flight; None: chosen by the storage.
        cache_bytes: upper bound of the pages cached for one snapshot, bytes.
        block_bytes_max: size of the blocks that iteration prefetches, of which there are two.
        provenance: place of the provenance file that ``close()`` writes with ``readonly=False``:
            True for the usual one, or a file or folder.
        order: order of records that the provenance file holds: "key", or "insertion" for the order
            in which they were put, which ``Records(order="insertion")`` then uses.

    Raises:
        lmdb.Error: no such file, as in py-lmdb.
        InvalidError, VersionMismatchError, CorruptedError: not a readable LMDB file.
        TypeError: a keyword about reading with ``readonly=False``.
        ValueError: ``provenance`` with ``readonly=True``, which writes nothing.
    """

    def __new__(
        cls,
        path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
        map_size: int = 10485760,
        subdir: bool = True,
        readonly: bool | None = None,
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
        keywords = LmdbKeywords.of(
            map_size, subdir, metasync, sync, map_async, mode, create, readahead, writemap,
            meminit, max_readers, max_dbs, max_spare_txns, lock, lib_version,
        )  # fmt: skip
        collects = provenance is not None and provenance is not False
        if order != "key" and not collects:
            raise ValueError("order= is of a provenance file, which provenance=True leaves")
        imposed = readonly is None and not collects and imposes_readonly()
        if not readonly and not imposed:
            _refuse_ways(engine, depth, cache_bytes, block_bytes_max)
            _refuse_url(path)
            return _open_theirs(path, provenance if collects else None, order, keywords)
        keywords.check_numbers()
        if collects:
            raise ValueError(
                "provenance= leaves a provenance file of what was written, and readonly=True "
                "writes nothing: lmdbio convert makes one"
            )
        given = os.fsdecode(path)
        why = _impose(given, keywords) if imposed else ""
        bounds = _bounds(cache_bytes=cache_bytes, block_bytes_max=block_bytes_max)
        overrides = Overrides(engine, depth)
        if _core.absence:
            if is_url(path):
                _core.need(f"{label(given)}, a URL,")
            return _open_theirs(path, None, order, keywords, readonly=True)
        self = super().__new__(cls)
        self._open(given, keywords, overrides, bounds, why)
        return self

    def _open(
        self,
        path: str,
        keywords: LmdbKeywords,
        overrides: Overrides,
        bounds: dict[str, int],
        why_readonly: str,
    ) -> None:
        """Open the file."""
        self._path, self._keywords = path, keywords
        self._overrides, self._bounds = overrides, bounds
        self._map_size = int(keywords.map_size)
        self._handles = Handles(keywords.max_dbs)
        self._make(Transaction, Cursor, _Database)
        fork.register(self)
        self._file = DataFile(path, keywords, overrides, why_readonly=why_readonly, **bounds)
        active.follow(self, _facts, self._file, self._file.counts)

    def __reduce__(self) -> Any:
        """Pickle as the call that opened it: the copy opens the file anew."""
        asked = self._overrides
        given = {"readonly": True, "engine": asked.engine, "depth": asked.depth, **self._bounds}
        return _reopen, (self._file.location, {**self._keywords.named(), **given})

    def _after_fork(self) -> None:
        self._forget()
        if hasattr(self, "_file"):  # else another thread forked while this was opened
            self._file.after_fork()
        for txn in self._living():
            txn._after_fork()

    def __repr__(self) -> str:
        return f"<Environment of {getattr(self, '_path', None)!r}: {_state_of(self)}>"

    def _repr_html_(self) -> str:
        from lmdbio.dropin.card import card_html

        return card_html(self, self._file)

    # --- py-lmdb's surface

    if TYPE_CHECKING:  # of C, which calls _begin where the file may have moved on

        def begin(
            self,
            db: _Database | None = None,
            parent: Transaction | None = None,
            write: bool = False,
            buffers: bool = False,
        ) -> Transaction:
            """Begin a transaction on the newest snapshot.

            Raises:
                ReadersFullError: with ``lock=True``, all reader slots are taken.
                lmdb.Error: ``write`` or ``parent`` was asked for, or the environment is closed.
            """
            return begin(self, db, parent, write, buffers)

    _begin = begin

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
        """Return a handle of a named database (None: the main one); stored flags win.

        Raises:
            ReadonlyError: there is no such database (NotFoundError with ``create=False``).
            IncompatibleError: the name is the key of a plain record.
            DbsFullError: more names than ``max_dbs``.
        """
        self._file.open_engine()
        if key is None:
            if reverse_key or dupsort or integerkey or integerdup or dupfixed:
                raise ValueError("May not set flags on the main database")
        else:
            key = as_bytes(key).split(b"\0", 1)[0]  # a C string, for LMDB
        if txn is not None:
            if type(txn) is not Transaction:
                raise TypeError("invalid type")
            return self._handles.open(self, key, txn, create)
        try:
            with self.begin() as own:
                return self._handles.open(self, key, own, create)
        except MovedError:  # a writer came between: again, and not for ever
            return in_own(self, lambda own: self._handles.open(self, key, own, create))

    def dbs(self, txn: Transaction | None = None) -> list[bytes]:
        """Return the names of the named databases, as far as ``max_dbs`` goes."""
        if txn is None:
            return in_own(self, self.dbs)
        if type(txn) is not Transaction:
            raise TypeError("invalid type")
        env: Any = txn._env  # whose names they are, as for py-lmdb
        names: list[bytes] = env._handles.names(env, txn)
        return names

    def copy(self, path: str, compact: bool = False, txn: Any = None) -> None:
        """Copy the environment into folder or file ``path``; py-lmdb does it."""
        _copy(self._file, lambda env, of: env.copy(path, compact=compact, txn=of), txn, compact)

    def copyfd(self, fd: int, compact: bool = False, txn: Any = None) -> None:
        """Copy the environment to a descriptor; py-lmdb does it."""
        _copy(self._file, lambda env, of: env.copyfd(fd, compact=compact, txn=of), txn, compact)

    def sync(self, force: bool = False) -> None:
        """Raise ReadonlyError."""
        del force
        self._file.open_engine()
        raise self._file.read_only("mdb_env_sync")

    def set_mapsize(self, map_size: int) -> None:
        """Set the size that ``info()`` shows, and end all transactions, as py-lmdb does."""
        self._file.open_engine()
        for txn in self._living():
            txn.abort()
        self._map_size = 0 if map_size is None else as_number(map_size)

    def stats(self) -> Stats:
        """Return what all transactions read so far; also after ``close``. Not in py-lmdb.

        Single gets and moves are counted, and not timed: that would be felt.
        """
        return self._file.total(self._file.counts())

    def stat(self) -> dict[str, int]:
        """Return the sizes and counts of the main database."""
        meta, _ = self._file.newest(None)
        return stat_of(meta.layout, meta.main_db)

    def info(self) -> dict[str, int]:
        """Return sizes, the newest transaction, and the number of reader slots in use."""
        meta, _ = self._file.newest(None)
        readers, used = self._keywords.max_readers, 0
        lock_file = self._file.lock_file()
        if lock_file is not None:
            known = lock_file.info()
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
        """Return the flags that it was opened with, under the names of ``open``'s keywords."""
        self._file.open_engine()
        names = ("subdir", "metasync", "sync", "map_async", "readahead", "meminit", "lock")
        flags = {name: bool(getattr(self._keywords, name)) for name in names}
        return {**flags, "readonly": True, "writemap": False}  # LMDB reads without a writemap

    def path(self) -> str:
        """Return the path as it was given."""
        self._file.open_engine()
        return self._path

    def lib_version(self) -> tuple[int, int, int]:
        """Return the version of the LMDB with which py-lmdb would read the file."""
        if self._file.version == 1:
            return pylmdb.lmdb.version()
        return pylmdb.lmdb.version(lib_version=1)

    def max_key_size(self) -> int:
        """Return the length of the longest key that the file's format takes, bytes."""
        self._file.open_engine()
        if self._file.version == 1:
            return 511
        return ((self._file.page_size - 24) // 2 & ~1) - 2 - 8 - 48  # room for a database record

    def max_readers(self) -> int:
        """Return the number of reader slots of the lock file; without one, as asked for."""
        return self.info()["max_readers"]

    def readers(self) -> str:
        """Return a table of the lock file's readers."""
        lock_file = self._file.lock_file()
        return "(no reader locks)\n" if lock_file is None else str(lock_file.readers())

    def reader_check(self) -> int:
        """Free the slots of processes that have died, and return their number."""
        lock_file = self._file.lock_file()
        return 0 if lock_file is None else int(lock_file.reader_check())

    def close(self) -> None:
        """End all transactions and close the file. May be called twice."""
        self._shut()
        for txn in self._living():
            txn.abort()
        self._file.close()
        active.ended(self)

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: As in py-lmdb: one and the same.
open = Environment


def _refuse_ways(*ways: str | int | None) -> None:
    """Raise TypeError for ways of reading where py-lmdb reads."""
    if ways != ("auto", None, CACHE_BYTES, BLOCK_BYTES_MAX):
        raise TypeError(
            "engine=, depth=, cache_bytes= and block_bytes_max= say how lmdbio reads: "
            "they need readonly=True, for with readonly=False py-lmdb reads"
        )


def _refuse_url(path: str | bytes) -> None:
    """Refuse to write to a file that is elsewhere.

    Raises:
        ReadonlyError: it is.
    """
    if is_url(path):
        named = label(os.fsdecode(path))
        raise lmdb_error(f"{named}: is read, not written: say readonly=True", errno.EACCES)


def _bounds(**asked: int) -> dict[str, int]:
    """Return bounds of memory, or raise as ``whole``."""
    return {name: whole(name, value, 0, BYTES_MAX) for name, value in asked.items()}


def _impose(path: str, keywords: LmdbKeywords) -> str:
    """Return the reason why an environment is readonly that the program opens for writing.

    Raises:
        ReadonlyError: it would be made.
    """
    if not is_url(path) and not os.path.exists(keywords.data_file(path)):  # noqa: PTH110
        raise lmdb_error(f"{path}: is not there, and would be made: {IMPOSED}", errno.EACCES)
    log(f"{path}: is opened readonly: {IMPOSED}")
    return IMPOSED


def _copy(file: DataFile, call: Callable[[Any, Any], Any], txn: Any, compact: Any) -> None:
    """Have py-lmdb copy a file.

    Args:
        file: data file to copy.
        call: function that copies py-lmdb's environment, and its transaction or None.
        txn: transaction of ours, whose state is copied; None: the newest.
        compact: argument of ``Environment.copy``, as its caller gave it.

    Raises:
        TypeError: ``txn`` is no transaction, or goes with ``compact`` alone.
        BadTxnError: it has ended.
        lmdb.Error: it holds no reader slot, and its state is no longer the newest.
    """
    file.open_engine()
    if txn is not None and not isinstance(txn, _core.Transacts):
        raise TypeError("invalid type")
    if txn is not None and not compact:
        raise TypeError("txn argument only compatible with compact=True")
    if txn is not None and txn._ended:
        raise lmdb_error("mdb_env_copy3", MDB_BAD_TXN)
    if file.open_engine().remote_file is not None:
        raise lmdb_error(f"{file.path}: is copied by lmdbio pull")
    lock_file, slot = file.lock_file(), None if txn is None else txn._slot
    if slot is not None:
        call(lock_file, slot)
    elif txn is not None and file.newest(None)[0].txnid != txn._opened.meta.txnid:
        raise lmdb_error(f"{file.path}: only a reader slot (lock=True) holds an older state")
    elif lock_file is not None:
        call(lock_file, None)
    else:
        options = {"readonly": True, "lock": False, "create": False, "subdir": file.subdir}
        with pylmdb.lmdb.open(os.fsencode(file.location), **options) as env:
            call(env, None)


def _state_of(env: Environment) -> str:
    """Return the number of entries, in words, or that there is none to be had."""
    try:
        return f"{env.stat()['entries']:,} entries, readonly"
    except (Error, OSError, AttributeError):  # as of one that was never open
        return "closed, or not readable"


def _facts(env: Environment) -> Facts:
    from lmdbio.observe.ledger import Facts

    engine = env._file.open_engine()
    return Facts("lmdbio.open", engine.path, engine.kind)


def _facts_of_writable(path: str | bytes, keywords: LmdbKeywords) -> Facts:
    from lmdbio.observe.ledger import Facts

    return Facts("lmdb.open", keywords.data_file(os.fsdecode(path)), "py-lmdb")


def _open_theirs(
    path: str | bytes,
    provenance: bool | str | os.PathLike[str] | None,
    order: Order,
    keywords: LmdbKeywords,
    *,
    readonly: bool = False,
) -> Any:
    """Return py-lmdb's environment, wrapped where a provenance file is wanted."""
    theirs = keywords.named()
    if keywords.lib_version is None:
        del theirs["lib_version"]  # older ones do not know it
    if provenance is None:
        from lmdbio.dropin import unwritten

        opened = pylmdb.lmdb.open(path, readonly=readonly, **theirs)
        if not _core.absence:  # else lmdbio could not read, either
            unwritten.note(path, opened, keywords)
        active.follow(opened, lambda _: _facts_of_writable(path, keywords))
        return opened
    _core.need("provenance=")
    # Brings all of convert, of which a reader needs nothing.
    from lmdbio.convert.on_close import open_collecting

    return open_collecting(path, provenance, order, readonly=False, **theirs)


def _reopen(path: str, arguments: dict[str, Any]) -> Environment:
    opened: Environment = Environment(path, **arguments)
    return opened
