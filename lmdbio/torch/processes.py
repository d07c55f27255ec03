"""Processes: workers that make batches of values which this process reads.

A thread of the loader reads a batch's values, takes a worker that is free, hands the values over
in memory that both have mapped, and waits for the batch, whose arrays lie in such memory as well.
So order, reading ahead, states and Ctrl-C are those of threads; and nothing has a name that could
be left behind.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, LifoQueue
from time import monotonic
from typing import Any

from lmdbio.errors import Error
from lmdbio.records.pending import Pending
from lmdbio.system import fork
from lmdbio.torch.draws import Source
from lmdbio.torch.samples import CalledOffError
from lmdbio.torch.worker import (
    END_SECONDS,
    LOOK_SECONDS,
    EndedError,
    UnbegunError,
    UnfitError,
    Values,
    Worker,
)
from lmdbio.torch.worker_process import Work

__all__ = ["PooledJobs", "WorkerProcesses"]

#: Those that Python ends and joins at its own end; in a child of the user's they are none of its.
_children: set[Any] = getattr(multiprocessing.process, "_children", set())

#: Seconds in which a worker answers for the first time, at least, and of what a thread has taken.
PATIENCE_SECONDS, PATIENCE_TIMES = 10.0, 20.0
#: The same where ``worker_init_fn`` comes first, which may load a model.
BEGIN_SECONDS = 600.0


class WorkerProcesses:
    """The worker processes of a loader; they begin when they are first needed.

    It pickles as one whose processes have not begun.

    Args:
        work: Work that they do with values.

    Attributes:
        refusal: reason why there are none; "": there may be some.
        is_needed: whether nobody else may make batches: ``worker_init_fn`` begins the workers.
        is_proven: a worker has made a batch.
    """

    def __init__(self, work: Work) -> None:
        self._work, self.is_needed = work, work.begin is not None
        self.refusal, self.is_proven, self.is_closed = "", False, False
        self._ended = ""  # reason why the last worker that has ended did so
        self._all: list[Worker] = []
        self._free: LifoQueue[Worker] = LifoQueue()
        #: The longest time that a thread took for a batch.
        self.slowest = 0.0
        fork.register(self)

    def _before_fork(self) -> None:
        for worker in self._all:
            worker.retire()

    def _after_fork_in_parent(self) -> None:
        """Nothing was locked."""

    def _after_fork(self) -> None:
        """Know nothing of the parent's workers, which this child keeps from ending otherwise."""
        workers, self._all, self._free = self._all, [], LifoQueue()
        for worker in workers:
            worker.connection.close()
            _children.discard(worker.process)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._work,)

    def has(self, count: int) -> bool:
        """Return whether so many are there."""
        return self._are_there() and len(self._all) >= count

    def _are_there(self) -> bool:
        return all(one.process.is_alive() and not one.has_ended for one in self._all)

    def start(self, count: int) -> None:
        """Begin as many as are missing, while no thread of the loader's runs a job.

        Where that cannot be, ``refusal`` says why.
        """
        if not self._are_there():
            self._end_all()
            self._ended = "the worker processes of a Loader have ended"
        try:
            while len(self._all) < count:
                others = [one.connection for one in self._all]
                worker = Worker(len(self._all), count, self._work, others)
                self._free.put(worker)  # first: Ctrl-C may come between the two
                self._all.append(worker)
        except (OSError, AssertionError, pickle.PicklingError, TypeError, AttributeError) as error:
            self.refuse(f"worker processes cannot begin: {error}")

    def refuse(self, why: str) -> None:
        """Have no processes any more.

        Args:
            why: reason in words.
        """
        self.refusal = why
        self._end_all()

    def make(
        self,
        pending: Pending,
        source: Source | None,
        keys: Callable[[int], Any] | None,
        describe: Callable[[int], str],
        is_wanted: Callable[[], bool],
    ) -> tuple[Any, int]:
        """Return a batch that a worker made, and how many samples were left out.

        Args:
            pending: the batch's records under way.
            source: Source of random draws.
            keys: function from an index to a key; None: no keys are asked for.
            describe: words for a sample's origin, by its index.
            is_wanted: whether anybody still wants the batch.

        Raises:
            CalledOffError: nobody does.
            Error: the worker has ended.
            OSError, Error: the records cannot be read.
            What the worker raised.
        """
        values = Values(pending)
        named = None if keys is None else list(map(keys, values.indices.tolist()))
        worker = self._take(is_wanted)
        try:
            patience = max(PATIENCE_SECONDS, PATIENCE_TIMES * self.slowest)
            if self.is_needed:
                patience = BEGIN_SECONDS
            return worker.make(values, source, named, describe, is_wanted, patience)
        except EndedError as error:
            if self.is_closed:
                raise CalledOffError("this loader is closed") from None
            self._ended = str(error)
            raise
        finally:
            if worker in self._all and not worker.has_ended:
                self._free.put(worker)
            else:
                worker.connection.close()

    def _take(self, is_wanted: Callable[[], bool]) -> Worker:
        while True:
            try:
                return self._free.get(timeout=LOOK_SECONDS)
            except Empty:
                if self.is_closed or not is_wanted():
                    raise CalledOffError("this loader is closed") from None
                if self.refusal or all(worker.has_ended for worker in self._all):
                    raise Error(self.refusal or self._ended) from None

    def close(self) -> None:
        """End the processes. May be called twice."""
        self.is_closed = True
        self._end_all()

    def _end_all(self) -> None:
        workers, free = self._all, self._free
        self._all, self._free = [], LifoQueue()
        for worker in workers:
            worker.process.terminate()
        deadline = monotonic() + END_SECONDS
        for worker in workers:
            worker.process.join(max(0.0, deadline - monotonic()))
            if worker.process.exitcode is None:
                worker.process.kill()  # a stopped one, or one that has caught SIGTERM
                worker.process.join()
        with suppress(Empty):
            while True:
                free.get_nowait().connection.close()  # who uses another one closes it


