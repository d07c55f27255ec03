"""mix: samples of several sets as one sequence, each set coming as its weight says. Pure.

    place  -> set     by a table of one period, as long as the sum of the weights
    place  -> number  how many places before it are that set's: whole periods, and the table
    number -> sample  by the set's own epochs: each sample once before any comes again

Places are counted on from epoch to epoch: place p of epoch e is place e * size + p of one endless
sequence. At any place of it each set has come as often as its share, to within less than one:

    weights 3, 1     place    0  1  2  3  4  5  6  7
                     set      0  0  1  0  0  0  1  0

For each set the k-th of its places (from 0) lies in a window of places, outside of which its count
would be one or more from its share. A schedule in which all do exists, and to give each place to
the set whose window ends first, of those whose window has begun, finds one.

The other way round, samples are split into parts, each of them in one part: as near to given
fractions as whole numbers are, by an epoch's order, which is the same on every machine.

Source: Steiner and Yeomans, Level Schedules for Mixed-Model, Just-in-Time Processes (Management
Science 39, 1993): that there is one; Jackson (1955): that earliest due dates find it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio.planning.order import COUNT_MAX, Epoch, Epochs

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = [
    "PERIOD_MAX",
    "MixEpoch",
    "MixOrder",
    "part_sizes",
    "split_samples",
    "whole_weights",
]

I64 = npt.NDArray[np.int64]

#: Sum of the weights at most: other ones are rounded to so many parts of the whole.
PERIOD_MAX = 1 << 16
#: The sum of fractions that people write, such as three times 0.333, is 1 to within this.
SUM_TOLERANCE = 1e-2


def whole_weights(weights: Sequence[float]) -> tuple[int, ...]:
    """Return whole numbers in the same proportions, as small as can be.

    Proportions for which their sum would be more than ``PERIOD_MAX`` are rounded so that it is
    that, and none is 0.

    Args:
        weights: weights above 0; a float stands for the simplest fraction that is written so, such
            as 0.1 for a tenth, and 1 / 3 for a third.

    Raises:
        ValueError: there is none, one is not above 0, or they are more than ``PERIOD_MAX``.
    """
    if not 0 < len(weights) <= PERIOD_MAX or any(not 0 < w < float("inf") for w in weights):
        raise ValueError(f"weights are numbers above 0, one for each set, not {list(weights)}")
    from fractions import Fraction  # which few programs need, and takes a while to load

    exact = [_simplest(weight) for weight in weights]
    scale = lcm(*(one.denominator for one in exact))
    whole = [int(one * scale) for one in exact]
    total = sum(whole)
    common = np.gcd.reduce(np.array(whole, object))
    if total // common <= PERIOD_MAX:
        return tuple(one // common for one in whole)
    # One each, and the rest by what is left of each one's share.
    rest = [max(Fraction(0), Fraction(one * PERIOD_MAX, total) - 1) for one in whole]
    sizes = part_sizes(PERIOD_MAX - len(whole), [float(one / sum(rest)) for one in rest])
    return tuple(1 + size for size in sizes)


def _simplest(weight: float) -> Fraction:
    from fractions import Fraction

    exact = Fraction(weight)
    near = exact.limit_denominator(PERIOD_MAX)
    return near if float(near) == float(weight) else exact


class _Period(NamedTuple):
    """The places of one period.

    Attributes:
        sets: set of each place.
        before: number of places before each that are of the same set.
    """

    sets: npt.NDArray[np.intp]
    before: I64


@lru_cache(maxsize=4)
def _period(weights: tuple[int, ...]) -> _Period:
    """Return the places of a period in which each set comes as often as its weight says."""
    total = sum(weights)
    windows = [
        (k * total // weight, -(-(k + 1) * total // weight), number)
        for number, weight in enumerate(weights)
        for k in range(weight)
    ]
    windows.sort(reverse=True)
    waiting: list[tuple[int, int]] = []  # (end, set) of windows that have begun
    sets = np.empty(total, np.intp)
    for place in range(total):
        while windows and windows[-1][0] <= place:
            _, end, number = windows.pop()
            heapq.heappush(waiting, (end, number))
        end, sets[place] = heapq.heappop(waiting)
        assert end > place
    before = np.empty(total, np.int64)
    for number, weight in enumerate(weights):
        before[sets == number] = np.arange(weight)
    return _Period(sets, before)


@lru_cache(maxsize=1024)
def _epochs(count: int, seed: int | None, number: int) -> Epochs:
    """Return the epochs of a set of so many samples, by its number."""
    # The words of a seed all count: no two sets go in the same order, nor two seeds' sets.
    return Epochs(count, None if seed is None else (seed << 64) + number + 1)


@dataclass(frozen=True, slots=True)
class MixOrder:
    """The order in which samples of several sets come, in all epochs.

    Attributes:
        counts: samples of each set, at least 1.
        weights: weight of each set, whole numbers from 1 on.
        size: samples of an epoch.
        seed: seed of all sets' orders, any integer; None: each set goes in its own order.

    Raises:
        ValueError: values that make no order.
    """

    counts: tuple[int, ...]
    weights: tuple[int, ...]
    size: int
    seed: int | None = 0

    def __post_init__(self) -> None:
        if not self.counts or len(self.counts) != len(self.weights):
            raise ValueError(
                f"each set has a weight: {len(self.counts)} sets, {len(self.weights)} weights"
            )
        if min(self.counts) < 1 or min(self.weights) < 1:
            raise ValueError("each set of a mix has a sample, and a weight of at least 1")
        if sum(self.weights) > PERIOD_MAX:
            raise ValueError(f"the sum of the weights is more than {PERIOD_MAX}")
        if not 1 <= self.size <= COUNT_MAX:
            raise ValueError(f"an epoch has at least one sample, not {self.size}")

    @property
    def signature(self) -> dict[str, Any]:
        """The parts that make the order, in types of JSON; equal for equal orders."""
        return {
            "counts": list(self.counts),
            "weights": list(self.weights),
            "size": self.size,
            "seed": self.seed,
        }

    def epochs(self, number: int) -> Epochs:
        """Return the epochs of one set's own."""
        return _epochs(self.counts[number], self.seed, number)

    def find(self, places: npt.ArrayLike) -> tuple[npt.NDArray[np.intp], I64]:
        """Return set and sample of some places, counted on from epoch to epoch.

        Args:
            places: integers, shape (n,), from 0 on.

        Raises:
            ValueError: a place is negative.
        """
        given = np.asarray(places, np.int64)
        if given.size and int(given.min()) < 0:
            raise ValueError("a place of a mix is at least 0")
        period, weights = _period(self.weights), np.array(self.weights, np.int64)
        periods, within = np.divmod(given, len(period.sets))
        sets = period.sets[within]
        numbers = periods * weights[sets] + period.before[within]
        samples = np.empty_like(given)
        for number in sorted(set(sets.tolist())):
            here = sets == number
            samples[here] = self.epochs(number).samples(numbers[here])
        return sets, samples

    def epoch(self, number: int) -> MixEpoch:
        """Return one epoch."""
        return MixEpoch(self, number)


