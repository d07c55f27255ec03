"""flow: blocks whose rows are on their way into their slots, and when there is room for more.

A root does not want a turn to read before as many requests could begin at once: requests that
wait here for others to end would keep the token from roots whose requests could. And as long as
something is under way, it costs nothing to wait for a root whose block comes first in the file.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["NAP_SHARE", "Arrival", "Awaited", "Flight", "FlowControl"]

#: A root looks after a block in steps of so much of the time that it takes.
NAP_SHARE = 1 / 8
#: Where a block's requests fill an engine's depth, there is room for the next when no more than
#: this share of them is under way; and so much of a block's time before it lands, the next one
#: should be under way.
LEFT_SHARE = 0.25


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
        direct: whether the reads bypass the page cache.
        requests, depth: number of reads, and of those that the engine has in flight at most.
    """

    number: int
    ticket: Arrival
    address: int
    offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    bytes: int
    direct: bool
    requests: int
    depth: int


class FlowControl:
    """The blocks that a root has submitted and that have not landed.

    Attributes:
        flight_s: duration of a block, seconds, about; 0: not known yet.
        room_s: time when there probably is room for one more (``time.monotonic``), as ``has_room``
            last found; None: there was, or it has not been called.
    """

    __slots__ = ("_flying", "flight_s", "room_s")

    def __init__(self) -> None:
        #: Blocks that are under way, and since when.
        self._flying: deque[tuple[Flight, float]] = deque()
        self.flight_s = 0.0
        self.room_s: float | None = None

    def submitted(self, flight: Flight) -> None:
        """Note that a block more is under way."""
        self._flying.append((flight, time.monotonic()))
        self.room_s = None

    def landed(self, seconds: float) -> None:
        """Note that the oldest block has arrived, and how long it took."""
        self.flight_s = (self.flight_s + seconds) / 2 if self.flight_s else seconds
        if self._flying:
            self._flying.popleft()

    def clear(self) -> None:
        """Forget all blocks: the root has given them up."""
        self._flying.clear()

    @property
    def each_s(self) -> float:
        """Seconds between two blocks that land, about."""
        return self.flight_s / max(1, len(self._flying))

    @property
    def busy_s(self) -> float:
        """Seconds until the block that was submitted last is nearly there, about."""
        if not self._flying:
            return 0.0
        lands_s = self._flying[-1][1] + (1 - LEFT_SHARE) * self.flight_s
        return max(0.0, lands_s - time.monotonic())

    def has_room(self) -> bool:
        """Return whether requests that the root submits now would soon begin."""
        self.room_s = None
        if not self._flying:
            return True
        last, since_s = self._flying[-1]
        under_way = sum(one.ticket.left() * one.requests for one, _ in self._flying)
        most = max(last.depth - last.requests, LEFT_SHARE * last.requests)
        if under_way <= most:
            return True
        now_s = time.monotonic()
        whole_s = self.flight_s or 2 * (now_s - since_s)
        self.room_s = now_s + max(1 - most / under_way, NAP_SHARE) * whole_s
        return False
