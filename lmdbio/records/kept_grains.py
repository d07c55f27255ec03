"""kept_grains: the part of a file that a process keeps in memory, grain by grain.

    absent -> read whole when a record in it is first needed, guarded -> present, for good
           -> lost: it cannot be read as a whole; its records come from the file by themselves

Threads share it. A grain is read by one load at a time, which belongs to no thread: whoever needs
one of its grains goes on with it, behind its lock, so that none waits for a thread that does
something else. A grain is marked as present after the file was seen not to have changed, and never
written again. So what is lent from it needs no look at the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.locate.record_index import RecordIndex
from lmdbio.machine import storage
from lmdbio.planning.homes import Grains, Homes, grain_bytes
from lmdbio.planning.reads import PAGE_BYTES, REQUEST_BYTES_MAX
from lmdbio.system import fork
from lmdbio.system.log import WARNING, tell

if TYPE_CHECKING:
    from lmdbio.records.records import Records
    from lmdbio.records.routes import Routes

__all__ = ["KeptGrains", "even_homes", "is_far", "keep"]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

ABSENT, PRESENT, LOST = range(3)

#: Bytes that are read and guarded together; of a part that is read beforehand, so many loads are
#: under way.
LOAD_BYTES, LOADS = 32 << 20, 2
#: Records whose extents are looked up at once.
PART = 2**18


def even_homes(records: Records, parts: int) -> Homes:
    """Return the records of a file in so many parts, even by bytes; all of them have a home.

    Nothing but the file and the number of parts matters, so that processes find the same homes
    without asking each other.

    Raises:
        ValueError: there are too many parts.
        OSError, Error: where records lie cannot be read.
    """
    index = records._source
    ends = [int((part["offset"] + part["length"]).max()) for part in _extents(index)]
    end = max(ends, default=0)
    share = end // parts
    grains = Grains.of(_extents(index), end, grain_bytes(REQUEST_BYTES_MAX, share, share))
    rooms = [(len(grains.used) + grains.span_max) << grains.bits] * parts
    return Homes.of(grains, rooms, index.count, index.run)


def _extents(index: RecordIndex) -> Iterator[_core.Extents]:
    """Yield the extents of all records, some at a time."""
    for first in range(0, index.count, PART):
        yield index.run(first, min(index.count, first + PART))


def is_far(records: Records) -> bool:
    """Return whether a file lies on storage that other machines have."""
    found = storage.look(records._source.pages, cached=False)
    return not (found.disk or found.in_memory)


def keep(records: Records, homes: Homes, part: int, room: int) -> KeptGrains:
    """Have the batches of open records keep a part of the file, as far as there is room.

    The file cache keeps nothing besides.

    Args:
        records: that no thread reads yet, and nothing is kept of.
        homes: of its records.
        part: of them.
        room: bytes of memory.

    Raises:
        MemoryError: there is none.
    """
    routes = records._routes
    routes.file_cache.close()
    routes.kept = KeptGrains(routes, homes, part, room)
    return routes.kept


@dataclass(slots=True, eq=False)
class _Load:
    """Grains on their way to memory.

    Attributes:
        grains: by their places in it.
        lock: of the thread that goes on with it.
        ticket: of the reads; None: not begun.
        size: bytes that are read.
        is_past: they pass by the page cache.
        is_over: nothing is left to be done.
    """

    grains: I64
    lock: Lock = field(default_factory=Lock)
    ticket: _core.Ticket | None = None
    size: int = 0
    is_past: bool = False
    is_over: bool = False


class _Wanted(NamedTuple):
    """Loads of absent grains: those that were under way before, and others."""

    old: list[_Load]
    new: list[_Load]


_NOTHING = _Wanted([], [])


class KeptGrains:
    """A part of a file in memory.

    Threads may share it. After fork the child goes on with a copy of its own.

    Args:
        routes: read the file; borrowed.
        homes: of its records.
        part: of them.
        room: bytes of memory, filled to a whole number of grains.
    """

    def __init__(self, routes: Routes, homes: Homes, part: int, room: int) -> None:
        grains = homes.grains
        kept = homes.kept(part)
        self._kept = range(kept.start, min(kept.stop, kept.start + (room >> grains.bits)))
        # Not the routes themselves: they refer to this.
        self._source, self._counter = routes.source, routes.counter
        self._engine, self._direct_path = routes.engine, routes.direct_path
        self._grains, self._size = grains, grains.size
        self._begins = grains.used[self._kept.start : self._kept.stop] << grains.bits
        #: Of the file: where its last record ends, and nothing is read behind it.
        self._limit = int(homes.limits.max(initial=0))
        #: Records that lie between these bytes of the file lie in these grains.
        self._low = int(self._begins[0]) if len(self._kept) else 0
        end = int(self._begins[-1]) + self._size if len(self._kept) else 0
        self._high = min(end, self._limit)
        self._has_all = len(self._kept) == len(grains.used)
        self._states: U8 = np.full(len(self._kept), ABSENT, np.uint8)
        self._memory: _core.Memory | None = _core.MappedMemory(max(1, self.kept_bytes))
        self._lock = Lock()
        self._loads: list[_Load] = []  # under way
        self._is_full, self._has_lost = not len(self._kept), False
        fork.register(self)

    def _after_fork(self) -> None:
        # The loads were the parent's: grains that they had not brought are absent here.
        self._lock, self._loads = Lock(), []

    @property
    def kept_bytes(self) -> int:
        """Bytes of the file that it keeps, or will."""
        return len(self._kept) << self._grains.bits

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory for them; 0 after ``close``."""
        return 0 if self._memory is None else self._memory.size

    @property
    def memory(self) -> _core.Memory:
        """The grains, one behind the other; good as long as anybody holds it.

        Raises:
            Error: it is closed.
        """
        memory = self._memory
        if memory is None:
            raise self._closed()
        return memory

    def _closed(self) -> Error:
        return Error(f"{self._source.path}: was closed before it was read")

    def _check_open(self) -> None:
        if self._memory is None:
            raise self._closed()

    # --- records

    def covered(self, extents: _core.Extents) -> Flags | None:
        """Return which records can be had from here, empty ones included; None: all."""
        if self._has_all and not self._has_lost:
            return None
        offsets, lengths = extents["offset"], extents["length"]
        inside = (offsets >= np.uint64(self._low)) & (offsets + lengths <= np.uint64(self._high))
        if self._has_lost:
            some = np.flatnonzero(inside & (lengths > 0))
            lost = self._states == LOST
            inside[some[self._grains.touch(extents[some], lost, self._kept.start)]] = False
        covered = np.asarray(inside | (lengths == 0))
        return None if covered.all() else covered

    def places(self, extents: _core.Extents) -> U64:
        """Return where records that are covered begin in the memory; 0 where one is empty."""
        numbers, first = self._grains.numbers, self._kept.start
        places = _core.place_extents(extents, self._grains.bits, numbers, first)
        places[extents["length"] == 0] = 0  # which may lie anywhere
        return places

    # --- reading

    def start(self, extents: _core.Extents) -> None:
        """Start to read the grains of records that are covered, as far as they are absent.

        Raises:
            Error: it is closed.
        """
        for load in self._wanted(self._under(extents)).new:
            self._begin(load)

    def bring(self, extents: _core.Extents) -> None:
        """Wait until the grains of records that are covered are present, or lost.

        Raises:
            Error: the file has moved on, or it is closed.
        """
        while any(loads := self._wanted(self._under(extents))):
            for load in chain(*loads):
                self._go_on(load)

    def preload(self) -> None:
        """Read all grains.

        Raises:
            Error: the file has moved on.
        """
        loads = list(chain(*self._wanted(lambda: np.ones(len(self._kept), np.bool_))))
        for number, load in enumerate(loads):
            for ahead in loads[number : number + LOADS]:
                self._begin(ahead)
            self._go_on(load)

    def _under(self, extents: _core.Extents) -> Callable[[], Flags]:
        """Return a call that says which grains lie under some records: shape (kept,)."""
        return lambda: self._grains.under(extents)[self._kept.start : self._kept.stop]

    def _wanted(self, which: Callable[[], Flags]) -> _Wanted:
        """Return the loads of those of some grains that are absent.

        Nothing but an appended load says that a grain is on its way: an exception between any two
        steps (Ctrl-C) leaves none for which nobody goes on.
        """
        with self._lock:
            self._check_open()
            if self._is_full:
                return _NOTHING
            is_wanted = which() & (self._states == ABSENT)
            if not is_wanted.any():
                return _NOTHING
            old = [load for load in self._loads if is_wanted[load.grains].any()]
            for load in old:
                is_wanted[load.grains] = False
            grains, at_once = np.flatnonzero(is_wanted), max(1, LOAD_BYTES // self._size)
            firsts = range(0, len(grains), at_once)
            new = [_Load(grains[first : first + at_once]) for first in firsts]
            self._loads += new
            return _Wanted(old, new)

    def _begin(self, load: _Load) -> None:
        """Start the reads of a load, if nobody has."""
        with load.lock:  # not one that is asked for and then tested: Ctrl-C may come between
            if load.ticket is None and not load.is_over:
                with contextlib.suppress(OSError, Error):  # ``_go_on`` tries once more
                    self._submit(load)

    def _submit(self, load: _Load) -> None:
        """Start the reads of a load, whose lock this thread has."""
        memory = self.memory
        begun, reads = monotonic_ns(), self._reads(load.grains, memory)
        load.size = int(reads["length"].sum())
        past = self._direct_path.engine(load.size)
        load.is_past = past is not None
        load.ticket = (past or self._engine).submit(reads, memory)
        self._counter.submitted(begun)

    def _reads(self, grains: I64, memory: _core.Memory) -> npt.NDArray[Any]:
        """Return a request for each grain, to its place."""
        reads = np.zeros(len(grains), _core.READ)
        begins = self._begins[grains]
        needed = np.minimum(self._size, self._limit - begins)
        reads["offset"], reads["needed"] = begins, needed
        reads["length"] = -(-needed // PAGE_BYTES) * PAGE_BYTES
        reads["into"] = memory.address + grains * self._size
        return reads

    def _go_on(self, load: _Load) -> None:
        """Wait for a load, and mark its grains; return at once if another thread has.

        Raises:
            Error: the file has moved on, or it is closed.
        """
        with load.lock:
            if load.is_over:
                return
            begun = monotonic_ns()
            try:
                if load.ticket is None:
                    self._submit(load)
                ticket = load.ticket
                assert ticket is not None
                ticket.wait()
            except (OSError, Error) as error:
                self._check_open()
                path = self._source.path
                tell(f"{path}: records near each other are read one by one: {error}", WARNING)
                self._settle(load, LOST)
                return
            self._counter.waited(begun)
            if load.is_past:
                self._direct_path.record(load.size, ticket.times)
            try:
                self._source.guard()
            except Exception:
                self._settle(load, ABSENT)
                raise
            self._settle(load, PRESENT)
            self._counter.warmed(load.size)

    def _settle(self, load: _Load, state: int) -> None:
        """Mark the grains of a load, and end it.

        In this order: one that is ended is under way no more, and one that is not under way any
        more has its grains marked, or may be read again.
        """
        with self._lock:
            self._has_lost |= state == LOST  # first: a lost grain is never taken for a present one
            self._states[load.grains] = state
            self._is_full = bool((self._states != ABSENT).all())
            with contextlib.suppress(ValueError):
                self._loads.remove(load)
        load.is_over = True
        ticket, load.ticket = load.ticket, None
        if ticket is not None:
            ticket.close()

    def close(self) -> None:
        """Give up what is under way, and the memory, unless somebody holds that.

        May be called twice.
        """
        with self._lock:
            self._memory = None
            loads, self._loads = self._loads, []
        for load in loads:
            with load.lock:
                load.is_over, load.ticket = True, None
