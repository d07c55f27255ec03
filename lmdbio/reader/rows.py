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
        plan = plan_reads(extents, options, alignment=source.read_alignment)
        self._memory = _core.Memory(max(1, plan.totals.buffer_bytes))
        self._addresses = plan.slices + np.uint64(self._memory.address)
        self._lengths = np.ascontiguousarray(extents["length"], np.uint64)
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
    """The rows of a block that its root's own windows do not bring (``flight.Arrival``).

    Args:
        arrival: of those that other roots were asked for; None: none was.
        rooms: of these, for each root: rows in ``records``.
        missing: rows that no root was asked for, for these have ended, or are late.
        records, lengths: of all rows of the block.
        targets: the addresses of all rows.
        read: starts to read rows from the file.
        patience_s: how long to wait for other roots.
        counter: counts rows by where they came from.
        path: of the file, for the logger.
    """

    def __init__(
        self,
        arrival: _core.Arrival | None,
        rooms: list[I64],
        missing: I64,
        records: I64,
        lengths: U64,
        targets: U64,
        read: Callable[[I64, U64], FileRows],
        patience_s: float,
        counter: StageCounter,
        path: str,
    ) -> None:
        self._arrival, self._rooms = arrival, rooms
        self._records, self._lengths = records, lengths
        self._targets, self._read = targets, read
        self._counter, self._path = counter, path
        self._deadline_s = monotonic() + patience_s
        self._begun_ns = monotonic_ns()
        self._times = (self._begun_ns / 1e9, self._begun_ns / 1e9)
        self._from_file: list[FileRows] = []
        self._take_from_file(missing)

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
        while self._from_file:
            if not self._from_file[-1].poll(timeout_ms):
                return False
            self._from_file.pop()
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
                self._take_from_file(np.concatenate(rows))

    def _answered(self, answers: npt.NDArray[np.uint8], answer: int) -> list[I64]:
        """Return the rows of all rooms whose answer was this one."""
        return [rows for rows, one in zip(self._rooms, answers, strict=True) if one == answer]

    def _take_from_file(self, rows: I64) -> None:
        if len(rows):
            self._counter.sourced("file", self._lengths[rows])
            self._from_file.append(self._read(self._records[rows], self._targets[rows]))

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
        for each in self._from_file:
            each.ticket.close()
        self._from_file.clear()
        return is_over
