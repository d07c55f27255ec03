"""dealt: the batches of a schedule whose teams take what they hold, block by block. Pure.

    places of a block -> records -> holders --deal, batch by batch--> the team of each place

A team takes as many places of a batch as it does strided, in their order: of one team alone the
rows are the same ones.

Source: Yang and Cong, Accelerating Data Loading in Deep Neural Network Training (locality-aware
loading), section V-A.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.balance import NOBODY, deal
from lmdbio.planning.order import Epoch, Shard

__all__ = ["Deals", "Dealt", "Holder", "deal_steps", "home_holder"]

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

#: The team that holds each of some records, ``NOBODY`` if none does.
Holder = Callable[[U64], I64]

#: Places of the blocks whose deals are kept for the next question, at most; 12 bytes each.
KEPT_PLACES = 2**21
#: Blocks that are kept, at least and at most.
KEPT_BLOCKS_MIN, KEPT_BLOCKS_MAX = 2, 128


class Strided(Protocol):
    """The schedule that is dealt, in which no holder says who takes what (``Schedule``)."""

    @property
    def batch_size(self) -> int:
        """Number of records of a batch, over all ranks."""

    @property
    def block_iterations(self) -> int:
        """Number of iterations of a block."""

    @property
    def teams(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each team."""

    def span(self, block: int) -> range:
        """Return the places of a block."""

    def sequence(self, places: range) -> U64:
        """Return the records at neighbouring places."""

    def block_length(self, block: int) -> int:
        """Return the number of iterations in a block."""

    def batch_length(self, iteration: int) -> int:
        """Return the number of records of an iteration."""

    def team_shares(self, iteration: int) -> tuple[int, ...]:
        """Return the number of records that each team takes in an iteration."""


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


class Deals:
    """Deals the blocks of a schedule, each once where it is asked for several times.

    Args:
        schedule: the same one, strided.
        holder: says where records are held.

    Attributes:
        block: returns a block as it is dealt.
    """

    def __init__(self, schedule: Strided, holder: Holder) -> None:
        places = schedule.block_iterations * schedule.batch_size
        kept = min(max(KEPT_BLOCKS_MIN, KEPT_PLACES // places), KEPT_BLOCKS_MAX)

        @lru_cache(maxsize=kept)  # threads may ask at once
        def block(number: int) -> Dealt:
            return _dealt(schedule, holder, number)

        self.block: Callable[[int], Dealt] = block


def _dealt(schedule: Strided, holder: Holder, number: int) -> Dealt:
    """Deal each batch of a block."""
    span = schedule.span(number)
    records = schedule.sequence(span)
    holders, teams, parts = holder(records), len(schedule.teams), []
    first_iteration = number * schedule.block_iterations
    for iteration in range(first_iteration, first_iteration + schedule.block_length(number)):
        first = iteration * schedule.batch_size - span.start
        batch = holders[first : first + schedule.batch_length(iteration)]
        parts.append(deal(batch, teams, schedule.team_shares(iteration)).astype(np.uint32))
    return Dealt(span.start, records, np.concatenate([np.empty(0, np.uint32), *parts]))


def home_holder(homes: U16) -> Holder:
    """Return the holder of records of which each is held by the team of its home.

    Args:
        homes: home of each record, or ``_core.NO_HOME``.
    """

    def holder(records: U64) -> I64:
        home = homes[records].astype(np.int64)
        home[home == _core.NO_HOME] = NOBODY
        return home

    return holder


def deal_steps(epoch: Epoch, shard: Shard, steps: range, holder: Holder) -> list[I64]:
    """Return the samples of one rank in steps that follow one another, where ranks are the teams.

    Each rank takes as many as it does strided, in the order of the epoch.

    Args:
        epoch: the order of all samples.
        shard: shard of the rank.
        steps: steps of the shard.
        holder: function from samples to the rank that holds each; pure, the same on all ranks.

    Returns:
        For each step int64 of shape (samples,).
    """
    parts = [shard.of_all_ranks(step) for step in steps]
    samples = epoch.samples(np.concatenate([np.empty(0, np.int64), *(p for p, _ in parts)]))
    holders, dealt, first = holder(samples.view(np.uint64)), list[I64](), 0
    for places, shares in parts:
        end = first + len(places)
        ranks = deal(holders[first:end], shard.ranks, shares)
        dealt.append(samples[first:end][ranks == shard.rank])
        first = end
    return dealt
