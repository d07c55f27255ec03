"""Threads that make the next batches before a caller asks for them."""

from __future__ import annotations

import operator
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from time import monotonic, thread_time
from typing import Any

from lmdbio.errors import Error

__all__ = ["Prefetcher", "WorkerThreads", "Ended"]

#: A thread saves its caller the time of a job, as far as the caller does something else meanwhile.
#: While it saves less than the first of these, in the mean over some jobs, it costs more; the
#: second is what it is taken to save at first.
INLINE_SECONDS, SAVED_SECONDS, SAVED_OVER = 250e-6, 10e-3, 8
#: A brief job that took so long on a thread has waited for more than Python's lock: the storage.
WAITED_SECONDS = 2e-3


class Ended(Exception):
    """A Reader's last iteration is over."""


class WorkerThreads:
    """Threads of this process that run jobs; a caller waits for what a job returns.

    Args:
        threads: how many.
    """

    def __init__(self, threads: int) -> None:
        self.threads = operator.index(threads)
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._pool: tuple[int, ThreadPoolExecutor] | None = None
        self._is_closed = False

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Begin a job, on threads that the first job of a process starts.

        Raises:
            Error: ``close`` was called.
        """
        self.check()
        # A child that was forked has none of its parent's threads.
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), ThreadPoolExecutor(self.threads, "lmdbio-loader")
        return self._pool[1].submit(job)

    def check(self) -> None:
        """Raise Error if the threads have ended."""
        if self._is_closed:
            raise Error("this loader is closed")

    def close(self) -> None:
        """End the threads when each has done its job. May be called twice."""
        pool, self._pool, self._is_closed = self._pool, None, True
        if pool is not None and pool[0] == os.getpid():
            pool[1].shutdown(cancel_futures=True)


class _Task:
    """A job that this or another thread runs, and how long it took.

    Args:
        job: returns the result.
        threads: that run it; None: the caller does, when it wants the result.

    Attributes:
        seconds: that it took; on another thread those of the processor, unless it waited for
            longer than for Python's lock; 0 before its end.
    """

    __slots__ = ("_job", "_under_way", "seconds")

    def __init__(self, job: Callable[[], Any], threads: WorkerThreads | None) -> None:
        self._job, self.seconds = job, 0.0
        self._under_way = None if threads is None else threads.submit(self._run_elsewhere)

    def _run(self) -> Any:
        begun = monotonic()
        try:
            return self._job()
        finally:
            self.seconds = monotonic() - begun

    def _run_elsewhere(self) -> Any:
        begun = thread_time()
        try:
            return self._run()
        finally:
            if self.seconds < WAITED_SECONDS:
                self.seconds = thread_time() - begun

    def result(self) -> Any:
        """Return what the job returned, or raise what it raised, once it is done."""
        if self._under_way is None:
            return self._run()
        self._under_way.exception()  # waits, in half the time that futures.wait takes
        return self._under_way.result()

    def cancel(self) -> None:
        """Have nobody run it who has not begun to."""
        if self._under_way is not None:
            self._under_way.cancel()


class Prefetcher:
    """Hands out what jobs return, in order; threads run some of them before the caller asks.

    Args:
        ahead: jobs that are done and wait for the caller, beside one for each thread.
        inline: a caller that comes again at once runs brief jobs itself: to hand one over to a
            thread, and its result back, would take longer.
    """

    def __init__(
        self,
        threads: WorkerThreads,
        jobs: Iterable[Callable[[], Any]],
        ahead: int,
        *,
        inline: bool = False,
    ) -> None:
        if ahead < 0:
            raise ValueError(f"ahead must not be negative ({ahead})")
        self._threads, self._jobs, self._ahead = threads, iter(jobs), ahead
        self._begun: deque[_Task] = deque()
        self._pid = os.getpid()
        self._may_inline, self._is_inline = inline, False
        self._saved = SAVED_SECONDS  # by threads, of late
        self._left = monotonic()

    def next(self) -> Any:
        """Return what the next job returned; after Ctrl-C, the one that was not handed out.

        Raises:
            Ended: no job is left.
            Error: the threads have ended, or this is a forked child, whose parent has them.
            What the job raised.
        """
        self._threads.check()
        if self._pid != os.getpid():
            raise Error("begun before this process was forked: begin another iteration here")
        away = monotonic() - self._left
        self._begin()
        if not self._begun:
            raise Ended
        task = self._begun[0]
        try:
            result = task.result()
        except Exception:
            self._begun.popleft()
            raise
        self._begun.popleft()
        self._judge(task.seconds, away)
        self._left = monotonic()
        return result

    def _begin(self) -> None:
        """Begin as many jobs as may be under way: on threads, or one here."""
        threads = None if self._is_inline else self._threads
        wanted = 1 if threads is None else threads.threads + self._ahead
        for job in islice(self._jobs, max(0, wanted - len(self._begun))):
            self._begun.append(_Task(job, threads))

    def _judge(self, took: float, away: float) -> None:
        """Decide where jobs run from now on, after one that took so long.

        Args:
            took, away: seconds of the job, and those that the caller did something else before.
        """
        self._saved += (took + away / 4 - self._saved) / SAVED_OVER
        is_inline = self._may_inline and self._saved < INLINE_SECONDS
        if self._is_inline and not is_inline:
            self._saved = SAVED_SECONDS  # not again soon
        self._is_inline = is_inline

    def cancel(self) -> None:
        """Begin no further job, and wait for none: the garbage collector calls this anywhere."""
        self._jobs = iter(())
        if self._pid == os.getpid():  # else a thread of the parent's may hold a lock of theirs
            for task in self._begun:
                task.cancel()
        self._begun.clear()
