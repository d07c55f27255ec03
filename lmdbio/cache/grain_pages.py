"""grain_pages: the pages of a data file that grains lie on. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio import _core

__all__ = ["GrainPages"]

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

PAGE_BYTES = _core.CHECKED_PAGE_BYTES
#: Bytes that are written at once.
WRITE_BYTES = 4 << 20


class GrainPages:
    """The pages under grains, each of which begins on a page.

    Args:
        begins: offset of each grain in the data file, bytes, ascending, int64 (n,).
        size: bytes of a grain.
        limit: end of what is needed of the data file, bytes; grains behind it have no pages.

    Attributes:
        begins: offset of each grain in the data file, bytes.
        firsts, ends: number of the first page of each grain, and of the one behind its last.
    """

    def __init__(self, begins: I64, size: int, limit: int) -> None:
        self.begins, self._size = begins, size
        self.firsts: I64 = begins // PAGE_BYTES
        self.ends: I64 = np.maximum(
            -(-np.minimum(begins + size, limit) // PAGE_BYTES), self.firsts
        )

    def under(self, grain: int, count: int = 1) -> tuple[int, int]:
        """Return the first page of a grain, and the number of pages of it and those behind it.

        Args:
            grain: number of the grain.
            count: number of grains, neighbours in the data file.
        """
        first = int(self.firsts[grain])
        return first, int(self.ends[grain + count - 1]) - first

    def span(self, start: int = 0) -> tuple[int, int]:
        """Return the first page of the grains from a number on, and the one behind the last."""
        if start >= len(self.firsts):
            return 0, 0
        return int(self.firsts[start]), int(self.ends[-1])

    def present(self, sums: U32, start: int = 0) -> Flags:
        """Return which grains from a number on have all of their pages: bool (n - start,).

        Args:
            sums: sums of the pages of their ``span``, 0 where one is not there.
            start: number of the first grain.
        """
        there = np.concatenate(([0], np.cumsum(sums != 0)))
        first = self.span(start)[0]
        low, high = self.firsts[start:] - first, self.ends[start:] - first
        return np.asarray(there[high] - there[low] == high - low)

    def runs(self, grains: I64, addresses: I64) -> list[I64]:
        """Return the places of grains that lie side by side, in file and memory, some at a time.

        Args:
            grains: numbers of them, ascending.
            addresses: place of each in memory.
        """
        step = np.diff(addresses) == self._size
        is_near = step & (np.diff(self.begins[grains]) == self._size)
        runs = np.split(np.arange(len(grains)), np.flatnonzero(~is_near) + 1)
        at_once = max(1, WRITE_BYTES // self._size)
        return [run[at : at + at_once] for run in runs for at in range(0, len(run), at_once)]
