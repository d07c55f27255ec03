"""Filling: the thread of a root that plans, reads and publishes its team's blocks."""

from __future__ import annotations

import contextlib
import errno
import mmap
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from time import monotonic_ns
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.errors import Error
from lmdbio.locate.cursor_walk import Walked
from lmdbio.observe.stats import Rest, Stats, Tally
from lmdbio.planning.reads import PAGE_BYTES
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.speculation import Guess
from lmdbio.reader.root_mail import Links
from lmdbio.reader.roots import Work

__all__ = ["Filler", "ROW_BYTES", "grain", "uncaught"]

#: Bytes of a table row: offset and length, uint64 each.
ROW_BYTES = 16
#: Address space that must be there before the filling thread is started: twice a usual stack.
LAUNCH_BYTES = 16 * 2**20


#: How long to wait at once for one engine where another one may be first.
APART_MS = 2
#: How long a thread that fills no more waits to say goodbye to other roots, and how long the end
#: of a Reader, or of the process, waits for it.
GOODBYE_SECONDS_MAX, END_SECONDS_MAX = 10.0, 1.0


class _Stopped(Exception):
    """The filling ends: somebody aborted, or it was told to."""


class _Left(Exception):
    """The team needs nothing more."""


def grain(engine: _core.Engine) -> int:
    """What reads are aligned to: whole pages, whether the engine asks for it or not.

    The page cache reads nothing less, and values in pages of their own lie next to each other
    only if what follows them in their last page is read as well.
    """
    return max(PAGE_BYTES, engine.alignment)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A guess whose reads are under way, or done."""

    guess: Guess
    plan: _core.Plan
    ticket: _core.Ticket


@dataclass(slots=True)
class _Pending:
    """The block that is read next.

    Attributes:
        extents: of its records; None: not known yet.
        plan: of its reads; None: not made yet.
        ahead: what was read, or is, before it was known where they lie.
    """

    number: int
    extents: _core.Extents | None = None
    plan: _core.Plan | None = None
    ahead: _Ahead | None = None
    is_guessed: bool = False

    def is_read_ahead(self) -> bool:
        """Whether what was guessed, if anything, is in memory."""
        return self.ahead is None or self.ahead.ticket.poll()


class _Flight(NamedTuple):
    """A block whose reads are under way.

    Attributes:
        slices: where each record begins in the slot's data, bytes, uint64.
        bytes: that were planned.
        past: past the page cache.
    """

    number: int
    ticket: _core.Ticket
    address: int
    slices: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    bytes: int
    past: bool


class Filler(threading.Thread):
    """Fills the slots of one root, until its team has left.

        find where the next block's records lie -> wait for a slot, and for the turn -> submit
        -> wait for the reads -> write the table, publish

    All is done by one thread that goes round and does whatever can be done, and rests when
    nothing can: on a futex of the window, or for reads to arrive; where letters of other roots
    are awaited, a millisecond or two at a time.

    It refers to no Reader, so that a forgotten Reader can be collected; and it is no daemon,
    for other ranks may need it when this rank's main thread has ended. It owns ``work``.
    """

    def __init__(
        self,
        window: share.NodeWindow,
        schedule: Schedule,
        team: int,
        work: Work,
        request_bytes_max: int,
        tally: Tally,
        links: Links,
    ) -> None:
        super().__init__(name="lmdbio-filler", daemon=False)
        self._window, self._schedule, self._team, self._work = window, schedule, team, work
        self._gap, self._request = work.choice.gap_bytes_max, request_bytes_max
        self._links = links
        self._quit = threading.Event()
        self._filled = threading.Event()
        self._flying: deque[_Flight] = deque()
        self._resting: tuple[Rest, int] | None = None  # why, and since when
        self.launched_s: float | None = None  # when, by time.monotonic
        self.error: BaseException | None = None
        self._tally = tally

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
            self._give_back()
            raise MemoryError(f"{path}: no memory for a thread that reads") from error
        self.launched_s = time.monotonic()
        try:
            self.start()
        except RuntimeError as error:
            self._give_back()
            raise OSError(errno.EAGAIN, "cannot start a thread that reads", path) from error

    def run(self) -> None:
        try:
            with contextlib.suppress(_Left):
                self._fill()
            self._watch()
        except _Stopped:
            pass
        except BaseException as error:
            self.error = error
            self._window.abort(error)
        finally:
            # Once this is over the window may be gone. Nobody hears of what fails from here on.
            with contextlib.suppress(Exception):
                has_failed = True
                has_failed = self._tell_failure()
            self._filled.set()
            with contextlib.suppress(Exception):
                if not has_failed:
                    self._say_goodbye()
            self._give_back()

    def _give_back(self) -> None:
        self._links.close()
        self._work.close()

    def engines(self) -> Stats:
        """What the engines counted; also after the end."""
        return self._work.stats()

    def stop(self) -> None:
        """Ends the filling soon, also when others would need more."""
        self._quit.set()

    @property
    def is_filling(self) -> bool:
        """Whether it still may write to the window."""
        return self.is_alive() and not self._filled.is_set()

    def finish(self) -> None:
        """Waits until it fills no more, which must be certain, and not long for its end."""
        while self.is_filling:
            self._filled.wait(_core.SLICE_MS / 1000)
        if self.is_alive():
            self.join(END_SECONDS_MAX)

    # --- one step after another

    def _fill(self) -> None:
        """Keeps reads in flight for as many blocks as there are free slots."""
        pending = self._next(0)
        try:
            while pending is not None or self._flying:
                self._alive()
                self._links.end_turn()
                if self._land():
                    continue
                if pending is not None and self._may_submit(pending):
                    self._end_rest()
                    self._submit(pending)
                    pending = self._next(pending.number + 1)
                    if pending is None:
                        self._links.leave_turns()
                else:
                    if pending is None:
                        self._links.give_turn()
                    self._rest(pending)
        finally:
            if pending is not None and pending.ahead is not None:
                pending.ahead.ticket.close()
            for flight in self._flying:
                flight.ticket.close()
            self._links.drop_turn()

    def _next(self, number: int) -> _Pending | None:
        blocks = self._schedule.blocks
        return None if blocks is not None and number >= blocks else _Pending(number)

    def _alive(self) -> None:
        """Looks whether to go on, and into the mail."""
        if self._quit.is_set():
            raise _Stopped
        if not threading.main_thread().is_alive():
            _retire(self._window)
        self._links.read()
        if self._links.failure is not None:
            self._window.abort_for(*self._links.failure)
        try:
            self._window.check()
        except Error as error:
            raise _Stopped from error

    def _between(self) -> None:
        """While records are sought, which may take long."""
        self._alive()
        self._land()

    def _may_submit(self, pending: _Pending) -> bool:
        """Whether all is there to read a block: a plan, a free slot, and the turn."""
        may_read = self._slot_is_free(pending.number, 0) and self._links.may_read(pending.number)
        if self._links.relay is not None:
            if may_read:
                self._guess(pending)
            self._seek(pending, may_read)
        is_found = self._find(pending)
        if not may_read:
            self._links.give_turn()
        return is_found and may_read and pending.is_read_ahead()

    def _find(self, pending: _Pending) -> bool:
        """Finds where the block's records lie, if that can be known by now."""
        if pending.extents is None:
            begun = monotonic_ns()
            pending.extents = self._locate(pending.number)
            if pending.extents is None:
                return False
            self._tally.located(begun, len(pending.extents))
        if pending.plan is None and pending.ahead is None:
            begun = monotonic_ns()
            pending.plan = self._plan(pending.number, pending.extents)
            self._tally.planned(begun, pending.plan.totals)
        return True

    def _locate(self, number: int) -> _core.Extents | None:
        relay, source = self._links.relay, self._work.source
        if relay is not None:
            return relay.found(number, self._between)
        records = self._schedule.team_records(number, self._team)
        if isinstance(source, Walked):
            return source.extents(records, self._between)
        return source.extents(records)

    def _plan(self, number: int, extents: _core.Extents) -> _core.Plan:
        """The reads of a block."""
        plan, needed = self._fit(extents, self._window.layout.data_bytes)
        if plan is not None:
            return plan
        raise ValueError(
            f"{self._work.source.path}: the records of block {number} need {needed} bytes of "
            f"window on this root, and its part of the memory budget has "
            f"{self._window.layout.data_bytes}: take a smaller batch_size, fewer slots, or a "
            "larger memory_bytes_max"
        )

    def _fit(self, extents: _core.Extents, room: int) -> tuple[_core.Plan | None, int]:
        """The reads of some records, in so many bytes; None, and how many it takes at least."""
        for gap in (self._gap, self._gap // 4, self._gap // 16, 0):
            plan = _core.make_plan(
                extents,
                gap_bytes_max=gap,
                request_bytes_max=self._request,
                alignment=grain(self._work.engine),
            )
            if plan.totals.buffer_bytes <= room:
                return plan, plan.totals.buffer_bytes
        return None, plan.totals.buffer_bytes

    def _slot_is_free(self, block: int, timeout_ms: int) -> bool:
        """Whether the slot of ``block`` may be filled."""
        released = max(0, block - self._window.layout.slots + 1)
        ready = self._window.control.wait_released(
            self._window.root, self._window.team, released, timeout_ms
        )
        if ready is None:
            raise _Left
        return ready

    def _submit(self, pending: _Pending) -> None:
        """Starts the reads of a block."""
        assert pending.extents is not None
        base, places, ahead, plan = 0, None, pending.ahead, pending.plan
        if ahead is not None:
            base = ahead.plan.totals.buffer_bytes
            places = ahead.guess.places(pending.extents, ahead.plan.slices)
            room = self._window.layout.data_bytes - base
            plan, _ = self._fit(pending.extents[places < 0], room)
            if plan is None:  # beside what was guessed there is no room for the rest
                base, places = 0, None
        if plan is None:
            plan = self._plan(pending.number, pending.extents)
        size = base + plan.totals.buffer_bytes
        slices = plan.slices
        if places is not None:
            slices = places.astype(np.uint64)
            slices[places < 0] = plan.slices + np.uint64(base)
        lengths = np.ascontiguousarray(pending.extents["length"], np.uint64)
        if ahead is not None:
            hits = 0 if places is None else int((places >= 0).sum())
            self._tally.guessed(ahead.plan.totals.buffer_bytes, hits)
            self._tally.planned(monotonic_ns(), plan.totals)
        address = self._slot(pending.number, size)
        past = self._work.bypass.engine(plan.totals.buffer_bytes)
        into = address + self._window.layout.table_bytes + base
        begun = monotonic_ns()
        engine = past or self._work.engine
        ticket = engine.submit_plan(plan, into, self._window)
        # From here on it is among those that are closed whatever happens.
        self._flying.append(
            _Flight(pending.number, ticket, address, slices, lengths, size, past is not None)
        )
        self._tally.submitted(begun)
        if ahead is not None:
            ahead.ticket.close()
            pending.ahead = None
        self._links.read_by(pending.number, ticket, plan.totals.requests, engine.depth)

    def _slot(self, block: int, size: int) -> int:
        """Address of a block's slot, backed by memory for ``size`` bytes of data."""
        slot = block % self._window.layout.slots
        self._window.reserve(slot, size)
        return self._window.fill_addresses[slot]

    def _land(self) -> bool:
        """Publishes the oldest block if its reads have arrived."""
        if not self._flying or not self._flying[0].ticket.poll():
            return False
        self._end_rest()
        begun = monotonic_ns()
        flight = self._flying.popleft()
        times = flight.ticket.times
        self._links.end_turn()
        self._links.landed(times[1] - times[0])
        flight.ticket.close()
        self._work.source.guard()
        self._write_table(flight)
        self._window.control.publish(self._window.root, flight.number + 1)
        self._tally.filled(begun, times, flight.bytes)
        if flight.past:
            self._work.bypass.took(flight.bytes, times)
        return True

    def _write_table(self, flight: _Flight) -> None:
        rows = len(flight.lengths)
        if not rows:
            return
        memory = _core.lend(flight.address, rows * ROW_BYTES)
        table = np.frombuffer(memory, np.uint64).reshape(rows, 2)
        table[:, 0] = flight.slices
        table[:, 1] = flight.lengths

    # --- guessing, and seeking with the others

    def _guess(self, pending: _Pending) -> None:
        """Starts to read where the block's records probably lie."""
        if self._links.speculation is None or pending.is_guessed or pending.extents is not None:
            return
        pending.is_guessed = True
        runs = [run for run in self._schedule.course(pending.number) if run.team == self._team]
        guess = self._links.speculation.guess(runs, self._schedule.start)
        if guess is None:
            return
        plan = _core.make_plan(
            guess.ranges,
            gap_bytes_max=0,
            request_bytes_max=self._request,
            alignment=grain(self._work.engine),
        )
        if plan.totals.buffer_bytes > self._window.layout.data_bytes:
            return
        address = self._slot(pending.number, plan.totals.buffer_bytes)
        into = address + self._window.layout.table_bytes
        ticket = self._work.engine.submit_plan(plan, into, self._window)
        pending.ahead = _Ahead(guess, plan, ticket)

    def _seek(self, pending: _Pending, may_read: bool) -> None:
        """Seeks with the other roots; not before what was guessed is in memory."""
        relay, speculation = self._links.relay, self._links.speculation
        assert relay is not None
        is_due = may_read and pending.is_read_ahead()
        begun, before = monotonic_ns(), relay.sought
        is_found = self._links.seek(
            pending.number,
            is_due=is_due,
            is_found=pending.extents is not None,
            alive=self._between,
        )
        if relay.sought != before:
            self._tally.located(begun, 0)
        if is_found and pending.extents is None and speculation is not None:
            for first, extents in relay.peek(pending.number):
                speculation.learn(first, extents)

    # --- the end

    def _tell_failure(self) -> bool:
        """Tells other nodes that somebody on this one has failed, if so."""
        failure = self._window.aborted()
        if failure is not None:
            self._links.tell(failure)
        return failure is not None

    def _watch(self) -> None:
        """When nothing more is read: hears and tells of failures while others still read."""
        while self._links.watches:
            self._alive()
            self._links.leave(self._alive)
            if self._window.control.wait_end(left=True, timeout_ms=self._links.slice_ms()):
                return

    def _say_goodbye(self) -> None:
        """Lets other roots know, by token and cursor, that they need not wait for this one.

        Not for ever: they do without, as they do where a letter is lost.
        """
        deadline_s = time.monotonic() + GOODBYE_SECONDS_MAX
        while not self._quit.is_set() and time.monotonic() < deadline_s:
            self._links.read()
            if self._links.leave(lambda: None):
                return
            time.sleep(self._links.slice_ms() / 1000)
            if not threading.main_thread().is_alive():  # the process ends
                deadline_s = min(deadline_s, time.monotonic() + END_SECONDS_MAX)
        self._links.give_turn(gives_up=True)  # to anybody, for nobody has asked for it

    # --- resting

    def _rest(self, pending: _Pending | None) -> None:
        """Waits for whatever may come next, not for long."""
        timeout_ms = self._links.slice_ms()
        if pending is not None and pending.ahead is not None and not pending.is_read_ahead():
            self._begin_rest("reads")
            pending.ahead.ticket.poll(timeout_ms)
        elif self._links.in_turn:
            self._begin_rest("reads")
            self._await_begun(timeout_ms)
        elif self._flying:
            self._begin_rest("reads")
            self._flying[0].ticket.poll(timeout_ms)
        elif pending is not None and not self._slot_is_free(pending.number, 0):
            self._begin_rest("idle")
            self._slot_is_free(pending.number, timeout_ms)
        elif pending is not None and (
            not self._links.may_read(pending.number) or self._links.awaits_cursor
        ):
            self._begin_rest("turn")
            time.sleep(timeout_ms / 1000)

    def _await_begun(self, timeout_ms: int) -> None:
        """Waits until a turn's requests have begun, or the oldest block has landed."""
        first, last = self._flying[0], self._flying[-1]
        if first is last:
            self._links.end_turn(timeout_ms)
        elif first.past == last.past:
            self._links.end_turn(timeout_ms, first.ticket)
        else:  # two engines: one cannot be waited for together with the other
            first.ticket.poll(min(timeout_ms, APART_MS))

    def _begin_rest(self, why: Rest) -> None:
        if self._resting is None or self._resting[0] != why:
            self._end_rest()
            self._resting = why, monotonic_ns()

    def _end_rest(self) -> None:
        if self._resting is not None:
            self._tally.rested(*self._resting)
            self._resting = None


# --- the end of a process ----------------------------------------------------------------


def uncaught() -> BaseException | None:
    """The exception that ended the main thread, if one did."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def _retire(window: share.NodeWindow) -> None:
    """Says to the node that this rank's main thread has ended. Never blocks."""
    error = uncaught()
    if error is not None:
        window.abort(error)
    window.leave((), closes=False)
    window.keep()
