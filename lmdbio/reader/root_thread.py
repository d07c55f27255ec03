"""The thread of a root: has its team's blocks read, and publishes them."""

from __future__ import annotations

import contextlib
import errno
import mmap
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from time import monotonic_ns
from typing import Any

from lmdbio import _core, share
from lmdbio.errors import Error
from lmdbio.observe import tracing
from lmdbio.observe.stats import Stage, StageCounter, Stats
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.root_mail import RootMail
from lmdbio.reader.supply import PendingBlock, Supply
from lmdbio.system.log import log

__all__ = ["GOODBYE_SECONDS_MAX", "RootThread", "carry", "launch", "uncaught"]

#: Address space that must be free before the thread is started: twice a usual stack.
LAUNCH_BYTES = 16 * 2**20
#: How long it may take to begin, where that was interrupted.
BEGIN_SECONDS_MAX = 2.0
#: How long the thread waits at once for one engine where another one may be first, ms.
APART_MS = 2
#: How long a thread that has stopped filling waits to say goodbye to other roots, and how long
#: the end of a Reader, or of the process, waits for it.
GOODBYE_SECONDS_MAX, END_SECONDS_MAX = 10.0, 1.0
#: How long it waits at once meanwhile.
GOODBYE_NAP_MS = 5


class _StoppedError(Exception):
    """The thread is to end: a rank aborted, or the Reader has told it to stop."""


class _LeftError(Exception):
    """All ranks of the team have left: they need no more blocks."""


