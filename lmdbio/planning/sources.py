"""sources: which root brings each row of a block, where an epoch comes in windows. Pure.

    row of a block -> round in which it comes -> root that reads it then
    record that a root reads for a round -> the team that uses it, and in which block

A root asks each other one, by the number of a block, for the rows that it brings. The other one
finds by the same arithmetic which these are: nobody sends a list of records.

Source: DeepIO, section III (in-situ shuffling over the servers of all nodes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio.planning.rounds import Round, RoundSequence
from lmdbio.planning.schedule import Schedule

__all__ = ["BlockSources", "RoundUses", "Sources", "seats"]

I64 = npt.NDArray[np.int64]


class BlockSources(NamedTuple):
    """The rows of a block, by where they come from.

    Attributes:
        records: of the rows, in the order of the schedule.
        order: the rows, sorted by round and root; within them in the order of the schedule.
        rounds, roots: of each run of rows of one round and root.
        begins: where each run begins in ``order``, and the end of the last.
    """

    records: I64
    order: I64
    rounds: I64
    roots: I64
    begins: I64


class RoundUses(NamedTuple):
    """The uses of the records that a root reads for a round.

    Attributes:
        records: ascending, in the order of the file.
        own: how many of them its own team uses.
        order: places in ``records`` of those that other teams use, by team, and then in the order
            in which the team uses them.
        teams, blocks: of each run of those of one team and block.
        begins: where each run begins in ``order``, and the end of the last.
    """

    records: I64
    own: int
    order: I64
    teams: I64
    blocks: I64
    begins: I64


class Sources:
    """Says who brings what, for a schedule whose epochs have windows.

    Args:
        schedule: strided or blocked.

    Attributes:
        sequence: of the rounds.
    """

    def __init__(self, schedule: Schedule) -> None:
        assert schedule.epochs is not None
        self._schedule, self._epochs = schedule, schedule.epochs
        self.sequence = RoundSequence(schedule.epochs, len(schedule.teams))

    def block(self, number: int, team: int) -> BlockSources:
        """Return where the rows of a block come from."""
        places = self._schedule.team_places(number, team) + self._schedule.start
        records = self._epochs.samples(places)
        rounds, roots = self.sequence.holders(places, records)
        order = np.lexsort((roots, rounds))
        begins = _runs(rounds[order], roots[order])
        first = order[begins[:-1]]
        return BlockSources(records, order, rounds[first], roots[first], begins)

    def uses(self, one: Round, root: int) -> RoundUses:
        """Return what becomes of the records that ``root`` reads for a round."""
        schedule, count = self._schedule, self._epochs.count
        rounds = self.sequence.rounds(one.epoch)
        records = rounds.slice(one.number, root)
        places = rounds.epoch.places(records) + one.epoch * count - schedule.start
        end = schedule.end
        used = np.flatnonzero((places >= 0) & (places < (end if end is not None else 2**63 - 1)))
        teams, blocks = seats(schedule, places[used])
        order = np.lexsort((places[used], teams))
        order = order[teams[order] != root]
        begins = _runs(teams[order], blocks[order])
        first = order[begins[:-1]]
        own = len(used) - len(order)
        return RoundUses(records, own, used[order], teams[first], blocks[first], begins)


def seats(schedule: Schedule, places: I64) -> tuple[I64, I64]:
    """Return which team uses each place, and in which block: the inverse of ``team_places``.

    Args:
        schedule: strided or blocked.
        places: counted from the start of its sequence, before its end.
    """
    size = schedule.block_iterations * schedule.batch_size
    blocks = places // size
    if schedule.assignment == "blocked":
        teams = np.empty_like(places)
        last = -1 if schedule.blocks is None else schedule.blocks - 1
        for block in {0, last}:  # all but the last are like the first
            here = (blocks == last) == (block == last)
            begins = [schedule.chunk(block, team) for team in range(len(schedule.teams))]
            within = places[here] - blocks[here] * size
            teams[here] = np.searchsorted(np.array(begins) - block * size, within, "right") - 1
        return teams, blocks
    iterations, positions = np.divmod(places, schedule.batch_size)
    sizes = np.full(places.shape, schedule.batch_size, np.int64)
    if schedule.length is not None:
        sizes = np.minimum(sizes, schedule.length - iterations * schedule.batch_size)
    ranks = ((positions + 1) * schedule.ranks - 1) // sizes  # as ``split_share`` shares them
    team_of = np.array([schedule.team_of(rank) for rank in range(schedule.ranks)])
    return team_of[ranks], blocks


def _runs(*keys: I64) -> I64:
    """Return where runs of equal keys begin, and the end."""
    changes = np.zeros(max(0, len(keys[0]) - 1), np.bool_)
    for key in keys:
        changes |= key[1:] != key[:-1]
    begins = np.flatnonzero(changes) + 1
    start = [0] if len(keys[0]) else []
    return np.concatenate((start, begins, [len(keys[0])])).astype(np.int64)
