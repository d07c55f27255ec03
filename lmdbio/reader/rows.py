"""Rows of a block on their way into its slot: from other roots, and from the file where need be.

    asked for -> arrived                                           at their place in the slot
              -> late, or the root has ended -> read from the file -> copied to their place

No root waits for another one for ever: it reads for itself what does not come in time. That costs
time and changes no byte.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, monotonic_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.observe.stats import Missed, StageCounter
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.reader.roots import RootSource
from lmdbio.system.log import tell

__all__ = ["END_MS_MAX", "FileRows", "Rows"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

#: Gaps that are read over take memory: no more than so many times the records' bytes.
ROOM_FACTOR = 2
#: How long messages that have begun to come may take at the end, ms.
END_MS_MAX = 2000


class FileRows:
    """Rows that are read from the file, into memory of their own and from there to their places.

    Args:
        source: what the root reads with, and from.
        options: of the plan.
        records: shape (n,).
        targets: addresses of the rows, shape (n,).
    """

    def __init__(
        self, source: RootSource, options: PlanOptions, records: I64, targets: U64
    ) -> None:
        order = np.argsort(records)
        extents = source.index.extents(records[order].view(np.uint64))
        self._lengths = np.ascontiguousarray(extents["length"], np.uint64)
        room = int(ROOM_FACTOR * self._lengths.sum())
        plan = plan_reads(extents, options, alignment=source.read_alignment, room_bytes=room)
        self._memory = _core.Memory(max(1, plan.totals.buffer_bytes))
        self._addresses = plan.slices + np.uint64(self._memory.address)
        self._targets, self._guard = targets[order], source.index.guard
        self.ticket = source.engine.submit_plan(plan, self._memory.address, self._memory)

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether all rows are in their places."""
        if not self.ticket.poll(timeout_ms):
            return False
        self._guard()
        _core.copy_rows(self._addresses, self._lengths, self._targets)
        return True


class Rows:
    """The rows of a block, on their way from everywhere (``flight.Arrival``).

    Args:
        copies: of the others, out of these windows.
        arrival: of those that other roots were asked for; None: none was.
        rooms: of these, for each root: rows in ``records``.
        missing: rows that no root was asked for, for these have ended, or are late.
        records, laid: of all rows of the block.
        data: address of the slot's data.
        read: starts to read rows from the file.
        patience_s: how long to wait for other roots.
        counter: counts rows by where they came from.
        path: of the file, for the logger.
    """

    def __init__(
        self,
        copies: list[_core.Copying],
        arrival: _core.Arrival | None,
        rooms: list[I64],
        missing: I64,
        records: I64,
        laid: _core.LaidOut,
        data: int,
        read: Callable[[I64, U64], FileRows],
        patience_s: float,
        counter: StageCounter,
        path: str,
    ) -> None:
        self._copies, self._arrival, self._rooms = copies, arrival, rooms
        self._records, self._laid = records, laid
        self._data, self._read = data, read
        self._counter, self._path = counter, path
        self._deadline_s = monotonic() + patience_s
        self._begun_ns = monotonic_ns()
        self._times = (self._begun_ns / 1e9, self._begun_ns / 1e9)
        self._to_read: list[I64] = [missing] if len(missing) else []  # from the file
        self._reading: FileRows | None = None

    @property
    def times(self) -> tuple[float, float]:
        """When the rows were awaited and had arrived, by ``time.monotonic``, seconds."""
        return self._times

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether all rows are in the slot, after ``timeout_ms`` at most."""
        if self._arrival is not None:
            if not self._arrival.poll(timeout_ms):
                if monotonic() > self._deadline_s:
                    self._arrival.give_up()
                return False
            self._settle(self._arrival)
        while self._copies:
            if not self._copies[-1].poll(timeout_ms):
                return False
            self._copies.pop()
        if not self._read_missing(timeout_ms):
            return False
        self._times = self._times[0], monotonic_ns() / 1e9
        return True

    def _settle(self, arrival: _core.Arrival) -> None:
        """Read from the file what other roots have not sent."""
        answers = arrival.answers()
        arrival.close()
        self._arrival = None
        came = self._answered(answers, arrival.ARRIVED)
        self._counter.came(self._begun_ns, sum(map(len, came)))
        kinds: tuple[tuple[int, Missed], ...] = ((arrival.LATE, "late"), (arrival.GONE, "gone"))
        for answer, why in kinds:
            rows = self._answered(answers, answer)
            if rows:
                self._counter.missed(why, sum(map(len, rows)))
                tell(f"{self._path}: rows of roots that are {why} are read from the file")
                self._to_read.append(np.concatenate(rows))

    def _answered(self, answers: npt.NDArray[np.uint8], answer: int) -> list[I64]:
        """Return the rows of all rooms whose answer was this one."""
        return [rows for rows, one in zip(self._rooms, answers, strict=True) if one == answer]

    def _read_missing(self, timeout_ms: int) -> bool:
        """Read rows from the file; return whether all are there.

        Of the oldest block alone, which is the one that is polled: they take memory besides.
        """
        while self._reading is not None or self._to_read:
            if self._reading is None:
                rows = self._to_read.pop()
                size = _core.rows_room(self._laid.lengths[rows])
                self._counter.sourced("file", len(rows), size)
                targets = self._laid.offsets[rows] + np.uint64(self._data)
                self._reading = self._read(self._records[rows], targets)
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
        is_over = self._arrival is None or self._arrival.close(END_MS_MAX)
        self._arrival = None
        self._copies.clear()
        self._to_read.clear()
        if self._reading is not None:
            self._reading.ticket.close()
            self._reading = None
        return is_over
