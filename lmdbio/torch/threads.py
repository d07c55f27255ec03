"""Threads that make the next batches before a caller asks for them.

Ctrl-C may strike the caller between any two steps, so each step may be taken again: a job that was
handed to the threads twice runs once, and a result counts as handed out by one assignment.
"""

from __future__ import annotations

import atexit
import operator
import os
import sys
import weakref
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic, thread_time
from typing import Any

from lmdbio.errors import Error

__all__ = ["Prefetcher", "Task", "WorkerThreads", "Ended"]

#: A thread saves its caller the time of a job, as far as the caller does something else meanwhile.
#: While it saves less than the first of these, in the mean over some jobs, it costs more; the
#: second is what it is taken to save at first.
INLINE_SECONDS, SAVED_SECONDS, SAVED_OVER = 250e-6, 10e-3, 8
#: A brief job that took so long on a thread has waited for more than Python's lock: the storage.
WAITED_SECONDS = 2e-3


class Ended(Exception):
    """A Reader's last iteration is over."""


class _CalledOffError(Error):
    """Nobody has run the job, and nobody will."""


class Task:
    """A job that one thread runs, and its result, which another waits for.

    Args:
        job: returns the result.

    Attributes:
        seconds: of the processor that it took, or in all if it waited for longer than for
            Python's lock; 0 before its end.
    """

    __slots__ = ("_error", "_is_done", "_job", "_result", "_turn", "_under_way", "seconds")

    def __init__(self, job: Callable[[], Any]) -> None:
        self._job: Callable[[], Any] | None = job
        self._result: Any = None
        self._error: BaseException | None = None
        self._turn, self._is_done, self.seconds = Lock(), False, 0.0
        self._under_way = Lock()
        self._under_way.acquire()

    def run(self) -> None:
        """Run the job, unless somebody has begun to or has called it off."""
        job = self._job
        if job is None or not self._turn.acquire(blocking=False):
            return
        begun, begun_here = monotonic(), thread_time()
        try:
            self._result = job()
        except BaseException as error:
            # This frame knows the task, which would so know itself and live on.
            trace = error.__traceback__
            self._error = error.with_traceback(None if trace is None else trace.tb_next)
        del job
        self.seconds = monotonic() - begun
        if self.seconds < WAITED_SECONDS:
            self.seconds = thread_time() - begun_here
        self._end()

    def _end(self) -> None:
        self._job, self._is_done = None, True
        self._under_way.release()

    def wait(self) -> None:
        """Wait until the job is done, or was called off."""
        if not self._is_done:
            self._under_way.acquire()  # nobody else waits for this task, so it need not be free

    def result(self) -> Any:
        """Return what the job returned, or raise what it raised, once it is done.

        Raises:
            Error: it was called off.
        """
        self.wait()
        if self._error is None:
            return self._result
        try:
            raise self._error
        finally:
            del self  # as in ``run``

    def cancel(self) -> None:
        """Call the job off if nobody has begun to run it."""
        if self._turn.acquire(blocking=False):
            self._error = _CalledOffError("this loader is closed")
            self._end()


class _InlineTask:
    """A job that the caller runs when it wants the result, again if Ctrl-C ended it."""

    __slots__ = ("_job", "seconds")

    def __init__(self, job: Callable[[], Any]) -> None:
        self._job, self.seconds = job, 0.0

    def result(self) -> Any:
        begun = monotonic()
        result = self._job()
        self.seconds = monotonic() - begun
        return result

    def cancel(self) -> None:
        """Do nothing: only the caller runs it, when it asks for the result."""


class _Crew:
    """The threads of one process, and the tasks that wait for them.

    Args:
        count: threads, which ``start`` starts.
    """

    def __init__(self, count: int) -> None:
        self.pid, self._count, self._started = os.getpid(), count, 0
        self.waiting: SimpleQueue[Task | None] = SimpleQueue()
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start those threads that are not there; Ctrl-C in here may leave one too many."""
        while self._started < self._count:
            thread = Thread(target=_work, args=(self.waiting,), name="lmdbio-loader", daemon=True)
            self._threads.append(thread)
            thread.start()
            self._started += 1

    def join(self) -> None:
        """Wait until every thread has ended."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()


