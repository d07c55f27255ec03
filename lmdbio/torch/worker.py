"""Worker: one worker process, as the loader's process sees it, and the values that it is sent.

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
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
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

__all__ = [
    "END_SECONDS",
    "LOOK_SECONDS",
    "EndedError",
    "UnbegunError",
    "UnfitError",
    "Values",
    "Worker",
]

#: Seconds between two looks at whether a batch is still wanted.
LOOK_SECONDS = 0.05
#: Seconds after which a worker that is stopped is ended, and one that works at a batch is told of.
STOPPED_SECONDS, SLOW_SECONDS = 3.0, 60.0
#: Seconds that a worker has to end by itself, before it is killed.
END_SECONDS = 1.0
#: The segment of a worker's values is made this much larger than what was needed.
SPARE, PART_BYTES = 1.25, 1 << 20
#: Batches of one worker that lie in its memory at once; more are copied.
LENT_MAX = 16
#: Values that take up so much of the memory around them, at least, are copied with it.
DENSE = 0.8


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
        work: Work that it does with values.
        others: connections to the workers that are there already.

    Attributes:
        has_ended: a thread has seen that it is no longer there.
        is_proven: whether it has answered once.

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
        patience: float,
    ) -> tuple[Any, int]:
        """Return the batch of some values, and how many samples were left out.

        Args:
            begun: the values.
            source: Source of random draws.
            keys: key of each; None: they are not asked for.
            describe: words for a sample's origin, by its index.
            is_wanted: whether anybody still wants the batch.
            patience: seconds in which a worker that has never answered must do so.

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
            while not isinstance(answer := self._receive(is_wanted, patience), Reply):
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
            whole = -(-int(needed * SPARE) // PART_BYTES) * PART_BYTES
            self._input = Segment.make(whole)
        assert self._input is not None
        self._input.view[0] = 0
        begun.copy_to(self._input.view, FLAG_BYTES)
        return self._input.size if is_new else 0

    def _receive(self, is_wanted: Callable[[], bool], patience: float) -> Any:
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
            if now - begun > patience and not self.is_proven:
                self.process.kill()
                self.has_ended = True
                raise UnfitError(
                    f"{self} has not answered for {patience:.0f} s: it may wait for a lock that "
                    "a thread of this program held when it began"
                )
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


class Values:
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
