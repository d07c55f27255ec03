"""Short letters between the roots of a job, from thread to thread.

One thread of each root sends and receives; no call here waits. Letters travel over a duplicate of
the user's communicator (``_Channel``), made once and kept as long as that communicator lives. So
the end of a Reader needs no other rank: a letter that comes too late carries the number of its
Reader, and the receiver drops it.

When the user frees the communicator, ranks send and take no more letters, also for Readers that
go on. To free the duplicate as well, all ranks must know that no letter is under way. No rank
waits for that: each tells how many letters it has sent, and looks whether all others have told,
whenever it makes another Reader or frees another communicator, and when the process ends.

A thread that expects a letter probes and sleeps: a receive that blocks would burn a core.
"""

from __future__ import annotations

import atexit
import os
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from lmdbio import _core
from lmdbio.share.job import Job
from lmdbio.share.memory import wait_unused

__all__ = [
    "Kind",
    "Letter",
    "Mail",
    "before_finalize",
    "failure_letter",
    "failure_of",
    "next_number",
    "open_mail",
]


class Kind(IntEnum):
    """The subject of a letter."""

    ABORT = 1  # a rank of another node failed
    TOKEN = 2  # the token of a chain: a turn to read (``share.turns``)
    CURSOR = 3  # a place to seek on from (``locate.cursor_walk``)
    DEMAND = 4  # the block up to which a root needs the cursor to go
    WISH = 5  # a root asks for the token


class Letter(NamedTuple):
    """One letter that has come, and the job rank that sent it."""

    kind: Kind
    sender: int
    body: bytes


def failure_letter(rank: int, cause: str) -> bytes:
    """Return the body of a letter that tells which job rank failed, and why."""
    return _FAILURE.pack(rank) + cause.encode("utf-8", "replace")


def failure_of(body: bytes) -> tuple[int, str]:
    """Return (rank, cause) from the body of such a letter."""
    return _FAILURE.unpack_from(body)[0], body[_FAILURE.size :].decode("utf-8", "replace")


_FAILURE = struct.Struct("<I")
_HEAD = struct.Struct("<QB")  # number of the Reader, kind
#: No letter is longer: the longest hold a cursor's place, or three numbers for each root.
LETTER_BYTES_MAX = 1 << 20
#: So many probes find a letter that has come: MPICH looks first, and takes in what has come after.
PROBES = 2
#: Every MPI has so many tags (MPI_TAG_UB is at least 32767). Each Reader has one for letters, and
#: two for rows that roots exchange (``share.exchange``).
TAGS, TAGS_OF_READER = 1 << 15, 4
#: The end of the process waits so long for ranks that free a communicator later, or never.
EXIT_SECONDS_MAX = 1.0


_channels: weakref.WeakSet[_Channel] = weakref.WeakSet()


