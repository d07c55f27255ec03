"""Short letters between the roots of a job, from thread to thread.

One thread of each root sends and receives; nothing waits. Letters travel over a duplicate of the
user's communicator, made once and kept as long as that one lives, so that a Reader's end needs
nobody else: a letter that comes too late is recognised by the number of its Reader and dropped.

A thread that waits for a letter probes and sleeps: a receive that blocks would burn a core.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from lmdbio.share.job import Job

__all__ = ["Kind", "Letter", "Mail", "failure_letter", "failure_of", "open_mail"]


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
#: Every MPI has so many tags.
TAGS = 1 << 15
#: How long a communicator's end waits for threads that still use it.
END_SECONDS_MAX = 2.0


class _Office:
    """What letters of all Readers on one communicator travel over.

    It counts what is sent and received, so that nothing is under way when it ends: an MPI may
    hand an old letter to whatever communicator comes next. Threads of several Readers share it.
    """

    def __init__(self, comm: Any, mpi: Any) -> None:
        self.comm, self.mpi = comm.Dup(), mpi
        self.readers = 0  # that were numbered
        self.users = 0  # that have not ended
        self.is_closing = False
        self._sent = np.zeros(comm.size, np.int64)
        self._received = np.zeros(comm.size, np.int64)
        self._sending: deque[tuple[Any, bytes]] = deque()
        self._status = mpi.Status()
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        return not self.is_closing and not self.mpi.Is_finalized()

    def send(self, to: int, tag: int, text: bytes) -> None:
        with self._lock:
            request = self.comm.Isend([text, self.mpi.BYTE], to, tag)
            self._sent[to] += 1
            self._sending.append((request, text))
            while self._sending and self._sending[0][0].Test():
                self._sending.popleft()

    def receive(self, tag: int) -> tuple[int, bytes] | None:
        """(sender, text) of a letter that has come, and has this tag."""
        with self._lock:
            found = self.comm.Improbe(self.mpi.ANY_SOURCE, tag, self._status)
            return None if found is None else self._take(found)

    def _take(self, found: Any) -> tuple[int, bytes]:
        text, sender = bytearray(self._status.Get_count(self.mpi.BYTE)), self._status.Get_source()
        found.Recv([text, self.mpi.BYTE])
        self._received[sender] += 1
        return sender, bytes(text)

    def begin(self) -> int:
        """The number of a new Reader. What came too late for those before it is thrown away."""
        while not self.users:
            if self.receive(self.mpi.ANY_TAG) is None:
                break
        with self._lock:
            self.readers += 1
            self.users += 1
            return self.readers - 1

    def leave(self) -> None:
        """A Reader has ended."""
        with self._lock:
            self.users -= 1

    def end(self) -> None:
        """The user's communicator is freed, on all its ranks: so is this, when it is empty."""
        if self.mpi.Is_finalized():
            return
        self.is_closing = True
        deadline = time.monotonic() + END_SECONDS_MAX
        while self.users and time.monotonic() < deadline:
            time.sleep(0.001)
        wanted = np.empty_like(self._sent)
        self.comm.Alltoall(self._sent, wanted)
        while (self._received < wanted).any():
            self._take(self.comm.Mprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, self._status))
        for request, _ in self._sending:
            request.Wait()
        # A thread that has not ended by now may still look at it.
        if self.comm.allreduce(self.users, self.mpi.MAX) == 0:
            self.comm.Free()


_keyval: int | None = None


def _office(comm: Any, mpi: Any) -> _Office:
    """The office of a communicator. Collective the first time."""
    global _keyval
    if _keyval is None:

        def freed(_comm: Any, _key: int, office: _Office) -> None:
            office.end()

        _keyval = mpi.Comm.Create_keyval(None, freed)
    office: _Office | None = comm.Get_attr(_keyval)
    if office is None:
        office = _Office(comm, mpi)
        comm.Set_attr(_keyval, office)
    return office


class Mail:
    """One Reader's letters. For one thread, but that another makes it."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        self._office = _office(comm, mpi)
        self._number = self._office.begin()
        self._tag = self._number % TAGS
        self._closed = False

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


def open_mail(job: Job) -> Mail | None:
    """This rank's mail; collective over the job. None: its MPI serves one thread alone.

    Threads send letters while the main thread may be in a call of its own.
    """
    return Mail(job.comm, job.mpi) if job.is_threaded else None
