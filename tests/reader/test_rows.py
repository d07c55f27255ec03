"""Goal: a root gives rows of others up when nothing goes on, and not before.

Method: an arrival of the test's own, whose rooms the test fills, on a clock of the test's own.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from lmdbio.reader import rows
from lmdbio.reader.rows import Assembly, Rows

PATIENCE = 2.0


class Arrival:
    AWAITED, ARRIVED, LATE, GONE = range(4)

    def __init__(self, rooms: int) -> None:
        self._answers = np.zeros(rooms, np.uint8)
        self.is_given_up = False

    def poll(self, timeout_ms: int = 0) -> bool:
        return False

    def answers(self) -> np.ndarray:
        return self._answers.copy()

    def fill(self, room: int) -> None:
        self._answers[room] = self.ARRIVED

    def give_up(self) -> None:
        self.is_given_up = True


class Waiting:
    """Rows that a root waits for, while nothing but what the test does happens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.round = 100.0, 7
        monkeypatch.setattr(rows, "monotonic", lambda: self.now)
        self.arrival = Arrival(5)
        none = np.empty(0, np.int64)
        block = Assembly(0, None, None, None, 0, 0, deque(), None, None, [], None)  # type: ignore[arg-type]
        block.arrival, block.rooms = self.arrival, [none] * 5  # type: ignore[assignment]
        block.asked, self.signs = np.array([2, 2, 1, 0, 0]), np.zeros(3, np.uint32)
        self.rows = Rows(block, None, PATIENCE, lambda: self.round, lambda: self.signs, "file")  # type: ignore[arg-type]

    def after(self, seconds: float) -> bool:
        """Whether the rows are given up by then."""
        self.now += seconds
        assert not self.rows.poll()
        return self.arrival.is_given_up


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    return Waiting(monkeypatch)


def test_rows_are_given_up_where_nothing_goes_on(waiting: Waiting) -> None:
    assert not waiting.after(PATIENCE)
    assert waiting.after(0.1)


def test_rows_are_awaited_while_others_come(waiting: Waiting) -> None:
    for room in range(4):
        waiting.arrival.fill(room)
        assert not waiting.after(PATIENCE + 0.1)
    assert waiting.after(PATIENCE + 0.1)


def test_rows_are_awaited_while_windows_go_on(waiting: Waiting) -> None:
    for _ in range(10):
        waiting.round += 1
        assert not waiting.after(PATIENCE + 0.1)
    assert waiting.after(PATIENCE + 0.1)


def test_rows_are_awaited_while_their_roots_tell_that_they_read(waiting: Waiting) -> None:
    for room in (3, 4):
        waiting.arrival.fill(room)
    assert not waiting.after(PATIENCE + 0.1)
    for _ in range(5):
        waiting.signs[2] += 1
        assert not waiting.after(PATIENCE + 0.1)
    waiting.signs[0] += 1  # all of whose rows are there
    assert waiting.after(PATIENCE + 0.1)
