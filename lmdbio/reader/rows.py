"""Rows of a block on their way into its slot: from memory, other roots, the file where need be.

    of own memory -> copied
    asked for -> arrived                                           at their place in the slot
              -> late, or the root has ended -> read from the file -> copied to their place

No root waits for another one for ever: it reads for itself what does not come in time. That costs
time and changes no byte.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, monotonic_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.observe import tracing
from lmdbio.observe.stats import Source, StageCounter
from lmdbio.placement.sources import BlockSources
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.reader.roots import RootSource
from lmdbio.reading.guarded import GuardedReads
from lmdbio.system.log import log

__all__ = ["END_MS_MAX", "Assembly", "FileRows", "Rows"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

#: Gaps that are read over take memory: no more than so many times the records' bytes.
ROOM_FACTOR = 2
#: How long messages that have begun to come may take at the end, ms.
END_MS_MAX = 2000


@dataclass(slots=True)
class Assembly:
    """A block whose rows are being brought together.

    Attributes:
        number: number of the block.
        sources: sources of its rows.
        extents: places of the rows in the file.
        laid: rows of the block, in the slot's data.
        address: address of the slot.
        data: address of the slot's data.
        own: runs of rows (of ``sources``) that this root brings itself, and has not yet.
        counter: counter of the Reader.
        is_there: whether roots have had what they bring since before an epoch began; else it is
            counted as read from the file.
        epochs: number of each epoch, and the first row of the block behind it.
        passing: rows of the block that were read for a round alone: they come from the file,
            whichever root brings them; None: there are none.
        copies: copies of the rows that this root has brought.
        arrival: arrival of the rows that other roots were asked for; None: nothing.
        rooms: rows of each answer.
        asked: the root of each.
        missing: rows that their root was not asked for.
        reading: reads of the rows that no root brings; None: there are none.
    """

    number: int
    sources: BlockSources
    extents: _core.Extents
    laid: _core.LaidOut
    address: int
    data: int
    own: deque[int]
    counter: StageCounter
    is_there: Callable[[int], bool]
    epochs: list[tuple[int, int]]
    passing: Flags | None
    copies: list[_core.Copying] = field(default_factory=list)
    arrival: _core.Arrival | None = None
    rooms: list[I64] = field(default_factory=list)
    asked: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    missing: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    reading: FileRows | None = None

    def rows(self, run: int) -> I64:
        """Return the rows of a run."""
        return self.sources.rows(run)

    def count(self, source: Source, rows: I64) -> None:
        """Count rows by where they come from, and by the epoch of their use."""
        if self.passing is not None and source != "file":
            passes = self.passing[rows]
            self.count("file", rows[passes])
            rows = rows[~passes]
        first = 0
        for epoch, end in self.epochs:
            some = rows
            if len(self.epochs) > 1:
                some = rows[(rows >= first) & (rows < end)]
            if len(some):
                origin: Source = source if self.is_there(epoch) else "file"
                size = _core.rows_room(self.laid.lengths[some])
                self.counter.sourced(origin, len(some), size, epoch)
            first = end


class FileRows:
    """Rows that are read from the file, into memory of their own and from there to their places.

    Args:
        source: the root's open data set and engines; borrowed.
        options: options of the plan.
        extents: extents of the rows, shape (n,).
        targets: addresses of the rows, shape (n,).
        pool: gives memory that comes back; None: it is made anew.
        may_bypass: whether they may be read past the page cache, and nobody waits for them yet.

    Attributes:
        totals: totals of the plan.
        reads: reads that are under way.
    """

    def __init__(
        self,
        source: RootSource,
        options: PlanOptions,
        extents: _core.Extents,
        targets: U64,
        pool: _core.MemoryPool | None = None,
        *,
        may_bypass: bool = False,
    ) -> None:
        order = np.argsort(extents["offset"], kind="stable")
        extents, self._targets = extents[order], targets[order]
        self._lengths = np.ascontiguousarray(extents["length"], np.uint64)
        room = int(ROOM_FACTOR * self._lengths.sum())
        plan = plan_reads(extents, options, alignment=source.read_alignment, room_bytes=room)
        self.totals, size = plan.totals, plan.totals.buffer_bytes
        memory = (_core.Memory if pool is None else pool.take)(max(1, size))
        self._addresses, self._memory = plan.slices + np.uint64(memory.address), memory

        def submit(engine: _core.Engine) -> _core.Ticket:
            return engine.submit_plan(plan, memory.address, memory)

        #: Ranks wait for rows that are read by themselves, so the guard is not put off.
        self._guard_ms = 0 if may_bypass else 1
        if may_bypass:
            self.reads = GuardedReads.begin(source, size, submit)
        else:
            self.reads = GuardedReads(source, submit(source.engine), size, is_direct=False)

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether all rows are in their places, after ``timeout_ms`` at most.

        Raises:
            OSError, Error: the file cannot be read, or has changed.
        """
        if not self.reads.ticket.poll(timeout_ms) or not self.reads.poll(self._guard_ms):
            return False
        _core.copy_rows(self._addresses, self._lengths, self._targets)
        return True

    def close(self) -> None:
        """Give up what is under way."""
        self.reads.close()


