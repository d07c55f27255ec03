"""Speculation: guesses where records lie from where earlier ones lay. Pure.

Records that were put in the order of their keys lie, but for a few, on a line: offset = a + b *
number. The last places found give the line, and the errors of the last guesses
how much to read on both sides of it. A guess is never more than twice as wide as the records are
expected to be, and none is made where guesses have not been right of late.

Source: LMDBIO (ACM TOPC 2019), history-based speculative parallel I/O (LMM-DM).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.reads import PAGE_BYTES
from lmdbio.planning.schedule import Run

__all__ = ["Guess", "Speculation"]

#: Guesses that are remembered.
MEMORY = 4
#: The margin is so many times the largest error remembered, and at most so much of the width.
MARGIN_FACTOR, MARGIN_SHARE_MAX = 1.25, 0.5
#: Records off the line that are left to be read alone, at each end.
OUTLIERS = 0.02
#: Less of the records inside, over all guesses remembered, and none is made.
HITS_MIN = 0.5


@dataclass(frozen=True, slots=True)
class Guess:
    """Parts of the file that are read in advance.

    Attributes:
        ranges: dtype ``EXTENT``, whole pages, ascending, apart from one another.
    """

    ranges: _core.Extents

    def places(
        self, extents: _core.Extents, begins: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.int64]:
        """Where each extent begins in the memory that the ranges were read into.

        Args:
            extents: dtype ``EXTENT``.
            begins: offset of each range in that memory, bytes.

        Returns:
            int64, bytes; -1: it was not read, or not all of it.
        """
        at = np.searchsorted(self.ranges["offset"], extents["offset"], side="right") - 1
        at = np.maximum(at, 0)
        low, length = self.ranges["offset"][at], self.ranges["length"][at]
        inside = extents["offset"] >= low
        within = np.where(inside, extents["offset"] - low, 0)
        inside &= (within <= length) & (extents["length"] <= length - np.minimum(within, length))
        return np.where(inside, (begins[at] + within).astype(np.int64), -1)


@dataclass(slots=True)
class _Line:
    """offset = ``offset`` + ``slope`` * (number - ``number``); a record ends ``slope`` later."""

    number: float
    offset: float
    slope: float

    def at(self, number: float) -> float:
        return self.offset + self.slope * (number - self.number)


class Speculation:
    """The history of one root.

    Args:
        count: records in the data set.
        size: size of the file, bytes.
        sample: extents of the first records, which one root has looked up for all.
    """

    def __init__(self, count: int, size: int, sample: _core.Extents) -> None:
        self._count, self._size = count, size
        self._errors: deque[float] = deque(maxlen=MEMORY)
        self._hits: deque[float] = deque(maxlen=MEMORY)
        self._line: _Line | None = None
        self._learn_line(0, sample)

    # --- guessing

    def guess(self, runs: Sequence[Run], start: int) -> Guess | None:
        """Where the records of some runs lie; None where nothing can be said.

        Args:
            runs: runs of one block.
            start: record that the sequence starts with.
        """
        if self._line is None or (self._hits and np.mean(self._hits) < HITS_MIN):
            return None
        ranges = [self._range(*part) for run in runs for part in self._parts(run, start)]
        return _merged([one for one in ranges if one[1] > one[0]])

    def _parts(self, run: Run, start: int) -> list[tuple[int, int]]:
        """(first, length) of a run in the data set, cut where it begins again."""
        first, left, parts = (start + run.first) % self._count, run.length, []
        while left:
            length = min(left, self._count - first)
            parts.append((first, length))
            first, left = 0, left - length
        return parts

    def _range(self, first: int, length: int) -> tuple[int, int]:
        """[low, high) of the file, whole pages."""
        line = self._line
        assert line is not None
        ends = line.at(first), line.at(first + length)
        low, high = min(ends), max(ends)
        margin = min(self._margin(high - low), MARGIN_SHARE_MAX * (high - low))
        whole = self._size // PAGE_BYTES * PAGE_BYTES
        return (
            max(0, min(whole, int(low - margin) // PAGE_BYTES * PAGE_BYTES)),
            max(0, min(whole, -(-int(high + margin) // PAGE_BYTES) * PAGE_BYTES)),
        )

    def _margin(self, width: float) -> float:
        if not self._errors:
            return width / 4
        return MARGIN_FACTOR * max(self._errors)

    # --- learning

    def learn(self, first: int, extents: _core.Extents) -> None:
        """Remembers where records lie, and how right a guess of them was or would have been.

        Args:
            first: number of the first of them in the data set.
            extents: extents of the records from ``first`` on; they may go round.
        """
        extents = extents[: self._count - first]
        if not len(extents):
            return
        if self._line is not None:
            self._judge(first, extents)
        self._learn_line(first, extents)

    def _judge(self, first: int, extents: _core.Extents) -> None:
        line = self._line
        assert line is not None
        low, high = _span(extents)
        ends = line.at(first), line.at(first + len(extents))
        low_guess, high_guess = min(ends), max(ends)
        # A record inside a leaf may lie anywhere on it.
        low, high = low // PAGE_BYTES * PAGE_BYTES, -(-high // PAGE_BYTES) * PAGE_BYTES
        self._errors.append(max(low_guess - low, high - high_guess, 0.0))
        guess = _merged([self._range(first, len(extents))])
        if guess is None:
            return
        inside = guess.places(extents, np.zeros(len(guess.ranges), np.uint64)) >= 0
        self._hits.append(float(inside.mean()))

    def _learn_line(self, first: int, extents: _core.Extents) -> None:
        if not len(extents):
            return
        number = first + (len(extents) - 1) / 2
        pages = extents["offset"] // PAGE_BYTES * PAGE_BYTES
        offset = float(np.median(pages))
        before = self._line
        if before is None or number == before.number:
            if len(extents) < 2:
                return
            steps = np.diff(extents["offset"].astype(np.int64))
            slope = (float(extents["offset"][-1]) - float(extents["offset"][0])) / len(steps)
            if abs(slope) > 4 * abs(np.median(steps)) + PAGE_BYTES:
                slope = float(np.median(steps))
        else:
            slope = (offset - before.offset) / (number - before.number)
        self._line = _Line(number, offset, slope)


def _span(extents: _core.Extents) -> tuple[float, float]:
    """Where all but a few of some records begin and end."""
    ends = extents["offset"] + extents["length"]
    return (
        float(np.quantile(extents["offset"], OUTLIERS, method="higher")),
        float(np.quantile(ends, 1 - OUTLIERS, method="lower")),
    )


def _merged(ranges: Sequence[tuple[int, int]]) -> Guess | None:
    """Ranges in order, those that touch as one."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    if not merged:
        return None
    table = np.empty(len(merged), _core.EXTENT)
    table["offset"] = [low for low, _ in merged]
    table["length"] = [high - low for low, high in merged]
    return Guess(table)
