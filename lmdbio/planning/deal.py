"""deal: which teams take which places of a batch, near where their records are cached. Pure.

    records -> owner of each --deal, batch by batch--> learner that takes it

Each learner keeps the places whose records it has, as far as its share goes; the rest goes to
those that have too few. All compute this alike, and no message says it:

    owners   1 1 0 1 2 1 0 2 1 1 2 2      counts 2 6 4, shares 4 4 4      moves: 2 from 1 to 0
    learner 0 takes places 2 6 and 8 9, learner 1 takes 0 1 3 5, learner 2 takes 4 7 10 11

A learner may be a rank or a team, whose ranks share memory: between teams less is moved. Each
takes as many places of a batch as it does strided, in their order: of one team alone the rows are
the same ones. All learners together have the same records in each step as without it, so that the
sum of their gradients is the same.

Source: Yang and Cong, Accelerating Data Loading in Deep Neural Network Training (locality-aware
loading), algorithm 1, theorems 1 and 2, sections V-A and V-C.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.order import EpochOrder, Shard, split_share

__all__ = [
    "NOBODY",
    "Dealt",
    "Move",
    "Owner",
    "balance",
    "cached_deals",
    "deal",
    "deal_batches",
    "deal_steps",
    "owner_in",
]

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

#: The owner of a record that no node caches.
NOBODY = -1

#: The team that caches each of some records, ``NOBODY`` if none does.
Owner = Callable[[U64], I64]

#: Places of the blocks whose deals are cached for the next question, at most; 12 bytes each.
CACHED_PLACES = 2**21
#: Blocks that are cached, at least and at most.
CACHED_BLOCKS_MIN, CACHED_BLOCKS_MAX = 2, 128


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


def deal(owners: npt.ArrayLike, learners: int, shares: Sequence[int] | None = None) -> I64:
    """Return the learner that takes each place of a step: int64, shape (places,).

    Each keeps the places whose records it has; one that has too many of them gives the last ones
    away. Places of records that nobody has fill up the learners in their order, before anything
    is moved.

    Args:
        owners: the learner that has the record of each place, or ``NOBODY``; shape (places,).
        learners: number of learners.
        shares: places that each is to have, all in all; None: even ones (``split_share``).

    Raises:
        ValueError: there is no such owner, or no learner, or shares do not add up.
    """
    if learners < 1:
        raise ValueError(f"there must be at least 1 learner, not {learners}")
    given = np.asarray(owners, np.int64)
    if given.size and not NOBODY <= int(given.min()) <= int(given.max()) < learners:
        raise ValueError(f"an owner is none of {learners} learners")
    if shares is None:
        shares = [len(split_share(len(given), learners, i)) for i in range(learners)]
    _refuse_sums(len(given), learners, shares)
    # Of few owners by counting: numpy does so for numbers of 16 bits.
    keys = given.astype(np.int16) if learners <= np.iinfo(np.int16).max else given
    by_owner = np.argsort(keys, kind="stable")
    taken, counts = given[by_owner], np.bincount(given + 1, minlength=learners + 1)
    unowned, owned = counts[0], counts[1:]
    lacking = np.maximum(0, np.asarray(shares, np.int64) - owned)
    taken[:unowned] = np.repeat(np.arange(learners), lacking)[:unowned]
    owned = owned + np.bincount(taken[:unowned], minlength=learners)
    ends = np.cumsum(counts)[1:].tolist()
    for move in balance(owned.tolist(), shares):
        end = ends[move.source]
        ends[move.source] -= move.records
        taken[end - move.records : end] = move.target
    learner = np.empty_like(taken)
    learner[by_owner] = taken
    return learner


# --- blocks and steps


class Dealt(NamedTuple):
    """The places of a block, all teams together.

    Attributes:
        first: place, from the start of the sequence on.
        records: record at each place: uint64.
        teams: team that takes each record: uint32.
    """

    first: int
    records: U64
    teams: U32

    def places_of(self, team: int) -> I64:
        """Return the places of a team's rows, from the start of the sequence on."""
        return self.first + np.flatnonzero(self.teams == team)

    def records_of(self, team: int) -> U64:
        """Return the records of a team's rows."""
        return self.records[np.flatnonzero(self.teams == team)]


def cached_deals(block: Callable[[int], Dealt], places: int) -> Callable[[int], Dealt]:
    """Return a function that deals each block once, if it is asked for several times soon.

    Args:
        block: function that deals a block.
        places: places of a block.
    """
    blocks = min(max(CACHED_BLOCKS_MIN, CACHED_PLACES // places), CACHED_BLOCKS_MAX)
    return lru_cache(maxsize=blocks)(block)  # threads may ask at once


def owner_in(shards: U16) -> Owner:
    """Return the function from records to the team that owns each.

    Args:
        shards: owner of each record, or ``_core.NO_HOME``.
    """

    def owner(records: U64) -> I64:
        found = shards[records].astype(np.int64)
        found[found == _core.NO_HOME] = NOBODY
        return found

    return owner


def deal_steps(epoch: EpochOrder, shard: Shard, steps: range, owner: Owner) -> list[I64]:
    """Return the samples of one rank in steps that follow one another, where ranks are the teams.

    Each rank takes as many as it does strided, in the order of the epoch.

    Args:
        epoch: the order of all samples.
        shard: shard of the rank.
        steps: steps of the shard.
        owner: function from samples to the rank that caches each; pure, the same on all ranks.

    Returns:
        For each step int64 of shape (samples,).
    """
    if not steps:
        return []
    parts = [shard.of_all_ranks(step) for step in steps]
    samples = epoch.samples(np.concatenate([places for places, _ in parts]))
    ranks = deal_batches(owner(samples.view(np.uint64)), [shares for _, shares in parts])
    ends = np.cumsum([len(places) for places, _ in parts])[:-1]
    each = zip(np.split(samples, ends), np.split(ranks, ends), strict=True)
    return [batch[takers == shard.rank] for batch, takers in each]


def deal_batches(owners: I64, shares: Sequence[Sequence[int]]) -> I64:
    """Return the learner that takes each place of batches that follow one another.

    Args:
        owners: owner of the record of each place.
        shares: places of each learner in each batch.
    """
    parts, first = [np.empty(0, np.int64)], 0
    for of_batch in shares:
        end = first + sum(of_batch)
        parts.append(deal(owners[first:end], len(of_batch), of_batch))
        first = end
    return np.concatenate(parts)
