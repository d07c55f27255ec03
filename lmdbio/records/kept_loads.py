"""kept_loads: grains on their way to their slots, in memory or on a disk.

    absent -> read whole from the data file, guarded -> present, for good
           -> read from the disk, where an earlier job has left it, compared -> present
           -> lost: it cannot be read as a whole; its records come from the file by themselves

Threads share them. A grain is read by one load at a time, which belongs to no thread: whoever
needs one of its grains goes on with it, behind its lock, so that none waits for a thread that does
something else. A grain is marked as present after the file was seen not to have changed, and in
memory never written again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock
from time import monotonic_ns
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import NoAnswerError
from lmdbio.errors import Error
from lmdbio.reading.blocks import Blocks
from lmdbio.records.kept_disk import KeptDisk
from lmdbio.records.kept_slots import ABSENT, LOST, PRESENT, KeptSlots
from lmdbio.system import fork
from lmdbio.system.log import WARNING, tell

__all__ = ["GrainLoads"]

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: Says which slots are wanted.
Which = Callable[[], Flags]

#: Bytes that are read and guarded together; of a part that is read beforehand, so many loads are
#: under way.
LOAD_BYTES, LOADS = 32 << 20, 2
#: The same of grains that have no place in memory.
BUFFER_BYTES = 8 << 20


@dataclass(slots=True, eq=False)
class _Load:
    """Grains on their way, to memory or by way of a buffer to the disk.

    Attributes:
        slots: slots of the grains.
        to_disk: whether these slots are on the disk.
        of_disk: whether an earlier job has left them on the disk.
        lock: lock of the thread that goes on with it.
        ticket: ticket of the reads; None: not begun.
        buffer: buffer that the reads fill, where it is not the memory that keeps grains.
        size: bytes that are read.
        is_past: whether the reads bypass the page cache.
        is_over: whether nothing is left to be done.
    """

    slots: I64
    to_disk: bool = False
    of_disk: bool = False
    lock: Lock = field(default_factory=Lock)
    ticket: _core.Ticket | None = None
    buffer: _core.Memory | None = None
    size: int = 0
    is_past: bool = False
    is_over: bool = False


class _Wanted(NamedTuple):
    """Loads of absent grains: those that were under way before, and others."""

    old: list[_Load]
    new: list[_Load]


_NOTHING = _Wanted([], [])


class GrainLoads:
    """The loads of the grains of one part.

    Threads may share it. After fork the child goes on with loads of its own.

    Args:
        blocks: engines and memory that the file is read with; borrowed.
        slots: slots of the grains.
        disk: disk with some of the grains; borrowed. None: there is none.

    Raises:
        MemoryError: there is no memory for those that are kept there.
    """

    def __init__(self, blocks: Blocks, slots: KeptSlots, disk: KeptDisk | None) -> None:
        self._source, self._counter, self._pool = blocks.source, blocks.counter, blocks.pool
        self._engine, self._direct_path = blocks.engine, blocks.direct_path
        self._slots, self._disk = slots, disk
        self._memory: _core.Memory | None = _core.MappedMemory(max(1, slots.memory_bytes))
        self._lock = Lock()
        self._loads: list[_Load] = []  # under way
        fork.register(self)

    def _after_fork(self) -> None:
        # The loads were the parent's: grains that they had not brought are absent here. The disk
        # is the parent's to write.
        self._lock, self._loads = Lock(), []
        self._slots.mark(self._slots.disk & (self._slots.states == ABSENT), LOST)

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory for what it keeps; 0 after ``close``."""
        return 0 if self._memory is None else self._memory.size

    @property
    def memory(self) -> _core.Memory:
        """The grains in memory, one behind the other; good as long as anybody holds it.

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

    @property
    def _is_away(self) -> bool:
        return self._disk is not None and self._disk.tier.is_away

    def note_damage(self, slots: Flags) -> None:
        """Note that grains on the disk are to be read from the data file again."""
        with self._lock:
            self._slots.mark(slots & self._slots.disk & (self._slots.states == PRESENT), ABSENT)

    def start(self, which: Which) -> None:
        """Start to read the grains of some slots, as far as they are absent.

        Raises:
            Error: it is closed.
        """
        buffers = 0
        for load in self._wanted(which).new:
            buffers += load.to_disk
            if not load.to_disk or buffers <= LOADS:
                self._begin(load)

    def bring(self, which: Which) -> None:
        """Wait until the grains of some slots are present, or lost.

        Those on a disk that does not answer may still be absent.

        Raises:
            Error: the file has moved on, or it is closed.
        """
        while any(loads := self._wanted(which)):
            self._go_through(loads, ahead=False)

    def preload(self) -> None:
        """Read all grains.

        Raises:
            Error: the file has moved on.
        """
        # Those that have room in memory go to the disk from there.
        self._go_through(self._wanted(lambda: ~self._slots.disk))
        self._go_through(self._wanted(lambda: self._slots.disk))

    def _go_through(self, wanted: _Wanted, *, ahead: bool = True) -> None:
        """Go on with loads, the next ones being read meanwhile.

        Args:
            ahead: False: but for those that are to go to the disk, all have begun.
        """
        loads = list(chain(*wanted))
        for number, load in enumerate(loads):
            for one in loads[number : number + LOADS]:
                if ahead or one.to_disk:
                    self._begin(one)
            self._go_on(load)

    def _wanted(self, which: Which) -> _Wanted:
        """Return the loads of those of some slots that are absent.

        Nothing but an appended load says that a grain is on its way: an exception between any two
        steps (Ctrl-C) leaves none for which nobody goes on.
        """
        with self._lock:
            self._check_open()
            if self._slots.is_full:
                return _NOTHING
            is_wanted = which() & (self._slots.states == ABSENT)
            if self._is_away:
                is_wanted &= ~self._slots.disk
            if not is_wanted.any():
                return _NOTHING
            old = [load for load in self._loads if is_wanted[load.slots].any()]
            for load in old:
                is_wanted[load.slots] = False
            new = list(self._cut(np.flatnonzero(is_wanted)))
            self._loads += new
            return _Wanted(old, new)

    def _cut(self, slots: I64) -> Iterator[_Load]:
        """Yield loads of slots: each of one kind, and of no more than is read together."""
        on_disk = self._slots.disk[slots]
        memory = slots[~on_disk]
        some, there = self._slots.on_disk(memory)
        left = some[self._slots.states[there] == PRESENT] if not self._is_away else some[:0]
        kinds = (
            (left, False, True, LOAD_BYTES),
            (np.setdiff1d(memory, left), False, False, LOAD_BYTES),
            (slots[on_disk], True, False, BUFFER_BYTES),
        )
        for of_kind, to_disk, of_disk, size in kinds:
            at_once = max(1, size // self._slots.size)
            for first in range(0, len(of_kind), at_once):
                yield _Load(of_kind[first : first + at_once], to_disk, of_disk)

    def _begin(self, load: _Load) -> None:
        """Start the reads of a load, if nobody has."""
        with load.lock:  # not one that is asked for and then tested: Ctrl-C may come between
            if load.ticket is None and not load.is_over:
                with contextlib.suppress(OSError, Error):  # ``_go_on`` tries once more
                    self._submit(load)

    def _submit(self, load: _Load) -> None:
        """Start the reads of a load, whose lock this thread has."""
        memory = self.memory
        if load.to_disk:
            if load.buffer is None:
                load.buffer = self._pool.take(len(load.slots) * self._slots.size)
            memory = load.buffer
        begun, addresses = monotonic_ns(), self._addresses(load)
        if load.of_disk:
            assert self._disk is not None
            load.ticket = self._disk.submit(self._disk_grains(load.slots), addresses, memory)
        else:
            reads = self._slots.reads(load.slots, addresses)
            load.size = int(reads["length"].sum())
            past = self._direct_path.engine(load.size)
            load.is_past = past is not None
            load.ticket = (past or self._engine).submit(reads, memory)
        self._counter.span("submit", begun)

    def _addresses(self, load: _Load) -> I64:
        """Return where the grains of a load are to lie."""
        if load.buffer is not None:
            return load.buffer.address + np.arange(len(load.slots)) * self._slots.size
        return self.memory.address + load.slots * self._slots.size

    def _disk_grains(self, slots: I64) -> I64:
        """Return the numbers that grains of slots have on the disk."""
        return self._slots.places(slots) - self._slots.tiers.disk.start

    def _go_on(self, load: _Load) -> None:
        """Wait for a load, and mark its grains; return at once if another thread has.

        Raises:
            Error: the file has moved on, or it is closed.
        """
        with load.lock:
            if load.of_disk and not load.is_over:
                self._take_from_disk(load)
            if load.is_over or (len(load.slots) and not self._read(load)):
                return
            if load.to_disk:
                assert load.buffer is not None
                self._write(load.slots, self._addresses(load), load.buffer)
            self._settle(load, None if load.to_disk else PRESENT)
        if self._disk is not None and not load.to_disk:
            slots, there = self._slots.on_disk(load.slots)
            is_absent = self._slots.states[there] == ABSENT
            addresses = self.memory.address + slots[is_absent] * self._slots.size
            self._write(there[is_absent], addresses, self.memory)

    def _read(self, load: _Load) -> bool:
        """Wait for grains from the data file; return False where they are lost."""
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
            return False
        self._counter.span("wait", begun)
        if load.is_past:
            self._direct_path.record(load.size, ticket.times)
        try:
            self._source.guard()
        except Exception:
            self._settle(load, ABSENT)
            raise
        self._counter.count(warm_bytes=load.size)
        return True

    def _take_from_disk(self, load: _Load) -> None:
        """Wait for grains that an earlier job has left; those that are damaged stay with the load.

        Raises:
            Error: it is closed.
        """
        assert self._disk is not None
        begun, right = monotonic_ns(), np.zeros(len(load.slots), np.bool_)
        try:
            if load.ticket is None:
                self._submit(load)
            assert load.ticket is not None
            grains = self._disk_grains(load.slots)
            right = self._disk.finish(load.ticket, grains, self._addresses(load))
        except NoAnswerError:
            self._settle(load, LOST)  # the reads may still fill their memory
            return
        except (OSError, Error) as error:
            self._check_open()
            self._disk.tier.note_failure(error)
        self._counter.span("wait", begun)
        load.ticket = None
        with self._lock:
            self._slots.mark(load.slots[right], PRESENT)
            load.slots, load.of_disk = load.slots[~right], False
            self._slots.mark(self._slots.on_disk(load.slots)[1], ABSENT)

    def _write(self, slots: I64, addresses: I64, memory: _core.Memory) -> None:
        """Write grains to their slots on the disk, and mark these."""
        assert self._disk is not None
        there = self._disk.write(self._disk_grains(slots), addresses, memory)
        with self._lock:
            self._slots.mark(slots[there], PRESENT)
            if self._disk.tier.is_full:
                self._slots.mark(self._slots.disk & (self._slots.states == ABSENT), LOST)

    def _settle(self, load: _Load, state: int | None) -> None:
        """Mark the grains of a load, unless they are, and end it.

        In this order: one that is ended is under way no more, and one that is not under way any
        more has its grains marked, or may be read again.
        """
        with self._lock:
            if state is not None:
                self._slots.mark(load.slots, state)
            with contextlib.suppress(ValueError):
                self._loads.remove(load)
        load.is_over, load.buffer = True, None
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
                load.is_over, load.ticket, load.buffer = True, None, None
