"""Guarded reads: parts of the file on their way to memory, from which no row is copied too early.

reads arrive -> the guard looks whether the file is as it was -> the part may be used
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lmdbio import _core
from lmdbio.locate.open_database import Guarding, OpenDatabase
from lmdbio.reading.direct_path import DirectPath

__all__ = ["GuardedReads", "GuardedSource"]


class GuardedSource(Protocol):
    """An open data set, and the engines that read it."""

    @property
    def index(self) -> OpenDatabase:
        """The open data set."""

    @property
    def engine(self) -> _core.Engine:
        """The engine that reads through the page cache, or as it was asked for."""

    @property
    def direct_path(self) -> DirectPath:
        """The reads past the page cache, while these pay."""


@dataclass(slots=True)
class GuardedReads:
    """Reads that are under way, and the guard after them.

    The guard is a read of its own, which waits behind others in the storage; so nobody waits for
    it at once, but one who waits for the reads.

    Attributes:
        source: open data set and its engines; borrowed.
        ticket: ticket of the reads.
        size: bytes of them.
        is_direct: whether the reads bypass the page cache.
        guard: makes sure, after the reads, that the file has not changed; None: not begun.
        have_come: whether the reads have arrived.
    """

    source: GuardedSource
    ticket: _core.Ticket
    size: int
    is_direct: bool
    guard: Guarding | None = None
    have_come: bool = False

    @classmethod
    def begin(
        cls, source: GuardedSource, size: int, submit: Callable[[_core.Engine], _core.Ticket]
    ) -> GuardedReads:
        """Start reads of ``size`` bytes by the engine that suits them."""
        direct = source.direct_path.engine(size)
        return cls(source, submit(direct or source.engine), size, direct is not None)

    @property
    def awaited(self) -> _core.Ticket:
        """The reads that are under way; after them, the guard's."""
        return self.ticket if self.guard is None else self.guard.ticket

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether all has arrived, and the file is as it was; to be asked until it is.

        Args:
            timeout_ms: longest wait for the reads, milliseconds; if any, the guard is waited for.

        Raises:
            OSError, Error: it cannot be read, or has changed.
        """
        if self.guard is None:
            if not self.ticket.poll(timeout_ms):
                return False
            self.have_come = True
            if timeout_ms:
                self.source.index.guard()
            else:
                self.guard = self.source.index.begin_guard()
        if self.guard is not None and not self.guard.poll():
            return False
        if self.is_direct:
            self.source.direct_path.record(self.size, self.ticket.times)
        return True

    def close(self) -> None:
        """Give up what is under way."""
        self.ticket.close()
        if self.guard is not None:
            self.guard.ticket.close()
