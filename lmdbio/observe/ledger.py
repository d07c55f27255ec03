"""Ledger: what each file gave to this process, summed over all that opened it.

    lmdbio.open, Records, Reader  --- follow --->  counted while it is open  --- ended --->  a sum

While no ledger is kept, opening and closing a file ask one global, and that is all. A ledger keeps
nothing open: it holds what counts the reads of an object, and lets go of it when that is closed or
dies. A process that is forked begins anew, with what it does itself.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.observe.active import ended, follow
from lmdbio.observe.stats import Stats
from lmdbio.remote import is_url
from lmdbio.system import fork

__all__ = ["Facts", "FileState", "Ledger", "Line", "ended", "follow"]


@dataclass(frozen=True, slots=True)
class Facts:
    """A way in which a file is opened.

    Attributes:
        surface: "lmdbio.open", "Records", "Reader"; "lmdb.open" for py-lmdb's own environments.
        file: the data file, or the folder that it is in.
        engine: engine that reads.
        located_by: "provenance" or "scan" and the like; "": by a cursor that moves.
    """

    surface: str
    file: str
    engine: str
    located_by: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """The sum over all objects that opened a file in one way.

    Attributes:
        opened: number of objects.
        open_seconds: seconds from opening to closing, of all together.
        stats: counts of what they read.
    """

    opened: int = 0
    open_seconds: float = 0.0
    stats: Stats = field(default_factory=Stats)

    def __add__(self, other: Line) -> Line:
        return Line(
            self.opened + other.opened,
            self.open_seconds + other.open_seconds,
            self.stats + other.stats,
        )


@dataclass(frozen=True, slots=True)
class FileState:
    """A file at a moment.

    Attributes:
        moment: time of the look (``time.monotonic``), seconds.
        bytes: size of the file, bytes.
        cached_bytes: size of the part in the page cache; None: the kernel does not say.
    """

    moment: float
    bytes: int
    cached_bytes: int | None

    @classmethod
    def of(cls, file: str) -> FileState | None:
        """Look at a file; None: it cannot be opened, or is elsewhere."""
        if is_url(file):
            return None
        try:
            with _core.Engine(file) as engine:
                return cls(time.monotonic(), engine.size(), engine.cached_bytes())
        except (OSError, Error):
            return None


class _Open:
    """An object that has a file open: how it is counted, and since when."""

    __slots__ = ("_begun", "_counter", "_engines", "_opened", "_owner", "facts")

    def __init__(
        self,
        owner: weakref.ref[Any],
        facts: Facts,
        counter: Any,
        engines: Callable[[], Stats] | None,
    ) -> None:
        self._owner, self.facts = owner, facts
        self._counter, self._engines = counter, engines
        self._begun, self._opened = time.monotonic(), 1

    def line(self) -> Line:
        """Return what it has read in this process."""
        stats = Stats()
        if self._counter is not None and self._engines is not None:
            stats = self._counter.total(self._engines())
        return Line(self._opened, time.monotonic() - self._begun, stats)

    def inherit(self) -> None:
        """Begin anew in a child: its parent opened it."""
        self._begun, self._opened = time.monotonic(), 0


class Ledger:
    """The lines of one process. Threads may share it.

    Attributes:
        first_seen: state of each file, as it was when this process first opened it.
    """

    def __init__(self) -> None:
        self.first_seen: dict[str, FileState] = {}
        self._open: dict[int, _Open] = {}
        self._begin()
        fork.register(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        #: One line each, or some that the garbage collector ended while others were added up.
        self._closed: dict[Facts, list[Line]] = {}

    def _after_fork(self) -> None:
        self._begin()
        self.first_seen = {}
        for one in self._open.values():
            one.inherit()

    def follow(
        self,
        owner: Any,
        facts: Facts,
        counter: Any,
        engines: Callable[[], Stats] | None,
    ) -> None:
        """Count what an object reads until it is closed or dies; see ``active.follow``."""
        if not is_url(facts.file):
            facts = replace(facts, file=os.path.abspath(facts.file))  # noqa: PTH100
        if facts.file not in self.first_seen:
            seen = FileState.of(facts.file)
            if seen is not None:
                self.first_seen[facts.file] = seen
        key = id(owner)
        dead = weakref.ref(owner, lambda _: self.ended(key))
        self._open[key] = _Open(dead, facts, counter, engines)

    def ended(self, key: int) -> None:
        """Sum up what an object has read, which is closed or dead."""
        one = self._open.pop(key, None)
        if one is None:
            return
        line = one.line()
        with self._lock:
            lines = self._closed.setdefault(one.facts, [])
            lines.append(line)
            while len(lines) > 1:
                lines.append(lines.pop() + lines.pop())

    def end(self) -> None:
        """Follow nothing any more: what is open may outlive what this module uses."""
        self._open.clear()

    def lines(self) -> dict[Facts, Line]:
        """Return the lines up to now."""
        with self._lock:
            found = {facts: sum(lines, Line()) for facts, lines in list(self._closed.items())}
        for one in list(self._open.values()):
            found[one.facts] = found.get(one.facts, Line()) + one.line()
        return found
