"""loads: grains of a shard on their way between the data file and two tiers.

    absent in memory     read from the disk, where an earlier job has left it, and compared,
                         or from the data file, guarded -> present, for good -> copied to the disk
    absent on the disk   read from the data file to a buffer, guarded -> written -> present
    what cannot be read as a whole, or written, is lost: its records come from the data file

One load at a time reads a grain, and it belongs to no thread: each thread that needs one of its
grains goes on with it, behind its lock, and waits for no thread that does something else. A grain
is marked as present after the file was seen not to have changed; in memory it is never written
again.

Threads that wait (``waiting``) and one thread that polls (``polling``) drive the same loads.

Source: DeepIO (Zhu et al.), section III; HDMLP thesis, section 4.3; LBANN's data store.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock
from time import monotonic_ns

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.grains import PAGE_BYTES
from lmdbio.cache.table import ABSENT, LOST, PRESENT, GrainTable
from lmdbio.cache.tier import CacheLimits, Tier, TierReads
from lmdbio.cache.writer import TierWrite
from lmdbio.errors import Error
from lmdbio.observe.stats import StageCounter
from lmdbio.reading.guarded import GuardedReads, GuardedSource
from lmdbio.system import fork

__all__ = ["GrainLoads", "Load"]

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class Load:
    """Grains on their way to a tier.

    Attributes:
        grains: grains, by their places in the shard.
        to_memory: whether they go to memory; else to the tier behind it.
        is_of_file: whether they are read from the data file; else the other one has them.
        lock: lock of the thread that goes on with it.
        reads: reads of the grains; None: not begun, or over.
        writes: writes to the tier; None: not begun.
        buffer: buffer that the reads fill, where they have no place in memory.
        is_over: whether nothing is left to be done.
    """

    grains: I64
    to_memory: bool
    is_of_file: bool = True
    lock: Lock = field(default_factory=Lock)
    reads: GuardedReads | TierReads | None = None
    writes: tuple[TierWrite, ...] | None = None
    buffer: _core.Memory | None = None
    is_over: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether something is under way, or was."""
        return self.reads is not None or self.writes is not None or self.is_over

    @property
    def is_late(self) -> bool:
        """Whether a tier has done nothing for it for so long that nobody should wait."""
        if self.reads is not None:
            return isinstance(self.reads, TierReads) and self.reads.is_late
        return any(write.is_late for write in self.writes or ())

    @property
    def awaited(self) -> _core.Ticket | TierReads | TierWrite | None:
        """The reads or the write that it waits for; None: nothing is under way."""
        if isinstance(self.reads, GuardedReads):
            return self.reads.awaited
        return self.reads or next((one for one in self.writes or () if not one.poll()), None)

    def close(self, *, is_away: bool = False) -> None:
        """Give up what is under way.

        Args:
            is_away: whether a tier does not answer: nobody waits for it.
        """
        reads, self.reads = self.reads, None
        if is_away and isinstance(reads, TierReads):
            reads.abandon()
        elif reads is not None:
            reads.close()
        self.is_over, self.buffer = True, None


