"""Rows of blocks, from root to root: how the exchange begins, and how it ends.

A thread of C's sends and receives (csrc/exchange.h), by the functions that the job's transport
hands out. Rows travel over the same channel as letters do (``share.mail``), by tags of their own.

The end needs no other rank. Messages that are still under way then belong to the channel, which
looks after them whenever a Reader is made, and when it ends.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence

from lmdbio import _core
from lmdbio.share.job import Job
from lmdbio.share.mail import Mail
from lmdbio.share.transport import before_finalize

__all__ = ["Exchange", "find_library"]


def find_library(job: Job) -> tuple[_core.MpiLibrary | None, str]:
    """Return what an exchange of the job's roots calls. Not collective.

    Where there can be no exchange: None, and why.
    """
    if job.transport is None:
        return None, "this is one process alone"
    if not job.is_threaded:
        return None, "this MPI was initialised for one thread alone"
    return job.transport.find_library()


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
        communicator = self._channel.communicator
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
