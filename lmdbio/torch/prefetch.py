"""Prefetch: the next batches, made before a caller asks for them, by whom ``workers`` chooses.

job of a number -> a thread, or a thread that asks a process -> result, handed out in order
                -> or the caller's own thread, when it asks

Ctrl-C may strike the caller between any two steps, so each step may be taken again: a result
counts as handed out by one assignment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Protocol

from lmdbio.errors import Error
from lmdbio.torch.samples import CalledOffError
from lmdbio.torch.threads import Task, Wanted, WorkerThreads
from lmdbio.torch.words import integer
from lmdbio.torch.workers import Handed, Setting, Workers

__all__ = ["Ended", "Prefetcher", "Processes", "checked_ahead"]


class Ended(Exception):
    """A Reader's last iteration is over."""


class _InlineTask:
    """A job that the caller runs when it wants the result, again if Ctrl-C ended it."""

    __slots__ = ("_job", "wall")
    busy = 1.0

    def __init__(self, job: Callable[[], Any]) -> None:
        self._job, self.wall = job, 0.0

    @property
    def seconds(self) -> float:
        return self.wall

    def result(self) -> Any:
        begun = monotonic()
        result = self._job()
        self.wall = monotonic() - begun
        return result

    def cancel(self) -> None:
        """Do nothing: only the caller runs it, when it asks for the result."""


def checked_ahead(ahead: int) -> int:
    """Return a number of results that may wait; ValueError: it is negative."""
    if (number := integer("ahead", ahead)) < 0:
        raise ValueError(f"ahead must not be negative ({ahead})")
    return number


class Processes(Protocol):
    """Processes that run jobs, each asked by a thread of this one."""

    @property
    def refusal(self) -> str:
        """Reason why they cannot; "": they can."""

    def job(self, number: int) -> Any:
        """Return what the job of a number returns."""

    def has(self, count: int) -> bool:
        """Return whether so many have begun."""

    def start(self, count: int) -> None:
        """Begin as many as are missing; ``refusal`` says why, where that cannot be."""


class Prefetcher:
    """Hands out what jobs return, in order; threads run some of them before the caller asks.

    Args:
        job: function from each number, from 0 on, to a result.
        count: number of results; None: there is no end.
        ahead: results that wait for the caller, beside a job for each thread.
        workers: Workers, which choose how many threads run jobs, or that the caller runs them
            itself; None: all threads do.
        processes: processes that run jobs where ``workers`` says so; None: there are none.
        wanted: flag that jobs look at to give up; None: they do not.

    Attributes:
        handed_out: results, and errors of jobs, that the caller has had.
    """

    def __init__(
        self,
        threads: WorkerThreads,
        job: Callable[[int], Any],
        count: int | None,
        ahead: int,
        *,
        workers: Workers | None = None,
        processes: Processes | None = None,
        wanted: Wanted | None = None,
    ) -> None:
        self._threads, self._job, self._ahead = threads, job, checked_ahead(ahead)
        self._wanted, self._workers, self._processes = wanted, workers, processes
        self._setting: Setting | None = None
        if workers is not None:
            workers.begin()
        self._count = sys.maxsize if count is None else count
        self._under_way: dict[int, Task | _InlineTask] = {}
        self._pid = os.getpid()
        self._left = monotonic()
        self._begun = self.handed_out = 0

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
        asked = monotonic()
        away = asked - self._left
        self._begin()
        task = self._under_way.get(self.handed_out)
        if task is None:
            raise Ended
        try:
            result, took = task.result(), (task.seconds, task.wall, task.busy)
        except (Ended, CalledOffError):
            raise
        except Exception:
            self.handed_out += 1
            raise
        finally:
            del task  # else it would know this frame by its error, and live on
        self._left = monotonic()
        if self._workers is not None:
            self._workers.note(Handed(*took, self._left - asked, away))
        self.handed_out += 1  # it keeps the result until the next call, in case Ctrl-C comes first
        return result

    def _begin(self) -> None:
        """Begin as many jobs as may be under way: on threads, or one here."""
        self._under_way.pop(self.handed_out - 1, None)
        if self._workers is not None and not self._adopt(self._workers):
            return
        setting = self._setting
        is_inline = setting is not None and setting.way == "loop"
        wanted = 1 if is_inline else self._threads.threads + self._ahead
        run = self._job
        if self._processes is not None and setting is not None and setting.way == "processes":
            run = self._processes.job
        while self._begun < min(self.handed_out + wanted, self._count):
            job = partial(run, self._begun)
            # The one that is there already, if Ctrl-C came right after this.
            task = self._under_way.setdefault(
                self._begun, _InlineTask(job) if is_inline else Task(job)
            )
            if isinstance(task, Task):
                self._threads.begin(task)
            self._begun += 1

    def _adopt(self, workers: Workers) -> bool:
        """Adopt the setting that the workers have now.

        Returns:
            Whether it could be: processes begin while no thread runs a job, whose locks they would
            find held for ever; until then what is under way is handed out, and no more is begun.
        """
        processes = self._processes
        if processes is not None and processes.refusal:
            workers.refuse("processes", processes.refusal)
        setting = workers.setting
        if setting == self._setting:
            return True
        if setting.way == "processes" and processes is not None:
            if not processes.has(setting.count):
                if self._under_way:
                    return False
                processes.start(setting.count)
                if processes.refusal:
                    return self._adopt(workers)
            self._threads.resize(setting.count + 1)  # one reads for the next process that is free
        elif setting.way == "threads":
            self._threads.resize(setting.count)
        self._setting = setting
        return True

    def cancel(self) -> None:
        """Begin no further job, and wait for none: the garbage collector calls this anywhere."""
        self._count = 0
        if self._wanted is not None:
            self._wanted.is_given_up = True
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()
