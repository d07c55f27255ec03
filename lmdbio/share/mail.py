"""Short letters between the roots of a job, from thread to thread.

One thread of each root sends and receives; nothing waits. Letters travel over a duplicate of the
user's communicator, made once and kept as long as that one lives, so that a Reader's end needs
nobody else: a letter that comes too late is recognised by the number of its Reader and dropped.

A thread that waits for a letter probes and sleeps: a receive that blocks would burn a core.
"""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from enum import IntEnum
from typing import Any, NamedTuple

from lmdbio.share.job import Job

__all__ = ["Kind", "Letter", "Mail", "failure_letter", "failure_of", "open_mail"]


class Kind(IntEnum):
    """What a letter is about."""

    ABORT = 1  # a rank of another node failed
    TOKEN = 2  # a turn to read (``share.turns``)
    CURSOR = 3  # a place to seek on from (``lmdbio.seeking``)
    DEMAND = 4  # how far somebody needs that to go


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
#: No letter is longer: a cursor's place, or a bit for each root.
LETTER_BYTES_MAX = 1 << 16
#: Every MPI has so many tags.
TAGS = 1 << 15
#: Letters to ranks that ended before they took them; their memory is MPI's until then.
_undelivered: list[Any] = []


class _Office:
    """What letters of all Readers on one communicator travel over."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm.Dup()
        self.readers = 0  # that were numbered
        self.users = 0  # that have not ended

    def give_up(self, mpi: Any) -> None:
        """The user's communicator is freed, on all its ranks."""
        if not self.users and not mpi.Is_finalized():
            self.comm.Free()


_keyval: int | None = None


def _office(comm: Any, mpi: Any) -> _Office:
    """The office of a communicator. Collective the first time."""
    global _keyval
    if _keyval is None:

        def freed(_comm: Any, _key: int, office: _Office) -> None:
            office.give_up(mpi)

        _keyval = mpi.Comm.Create_keyval(None, freed)
    office: _Office | None = comm.Get_attr(_keyval)
    if office is None:
        office = _Office(comm)
        comm.Set_attr(_keyval, office)
    return office


class Mail:
    """One Reader's letters. For one thread, but that another makes it.

    Attributes:
        rank: of this root in the job.
    """

    def __init__(self, comm: Any, mpi: Any) -> None:
        self._mpi = mpi
        self._office = _office(comm, mpi)
        self._number = self._office.readers
        self._office.readers += 1
        self._office.users += 1
        self._tag = self._number % TAGS
        self._sending: deque[tuple[Any, bytes]] = deque()
        self._status = mpi.Status()
        self._closed = False
        self.rank: int = comm.rank

    def send(self, to: int, kind: Kind, body: bytes) -> None:
        """Sends a letter to the root of job rank ``to``; returns at once."""
        if self._closed or self._mpi.Is_finalized():
            return
        text = _HEAD.pack(self._number, kind) + body
        if len(text) > LETTER_BYTES_MAX:
            raise RuntimeError(f"a letter of {len(text)} bytes")
        request = self._office.comm.Isend([text, self._mpi.BYTE], to, self._tag)
        self._sending.append((request, text))
        self._forget_delivered()

    def _forget_delivered(self) -> None:
        while self._sending and self._sending[0][0].Test():
            self._sending.popleft()

    def receive(self) -> Letter | None:
        """A letter that has come; None: there is none."""
        while not (self._closed or self._mpi.Is_finalized()):
            found = self._office.comm.Improbe(self._mpi.ANY_SOURCE, self._tag, self._status)
            if found is None:
                return None
            text = bytearray(self._status.Get_count(self._mpi.BYTE))
            sender = self._status.Get_source()
            found.Recv([text, self._mpi.BYTE])
            if len(text) < _HEAD.size:
                raise RuntimeError(f"a letter of {len(text)} bytes from rank {sender}")
            number, kind = _HEAD.unpack_from(text)
            if number == self._number:
                return Letter(Kind(kind), sender, bytes(text[_HEAD.size :]))
        return None

    def close(self) -> None:
        """Sends and receives no more. Never blocks; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._office.users -= 1
        with contextlib.suppress(self._mpi.Exception):
            if not self._mpi.Is_finalized():
                self._forget_delivered()
        _undelivered.extend(self._sending)


def open_mail(job: Job) -> Mail | None:
    """This rank's mail; collective over the job. None: its MPI serves one thread alone.

    Threads send letters while the main thread may be in a call of its own.
    """
    return Mail(job.comm, job.mpi) if job.is_threaded else None
