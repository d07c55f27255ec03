"""kept_sources: which root brings each row of a block, where roots keep records. Pure.

    row -> the root that has its record by the schedule (``keepers``), or the file

A "round" is a block of all teams, as of ``homes.HomeSources``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.keepers import Keepers
from lmdbio.placement.sources import (
    BlockSources,
    RoundUses,
    epochs_of_span,
    find_uses,
    records_at,
    row_epochs,
    seats,
)
from lmdbio.planning.order import Epochs
from lmdbio.planning.schedule import Places, Schedule

__all__ = ["KeptSources"]

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeptSources:
    """Says who brings what, where roots keep records.

    Attributes:
        schedule: strided or blocked.
        keepers: roots that keep each record.
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
