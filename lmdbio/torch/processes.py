"""Processes: workers that make batches of values which this process reads.

A thread of the loader reads a batch's values, takes a worker that is free, hands the values over
in memory that both have mapped, and waits for the batch, whose arrays lie in such memory as well.
So order, reading ahead, states and Ctrl-C are those of threads; and nothing has a name that could
be left behind.

values, read -> the worker's input, which both have mapped -> Order -> Reply -> the batch, whose
arrays lie in memory of the worker's, which both have mapped
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from queue import Empty, LifoQueue
from time import monotonic
from typing import Any, TypeVar, cast
from warnings import catch_warnings, simplefilter

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.system import fork
from lmdbio.system.log import WARNING, log
from lmdbio.torch.draws import Source
from lmdbio.torch.samples import CalledOffError, SampleMaker, add_note
from lmdbio.torch.whole import Recipe
from lmdbio.torch.worker_process import (
    FLAG_BYTES,
    Order,
    Reply,
    Segment,
    Values,
    serve,
    unpack,
)

__all__ = ["WorkerProcesses"]

T = TypeVar("T")

#: Those that Python ends and joins at its own end; in a child of the user's they are none of its.
_children: set[Any] = getattr(multiprocessing.process, "_children", set())

#: Seconds in which a worker answers for the first time, at least, and of what a thread has taken.
TRIAL_SECONDS, TRIAL_TIMES = 10.0, 20.0
#: The same where ``worker_init_fn`` comes first, which may load a model.
BEGIN_SECONDS = 600.0
#: Seconds between two looks at whether a batch is still wanted.
POLL_SECONDS = 0.05
#: Seconds after which a worker that is stopped is ended, and one that works at a batch is told of.
STOPPED_SECONDS, SLOW_SECONDS = 3.0, 60.0
#: Seconds that a worker has to end by itself, before it is killed.
END_SECONDS = 1.0
#: Batches of one worker that lie in its memory at once; more are copied.
LENT_MAX = 16


class EndedError(Error):
    """A worker process is no longer there."""


class UnbegunError(Error):
    """``worker_init_fn`` has raised an exception."""


class UnfitError(Error):
    """A worker process cannot do what a thread may be able to do."""


class _RemoteTraceError(Exception):
    """The traceback of an exception in a worker, as text: the cause of the one that is raised."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class Worker:
    """One worker process, asked by one thread at a time.

    Args:
        number, count: number of this worker, and of all.
        recipe: Recipe of the batches.
        others: connections to the workers that are there already.

    Attributes:
        has_ended: a thread has seen that it is no longer there.
        is_proven: whether it has answered once.

    Raises:
        OSError, AssertionError, pickle.PicklingError, TypeError, AttributeError: this process can
            have no such child, or the recipe cannot be handed over to it.
    """

    def __init__(self, number: int, count: int, recipe: Recipe, others: list[Connection]) -> None:
        context = multiprocessing.get_context()
        self.number = number
        self.connection, theirs = context.Pipe()
        copied = [*others, self.connection] if context.get_start_method() == "fork" else []
        self.process = context.Process(
            target=serve,
            args=(theirs, copied, number, count, recipe),
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
        self.has_ended = self.is_proven = False
        self._input: Segment | None = None
        self._outputs: dict[int, Segment] = {}
        #: Segments that no array looks into any more; references tell, in whatever thread.
        self._freed: deque[int] = deque()
        self._lent: dict[int, weakref.ref[Any]] = {}
        self._retired: deque[int] = deque()

    def __str__(self) -> str:
        return f"worker process {self.number} (pid {self.process.pid}) of a Loader"

    def make(
        self,
        begun: Values,
        source: Source | None,
        keys: list[Any] | None,
        describe: Callable[[int], str],
        is_wanted: Callable[[], bool],
        trial_seconds: float,
    ) -> tuple[Any, int]:
        """Return the batch of some values, and how many samples were left out.

        Args:
            begun: the values.
            source: Source of random draws.
            keys: key of each; None: they are not asked for.
            describe: words for a sample's origin, by its index.
            is_wanted: whether anybody still wants the batch.
            trial_seconds: seconds in which a worker that has never answered must do so.

        Raises:
            CalledOffError: nobody does.
            Error: the worker has ended, or does not answer, or cannot send its batch.
            What the worker raised.
        """
        freed = [self._freed.popleft() for _ in range(len(self._freed))]
        # After those: a thread that lets go of a segment after a fork finds it retired by then.
        retired = [self._retired.popleft() for _ in range(len(self._retired))]
        size = self._take_in(begun)
        places = (begun.offsets, begun.lengths, begun.values)
        try:
            self.connection.send(Order(begun.indices, source, *places, keys, size, freed, retired))
            if size:
                assert self._input is not None and self.process.pid is not None
                send_handle(self.connection, self._input.fd, self.process.pid)
                self._input.close_fd()
            while not isinstance(answer := self._receive(is_wanted, trial_seconds), Reply):
                self.connection.send(describe(answer))
            self._take_out(answer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise self._end(self._how_it_ended()) from None
        self.is_proven = True
        return self._read(answer), answer.left_out

    def retire(self) -> None:
        """Use no segment again that is lent now: a child that is forked looks at them, too."""
        lent = list(self._lent.items())  # threads go on
        self._retired.extend(number for number, exporter in lent if exporter() is not None)

    def _take_in(self, begun: Values) -> int:
        """Copy values to the worker's memory, and return the size of that if it is new."""
        needed = FLAG_BYTES + begun.size
        is_new = self._input is None or self._input.size < needed
        if is_new:
            self._input = Segment.make(needed)
        assert self._input is not None
        self._input.view[0] = 0
        begun.copy_to(self._input.address + FLAG_BYTES)
        return self._input.size if is_new else 0

    def _receive(self, is_wanted: Callable[[], bool], trial_seconds: float) -> Any:
        sentinel, begun, is_reported = self.process.sentinel, monotonic(), False
        moved = begun  # when it was seen not to be stopped
        while True:
            ready = wait([self.connection, sentinel], POLL_SECONDS)
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
            if now - begun > trial_seconds and not self.is_proven:
                self.process.kill()
                self.has_ended = True
                raise UnfitError(
                    f"{self} has not answered for {trial_seconds:.0f} s: it may wait for a lock "
                    "that a thread of this program held when it began"
                )
            if now - begun > SLOW_SECONDS and not is_reported:
                is_reported = True
                log(f"{self} has been at one batch for {SLOW_SECONDS:g} s", WARNING)

    def _is_stopped(self) -> bool:
        """Return whether a signal has stopped it, so that it may never answer."""
        try:
            state = Path(f"/proc/{self.process.pid}/stat").read_text()
        except OSError:
            return False
        return state.rpartition(")")[2].split()[0] == "T"

    def _take_out(self, reply: Reply) -> None:
        """Take notice of the worker's segments: a new one, and those that it has no longer."""
        if reply.size:
            assert reply.segment is not None
            self._outputs[reply.segment] = Segment(recv_handle(self.connection), reply.size)
            self._outputs[reply.segment].close_fd()
        for number in reply.dropped:
            self._outputs.pop(number, None)

    def _read(self, reply: Reply) -> Any:
        if reply.is_unsendable:
            said = reply.trace.strip().rpartition("\n")[2]
            raise UnfitError(f"a batch cannot be sent: {said}")
        if not reply.is_begun:
            said = reply.trace.strip().rpartition("\n")[2]
            raise UnbegunError(f"worker_init_fn raised {said}") from self._failure(reply)
        if reply.is_error:
            raise self._failure(reply)
        if reply.segment is None:
            return unpack(reply.pickled, reply.places, memoryview(b""))
        segment = self._outputs[reply.segment]
        if sum(lent() is not None for lent in self._lent.values()) >= LENT_MAX:
            end = max(offset + length for offset, length in reply.places)
            copy = memoryview(bytearray(segment.view[:end]))  # a descriptor each would be too many
            self._freed.append(reply.segment)
            return unpack(reply.pickled, reply.places, copy)
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

    def _end(self, how: str) -> EndedError:
        """Return what to raise when it is no longer there."""
        self.has_ended = True
        return EndedError(f"{self} {how}")

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
    freed.append(number)  # who retired it takes no notice


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


class WorkerProcesses:
    """The worker processes of a loader; they begin when they are first needed.

    It pickles as one whose processes have not begun.

    Args:
        recipe: Recipe of the batches.
        maker: maker of the samples that threads make, which knows where each comes from, and
            counts those that are left out.

    Attributes:
        refusal: reason why there are none; "": there may be some.
        is_needed: whether nobody else may make batches: ``worker_init_fn`` begins the workers.
        is_proven: a worker has made a batch.
    """

    def __init__(self, recipe: Recipe, maker: SampleMaker) -> None:
        self._recipe, self._maker = recipe, maker
        self.is_needed = recipe.begin is not None
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
        return type(self), (self._recipe, self._maker)

    def has(self, count: int) -> bool:
        """Return whether so many are there."""
        return self._are_there() and len(self._all) >= count

    def _are_there(self) -> bool:
        are_alike = self._recipe.transform is self._maker.transform  # which may be replaced
        return are_alike and all(one.process.is_alive() and not one.has_ended for one in self._all)

    def start(self, count: int) -> None:
        """Begin as many as are missing, while no thread of the loader's runs a job.

        Where that cannot be, ``refusal`` says why.
        """
        if not self._are_there():
            self._end_all()
            self._ended = "the worker processes of a Loader have ended"
            self._recipe = replace(self._recipe, transform=self._maker.transform)
        try:
            while len(self._all) < count:
                others = [one.connection for one in self._all]
                worker = Worker(len(self._all), count, self._recipe, others)
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

    def make_here(self, make: Callable[[], T]) -> T:
        """Return a batch that this thread makes.

        Args:
            make: function that makes it.

        Raises:
            Error: worker processes alone may make it, and there are none.
            What ``make`` raised.
        """
        if self.is_needed:
            raise Error(f"worker_init_fn= needs worker processes: {self.refusal}")
        begun = monotonic()
        batch = make()
        self.slowest = max(self.slowest, monotonic() - begun)
        return batch

    def attempt(self, send: Callable[[], T], here: Callable[[], T]) -> T:
        """Return a batch that a process makes, or this thread where none of them can.

        Args:
            send: function that has a process make it.
            here: function by which this thread makes it.

        Raises:
            What ``send`` raised, where processes can make batches; else what ``here`` did.
        """
        if self.refusal:
            return here()
        try:
            batch = send()
        except (CalledOffError, UnbegunError):
            raise
        except Exception as error:
            is_unfit = isinstance(error, UnfitError) or self.refusal or not self.is_proven
            if not is_unfit or self.is_closed or self.is_needed:
                raise
            batch = here()  # it raises as well, where it is the sample's fault
            self.refuse(self.refusal or f"in a worker process: {type(error).__name__}: {error}")
            return batch
        self.is_proven = True
        return batch

    def make(
        self,
        read: Any,
        source: Source | None,
        keys: Callable[[int], Any] | None,
        is_wanted: Callable[[], bool],
    ) -> Any:
        """Return a batch that a worker made.

        Args:
            read: the batch's values, as ``Values`` takes them.
            source: Source of random draws.
            keys: function from an index to a key; None: no keys are asked for.
            is_wanted: whether anybody still wants the batch.

        Raises:
            CalledOffError: nobody does.
            Error: the worker has ended.
            What the worker raised.
        """
        values = Values(read)
        named = None if keys is None else list(map(keys, values.indices.tolist()))
        worker = self._take(is_wanted)
        try:
            trial_seconds = max(TRIAL_SECONDS, TRIAL_TIMES * self.slowest)
            if self.is_needed:
                trial_seconds = BEGIN_SECONDS
            made, left_out = worker.make(
                values, source, named, self._maker.where, is_wanted, trial_seconds
            )
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
        self._maker.count_left_out(left_out)
        return self._recipe.collate.pinned(made)

    def _take(self, is_wanted: Callable[[], bool]) -> Worker:
        while True:
            try:
                return self._free.get(timeout=POLL_SECONDS)
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
