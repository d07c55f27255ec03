"""copies: what a root keeps of the homes of others, besides its own, for its team alone. Pure.

    room of a root   |-- its home, which it brings to all --|-- copies, for its own ranks --|

    record of another home, of those that its ranks use most often
      first use, in epoch e      comes from its home, and is copied out of the block
      from epoch e + 2 on        the root has it, and its home sends it no more

So what is kept twice costs no message of its own, and no read. Between epochs e and e + 2 lies
a whole epoch: where a block has no more places than that, both uses are in different blocks, and
the copy is made before it is needed, whatever other roots do. All compute who has which copies
since when; nobody says it.

Source: the HDMLP thesis, sections 3.2.2 and 4.3.7 (a record in the memory of several nodes, those
that use it most often); locality-aware loading (Yang and Cong), section V.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.homes import Homes, HomeSources, Room, Tiers
from lmdbio.planning.keepers import Keepers, most_used
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.sources import (
    BlockSources,
    RoundUses,
    epochs_of_span,
    find_uses,
    row_epochs,
)

__all__ = ["COPIED", "CopiedSources", "copy_most_used", "have_copies", "spare_rooms"]

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

#: The round of rows that a root has copied before.
COPIED = -1


def spare_rooms(homes: Homes, rooms: Sequence[Room]) -> list[int]:
    """Return the memory of each root that its home leaves, bytes.

    It leaves none where records have no home: these would need it.
    """
    if int(homes.ends[-1]) < len(homes.grains.used):
        return [0] * len(rooms)
    bits = homes.grains.bits
    return [
        room.memory - (len(Tiers.of(len(homes.kept(root)), room, bits).memory) << bits)
        for root, room in enumerate(rooms)
    ]


def copy_most_used(
    schedule: Schedule, homes: Homes, sizes: I64, spares: Sequence[int]
) -> Keepers | None:
    """Return which roots copy which records; None: none do.

    Args:
        schedule: strided or blocked, with an end.
        homes: of its records.
        sizes: of all records where they are copied (``keepers.room_of``).
        spares: memory of each root for copies, bytes.
    """
    block = schedule.block_iterations * schedule.batch_size
    if not any(spares) or len(spares) < 2 or schedule.count < block:
        return None
    kept = [
        most_used(schedule, sizes, spare, root, homes.records != root)
        for root, spare in enumerate(spares)
    ]
    return Keepers.of(kept, schedule, is_warm=False)


def have_copies(copies: Keepers, records: I64, epoch: int, teams: U32 | int) -> Flags:
    """Return which records the roots of teams have copied by an epoch.

    Args:
        teams: that use them; or the one that uses all.
    """
    before = epoch - 1
    if before < copies.first_epoch:
        return np.zeros(len(records), np.bool_)
    return copies.kept_since(records, before, teams)


@dataclass(frozen=True)
class CopiedSources(HomeSources):
    """Says who brings what, where teams have copies of what others bring.

    Attributes:
        copies: of the records, on the roots that keep them.
    """

    copies: Keepers | None = None

    def block(self, number: int, team: int) -> BlockSources:
        """Return where the rows of a block come from; round ``COPIED``: of the team's copies."""
        assert self.copies is not None
        records, first = self.rows(number, team), 0
        roots, own_copies = self.homes.records[records], len(self.homes.parts)
        for epoch, end in row_epochs(self.schedule, number, team):
            has = have_copies(self.copies, records[first:end], epoch, team)
            roots[first:end][has] = own_copies
            first = end
        order, of_runs, begins = _core.find_homes(roots, np.arange(len(records)))
        rounds, is_copied = np.full(len(of_runs), number), of_runs == own_copies
        rounds[is_copied], of_runs[is_copied] = COPIED, team
        return BlockSources(records, order, rounds, of_runs, begins)

    def uses(self, number: int, root: int) -> RoundUses:
        """Return what becomes of the records that ``root`` brings for a block."""
        assert self.copies is not None
        span = self.schedule.span(number)
        records = self.records_of(span)
        roots = self.homes.records[records]
        for epoch, some in epochs_of_span(self.schedule, span):
            own = some.start + np.flatnonzero(roots[some] == root)
            teams = _core.find_teams(self._seats, span.start + own)
            has = have_copies(self.copies, records[own], epoch, teams)
            roots[own[has]] = _core.NO_HOME
        return find_uses(roots, root, self._seats, span.start, records)