class GrainLoads:
    """The loads of the grains of one shard.

    Threads may share it. After fork the child goes on with loads of its own.

    Args:
        table: states of the grains.
        memory: memory that keeps the first ones, one behind the other. Each is read to its place
            there, and never written again.
        back: tier that keeps the last ones; None: there is none.
        limits: bounds of what is under way.

    Attributes:
        front: memory that keeps the first ones; None after ``close``.
        to_front, to_back: loads that are under way, or are to be begun, oldest first, by the tier
            that they go to.
        copies: loads that take grains of memory to the other tier, for the next job.
        steps: number of loads that have arrived, and writes that have ended.
        slowest_s: longest duration of a step lately, seconds.
    """

    def __init__(
        self, table: GrainTable, memory: _core.Memory, back: Tier | None, limits: CacheLimits
    ) -> None:
        self.table, self.back, self.limits = table, back, limits
        self.front: _core.Memory | None = memory
        self._size = table.map.size
        # Each is taken again, for its pages are made when they are first touched.
        self._spare: list[_core.Memory] = []
        self.lock = Lock()
        self.to_front: list[Load] = []
        self.to_back: list[Load] = []
        self.copies: deque[Load] = deque()
        self._landed_s = 0.0
        self.steps, self.slowest_s = 0, 0.0
        fork.register(self)

    def open(self, source: GuardedSource, request_bytes_max: int, counter: StageCounter) -> None:
        """Have grains read from now on; arguments as of ``CacheShard.open``."""
        self.source, self.counter = source, counter
        self._request_bytes_max = max(request_bytes_max, self._size)

    def _after_fork(self) -> None:
        # The loads were the parent's: grains that they had not brought are absent here. The disk
        # is the parent's to write.
        self.lock, self.copies = Lock(), deque()
        self.to_front, self.to_back, self._spare = [], [], []
        self.table.recheck()  # a thread of the parent may have marked some, and no more
        self._note_full()

    def closed(self) -> Error:
        """Return the error of what is wanted after the end."""
        return Error(f"{self.source.index.path}: was closed before it was read")

    @property
    def memory(self) -> _core.Memory:
        """The memory of the first tier.

        Raises:
            Error: it is closed.
        """
        memory = self.front
        if memory is None:
            raise self.closed()
        return memory

    # --- what is wanted

    def want(self, grains: Flags, *, is_away: bool = False) -> list[Load]:
        """Return the loads of those of some grains that are missing, the new ones last.

        Nothing but a load in its list says that a grain is on its way: an exception between any
        two steps (Ctrl-C) leaves none for which nobody goes on.

        Args:
            grains: mask of the shard's grains that are needed, shape (owned,).
            is_away: whether the back tier is done without.

        Raises:
            Error: it is closed.
        """
        with self.lock:
            if self.front is None:
                raise self.closed()
            return self._want(grains & self.table.missing(is_away=is_away))

    def _want(self, wanted: Flags) -> list[Load]:
        if not wanted.any():
            return []
        loads = [*self.to_front, *self.to_back]
        old = [load for load in loads if wanted[load.grains].any()]
        for load in old:
            wanted[load.grains] = False
        new = list(self._cut(np.flatnonzero(wanted)))
        self._line_up(new)
        return old + new

    def _line_up(self, loads: list[Load]) -> None:
        """Add loads to their lists; the caller has the lock."""
        for load in loads:
            if load.to_memory:
                self.to_front.append(load)
            elif load.is_of_file:
                self.to_back.append(load)
            elif (load.grains >= self.table.both).any():
                self.to_back.insert(0, load)  # it needs no buffer
            else:
                self.copies.append(load)

    def _cut(self, grains: I64) -> Iterator[Load]:
        """Yield loads of missing grains: each of one kind, and of what is read together."""
        table, limits, back = self.table, self.limits, self.back
        in_memory = grains[grains < len(table.front)]
        to_front = in_memory[table.front[in_memory] == ABSENT]
        is_left = table.back[to_front] == PRESENT
        if back is None or back.is_away:
            is_left[:] = False
        lent = in_memory[table.front[in_memory] == PRESENT]
        rest = np.setdiff1d(grains, np.concatenate((to_front, lent)))
        kinds = (
            (to_front[is_left], True, False, limits.load_bytes),
            (to_front[~is_left], True, True, limits.load_bytes),
            (lent, False, False, limits.load_bytes),
            (rest, False, True, limits.piece_bytes),
        )
        for of_kind, to_memory, is_of_file, size in kinds:
            at_once = max(1, size // self._size)
            for first in range(0, len(of_kind), at_once):
                yield Load(of_kind[first : first + at_once], to_memory, is_of_file)

    def _copies(self, grains: I64) -> list[Load]:
        """Return loads that take grains, as far as memory has them, to the back tier as well."""
        table = self.table
        some = grains[grains < len(table.front)]
        some = some[(table.front[some] == PRESENT) & (table.back[some] == ABSENT)]
        if self.back is None:
            return []
        needed = some >= table.both
        kinds = some[needed], some[~needed]
        return [Load(kind, False, False) for kind in kinds if len(kind)]

    def forget(self, grains: I64) -> None:
        """Note that the back tier has damaged grains, which are read and written again."""
        with self.lock:
            there = grains[self.table.back[grains] == PRESENT]
            self.table.mark(self.table.back, there, ABSENT)
            some = np.zeros(len(self.table.owned), np.bool_)
            some[there] = True
            self._want(some & self.table.missing())
            self._line_up(self._copies(there[there < self.table.both]))

    # --- one load

    def begin(self, load: Load) -> None:
        """Start what a load is to do, if nobody has; the caller has its lock.

        Raises:
            OSError, Error: it cannot be read, or is closed.
        """
        if load.has_begun:
            return
        begun = monotonic_ns()
        if load.is_of_file and not load.to_memory and load.buffer is None:
            load.buffer = self._take_buffer()
        memory = self.memory if load.buffer is None else load.buffer
        addresses = self._addresses(load)
        if load.is_of_file:
            alignment = max(PAGE_BYTES, self.source.engine.alignment)
            reads = self.table.map.reads(
                load.grains, addresses, self._request_bytes_max, alignment
            )
            size = int(reads["length"].sum())
            load.reads = GuardedReads.begin(
                self.source, size, lambda engine: engine.submit(reads, memory)
            )
        elif self.back is not None and load.to_memory:
            load.reads = self.back.read(load.grains, addresses, memory)
        elif self.back is not None:
            load.writes = tuple(self.back.write(load.grains, addresses, memory))
        self.counter.span("submit", begun)

    def _take_buffer(self) -> _core.Memory:
        """Return memory for what is read at once."""
        with contextlib.suppress(IndexError):
            return self._spare.pop()
        return _core.MappedMemory(max(self.limits.piece_bytes, self._size))

    def _addresses(self, load: Load) -> I64:
        """Return where the grains of a load lie, or are to lie."""
        if load.buffer is not None:
            return load.buffer.address + np.arange(len(load.grains)) * self._size
        return self.memory.address + load.grains * self._size

    def poll(self, load: Load, timeout_ms: int = 0) -> bool:
        """Go on with a load that has begun; return whether it is over; the caller has its lock.

        Raises:
            OSError, Error: the data file cannot be read, or has changed, or this is closed.
        """
        if load.reads is not None:
            if not load.reads.poll(timeout_ms):
                return False
            right = self._arrived(load, load.reads)
            if load.to_memory:
                self._land(load, right)
                return True
            assert self.back is not None and load.buffer is not None
            writes = self.back.write(load.grains, self._addresses(load), load.buffer)
            load.writes, load.reads = tuple(writes), None
        for write in load.writes or ():
            if not write.poll(timeout_ms):
                return False
        if not load.is_over:
            self._note_written(load)
        return True

    def _arrived(self, load: Load, reads: GuardedReads | TierReads) -> Flags:
        """Return which grains have arrived as they were written, and count them."""
        if not isinstance(reads, GuardedReads):
            self._note_step(0.0)
            return reads.right()
        begun_s, ended_s = reads.ticket.times
        self._note_step(ended_s - max(begun_s, self._landed_s))  # not behind those before
        self._landed_s = ended_s
        self.counter.count(warm_bytes=reads.size)
        return np.ones(len(load.grains), np.bool_)

    def _note_step(self, took_s: float) -> None:
        self.steps, self.slowest_s = self.steps + 1, max(took_s, 0.9 * self.slowest_s)

    def _land(self, load: Load, right: Flags) -> None:
        """Mark grains that have arrived in memory; those that were damaged are read once more."""
        there, wrong = load.grains[right], load.grains[~right]
        with self.lock:
            self.table.mark(self.table.front, there, PRESENT)
            self.table.mark(self.table.back, wrong, ABSENT)
            self._note_full()
            again = [Load(wrong, True)] if len(wrong) else []
            self._line_up([*again, *self._copies(there)])
            self.end(load)

    def _note_written(self, load: Load) -> None:
        """Mark grains that the tier has by now."""
        with self.lock:
            for write in load.writes or ():
                self._note_step(write.seconds)
                if write.has_written:
                    self.table.mark(self.table.back, write.grains, PRESENT)
            self.end(load)
            self._note_full()

    def _note_full(self) -> None:
        """Note what the back tier has not taken, where it takes no more."""
        if self.back is None or not self.back.is_full:
            return
        is_lost = self.table.back == ABSENT
        for load in self.to_back:
            if load.writes is not None:  # which may have been made
                is_lost[load.grains] = False
        self.table.mark(self.table.back, np.flatnonzero(is_lost), LOST)

    def drop(self, load: Load) -> None:
        """End a load to a tier that takes no more."""
        with self.lock:
            self.end(load)
            self._note_full()

    def end(self, load: Load) -> None:
        """End a load whose grains are marked; the caller has the lock.

        In this order: one that is ended is under way no more, and one that is not under way any
        more has its grains marked, or may be read again.
        """
        loads = self.to_front if load.to_memory else self.to_back
        with contextlib.suppress(ValueError):
            loads.remove(load)
        buffer, most = load.buffer, self.limits.buffer_bytes
        load.close()
        if self.table.is_full or self.front is None:
            self._spare.clear()
        elif buffer is not None and (len(self._spare) + 1) * buffer.size <= most:
            self._spare.append(buffer)

    def close(self) -> None:
        """Give up what is under way, and the memory, unless somebody holds that.

        May be called twice.
        """
        with self.lock:
            self.front = None
            loads = list(chain(self.to_front, self.to_back))
            self.copies, self.to_front, self.to_back, self._spare = deque(), [], [], []
        is_away = self.back is not None and self.back.is_away
        for load in loads:
            with load.lock:
                load.close(is_away=is_away)