@dataclass(frozen=True, slots=True)
class MixEpoch:
    """One epoch of a mix, for callers that go through it by places (``order.Epoch``).

    Its samples are places of the endless sequence.
    """

    order: MixOrder
    number: int

    @property
    def count(self) -> int:
        """The number of samples."""
        return self.order.size

    @property
    def seed(self) -> int | None:
        """Of the order; None: the sets are not shuffled."""
        return self.order.seed

    def samples(self, places: npt.ArrayLike) -> I64:
        """Return the places of all epochs' sequence at some places of this one; int64."""
        return np.asarray(places, np.int64) + self.number * self.order.size


# --- parts


def part_sizes(count: int, fractions: Sequence[float]) -> tuple[int, ...]:
    """Return the sizes of parts.

    Args:
        count: samples.
        fractions: share of each part, at least 0, 1 in sum; or whole numbers, ``count`` in sum.

    Returns:
        Sizes whose sum is ``count``, each less than 1 from its fraction: what rounding down leaves
        over goes to the parts with the largest remainders, the first ones where these are equal.

    Raises:
        ValueError: the fractions are none, or their sum is another one.
    """
    given = list(fractions)
    if not given or any(not 0 <= one < float("inf") for one in given):
        raise ValueError(f"fractions are numbers from 0 on, one for each part, not {given}")
    if all(hasattr(one, "__index__") for one in given) and sum(given) == count:
        return tuple(map(int, given))
    exact = [_exact(one) for one in given]
    whole = sum(exact)
    if abs(float(whole) - 1) > SUM_TOLERANCE:
        raise ValueError(
            f"the sum of the fractions {given} is {float(whole):g}: it must be 1, or, of whole "
            f"numbers, {count}"
        )
    shares = [one * count / whole for one in exact]
    floors = [int(share) for share in shares]
    by_remainder = sorted(range(len(given)), key=lambda i: floors[i] - shares[i])
    for part in by_remainder[: count - sum(floors)]:
        floors[part] += 1
    return tuple(floors)


def _exact(number: float) -> Fraction:
    from fractions import Fraction

    try:
        return Fraction(number)
    except TypeError:  # NumPy's float32, and numbers of other libraries
        return Fraction(float(number))


def split_samples(count: int, fractions: Sequence[float], seed: int | None) -> list[I64]:
    """Return the samples of each part, in ascending order.

    Args:
        count, fractions: number of samples, and share of each part, as of ``part_sizes``.
        seed: seed of the order that is cut, any integer; None: parts are runs of samples.

    Raises:
        ValueError, TypeError: as for ``part_sizes`` and ``order.Epoch``.
    """
    sizes = part_sizes(count, fractions)
    samples = Epoch(count, seed).samples(np.arange(count, dtype=np.int64))
    return [np.sort(part) for part in np.split(samples, np.cumsum(sizes)[:-1])]
