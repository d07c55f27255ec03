"""sources: which root brings each row of a block. Pure.

    row of a block -> round in which it comes -> root that brings it then, or the file
    record that a root brings for a round -> the team that uses it, and in which block

    WindowSources   an epoch comes in windows: a round is one, and each root reads a slice of it
    HomeSources     each record has a home: a round is a block of all teams
    RecordSources   roots cache records one by one: the same (``owners``)
    HybridSources   some records have a home, and the others come in windows, with them

A root asks each other one, by the number of a block, for the rows that it brings. The other one
finds by the same arithmetic which these are: nobody sends a list of records.

Source: DeepIO, sections III-B and III-C (in-situ shuffling over the servers of all nodes).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.order import Epochs
from lmdbio.planning.rounds import Round, RoundSequence
from lmdbio.planning.schedule import Schedule, filled

if TYPE_CHECKING:
    from lmdbio.placement.homes import Homes

__all__ = [
    "BlockSources",
    "HomeSources",
    "HybridSources",
    "CachedSources",
    "RoundUses",
    "Uses",
    "WindowSources",
    "row_epochs",
    "seats",
]

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]
#: Run of rows of one epoch: its number, the rows, and the team that uses each, or all.
Uses: TypeAlias = "tuple[int, slice, U32 | int]"


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

    def by_record(self, records: I64) -> RoundUses:
        """Return the same, where ``records`` are places among these records, in their order."""
        held = records[self.records]
        ascending = np.argsort(held, kind="stable")
        place = np.empty(len(held), np.int64)
        place[ascending] = np.arange(len(held))
        return self._replace(records=held[ascending], order=place[self.order])


class RowOrigins:
    """The answers of sources whose rows all count by the root that brings them."""

    def is_there(self, epoch: int) -> bool:  # noqa: ARG002 (in all epochs)
        """Whether what is used in an epoch was read before that began."""
        return True

    def passing(self, records: I64) -> Flags | None:  # noqa: ARG002 (none are)
        """Return which records are read for one round alone; None: no record is."""
        return None


class WindowSources(RowOrigins):
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
        places = filled(schedule.team_places(number, team), schedule.first_place)
        epoch = last = 0
        if places:
            epoch, last = places[0].begin // self._count, places[-1].last // self._count
        tables = [self.sequence.rounds(one).table for one in range(epoch, last + 1)]
        return BlockSources(*_core.find_block_sources(tables, epoch, self._roots, places))

    def uses(self, one: Round, root: int) -> RoundUses:
        """Return what becomes of the records that ``root`` reads for a round."""
        table = self.sequence.rounds(one.epoch).table
        found = _core.find_round_uses(table, one.epoch, one.number, root, self._roots, self._seats)
        return RoundUses(*found)


@dataclass(frozen=True)
class CachedSources(RowOrigins, ABC):
    """Says who brings what, where roots cache records: a round is a block of all teams.

    A root brings for it those records of its own that any team uses in the block.

    Attributes:
        schedule: schedule of the job.
    """

    schedule: Schedule
    _seats: _core.Seats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_seats", seats(self.schedule))

    @abstractmethod
    def _rooted(self, records: I64, uses: Iterable[Uses]) -> tuple[U16, I64]:
        """Return a table of roots, and the place in it of each of some records.

        Args:
            uses: runs of the records, by epoch and team.
        """

    @property
    def blocks(self) -> int | None:
        """Number of blocks; None: endless."""
        return self.schedule.blocks

    def block(self, number: int, team: int) -> BlockSources:
        """Return where the rows of a block come from; root -1: the file."""
        schedule = self.schedule
        records = schedule.team_records(number, team).view(np.int64)
        table, places = self._rooted(records, _uses_of_team(schedule, number, team))
        order, roots, begins = _core.find_homes(table, places)
        return BlockSources(records, order, np.full(len(roots), number), roots, begins)

    def uses(self, number: int, root: int) -> RoundUses:
        """Return what becomes of the records that ``root`` brings for a block."""
        schedule, takers = self.schedule, None
        if schedule.assignment.is_dealt:
            first, held, takers = schedule.dealt(number)
            records = held.view(np.int64)
        else:
            span = schedule.span(number)
            first, records = span.start, schedule.sequence(span).view(np.int64)
        table, at = self._rooted(records, _uses_of_block(schedule, self._seats, number))
        found = RoundUses(*_core.find_home_uses(table, root, self._seats, first, at, takers))
        return found if at is records else found.by_record(records)


@dataclass(frozen=True)
class HomeSources(CachedSources):
    """Says who brings what, where each record has a home that brings it in all epochs.

    Attributes:
        homes: home of each record.
        is_warm: whether homes are full before the first place; else what is used in the first
            epoch counts as read from the file.
    """

    homes: Homes
    is_warm: bool = False

    def __post_init__(self) -> None:
        if len(self.homes.records) != self.schedule.count:
            raise ValueError(f"{len(self.homes.records)} homes of {self.schedule.count} records")
        CachedSources.__post_init__(self)

    def is_there(self, epoch: int) -> bool:
        """Whether what is used in an epoch was read before that began."""
        first = self.schedule.first_place // self.schedule.epoch_places
        return self.is_warm or epoch > first

    def _rooted(self, records: I64, uses: Iterable[Uses]) -> tuple[U16, I64]:  # noqa: ARG002
        return self.homes.records, records


@dataclass(frozen=True)
class HybridSources(RowOrigins):
    """Says who brings what, for a schedule whose order is mixed.

    Attributes:
        home: sources of the records that have a home: those that the order holds. Its schedule is
            strided or blocked.
        sequence: sequence of the rounds.
    """

    home: HomeSources
    sequence: RoundSequence = field(init=False)

    def __post_init__(self) -> None:
        schedule = self.home.schedule
        assert schedule.epochs is not None
        object.__setattr__(self, "sequence", RoundSequence(schedule.epochs, len(schedule.teams)))

    def is_there(self, epoch: int) -> bool:
        """Whether records with a home that are used in an epoch were read before it began."""
        return self.home.is_there(epoch)

    def passing(self, records: I64) -> Flags:
        """Return which records stream: they are read for one round alone."""
        return np.asarray(records >= self.sequence.epochs.shuffle.held)

    def block(self, number: int, team: int) -> BlockSources:
        """Return where the rows of a block come from."""
        schedule, epochs = self.home.schedule, self.sequence.epochs
        parts = filled(schedule.team_places(number, team), schedule.first_place)
        places = np.concatenate([np.empty(0, np.int64), *(p.numbers() for p in parts)])
        records = epochs.samples(places)
        rounds, roots = np.empty_like(places), np.empty(len(places), np.uint16)
        for epoch, rows, _ in _uses_of_team(schedule, number, team):
            within = places[rows] - epoch * epochs.count
            rounds[rows] = epoch * self.sequence.per_epoch + self.sequence.of(epoch, within)
            roots[rows] = self._roots(epoch, records[rows])
        order = np.lexsort((roots, rounds))
        rounds, servers = rounds[order], roots[order].astype(np.int64)
        is_new = (np.diff(rounds, prepend=-1) != 0) | (np.diff(servers, prepend=-1) != 0)
        runs = np.flatnonzero(is_new)
        return BlockSources(
            records, order, rounds[runs], servers[runs], np.append(runs, len(order))
        )

    def uses(self, one: Round, root: int) -> RoundUses:
        """Return what becomes of the records that ``root`` brings for a round."""
        schedule, epochs = self.home.schedule, self.sequence.epochs
        begin, end = max(one.begin, schedule.first_place), one.end
        if schedule.end is not None:
            end = min(end, schedule.first_place + schedule.end)
        places = np.arange(begin, max(begin, end))
        records = epochs.samples(places)
        roots = self._roots(one.epoch, records)
        # By rows, since a record that streams has its root for this round alone.
        first, at = begin - schedule.first_place, np.arange(len(records))
        found = RoundUses(*_core.find_home_uses(roots, root, self.home._seats, first, at))
        return found.by_record(records)

    def _roots(self, epoch: int, records: I64) -> U16:
        """Return the root that brings each record in an epoch."""
        held = self.sequence.epochs.shuffle.held
        roots = np.empty(len(records), np.uint16)
        streams = records >= held
        roots[~streams] = self.home.homes.records[records[~streams]]
        rounds = self.sequence.rounds(epoch)
        roots[streams] = rounds.owner(records[streams] - held)
        return roots


# --- places, records, teams


def seats(schedule: Schedule) -> _core.Seats:
    """Return which team uses each place, and in which block."""
    teams, last = range(len(schedule.teams)), (schedule.blocks or 1) - 1
    size = schedule.block_iterations * schedule.batch_size
    is_blocked = schedule.assignment.has_chunks
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


def row_epochs(schedule: Schedule, number: int, team: int) -> list[tuple[int, int]]:
    """Return the epochs of a block's rows: the number of each, and the first row behind it."""
    start, count = schedule.first_place, schedule.epoch_places
    if schedule.assignment.is_dealt:
        return _epochs_of((schedule.dealt(number).places_of(team) + start) // count)
    places = filled(schedule.team_places(number, team), schedule.first_place)
    if not places:
        return []
    low = places[0].begin // count
    if low == places[-1].last // count:
        return [(low, sum(p.repeats * sum(map(len, p.runs)) for p in places))]
    return _epochs_of(np.concatenate([p.numbers() for p in places]) // count)


def _uses_of_team(schedule: Schedule, number: int, team: int) -> Iterator[Uses]:
    """Yield the runs of a block's rows that one team uses in an epoch."""
    first = 0
    for epoch, end in row_epochs(schedule, number, team):
        yield epoch, slice(first, end), team
        first = end


def _uses_of_block(schedule: Schedule, sitting: _core.Seats, number: int) -> Iterator[Uses]:
    """Yield the runs of all teams' rows in a block, in the order of places."""
    span, first = schedule.span(number), 0
    teams = _core.find_teams(sitting, np.arange(span.start, span.stop))
    while first < len(span):
        epoch, within = divmod(schedule.first_place + span.start + first, schedule.count)
        end = min(len(span), first + schedule.count - within)
        yield epoch, slice(first, end), teams[first:end]
        first = end


def _epochs_of(rows: I64) -> list[tuple[int, int]]:
    """Return the number of each epoch, and the first row behind it; rows ascend by epoch."""
    if not len(rows):
        return []
    epochs = range(int(rows[0]), int(rows[-1]) + 1)
    return [(epoch, int(np.searchsorted(rows, epoch, side="right"))) for epoch in epochs]
