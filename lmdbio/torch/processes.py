"""Processes: workers that make batches of values which this process reads.

A thread of the loader reads a batch's values, takes a worker that is free, hands the values over
in memory that both have mapped, and waits for the batch, whose arrays lie in such memory as well.
So order, reading ahead, states and Ctrl-C are those of threads; and nothing has a name that could
be left behind.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from queue import Empty, LifoQueue
from time import monotonic
from typing import Any, cast
from warnings import catch_warnings, simplefilter

import numpy as np

from lmdbio import _core
from lmdbio.batch import Batch
from lmdbio.errors import Error
from lmdbio.records.pending import Pending, PendingBatch
from lmdbio.system.log import WARNING, tell
from lmdbio.torch.draws import Source
from lmdbio.torch.samples import CalledOffError, add_note
from lmdbio.torch.transfer import Segment, unpack
from lmdbio.torch.worker_process import FLAG_BYTES, Order, Reply, Work, serve

__all__ = ["PooledJobs", "WorkerProcesses"]

#: Seconds between two looks at whether a batch is still wanted.
LOOK_SECONDS = 0.05
#: Seconds after which a worker that is stopped is ended, and one that works at a batch is told of.
STOPPED_SECONDS, SLOW_SECONDS = 3.0, 60.0
#: Seconds that a worker has to end by itself, before it is killed.
END_SECONDS = 1.0
#: The segment of a worker's values is made this much larger than what was needed.
SPARE, PART_BYTES = 1.25, 1 << 20
#: Values that take up so much of the memory around them, at least, are copied with it.
DENSE = 0.8


class _EndedError(Error):
    """A worker process is no longer there."""


class _RemoteTraceError(Exception):
    """The traceback of an exception in a worker, as text: the cause of the one that is raised."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class _Worker:
    """One worker process, asked by one thread at a time.

    Args:
        number, count: number of this worker, and of all.
        work: what it does with values.
        others: connections to the workers that are there already.

    Attributes:
        has_ended: a thread has seen that it is no longer there.

    Raises:
        OSError, AssertionError, pickle.PicklingError, TypeError, AttributeError: this process can
            have no such child, or ``work`` cannot be handed over to it.
    """

    def __init__(self, number: int, count: int, work: Work, others: list[Connection]) -> None:
        context = multiprocessing.get_context()
        self.number = number
        self.connection, theirs = context.Pipe()
        copied = [*others, self.connection] if context.get_start_method() == "fork" else []
        self.process = context.Process(
            target=serve,
            args=(theirs, copied, number, count, work),
            name=f"lmdbio-worker-{number}",
            daemon=True,
        )
        try:
            with _without_interrupts():
                self.process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()
        self.has_ended = False
        self._input: Segment | None = None
        self._outputs: dict[int, Segment] = {}
        #: Segments that no array looks into any more; references tell, in whatever thread.
        self._freed: deque[int] = deque()
        self._lent: dict[int, weakref.ref[Any]] = {}

    def __str__(self) -> str:
        return f"worker process {self.number} (pid {self.process.pid}) of a Loader"

    def make(
        self,
        begun: _Values,
        source: Source | None,
        keys: list[Any] | None,
        describe: Callable[[int], str],
        is_wanted: Callable[[], bool],
    ) -> tuple[Any, int]:
        """Return the batch of some values, and how many samples were left out.

        Args:
            begun: the values.
            source: what random draws follow from.
            keys: key of each; None: they are not asked for.
            describe: words for a sample's origin, by its index.
            is_wanted: whether anybody still wants the batch.

        Raises:
            CalledOffError: nobody does.
            Error: the worker has ended.
            What the worker raised.
        """
        freed = [self._freed.popleft() for _ in range(len(self._freed))]
        size = self._take_in(begun)
        places = (begun.offsets, begun.lengths, begun.values)
        try:
            self.connection.send(Order(begun.indices, source, *places, keys, size, freed))
            if size:
                assert self._input is not None and self.process.pid is not None
                send_handle(self.connection, self._input.fd, self.process.pid)
                self._input.close_fd()
            while not isinstance(answer := self._receive(is_wanted), Reply):
                self.connection.send(describe(answer))
            return self._read(answer), answer.left_out
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._end(self._how_it_ended()) from None

    def _take_in(self, begun: _Values) -> int:
        """Copy values to the worker's memory, and return the size of that if it is new."""
        needed = FLAG_BYTES + begun.size
        is_new = self._input is None or self._input.size < needed
        if is_new:
            whole = -(-int(needed * SPARE) // PART_BYTES) * PART_BYTES
            self._input = Segment.make(whole)
        assert self._input is not None
        self._input.view[0] = 0
        begun.copy_to(self._input.view, FLAG_BYTES)
        return self._input.size if is_new else 0

    def _receive(self, is_wanted: Callable[[], bool]) -> Any:
        sentinel, begun, is_told = self.process.sentinel, monotonic(), False
        moved = begun  # when it was seen not to be stopped
        while True:
            ready = wait([self.connection, sentinel], LOOK_SECONDS)
            if self.connection in ready:
                return self.connection.recv()
            if ready:
                raise EOFError
            if self._input is not None and not is_wanted():
                self._input.view[0] = 1  # it answers before the next sample
            now = monotonic()
            moved = moved if self._is_stopped() else now
            if now - moved > STOPPED_SECONDS:
                self.process.kill()
                raise self._end(f"was stopped for {STOPPED_SECONDS:g} s, and is ended")
            if now - begun > SLOW_SECONDS and not is_told:
                is_told = True
                tell(f"{self} has been at one batch for {SLOW_SECONDS:g} s", WARNING)

    def _is_stopped(self) -> bool:
        """Return whether a signal has stopped it, so that it may never answer."""
        try:
            state = Path(f"/proc/{self.process.pid}/stat").read_text()
        except OSError:
            return False
        return state.rpartition(")")[2].split()[0] == "T"

    def _read(self, reply: Reply) -> Any:
        if reply.size:
            assert reply.segment is not None
            self._outputs[reply.segment] = Segment(recv_handle(self.connection), reply.size)
            self._outputs[reply.segment].close_fd()
        for number in reply.dropped:
            self._outputs.pop(number, None)
        if reply.is_error:
            raise self._failure(reply)
        if reply.segment is None:
            return unpack(reply.pickled, reply.places, memoryview(b""))
        segment = self._outputs[reply.segment]
        exporter = _core.lend(segment.address, segment.size, segment)
        gone = partial(_let_go, self._freed, reply.segment)
        self._lent[reply.segment] = weakref.ref(exporter, gone)
        return unpack(reply.pickled, reply.places, memoryview(exporter).cast("B"))

    def _failure(self, reply: Reply) -> BaseException:
        error: Any = None
        if reply.pickled:
            with suppress(Exception):
                error = pickle.loads(reply.pickled)
        if not isinstance(error, BaseException):
            error = Error(f"an exception that cannot be pickled was raised in {self}")
        if not isinstance(error, CalledOffError):
            error.__cause__ = _RemoteTraceError(reply.trace)
            add_note(error, f"raised in {self}")
        return cast(BaseException, error)

    def _end(self, how: str) -> _EndedError:
        """Return what to raise when it is no longer there."""
        self.has_ended = True
        return _EndedError(f"{self} {how}")

    def _how_it_ended(self) -> str:
        self.process.join(END_SECONDS)
        code = self.process.exitcode
        if code is None:
            return "has closed its connection"
        if code >= 0:
            return f"has ended with exit status {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"


def _let_go(freed: deque[int], number: int, _: object) -> None:
    freed.append(number)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Have Ctrl-C wait: a child that it strikes while it begins would print a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with catch_warnings():
            # Python warns of forks beside threads: of the loader's own, none holds a lock now.
            simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Values:
    """The values of a batch, read.

    Args:
        pending: records under way.

    Attributes:
        indices: index of each sample.
        offsets, lengths: place of each, in the memory that they are copied to; None: ``values``.
        values: the values, where they are no bytes of one file; else None.
        size: bytes that are copied.

    Raises:
        OSError, Error: a value cannot be read.
    """

    def __init__(self, pending: Pending) -> None:
        self.indices = np.asarray(pending.indices, np.uint64)
        self.offsets: Any = None
        self.lengths: Any = None
        self.values: list[Any] | None = None
        self._batch: Batch | None = None
        self._rows: Any = None
        self.size = 0
        if not isinstance(pending, PendingBatch):
            self.values = list(pending.values())
            return
        self._batch = batch = pending.batch()
        self.lengths = batch.lengths
        starts, bytes_all = batch.offsets, int(self.lengths.sum())
        first = int(starts.min()) if len(starts) else 0
        span = int((starts + self.lengths).max()) - first if len(starts) else 0
        if span * DENSE <= bytes_all:
            self._rows = [(first, first + span, 0)]
            self.size, self.offsets = span, starts - np.uint64(first) + np.uint64(FLAG_BYTES)
            return
        ends = np.cumsum(self.lengths, dtype=np.uint64)
        places = ends - self.lengths
        self.size, self.offsets = bytes_all, places + np.uint64(FLAG_BYTES)
        stops = (starts + self.lengths).tolist()
        self._rows = list(zip(starts.tolist(), stops, places.tolist(), strict=True))

    def copy_to(self, view: memoryview, offset: int) -> None:
        """Copy the values to memory, from an offset on."""
        if self._batch is None:
            return
        buffer = self._batch.buffer
        into = np.frombuffer(view, np.uint8)
        for begin, end, at in self._rows:
            into[offset + at : offset + at + end - begin] = buffer[begin:end]
        self._batch = None  # its memory is needed no longer


class WorkerProcesses:
    """The worker processes of a loader; they begin when they are first needed.

    It pickles as one whose processes have not begun.

    Args:
        work: what they do with values.

    Attributes:
        refusal: reason why there are none; "": there may be some.
        is_proven: a worker has made a batch.
    """

    def __init__(self, work: Work) -> None:
        self._work, self._pid = work, os.getpid()
        self.refusal, self.is_proven, self.is_closed = "", False, False
        self._ended = ""  # reason why the last worker that has ended did so
        self._all: list[_Worker] = []
        self._free: LifoQueue[_Worker] = LifoQueue()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._work,)

    def has(self, count: int) -> bool:
        """Return whether so many are there, in this process."""
        return self._pid == os.getpid() and self._are_there() and len(self._all) >= count

    def _are_there(self) -> bool:
        return all(one.process.is_alive() and not one.has_ended for one in self._all)

    def start(self, count: int) -> None:
        """Begin as many as are missing, while no thread of the loader's runs a job.

        Where that cannot be, ``refusal`` says why.
        """
        if self._pid != os.getpid():
            self._all, self._free, self._pid = [], LifoQueue(), os.getpid()
        if not self._are_there():
            self._end_all()
            self._ended = "the worker processes of a Loader have ended"
        try:
            while len(self._all) < count:
                others = [one.connection for one in self._all]
                worker = _Worker(len(self._all), count, self._work, others)
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
            source: what random draws follow from.
            keys: function from an index to a key; None: no keys are asked for.
            describe: words for a sample's origin, by its index.
            is_wanted: whether anybody still wants the batch.

        Raises:
            CalledOffError: nobody does.
            Error: the worker has ended.
            OSError, Error: the records cannot be read.
            What the worker raised.
        """
        values = _Values(pending)
        named = None if keys is None else list(map(keys, values.indices.tolist()))
        worker = self._take(is_wanted)
        try:
            return worker.make(values, source, named, describe, is_wanted)
        except _EndedError as error:
            if self.is_closed:
                raise CalledOffError("this loader is closed") from None
            self._ended = str(error)
            raise
        finally:
            if worker in self._all and not worker.has_ended:
                self._free.put(worker)
            else:
                worker.connection.close()

    def _take(self, is_wanted: Callable[[], bool]) -> _Worker:
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
        if self._pid != os.getpid():
            return
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
    """Jobs of an epoch by worker processes; the first one also shows whether they can do it.

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

    def job(self, number: int) -> Any:
        """Return the batch of a number, made by a process, or here where none of them can."""
        pool = self._pool
        if pool.refusal:
            return self._by_thread(number)
        try:
            batch = self._by_process(number)
        except CalledOffError:
            raise
        except Exception as error:
            if (pool.is_proven and not pool.refusal) or pool.is_closed:
                raise
            batch = self._by_thread(number)  # raises as well, where it is the sample's fault
            pool.refuse(pool.refusal or f"in a worker process: {type(error).__name__}: {error}")
            return batch
        pool.is_proven = True
        return batch
