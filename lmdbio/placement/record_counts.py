"""record_counts: where each record comes from, epoch by epoch, where roots keep records. Pure.

    place -> record, team -> own root has it | another one has it | the file

Source: LBANN's data store (first), the HDMLP thesis (frequency).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.keepers import Keepers, keep, refuse_counting, room_of
from lmdbio.placement.supply import FILE, OWN, PEER, ROW_SOURCES, Supplied, users
from lmdbio.planning.schedule import Schedule

__all__ = ["EpochCounts", "RecordCounts"]

I64 = npt.NDArray[np.int64]


class EpochCounts(NamedTuple):
    """The rows of an epoch, in the order of their places.

    Attributes:
        number: number of the epoch.
        records, teams: record of each row, and the team that uses it.
        sources: source of each row: ``OWN``, ``PEER`` or ``FILE``.
        roots: root of each row that comes from a peer.
        supplied: records and bytes by source.
    """

    number: int
    records: I64
    teams: I64
    sources: I64
    roots: I64
    supplied: Supplied


class RecordCounts:
    """Counts the rows of a job by where they come from.

    Args:
        placement: "first" or "frequency".
        schedule: strided; from the first place of an epoch on, with the order of its records.
        epochs: number of epochs that are looked at.
        lengths: length of each record, bytes.
        memory: memory of each root, bytes.
        is_warm: whether all that is kept is there before the first epoch.

    Raises:
        ValueError: it would take too long to say what roots keep.
    """

    def __init__(
        self,
        placement: str,
        schedule: Schedule,
        epochs: int,
        lengths: npt.NDArray[np.uint64],
        memory: int,
        *,
        is_warm: bool,
    ) -> None:
        if placement == "frequency":
            refuse_counting(schedule.count, len(schedule.teams), schedule.end)
        self._placement, self._schedule, self._epochs = placement, schedule, epochs
        self._lengths, self._memory, self._is_warm = lengths, memory, is_warm

    @cached_property
    def keepers(self) -> Keepers:
        """The roots that keep each record."""
        rooms, sizes = [self._memory] * len(self._schedule.teams), room_of(self._lengths)
        return keep(self._placement, self._schedule, sizes, rooms, is_warm=self._is_warm)

    @property
    def held_bytes(self) -> int:
        """Bytes of the records that some root keeps."""
        return int(self._lengths[self.keepers.are_kept].sum())

    def epochs(self) -> Iterator[EpochCounts]:
        """Count one epoch after the other."""
        for number in range(self._epochs):
            records, teams = self._uses(number)
            roots = self.keepers.choose(records, number, teams.astype(np.uint32)).astype(np.int64)
            is_read = self.keepers.are_read(records, number, teams)
            sources = np.where(roots == teams, OWN, PEER)
            sources[(roots == _core.NO_HOME) | is_read] = FILE
            yield self._counted(number, records, teams, sources, roots)

    def _uses(self, number: int) -> tuple[I64, I64]:
        """Return the records of an epoch, and the teams that use them."""
        count = self._schedule.count
        places = range(number * count, (number + 1) * count)
        records = self._schedule.sequence(places).view(np.int64)
        return records, users(self._schedule, np.arange(places.start, places.stop))

    def _counted(
        self, number: int, records: I64, teams: I64, sources: I64, roots: I64
    ) -> EpochCounts:
        lengths = self._lengths[records].astype(np.float64)  # exact up to 2**53
        counts = np.bincount(sources, minlength=len(ROW_SOURCES))
        sizes = np.bincount(sources, weights=lengths, minlength=len(ROW_SOURCES))
        supplied = Supplied(
            tuple(counts.tolist()), tuple(int(size) for size in sizes), int(sizes[PEER])
        )
        return EpochCounts(number, records, teams, sources, roots, supplied)
