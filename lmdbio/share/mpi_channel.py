"""Letters and rows of a job's Readers under MPI, over a duplicate of the user's communicator.

It is made once, and kept as long as that communicator lives. A thread of C's sends and receives
rows, by functions of the MPI library that mpi4py has loaded: so it goes on while Python runs
something else, and csrc needs no MPI.

When the user frees the communicator, ranks send and take no more letters, also for Readers that
go on. To free the duplicate as well, all ranks must know that no letter is under way. No rank
waits for that: each tells how many letters it has sent, and looks whether all others have told,
whenever it makes another Reader or frees another communicator, and when the process ends.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.share.memory import wait_unused
from lmdbio.share.transport import Channel, end_messages

__all__ = ["MpiChannel", "find_functions", "free_closed", "handle_of", "register"]

#: So many probes find a letter that has come: MPICH looks first, and takes in what has come after.
PROBES = 2
#: The end of the process waits so long for ranks that free a communicator later, or never.
EXIT_SECONDS_MAX = 1.0
#: Written to a Status, to see where MPI_SOURCE lies in it.
MARK = 0x1234567


def find_functions(mpi: Any) -> _core.MpiLibrary:
    """Return what ``mpi4py.MPI`` calls, by address.

    Raises:
        Error, OSError: it is not to be found.
    """
    library = ctypes.CDLL(mpi.__file__)  # already loaded; finds what it is linked to as well
    try:
        found = [getattr(library, f"MPI_{name}") for name in _core.MpiLibrary.NAMES]
    except AttributeError as error:
        raise Error(f"mpi4py's library of MPI has no {error}") from None
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in found]
    size = mpi._sizeof(mpi.Status)
    status = mpi.Status()
    status.Set_source(MARK)
    source = ctypes.string_at(mpi._addressof(status), size).find(
        MARK.to_bytes(ctypes.sizeof(ctypes.c_int), sys.byteorder)
    )
    if source < 0:
        raise Error("where MPI_SOURCE lies in an MPI_Status is not known")
    return _core.MpiLibrary(
        functions=tuple(address or 0 for address in addresses),
        byte=handle_of(mpi, mpi.BYTE),
        handle_bytes=mpi._sizeof(mpi.Comm),
        status_bytes=size,
        source_offset=source,
        any_source=mpi.ANY_SOURCE,
        undefined=mpi.UNDEFINED,
    )


def handle_of(mpi: Any, what: Any) -> int:
    """Return the bytes of a handle, as an integer that lies in memory as the handle does."""
    text = ctypes.string_at(mpi._addressof(what), mpi._sizeof(what))
    return int.from_bytes(text.ljust(8, b"\0"), sys.byteorder)


# --- letters -------------------------------------------------------------------------

_channels: weakref.WeakSet[MpiChannel] = weakref.WeakSet()


class MpiChannel(Channel):
    """The duplicate of one communicator, over which the letters of all its Readers travel.

    It counts the letters sent and received, so that none is under way when it ends: an MPI may
    hand an old letter to the communicator that comes next. Messages of exchanges count as letters
    (``share.exchange``).

    Attributes:
        users: Readers that have not ended.
    """

    def __init__(self, comm: Any, mpi: Any) -> None:
        super().__init__()
        size: int = comm.size
        self._mpi = mpi
        self._pid = os.getpid()
        self.users = 0
        self._made: list[Any] = []  # the duplicate, from when it is made until it is freed
        self._is_closed = False
        self._sent = np.zeros(size, np.int64)
        self._received = np.zeros(size, np.int64)
        self._sending: deque[tuple[Any, bytes]] = deque()
        self._expected = np.zeros(size, np.int64)  # letters that others have sent, once they told
        self._telling: list[Any] = []  # the request of the Ialltoall that tells it
        self._status = mpi.Status()
        _channels.add(self)

    @property
    def is_open(self) -> bool:
        """Whether letters can be sent and taken."""
        return not (self._is_closed or _is_over or self._mpi.Is_finalized())

    @property
    def communicator(self) -> int:
        """The handle of the duplicate."""
        return handle_of(self._mpi, self._made[0])

    def take_over(
        self, exchange: _core.Exchange, ranks: Sequence[int], step: Callable[[], bool]
    ) -> None:
        """Look after what an exchange has left under way, and count its messages."""
        if self._mpi.Is_finalized():
            return
        with self._lock:
            super().take_over(exchange, ranks, step)
            for counts, own in zip(exchange.messages(), (self._sent, self._received), strict=True):
                own[list(ranks)] += counts

    def send(self, to: int, tag: int, text: bytes) -> None:
        """Send a letter to a rank; return at once. Drop it where the channel is closed."""
        with self._lock:
            if self.is_open:
                request = self._made[0].Isend([text, self._mpi.BYTE], to, tag)
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
            found = self._made[0].Improbe(self._mpi.ANY_SOURCE, tag, self._status)
            if found is not None:
                break
        else:
            return None
        text, sender = bytearray(self._status.Get_count(self._mpi.BYTE)), self._status.Get_source()
        found.Recv([text, self._mpi.BYTE])
        self._received[sender] += 1
        return sender, bytes(text)

    def begin(self, group: Any, number: int) -> None:
        """Begin a Reader of that number. Collective over the communicator the first time.

        Where no other Reader is open, drop letters that came too late for those before.
        """
        if not self._made:
            _store(self._made, group.Dup, None)
        while not self.users and self.receive(self._mpi.ANY_TAG) is not None:
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
            _store(self._telling, self._made[0].Ialltoall, self._sent, self._expected)
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
            if self._made and not self._mpi.Is_finalized():
                if not self._telling[0].Test():
                    return False
                while (self._received < self._expected).any():
                    if self._take(self._mpi.ANY_TAG) is None:
                        return False
                self._forget_sent()
                if self._sending or not self.step():
                    return False
                self._made.pop().Free()  # local: the others free theirs when they can
            return True


def _store(results: list[Any], call: Callable[..., Any], *arguments: Any) -> None:
    """Append the result of a call to a list, in one step of Python's.

    Ctrl-C comes between two such steps, so that it cannot lose the result.
    """
    results.extend(map(call, *((argument,) for argument in arguments)))


#: Channels whose communicators the user has freed, and that still have their duplicate.
_closed: list[MpiChannel] = []
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


_keyval: int | None = None


def _end_all() -> None:
    """End all that calls MPI."""
    end_messages()
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


def register(mpi: Any) -> int:
    """Return the key under which a communicator holds its channel.

    The first call registers what ends channels: when the user frees their communicator, and when
    MPI is finalized.
    """
    global _keyval
    if _keyval is None:

        def freed(_comm: Any, _key: int, channel: MpiChannel) -> None:
            channel.close()

        _end_all_before_finalize(mpi)
        _keyval = int(mpi.Comm.Create_keyval(None, freed))
    return _keyval
