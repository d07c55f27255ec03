"""data_file: the data file of one environment, open, as all of its transactions share it.

    DataFile -> engine        reads pages and values, chosen by lmdbio.machine.choice
             -> direct path   reads of long iterations past the page cache
             -> reader slots  where ``lock=True`` and they can be had
             -> state         the newest snapshot's meta page, and its pages in memory

An environment is py-lmdb's surface over it; a transaction takes a snapshot of it.
"""

from __future__ import annotations

import errno
import os
from stat import S_ISDIR, S_ISREG

from lmdbio import _core
from lmdbio.dropin.arguments import LmdbKeywords
from lmdbio.dropin.known import Reading, choose_known, newest_state
from lmdbio.dropin.lock_file import LockFile
from lmdbio.dropin.open_snapshot import OpenSnapshot
from lmdbio.errors import (
    MDB_INVALID,
    MDB_IS_READONLY,
    Error,
    InvalidError,
    ShortReadError,
    closed_error,
    lmdb_error,
    reclassified,
)
from lmdbio.reading.direct_path import DirectPath  # now: there may be no descriptor later
from lmdbio.reading.engines import open_engine
from lmdbio.reading.wait_credit import WaitCredit
from lmdbio.remote import absolute, is_url, label, open_data
from lmdbio.system import pylmdb, reader_slots
from lmdbio.system.slim import Lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lmdbio.machine.overrides import Overrides
    from lmdbio.observe.stats import Stats

__all__ = ["BLOCK_BYTES_MAX", "CACHE_BYTES", "DataFile"]

#: Data formats by the first number of LMDB's version.
_FORMATS = {0: 1, 1: 3}
CACHE_BYTES = 64 << 20
BLOCK_BYTES_MAX = 8 << 20
#: Bytes of the budget that an environment takes besides those it copies out of a mapping.
OWN_BYTES = CACHE_BYTES + 4 * BLOCK_BYTES_MAX


class _Counted:
    """Engines of a file, and what they have counted, which outlives them."""

    __slots__ = ("_before", "_last", "direct_path", "engine")

    def __init__(self) -> None:
        self.engine: _core.Engine | None = None
        self.direct_path: DirectPath | None = None
        self._last: Callable[[], _core.EngineCounts] | None = None
        #: The same of the process that this one was forked from, up to then.
        self._before: Callable[[], _core.EngineCounts] | None = None

    def _begin_counts(self) -> None:
        """Begin anew in a child: its parent counted what there is."""
        self._note_counts()
        self._before = self._last

    def counts(self) -> Stats:
        """Return what the engines counted; also after ``close``."""
        self._note_counts()
        return _stats(self._last)

    def total(self, engines: Stats) -> Stats:
        """Return what they counted here, of ``engines``, which is also of a parent process."""
        return engines if self._before is None else engines - _stats(self._before)

    def direct_requests(self) -> int:
        """Return how many reads went past the page cache."""
        direct_path = self.direct_path
        return 0 if direct_path is None else direct_path.counts().requests

    def _note_counts(self) -> None:
        engine, direct_path = self.engine, self.direct_path
        if engine is not None:
            noted = engine.note_counts()
            direct = None if direct_path is None else direct_path.counts()
            self._last = (
                noted if direct is None or not direct.requests else lambda: noted() + direct
            )


