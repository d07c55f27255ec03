"""Threads that do what is asked for next, before it is asked for."""

from __future__ import annotations

import operator
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

from lmdbio.errors import Error

__all__ = ["Ahead", "Crew", "Ended"]


class Ended(Exception):
    """A Reader's last iteration is over."""


class Crew:
    """Threads that do jobs for whoever asks for what they return.

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
        """Begins a job.

        Raises:
            Error: it is closed.
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
        """Ends the threads, when they have done what they are at. May be called twice."""
        pool, self._pool, self._is_closed = self._pool, None, True
        if pool is not None and pool[0] == os.getpid():
            pool[1].shutdown(cancel_futures=True)


class Ahead:
    """What jobs return, in order, some of them done ahead of who asks.

    Args:
        ahead: done and not asked for, beside those that all threads are at.
    """

    def __init__(self, crew: Crew, jobs: Iterable[Callable[[], Any]], ahead: int) -> None:
        if ahead < 0:
            raise ValueError(f"ahead must not be negative ({ahead})")
        self._crew, self._jobs, self._ahead = crew, iter(jobs), ahead
        self._begun: deque[Future[Any]] = deque()
        self._pid = os.getpid()

    def next(self) -> Any:
        """The next one. One that was not handed out, for Ctrl-C, is handed out next.

        Raises:
            Ended: there are no more jobs.
            Error: the crew is closed, or this is a forked child, whose parent's threads have it.
            Else what the job raised.
        """
        self._crew.check()
        if self._pid != os.getpid():
            raise Error("begun before this process was forked: begin another iteration here")
        wanted = self._crew.threads + self._ahead - len(self._begun)
        for job in islice(self._jobs, wanted):
            self._begun.append(self._crew.submit(job))
        if not self._begun:
            raise Ended
        futures.wait(list(islice(self._begun, 1)))
        return self._begun.popleft().result()

    def cancel(self) -> None:
        """Begins no more of them, and waits for none: a collector may call this, anywhere."""
        self._jobs = iter(())
        if self._pid == os.getpid():  # else a thread of the parent's may hold a lock of theirs
            for one in self._begun:
                one.cancel()
        self._begun.clear()
