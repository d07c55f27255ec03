"""places: places of a sequence that recur from batch to batch, as runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Places", "merged"]


class Places(NamedTuple):
    """Runs of places that begin anew ``repeats`` times, ``step`` places apart.

    Attributes:
        first: place from which the first time's runs count.
        step: places, between two times.
        repeats: times.
        runs: places of one time.
    """

    first: int
    step: int
    repeats: int
    runs: tuple[range, ...]

    def numbers(self) -> npt.NDArray[np.int64]:
        """Return all of them: int64, shape (n,), in their order."""
        runs = [np.arange(run.start, run.stop) for run in self.runs]
        once = np.concatenate([np.empty(0, np.int64), *runs])
        times = self.first + np.arange(self.repeats)[:, np.newaxis] * self.step
        return np.asarray((times + once).ravel(), np.int64)


def merged(ranges: Iterable[range]) -> tuple[range, ...]:
    """Return the ranges, in their order, as few as they can be."""
    runs: list[range] = []
    for one in ranges:
        if runs and runs[-1].stop == one.start:
            runs[-1] = range(runs[-1].start, one.stop)
        elif one:
            runs.append(one)
    return tuple(runs)
