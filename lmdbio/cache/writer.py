"""The thread that writes grains to a tier, one run after another, so that nobody need wait."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from math import inf
from queue import SimpleQueue
from threading import Lock
from time import monotonic

import numpy as np
import numpy.typing as npt

__all__ = ["TierWrite", "TierWriter"]

I64 = npt.NDArray[np.int64]


class TierWrite:
    """A write of neighbouring grains, which the writer's thread makes and others wait for.

    Ctrl-C may end any step of one that waits, and it waits again: so nobody holds a lock but the
    thread that writes, until the end of the write.

    Args:
        grains: grains that are written.
        work: writes, and returns whether it has.
        writer: writer whose thread makes it.

    Attributes:
        grains: grains that are written.
        is_done: whether the write was made, or has failed.
        has_written: whether the write was made.
        seconds: time that it took; 0 before its end, or if it failed.
    """

    def __init__(self, grains: I64, work: Callable[[], bool], writer: TierWriter | None) -> None:
        self.grains, self._writer = grains, writer
        self._work: Callable[[], bool] | None = work
        self.has_written, self.is_done, self.seconds = False, False, 0.0
        self._under_way = Lock()
        self._under_way.acquire()

    @classmethod
    def ended(cls, grains: I64, *, has_written: bool = False) -> TierWrite:
        """Return a write that has ended, and was made or not."""
        write = cls(grains, lambda: has_written, None)
        write.run()
        return write

    def run(self) -> None:
        """Make the write; the writer's thread does."""
        work, self._work = self._work, None
        begun_s = monotonic()
        try:
            if work is not None and work():
                self.has_written, self.seconds = True, monotonic() - begun_s
        except BaseException:
            self.has_written = False  # ``work`` has told why
        finally:
            self.is_done = True
            self._under_way.release()

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether it is done, after ``timeout_ms`` at most."""
        if timeout_ms and not self.is_done:
            self._under_way.acquire(timeout=timeout_ms / 1000)
        return self.is_done

    @property
    def is_late(self) -> bool:
        """Whether nothing was written for so long that nobody should wait."""
        return not self.is_done and self._writer is not None and self._writer.is_late


class TierWriter:
    """The thread that makes the writes, one after another; the first of them starts it.

    Args:
        stuck_s: seconds without progress after which nobody waits for it.

    Attributes:
        waiting: writes that wait for their turn.
    """

    def __init__(self, stuck_s: float) -> None:
        self.waiting: SimpleQueue[TierWrite | None] = SimpleQueue()
        self._stuck_s, self._begun_s = stuck_s, inf
        self._has_begun, self._is_alive = False, Lock()

    def begin(self, grains: I64, work: Callable[[], bool]) -> TierWrite:
        """Have a write made.

        Raises:
            RuntimeError: there is no thread for it, or the interpreter ends.
        """
        if not self._has_begun:
            # Ctrl-C between these two starts a second thread later, which ends at once.
            _thread.start_new_thread(self._run, ())
            self._has_begun = True
        one = TierWrite(grains, work, self)
        self.waiting.put(one)
        return one

    @property
    def is_late(self) -> bool:
        """Whether a write takes so long that nobody should wait."""
        return monotonic() > self._begun_s + self._stuck_s

    def end(self, *, waits: bool) -> None:
        """End the thread behind the writes that wait; ``waits``: until it has ended."""
        self.waiting.put(None)
        if waits:
            self._is_alive.acquire()

    def _run(self) -> None:
        if not self._is_alive.acquire(blocking=False):
            return
        try:
            while (one := self.waiting.get()) is not None:
                self._begun_s = monotonic()
                one.run()
                self._begun_s = inf
                del one  # nothing is kept while this waits
        finally:
            self._is_alive.release()