class Rows:
    """The rows of a block, on their way from everywhere (``flow.Arrival``).

    Args:
        block: rows of the block, and where each is to come from.
        read: starts to read rows from the file, by their extents and addresses.
        timeout_s: longest wait for other roots without progress, seconds.
        pace: returns how far this root has come, where the others are hardly ahead of it.
        signs: returns how often each root has told that it reads.
        path: path of the file, for the logger.
    """

    def __init__(
        self,
        block: Assembly,
        read: Callable[[_core.Extents, U64], FileRows],
        timeout_s: float,
        pace: Callable[[], object],
        signs: Callable[[], npt.NDArray[np.uint32]],
        path: str,
    ) -> None:
        self._block, self._read, self._path = block, read, path
        self._timeout_s, self._deadline_s = timeout_s, monotonic() + timeout_s
        self._pace, self._signs = pace, signs
        self._reached = self._reach()
        begun = monotonic_ns() / 1e9
        self._times = begun, begun
        self._to_read: list[I64] = [block.missing] if len(block.missing) else []  # from the file
        self._reading = block.reading

    @property
    def times(self) -> tuple[float, float]:
        """When the rows were awaited and had arrived, by ``time.monotonic``, seconds."""
        return self._times

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether all rows are in the slot, after ``timeout_ms`` at most."""
        block = self._block
        if block.arrival is not None:
            if not block.arrival.poll(timeout_ms):
                if not self._goes_on() and monotonic() > self._deadline_s:
                    block.arrival.give_up()
                return False
            self._settle(block.arrival)
        while block.copies:
            if not block.copies[-1].poll(timeout_ms):
                return False
            block.copies.pop()
        if not self._read_missing(timeout_ms):
            return False
        self._times = self._times[0], monotonic_ns() / 1e9
        return True

    def _reach(self) -> tuple[int, int, object]:
        """Return how far rows have come, as a value that differs whenever something has.

        It is of rooms that nobody has filled yet, of how often their roots have told that they
        read, and of what this root has done.
        """
        arrival = self._block.arrival
        if arrival is None:
            return 0, 0, self._pace()
        awaited = self._block.asked[arrival.answers() == arrival.AWAITED]
        return len(awaited), int(self._signs()[awaited].sum()), self._pace()

    def _goes_on(self) -> bool:
        """Return whether something has since it was looked at last; then the clock starts anew.

        A block may have rows of many windows, which other roots read no sooner than they can.
        """
        before, self._reached = self._reached, self._reach()
        if self._reached == before:
            return False
        self._deadline_s = monotonic() + self._timeout_s
        return True

    def _settle(self, arrival: _core.Arrival) -> None:
        """Read from the file what other roots have not sent."""
        answers = arrival.answers()
        arrival.close()
        self._block.arrival = None
        came = self._answered(answers, arrival.ARRIVED)
        for some in came:
            self._block.count("peer", some)
        times = self._times[0], monotonic()
        tracing.note_flight("rows of others", times, {"records": sum(map(len, came))})
        for answer, why in ((arrival.LATE, "late"), (arrival.GONE, "gone")):
            rows = self._answered(answers, answer)
            if rows:
                self._block.counter.count(**{f"{why}_records": sum(map(len, rows))})
                log(f"{self._path}: rows of roots that are {why} are read from the file")
                self._to_read.append(np.concatenate(rows))

    def _answered(self, answers: npt.NDArray[np.uint8], answer: int) -> list[I64]:
        """Return the rows of all rooms whose answer was this one."""
        return [
            rows for rows, one in zip(self._block.rooms, answers, strict=True) if one == answer
        ]

    def _read_missing(self, timeout_ms: int) -> bool:
        """Read rows from the file; return whether all are there.

        Of the oldest block alone, which is the one that is polled: they take memory besides.
        """
        while self._reading is not None or self._to_read:
            if self._reading is None:
                rows, block = self._to_read.pop(), self._block
                block.count("file", rows)
                targets = block.laid.offsets[rows] + np.uint64(block.data)
                self._reading = self._read(block.extents[rows], targets)
            if not self._reading.poll(timeout_ms):
                return False
            self._reading = None
        return True

    def poll_begun(self, timeout_ms: int = 0, older: Any = None) -> bool:  # noqa: ARG002
        """Return True: a turn does not last until messages have come."""
        return True

    def left(self) -> float:
        """Return 0: what is awaited keeps the storage from nothing."""
        return 0.0

    def close(self) -> bool:
        """Give up what is awaited; return whether nothing comes into the slot any more."""
        arrival, self._block.arrival = self._block.arrival, None
        is_over = arrival is None or arrival.close(END_MS_MAX)
        self._block.copies.clear()
        self._to_read.clear()
        if self._reading is not None:
            self._reading.close()
            self._reading = None
        return is_over
