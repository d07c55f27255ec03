"""Goal: a turn is asked for when requests could begin, and others are waited for while it is free.

Method: tickets that say what they are told to, and a depth that they fill or not.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from lmdbio.reader.flow import LEFT_SHARE, NAP_SHARE, Flight, FlowControl


class Ticket:
    """Requests of which a given share has not ended."""

    def __init__(self, left: float = 1.0) -> None:
        self.share = left

    def left(self) -> float:
        return self.share


def flight(ticket: Ticket, requests: int, depth: int) -> Flight:
    """A block of so many requests, of which an engine has so many in flight at most."""
    none = np.empty(0, np.uint64)
    return Flight(0, ticket, 0, none, none, 0, False, requests, depth)  # type: ignore[arg-type]


def test_who_has_nothing_under_way_has_room_and_keeps_nothing_busy() -> None:
    flow = FlowControl()
    assert flow.has_room()
    assert flow.busy_s == 0
    assert flow.room_s is None
    flow.submitted(flight(Ticket(), 8, 8))
    flow.clear()
    assert flow.has_room()
    assert flow.busy_s == 0


@pytest.mark.parametrize(("depth", "blocks"), [(4, 1), (7, 1), (8, 2), (15, 3), (16, 4), (64, 16)])
def test_blocks_of_four_requests_are_submitted_until_the_depth_is_full(
    depth: int, blocks: int
) -> None:
    flow, submitted = FlowControl(), 0
    while flow.has_room():
        flow.submitted(flight(Ticket(), 4, depth))
        submitted += 1
    assert submitted == blocks


def test_a_block_as_large_as_the_depth_has_room_when_little_of_the_last_is_left() -> None:
    flow, ticket = FlowControl(), Ticket()
    flow.submitted(flight(ticket, 32, 16))
    for left, room in ((1.0, False), (LEFT_SHARE + 0.01, False), (LEFT_SHARE, True), (0.0, True)):
        ticket.share = left
        assert flow.has_room() is room
        assert (flow.room_s is None) is room


def test_how_long_a_root_is_busy_is_told_by_how_long_blocks_take() -> None:
    flow = FlowControl()
    flow.submitted(flight(Ticket(), 4, 64))
    assert flow.busy_s == 0, "nobody knows yet"
    flow.landed(10.0)
    assert flow.busy_s == 0, "nothing is under way"
    flow.submitted(flight(Ticket(), 4, 64))
    time.sleep(0.01)
    flow.submitted(flight(Ticket(), 4, 64))
    busy_s = flow.busy_s
    assert busy_s == pytest.approx(10.0 * (1 - LEFT_SHARE), abs=0.5)
    time.sleep(0.01)
    assert flow.busy_s < busy_s


def test_when_there_is_room_is_told_by_how_long_blocks_take() -> None:
    flow = FlowControl()
    flow.submitted(flight(Ticket(), 8, 8))
    flow.landed(10.0)
    assert flow.flight_s == 10.0
    flow.submitted(flight(Ticket(), 8, 8))
    flow.landed(20.0)
    assert flow.flight_s == 15.0
    ticket = Ticket()
    flow.submitted(flight(ticket, 8, 8))
    assert flow.each_s == 15.0
    for left, share in ((1.0, 1 - LEFT_SHARE), (0.5, 0.5), (0.26, NAP_SHARE)):
        ticket.share = left
        assert not flow.has_room()
        assert flow.room_s is not None
        assert flow.room_s - time.monotonic() == pytest.approx(15.0 * share, abs=0.5)
    flow.submitted(flight(Ticket(), 8, 8))
    assert flow.each_s == 7.5
    flow.landed(15.0)
    flow.landed(15.0)
    flow.landed(15.0)
    assert flow.has_room()
