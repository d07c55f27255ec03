"""sources: which root brings each row of a block, where an epoch comes in windows. Pure.

    row of a block -> round in which it comes -> root that reads it then
    record that a root reads for a round -> the team that uses it, and in which block

A root asks each other one, by the number of a block, for the rows that it brings. The other one
finds by the same arithmetic which these are: nobody sends a list of records.

Source: DeepIO, section III (in-situ shuffling over the servers of all nodes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.order import Epochs
from lmdbio.planning.rounds import Round, RoundSequence
from lmdbio.planning.schedule import Places, Schedule

__all__ = [
    "BlockSources",
    "RoundUses",
    "Sources",
    "epochs_of_span",
    "find_uses",
    "records_at",
    "row_epochs",
    "seats",
]

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]


class BlockSources(NamedTuple):
    """The rows of a block, by where they come from.

    Attributes:
        records: records of the rows, in the order of the schedule.
        order: the rows, sorted by round and root; within them in the order of the schedule.
        rounds, roots: number and root of each run of rows of one round and root.
        begins: beginning of each run in ``order``, and the end of the last.
    """

    records: I64
    order: I64
    rounds: I64
    roots: I64
    begins: I64

    def rows(self, run: int) -> I64:
        """Return the rows of a run."""
        return self.order[self.begins[run] : self.begins[run + 1]]


class RoundUses(NamedTuple):
    """The uses of the records that a root reads for a round.

    Attributes:
        records: ascending, in the order of the file.
        own: number of the records that the root's own team uses.
        order: places in ``records`` of those that other teams use, by team, and then in the order
            in which the team uses them.
        teams, blocks: team and block of each run of those of one team and block.
        begins: beginning of each run in ``order``, and the end of the last.
    """

    records: I64
    own: int
    order: I64
    teams: I64
    blocks: I64
    begins: I64


class Sources:
    """Says who brings what, for a schedule whose order roots read window by window.

    Args:
        schedule: strided or blocked.
        epochs: the order of its records; their shuffle has windows.

    Attributes:
        sequence: sequence of the rounds.
    """

    def __init__(self, schedule: Schedule, epochs: Epochs) -> None:
        self._schedule, self._count = schedule, epochs.count
        self._roots = len(schedule.teams)
        self.sequence = RoundSequence(epochs, self._roots)
        self._seats = seats(schedule)

    def block(self, number: int, team: int) -> BlockSources:
        """Return where the rows of a block come from."""
        schedule = self._schedule
        places = [
            some for some in schedule.team_places(number, team) if some.repeats and some.runs
        ]
        places = [some._replace(first=some.first + schedule.first_place) for some in places]
        epoch = last = 0
        if places:
            epoch = (places[0].first + places[0].runs[0].start) // self._count
            end = places[-1]
            last = end.first + (end.repeats - 1) * end.step + end.runs[-1].stop - 1
            last //= self._count
        tables = [self.sequence.rounds(one).table for one in range(epoch, last + 1)]
        return BlockSources(*_core.find_block_sources(tables, epoch, self._roots, places))

    def is_there(self, epoch: int) -> bool:  # noqa: ARG002 (as of HomeSources)
        """Return True: a window's rows count by the root that brings them."""
        return True

    def passing(self, records: I64) -> None:
        """Return None: all rows count by the root that brings them."""

    def uses(self, one: Round, root: int) -> RoundUses:
        """Return what becomes of the records that ``root`` reads for a round."""
        table = self.sequence.rounds(one.epoch).table
        found = _core.find_round_uses(table, one.epoch, one.number, root, self._roots, self._seats)
        return RoundUses(*found)


