"""Threads of this process that run jobs, which others wait for.

Ctrl-C may strike between any two steps, so each step may be taken again: a job that was handed to
the threads twice runs once.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore, Thread, current_thread, get_ident, local
from time import monotonic, thread_time
from types import TracebackType
from typing import Any

from lmdbio.errors import Error
from lmdbio.system import fork
from lmdbio.system.log import WARNING, log
from lmdbio.torch.samples import CalledOffError

__all__ = ["Task", "Wanted", "WorkerThreads"]

#: How long the end waits for a transform that does not return, as torch waits for its workers.
CLOSE_SECONDS = 5.0


class _Thread(local):
    """The state of one thread.

    Attributes:
        owner: object that it may not wait for; None: it is none of a crew's threads.
    """

    owner: weakref.ref[object] | None = None


_thread = _Thread()

#: How long a thread keeps Python's lock while another one waits for it: Python's own default, and
#: that while threads run jobs. A training's step takes the lock at each of its operations, and
#: waits so long wherever a transform holds it. Beside one thread a loop got 1.18 times as many
#: batches with the shorter one (2 cores, median of 4); with a third of it no more, and threads
#: alone lost.
SWITCH_SECONDS, SWITCH_SECONDS_SHORT = 5e-3, 1e-3

#: A brief job that took so long on a thread has waited for more than Python's lock: the storage.
WAITED_SECONDS = 2e-3


class Task:
    """A job that one thread runs, and its result, which another waits for.

    Args:
        job: function that returns the result.

    Attributes:
        runs_here: whether the thread that waits for it runs it, for there are no others.
        seconds: processor time that it took, seconds; or time in all, if it waited for longer than
            for Python's lock; 0 before its end.
        wall, busy: seconds from its begin to its end, and the part of them in which its thread
            used a processor.
    """

    def __init__(self, job: Callable[[], Any]) -> None:
        self._job: Callable[[], Any] | None = job
        self._result: Any = None
        self._error: BaseException | None = None
        self._turn, self._settled = Lock(), Lock()
        self._is_done, self.seconds, self.wall, self.busy = False, 0.0, 0.0, 1.0
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
        wall, used = monotonic() - begun, thread_time() - begun_here
        self.wall, self.busy = wall, min(1.0, used / wall) if wall > 0 else 1.0
        self._end(result, failure, used if wall < WAITED_SECONDS else wall)
        # The error's frames know this one, by which it would know itself, and live on.
        del self, result, failure

    def _end(self, result: Any, error: BaseException | None, seconds: float = 0.0) -> None:
        if self._settled.acquire(False):
            self._result, self._error, self.seconds = result, error, seconds
            self._job, self._is_done = None, True
            self._under_way.release()

    def result(self) -> Any:
        """Return what the job returned, or raise what it raised, once it is done.

        Raises:
            Error: it was called off.
        """
        if self.runs_here:
            self.run()
        if not self._is_done:
            self._under_way.acquire()  # nobody else waits for this task, so it need not be free
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


class _ShortSwitches:
    """Has the threads of this process hand on Python's lock sooner, while some of them run jobs.

    An interval that the program has set (``sys.setswitchinterval``) stays.
    """

    def __init__(self) -> None:
        self._after_fork()
        fork.register(self)

    def _after_fork(self) -> None:
        """Begin anew: another thread of the parent may hold its lock for ever."""
        self._lock, self._threads = Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            self._threads += 1
            if self._threads == 1 and sys.getswitchinterval() == SWITCH_SECONDS:
                sys.setswitchinterval(SWITCH_SECONDS_SHORT)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._threads -= 1
            if not self._threads and sys.getswitchinterval() == SWITCH_SECONDS_SHORT:
                sys.setswitchinterval(SWITCH_SECONDS)


_short_switches = _ShortSwitches()


class _Leave:
    """Asks the thread that takes it to end."""


_LEAVE = _Leave()


def _work(
    waiting: SimpleQueue[Task | _Leave | None],
    owner: weakref.ref[object],
    places: Semaphore,
    running: dict[int, Task | None],
) -> None:
    """Run tasks until this thread is to leave, or None comes, which stays for the others."""
    if not places.acquire(blocking=False):
        return
    _thread.owner = owner
    here = get_ident()
    with _short_switches:
        while (task := waiting.get()) is not None:
            if isinstance(task, _Leave):
                break
            running[here] = task
            task.run()
            running[here] = None
            del task  # nothing is kept while this waits
        else:
            waiting.put(None)
    running.pop(here, None)


class WorkerThreads:
    """Threads of this process that run jobs; a caller waits for what a job returns.

    It pickles as one whose threads have not begun, and in a child that is forked they have not.

    Args:
        threads: number of threads, at least 1.
    """

    def __init__(self, threads: int) -> None:
        self.threads, self.is_closed = threads, False
        self._after_fork()
        fork.register(self)
        _all_of_this_process.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.threads,)

    def _after_fork(self) -> None:
        """Begin without threads: a child has none of its parent's."""
        self._count, self._started = self.threads, 0  # of those that the system gives
        self._waiting: SimpleQueue[Task | _Leave | None] = SimpleQueue()
        self._places = Semaphore(self.threads)
        self._all: list[Thread] = []
        #: The task of each thread, by its identifier; None: it is between two of them.
        self._running: dict[int, Task | None] = {}
        weakref.finalize(self, self._waiting.put, None).atexit = False

    def begin(self, task: Task) -> None:
        """Have a thread run a task, which the first task of a process starts.

        One that was begun already runs once all the same.

        Raises:
            Error: ``close`` was called.
        """
        self.check()
        self._start()
        if self._count:
            self._waiting.put(task)
        else:
            task.runs_here = True
        if self.is_closed:  # meanwhile, and may have taken it for one of before
            task.cancel()

    def _start(self) -> None:
        """Start those threads that are not there; one too many, after Ctrl-C, ends at once.

        Where the system gives fewer, those do all the work, or the thread that waits for a task.
        """
        while self._started < self._count:
            thread = Thread(
                target=_work,
                args=(self._waiting, weakref.ref(self), self._places, self._running),
                name="lmdbio-loader",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError as error:
                log(
                    f"a loader has {self._started} of {self._count} threads: {error}"
                    + ("" if self._started else "; the program's own makes its batches"),
                    WARNING,
                )
                self._count = self._started
                break
            self._all = [one for one in self._all if one.is_alive()]
            self._all.append(thread)
            self._started += 1

    def resize(self, threads: int) -> None:
        """Have another number of threads, at least 1, run the jobs that nobody has begun.

        Ctrl-C between two steps leaves one thread too many at most, and never one too few.
        """
        self.threads = threads
        while self._count < threads:
            self._places.release()
            self._count += 1
        self._count = threads
        while self._started > threads:
            self._started -= 1
            self._waiting.put(_LEAVE)

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

    def _dismiss(self) -> None:
        """Call off what nobody has begun, and have the threads end after what they do."""
        self.is_closed = True
        try:
            while True:
                task = self._waiting.get_nowait()
                if isinstance(task, Task):
                    task.cancel()
        except Empty:
            self._waiting.put(None)

    def _join(self, deadline: float) -> None:
        """Wait until every thread has ended, or a moment of ``monotonic`` has come."""
        for thread in self._all:
            if thread is not current_thread():
                thread.join(max(0.0, deadline - monotonic()))
        left = sum(thread.is_alive() for thread in self._all)
        if left and monotonic() >= deadline:
            for task in list(self._running.values()):
                if task is not None:
                    task.abandon()
            log(
                f"{left} threads of a loader are left behind: a transform has not returned "
                f"{CLOSE_SECONDS:g} s after the loader was closed",
                WARNING,
            )


_all_of_this_process: weakref.WeakSet[WorkerThreads] = weakref.WeakSet()


def _end(several: list[WorkerThreads]) -> None:
    """End threads, all at the same time."""
    for threads in several:
        threads._dismiss()
    deadline = monotonic() + CLOSE_SECONDS
    for threads in several:
        threads._join(deadline)


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
