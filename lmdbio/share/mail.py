"""Short letters between the roots of a job, from thread to thread.

One thread of each root sends and receives; nothing waits. Letters travel over a duplicate of the
user's communicator, made once and kept as long as that one lives, so that a Reader's end needs
nobody else: a letter that comes too late is recognised by the number of its Reader and dropped.

When the user frees the communicator no letter is sent or taken any more, also of Readers that go
on. To free the duplicate as well, all ranks must know that nothing is under way. Nobody waits for
that: each tells how much it has sent, and looks whether all others have, whenever it makes another
Reader or frees another communicator, and when the process ends.

A thread that waits for a letter probes and sleeps: a receive that blocks would burn a core.
"""

from __future__ import annotations

import atexit
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

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
    """What a letter is about."""

    ABORT = 1  # a rank of another node failed
    TOKEN = 2  # a turn to read (``share.turns``)
    CURSOR = 3  # a place to seek on from (``lmdbio.seeking``)
    DEMAND = 4  # how far somebody needs that to go
    WISH = 5  # for a turn


class Letter(NamedTuple):
    """One letter that has come."""

    kind: Kind
    sender: int
    body: bytes


def failure_letter(rank: int, cause: str) -> bytes:
    """What to send of a rank that failed."""
    return _FAILURE.pack(rank) + cause.encode("utf-8", "replace")


def failure_of(body: bytes) -> tuple[int, str]:
    """(rank, cause) of such a letter."""
    return _FAILURE.unpack_from(body)[0], body[_FAILURE.size :].decode("utf-8", "replace")


_FAILURE = struct.Struct("<I")
_HEAD = struct.Struct("<QB")  # number of the Reader, kind
#: No letter is longer: a cursor's place, or a number for each root.
LETTER_BYTES_MAX = 1 << 20
#: A letter that has come is found by so many probes.
PROBES = 2
#: Every MPI has so many tags.
TAGS = 1 << 15
#: How long the end of the process waits for ranks that free a communicator later, or never.
EXIT_SECONDS_MAX = 1.0


class _Office:
    """What letters of all Readers on one communicator travel over.

    It counts what is sent and received, so that nothing is under way when it ends: an MPI may
    hand an old letter to whatever communicator comes next. Threads of several Readers share it.
    """

    def __init__(self, size: int, mpi: Any) -> None:
        self.mpi = mpi
        self._pid = os.getpid()
        self.readers = 0  # that were numbered
        self.users = 0  # that have not ended
        self._made: list[Any] = []  # the duplicate, from when it is made until it is freed
        self._is_closed = False
        self._sent = np.zeros(size, np.int64)
        self._received = np.zeros(size, np.int64)
        self._sending: deque[tuple[Any, bytes]] = deque()
        self._wanted = np.zeros(size, np.int64)  # what others have sent, once they have told
        self._telling: list[Any] = []  # the request that tells so
        self._status = mpi.Status()
        # Mail that is collected closes at any moment of any thread, and so of one that is here.
        self._lock = threading.RLock()

    @property
    def is_open(self) -> bool:
        return not (self._is_closed or _is_over or self.mpi.Is_finalized())

    def send(self, to: int, tag: int, text: bytes) -> None:
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
        """(sender, text) of a letter that has come, and has this tag."""
        with self._lock:
            return self._take(tag) if self.is_open else None

    def _take(self, tag: int) -> tuple[int, bytes] | None:
        # MPICH looks first and takes in what has come after that, one letter each time.
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
        """A new Reader, of that number. What came too late for those before is thrown away.

        Collective the first time.
        """
        if not self._made:
            _keep(self._made, comm.Dup, None)
        while not self.users and self.receive(self.mpi.ANY_TAG) is not None:
            pass
        with self._lock:
            self.readers = number + 1
            self.users += 1

    def leave(self) -> None:
        """A Reader has ended."""
        if self._pid == os.getpid():  # a forked child may find the lock held for ever
            with self._lock:
                self.users -= 1

    def close(self) -> None:
        """No letter is sent or taken any more: the user's communicator is freed, on all ranks."""
        with self._lock:
            if not self.is_open or not self._made:
                return
            self._is_closed = True
            _keep(self._telling, self._made[0].Ialltoall, self._sent, self._wanted)
        _closed.append(self)
        sweep()

    def end(self) -> bool:
        """Frees the duplicate if nothing is under way; whether it is freed. Never waits."""
        with self._lock:
            if self._made and not self.mpi.Is_finalized():
                if not self._telling[0].Test():
                    return False
                while (self._received < self._wanted).any():
                    if self._take(self.mpi.ANY_TAG) is None:
                        return False
                self._forget_sent()
                if self._sending:
                    return False
                self._made.pop().Free()  # local: the others free theirs when they can
            return True


