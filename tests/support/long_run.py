"""How many cases a test draws: some in ``make test``, all of them in ``make test-long``.

Tests that search at random, repeat what they do for many rounds, or go through hundreds of moments
one by one take minutes together. Every change passes through a part of their cases, and the long
run (.ci/long) through all of them. The tests of a module that imports this one are those that
``make test-long`` runs.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")

__all__ = ["IS_LONG", "cases", "moments", "one_of"]

#: Read when tests are collected; they themselves see no LMDBIO_ variable, which this one is not.
IS_LONG = os.environ.get("TEST_LONG") == "1"
#: The part of all cases that every change passes through.
PART = 3


def cases(most: int, usual: int | None = None) -> int:
    """Return how many cases to draw.

    Args:
        most: number in the long run.
        usual: number otherwise; None for a third.
    """
    return most if IS_LONG else usual or max(1, most // PART)


def moments() -> Iterator[int]:
    """Yield 1, 2, 3 and so on in the long run; otherwise every third, on each day others."""
    if IS_LONG:
        return itertools.count(1)
    return itertools.count(1 + today() % PART, PART)


def one_of(*values: T) -> list[T]:
    """Return all values in the long run; otherwise one, on each day another."""
    return list(values) if IS_LONG else [values[today() % len(values)]]


def today() -> int:
    """Return the number of this day."""
    return int(time.time()) // 86400