class PooledJobs:
    """Jobs of an epoch by worker processes, or here, where those cannot do one.

    Args:
        pool: the processes.
        by_process, by_thread: functions from a job's number to its batch.
    """

    def __init__(
        self,
        pool: WorkerProcesses,
        by_process: Callable[[int], Any],
        by_thread: Callable[[int], Any],
    ) -> None:
        self._pool, self._by_process, self._by_thread = pool, by_process, by_thread

    @property
    def refusal(self) -> str:
        """Reason why there are no processes; "": there may be some."""
        return self._pool.refusal

    def has(self, count: int) -> bool:
        """Return whether so many are there."""
        return self._pool.has(count)

    def start(self, count: int) -> None:
        """Begin as many as are missing; ``refusal`` says why, where that cannot be."""
        self._pool.start(count)

    def here(self, number: int) -> Any:
        """Return the batch of a number, made by this thread.

        Raises:
            Error: worker processes alone may make it, and there are none.
        """
        if self._pool.is_needed:
            raise Error(f"worker_init_fn= needs worker processes: {self._pool.refusal}")
        begun = monotonic()
        batch = self._by_thread(number)
        self._pool.slowest = max(self._pool.slowest, monotonic() - begun)
        return batch

    def job(self, number: int) -> Any:
        """Return the batch of a number, made by a process, or here where none of them can."""
        pool = self._pool
        if pool.refusal:
            return self.here(number)
        try:
            batch = self._by_process(number)
        except (CalledOffError, UnbegunError):
            raise
        except Exception as error:
            is_unfit = isinstance(error, UnfitError) or pool.refusal or not pool.is_proven
            if not is_unfit or pool.is_closed or pool.is_needed:
                raise
            batch = self._by_thread(number)  # raises as well, where it is the sample's fault
            pool.refuse(pool.refusal or f"in a worker process: {type(error).__name__}: {error}")
            return batch
        pool.is_proven = True
        return batch