class RootThread(threading.Thread):
    """Fills the slots of one root, until its team has left.

        prepare the next block -> wait for a free slot, and for the turn -> submit its reads
        -> wait for them -> write the table, publish

    This one thread goes round and does whatever can be done. It rests when nothing can: on a
    futex of the window, or until reads arrive; a moment at a time where letters may come.

    It refers to no Reader, so that Python can collect a forgotten Reader; and it is no daemon,
    for other ranks may need it when this rank's main thread has ended. It owns ``supply`` and
    ``mail``.

    Args:
        window: window of its node.
        schedule: says how many blocks there are.
        supply: reads the rows of a block.
        mail: mail of this root.
        counter: counter of the Reader.

    Attributes:
        path: path of the file.
        launched_s: time when it was started (``time.monotonic``), seconds; None: it was not.
        begun: event that is set when it runs.
        turns: turns of its work, which its rank takes (``carry``); None: the thread does.
        published: number of blocks published so far.
        error: error that ended it; None: nothing failed.
    """

    def __init__(
        self,
        window: share.NodeWindow,
        schedule: Schedule,
        supply: Supply,
        mail: RootMail,
        counter: StageCounter,
    ) -> None:
        super().__init__(name="lmdbio-root", daemon=False)
        self._window, self._schedule, self._supply = window, schedule, supply
        self._mail, self._counter, self.published = mail, counter, 0
        self.path, self._quit = supply.path, threading.Event()
        self.begun, self._filled = threading.Event(), threading.Event()
        self._resting: tuple[Stage, int] | None = None  # why, and since when
        self.launched_s: float | None = None
        self.turns: Any = None
        self.error: BaseException | None = None

    # --- beginning and end

    def run(self) -> None:
        """Do its work."""
        deque(self.work(), 0)

    def work(self) -> Generator[None, None, None]:
        """Fill slots until no rank needs more; then stay while other nodes may fail."""
        self.begun.set()
        try:
            with contextlib.suppress(_LeftError):
                yield from self._fill()
            yield from self._monitor()
        except (_StoppedError, GeneratorExit):
            pass
        except BaseException as error:
            self.error = error
            self._window.abort(error)
        finally:
            # Once ``_filled`` is set the window may be gone. No rank hears of a failure after it.
            with contextlib.suppress(Exception):
                has_failed = True
                has_failed = self._report_failure()
            self._filled.set()
            with contextlib.suppress(Exception):
                if not has_failed:
                    self._say_goodbye()
            self._close()

    def _close(self) -> None:
        self._mail.close()
        self._supply.close()

    def engines(self) -> Stats:
        """Return the engines' counts; also after the end."""
        return self._supply.engines()

    def stop(self) -> None:
        """End the filling soon, also when other ranks would need more."""
        self._quit.set()

    @property
    def is_filling(self) -> bool:
        """Whether the thread may still write to the window."""
        return (self.is_alive() or self.turns is not None) and not self._filled.is_set()

    def finish(self) -> None:
        """Wait until the thread has stopped filling, however long; and shortly for its end."""
        if self.turns is not None and self.turns.gi_running:  # a signal's handler ends it
            self.stop()
            return
        if self.turns is not None:
            self.turns.close()
        if not self.begun.is_set():
            self._close()
        while self.is_filling:
            self._filled.wait(_core.SLICE_MS / 1000)
        if self.is_alive():
            self.join(END_SECONDS_MAX)

    # --- one step after another

    def _fill(self) -> Iterator[None]:
        """Keep reads in flight for as many blocks as there are free slots."""
        pending = self._next(0)
        try:
            while pending is not None or self._supply.flights:
                yield
                self._check_alive()
                self._mail.end_turn()
                if self._land():
                    continue
                self._supply.tend()
                if pending is not None and self._may_submit(pending):
                    self._end_rest()
                    flight = self._supply.submit(pending)
                    self._mail.read_by(flight)
                    pending = self._next(pending.number + 1)
                    if pending is None:
                        self._mail.leave_turns()
                else:
                    if pending is None:
                        self._mail.give_turn()
                    self._rest(pending)
        finally:
            self._end_rest()
            self._supply.drop(pending)
            self._mail.drop_turn()

    def _next(self, number: int) -> PendingBlock | None:
        blocks = self._schedule.blocks
        return None if blocks is not None and number >= blocks else PendingBlock(number)

    def _check_alive(self) -> None:
        """Look whether to go on, and into the mail."""
        if self._quit.is_set():
            raise _StoppedError
        if not threading.main_thread().is_alive():
            _retire(self._window)
        self._mail.read()
        if self._mail.failure is not None:
            self._window.abort_for(*self._mail.failure)
        try:
            self._window.check()
        except Error as error:
            raise _StoppedError from error

    def _between(self) -> None:
        """Do what cannot wait while the supply seeks records, which may take long."""
        self._check_alive()
        self._land()

    def _may_submit(self, pending: PendingBlock) -> bool:
        """Return whether all is there to read a block: a plan, a free slot, and the turn."""
        may_read = self._slot_is_free(pending.number, 0) and self._mail.may_read(pending.number)
        is_prepared = self._supply.prepare(pending, self._between, may_read=may_read)
        if not may_read:
            self._mail.give_turn()
        return is_prepared and may_read and pending.has_arrived()

    def _slot_is_free(self, block: int, timeout_ms: int) -> bool:
        """Return whether the team has released the slot of ``block``.

        Raises:
            _LeftError: all ranks of the team have left.
        """
        released = max(0, block - self._window.layout.slots + 1)
        ready = self._window.control.wait_released(
            self._window.root, self._window.team, released, timeout_ms
        )
        if ready is None:
            raise _LeftError
        return ready

    def _land(self) -> bool:
        """Publish the oldest block if its reads have arrived; return whether it did."""
        flights = self._supply.flights
        if not flights or not flights[0].ticket.poll():
            return False
        self._end_rest()
        begun, flight = monotonic_ns(), flights.popleft()
        number, times = flight.number, flight.ticket.times
        self._mail.end_turn()
        self._mail.landed(times[1] - times[0])
        flight.ticket.close()
        self._supply.guard()
        _core.write_table(flight.address, flight.offsets, flight.lengths)
        self.published = number + 1
        self._window.control.publish(self._window.root, self.published)
        self._counter.span("publish", begun, block=number, blocks=1, block_bytes=flight.bytes)
        tracing.note_flight("block", times, {"block": number, "bytes": flight.bytes})
        if flight.direct:
            self._supply.judge(flight, times)
        return True

    # --- after the last block

    def _report_failure(self) -> bool:
        """Report to other nodes that a rank of this one has failed; return whether one has."""
        failure = self._window.aborted()
        if failure is not None:
            self._mail.report(failure)
        return failure is not None

    def _monitor(self) -> Iterator[None]:
        """Monitor failures while other nodes still read, though this root does not."""
        while self._mail.monitors or self._supply.serves:
            yield
            self._check_alive()
            self._supply.tend()
            self._mail.leave(self._check_alive)
            if self._window.control.wait_end(left=True, timeout_ms=self._slice_ms()):
                return

    def _say_goodbye(self) -> None:
        """Let other roots know that they need not wait for this one, and serve those that do.

        Not for ever: they do without, as they do where a letter is lost.
        """
        deadline_s = time.monotonic() + GOODBYE_SECONDS_MAX
        while not self._quit.is_set() and time.monotonic() < deadline_s:
            self._mail.read()
            self._supply.tend()
            has_left = self._supply.leave()
            if self._mail.leave(lambda: None) and has_left:
                return
            time.sleep(min(self._slice_ms(), GOODBYE_NAP_MS) / 1000)
            if not threading.main_thread().is_alive():  # the process ends
                deadline_s = min(deadline_s, time.monotonic() + END_SECONDS_MAX)
        # No root has asked for the token: it goes to any that is left.
        self._mail.give_turn(gives_up=True)

    # --- resting

    def _rest(self, pending: PendingBlock | None) -> None:
        """Wait for what may come next, ``slice_ms`` at most."""
        timeout_ms = self._slice_ms()
        if pending is not None and not pending.has_arrived():
            self._begin_rest("wait for reads")
            pending.has_arrived(timeout_ms)
        elif self._mail.in_turn:
            self._begin_rest("wait for reads")
            self._await_begun(timeout_ms)
        elif self._supply.flights:
            self._begin_rest("wait for reads")
            self._supply.flights[0].ticket.poll(timeout_ms)
        elif pending is not None and not self._slot_is_free(pending.number, 0):
            self._begin_rest("idle, no free slot")
            if not self._window.reserve_more():
                self._slot_is_free(pending.number, timeout_ms)
        elif pending is not None and (
            not self._mail.may_read(pending.number) or self._mail.awaits_cursor
        ):
            self._begin_rest("wait for turn")
            time.sleep(timeout_ms / 1000)

    def _slice_ms(self) -> int:
        """Return how long to wait at once, ms."""
        rested_ns = 0 if self._resting is None else monotonic_ns() - self._resting[1]
        return min(self._mail.slice_ms(), self._supply.nap_ms(rested_ns / 1e9))

    def _await_begun(self, timeout_ms: int) -> None:
        """Wait until a turn's requests have begun, or the oldest block has landed."""
        first, last = self._supply.flights[0], self._supply.flights[-1]
        if first is last:
            self._mail.end_turn(timeout_ms)
        elif first.direct == last.direct:
            self._mail.end_turn(timeout_ms, first.ticket)
        else:  # two engines: the thread cannot wait for both at once
            first.ticket.poll(min(timeout_ms, APART_MS))

    def _begin_rest(self, why: Stage) -> None:
        if self._resting is None or self._resting[0] != why:
            self._end_rest()
            self._resting = why, monotonic_ns()

    def _end_rest(self) -> None:
        if self._resting is not None:
            self._counter.span(*self._resting)
            self._resting = None


