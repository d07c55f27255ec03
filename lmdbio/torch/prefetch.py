"""Prefetch: the next batches, made before a caller asks for them, by whom ``workers`` chooses.

job of a number -> a thread, or a thread that asks a process -> result, handed out in order
                -> or the caller's own thread, when it asks
job of a run of brief batches -> results, handed out one by one

Ctrl-C may strike the caller between any two steps, so each step may be taken again: a result
counts as handed out by one assignment.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from lmdbio.errors import Error
from lmdbio.torch.processes import WorkerProcesses
from lmdbio.torch.samples import CalledOffError
from lmdbio.torch.threads import Task, Wanted, WorkerThreads
from lmdbio.torch.workers import Handed, Setting, Workers

__all__ = ["Ended", "Failed", "Prefetcher", "Runs"]


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


class Prefetcher:
    """Hands out what jobs return, in order; threads run some of them before the caller asks.

    Args:
        threads: threads that run jobs, or that ask processes.
        job: function from each number, from 0 on, to a result.
        count: number of results; None: there is no end.
        ahead: results that wait for the caller, beside a job for each thread.
        workers: Workers, which choose who runs jobs.
        pool: processes that may run jobs; None: there are none.
        by_process: function from a number to the result that one of these makes; None: ``job``.
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
        workers: Workers,
        pool: WorkerProcesses | None = None,
        by_process: Callable[[int], Any] | None = None,
        wanted: Wanted | None = None,
    ) -> None:
        self._threads, self._workers, self._pool = threads, workers, pool
        self._job, self._by_process, self._wanted = job, by_process or job, wanted
        self._ahead, self._count = ahead, sys.maxsize if count is None else count
        self._setting: Setting | None = None
        workers.begin()
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
        self._workers.note(Handed(*took, self._left - asked, away))
        self.handed_out += 1  # it keeps the result until the next call, in case Ctrl-C comes first
        return result

    def _begin(self) -> None:
        """Begin as many jobs as may be under way: on threads, or one here."""
        self._under_way.pop(self.handed_out - 1, None)
        if not self._adopt() or self._setting is None:
            return
        way = self._setting.way
        is_inline = way == "loop"
        wanted = 1 if is_inline else self._threads.threads + self._ahead
        run = self._by_process if way == "processes" else self._job
        while self._begun < min(self.handed_out + wanted, self._count):
            job = partial(run, self._begun)
            # The one that is there already, if Ctrl-C came right after this.
            task = self._under_way.setdefault(
                self._begun, _InlineTask(job) if is_inline else Task(job)
            )
            if isinstance(task, Task):
                self._threads.begin(task)
            self._begun += 1

    def _adopt(self) -> bool:
        """Adopt the setting that the workers have now.

        Returns:
            Whether it could be: processes begin while no thread runs a job, whose locks they would
            find held for ever; until then what is under way is handed out, and no more is begun.
        """
        pool, workers = self._pool, self._workers
        if pool is not None and pool.refusal:
            workers.refuse("processes", pool.refusal)
        setting = workers.setting
        if setting == self._setting:
            return True
        if setting.way == "processes" and pool is not None:
            if not pool.has(setting.count):
                if self._under_way:
                    return False
                pool.start(setting.count)
                if pool.refusal:
                    return self._adopt()
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


class Failed:
    """The exception of one of several results, raised when the result is asked for."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        trace = error.__traceback__  # whose first frame would know the error by its results
        self.error = error.with_traceback(None if trace is None else trace.tb_next)


class Runs:
    """Hands out one by one what each job returned several of: brief ones, in one go.

    Args:
        batches: Prefetcher, whose jobs return their results in a deque.
    """

    def __init__(self, batches: Prefetcher) -> None:
        self._batches = batches
        self._left: deque[Any] = deque()

    def next(self) -> Any:
        """Return the next result, or raise what its making raised (``Prefetcher.next``)."""
        while not self._left:
            self._left = self._batches.next()
        result = self._left.popleft()
        if not isinstance(result, Failed):
            return result
        try:
            raise result.error
        finally:
            del self, result  # as in ``Task.run``

    def cancel(self) -> None:
        """Begin no further job, and wait for none (``Prefetcher.cancel``)."""
        self._batches.cancel()