def seats(schedule: Schedule) -> _core.Seats:
    """Return which team uses each place, and in which block."""
    teams, last = range(len(schedule.teams)), (schedule.blocks or 1) - 1
    size = schedule.block_iterations * schedule.batch_size
    is_blocked = schedule.assignment == "blocked"
    kinds = (0, last) if is_blocked else ()  # all but the last block are like the first
    chunks = [schedule.chunk(block, team) - block * size for block in kinds for team in teams]
    return _core.Seats(
        start=schedule.first_place,
        end=None if schedule.end is None else schedule.first_place + schedule.end,
        batch_size=schedule.batch_size,
        block_iterations=schedule.block_iterations,
        length=schedule.length,
        last_block=None if schedule.blocks is None else last,
        ranks=schedule.ranks,
        chunks=chunks,
        team_of=[] if is_blocked else [schedule.team_of(rank) for rank in range(schedule.ranks)],
        teams=len(teams),
    )


def records_at(schedule: Schedule, epochs: Epochs, places: Sequence[Places]) -> I64:
    """Return the records at places that count from the start of a schedule, in their order.

    Args:
        epochs: the order of its records, also where that is their own.
    """
    start, count = schedule.first_place, schedule.count
    places = [p._replace(first=p.first + start) for p in places if p.repeats and p.runs]
    if not places:
        return np.empty(0, np.int64)
    shuffle, is_mixed = epochs.shuffle, epochs.shuffle.held and epochs.seed is not None
    if shuffle.order is not None or is_mixed or epochs.is_stepped:
        return epochs.samples(np.concatenate([p.numbers() for p in places]))
    end = places[-1]
    last = end.first + (end.repeats - 1) * end.step + end.runs[-1].stop - 1
    first = (places[0].first + places[0].runs[0].start) // count
    shufflings = [epochs.epoch(number).shuffling for number in range(first, last // count + 1)]
    return _core.find_records(shufflings, first, places)


def row_epochs(schedule: Schedule, number: int, team: int) -> list[tuple[int, int]]:
    """Return the epochs of a block's rows: the number of each, and the first row behind it."""
    start, count = schedule.first_place, schedule.epoch_places
    if schedule.assignment == "local":
        return _epochs_of((schedule.dealt(number).places_of(team) + start) // count)
    places = [p for p in schedule.team_places(number, team) if p.repeats and p.runs]
    if not places:
        return []
    end = places[-1]
    last = end.first + (end.repeats - 1) * end.step + end.runs[-1].stop - 1
    low = (start + places[0].first + places[0].runs[0].start) // count
    high = (start + last) // count
    if low == high:
        return [(low, sum(p.repeats * sum(map(len, p.runs)) for p in places))]
    return _epochs_of((np.concatenate([p.numbers() for p in places]) + start) // count)


def epochs_of_span(schedule: Schedule, span: range) -> Iterator[tuple[int, slice]]:
    """Yield the number of each epoch of a run of places, and which of these it has.

    Args:
        span: places, counted from the start of the schedule.
    """
    first = 0
    while first < len(span):
        epoch, within = divmod(schedule.first_place + span.start + first, schedule.count)
        end = min(len(span), first + schedule.count - within)
        yield epoch, slice(first, end)
        first = end


def find_uses(roots: U16, root: int, sitting: _core.Seats, first: int, records: I64) -> RoundUses:
    """Return what becomes of the records that a root brings for a run of places.

    Args:
        roots: root that brings the record of each place, or ``_core.NO_HOME``.
        root: root whose uses are sought.
        sitting: says who uses each place.
        first: the first place, from the start of the sequence on.
        records: record at each of these places.
    """
    found = RoundUses(*_core.find_home_uses(roots, root, sitting, first, np.arange(len(records))))
    held = records[found.records]
    ascending = np.argsort(held, kind="stable")
    place = np.empty(len(held), np.int64)
    place[ascending] = np.arange(len(held))
    return found._replace(records=held[ascending], order=place[found.order])


def _epochs_of(rows: I64) -> list[tuple[int, int]]:
    """Return the number of each epoch, and the first row behind it; rows ascend by epoch."""
    if not len(rows):
        return []
    epochs = range(int(rows[0]), int(rows[-1]) + 1)
    return [(epoch, int(np.searchsorted(rows, epoch, side="right"))) for epoch in epochs]
