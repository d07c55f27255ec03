"""kept_sources: which root brings each row of a block, where roots keep records. Pure.

    KeptSources   row -> the root that has its record by the schedule (``keepers``), or the file
    OwnSources    row -> its own root, which keeps what it uses again soonest; nothing is sent

A "round" is a block of all teams, as of ``homes.HomeSources``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.keepers import Keepers
from lmdbio.planning.order import Epoch, Epochs
from lmdbio.planning.places import Places
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.sources import (
    BlockSources,
    RoundUses,
    epochs_of_span,
    find_uses,
    records_at,
    row_epochs,
    seats,
)

__all__ = ["KeptSources", "NextUses", "OwnSources", "OwnUses", "cell_bytes", "cell_count"]

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]

#: Uses of which it is found at once when they come again.
USES_AT_ONCE = 2**14
#: Cells are of one of these sizes, or as large as the longest record; and as large as they can be
#: where that takes no more than this part more memory than the best size does.
CELL_SIZES, CELL_WASTE = [2**bits for bits in range(4, 21)], 1 / 16
#: Of a cell, its number (csrc/cells.c).
CELL_NOTE_BYTES = 4


@dataclass(frozen=True)
class KeptSources:
    """Says who brings what, where roots keep records.

    Attributes:
        schedule: strided or blocked.
        keepers: of its records.
    """

    schedule: Schedule
    keepers: Keepers
    _seats: _core.Seats = field(init=False, repr=False, compare=False)
    _epochs: Epochs = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schedule = self.schedule
        object.__setattr__(self, "_seats", seats(schedule))
        object.__setattr__(self, "_epochs", schedule.epochs or Epochs(schedule.count))

    def is_there(self, epoch: int) -> bool:  # noqa: ARG002 (as of HomeSources)
        """Return True: a root tells itself which rows it reads first."""
        return True

    def passing(self, records: I64) -> None:
        """Return None: no record is read for one round alone."""

    def block(self, number: int, team: int) -> BlockSources:
        """Return where the rows of a block come from; root -1: the file."""
        places = self.schedule.team_places(number, team)
        records = records_at(self.schedule, self._epochs, places)
        roots, first = np.empty(len(records), np.uint16), 0
        for epoch, end in row_epochs(self.schedule, number, team):
            roots[first:end] = self.keepers.choose(records[first:end], epoch, team)
            first = end
        order, of_runs, begins = _core.find_homes(roots, np.arange(len(records)))
        return BlockSources(records, order, np.full(len(of_runs), number), of_runs, begins)

    def uses(self, number: int, root: int) -> RoundUses:
        """Return what becomes of the records that ``root`` brings for a block."""
        schedule = self.schedule
        span = schedule.span(number)
        places = Places(span.start, 0, 1, (range(len(span)),))
        records = records_at(schedule, self._epochs, [places])
        teams = _core.find_teams(self._seats, np.arange(span.start, span.stop))
        roots = np.empty(len(records), np.uint16)
        for epoch, some in epochs_of_span(schedule, span):
            roots[some] = self.keepers.choose(records[some], epoch, teams[some])
        return find_uses(roots, root, self._seats, span.start, records)


class OwnUses(NamedTuple):
    """The uses of one team in one block.

    Attributes:
        records: in the order of use.
        following: place at which the team uses each again, counted as ``Schedule.first_place`` is;
            or ``_core.NEVER``.
    """

    records: I64
    following: I64


@dataclass(frozen=True)
class OwnSources:
    """Says that each root brings all rows of its own team.

    Attributes:
        schedule: strided or blocked.
    """

    schedule: Schedule
    _epochs: Epochs = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_epochs", self.schedule.epochs or Epochs(self.schedule.count))

    def is_there(self, epoch: int) -> bool:  # noqa: ARG002 (as of HomeSources)
        """Return True: a root tells itself which rows it has had."""
        return True

    def passing(self, records: I64) -> None:
        """Return None: no record is read for one round alone."""

    def block(self, number: int, team: int) -> BlockSources:
        """Return the rows of a block, all of which the team's own root brings."""
        places = self.schedule.team_places(number, team)
        records = records_at(self.schedule, self._epochs, places)
        runs = np.full(min(1, len(records)), number), np.full(min(1, len(records)), team)
        begins = np.array([0, len(records)][: len(runs[0]) + 1])
        return BlockSources(records, np.arange(len(records)), *runs, begins)