class DataFile(_Counted):
    """One open data file.

    Threads may share it. Its engines end with the last call that uses them, so a call under way
    in another thread outlives ``close``.

    Attributes:
        path: path of the environment, as the caller gave it.
        location: the same from any folder.
        subdir: whether ``path`` is a folder.
        why_readonly: reason why a program that says nothing of it may not write; "": it says so.
        lock: LockFile of the file, with reader slots.
        engine: Engine that reads pages and values; None: closed.
        direct_path: DirectPath past the page cache; None: no iteration asked for it, or closed.
        version, page_size: version of the data format, 1 or 3, and size of a page, bytes.
        cache_bytes: bound of the page cache of one snapshot.
        block_bytes_max: bytes of a block that an iteration reads ahead.
        advised: whether the kernel's own readahead is small, so that reads ahead are announced.
        dense: whether readers ahead should bring whole stretches of the file, in order.

    Args:
        path: folder, or file with ``subdir=False``.
        keywords: keywords of ``lmdb.open``.
        overrides: Overrides of how to read, as the caller asked.
        cache_bytes, block_bytes_max, why_readonly: attributes of the same names.

    Raises:
        lmdb.Error: no such file, as in py-lmdb.
        InvalidError, VersionMismatchError, CorruptedError: not a readable LMDB file.
    """

    __slots__ = (
        "__weakref__",
        "_choice",
        "_guard",
        "_opened",
        "_size",
        "_state",
        "_wait_credit",
        "advised",
        "block_bytes_max",
        "cache_bytes",
        "dense",
        "location",
        "lock",
        "page_size",
        "path",
        "subdir",
        "version",
        "why_readonly",
    )

    def __init__(
        self,
        path: str,
        keywords: LmdbKeywords,
        overrides: Overrides,
        *,
        cache_bytes: int,
        block_bytes_max: int,
        why_readonly: str = "",
    ) -> None:
        self.path, self.subdir = label(path), keywords.subdir
        self.location = absolute(path)
        self.lock = LockFile(self.location, keywords)
        self.cache_bytes, self.block_bytes_max = cache_bytes, block_bytes_max
        self.why_readonly = why_readonly
        super().__init__()
        self._guard = Lock()
        #: Both meta pages, what they say, and the pages of that state, once they are asked for.
        self._state: tuple[bytes, _core.Meta, _core.Pages | None] | None = None
        #: The snapshots that transactions began on last: not held, with buffers; held, with them.
        self._opened: list[OpenSnapshot | None] = [None] * 4
        self._wait_credit: WaitCredit | None = None
        try:
            data = keywords.data_file(path)
            self._open(data, keywords.lib_version, overrides, has_readahead=keywords.readahead)
        except BaseException:
            self.close()
            raise

    def _open(
        self, data: str, lib_version: int | None, overrides: Overrides, *, has_readahead: bool
    ) -> None:
        if lib_version is not None and lib_version not in _FORMATS:
            raise lmdb_error(
                f"lib_version={lib_version}: this build has no LMDB {lib_version}.x engine."
            )
        try:
            self.engine = open_data(data)
        except (OSError, InvalidError) as error:
            raise _unopened(self.path, data, error) from error
        reading = self._choose(overrides)
        try:
            raw, meta = newest_state(self.open_engine())
        except (InvalidError, ShortReadError) as error:
            raise _unopened(self.path, data, error) from error
        self._state = None if raw is None else (raw, meta, None)
        self.version, self.page_size = meta.layout.version, meta.layout.page_size
        self._size = (meta.last_pgno + 1) * self.page_size
        engine = self.open_engine()
        ahead = reading.readahead_bytes if has_readahead else None
        self._wait_credit = WaitCredit(engine, self._size, readahead_bytes=ahead)
        if lib_version is not None and self.version != _FORMATS[lib_version]:
            raise lmdb_error(
                f"{self.path}: the file has data format {self.version}, which "
                f"lib_version={lib_version} does not read",
                MDB_INVALID,
            )
        if self.lock.wanted:
            self.lock.acquire(self.open_engine())

    def _choose(self, overrides: Overrides) -> Reading:
        """Choose how to read, and open the engine that was chosen instead of the first one."""
        first = self.open_engine()
        reading = choose_known(first, overrides)
        self.advised, self.dense = reading.advised, reading.dense
        choice = self._choice = reading.choice
        if choice.engine != first.kind or choice.depth != first.depth:
            self.engine = open_engine(first, choice)
            first.close()
        if choice.maps_cached:
            self.open_engine().map_cached(max(0, reading.budget_bytes - OWN_BYTES))
        return reading

    def after_fork(self) -> None:
        """Make anew, in a child process, what a thread of the parent may have held."""
        self._guard = Lock()
        self._begin_counts()

    # --- what transactions read with

    def open_engine(self) -> _core.Engine:
        """Return the engine.

        Raises:
            lmdb.Error: the environment is closed.
        """
        engine = self.engine  # once: another thread may close it meanwhile
        if engine is None:
            raise closed_error()
        return engine

    def open_direct_path(self) -> DirectPath:
        """Return the way past the page cache.

        Raises:
            lmdb.Error: the environment is closed.
        """
        engine, direct_path = self.open_engine(), self.direct_path
        if direct_path is None:
            choice = self._choice
            made = DirectPath(
                engine, self._size, depth=choice.depth, wanted=choice.may_bypass_cache
            )
            with self._guard:
                direct_path = self.direct_path = self.direct_path or made
            self._check()
        return direct_path

    def lock_file(self) -> Any:
        """Return py-lmdb's environment; None: there is no lock file to be had.

        Raises:
            ShortReadError: the file ends inside its meta pages: py-lmdb, which maps it, would die.
            lmdb.Error: the environment is closed.
        """
        slots, engine = self.lock.slots, self.open_engine()  # which close() ends first
        if slots is None:
            return None
        if engine.size() < 2 * self.page_size:
            _core.read_meta(engine)
        return slots.env

    # --- snapshots

    def open_snapshot(self, buffers: bool) -> tuple[OpenSnapshot, Any]:
        """Return the newest snapshot, and the reader slot that holds it; None: none can be had.

        Transactions on one state have it in common.

        Args:
            buffers: keys and values are to be memoryviews.

        Raises:
            ReadersFullError: all slots are taken.
            lmdb.Error: the environment is closed, or writers commit faster than we look.
        """
        if not self.lock.wanted:  # each begin comes here
            found = self._opened[buffers]
            if found is not None and found.is_newest():
                return found, None
        meta, pages, slot = self.hold_newest() if self.lock.wanted else (*self.newest(None), None)
        held = slot is not None
        found = self._opened[2 * held + buffers]
        if found is None or found.pages is not pages:
            state = self._state
            raw = state[0] if state is not None and state[2] is pages else None
            found = OpenSnapshot(
                meta, pages, raw, held=held, buffers=buffers, waited=self._wait_credit
            )
            if raw is not None:
                self._opened[2 * held + buffers] = found
        self._check()
        return found, slot

    def hold_newest(self) -> tuple[_core.Meta, _core.Pages, Any]:
        """Return the newest state, and the reader slot that holds it; None: none can be had.

        Raises:
            ReadersFullError: all slots are taken.
            lmdb.Error: the environment is closed, or writers commit faster than we look.
        """
        slots = self.lock.slots
        if slots is None or slots.inherited:
            slots = self.lock.acquire(self.open_engine())  # what was in the way may have gone
            self._check()
        if slots is None or not self.lock.wanted:
            return (*self.newest(None), None)
        for _ in range(1000):
            self.lock_file()
            try:
                slot = slots.begin()
            except pylmdb.lmdb.MapResizedError:
                self.lock.log_unheld(f"it has outgrown {reader_slots.MAP_BYTES} bytes")
                return (*self.newest(None), None)
            try:
                return (*self.newest(slot.id()), slot)
            except LookupError:
                del slot  # a commit in between
            except BaseException:
                slot.abort()
                raise
        raise lmdb_error(f"{self.path}: writers commit faster than a snapshot can be taken")

    def newest(self, txnid: int | None) -> tuple[_core.Meta, _core.Pages]:
        """Return the state of ``txnid`` (None: the newest), and its pages.

        Raises:
            LookupError: the file has moved past ``txnid``: then the next commit but one may be
                writing over its meta page at this moment.
        """
        engine = self.engine
        if engine is None:  # not by open_engine: each begin comes here
            raise closed_error()
        with self._guard:
            found = self._newest(engine, txnid)
        self._check()
        return found

    def _newest(self, engine: _core.Engine, txnid: int | None) -> tuple[_core.Meta, _core.Pages]:
        state = self._state
        if state is not None:
            raw, meta, known = state
            is_same = engine.keeps_state or _core.meta_bytes(engine, meta.layout) == raw
            if is_same and txnid in (None, meta.txnid):
                if known is None:
                    known = _core.Pages(engine, meta.layout, self.cache_bytes)
                    self._state = raw, meta, known
                return meta, known
        meta = _core.read_meta(engine, txnid)
        pages = _core.Pages(engine, meta.layout, self.cache_bytes)
        raw = _core.meta_bytes(engine, meta.layout)
        if _core.newest_txnid(engine, meta.layout) == meta.txnid:
            self._state = raw, meta, pages
        elif txnid is not None:
            raise LookupError(f"{engine.path}: moved past transaction {txnid}")
        return meta, pages

    def read_only(self, what: str) -> Error:
        """Return the refusal to write, under the code of the LMDB that writes this format."""
        code = errno.EACCES if self.version == 1 else MDB_IS_READONLY
        return lmdb_error(self.refusal(what), code)

    def refusal(self, what: str) -> str:
        """Return a refusal to write in words, with the reason where the program gave none."""
        return f"{what} ({self.path}: {self.why_readonly})" if self.why_readonly else what

    def close(self) -> None:
        """Give back the reader slots and close the file. May be called twice."""
        self._note_counts()
        # First, since calls of other threads look for it (_check). Closed with the last of them.
        self.engine = self.direct_path = None
        self._state = None
        self._opened = [None] * 4
        if self._wait_credit is not None:
            self._wait_credit.close()
        self.lock.release()

    def _check(self) -> None:
        """Let go of what was found, where another thread has closed the file meanwhile.

        Raises:
            lmdb.Error: the environment is closed.
        """
        if self.engine is None:
            self.close()
            raise closed_error()


def _stats(counts: Callable[[], _core.EngineCounts] | None) -> Stats:
    from lmdbio.observe.stats import Stats

    return Stats() if counts is None else Stats.of(counts())


def _unopened(path: str, data: str, error: OSError | Error) -> Error:
    """Return the error of a file that cannot be opened, of py-lmdb's class and with its code.

    The reason stays ours where it says more: of servers, and of what is no database.

    Args:
        path: path of the environment, for people.
        data: path of its data file.
        error: error that was met while it was opened, or its meta pages were read.
    """
    if isinstance(error, OSError):
        return lmdb_error(f"{path}: {error}" if is_url(path) else path, error.errno or 0)
    if isinstance(error, ShortReadError):  # it ends before its trees begin
        return reclassified(error, InvalidError, MDB_INVALID)
    try:
        status = os.stat(data)  # noqa: PTH116
    except (OSError, ValueError):
        return error
    if S_ISDIR(status.st_mode):
        return reclassified(error, Error, errno.EISDIR)
    if S_ISREG(status.st_mode) and not status.st_size:
        return reclassified(error, Error, errno.EBADF)
    return error
