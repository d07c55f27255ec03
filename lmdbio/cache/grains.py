"""grains: where the grains of a shard lie in the data file, and on which of its pages. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core

__all__ = ["PAGE_BYTES", "GrainMap"]

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

PAGE_BYTES = _core.CHECKED_PAGE_BYTES


class GrainMap:
    """The grains of a shard, each of which begins on a page; numbered by their places in it.

    Args:
        begins: offset of each grain in the data file, bytes, ascending, int64 (n,).
        size: bytes of a grain.
        limit: end of what is needed of the data file, bytes; grains behind it have no pages.

    Attributes:
        begins: offset of each grain in the data file, bytes.
        size: bytes of a grain.
        limit: end of what is needed of the data file, bytes.
        firsts, ends: number of the first page of each grain, and of the one behind its last.
    """

    def __init__(self, begins: I64, size: int, limit: int) -> None:
        self.begins, self.size, self.limit = begins, size, limit
        self.firsts: I64 = begins // PAGE_BYTES
        self.ends: I64 = np.maximum(
            -(-np.minimum(begins + size, limit) // PAGE_BYTES), self.firsts
        )

    def __len__(self) -> int:
        return len(self.begins)

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

    def runs(self, grains: I64, addresses: I64, bytes_max: int) -> tuple[I64, I64]:
        """Return the runs of grains that lie side by side, in the file and in memory.

        Args:
            grains: numbers of the grains, ascending.
            addresses: address of each in memory.
            bytes_max: size of a run, bytes, or of one grain.

        Returns:
            The first grain of each run, by its place in ``grains``; and the grains of each.
        """
        most = max(1, bytes_max // self.size)
        is_new = np.ones(len(grains), np.bool_)
        is_new[1:] = np.diff(self.begins[grains]) != self.size
        is_new[1:] |= np.diff(addresses) != self.size
        run = np.cumsum(is_new) - 1
        within = np.arange(len(grains)) - np.flatnonzero(is_new)[run]
        firsts = np.flatnonzero(within % most == 0)
        return firsts, np.diff(np.append(firsts, len(grains)))

    def reads(
        self, grains: I64, addresses: I64, bytes_max: int, alignment: int = PAGE_BYTES
    ) -> npt.NDArray[Any]:
        """Return requests (``READ``) in the data file for grains, a run of them each.

        Args:
            grains: numbers of the grains, ascending.
            addresses: address of each in memory.
            bytes_max: size of a request, bytes, or of one grain.
            alignment: alignment of a request's length, bytes.
        """
        firsts, counts = self.runs(grains, addresses, bytes_max)
        begins = self.begins[grains[firsts]]
        reads = np.zeros(len(firsts), _core.READ)
        reads["offset"], reads["into"] = begins, addresses[firsts]
        reads["needed"] = needed = np.minimum(counts * self.size, self.limit - begins)
        reads["length"] = -(-needed // alignment) * alignment
        return reads
