"""Threads that make the next batches before a caller asks for them.

Ctrl-C may strike the caller between any two steps, so each step may be taken again: a job that was
handed to the threads twice runs once, and a result counts as handed out by one assignment.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore, Thread, current_thread, local
from time import monotonic, thread_time
from typing import Any

from lmdbio.errors import Error
from lmdbio.system.log import WARNING, tell
from lmdbio.torch.samples import CalledOffError
from lmdbio.torch.words import integer

__all__ = ["Ended", "Prefetcher", "Task", "Wanted", "WorkerThreads", "checked_ahead"]

#: How long the end waits for a transform that does not return, as torch waits for its workers.
CLOSE_SECONDS = 5.0


class _Thread(local):
    """The state of one thread.

    Attributes:
        owner: what it may not wait for; None: it is none of a crew's threads.
    """

    owner: weakref.ref[object] | None = None


_thread = _Thread()

#: A thread saves its caller the time of a job, as far as the caller does something else meanwhile.
#: While it saves less than the first of these, in the mean over some jobs, it costs more; the
#: second is what it is taken to save at first.
INLINE_SECONDS, SAVED_SECONDS, SAVED_OVER = 250e-6, 10e-3, 8
#: A brief job that took so long on a thread has waited for more than Python's lock: the storage.
WAITED_SECONDS = 2e-3


class Ended(Exception):
    """A Reader's last iteration is over."""


class Task:
    """A job that one thread runs, and its result, which another waits for.

    Args:
        job: returns the result.

    Attributes:
        runs_here: whether the thread that waits for it runs it, for there are no others.
        seconds: of the processor that it took, or in all if it waited for longer than for
            Python's lock; 0 before its end.
    """

    __slots__ = (
        "_error",
        "_is_done",
        "_job",
        "_result",
        "_settled",
        "_turn",
        "_under_way",
        "runs_here",
        "seconds",
    )

    def __init__(self, job: Callable[[], Any]) -> None:
        self._job: Callable[[], Any] | None = job
        self._result: Any = None
        self._error: BaseException | None = None
        self._turn, self._settled = Lock(), Lock()
        self._is_done, self.seconds = False, 0.0
        self.runs_here = False
        self._under_way = Lock()
        self._under_way.acquire()

    def run(self) -> None:
        """Run the job, unless somebody has begun to or has called it off."""
        job = self._job
        if job is None or not self._turn.acquire(False):
            return
        result, failure = None, None
        begun, begun_here = monotonic(), thread_time()
        try:
            result = job()
        except BaseException as error:
            trace = error.__traceback__
            failure = error.with_traceback(None if trace is None else trace.tb_next)
            del trace
        del job
        seconds = monotonic() - begun
        if seconds < WAITED_SECONDS:
            seconds = thread_time() - begun_here
        self._end(result, failure, seconds)
        # The error's frames know this one, by which it would know itself, and live on.
        del self, result, failure

    def _end(self, result: Any, error: BaseException | None, seconds: float = 0.0) -> None:
        if self._settled.acquire(False):
            self._result, self._error, self.seconds = result, error, seconds
            self._job, self._is_done = None, True
            self._under_way.release()

    def wait(self) -> None:
        """Wait until the job is done, or was called off."""
        if self.runs_here:
            self.run()
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
        if self._turn.acquire(False):
            self.abandon()

    def abandon(self) -> None:
        """Have nobody wait for the job any longer, though it goes on."""
        self._end(None, CalledOffError("this loader is closed"))


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
        count: number of threads, which ``start`` starts.
        owner: what these threads may not wait for.
    """

    def __init__(self, count: int, owner: object) -> None:
        self.pid, self.count, self._started = os.getpid(), count, 0
        self._owner = weakref.ref(owner)
        self.waiting: SimpleQueue[Task | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._places = Semaphore(count)
        #: The task of each thread, None between two of them.
        self._running: list[list[Task | None]] = []

    def start(self) -> None:
        """Start those threads that are not there; one too many, after Ctrl-C, ends at once.

        Where the system gives fewer, those do all the work, or the thread that waits for a task.
        """
        while self._started < self.count:
            thread = Thread(
                target=_work,
                args=(self.waiting, self._owner, self._places, self._running),
                name="lmdbio-loader",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError as error:
                tell(
                    f"a loader has {self._started} of {self.count} threads: {error}"
                    + ("" if self._started else "; the program's own makes its batches"),
                    WARNING,
                )
                self.count = self._started
                break
            self._threads.append(thread)
            self._started += 1

    def dismiss(self) -> None:
        """Call off what nobody has begun, and have the threads end after what they do."""
        try:
            while True:
                task = self.waiting.get_nowait()
                if task is not None:
                    task.cancel()
        except Empty:
            self.waiting.put(None)

    def join(self, deadline: float) -> None:
        """Wait until every thread has ended, or a moment of ``monotonic`` has come."""
        for thread in self._threads:
            if thread is not current_thread():
                thread.join(max(0.0, deadline - monotonic()))
        left = sum(thread.is_alive() for thread in self._threads)
        if left and monotonic() >= deadline:
            for task in [here[0] for here in self._running]:
                if task is not None:
                    task.abandon()
            tell(
                f"{left} threads of a loader are left behind: a transform has not returned "
                f"{CLOSE_SECONDS:g} s after the loader was closed",
                WARNING,
            )


def _work(
    waiting: SimpleQueue[Task | None],
    owner: weakref.ref[object],
    places: Semaphore,
    running: list[list[Task | None]],
) -> None:
    """Run tasks until None comes, which stays for the other threads."""
    if not places.acquire(blocking=False):
        return
    _thread.owner = owner
    here: list[Task | None] = [None]
    running.append(here)
    while (task := waiting.get()) is not None:
        here[0] = task
        task.run()
        here[0] = None
        del task  # nothing is kept while this waits
    waiting.put(None)


class WorkerThreads:
    """Threads of this process that run jobs; a caller waits for what a job returns.

    It pickles as one whose threads have not begun.

    Args:
        threads: number of threads.
        owner: other threads that wait for these; None: there are none.
    """

    def __init__(self, threads: int, owner: WorkerThreads | None = None) -> None:
        self.threads, self._owner = integer("threads", threads), owner
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._crew: _Crew | None = None
        self.is_closed = False
        _all_of_this_process.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.threads, self._owner)

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
            crew = self._crew = _Crew(self.threads, self._owner or self)
            weakref.finalize(self, crew.waiting.put, None).atexit = False
        crew.start()
        if crew.count:
            crew.waiting.put(task)
        else:
            task.runs_here = True
        if self.is_closed:  # meanwhile, and may have taken it for one of before
            task.cancel()

    def check(self) -> None:
        """Raise Error if the threads have ended, or if this is one of them."""
        if self.is_closed:
            raise Error("this loader is closed")
        owner = _thread.owner
        if owner is not None and owner() is self:
            raise Error(
                "a transform asks the loader whose thread runs it, and would wait for itself: "
                "have it ask Records, or another loader"
            )

    def close(self) -> None:
        """End the threads when each has done its job. May be called twice.

        A job that asks whether it is ``Wanted`` ends soon. One that does not return is left behind
        after ``CLOSE_SECONDS``, with its thread.
        """
        _end([self])


_all_of_this_process: weakref.WeakSet[WorkerThreads] = weakref.WeakSet()


def _end(several: Iterable[WorkerThreads]) -> None:
    """End threads, all at the same time."""
    crews = []
    for threads in several:
        threads.is_closed = True
        if threads._crew is not None and threads._crew.pid == os.getpid():
            crews.append(threads._crew)
    for crew in crews:
        crew.dismiss()
    deadline = monotonic() + CLOSE_SECONDS
    for crew in crews:
        crew.join(deadline)


@atexit.register
def _end_all() -> None:
    """End the threads that are left before what they read from is closed at the process's end."""
    _end(list(_all_of_this_process))