# --- beginning ---------------------------------------------------------------------------


def launch(thread: RootThread, *, is_alone: bool) -> None:
    """Start a thread, or have its rank do its work, block by block (``carry``).

    A process that has no thread left (a container's limit, ulimit -u) reads a block when its loop
    asks for one. When this ends the thread runs, or never will; where it fails, ``finish`` closes
    what the thread would have read with.

    Args:
        is_alone: whether no other rank would wait for a loop that computes.

    Raises:
        MemoryError, OSError: the system starts no more threads, and other ranks would wait.
    """
    try:
        _start(thread)
    except (MemoryError, OSError) as error:
        if not is_alone:
            raise
        why = getattr(error, "strerror", None) or "no memory for a thread"
        log(f"{thread.path}: blocks are read when they are waited for: {why}")
        thread.turns = thread.work()
        next(thread.turns, None)  # it has begun, so that it has an end


def _start(thread: RootThread) -> None:
    """Start a thread where there is room for its stack: ``start`` would wait for ever."""
    try:
        with mmap.mmap(-1, LAUNCH_BYTES):
            pass
    except OSError as error:
        raise MemoryError(f"{thread.path}: no memory for a thread that reads") from error
    thread.launched_s = time.monotonic()
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, "cannot start a thread that reads", thread.path) from error
    except BaseException:  # Ctrl-C while it begins, which it does all the same
        thread.begun.wait(BEGIN_SECONDS_MAX)
        raise


def carry(thread: RootThread, block: int) -> bool:
    """Do the work of a root that has no thread until it has published a block, or has ended.

    Returns:
        Whether the block is published; the window is not looked at, which may be gone by now.
    """
    assert thread.turns is not None
    while thread.published <= block and thread.is_filling:
        next(thread.turns, None)
    return thread.published > block


# --- the end of a process ----------------------------------------------------------------


def uncaught() -> BaseException | None:
    """Return the exception that ended the main thread, if one did."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def _retire(window: share.NodeWindow) -> None:
    """Tell the node that this rank's main thread has ended. Never blocks."""
    error = uncaught()
    if error is not None:
        window.abort(error)
    window.leave((), closes=False)
    window.keep()
