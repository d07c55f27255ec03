"""collect: a provenance file written when the environment that wrote the database is closed.

    lmdbio.open(path, provenance=True) -> CollectingEnvironment -> py-lmdb's own transactions
                                               close() -> py-lmdb's close -> convert -> sidecar

py-lmdb's classes can't be derived from, so its environment is wrapped: ``begin`` and all other
calls are py-lmdb's own, made on py-lmdb's own object, and what they return is py-lmdb's. Only
closing has more to do; and where the order of insertion is wanted, those that write note the keys
(lmdbio/convert/recording.py), which no walk could tell.

Why at close, by a walk, and not from what was put: LMDB alone knows where it put a record, and
commits move records about until the last one. Where they lie in the end, the branch and leaf
pages say, still in the page cache, and ``convert`` compares every record before it publishes.

Invariants:
  - py-lmdb's environment is closed first. It ends what is left open (transactions, cursors) and
    gives its reader slots back; nothing that happens afterwards can cost a record, or a lock.
  - Records that can't be collected are a warning and never an exception: the database is
    complete, and its user may be on the way out of a ``with`` block with an error of his own.
  - However the process ends, there is no provenance file or one that does not describe the
    newest transaction, which the check finds out: it is never updated, only replaced whole.
  - Nothing is written when the provenance file there describes the newest state: what others
    made (``convert --db``) and what nobody changed stay as they are.
"""

from __future__ import annotations

import atexit
import errno
import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, get_args

from lmdbio import _core
from lmdbio._core import Database, Engine, Meta
from lmdbio.convert.convert import ConvertReport, convert
from lmdbio.convert.put_order import KeyLog
from lmdbio.convert.recording import Recording, unwrapped
from lmdbio.errors import Error, IncompatibleError, moved_error
from lmdbio.locate.open import Order, open_record_index
from lmdbio.locate.open_database import guarded, settled
from lmdbio.provenance import Name, Provenance, data_file, find_sidecar
from lmdbio.provenance.freshness import is_described
from lmdbio.provenance.values import DUPSORT, walk
from lmdbio.system.amounts import refuse_unknown
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.pylmdb import lmdb
from lmdbio.system.warn import warn

__all__ = ["CollectingEnvironment", "collect", "open_collecting"]

#: Provenance files written at most, each overtaken by a commit before it had its name.
ATTEMPTS = 3


# --- collecting --------------------------------------------------------------------------


def collect(
    data: Path, output: Path | None = None, logs: Mapping[Name, KeyLog] | None = None
) -> ConvertReport | None:
    """Makes sure that a provenance file describes the newest state of all databases.

    Args:
        data: the data file.
        output: a file, or a folder to hold it; None: the usual places.
        logs: the keys that were put and deleted, of databases whose order of insertion is wanted.

    Returns:
        What was written; None: one did already.

    Raises:
        Error: the database can't be walked, or is written to faster than that.
        OSError: the data can't be brought to the disk, or the provenance file not written.
    """
    # The writer of one of this state knows nothing of the order.
    if logs is None and is_described(data, find_sidecar(data, output)):
        return None
    for _ in range(ATTEMPTS):
        _bring_to_disk(data)
        made = convert(data, output=output, databases="all", order=logs)
        # Another process may have committed, and even collected, just before the rename.
        if is_described(data, made.sidecar):
            return made
    raise Error(
        f"{data}: was committed to each of {ATTEMPTS} times as soon as it was converted: "
        "convert it when its writer rests"
    )


def _bring_to_disk(data: Path) -> None:
    with Engine(data) as engine:
        try:
            os.fsync(engine.fd)
        except OSError as e:
            what = f"{os.strerror(e.errno or 0)}: the data could not be brought to the disk"
            raise OSError(e.errno, what, str(data)) from e


# --- the environment ---------------------------------------------------------------------

#: Methods that are py-lmdb's, bound to its object: a call has nothing in between.
FORWARDED = tuple(
    name for name in dir(lmdb.Environment) if name != "close" and not name.startswith("_")
)


