"""Filling: the grains of a home on their way to its tiers, each of which is read once.

    wanted by a block, or next in the order of the file
      -> memory has room    read to its place there, guarded: there   -> later, on the disk as well
      -> the disk has       read to a buffer, guarded -> written: there

Grains that an earlier job has left on the disk are not read again. Those that the disk does not
take stay in the data file, from which the home reads their rows for each block.

Source: DeepIO (Zhu et al.), section III; HDMLP thesis, section 4.3; LBANN's data store.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from time import monotonic, monotonic_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import PAGE_BYTES, DiskTier
from lmdbio.errors import Error
from lmdbio.observe.stats import StageCounter
from lmdbio.reader.flight import Awaited, Settled
from lmdbio.reader.grain_states import ABSENT, COMING, LOST, PRESENT, GrainStates
from lmdbio.reader.grain_writes import GrainWrites
from lmdbio.reader.guarded import GuardedReads
from lmdbio.reader.home_store import HomeStore
from lmdbio.reader.roots import RootSource

__all__ = ["BUFFER_BYTES", "Filling"]

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Bytes that are swept at a time, and parts of the sweep under way: blocks wait behind them.
SWEEP_BYTES, SWEEPS = 8 << 20, 2
#: Bytes that are guarded together, and such loads under way: a block's first reads may be those of
#: the whole home, and its guard waits behind all that was submitted before.
LOAD_BYTES, LOADS = 16 << 20, 2
#: Of grains on their way to the disk, which have no place in memory.
BUFFER_BYTES = 32 << 20


@dataclass(slots=True)
class Load:
    """Grains on their way to memory.

    Attributes:
        grains: neighbouring grains, by their places in the home.
        address: address of the first grain.
        memory: memory in which they lie.
        reads: reads from the data file; None: the grains come from the disk.
        ticket: ticket of the reads from the disk.
        begun_s: beginning of the load, seconds (``time.monotonic``).
    """

    grains: I64
    address: int
    memory: _core.Memory
    reads: GuardedReads | None
    ticket: _core.Ticket | None = None
    begun_s: float = field(default_factory=monotonic)

    @property
    def awaited(self) -> Awaited:
        """The reads that are under way."""
        if self.reads is not None:
            return self.reads.awaited
        assert self.ticket is not None
        return Settled(self.ticket)

    def close(self) -> None:
        """Give up what is under way."""
        if self.reads is not None:
            self.reads.close()
        elif self.ticket is not None:
            self.ticket.close()


class Buffers:
    """Memory for grains on their way to the disk.

    Each is taken again, for its pages are made when they are first touched.
    """

    def __init__(self) -> None:
        self._made, self._free = 0, list[_core.Memory]()

    @property
    def are_made(self) -> bool:
        """Whether there are any."""
        return self._made > 0

    def take(self, size: int) -> _core.Memory | None:
        """Return a buffer that nothing is on its way through; None: there is none.

        Args:
            size: the same each time.
        """
        if not self._free and self._made * size < BUFFER_BYTES:
            self._made += 1
            return _core.MappedMemory(size)
        return self._free.pop() if self._free else None

    def give_back(self, buffer: _core.Memory | None) -> None:
        """Let a buffer be taken again, if it is one."""
        if buffer is not None:
            self._free.append(buffer)


class Filling:
    """Fills the tiers of one home.

    Args:
        source: the root's open data set and engines; borrowed.
        store: memory of the home, and which grains it keeps.
        disk: the rest of it, borrowed; None: there is no disk.
        request_bytes_max: bytes per request.
        counter: counts what is submitted and kept.

    Attributes:
        states: states of the grains.
        steps: loads that have arrived, and writes that have ended.
        slowest_s: longest duration of a step lately, seconds.
    """

    def __init__(
        self,
        source: RootSource,
        store: HomeStore,
        disk: DiskTier | None,
        request_bytes_max: int,
        counter: StageCounter,
    ) -> None:
        self._source, self._counter, self._disk = source, counter, disk
        self._memory, self._limit = store.memory, store.limit
        self._size, self._begins, self._pages = store.grain_bytes, store.begins, store.pages
        self._request_bytes_max = max(request_bytes_max, self._size)
        self.states = GrainStates(store)
        self._wanted_soon: deque[I64] = deque()  # in memory, which are not read yet
        self._wanted: deque[I64] = deque()  # on the disk, which have no buffer yet
        self._loads: deque[Load] = deque()
        self._writes = None if disk is None else GrainWrites(disk, store.pages)
        self._copies: deque[I64] = deque()  # of memory, for the next job
        self._buffers = Buffers()
        self._swept = 0
        self._landed_s = 0.0
        self.steps, self.slowest_s = 0, 0.0
        self._stepped_s = monotonic()

    # --- what there is

    def missing(self, is_under: Flags) -> I64:
        """Return the grains of some that are not there, and want them.

        Args:
            is_under: mask of the home's grains that are needed, shape (kept,).
        """
        missing = np.flatnonzero(is_under & self.states.missing)
        if len(missing):
            self.want(missing)
        return missing

    def still_missing(self, grains: I64) -> I64:
        """Return those of some grains that are not there yet."""
        return grains[self.states.missing[grains]] if len(grains) else grains

    @property
    def has_lost(self) -> bool:
        """Whether the disk has not taken grains that have no place in memory."""
        return self._disk is not None and self._disk.is_full

    @property
    def is_stuck(self) -> bool:
        """Whether grains wait for a disk that does not answer."""
        load = self._loads[0] if self._loads else None
        if self._disk is None or (load is not None and load.reads is not None):
            return False
        under_way = load or self._writes
        if not under_way:
            return False
        moved_s = max(under_way.begun_s, self._stepped_s)
        if monotonic() < moved_s + self._disk.limits.stuck_s:
            return False
        self._disk.note_stuck()
        return True

    @property
    def awaited(self) -> Awaited | None:
        """Reads or writes that are under way; None: there are none."""
        if self._loads:
            return self._loads[0].awaited
        return self._writes.awaited if self._writes else None

    # --- reading

    def want(self, grains: I64) -> None:
        """Start to read grains, or as soon as there is memory for them.

        Args:
            grains: grains to read, by their places in the home, ascending.
        """
        some = grains[grains < self.states.in_memory]
        some = some[self.states.memory(some) == ABSENT]
        self.states.note_memory(some, COMING)
        begun, at_once = monotonic_ns(), max(1, LOAD_BYTES // self._size)
        for first in range(0, len(some), at_once):
            self._wanted_soon.append(some[first : first + at_once])
        self._load_soon()
        some = grains[grains >= self.states.in_memory]
        some = some[self.states.disk(some) == ABSENT]
        if len(some):
            self.states.note_disk(some, COMING)
            self._wanted.append(some)
            self._load_to_buffers()
        self._counter.span("submit", begun)

    def fetch_again(self, pages: npt.NDArray[np.uint64]) -> None:
        """Read grains from the file once more whose pages the disk has damaged."""
        offsets = pages.astype(np.int64) * PAGE_BYTES
        grains = np.unique(np.searchsorted(self._begins, offsets, side="right") - 1)
        again = grains[self.states.disk(grains) == PRESENT]
        self.states.note_disk(again, ABSENT)
        in_memory = again[again < self.states.in_memory]
        self._take_in(in_memory[self.states.memory(in_memory) == PRESENT])
        self.want(again)

    def sweep(self) -> None:
        """Start to read the next grains that nobody has needed yet."""
        kept = self.states.kept
        while self._swept < kept and len(self._loads) < SWEEPS:
            if self._wanted or self._wanted_soon:
                break
            end = min(kept, self._swept + max(1, SWEEP_BYTES // self._size))
            part = np.arange(self._swept, end)
            self._swept = end
            self.want(self.still_missing(part))

    def _load_soon(self) -> None:
        """Start to read grains that are wanted in memory, as many as suit."""
        while self._wanted_soon and len(self._loads) < LOADS:
            self._load_to_memory(self._wanted_soon.popleft())

    def _load_to_memory(self, grains: I64) -> None:
        """Start to read grains to their places in memory: from the disk, as far as it has them."""
        from_disk = self.states.disk(grains) == PRESENT
        if self._disk is None or self._disk.is_over:
            from_disk[:] = False
        for is_there in (True, False):
            some = grains[from_disk == is_there]
            if not len(some):
                continue
            address = self._memory.address + int(some[0]) * self._size
            reads = self._reads(some, self._memory.address + some * self._size)
            ticket: _core.Ticket | None = None
            if is_there and self._disk is not None:
                try:
                    ticket = self._disk.read_pages(reads, self._memory)
                except (OSError, Error) as error:
                    self._disk.note_failure(error)
            if ticket is not None:
                self._loads.append(Load(some, address, self._memory, None, ticket))
            else:
                self._begin(some, address, self._memory, reads)

    def _load_to_buffers(self) -> None:
        """Start to read wanted grains that have their places on the disk, into buffers."""
        most = self.states.kept - self.states.in_memory
        at_once = max(1, min(SWEEP_BYTES // self._size, most))
        while self._wanted:
            if self._disk is None or self._disk.is_full:
                self.states.note_disk(self._wanted.popleft(), LOST)
                continue
            memory = self._buffers.take(at_once * self._size)
            if memory is None:
                break
            grains = self._wanted.popleft()
            if len(grains) > at_once:
                self._wanted.appendleft(grains[at_once:])
                grains = grains[:at_once]
            into = memory.address + np.arange(len(grains)) * self._size
            self._begin(grains, memory.address, memory, self._reads(grains, into))

    def _begin(
        self, grains: I64, address: int, memory: _core.Memory, reads: npt.NDArray[Any]
    ) -> None:
        size = int(reads["length"].sum())
        guarded = GuardedReads.begin(
            self._source, size, lambda engine: engine.submit(reads, memory)
        )
        self._loads.append(Load(grains, address, memory, guarded))

    def _reads(self, grains: I64, into: I64) -> npt.NDArray[Any]:
        """Return requests for grains, each to its address."""
        most, alignment = self._request_bytes_max, self._source.read_alignment
        return _requests(self._begins[grains], into, self._size, self._limit, most, alignment)

    # --- arriving

    def tend(self) -> None:
        """Take in what has arrived, and go on.

        Raises:
            OSError, Error: the data file cannot be read.
        """
        while self._loads and self._land(self._loads[0]):
            self._loads.popleft()
        self._load_soon()
        for written in () if self._writes is None else self._writes.ended():
            self._buffers.give_back(written.buffer)
            self._step(written.seconds)
            self.states.note_disk(written.grains, PRESENT if written.is_there else LOST)
        self._load_to_buffers()
        if self._buffers.are_made and not self._writes and self.states.is_full:
            self._buffers = Buffers()
        if self._copies and not self._writes and not self._wanted:
            self._copy_to_disk(self._copies.popleft())

    def _step(self, took_s: float) -> None:
        """Note that something has gone on, and how long it took."""
        self.steps, self._stepped_s = self.steps + 1, monotonic()
        self.slowest_s = max(took_s, 0.9 * self.slowest_s)

    def _land(self, load: Load) -> bool:
        """Take in grains that have arrived; return whether all of a load have."""
        if load.reads is None:
            return self._land_from_disk(load)
        if not load.reads.poll():
            return False
        begun_s, ended_s = load.reads.ticket.times
        self._step(ended_s - max(begun_s, self._landed_s))  # not behind those before
        self._landed_s = ended_s
        self._counter.count(warm_bytes=load.reads.size)
        load.reads.close()
        if load.memory is self._memory:
            self._take_in(load.grains)
        elif self._writes is not None:
            addresses = load.address + np.arange(len(load.grains)) * self._size
            self._writes.start(load.grains, load.memory, addresses, is_buffer=True)
        return True

    def _land_from_disk(self, load: Load) -> bool:
        """Take in grains that the disk had; those that it has damaged are read from the file."""
        assert load.ticket is not None and self._disk is not None
        why: object = ""
        try:
            if not load.ticket.poll():
                return False
        except (OSError, Error) as error:
            why = error
        load.close()
        self._step(0)
        if why:
            self._disk.note_failure(why)
        is_right = np.zeros(len(load.grains), np.bool_)
        for i, grain in enumerate(load.grains.tolist()):
            if not self._disk.is_over:
                address = self._memory.address + grain * self._size
                is_right[i] = self._disk.is_right(address, *self._pages.under(grain))
        wrong = load.grains[~is_right]
        self.states.note_disk(wrong, LOST if self._disk.is_over else ABSENT)
        self.states.note_memory(wrong, ABSENT)
        self._take_in(load.grains[is_right])
        self.want(wrong)
        return True

    def _take_in(self, grains: I64) -> None:
        """Note that grains are in memory, and have them written to the disk if that has room."""
        self.states.note_memory(grains, PRESENT)
        copies = grains[self.states.disk(grains) == ABSENT]
        self._copy_to_disk(copies[copies >= self.states.both])
        rest = copies[copies < self.states.both]
        if len(rest):
            self._copies.append(rest)

    def _copy_to_disk(self, grains: I64) -> None:
        """Start to write grains that are in memory, each run of neighbours for itself."""
        if self._disk is None or self._writes is None or not len(grains):
            return
        if self._disk.is_full:
            self.states.note_disk(grains, LOST)
            return
        self.states.note_disk(grains, COMING)
        self._writes.start(grains, self._memory, self._memory.address + grains * self._size)

    def close(self) -> None:
        """Give up what is under way."""
        for load in self._loads:
            if load.ticket is not None and self._disk is not None and self._disk.is_stuck:
                self._disk.abandon(load)
            else:
                load.close()
        self._loads.clear()
        self._wanted_soon.clear()
        self._wanted.clear()
        self._copies.clear()
        if self._writes is not None:
            self._writes.close()


def _requests(
    begins: I64, into: I64, size: int, limit: int, request_bytes_max: int, alignment: int
) -> npt.NDArray[Any]:
    """Return requests for grains: for neighbours, in the file and in memory, together.

    Args:
        begins: offset of each grain in the file, bytes, ascending.
        into: addresses.
        size: size of a grain, bytes.
        limit: the end of what is needed of the file.
        request_bytes_max, alignment: largest size and alignment of a request, bytes.
    """
    most = max(1, request_bytes_max // size)
    is_new = np.ones(len(begins), np.bool_)
    is_new[1:] = (np.diff(begins) != size) | (np.diff(into) != size)
    run = np.cumsum(is_new) - 1
    within = np.arange(len(begins)) - np.flatnonzero(is_new)[run]
    first = np.flatnonzero(within % most == 0)
    count = np.diff(np.append(first, len(begins)))
    reads = np.zeros(len(first), _core.READ)
    reads["offset"] = begins[first]
    needed = np.minimum(count * size, limit - begins[first])
    reads["needed"] = needed
    reads["length"] = -(-needed // alignment) * alignment
    reads["into"] = into[first]
    return reads
