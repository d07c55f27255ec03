"""Rows of blocks, from root to root: how the exchange begins, and how it ends.

A thread of C's sends and receives (csrc/exchange.h), by functions of the MPI library that mpi4py
has loaded: so it goes on while Python runs something else, and csrc needs no MPI. Rows travel over
the same duplicate of the user's communicator as letters do (``share.mail``), by tags of their own.

The end needs no other rank. Messages that are still under way then belong to the communicator,
which looks after them whenever a Reader is made, and when MPI ends.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.share.job import Job
from lmdbio.share.mail import Mail, before_finalize

__all__ = ["Exchange", "find_library"]

#: Written to a Status, to see where MPI_SOURCE lies in it.
MARK = 0x1234567


def _library(mpi: Any) -> _core.MpiLibrary:
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
        byte=_handle(mpi, mpi.BYTE),
        handle_bytes=mpi._sizeof(mpi.Comm),
        status_bytes=size,
        source_offset=source,
        any_source=mpi.ANY_SOURCE,
        undefined=mpi.UNDEFINED,
    )


def _handle(mpi: Any, what: Any) -> int:
    """Return the bytes of a handle, as an integer that lies in memory as the handle does."""
    text = ctypes.string_at(mpi._addressof(what), mpi._sizeof(what))
    return int.from_bytes(text.ljust(8, b"\0"), sys.byteorder)


def find_library(job: Job) -> tuple[_core.MpiLibrary | None, str]:
    """Return the MPI library as an exchange calls it, after a message to this process has come.

    Not collective. Where there can be no exchange: None, and why.
    """
    if not job.is_threaded:
        return None, "this MPI was initialised for one thread alone"
    mpi = job.mpi
    try:
        library = _library(mpi)
        alone = mpi.COMM_SELF.Dup()
        try:
            _core.probe_mpi(library, _handle(mpi, alone))
        finally:
            alone.Free()
    except (AttributeError, Error, OSError, TypeError) as error:
        return None, f"{mpi.get_vendor()[0]} cannot be called by address: {error}"
    return library, ""


_known: weakref.WeakSet[Exchange] = weakref.WeakSet()


@before_finalize
def _stop_all() -> None:
    """End all that calls MPI, before MPI ends."""
    for exchange in list(_known):
        exchange.finish()


class Exchange(_core.Exchange):
    """One root's part in the exchange of a Reader's rows.

    Args:
        library: the MPI library of all ranks.
        mail: mail of this root; over its channel rows travel as well.
        ranks: job ranks of the roots, ascending.
        own: index of this root among them.
        messages_max: largest number of messages that are packed at a time.
    """

    def __init__(
        self,
        library: _core.MpiLibrary,
        mail: Mail,
        ranks: Sequence[int],
        own: int,
        messages_max: int,
    ) -> None:
        self._channel, self._ranks = mail.channel, tuple(ranks)
        communicator = _handle(self._channel.mpi, self._channel.communicator)
        super().__init__(library, communicator, self._ranks, own, mail.exchange_tags, messages_max)
        self._is_closed = self._is_finished = False
        self._pid = os.getpid()
        self._closing = threading.Lock()
        self._channel.exchanges.add(self)
        _known.add(self)

    @property
    def is_open(self) -> bool:
        """Whether rows can still be sent and taken."""
        return not self._is_closed and self._channel.is_open

    def step(self) -> bool:
        """Carry on what was under way at the end; return whether all of it has ended."""
        with self._closing:
            return self._is_finished or super().step()

    def close(self) -> None:
        """End the thread; leave what is under way to the communicator. May be called twice."""
        if self._pid != os.getpid():  # the thread is the parent's
            return
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self.done()
                self.end()
                self.stop()
                self._channel.take_over(self, self._ranks, super().step)

    def finish(self) -> None:
        """Call MPI no more: it is about to end."""
        self.close()
        if self._pid == os.getpid():
            with self._closing:
                self._is_finished = True
