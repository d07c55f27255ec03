"""Supply by windows: reads each window of a shuffled epoch once, and copies rows into the slots.

    window of the order    its records in the order of the file -> large requests -> own memory
    block                  its rows, in the order of the epoch <- copied out of one or two windows

While one window is used, the next one is read. A window's memory is free when the last of its rows
is copied. So each byte of the file is read once an epoch, wherever blocks begin and end.

Source: DeepIO (Zhu et al.), section III-C: two buffers, of which one is read while the other is
shuffled in memory; asynchronous I/O (Lee et al.), section III-B.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic_ns

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.observe.stats import StageCounter, Stats
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.planning.rounds import Round, RoundSequence
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.flight import Flight
from lmdbio.reader.roots import RootSource
from lmdbio.reader.supply import PendingBlock

__all__ = ["WindowSupply"]

#: Rows begin at multiples of this in a slot: they take no more than their nodes in a leaf do.
ROW_ALIGNMENT = 8

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


@dataclass(slots=True)
class _Window:
    """A window that is read, or under way.

    Attributes:
        round: its places.
        records: that this root reads of it, ascending.
        addresses, lengths: of each of them in memory.
        ticket: of its reads.
        memory: that they fill.
        size: bytes that are read.
        past: by the page cache.
    """

    round: Round
    records: I64
    addresses: U64
    lengths: U64
    ticket: _core.Ticket
    memory: _core.Memory
    size: int
    past: bool


@dataclass(slots=True)
class _Filled:
    """A block whose rows are being copied.

    Attributes:
        number: of the block.
        first: its first place.
        records: of its rows.
        lengths, offsets: of each row, bytes; in the slot's data.
        size: bytes of all rows.
        address: of the slot.
        copied: rows that are there.
    """

    number: int
    first: int
    records: I64
    lengths: U64
    offsets: U64
    size: int
    address: int
    copied: int = 0


class _Copied:
    """The ticket of a block whose rows are all there."""

    def __init__(self, times: tuple[float, float]) -> None:
        self.times = times

    def poll(self, timeout_ms: int = 0) -> bool:  # noqa: ARG002 (as of Ticket)
        return True

    def poll_begun(self, timeout_ms: int = 0, older: object = None) -> bool:  # noqa: ARG002
        return True

    def left(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


class WindowSupply:
    """Reads the blocks of the only root of a job, window by window. Owns ``source``.

    Args:
        source: what the root reads with, and from.
        schedule: says which records a block has; of one team.
        window: whose slots it fills.
        request_bytes_max: bytes per request.
        buffers: windows in memory: one is used while the others are read.
        buffer_bytes: of each.
        counter: counts what is located, planned and submitted.

    Attributes:
        path: of the file.
        guard: raises Error where the file has changed since the records were found.
        flights: blocks that are filled, oldest first; the root's thread takes them out.
    """

    def __init__(
        self,
        source: RootSource,
        schedule: Schedule,
        window: share.NodeWindow,
        request_bytes_max: int,
        buffers: int,
        buffer_bytes: int,
        counter: StageCounter,
    ) -> None:
        assert schedule.epochs is not None and len(schedule.teams) == 1
        self._source, self._schedule, self._window = source, schedule, window
        self._counter, self._buffers, self._buffer_bytes = counter, buffers, buffer_bytes
        self._options = PlanOptions(source.choice.gap_bytes_max, request_bytes_max)
        self._sequence = RoundSequence(schedule.epochs, 1)
        self._rounds: Iterator[Round] = self._sequence.from_place(schedule.start)
        iterations = schedule.iterations
        self._end = None if iterations is None else schedule.place_after(iterations)
        self._loaded: deque[_Window] = deque()
        self._spare: list[_core.Memory] = []
        self._filled: _Filled | None = None
        self._has_ended = False
        self.path, self.guard = source.index.path, source.index.guard
        self.flights: deque[Flight] = deque()

    def close(self) -> None:
        """Close what the root reads with."""
        self._source.close()

    def engines(self) -> Stats:
        """Return the engines' counts; also after ``close``."""
        return self._source.stats()

    # --- windows are read

    def _load(self) -> None:
        """Start to read windows while there is memory for them."""
        while len(self._loaded) < self._buffers and not self._has_ended:
            following = next(self._rounds)
            if self._end is not None and following.begin >= self._end:
                self._has_ended = True
                return
            self._loaded.append(self._read(following))

    def _read(self, following: Round) -> _Window:
        """Start to read a window into memory of its own."""
        begun = monotonic_ns()
        rounds = self._sequence.rounds(following.epoch)
        records = rounds.slice(following.number, 0)
        extents = self._source.index.extents(records.view(np.uint64))
        begun = self._counter.located(begun, len(records))
        plan = plan_reads(
            extents,
            self._options,
            alignment=self._source.read_alignment,
            room_bytes=self._buffer_bytes,
        )
        begun = self._counter.planned(begun, plan.totals)
        size = plan.totals.buffer_bytes
        if size > self._buffer_bytes:
            raise RuntimeError(
                f"{self.path}: a window of {len(records)} records needs {size} bytes, and its "
                f"buffer has {self._buffer_bytes}"
            )
        memory = self._spare.pop() if self._spare else _core.Memory(self._buffer_bytes)
        past = self._source.direct_path.engine(size)
        ticket = (past or self._source.engine).submit_plan(plan, memory.address, memory)
        self._counter.submitted(begun)
        addresses = plan.slices + np.uint64(memory.address)
        lengths = np.ascontiguousarray(extents["length"], np.uint64)
        return _Window(
            following, records, addresses, lengths, ticket, memory, size, past is not None
        )

    # --- a block is prepared

    def prepare(self, pending: PendingBlock, alive: Callable[[], None], *, may_read: bool) -> bool:
        """Copy the block's rows out of windows that have arrived; return whether all are there.

        Args:
            pending: the block.
            alive: called between two windows; may raise.
            may_read: there is a slot for the block.

        Raises:
            ValueError: the block does not fit its slot.
            OSError, Error: a window cannot be read.
        """
        self._load()
        if not may_read:
            return False
        block = self._filled
        if block is None or block.number != pending.number:
            block = self._filled = self._begin(pending.number)
        while block.copied < len(block.records):
            window = self._loaded[0]
            pending.awaited = window.ticket
            if not window.ticket.poll():
                return False
            self._copy(block, window)
            alive()
        pending.awaited = None
        return True

    def _begin(self, number: int) -> _Filled:
        """Make room for a block's rows in its slot."""
        schedule, index = self._schedule, self._source.index
        records = schedule.team_records(number, 0)
        lengths = np.ascontiguousarray(index.extents(records)["length"], np.uint64)
        steps = -(-lengths // np.uint64(ROW_ALIGNMENT)) * np.uint64(ROW_ALIGNMENT)
        offsets = np.concatenate(([np.uint64(0)], np.cumsum(steps, dtype=np.uint64)))
        size = int(offsets[-1])
        room = self._window.layout.data_bytes
        if size > room:
            raise ValueError(
                f"{self.path}: the records of block {number} need {size} bytes of window on this "
                f"root, and its part of the memory budget has {room}: take a smaller batch_size, "
                "fewer slots, or a larger memory_bytes_max"
            )
        slot = number % self._window.layout.slots
        self._window.reserve(slot, size)
        address = self._window.fill_addresses[slot]
        first = schedule.start + number * schedule.block_iterations * schedule.batch_size
        return _Filled(number, first, records.view(np.int64), lengths, offsets[:-1], size, address)

    def _copy(self, block: _Filled, window: _Window) -> None:
        """Copy the rows that come from a window, the first one; give up its memory after its last.

        A team that is alone takes the places of a block one after the other, so its rows are in
        the order of windows.
        """
        begun = monotonic_ns()
        first, end = block.first + block.copied, block.first + len(block.records)
        rows = slice(block.copied, block.copied + min(end, window.round.end) - first)
        places = np.searchsorted(window.records, block.records[rows])
        assert np.array_equal(window.records[places], block.records[rows])
        base = np.uint64(block.address + self._window.layout.table_bytes)
        _core.copy_rows(window.addresses[places], block.lengths[rows], block.offsets[rows] + base)
        block.copied = rows.stop
        self._counter.submitted(begun)
        if window.round.end <= end:
            self._loaded.popleft()
            if window.past:
                self._source.direct_path.record(window.size, window.ticket.times)
            window.ticket.close()
            self._spare.append(window.memory)
            self._load()

    def submit(self, pending: PendingBlock) -> Flight:
        """Return a block whose rows are all in its slot."""
        block = self._filled
        assert block is not None and block.number == pending.number
        now = monotonic_ns() / 1e9
        flight = Flight(
            block.number,
            _Copied((now, now)),
            block.address,
            block.offsets,
            block.lengths,
            block.size,
            past=False,
            requests=0,
            depth=1,
        )
        self.flights.append(flight)
        self._filled = None
        return flight

    # --- the end

    def judge(self, flight: Flight, times: tuple[float, float]) -> None:
        """Nothing: blocks are copied, past no page cache."""

    def drop(self, pending: PendingBlock | None) -> None:  # noqa: ARG002 (as of FileSupply)
        """Give up all reads that are under way."""
        for window in self._loaded:
            window.ticket.close()
        self._loaded.clear()
        for flight in self.flights:
            flight.ticket.close()
