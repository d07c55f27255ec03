"""Letters and rows of a job's Readers without MPI: over its mesh (csrc/mesh.h)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from lmdbio import _core

__all__ = ["SocketChannel"]


class Ranks(Protocol):
    """The ranks of a job (``share.sockets``).

    Attributes:
        mesh: connections to other ranks.
        is_open: whether messages can be sent and taken.
    """

    mesh: _core.Mesh

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent and taken."""

    def lost(self) -> tuple[int, str] | None:
        """Return a rank that is lost, and why; None: none is known."""


class SocketChannel:
    """Letters and rows of a job's Readers, over its mesh."""

    def __init__(self, transport: Ranks) -> None:
        self._transport, self._mesh = transport, transport.mesh
        self.readers = 0
        self.exchanges: weakref.WeakSet[Any] = weakref.WeakSet()
        self._ended: list[Any] = []  # exchanges that left something under way
        self._lock = threading.RLock()  # the collector may close a Mail at any moment

    @property
    def is_open(self) -> bool:
        """Whether letters can be sent and taken."""
        return self._transport.is_open

    @property
    def communicator(self) -> int:
        """The handle that an exchange sends over."""
        return self._mesh.library()[1]

    def begin(self, number: int) -> None:
        """Begin a Reader of that number."""
        with self._lock:
            self._ended = [each for each in self._ended if not each.step()]
            self.readers = number + 1

    def leave(self) -> None:
        """Do nothing: a letter that comes too late names its Reader, and is dropped."""

    def send(self, to: int, tag: int, text: bytes) -> None:
        """Send a letter to a rank; return at once."""
        if self.is_open:
            self._mesh.send(to, tag, text)

    def receive(self, tag: int) -> tuple[int, bytes] | None:
        """Return (sender, text) of a letter with this tag, None if none has come."""
        return self._mesh.take(tag)

    def lost(self) -> tuple[int, str] | None:
        """Return a rank that is lost, and why; None: none is known."""
        return self._transport.lost()

    def take_over(
        self, exchange: _core.Exchange, ranks: Sequence[int], step: Callable[[], bool]
    ) -> None:
        """Look after what an exchange has left under way."""
        del ranks  # nobody counts their messages
        with self._lock:
            if not step():  # also while this rank leaves: the mesh may still send what it has lent
                self._ended.append(exchange)