class NextUses:
    """Says of each use of a team when the same record is used again, block by block.

    Args:
        schedule: strided or blocked. Where it has no end, one epoch is looked ahead.
        team: whose uses.
    """

    def __init__(self, schedule: Schedule, team: int) -> None:
        self._schedule, self._team = schedule, team
        self._epochs, self._seats = schedule.epochs or Epochs(schedule.count), seats(schedule)
        self._end = None if schedule.end is None else schedule.first_place + schedule.end
        self._next = 0  # block
        self._found: deque[OwnUses] = deque()

    def take(self) -> OwnUses | None:
        """Return the uses of the next block; None: there is none."""
        if not self._found:
            self._look_ahead()
        return self._found.popleft() if self._found else None

    def _look_ahead(self) -> None:
        blocks, rows = self._schedule.blocks, 0
        records: list[I64] = []
        places: list[I64] = []
        while rows < USES_AT_ONCE and (blocks is None or self._next < blocks):
            runs = self._schedule.team_places(self._next, self._team)
            records.append(records_at(self._schedule, self._epochs, runs))
            places.append(np.concatenate([np.empty(0, np.int64), *(p.numbers() for p in runs)]))
            rows += len(records[-1]) + 1  # a team may have no row in some blocks
            self._next += 1
        if not records:
            return
        first = self._schedule.first_place
        following = self._following(np.concatenate(records), np.concatenate(places) + first)
        ends = np.cumsum([len(one) for one in records])[:-1]
        self._found.extend(map(OwnUses, records, np.split(following, ends)))

    def _following(self, records: I64, places: I64) -> I64:
        """Return when records that are used at some places are used again."""
        count, first = self._schedule.count, self._schedule.first_place
        following = np.full(len(records), _core.NEVER, np.int64)
        epochs = places // count
        for epoch in np.unique(epochs).tolist():
            rest = np.flatnonzero(epochs == epoch)
            last = epoch + 1 if self._end is None else (self._end - 1) // count
            for later in range(epoch + 1, last + 1):
                if not len(rest):
                    break
                found = self._order(later).places(records[rest]) + later * count
                if self._end is not None and later == last:
                    is_used = found < self._end
                    rest, found = rest[is_used], found[is_used]
                own = _core.find_teams(self._seats, found - first) == self._team
                following[rest[own]] = found[own]
                rest = rest[~own]
        return following

    def _order(self, number: int) -> Epoch:
        return Epoch(self._schedule.count, self._epochs.seed, number, self._epochs.shuffle)


def cell_bytes(lengths: npt.NDArray[np.uint64]) -> int:
    """Return the size of cells for records that come and go: the same for all records.

    Records of one size, or nearly, lie in one cell each; others in several, so that little is left
    empty, and few numbers of cells have to be noted.
    """
    some = lengths[lengths > 0].astype(np.int64)
    if not len(some):
        return _core.ROW_ALIGNMENT
    longest = -(-int(some.max()) // _core.ROW_ALIGNMENT) * _core.ROW_ALIGNMENT
    sizes: list[int] = [longest, *(size for size in reversed(CELL_SIZES) if size < longest)]
    taken = [int((-(-some // size)).sum()) * (size + CELL_NOTE_BYTES) for size in sizes]
    most = min(taken) * (1 + CELL_WASTE)
    return next(size for size, all_of_it in zip(sizes, taken, strict=True) if all_of_it <= most)


def cell_count(memory: int, cell: int) -> int:
    """Return how many cells there are in so many bytes, with what is noted of each."""
    return memory // (cell + CELL_NOTE_BYTES)