class _Channel:
    """The duplicate of one communicator, over which the letters of all its Readers travel.

    It counts the letters sent and received, so that none is under way when it ends: an MPI may
    hand an old letter to the communicator that comes next. Threads of several Readers share it.

    Attributes:
        readers: number of Readers so far.
        users: Readers that have not ended.
        exchanges: exchanges of Readers; their messages count as letters (``share.exchange``).
    """

    def __init__(self, size: int, mpi: Any) -> None:
        self.mpi = mpi
        self._pid = os.getpid()
        self.readers = 0
        self.users = 0
        self._made: list[Any] = []  # the duplicate, from when it is made until it is freed
        self._is_closed = False
        self._sent = np.zeros(size, np.int64)
        self._received = np.zeros(size, np.int64)
        self._sending: deque[tuple[Any, bytes]] = deque()
        self._expected = np.zeros(size, np.int64)  # letters that others have sent, once they told
        self._telling: list[Any] = []  # the request of the Ialltoall that tells it
        self._status = mpi.Status()
        self.exchanges: weakref.WeakSet[Any] = weakref.WeakSet()
        self._ended: list[_core.Exchange] = []  # exchanges that left something under way
        # The collector may close a Mail at any moment of any thread, so also of one that is here.
        self._lock = threading.RLock()
        _channels.add(self)

    @property
    def is_open(self) -> bool:
        """Whether letters can be sent and taken."""
        return not (self._is_closed or _is_over or self.mpi.Is_finalized())

    @property
    def communicator(self) -> Any:
        """The duplicate."""
        return self._made[0]

    def take_over(
        self, exchange: _core.Exchange, ranks: Sequence[int], step: Callable[[], bool]
    ) -> None:
        """Look after what an exchange has left under way, and count its messages.

        Args:
            exchange: exchange that ends.
            ranks: ranks of its roots.
            step: carries on what is under way; returns whether nothing is any more.
        """
        if self.mpi.Is_finalized():
            return
        with self._lock:
            if not step():
                self._ended.append(exchange)
            for counts, own in zip(exchange.messages(), (self._sent, self._received), strict=True):
                own[list(ranks)] += counts

    def step(self) -> bool:
        """Carry on what exchanges have left under way; return whether there is none left."""
        with self._lock:
            self._ended = [each for each in self._ended if not each.step()]
            return not self._ended

    def send(self, to: int, tag: int, text: bytes) -> None:
        """Send a letter to a rank; return at once. Drop it where the channel is closed."""
        with self._lock:
            if self.is_open:
                request = self._made[0].Isend([text, self.mpi.BYTE], to, tag)
                self._sent[to] += 1
                self._sending.append((request, text))
                self._forget_sent()

    def _forget_sent(self) -> None:
        while self._sending and self._sending[0][0].Test():
            self._sending.popleft()

    def receive(self, tag: int) -> tuple[int, bytes] | None:
        """Return (sender, text) of a letter with this tag, None if none has come."""
        with self._lock:
            return self._take(tag) if self.is_open else None

    def _take(self, tag: int) -> tuple[int, bytes] | None:
        for _ in range(PROBES):
            found = self._made[0].Improbe(self.mpi.ANY_SOURCE, tag, self._status)
            if found is not None:
                break
        else:
            return None
        text, sender = bytearray(self._status.Get_count(self.mpi.BYTE)), self._status.Get_source()
        found.Recv([text, self.mpi.BYTE])
        self._received[sender] += 1
        return sender, bytes(text)

    def begin(self, comm: Any, number: int) -> None:
        """Begin a Reader of that number. Collective over ``comm`` the first time.

        Where no other Reader is open, drop letters that came too late for those before.
        """
        if not self._made:
            _keep(self._made, comm.Dup, None)
        while not self.users and self.receive(self.mpi.ANY_TAG) is not None:
            pass
        self.step()
        with self._lock:
            self.readers = number + 1
            self.users += 1

    def leave(self) -> None:
        """Note that a Reader has ended."""
        if self._pid == os.getpid():  # in a forked child the lock may be held for ever
            with self._lock:
                self.users -= 1

    def close(self) -> None:
        """Send and take no more letters: the user frees the communicator, on all ranks."""
        for exchange in list(self.exchanges):
            exchange.close()
        with self._lock:
            if not self.is_open or not self._made:
                return
            self._is_closed = True
            _keep(self._telling, self._made[0].Ialltoall, self._sent, self._expected)
        _closed.append(self)
        free_closed()

    def await_calls(self) -> None:
        """Wait until no thread is inside MPI for this channel."""
        with self._lock:
            pass

    def end(self) -> bool:
        """Free the duplicate if no letter is under way. Never waits.

        Returns:
            Whether it is freed.
        """
        with self._lock:
            if self._made and not self.mpi.Is_finalized():
                if not self._telling[0].Test():
                    return False
                while (self._received < self._expected).any():
                    if self._take(self.mpi.ANY_TAG) is None:
                        return False
                self._forget_sent()
                if self._sending or not self.step():
                    return False
                self._made.pop().Free()  # local: the others free theirs when they can
            return True


def _keep(kept: list[Any], call: Callable[..., Any], *arguments: Any) -> None:
    """Append the result of a call to a list, in one step of Python's.

    Ctrl-C comes between two such steps, so that it cannot lose the result.
    """
    kept.extend(map(call, *((argument,) for argument in arguments)))


#: Channels whose communicators the user has freed, and that still have their duplicate.
_closed: list[_Channel] = []
os.register_at_fork(after_in_child=_closed.clear)  # MPI is the parent's alone


def free_closed() -> None:
    """Free the duplicates of freed communicators that all ranks are done with. Never waits."""
    for channel in list(_closed):
        if channel.end() and channel in _closed:
            _closed.remove(channel)


_is_over = False  # the process ends, or MPI does


@atexit.register
def _finish() -> None:
    """Free what can be freed for the last time: no letter may be under way when MPI ends."""
    global _is_over
    _is_over = True
    deadline = time.monotonic() + EXIT_SECONDS_MAX
    free_closed()
    while _closed and time.monotonic() < deadline:
        time.sleep(0.001)
        free_closed()


#: Called when MPI is finalized.
_before_finalize: list[Callable[[], None]] = []


def before_finalize(call: Callable[[], None]) -> Callable[[], None]:
    """Register a call for when MPI is finalized, before any part of MPI is gone; return it."""
    _before_finalize.append(call)
    return call


_keyval: int | None = None


def _end_all() -> None:
    """End all that calls MPI."""
    for call in _before_finalize:
        call()
    wait_unused()  # its windows end with MPI
    _finish()


