"""beside: one thing at a time done in a thread, while who asked for it goes on."""

from __future__ import annotations

import _thread
import contextlib
import time
from collections.abc import Callable

from lmdbio.system.log import log

__all__ = ["Beside"]

#: Seconds that a thread needs to get going.
START_SECONDS = 1e-4


class Beside:
    """Does one thing at a time in a thread, or where it did not start, when it is waited for.

    Python's own threads wait for ever for one whose start failed for want of memory; here whoever
    takes the lock first does the work.
    """

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None
        self._taken, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._error: BaseException | None = None

    def begin(self, work: Callable[[], None]) -> None:
        """Starts it. Until ``end`` nothing else may be started."""
        self._taken, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._done.acquire()
        self._work = work
        try:
            _thread.start_new_thread(self._run, (work, self._taken, self._done))
            time.sleep(START_SECONDS)
        except (RuntimeError, MemoryError) as error:
            log(f"work is not done in a thread beside, but when it is waited for: {error}")

    def _run(
        self, work: Callable[[], None], taken: _thread.LockType, done: _thread.LockType
    ) -> None:
        if not taken.acquire(blocking=False):  # it came too late
            return
        try:
            work()
        except BaseException as error:
            self._error = error
        finally:
            done.release()

    def end(self) -> None:
        """Waits for what was begun, or does it; raises what it raised."""
        work = self._work
        if work is None:
            return
        if self._taken.acquire(blocking=False):
            self._work = None
            work()
            return
        self._done.acquire()
        self._work = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_: object) -> None:
        # The thread's work is about to go: an interrupt of the waiting is under way already.
        while self._work is not None:
            with contextlib.suppress(BaseException):
                self.end()
