"""balance: which teams take which places of a batch, near where their records are held. Pure.

    holder of each place --deal--> learner that takes it

Each learner keeps the places whose records it holds, as far as its share goes; the rest goes to
those that hold too few. All compute this alike, and no message says it:

    holders  1 1 0 1 2 1 0 2 1 1 2 2      counts 2 6 4, shares 4 4 4      moves: 2 from 1 to 0
    learner 0 takes places 2 6 and 8 9, learner 1 takes 0 1 3 5, learner 2 takes 4 7 10 11

A learner may be a rank or a node, whose ranks share memory: between nodes less is moved. All
learners together have the same records in each step as without it, so that the sum of their
gradients is the same.

Source: Yang and Cong, Accelerating Data Loading in Deep Neural Network Training (locality-aware
loading), algorithm 1, theorems 1 and 2, section V-C.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio.planning.parts import split_share

__all__ = ["NOBODY", "Move", "balance", "deal"]

I64 = npt.NDArray[np.int64]

#: The holder of a record that no node holds.
NOBODY = -1


class Move(NamedTuple):
    """Records of a step that one learner gives to another.

    Attributes:
        source, target: learners.
        records: number of records.
    """

    source: int
    target: int
    records: int


def balance(held: Sequence[int], shares: Sequence[int]) -> list[Move]:
    """Return the moves after which each learner has its share.

    The largest surplus goes to the largest deficit, the lowest learner first where they are equal.
    There are at most as many moves as learners, less one; together they are as large as all
    deficits.

    Args:
        held: records that each learner has.
        shares: records that each is to have; the same number in all.

    Raises:
        ValueError: the numbers do not add up.
    """
    _refuse_sums(sum(held), len(held), shares)
    surplus = [(b - a, i) for i, (a, b) in enumerate(zip(held, shares, strict=True)) if a > b]
    deficit = [(a - b, i) for i, (a, b) in enumerate(zip(held, shares, strict=True)) if a < b]
    heapq.heapify(surplus)  # negative amounts, since a heap gives the smallest first
    heapq.heapify(deficit)
    moves: list[Move] = []
    while surplus:
        (have, source), (lack, target) = surplus[0], deficit[0]
        records = min(-have, -lack)
        moves.append(Move(source, target, records))
        _take(surplus, have + records, source)
        _take(deficit, lack + records, target)
    return moves


def _refuse_sums(records: int, learners: int, shares: Sequence[int]) -> None:
    """Raise ValueError where learners cannot have such shares of so many records."""
    if learners != len(shares) or records != sum(shares):
        raise ValueError(
            f"{records} records of {learners} learners cannot become "
            f"{sum(shares)} of {len(shares)}"
        )


def _take(heap: list[tuple[int, int]], left: int, learner: int) -> None:
    """Replace the first one of a heap by what is left of it."""
    if left:
        heapq.heapreplace(heap, (left, learner))
    else:
        heapq.heappop(heap)


def deal(holders: npt.ArrayLike, learners: int, shares: Sequence[int] | None = None) -> I64:
    """Return the learner that takes each place of a step: int64, shape (places,).

    Each keeps the places whose records it holds; one that has too many of them gives the last ones
    away. Places of records that nobody holds fill up the learners in their order, before anything
    is moved.

    Args:
        holders: the learner that holds the record of each place, or ``NOBODY``; shape (places,).
        learners: number of learners.
        shares: places that each is to have, all in all; None: even ones (``split_share``).

    Raises:
        ValueError: there is no such holder, or no learner, or shares do not add up.
    """
    if learners < 1:
        raise ValueError(f"there must be at least 1 learner, not {learners}")
    given = np.asarray(holders, np.int64)
    if given.size and not NOBODY <= int(given.min()) <= int(given.max()) < learners:
        raise ValueError(f"a holder is none of {learners} learners")
    if shares is None:
        shares = [len(split_share(len(given), learners, i)) for i in range(learners)]
    _refuse_sums(len(given), learners, shares)
    # Of few holders by counting: numpy does so for numbers of 16 bits.
    keys = given.astype(np.int16) if learners <= np.iinfo(np.int16).max else given
    by_holder = np.argsort(keys, kind="stable")
    taken, counts = given[by_holder], np.bincount(given + 1, minlength=learners + 1)
    unheld, held = counts[0], counts[1:]
    lacking = np.maximum(0, np.asarray(shares, np.int64) - held)
    taken[:unheld] = np.repeat(np.arange(learners), lacking)[:unheld]
    held = held + np.bincount(taken[:unheld], minlength=learners)
    ends = np.cumsum(counts)[1:].tolist()
    for move in balance(held.tolist(), shares):
        end = ends[move.source]
        ends[move.source] -= move.records
        taken[end - move.records : end] = move.target
    learner = np.empty_like(taken)
    learner[by_holder] = taken
    return learner
