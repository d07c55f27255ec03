"""Goal: a turn is asked for when requests could begin, and others are waited for while it is free.

Method: tickets that say what they are told to, and a depth that they fill or not.
"""

from __future__ import annotations

import time

import pytest

from lmdbio.reader.flow_control import LEFT_SHARE, NAP_SHARE, Pace


class Ticket:
    """Requests of which a given share has not ended."""

    def __init__(self, left: float = 1.0) -> None:
        self.share = left

    def left(self) -> float:
        return self.share


def test_who_has_nothing_under_way_has_room_and_keeps_nothing_busy() -> None:
    pace = Pace()
    assert pace.has_room()
    assert pace.busy_s == 0
    assert pace.room_s is None
    pace.submitted(Ticket(), 8, 8)
    pace.clear()
    assert pace.has_room()
    assert pace.busy_s == 0


@pytest.mark.parametrize(("depth", "blocks"), [(4, 1), (7, 1), (8, 2), (15, 3), (16, 4), (64, 16)])
def test_blocks_of_four_requests_are_submitted_until_the_depth_is_full(
    depth: int, blocks: int
) -> None:
    pace, submitted = Pace(), 0
    while pace.has_room():
        pace.submitted(Ticket(), 4, depth)
        submitted += 1
    assert submitted == blocks


def test_a_block_as_large_as_the_depth_has_room_when_little_of_the_last_is_left() -> None:
    pace, ticket = Pace(), Ticket()
    pace.submitted(ticket, 32, 16)
    for left, room in ((1.0, False), (LEFT_SHARE + 0.01, False), (LEFT_SHARE, True), (0.0, True)):
        ticket.share = left
        assert pace.has_room() is room
        assert (pace.room_s is None) is room


def test_how_long_a_root_is_busy_is_told_by_how_long_blocks_take() -> None:
    pace = Pace()
    pace.submitted(Ticket(), 4, 64)
    assert pace.busy_s == 0, "nobody knows yet"
    pace.landed(10.0)
    assert pace.busy_s == 0, "nothing is under way"
    pace.submitted(Ticket(), 4, 64)
    time.sleep(0.01)
    pace.submitted(Ticket(), 4, 64)
    busy_s = pace.busy_s
    assert busy_s == pytest.approx(10.0 * (1 - LEFT_SHARE), abs=0.5)
    time.sleep(0.01)
    assert pace.busy_s < busy_s


def test_when_there_is_room_is_told_by_how_long_blocks_take() -> None:
    pace = Pace()
    pace.submitted(Ticket(), 8, 8)
    pace.landed(10.0)
    assert pace.flight_s == 10.0
    pace.submitted(Ticket(), 8, 8)
    pace.landed(20.0)
    assert pace.flight_s == 15.0
    ticket = Ticket()
    pace.submitted(ticket, 8, 8)
    assert pace.each_s == 15.0
    for left, share in ((1.0, 1 - LEFT_SHARE), (0.5, 0.5), (0.26, NAP_SHARE)):
        ticket.share = left
        assert not pace.has_room()
        assert pace.room_s is not None
        assert pace.room_s - time.monotonic() == pytest.approx(15.0 * share, abs=0.5)
    pace.submitted(Ticket(), 8, 8)
    assert pace.each_s == 7.5
    pace.landed(15.0)
    pace.landed(15.0)
    pace.landed(15.0)
    assert pace.has_room()
