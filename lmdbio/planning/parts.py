"""parts: so many things in parts, even ones or of given sizes, each thing in one of them. Pure.

    total, parts     -> ranges   even parts, as ranks share a batch
    count, fractions -> sizes    as near to the fractions as whole numbers are
    sizes, seed      -> samples  an epoch's order, cut; each part in ascending order

The order is ``order.Epoch``'s, so that parts are the same on every machine and in every version.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from lmdbio.planning.order import Epoch

__all__ = ["part_sizes", "split_samples", "split_share"]

I64 = npt.NDArray[np.int64]

#: The sum of fractions that people write, such as three times 0.333, is 1 to within this.
SUM_TOLERANCE = 1e-2


def split_share(total: int, parts: int, part: int) -> range:
    """The positions of ``part`` when ``total`` things are shared evenly by ``parts``."""
    return range(part * total // parts, (part + 1) * total // parts)


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