def open_collecting(
    path: str | bytes,
    provenance: bool | str | os.PathLike[str],
    order: Order,
    **kwargs: Any,
) -> CollectingEnvironment:
    """Opens a database for writing, to leave its provenance file when it is closed.

    Args:
        path: argument of ``lmdb.open``.
        provenance: True: the file goes to its usual place (``provenance.sidecar_file``); or a
            file, or a folder to hold it.
        order: "insertion": the order in which records are put is written down, too.
        kwargs: the keywords of ``lmdb.open``.

    Raises:
        TypeError: ``provenance`` is neither.
        ValueError: there is no such order.
        FileNotFoundError: the folder for the provenance file is not there: better now than when
            the database has been written.
        IncompatibleError: there are records, and nobody knows the order in which they were put.
        lmdb.Error, TypeError, ...: as ``lmdb.open``.
    """
    output = None
    if provenance is not True:
        if not isinstance(provenance, (str, os.PathLike)):
            raise TypeError(f"provenance must be True, False or a path, not {provenance!r}")
        output = Path(provenance).absolute()
    refuse_unknown("order", order, get_args(Order))
    environment = lmdb.open(path, **kwargs)
    try:
        if output is not None and not output.parent.is_dir():
            what = "no such folder for the provenance file"
            raise FileNotFoundError(errno.ENOENT, what, str(output.parent))
        # The path as it is now: the process may change its folder before it closes.
        data = data_file(Path(os.fsdecode(path)).absolute())
        if order == "key":
            return CollectingEnvironment(environment, data, output)
        recording = _recording(environment, data, output)
        return RecordingEnvironment(environment, data, output, recording)
    except BaseException:
        environment.close()
        raise


def _recording(environment: Any, data: Path, output: Path | None) -> Recording:
    """Begins with the keys of each database in the file, as they were put.

    Raises:
        IncompatibleError: of one with keys, this is not known.
        MovedError: other processes commit all the time.
    """

    def begin() -> Recording:
        with Engine(data) as engine:
            meta = _core.read_meta(engine)
            with guarded(engine, meta):
                found = _all_before(engine, meta, output)
        name_end = b"" if meta.layout.version == 1 else b"\0"
        return Recording(environment, found, meta.txnid, name_end)

    return settled(os.fspath(data), begin)


def _all_before(engine: Engine, meta: Meta, output: Path | None) -> dict[Name, KeyLog]:
    found: dict[Name, KeyLog] = {}
    databases: list[tuple[Name, Database]] = []
    keys: list[bytes] = []
    for part in walk(engine, meta, meta.main_db):
        if part.chunk is not None and part.keys:
            databases += _core.leaf_databases(meta.layout, part.chunk, engine.path)
            keys += _core.leaf_keys(meta.layout, part.chunk, engine.path)
    if len(keys) > len(databases):
        databases.append((None, meta.main_db))
    else:  # names alone, which are no records
        found[None] = KeyLog(keys)
    for name, db in databases:
        if db.entries and not db.flags & DUPSORT:
            found[name] = _put_before(engine, meta, name, db, output)
    return found


def _put_before(
    engine: Engine, meta: Meta, name: Name, db: Database, output: Path | None
) -> KeyLog:
    keys: list[bytes] = []
    for part in walk(engine, meta, db):
        if part.chunk is not None and part.keys:
            keys += _core.leaf_keys(meta.layout, part.chunk, engine.path)
    with open_record_index(engine.path, db=name, provenance=output, order="insertion") as source:
        records, txnid = source.insertion, source.meta.txnid
    if txnid != meta.txnid:
        raise moved_error(f"{engine.path}: was committed to while it was opened; open it again")
    return KeyLog(keys[record] for record in records.tolist())


_open: weakref.WeakSet[CollectingEnvironment] = weakref.WeakSet()


@atexit.register
def _warn_of_open() -> None:
    """Warn as destructors do, which come when what they use may be gone."""
    for environment in list(_open):
        environment._warn_of_loss()


