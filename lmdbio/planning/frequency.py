"""frequency: how often a node will use each record in all its epochs. Pure.

In each epoch a record comes to one of N nodes, each as likely: over E epochs a node uses it
about E/N times, some records far more often than others, and those are worth to be held.

``confidence_ranks`` is of another binomial: of n runs as many as chance has it lie below their
median.

Source: the HDMLP thesis, section 3.2.1: equation 3.8; section 5.1.
"""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["confidence_ranks", "share_used_more_than"]


def share_used_more_than(uses: int, epochs: int, nodes: int) -> float:
    """Return the share of all records that a node is to use more than ``uses`` times.

    The number of uses is binomial: E epochs, chance 1/N. Equation 3.8 with its sum begun at the
    first number that is larger, as its worked example has it.
    """
    if nodes < 1:
        raise ValueError(f"there must be at least 1 node, not {nodes}")
    if nodes == 1:
        return float(uses < epochs)
    hit, miss = -math.log(nodes), math.log1p(-1 / nodes)
    terms = (
        math.lgamma(epochs + 1)
        - math.lgamma(k + 1)
        - math.lgamma(epochs - k + 1)
        + k * hit
        + (epochs - k) * miss
        for k in range(max(0, uses + 1), epochs + 1)
    )
    return min(1.0, math.fsum(map(math.exp, terms)))


def confidence_ranks(runs: int, miss: float = 0.05) -> tuple[int, int] | None:
    """Return the ranks j and k of the runs between which their median lies, but for a chance.

    The narrowest pair that is as far from both ends; ranks count from 1, the least run. Nothing is
    assumed of the runs' distribution.

    Args:
        runs: number of runs.
        miss: the chance that the median lies outside, at most.

    Returns:
        None: there are too few runs to be so sure.

    Source: the HDMLP thesis, equation 5.1.
    """
    part = Fraction(miss)
    most = part.numerator * 2**runs // (2 * part.denominator)
    found, below, ways = None, 0, 1
    for low in range(1, (runs + 1) // 2 + 1):
        below += ways
        if below > most:
            break
        found = low, runs + 1 - low
        ways = ways * (runs + 1 - low) // low
    return found