class Wanted:
    """Whether anybody still wants what threads make: asked between two samples.

    Args:
        threads: threads whose end makes it needless.
    """

    __slots__ = ("_threads", "is_given_up")

    def __init__(self, threads: WorkerThreads) -> None:
        self._threads, self.is_given_up = threads, False

    def __call__(self) -> bool:
        """Return whether anybody does."""
        return not (self.is_given_up or self._threads.is_closed)


def checked_ahead(ahead: int) -> int:
    """Return a number of results that may wait; ValueError: it is negative."""
    if (number := integer("ahead", ahead)) < 0:
        raise ValueError(f"ahead must not be negative ({ahead})")
    return number


class Prefetcher:
    """Hands out what jobs return, in order; threads run some of them before the caller asks.

    Args:
        job: what to do for each number from 0 on.
        count: of the numbers; None: without end.
        ahead: results that wait for the caller, beside a job for each thread.
        inline: a caller that comes again at once runs brief jobs itself: to hand one over to a
            thread, and its result back, would take longer.
        wanted: what jobs ask; None: they do not.

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
        wanted: Wanted | None = None,
    ) -> None:
        self._threads, self._job, self._ahead = threads, job, checked_ahead(ahead)
        self._wanted = wanted
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
            result, seconds = task.result(), task.seconds
        except (Ended, CalledOffError):
            raise
        except Exception:
            self.handed_out += 1
            raise
        finally:
            del task  # else it would know this frame by its error, and live on
        self._judge(seconds, away)
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
        if self._wanted is not None:
            self._wanted.is_given_up = True
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()
