"""Threads that make the next batches before a caller asks for them."""

from __future__ import annotations

import operator
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

from lmdbio.errors import Error

__all__ = ["Prefetcher", "WorkerThreads", "Ended"]


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


class Prefetcher:
    """Hands out what jobs return, in order; threads run some of them before the caller asks.

    Args:
        ahead: jobs that are done and wait for the caller, beside one for each thread.
    """

    def __init__(
        self, threads: WorkerThreads, jobs: Iterable[Callable[[], Any]], ahead: int
    ) -> None:
        if ahead < 0:
            raise ValueError(f"ahead must not be negative ({ahead})")
        self._threads, self._jobs, self._ahead = threads, iter(jobs), ahead
        self._begun: deque[Future[Any]] = deque()
        self._pid = os.getpid()

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
        wanted = self._threads.threads + self._ahead - len(self._begun)
        for job in islice(self._jobs, wanted):
            self._begun.append(self._threads.submit(job))
        if not self._begun:
            raise Ended
        self._begun[0].exception()  # waits, in half the time that futures.wait takes
        return self._begun.popleft().result()

    def cancel(self) -> None:
        """Begin no further job, and wait for none: the garbage collector calls this anywhere."""
        self._jobs = iter(())
        if self._pid == os.getpid():  # else a thread of the parent's may hold a lock of theirs
            for one in self._begun:
                one.cancel()
        self._begun.clear()
