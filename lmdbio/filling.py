"""Filling: the thread of a root that plans, reads and publishes its team's blocks."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
from collections import deque
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.assignment import Schedule
from lmdbio.bypass import Bypass
from lmdbio.choice import Choice
from lmdbio.errors import Error
from lmdbio.locate import Source
from lmdbio.mode import Mode
from lmdbio.plan import PAGE_BYTES
from lmdbio.stats import Stats, Tally

__all__ = ["ROW_BYTES", "Filler", "State", "Work", "grain", "uncaught"]

#: Bytes of a table row: offset and length, uint64 each.
ROW_BYTES = 16
#: Address space that must be there before the filling thread is started: twice a usual stack.
LAUNCH_BYTES = 16 * 2**20


class _Stopped(Exception):
    """The filling ends: nobody needs more, or somebody aborted."""


@dataclass(frozen=True, slots=True)
class State:
    """What roots compare of what they opened."""

    path: str
    inode: int
    txnid: int
    count: int


@dataclass(slots=True)
class Work:
    """What a root reads with, and from."""

    source: Source
    engine: _core.Engine
    bypass: Bypass
    mode: Mode
    choice: Choice

    def state(self) -> State:
        inode = os.fstat(self.engine.fd).st_ino
        return State(self.source.path, inode, self.source.meta.txnid, self.source.count)

    def stats(self) -> Stats:
        """What the engines counted; also after ``close``."""
        pages = self.source.tally()
        return replace(
            Stats.of(self.engine.tally() + self.bypass.tally()),
            page_requests=pages.requests,
            page_bytes=pages.bytes,
        )

    def stage_bytes(self) -> int:
        """What reads that pass by the page cache need of memory, beside the window."""
        engine = self.bypass.engine()
        return 0 if engine is None else engine.depth * _core.Memory.HUGE_PAGE

    def end_bypass(self) -> None:
        self.bypass.close()
        self.mode = replace(self.mode, engine=self.engine.kind)

    def close(self) -> None:
        self.bypass.close()
        self.engine.close()
        self.source.close()


def grain(engine: _core.Engine) -> int:
    """What reads are aligned to: whole pages, whether the engine asks for it or not.

    The page cache reads nothing less, and values in pages of their own lie next to each other
    only if what follows them in their last page is read as well.
    """
    return max(PAGE_BYTES, engine.alignment)


@dataclass(frozen=True, slots=True)
class _Block:
    """One planned block: its reads, and the table of its rows."""

    plan: _core.Plan
    lengths: npt.NDArray[np.uint64]


class _Flight(NamedTuple):
    """A block whose reads are under way."""

    ticket: _core.Ticket
    address: int
    block: _Block
    past: bool


class Filler(threading.Thread):
    """Fills the slots of one root, until its team has left.

    It refers to no Reader, so that a forgotten Reader can be collected; and it is no daemon,
    for other ranks may need it when this rank's main thread has ended. It owns ``work``.
    """

    def __init__(
        self,
        seat: share.Seat,
        schedule: Schedule,
        team: int,
        work: Work,
        request_bytes_max: int,
        tally: Tally,
    ) -> None:
        super().__init__(name="lmdbio-filler", daemon=False)
        self._seat, self._schedule, self._team, self._work = seat, schedule, team, work
        self._gap, self._request = work.choice.gap_bytes_max, request_bytes_max
        self._quit = threading.Event()
        self._pid = os.getpid()
        self.error: BaseException | None = None
        self._blocks, self._tally = 0, tally

    def launch(self) -> None:
        """Starts the thread.

        Room for its stack and its first steps is looked for before: a thread that finds none
        ends without a word, and ``start`` would wait for it for ever.

        Raises:
            MemoryError, OSError: there is no room, or no thread to be had.
        """
        path = self._work.source.path
        try:
            with mmap.mmap(-1, LAUNCH_BYTES):
                pass
        except OSError as error:
            self._work.close()
            raise MemoryError(f"{path}: no memory for a thread that reads") from error
        try:
            self.start()
        except RuntimeError as error:
            self._work.close()
            raise OSError(errno.EAGAIN, "cannot start a thread that reads", path) from error

    def run(self) -> None:
        try:
            self._fill()
        except _Stopped:
            pass
        except BaseException as error:
            self.error = error
            self._seat.abort(error)
        finally:
            self._work.close()

    def engines(self) -> Stats:
        """What the engines counted; also after the end."""
        return self._work.stats()

    def stop(self) -> None:
        """Ends the filling soon, also when others would need more."""
        self._quit.set()

    def finish(self) -> None:
        """Waits for the end, which must be certain."""
        while self.is_alive():
            self.join(_core.SLICE_MS / 1000)

    def _alive(self) -> None:
        if self._quit.is_set():
            raise _Stopped
        if not threading.main_thread().is_alive():
            _retire(self._seat)
        try:
            self._seat.check()
        except Error as error:
            raise _Stopped from error

    def _plan(self, block: int) -> _Block | None:
        blocks = self._schedule.blocks
        if blocks is not None and block >= blocks:
            return None
        begun = monotonic_ns()
        extents = self._work.source.extents(self._schedule.team_records(block, self._team))
        begun = self._tally.located(begun, len(extents))
        room = self._seat.layout.data_bytes
        for gap in (self._gap, self._gap // 4, self._gap // 16, 0):
            plan = _core.make_plan(
                extents,
                gap_bytes_max=gap,
                request_bytes_max=self._request,
                alignment=grain(self._work.engine),
            )
            if plan.totals.buffer_bytes <= room:
                self._tally.planned(begun, plan.totals)
                return _Block(plan, np.ascontiguousarray(extents["length"], np.uint64))
        raise RuntimeError(
            f"block {block} needs {plan.totals.buffer_bytes} bytes, more than the {room} that "
            "were proven to be enough"
        )

    def _slot_is_free(self, block: int, *, wait: bool) -> bool:
        """Whether the slot of ``block`` may be filled; with ``wait``, waits until it may."""
        released = max(0, block - self._seat.layout.slots + 1)
        begun = monotonic_ns()
        while True:
            ready = self._seat.control.wait_released(
                self._seat.root, self._seat.team, released, _core.SLICE_MS if wait else 0
            )
            if ready is None:
                raise _Stopped
            self._alive()
            if ready or not wait:
                if wait:
                    self._tally.idled(begun)
                return ready

    def _fill(self) -> None:
        """Keeps reads in flight for as many blocks as there are free slots."""
        planned, block = self._plan(0), 0
        flying: deque[_Flight] = deque()
        try:
            while planned is not None or flying:
                if planned is not None and self._slot_is_free(block, wait=not flying):
                    address = self._seat.fill_addresses[block % self._seat.layout.slots]
                    into = address + self._seat.layout.table_bytes
                    past = self._work.bypass.engine(planned.plan.totals.buffer_bytes)
                    engine = past or self._work.engine
                    begun = monotonic_ns()
                    ticket = engine.submit_plan(planned.plan, into, self._seat)
                    self._tally.submitted(begun)
                    flying.append(_Flight(ticket, address, planned, past is not None))
                    block += 1
                    planned = self._plan(block)
                else:
                    self._land(flying[0])
                    flying.popleft()
        finally:
            for flight in flying:
                flight.ticket.close()

    def _land(self, flight: _Flight) -> None:
        """Waits for the oldest block's reads and publishes it."""
        begun = monotonic_ns()
        flight.ticket.wait(self._alive)
        times = flight.ticket.times
        flight.ticket.close()
        self._work.source.guard()
        self._write_table(flight.address, flight.block)
        self._seat.control.publish(self._seat.root, self._blocks + 1)
        self._blocks += 1
        self._tally.filled(begun, times, flight.block.plan.totals.buffer_bytes)
        if flight.past:
            self._work.bypass.took(flight.block.plan.totals.buffer_bytes, times)

    def _write_table(self, address: int, planned: _Block) -> None:
        rows = len(planned.lengths)
        if not rows:
            return
        table = np.frombuffer(_core.lend(address, rows * ROW_BYTES), np.uint64).reshape(rows, 2)
        table[:, 0] = planned.plan.slices
        table[:, 1] = planned.lengths


# --- the end of a process ----------------------------------------------------------------


def uncaught() -> BaseException | None:
    """The exception that ended the main thread, if one did."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def _retire(seat: share.Seat) -> None:
    """Says to the node that this rank's main thread has ended. Never blocks."""
    error = uncaught()
    if error is not None:
        seat.abort(error)
    seat.leave((), closes=False)
    seat.keep()
