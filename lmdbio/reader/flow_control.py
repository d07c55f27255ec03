"""Flow control: what a root has under way, and when there is room for more.

A root does not want a turn to read before as many requests could begin at once: requests that
wait here for others to end would keep the token from roots whose requests could. And as long as
something is under way, it costs nothing to wait for a root whose block comes first in the file.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple, Protocol

__all__ = ["NAP_SHARE", "FlowControl", "Ticket"]

#: A root looks after a block in steps of so much of the time that it takes.
NAP_SHARE = 1 / 8
#: Where a block's requests fill an engine's depth, there is room for the next when no more than
#: this share of them is under way; and so much of a block's time before it lands, the next one
#: should be under way.
LEFT_SHARE = 0.25


class Ticket(Protocol):
    """Requests that an engine has taken."""

    def left(self) -> float:
        """Return the share of them that have not ended."""


class _Flying(NamedTuple):
    """A block whose requests are under way, since when, and how many an engine has at most."""

    ticket: Ticket
    requests: int
    depth: int
    since_s: float


class FlowControl:
    """The blocks that a root has submitted and that have not landed.

    Attributes:
        flight_s: duration of a block, seconds, about; 0: not known yet.
        room_s: time when there probably is room for one more (``time.monotonic``), as ``has_room``
            last found; None: there was, or it has not been called.
    """

    __slots__ = ("_flying", "flight_s", "room_s")

    def __init__(self) -> None:
        self._flying: deque[_Flying] = deque()
        self.flight_s = 0.0
        self.room_s: float | None = None

    def submitted(self, ticket: Ticket, requests: int, depth: int) -> None:
        """Note that a block more is under way.

        Args:
            ticket: ticket of its requests.
            requests: number of its requests.
            depth: largest number of requests in flight.
        """
        self._flying.append(_Flying(ticket, requests, depth, time.monotonic()))
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
        lands_s = self._flying[-1].since_s + (1 - LEFT_SHARE) * self.flight_s
        return max(0.0, lands_s - time.monotonic())

    def has_room(self) -> bool:
        """Return whether requests that the root submits now would soon begin."""
        self.room_s = None
        if not self._flying:
            return True
        last = self._flying[-1]
        under_way = sum(one.ticket.left() * one.requests for one in self._flying)
        most = max(last.depth - last.requests, LEFT_SHARE * last.requests)
        if under_way <= most:
            return True
        now_s = time.monotonic()
        whole_s = self.flight_s or 2 * (now_s - last.since_s)
        self.room_s = now_s + max(1 - most / under_way, NAP_SHARE) * whole_s
        return False
