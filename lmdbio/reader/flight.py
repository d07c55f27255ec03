"""A block whose rows are on their way into its slot."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Arrival", "Awaited", "Flight"]


class Awaited(Protocol):
    """Something that has to arrive."""

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether it has, after ``timeout_ms`` at most."""


class Arrival(Protocol):
    """The reads of a block, as far as a root's thread asks about them (``_core.Ticket``)."""

    @property
    def times(self) -> tuple[float, float]:
        """When they were submitted and had arrived, by ``time.monotonic``, seconds."""

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether all have arrived, after ``timeout_ms`` at most; raise what failed."""

    def poll_begun(self, timeout_ms: int = 0, older: Any = None) -> bool:
        """Return whether none is left to begin."""

    def left(self) -> float:
        """Return the share of them that have not ended."""

    def close(self) -> Any:
        """Give up those that have not begun, and wait for the others."""


class Flight(NamedTuple):
    """A block whose reads are under way.

    Attributes:
        address: address of its slot.
        offsets: offset of each record in the slot's data, bytes, uint64.
        lengths: length of each record, bytes, uint64.
        bytes: number of bytes that were planned.
        past: whether the reads bypass the page cache.
        requests, depth: number of reads, and of those that the engine has in flight at most.
    """

    number: int
    ticket: Arrival
    address: int
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    bytes: int
    past: bool
    requests: int
    depth: int
