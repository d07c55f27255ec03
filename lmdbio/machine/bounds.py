"""How much memory the slots of a window can need at most.

The bound is proven, not guessed: a slot sized by it can never turn out too small in the middle of
an epoch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core

__all__ = ["FootprintBound", "LengthBound"]


class FootprintBound:
    """Bounds the bytes that any run of consecutive records can need, aligned, gaps excluded.

    A record needs the aligned pieces of the file that it touches. A run needs at most all the
    pieces of its first record and, of every other, those that the record before it does not
    need too. Sliding-window sums of the latter over the circle of records, plus the largest
    difference between the two, bound every run. Records that repeat are read once, so no set
    of records needs more than the whole circle does.

    Beyond ``CELLS`` records neighbours are summed up in cells, and a run is charged for all
    cells that it can touch.

    Args:
        count: records.
        alignment: bytes, a power of two.
    """

    CELLS = 2**22

    def __init__(self, count: int, alignment: int) -> None:
        self._alignment = alignment
        self._cell = -(-count // self.CELLS)
        self._sums: npt.NDArray[np.int64] = np.zeros(-(-count // self._cell), np.int64)
        #: Sums of all cells before each; None: to be made.
        self._before: npt.NDArray[np.int64] | None = None
        self._count, self._seen = count, 0
        self._last = (0, 0)
        self._shared_max = 0
        #: Sum of so many of the largest cells; None: to be made.
        self._largest: tuple[int, int] | None = None
        self.total = 0

    def add(self, extents: npt.NDArray[Any]) -> None:
        """Takes the extents (dtype ``EXTENT``) of the next records, in index order."""
        if not len(extents):
            return
        count = len(extents)
        if self._cell == 1:
            needed = self._sums[self._seen : self._seen + count]
        else:
            needed = np.empty(count, np.int64)
        self._last, shared_max, total = _core.footprint(
            extents, self._alignment, self._last, needed
        )
        if self._cell > 1:
            cells = np.arange(self._seen, self._seen + count) // self._cell
            starts = np.flatnonzero(np.diff(cells, prepend=-1))
            self._sums[cells[starts]] += np.add.reduceat(needed, starts)
        self._before = self._largest = None
        self._shared_max = max(self._shared_max, shared_max)
        self._seen += count
        self.total += total

    def run(self, length: int) -> int:
        """Bytes that ``length`` consecutive records of the circle need at most."""
        self._check_seen()
        if length <= 0:
            return 0
        # The last cell may be short, so a run over the seam can touch one more.
        cells = -(-(length - 1) // self._cell) + 1 + (self._cell > 1)
        if length >= self._count or cells >= len(self._sums):
            return self.total
        if self._before is None:
            self._before = np.concatenate(([0], np.cumsum(self._sums)))
        before = self._before  # in a circle
        ends = np.concatenate((before[cells:], before[1:cells] + before[-1]))
        largest = int((ends - before[:-1]).max())
        return min(self.total, largest + self._shared_max)

    def any(self, length: int) -> int:
        """Bytes that ``length`` records need at most, wherever they lie."""
        self._check_seen()
        if length <= 0:
            return 0
        if length >= len(self._sums):
            return self.total
        if self._largest is None or self._largest[0] != length:
            # Records of one cell may be the largest ones: the cell stands for each of them.
            largest = np.partition(self._sums, len(self._sums) - length)[-length:]
            self._largest = length, int(largest.sum())
        return min(self.total, self._largest[1] + length * self._shared_max)

    def _check_seen(self) -> None:
        if self._seen != self._count:
            raise RuntimeError(f"{self._seen} of {self._count} extents were seen")

    def runs(self, lengths: tuple[int, ...], repeats: int) -> int:
        """Bytes that ``repeats`` times a set of runs needs at most."""
        return min(self.total, repeats * sum(map(self.run, lengths)))


class LengthBound:
    """Bounds the bytes of any records that are copied, each rounded up to a multiple.

    It knows how many records are of each length, to one part in 64: lengths are told apart by the
    exponent of a float64 and the first bits of its fraction, rounded up.

    Args:
        alignment: bytes, to a multiple of which each record is rounded up.
    """

    #: Bits of a float64's fraction that lengths are not told apart by; and those of one half.
    BITS, NONE = 46, int(np.float64(0.5).view(np.int64))

    def __init__(self, alignment: int) -> None:
        self._alignment = alignment
        self._counts: npt.NDArray[np.int64] = np.zeros(1, np.int64)

    def add(self, extents: npt.NDArray[Any]) -> None:
        """Takes the extents (dtype ``EXTENT``) of more records."""
        if not len(extents):
            return
        alignment = np.uint64(self._alignment)
        lengths = (extents["length"] + alignment - np.uint64(1)) // alignment * alignment
        up = (1 << self.BITS) - 1 - self.NONE
        codes = (lengths.astype(np.float64).view(np.int64) + up) >> self.BITS
        counts = np.bincount(np.maximum(codes, 0), minlength=len(self._counts))
        counts[: len(self._counts)] += self._counts
        self._counts = counts

    def any(self, count: int) -> int:
        """Bytes that ``count`` of the records need at most."""
        codes = np.arange(len(self._counts))[::-1]
        lengths = ((codes << self.BITS) + self.NONE).view(np.float64)
        lengths[-1] = 0  # of those that have none
        before = np.cumsum(self._counts[::-1])
        taken = np.diff(np.minimum(before, count), prepend=0)
        return int(np.ceil((taken * lengths).sum()))
