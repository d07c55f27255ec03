"""owners: which roots cache which records, and from when on others have them of these. Pure.

    first       a record is cached by the root whose ranks use it first, in the order of use
    frequency   each root caches what its own ranks use most often over all epochs, by number where
                that is as often; a record may be cached by several roots, and by none

Each root caches as many as it has room for, and reads a record when its own ranks first use it. So
others have the record from the next epoch on: in an epoch each record is used once.

    record, epoch, team --> root    the team's own, else the next one after it that has the record;
                                    where there is none, the file

That is the quickest source wherever memory is nearer than a peer's, and that than the file.

A job that begins inside an epoch uses some records twice before others once: the first user of a
record is then settled by the end of the next epoch, no later.

Nodes of a simulated cluster cache by the same ranks, in several tiers (``NodesRule``): records by
node and tier, in the order in which they are fetched; "home" is an even part of the file. Nobody
asks another one: all compute the same. Over all nodes together no choice finds more than "home",
not even what is used again soonest: in an epoch each record is used once, so what is used in the
next one has to be held while the epoch ends, where no more than the capacity can be.

Source: DeepIO (home); LBANN's data store (home, first); locality-aware loading (home, first); the
HDMLP thesis, sections 3.2.2 and 4.3.7 (frequency).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.sources import CachedSources, Uses, seats
from lmdbio.planning.deal import NOBODY
from lmdbio.planning.schedule import Places, Schedule

__all__ = [
    "ROUNDING",
    "OwnerRule",
    "NodeUses",
    "NodesRule",
    "OwnedRecords",
    "RecordOwners",
    "RecordSources",
    "TierRecords",
    "cut",
    "first_by_node",
    "frequency_by_node",
    "home_by_node",
    "own_first",
    "own_most_used",
    "rank_by_uses",
    "room_of",
]

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]

#: Sums of sizes may be off by so much: a tier of ten records' size holds ten of them.
ROUNDING = 1e-9

#: Records of each node, by tier, in the order in which they are fetched.
TierRecords = list[list[I64]]

#: Places that are looked at at once.
PART = 2**20


class OwnedRecords(NamedTuple):
    """The records that one root caches.

    Attributes:
        records: ascending.
        epochs: epoch of the first use of each by its ranks, counted from the first one's number.
    """

    records: I64
    epochs: U32


@dataclass(frozen=True, eq=False)
class RecordOwners:
    """The roots that cache each record.

    Attributes:
        table: table of all records, for lookups in C.
        roots: roots that cache each record, record by record.
        since: the epoch from which on others have it, counted from the first one of the job.
        begins: beginning of each record's ``roots``, and the end of the last.
        first_epoch: number of the job's first epoch.
    """

    table: _core.OwnerTable
    roots: U16
    since: U32
    begins: U32
    first_epoch: int

    @classmethod
    def of(
        cls, owned: Sequence[OwnedRecords], schedule: Schedule, *, is_warm: bool
    ) -> RecordOwners:
        """Return the owners of what each root caches.

        Args:
            is_warm: whether all of it is there before the first epoch.

        Raises:
            ValueError: there are more roots, or cached records, than numbers for them.
        """
        total = sum(len(one.records) for one in owned)
        if len(owned) >= _core.NO_HOME or total >= 2**32:
            raise ValueError(f"{len(owned)} roots cannot keep {total} records")
        records = np.concatenate([one.records for one in owned])
        order = np.argsort(records, kind="stable")  # of each record, roots ascend
        roots = np.repeat(np.arange(len(owned), dtype=np.uint16), [len(k.records) for k in owned])
        since = np.concatenate([one.epochs for one in owned]) + np.uint32(1)
        if is_warm:
            since[:] = 0
        begins = np.zeros(schedule.count + 1, np.uint32)
        begins[1:] = np.cumsum(np.bincount(records, minlength=schedule.count))
        table = _core.OwnerTable(begins, roots[order], since[order], len(owned))
        first_epoch = schedule.first_place // schedule.count
        return cls(table, roots[order], since[order], begins, first_epoch)

    def choose(self, records: I64, epoch: int, teams: U32 | int) -> U16:
        """Return the root that each record comes from in an epoch, or ``_core.NO_HOME``.

        Args:
            teams: team that uses each record; or the one that uses all.
        """
        return self.table.choose(records, epoch - self.first_epoch, teams)

    def owner_of(self, records: I64, epoch: int, teams: I64) -> I64:
        """Return which root has each record when a team uses it, ``NOBODY`` where none has.

        This is the answer to "which node caches record 7": the team's own root, else the next one
        after it that has the record. A root reads what it caches when its own ranks first use it.

        Args:
            epoch: number of the epoch in which they are used.
            teams: team that uses each record.
        """
        roots = self.choose(records, epoch, teams.astype(np.uint32)).astype(np.int64)
        roots[(roots == _core.NO_HOME) | self._are_read(records, epoch, teams)] = NOBODY
        return roots

    def owned(self, root: int) -> I64:
        """Return the records that a root caches, ascending."""
        places = np.flatnonzero(self.roots == root)
        return np.searchsorted(self.begins, places, side="right").astype(np.int64) - 1

    def _are_read(self, records: I64, epoch: int, teams: I64) -> npt.NDArray[np.bool_]:
        """Return which records the roots of teams cache, and first use in an epoch."""
        places = np.searchsorted(self._numbers, records * self.table.root_count + teams)
        places = np.minimum(places, max(0, len(self._numbers) - 1))
        if not len(self._numbers):
            return np.zeros(len(records), np.bool_)
        is_owned = self._numbers[places] == records * self.table.root_count + teams
        return np.asarray(is_owned & (self.since[places] == epoch - self.first_epoch + 1))

    @cached_property
    def _numbers(self) -> I64:
        """A number for each record that a root caches, ascending."""
        records = np.repeat(np.arange(len(self.begins) - 1), np.diff(self.begins))
        return np.asarray(records * self.table.root_count + self.roots, np.int64)

    @property
    def are_owned(self) -> npt.NDArray[np.bool_]:
        """Whether some root caches each record."""
        return np.asarray(np.diff(self.begins) > 0)


@dataclass(frozen=True)
class RecordSources(CachedSources):
    """Says who brings what, where roots cache records one by one.

    Attributes:
        owners: roots that cache each record.
    """

    owners: RecordOwners

    def _rooted(self, records: I64, uses: Iterable[Uses]) -> tuple[U16, I64]:
        roots = np.empty(len(records), np.uint16)
        for epoch, some, teams in uses:
            roots[some] = self.owners.choose(records[some], epoch, teams)
        return roots, np.arange(len(records))


def room_of(lengths: npt.NDArray[np.uint64]) -> I64:
    """Return the bytes that records take where they are cached."""
    rounding = _core.ROW_ALIGNMENT
    return (lengths.astype(np.int64) + (rounding - 1)) // rounding * rounding


#: Rule from a schedule, strided or blocked, the size of each record in memory (``room_of``), and
#: the capacity of each root, bytes, to what each root caches.
OwnerRule: TypeAlias = "Callable[[Schedule, I64, Sequence[int]], list[OwnedRecords]]"


def cut(records: I64, sizes: npt.NDArray[Any], capacities: Sequence[float]) -> list[I64]:
    """Cut a list where tiers are full; what is left over is not cached.

    Args:
        records: records in the order in which they are wanted.
        sizes: size of each record.
        capacities: capacity of each tier.
    """
    ends = np.cumsum(sizes[records])
    parts, at, before = [], 0, 0
    for capacity in capacities:
        end = int(np.searchsorted(ends, before + capacity, side="right"))
        parts.append(records[at:end])
        before = ends[end - 1] if end else 0
        at = end
    return parts


def rank_by_uses(uses: npt.NDArray[Any]) -> I64:
    """Return the records that are used, most used first, by number where that is as often.

    Args:
        uses: number of uses of each record.
    """
    most = int(uses.max(initial=0))
    fewer = most - uses
    if most < 2**16:
        fewer = fewer.astype(np.uint16)  # is sorted by its digits
    return np.argsort(fewer, kind="stable")[: np.count_nonzero(uses)]


# --- first --------------------------------------------------------------------------------------


def own_first(schedule: Schedule, sizes: I64, rooms: Sequence[int]) -> list[OwnedRecords]:
    """Give each record to the root whose ranks use it first, as far as that has room."""
    owner = np.full(schedule.count, _core.NO_HOME, np.uint16)
    since = np.zeros(schedule.count, np.uint32)
    is_new = np.ones(schedule.count, np.bool_)
    left = list(rooms)
    for epoch, records, teams in _first_uses(schedule):
        fresh = is_new[records]
        records, teams = records[fresh], teams[fresh]
        is_new[records] = False
        for root in np.unique(teams).tolist():
            wanted = records[teams == root]
            (mine,) = cut(wanted, sizes, [left[root]])
            owner[mine], since[mine] = root, epoch
            left[root] = left[root] - int(sizes[mine].sum()) if len(mine) == len(wanted) else -1
    owned = [np.flatnonzero(owner == root) for root in range(len(rooms))]
    return [OwnedRecords(records, since[records]) for records in owned]


def _first_uses(schedule: Schedule) -> Iterator[tuple[int, I64, U32]]:
    """Yield the uses up to that by which all records were used, some of one epoch at a time.

    The number of the epoch, counted from the first one; records, and the teams that use them.
    """
    count, begin = schedule.count, schedule.first_place % schedule.count
    end = count - begin + (count if begin else 0)
    if schedule.end is not None:
        end = min(end, schedule.end)
    sitting, first = seats(schedule), 0
    while first < end:
        epoch, within = divmod(begin + first, count)
        last = min(end, first + PART, first + count - within)
        teams = _core.find_teams(sitting, np.arange(first, last))
        yield epoch, schedule.sequence(range(first, last)).view(np.int64), teams
        first = last


# --- frequency ----------------------------------------------------------------------------------


def own_most_used(schedule: Schedule, sizes: I64, rooms: Sequence[int]) -> list[OwnedRecords]:
    """Give each root what its own ranks use most often; the job has an end."""
    owned = []
    for root, room in enumerate(rooms):
        used = np.zeros(schedule.count, np.uint32)
        first = np.zeros(schedule.count, np.uint32)
        for epochs, records in _own_uses(schedule, root):
            fresh = np.flatnonzero(used[records] == 0)[::-1]
            first[records[fresh]] = epochs[fresh]  # of several, the earliest comes last
            used += np.bincount(records, minlength=schedule.count).astype(np.uint32)
        (most_used,) = cut(rank_by_uses(used), sizes, [room])
        records = np.sort(most_used)
        owned.append(OwnedRecords(records, first[records]))
    return owned


def _own_uses(schedule: Schedule, team: int) -> Iterator[tuple[U32, I64]]:
    """Yield all uses of one team in their order, some at a time.

    The number of the epoch of each, counted from the first one, and its record.
    """
    begin = schedule.first_place % schedule.count
    for places in _own_places(schedule, team):
        each = sum(map(len, places.runs))
        at_once = max(1, PART // max(1, each))
        for number in range(0, places.repeats if each else 0, at_once):
            repeats = min(at_once, places.repeats - number)
            first = places.first + number * places.step
            some = places._replace(first=first, repeats=repeats)
            numbers = ((some.numbers() + begin) // schedule.count).astype(np.uint32)
            yield numbers, schedule.records_at([some])


def _own_places(schedule: Schedule, team: int) -> list[Places]:
    """Return all places of a team, in their order, by few runs."""
    blocks, iterations = schedule.blocks, schedule.iterations
    assert blocks is not None and iterations is not None
    if not blocks:
        return []
    if schedule.assignment.follows_places:
        return list(replace(schedule, block_iterations=iterations).team_places(0, team))
    (chunk,), last = schedule.team_places(0, team), blocks - 1
    size = schedule.block_iterations * schedule.batch_size
    alike = [Places(chunk.first, size, last, chunk.runs)] if last else []
    return [*alike, *schedule.team_places(last, team)]


# --- nodes of a simulated cluster ---------------------------------------------------------------


class NodeUses(NamedTuple):
    """The records that the nodes of a cluster use.

    Attributes:
        access: records of all epochs, uint32 of shape (nodes, uses).
        epochs: number of epochs.
        sizes: size of each record.
    """

    access: npt.NDArray[np.uint32]
    epochs: int
    sizes: npt.NDArray[np.float64]


#: Rule from uses, and the capacities of a node's tiers in the unit of the sizes.
NodesRule: TypeAlias = "Callable[[NodeUses, Sequence[float]], TierRecords]"


def home_by_node(uses: NodeUses, capacities: Sequence[float]) -> TierRecords:
    """Give each node an even part of the records, in their order."""
    count, nodes = len(uses.sizes), len(uses.access)
    parts = (np.arange(i * count // nodes, (i + 1) * count // nodes) for i in range(nodes))
    return [_filled(part, uses, capacities) for part in parts]


def first_by_node(uses: NodeUses, capacities: Sequence[float]) -> TierRecords:
    """Give each node what it uses in the first epoch, in that order."""
    of_epoch = uses.access[:, : uses.access.shape[1] // uses.epochs].astype(np.int64)
    return [_filled(row, uses, capacities) for row in of_epoch]


def frequency_by_node(uses: NodeUses, capacities: Sequence[float]) -> TierRecords:
    """Give each node what it uses most often, the fastest tier first.

    Records that are used as often are taken in their own order; each tier fetches its records in
    the order of their first use.
    """
    held: TierRecords = []
    for row in uses.access:
        used_first = np.zeros(len(uses.sizes), np.int64)
        used_first[row[::-1]] = np.arange(len(row))[::-1]  # of several, the earliest comes last
        ranked = rank_by_uses(np.bincount(row, minlength=len(uses.sizes)))
        parts = _filled(ranked, uses, capacities)
        held.append([part[np.argsort(used_first[part])] for part in parts])
    return held


def _filled(records: I64, uses: NodeUses, capacities: Sequence[float]) -> list[I64]:
    """Fill tiers with records; those that are left over are not held."""
    return cut(records, uses.sizes, [capacity * (1 + ROUNDING) for capacity in capacities])