def _end_all_before_finalize(mpi: Any) -> None:
    """See to it that all that calls MPI ends before MPI does.

    MPICH 5.0 stops locking as soon as it is in MPI_Finalize, before it calls anybody: a thread
    that is inside MPI then never comes out, or aborts the job. So it must end before the call.
    The attribute is for programs that call MPI_Finalize by another name: it deletes those of
    COMM_SELF first of all.
    """
    finalize = mpi.Finalize

    @wraps(finalize)
    def finalize_after_all() -> None:
        if mpi.Is_initialized() and not mpi.Is_finalized():
            _end_all()
            for channel in list(_channels):
                channel.await_calls()
        finalize()

    mpi.Finalize = finalize_after_all

    def finalized(_comm: Any, _key: int, _nothing: object) -> None:
        _end_all()

    mpi.COMM_SELF.Set_attr(mpi.Comm.Create_keyval(None, finalized), None)


def _register(mpi: Any) -> int:
    """Return the key under which a communicator holds its channel.

    The first call registers what ends channels: when the user frees their communicator, and when
    MPI is finalized.
    """
    global _keyval
    if _keyval is None:

        def freed(_comm: Any, _key: int, channel: _Channel) -> None:
            channel.close()

        _end_all_before_finalize(mpi)
        _keyval = int(mpi.Comm.Create_keyval(None, freed))
    return _keyval


def _channel(comm: Any, mpi: Any) -> _Channel:
    """Return the channel of a communicator; make it the first time."""
    key = _register(mpi)
    channel: _Channel | None = comm.Get_attr(key)
    if channel is None:
        channel = _Channel(comm.size, mpi)
        comm.Set_attr(key, channel)
    return channel


class Mail:
    """One Reader's letters. One thread uses it; another one may make it.

    It closes when nothing refers to it any more, if not before.

    Attributes:
        channel: channel over which the letters travel.

    Args:
        number: number of the Reader among those of the communicator; the same on all ranks.
    """

    _closed = True  # until it is open

    def __init__(self, comm: Any, mpi: Any, number: int) -> None:
        self._looked_s = 0.0  # when a look was last in vain
        self._number = number
        self._tag = number % (TAGS // TAGS_OF_READER) * TAGS_OF_READER
        self.channel = _channel(comm, mpi)
        self.channel.begin(comm, number)
        self._closed = False

    @property
    def exchange_tags(self) -> tuple[int, int]:
        """Tags of what roots tell each other about rows, and of the rows."""
        return self._tag + 1, self._tag + 2

    def __del__(self) -> None:
        if _is_over is False:  # None: the interpreter has taken the module to pieces
            self.close()

    def send(self, to: int, kind: Kind, body: bytes) -> None:
        """Send a letter to the root of job rank ``to``; return at once."""
        text = _HEAD.pack(self._number, kind) + body
        if len(text) > LETTER_BYTES_MAX:
            raise RuntimeError(f"a letter of {len(text)} bytes")
        if not self._closed and self.channel.is_open:
            self.channel.send(to, self._tag, text)

    def receive(self, apart_s: float = 0.0) -> Letter | None:
        """Return a letter that has come; None: there is none, or it is too early to look again.

        To look is to call MPI; beside a busy interpreter, it takes 5 ms to get Python's lock back.

        Args:
            apart_s: seconds from one look in vain to the next.
        """
        if time.monotonic() < self._looked_s + apart_s:
            return None
        while not self._closed and self.channel.is_open:
            found = self.channel.receive(self._tag)
            if found is None:
                self._looked_s = time.monotonic()
                return None
            sender, text = found
            if len(text) < _HEAD.size:
                raise RuntimeError(f"a letter of {len(text)} bytes from rank {sender}")
            number, kind = _HEAD.unpack_from(text)
            if number == self._number:
                return Letter(Kind(kind), sender, text[_HEAD.size :])
        return None

    @property
    def is_open(self) -> bool:
        """Whether letters can still come."""
        return not self._closed and self.channel.is_open

    def close(self) -> None:
        """Send and receive no more. Never blocks; may be called twice."""
        if not self._closed:
            self._closed = True
            self.channel.leave()


def next_number(job: Job) -> int:
    """Return the lowest number that this rank knows no Reader of.

    Ranks may differ, where one was interrupted: the largest of all ranks is free on all.
    """
    free_closed()
    channel = None if job.alone else job.comm.Get_attr(_register(job.mpi))
    return 0 if channel is None else int(channel.readers)


def open_mail(job: Job, number: int) -> Mail | None:
    """Open this rank's mail. Collective over the job.

    The first time on a communicator all ranks duplicate it.

    Returns:
        None where a rank's MPI serves one thread alone: a root's thread sends letters while the
        main thread may be in a call of its own.

    Args:
        number: the largest ``next_number`` of all ranks.
    """
    return Mail(job.comm, job.mpi, number) if job.is_threaded else None