class CollectingEnvironment:
    """py-lmdb's environment, open for writing, that leaves a provenance file when it is closed.

    Every call but those below is py-lmdb's own (``begin``, ``open_db``, ``stat``, ``copy``, ...),
    and so are the transactions, cursors and handles that they return. A function that
    asks for the type gets another one: ``lmdb.Transaction(env)`` wants py-lmdb's, ``env.begin()``
    is the same.

    ``close()``, and leaving a ``with`` block, by an exception as well: what was committed counts,
    and is described. Ctrl-C during the walk ends it, without a file. Without ``close()`` there
    is none: a walk and a sync are not what a garbage collector, or an interpreter that ends,
    should begin, and py-lmdb's transactions may still hold the environment open. A
    ``ResourceWarning`` says so. In a process forked from the one that opened it, closing is
    py-lmdb's closing alone, since the parent may go on writing. Like py-lmdb's it can't be pickled
    or copied.

    Args:
        environment: environment of py-lmdb.
        data: path of its data file.
        output: place of the provenance file; None: the usual places.
    """

    _stands_for = lmdb.Environment

    __slots__ = (
        "__weakref__",
        "_data",
        "_environment",
        "_identity",
        "_note",
        "_output",
        "_owner",
        "_report",
        *FORWARDED,
    )

    def __init__(self, environment: Any, data: Path, output: Path | None) -> None:
        self._environment = environment
        for name in FORWARDED:
            setattr(self, name, getattr(environment, name))
        self._data, self._output = data, output
        self._identity = FileIdentity.of(data.stat())
        self._report: ConvertReport | None = None
        self._note = ""
        #: The process that has yet to collect; 0: done.
        self._owner = os.getpid()
        _open.add(self)

    @property
    def provenance_report(self) -> ConvertReport | None:
        """The provenance file that ``close`` wrote; None: ``provenance_note`` may say why."""
        return self._report

    @property
    def provenance_note(self) -> str:
        """The warning of ``close``: "" when a provenance file describes the database."""
        return self._note

    def close(self) -> None:
        """Closes the environment as py-lmdb does, then writes the provenance file.

        Nothing is written when the file there describes this state already. May be called again.

        Warns:
            UserWarning: no file could be written, with the reason and what to do. The database is
                closed all the same.
        """
        self._close()

    def _before_close(self) -> None:
        """Return the facts that can be asked as long as it is open."""

    def _collect(self) -> ConvertReport | None:
        return collect(self._data, self._output)

    def _close(self) -> None:
        owner, self._owner = self._owner, 0
        try:
            if owner == os.getpid():
                self._before_close()
        finally:
            self._environment.close()
        if owner != os.getpid():
            return
        try:
            if not self._identity.is_same_inode(FileIdentity.of(self._data.stat())):
                raise Error(f"{self._data}: was moved or replaced while it was open")
            self._report = self._collect()
        except (Error, OSError, LookupError, MemoryError) as error:
            self._warn(
                f"no provenance file describes {self._data} now: "
                f"{error or type(error).__name__}; readers walk its tree instead, until "
                "lmdbio convert makes one"
            )

    def _warn(self, note: str) -> None:
        self._note = note
        warn(note)

    def __enter__(self) -> CollectingEnvironment:
        self._environment.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    def _warn_of_loss(self) -> None:
        owner, self._owner = self._owner, 0
        if owner == os.getpid():
            warn(
                f"{self._data}: was never closed: no provenance file is written",
                ResourceWarning,
                source=self,
            )

    def __del__(self) -> None:
        if getattr(self, "_owner", 0):
            self._warn_of_loss()


class RecordingEnvironment(CollectingEnvironment):
    """One whose provenance file tells the order in which records were put, too.

    Transactions that write, and their cursors, are wrapped as well (``recording``). Where other
    processes commit meanwhile, the order is not known any more: the provenance file is written
    without one, and a warning says so. Nothing is claimed of databases with duplicates.

    Args:
        recording: Recording of the puts.
    """

    __slots__ = ("_last", "_logs", "_recording")

    def __init__(
        self, environment: Any, data: Path, output: Path | None, recording: Recording
    ) -> None:
        super().__init__(environment, data, output)
        self._recording = recording
        self._last: int | None = None  # transaction, at the end; None: none was committed here
        self._logs: dict[Name, KeyLog] | None = None
        self.begin, self.open_db = self._begin, self._open_db
        for name in ("copy", "copyfd", "dbs"):
            setattr(self, name, _with_any_transaction(getattr(environment, name)))

    def _begin(
        self, db: Any = None, parent: Any = None, write: bool = False, buffers: bool = False
    ) -> Any:
        if write:
            return self._recording.begin(db, parent, buffers)
        return self._environment.begin(db, unwrapped(parent), write, buffers)

    def _open_db(
        self,
        key: Name = None,
        txn: Any = None,
        reverse_key: bool = False,
        dupsort: bool = False,
        create: bool = True,
        integerkey: bool = False,
        integerdup: bool = False,
        dupfixed: bool = False,
    ) -> Any:
        return self._recording.open_db(
            key,
            txn,
            reverse_key=reverse_key,
            dupsort=dupsort,
            create=create,
            integerkey=integerkey,
            integerdup=integerdup,
            dupfixed=dupfixed,
        )

    def _before_close(self) -> None:
        try:
            if not self._recording.is_idle:
                self._last = self._recording.last_txnid
                self._logs = self._recording.logs()
        except lmdb.Error:  # of an environment that is of no use any more
            self._last = 0

    def _collect(self) -> ConvertReport | None:
        """Once more without the order where that is not known."""
        if self._last is None:
            return super()._collect()
        why = "other processes put records, too"
        if self._logs is not None:
            try:
                made = collect(self._data, self._output, self._logs)
            except IncompatibleError as error:
                why = str(error)
            else:
                assert made is not None
                with Provenance.open(made.sidecar) as written:
                    if written.facts.txnid == self._last:
                        return made
        made = collect(self._data, self._output, {})  # whatever file is there knows no better
        self._warn(
            f"{self._data}: the order in which records were put is not known, and the provenance "
            f"file does without: {why}"
        )
        return made


def _with_any_transaction(call: Callable[..., Any]) -> Callable[..., Any]:
    """A method of py-lmdb's environment that takes our transactions, too."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return call(
            *(unwrapped(arg) for arg in args), **{k: unwrapped(v) for k, v in kwargs.items()}
        )

    return wrapped
