"""Short letters between the roots of a job, from thread to thread.

One thread of each root sends and receives; no call here waits. Letters of all Readers of a job
travel over one channel (``share.transport``). So the end of a Reader needs no other rank: a letter
that comes too late carries the number of its Reader, and the receiver drops it. For a rank that is
lost the transport knows who it was, and why: that makes a letter as if the rank had failed.

A thread that expects a letter probes and sleeps: a receive that blocks would burn a core.
"""

from __future__ import annotations

import struct
import time
from enum import IntEnum
from sys import is_finalizing
from typing import NamedTuple

from lmdbio.share.job import Job
from lmdbio.share.transport import Transport

__all__ = [
    "Kind",
    "Letter",
    "Mail",
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
    REQUEST = 5  # a root asks for the token


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
#: Every MPI has so many tags (MPI_TAG_UB is at least 32767). Each Reader has one for letters, and
#: two for rows that roots exchange (``share.exchange``).
TAGS, TAGS_OF_READER = 1 << 15, 4


class Mail:
    """One Reader's letters. One thread uses it; another one may make it.

    It closes when nothing refers to it any more, if not before.

    Attributes:
        channel: channel over which the letters travel.

    Args:
        transport: transport of the job.
        number: number of the Reader among those of the job; the same on all ranks.
    """

    _closed = True  # until it is open

    def __init__(self, transport: Transport, number: int) -> None:
        self._polled_s = 0.0  # when a look was last in vain
        self._number = number
        self._tag = number % (TAGS // TAGS_OF_READER) * TAGS_OF_READER
        self._has_lost = False  # whether the letter that tells of a lost rank was handed out
        self._lost = transport.lost
        self.channel = transport.begin_reader(number)
        self._closed = False

    @property
    def exchange_tags(self) -> tuple[int, int]:
        """Tags of what roots tell each other about rows, and of the rows."""
        return self._tag + 1, self._tag + 2

    def __del__(self) -> None:
        if not is_finalizing():
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
        if time.monotonic() < self._polled_s + apart_s:
            return None
        while not self._closed and self.channel.is_open:
            found = self.channel.receive(self._tag)
            if found is None:
                self._polled_s = time.monotonic()
                return self._letter_of_lost()
            sender, text = found
            if len(text) < _HEAD.size:
                raise RuntimeError(f"a letter of {len(text)} bytes from rank {sender}")
            number, kind = _HEAD.unpack_from(text)
            if number == self._number:
                return Letter(Kind(kind), sender, text[_HEAD.size :])
        return None

    def _letter_of_lost(self) -> Letter | None:
        """Return, once, the letter that a lost rank would have sent."""
        lost = None if self._has_lost else self._lost()
        if lost is None:
            return None
        self._has_lost = True
        return Letter(Kind.ABORT, lost[0], failure_letter(*lost))

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
    return 0 if job.transport is None else job.transport.known_readers()


def open_mail(job: Job, number: int) -> Mail | None:
    """Open this rank's mail. Collective over the job.

    The first time on a communicator of MPI's all ranks duplicate it.

    Returns:
        None where a rank's MPI serves one thread alone: a root's thread sends letters while the
        main thread may be in a call of its own.

    Args:
        number: the largest ``next_number`` of all ranks.
    """
    if job.transport is None or not job.is_threaded:
        return None
    return Mail(job.transport, number)
