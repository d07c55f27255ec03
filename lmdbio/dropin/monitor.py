"""monitor: counts what a program reads, in this process and its forks, until they end.

    this process        an account of its own, and at its end all of them as one
    a forked process    an account, appended to a file in memory that all of them share

Processes that are spawned, not forked, run a Python of their own, which knows nothing of this
one: they are not counted. Nor is one that ends by ``os._exit`` or a signal.

Advice is given only where a count or a measurement says that it holds, and names it. No gain is
named that nobody has measured; a file that the storage had no part in is called so.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import util

from lmdbio.dropin import unwritten
from lmdbio.observe import active
from lmdbio.observe.ledger import Facts, FileState, Ledger, Line
from lmdbio.observe.tracing import launched_rank
from lmdbio.system import procfs
from lmdbio.system.process import at_end

__all__ = ["FileReport", "Report", "Way", "advise", "monitor"]

#: Of an account in the shared file: its length comes first, in so many bytes.
LENGTH_BYTES = 8
#: Modules that multiprocessing loads when it spawns a process.
SPAWNS = ("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver")
#: From this share of a file on, its page cache is said to have had all of it.
CACHED_SHARE = 0.99
#: Of so many records on, a request for each of so large a share of them is a habit.
HABIT_RECORDS, HABIT_SHARE = 100, 0.5


@dataclass(frozen=True, slots=True)
class Way:
    """A way in which a file was read, and the sum of what was read so."""

    facts: Facts
    line: Line


@dataclass(frozen=True, slots=True)
class FileReport:
    """A file that a program opened.

    Attributes:
        file: absolute.
        ways: ways in which it was read.
        before, after: state of the file when it was first opened, and at the end; None: not known.
        is_unwritten: whether it was opened for writing, and nothing was committed.
        gain: gain where lmdbio reads instead of py-lmdb, as far as it is known, in words.
        measured: result of ``lmdbio tune`` for its storage, in words; "": nothing.
    """

    file: str
    ways: tuple[Way, ...]
    before: FileState | None
    after: FileState | None
    is_unwritten: bool
    gain: str
    measured: str

    @property
    def was_cached(self) -> bool:
        """Whether the page cache had all of it from the first."""
        before = self.before
        if before is None or before.cached_bytes is None:
            return False
        return before.cached_bytes >= CACHED_SHARE * before.bytes


@dataclass(frozen=True, slots=True)
class Report:
    """All that a program read.

    Attributes:
        seconds: duration of the run.
        rank: rank in its job; None: none started it.
        storage_bytes: size of what the kernel brought from storage for all that is counted, of
            whatever file; None: it does not say.
        forked, counted: processes forked from this one, and processes besides it in this report.
        spawns: processes were spawned, which are not.
        files: reports of the files that were opened.
    """

    seconds: float
    rank: int | None
    storage_bytes: int | None
    forked: int
    counted: int
    spawns: bool
    files: tuple[FileReport, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """All that one process has read.

    Attributes:
        lines: lines by file and way.
        first_seen: files, as they were when it first opened them.
        opened: environments that it opened for writing.
        storage_bytes: size of what the kernel brought from storage for it; None: it does not say.
        forked: processes that it forked.
    """

    lines: dict[Facts, Line]
    first_seen: dict[str, FileState]
    opened: list[unwritten.Opened]
    storage_bytes: int | None
    forked: int


def monitor(display: Callable[[Report], None]) -> None:
    """Count from now on, and give a report to ``display`` when this process ends."""
    _Monitor(display)


class _Monitor:
    """The counting of one program; see ``monitor``."""

    def __init__(self, display: Callable[[Report], None]) -> None:
        self._display = display
        self._pid, self._begun = os.getpid(), time.monotonic()
        self._forked, self._is_done = 0, False
        self._storage_before = _storage_bytes() or 0
        self._accounts = os.memfd_create("lmdbio run")
        fcntl.fcntl(self._accounts, fcntl.F_SETFL, os.O_APPEND)
        self._status = os.fstat(self._accounts)
        self._ledger = active.ledger = Ledger()
        unwritten.leave()
        os.register_at_fork(after_in_parent=self._count_fork, after_in_child=self._begin_child)
        util.register_after_fork(self, lambda monitor: at_end(monitor.end))
        atexit.register(self.end)

    def _count_fork(self) -> None:
        self._forked += 1

    def _begin_child(self) -> None:
        self._storage_before = self._forked = 0
        self._is_done = False

    def end(self) -> None:
        """Display the report, or leave an account to the process that does; once."""
        if self._is_done:
            return
        self._is_done = True
        if os.getpid() == self._pid:
            self._display(self._report())
        else:
            self._leave(self._account())
        self._ledger.end()

    def _account(self) -> Account:
        storage_bytes = _storage_bytes()
        if storage_bytes is not None:
            storage_bytes -= self._storage_before
        opened = unwritten.take()
        book = self._ledger
        return Account(book.lines(), book.first_seen, opened, storage_bytes, self._forked)

    # --- forked processes

    def _size(self) -> int:
        """Return the bytes in the file.

        Raises:
            OSError: the program has closed it, and perhaps opened another in its place.
        """
        status = os.fstat(self._accounts)
        if not os.path.samestat(status, self._status):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return status.st_size

    def _leave(self, account: Account) -> None:
        """Append an account to the file, unless the program has closed it."""
        content = pickle.dumps(account)
        with contextlib.suppress(OSError):
            self._size()
            # At once, for others append, too.
            os.write(self._accounts, len(content).to_bytes(LENGTH_BYTES, "little") + content)

    def _left(self) -> Iterator[Account]:
        """Yield the accounts that others have left, as far as they are whole."""
        with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
            at, size = 0, self._size()
            while at < size:
                head = os.pread(self._accounts, LENGTH_BYTES, at)
                length = int.from_bytes(head, "little")
                at += LENGTH_BYTES + length
                yield pickle.loads(os.pread(self._accounts, length, at - length))

    # --- all of them

    def _report(self) -> Report:
        own = self._account()
        seconds = time.monotonic() - self._begun
        accounts = [own, *self._left()]
        known = [one.storage_bytes for one in accounts if one.storage_bytes is not None]
        files = sorted({facts.file for one in accounts for facts in one.lines})
        return Report(
            seconds=seconds,
            rank=launched_rank(),
            storage_bytes=sum(known) if len(known) == len(accounts) else None,
            forked=sum(one.forked for one in accounts),
            counted=len(accounts) - 1,
            spawns=any(name in sys.modules for name in SPAWNS),
            files=tuple(_file_report(file, accounts) for file in files),
        )


def _file_report(file: str, accounts: list[Account]) -> FileReport:
    lines: dict[Facts, Line] = {}
    for account in accounts:
        for facts, line in account.lines.items():
            if facts.file == file:
                lines[facts] = lines.get(facts, Line()) + line
    seen = [one.first_seen[file] for one in accounts if file in one.first_seen]
    opened = [each for one in accounts for each in one.opened if each.file == file]
    return FileReport(
        file=file,
        ways=tuple(Way(facts, line) for facts, line in lines.items()),
        before=min(seen, key=lambda state: state.moment, default=None),
        after=FileState.of(file),
        is_unwritten=bool(opened) and all(one.is_as_it_was() for one in opened),
        gain=unwritten.GAIN,
        measured=unwritten.measured(file),
    )


def _storage_bytes() -> int | None:
    """Return the bytes that the kernel has brought from storage for this process, by its word."""
    return procfs.statistic("/proc/self/io", "read_bytes:")


# --- advice: from facts alone -------------------------------------------------------------


def advise(file: FileReport) -> list[str]:
    """Return what a change would gain with a file, a sentence or two each."""
    advice = [text for way in file.ways for text in _advise(file, way)]
    if file.was_cached and any(way.line.stats.records for way in file.ways):
        advice.append(
            "The page cache had all of it: the storage had no part in how fast it was read."
        )
    return advice


def _advise(file: FileReport, way: Way) -> Iterator[str]:
    facts, stats = way.facts, way.line.stats
    if facts.surface == "lmdb.open" and file.is_unwritten:
        more = f"; {file.measured}" if file.measured else ""
        yield (
            "It was opened for writing, and nothing was written, so py-lmdb read it: "
            "lmdbio run --readonly, or readonly=True in the program, lets lmdbio read: "
            f"{file.gain}{more}."
        )
    if facts.located_by == "scan":
        yield (
            f"Its tree was walked when it was opened, {stats.page_bytes:,} bytes in "
            f"{stats.page_requests:,} requests: lmdbio convert writes a provenance file, which "
            "saves most of that."
        )
    asks_singly = stats.records >= HABIT_RECORDS and stats.requests >= HABIT_SHARE * stats.records
    if facts.surface == "lmdbio.open" and asks_singly and not file.was_cached:
        known = file.measured or "lmdbio tune measures what that gains on its storage"
        yield (
            f"{stats.records:,} records took {stats.requests:,} requests, one after the other: "
            "where their order is known ahead, lmdbio.Records.batches keeps many in flight "
            f"({known})."
        )