def _work(waiting: SimpleQueue[Task | None]) -> None:
    """Run tasks until None comes, which stays for the other threads."""
    while (task := waiting.get()) is not None:
        task.run()
        del task  # nothing is kept while this waits
    waiting.put(None)


class WorkerThreads:
    """Threads of this process that run jobs; a caller waits for what a job returns.

    Args:
        threads: how many.
    """

    def __init__(self, threads: int) -> None:
        self.threads = operator.index(threads)
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._crew: _Crew | None = None
        self._is_closed = False
        _all_of_this_process.add(self)

    def submit(self, job: Callable[[], Any]) -> Task:
        """Begin a job, on threads that the first job of a process starts.

        Raises:
            Error: ``close`` was called.
        """
        task = Task(job)
        self.begin(task)
        return task

    def begin(self, task: Task) -> None:
        """Have a thread run a task; one that was begun already runs once all the same.

        Raises:
            Error: ``close`` was called.
        """
        self.check()
        crew = self._crew
        # A child that was forked has none of its parent's threads.
        if crew is None or crew.pid != os.getpid():
            crew = self._crew = _Crew(self.threads)
            weakref.finalize(self, crew.waiting.put, None).atexit = False
        crew.start()
        crew.waiting.put(task)
        if self._is_closed:  # meanwhile, and may have taken it for one of before
            task.cancel()

    def check(self) -> None:
        """Raise Error if the threads have ended."""
        if self._is_closed:
            raise Error("this loader is closed")

    def close(self) -> None:
        """End the threads when each has done its job. May be called twice."""
        self._is_closed = True
        crew = self._crew
        if crew is None or crew.pid != os.getpid():
            return
        try:
            while True:
                task = crew.waiting.get_nowait()
                if task is not None:
                    task.cancel()
        except Empty:
            crew.waiting.put(None)
        crew.join()


_all_of_this_process: weakref.WeakSet[WorkerThreads] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End the threads that are left before what they read from is closed at the process's end."""
    for threads in list(_all_of_this_process):
        threads.close()


class Prefetcher:
    """Hands out what jobs return, in order; threads run some of them before the caller asks.

    Args:
        job: what to do for each number from 0 on.
        count: of the numbers; None: without end.
        ahead: results that wait for the caller, beside a job for each thread.
        inline: a caller that comes again at once runs brief jobs itself: to hand one over to a
            thread, and its result back, would take longer.

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
        inline: bool = False,
    ) -> None:
        if ahead < 0:
            raise ValueError(f"ahead must not be negative ({ahead})")
        self._threads, self._job, self._ahead = threads, job, ahead
        self._count = sys.maxsize if count is None else count
        self._under_way: dict[int, Task | _InlineTask] = {}
        self._pid = os.getpid()
        self._may_inline, self._is_inline = inline, False
        self._saved = SAVED_SECONDS  # by threads, of late
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
        away = monotonic() - self._left
        self._begin()
        task = self._under_way.get(self.handed_out)
        if task is None:
            raise Ended
        try:
            result = task.result()
        except (Ended, _CalledOffError):
            raise
        except Exception:
            self.handed_out += 1
            raise
        self._judge(task.seconds, away)
        self._left = monotonic()
        self.handed_out += 1  # it keeps the result until the next call, in case Ctrl-C comes first
        return result

    def _begin(self) -> None:
        """Begin as many jobs as may be under way: on threads, or one here."""
        self._under_way.pop(self.handed_out - 1, None)
        wanted = 1 if self._is_inline else self._threads.threads + self._ahead
        while self._begun < min(self.handed_out + wanted, self._count):
            job = partial(self._job, self._begun)
            # The one that is there already, if Ctrl-C came right after this.
            task = self._under_way.setdefault(
                self._begun, _InlineTask(job) if self._is_inline else Task(job)
            )
            if isinstance(task, Task):
                self._threads.begin(task)
            self._begun += 1

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
        self._count = 0
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()
