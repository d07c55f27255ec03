"""chances: closed forms of the papers, which tests compare counts with."""

from __future__ import annotations

import math

__all__ = ["held_limit", "moved_share_limit", "share_used_more_than"]


def held_limit(batch: int, learners: int, alpha: float = 1.0) -> float:
    """Return how many of a batch's records one learner holds at most, with high probability.

    Records lie anywhere: the fullest of p bins with b balls has no more than
    b/p + alpha * sqrt(2 * b/p * log p) of them, for alpha above 1 and b well above p log p.

    Args:
        batch: records of a step (b).
        learners: number of learners that hold them, each as many (p).
    """
    mean = batch / learners
    return mean + alpha * math.sqrt(2 * mean * math.log(learners))


def moved_share_limit(local_batch: int) -> float:
    """Return the share of a step that is moved on average, with very many learners.

    Each holds a chance number of a step's records, Poisson about its share; half of the mean
    deviation is moved: n**n * e**-n / n!, with n the records of a learner's share.
    """
    n = local_batch
    if n < 1:
        raise ValueError(f"a share of {n} records is none")
    if n > 10**6:  # Stirling's formula, of which the other one would lose all digits
        return 1 / math.sqrt(2 * math.pi * n)
    return math.exp(n * math.log(n) - n - math.lgamma(n + 1))


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