def _keep(kept: list[Any], call: Callable[..., Any], *arguments: Any) -> None:
    """Puts what a call makes into a list.

    In one step of Python's: Ctrl-C, which comes between two of them, cannot lose it.
    """
    kept.extend(map(call, *((argument,) for argument in arguments)))


#: Offices whose communicators the user has freed, and that are not yet.
_closed: list[_Office] = []
os.register_at_fork(after_in_child=_closed.clear)  # MPI is the parent's alone


def sweep() -> None:
    """Frees what letters of earlier communicators went over, where all ranks are done with it."""
    for office in list(_closed):
        if office.end() and office in _closed:
            _closed.remove(office)


_is_over = False  # the process ends, or MPI does


@atexit.register
def _finish() -> None:
    """Sweeps for the last time: nothing may be under way when MPI ends."""
    global _is_over
    _is_over = True
    deadline = time.monotonic() + EXIT_SECONDS_MAX
    sweep()
    while _closed and time.monotonic() < deadline:
        time.sleep(0.001)
        sweep()


#: Called when MPI is finalized.
_before_finalize: list[Callable[[], None]] = []


def before_finalize(call: Callable[[], None]) -> None:
    """Has Readers ended when MPI is finalized, before anything of it is gone."""
    _before_finalize.append(call)


_keyval: int | None = None


def _attend(mpi: Any) -> int:
    """The key under which a communicator holds its office; sees to it that they end."""
    global _keyval
    if _keyval is None:

        def freed(_comm: Any, _key: int, office: _Office) -> None:
            office.close()

        def finalized(_comm: Any, _key: int, _nothing: object) -> None:
            for call in _before_finalize:
                call()
            wait_unused()  # its windows end with MPI
            _finish()

        # This one's attributes are the first that MPI deletes when it is finalized.
        mpi.COMM_SELF.Set_attr(mpi.Comm.Create_keyval(None, finalized), None)
        _keyval = int(mpi.Comm.Create_keyval(None, freed))
    return _keyval


def _office(comm: Any, mpi: Any) -> _Office:
    """The office of a communicator."""
    key = _attend(mpi)
    office: _Office | None = comm.Get_attr(key)
    if office is None:
        office = _Office(comm.size, mpi)
        comm.Set_attr(key, office)
    return office


class Mail:
    """One Reader's letters. For one thread, but that another makes it.

    It closes when nobody refers to it any more, if not before.

    Args:
        number: of the Reader among those of the communicator; the same on all ranks.
    """

    def __init__(self, comm: Any, mpi: Any, number: int) -> None:
        self._closed = True  # until it is open
        self._number, self._tag = number, number % TAGS
        self._office = _office(comm, mpi)
        self._office.begin(comm, number)
        self._closed = False

    def __del__(self) -> None:
        self.close()

    def send(self, to: int, kind: Kind, body: bytes) -> None:
        """Sends a letter to the root of job rank ``to``; returns at once."""
        text = _HEAD.pack(self._number, kind) + body
        if len(text) > LETTER_BYTES_MAX:
            raise RuntimeError(f"a letter of {len(text)} bytes")
        if not self._closed and self._office.is_open:
            self._office.send(to, self._tag, text)

    def receive(self) -> Letter | None:
        """A letter that has come; None: there is none."""
        while not self._closed and self._office.is_open:
            found = self._office.receive(self._tag)
            if found is None:
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
        """False once no letter can come any more."""
        return not self._closed and self._office.is_open

    def close(self) -> None:
        """Sends and receives no more. Never blocks; may be called twice."""
        if not self._closed:
            self._closed = True
            self._office.leave()


def next_number(job: Job) -> int:
    """The lowest number that this rank knows no Reader of.

    Ranks may differ, where one was interrupted: the largest is free on all.
    """
    sweep()
    office = None if job.alone else job.comm.Get_attr(_attend(job.mpi))
    return 0 if office is None else int(office.readers)


def open_mail(job: Job, number: int) -> Mail | None:
    """This rank's mail; collective over the job. None: its MPI serves one thread alone.

    Threads send letters while the main thread may be in a call of its own.

    Args:
        number: the largest ``next_number`` of all ranks.
    """
    return Mail(job.comm, job.mpi, number) if job.is_threaded else None
