"""forecast: what a job reads from where, epoch by epoch, before it runs. Pure.

    place --order--> record --placement--> root that has it
      └──────── schedule ────────> root that uses it         same: own    other: peer    none: file
    rows of an epoch -> Forecast: records, bytes, requests, messages

Records, bytes and what roots send to each other are counted, one by one. A record counts where its
bytes come from in that epoch: what is read from the file for the first time, or for a round alone,
comes from the file, though another root may have read it and sends it. Requests are planned for a
part of the epoch, and the rest is taken to be like it; so are messages, one for each block and
pair of roots.

Source: DeepIO, LBANN's data store, locality-aware loading and the HDMLP thesis, for the
placements (``base``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.base import NONE, SLICES, Placement
from lmdbio.placement.cache import Cache
from lmdbio.placement.homes import Homes, Room, Tiers
from lmdbio.placement.owners import RecordOwners, room_of
from lmdbio.placement.sources import seats
from lmdbio.planning.deal import NOBODY
from lmdbio.planning.order import Epoch, Epochs, split_share
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.planning.rounds import Rounds
from lmdbio.planning.schedule import Assignment, Schedule
from lmdbio.planning.shuffle import GLOBAL, Shuffle

__all__ = [
    "BATCH_MAX",
    "DISK",
    "EPOCHS_MAX",
    "FILE",
    "OWN",
    "PEER",
    "RANKS_MAX",
    "ROW_SOURCES",
    "Forecast",
    "Job",
    "Outlook",
    "Rows",
    "Supplied",
]

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: Requests, and the bytes that they read.
Reads = npt.NDArray[np.float64]

#: Sources of a Reader's rows, in the order of all counts; the first one is a root's own memory.
ROW_SOURCES = (*_core.SOURCES, "disk")
OWN, PEER, FILE, DISK = range(len(ROW_SOURCES))
#: Parts of an epoch whose reads are planned.
SAMPLED = 16
#: Places that are counted at a time.
PART = 1 << 20
#: The largest job that can be looked at ahead.
RANKS_MAX, BATCH_MAX, EPOCHS_MAX = 1 << 20, 1 << 24, 100_000


class Rows(NamedTuple):
    """Some rows of an epoch, one after the other.

    Attributes:
        places: places in the epoch, ascending.
        records: records at these places.
        users: the root that uses each.
        servers: the root that has each when it is used, ``NOBODY`` where none has.
        sources: ``OWN``, ``PEER``, ``FILE`` or ``DISK``.
    """

    places: I64
    records: I64
    users: I64
    servers: I64
    sources: I64


@dataclass(frozen=True, slots=True)
class Supplied:
    """Records and bytes of an epoch.

    Attributes:
        records, bytes: records and bytes by source, in the order of ``ROW_SOURCES``.
        sent_bytes: number of bytes that roots send to each other.
    """

    records: tuple[int, ...]
    bytes: tuple[int, ...]
    sent_bytes: int


#: No record comes from anywhere.
NOTHING = Supplied((0,) * len(ROW_SOURCES), (0,) * len(ROW_SOURCES), 0)


@dataclass(frozen=True, slots=True)
class Job:
    """A job whose ranks share each batch, with one root on each node.

    Attributes:
        cache: cache of each root, with ``disk_bytes`` where it has a disk. None: roots cache
            nothing.
        batch: records of all ranks in an iteration.
        nodes, ranks: number of nodes, and of ranks.
        epochs: number of epochs that are looked at.
        shuffle: shuffle of each epoch; None: records come in their own order.
        ends: whether the job ends with these epochs, and with a batch that may be short.
        assignment: "strided", or "local": ranks take what their root holds.
        first: shuffle of epoch 0, where the cache is warmed in windows.
        seed: seed of all epochs.

    Raises:
        TypeError: a number is not whole, or the shuffle is none.
        ValueError: for values that describe no job, or a placement that the order or the
            assignment does not suit.
    """

    cache: Cache | None
    batch: int
    nodes: int
    ranks: int
    epochs: int = 3
    shuffle: Shuffle | None = None
    ends: bool = False
    assignment: str = "strided"
    first: Shuffle | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self._refuse_numbers()
        if not isinstance(self.shuffle, Shuffle | None):
            raise TypeError(f"shuffle must be a Shuffle, not {self.shuffle!r}")
        Assignment.named(self.assignment, ("strided", "local"))
        if self.cache is None and self.sharing.is_dealt:
            raise ValueError("assignment='local' needs a cache: ranks take what their root holds")
        if self.cache is None:
            return
        if self.cache.disk is not None and self.cache.disk_bytes is None:
            raise ValueError("Cache: disk_bytes must be known to look ahead")
        self.cache.refuse(self.shuffle, self.sharing)

    def _refuse_numbers(self) -> None:
        for name in ("batch", "nodes", "ranks", "epochs"):
            if not isinstance(getattr(self, name), int | np.integer):
                raise TypeError(f"{name} must be a whole number, not {getattr(self, name)!r}")
        if not 1 <= self.nodes <= self.ranks:
            raise ValueError(f"{self.ranks} ranks cannot run on {self.nodes} nodes")
        if self.ranks > RANKS_MAX:
            raise ValueError(f"a job has at most {RANKS_MAX:,} ranks, not {self.ranks:,}")
        if not 1 <= self.batch <= BATCH_MAX:
            raise ValueError(f"a batch has 1 to {BATCH_MAX:,} records, not {self.batch:,}")
        if not 1 <= self.epochs <= EPOCHS_MAX:
            raise ValueError(f"a look ahead has 1 to {EPOCHS_MAX:,} epochs, not {self.epochs:,}")

    @property
    def sharing(self) -> Assignment:
        """The assignment, as a value that others ask."""
        return Assignment(self.assignment)

    @property
    def placement(self) -> Placement:
        """The placement of the cache; without one "slices" or "none".

        Where an epoch comes in windows, each root reads a slice of each, and hands it on: rows
        count by the root that has read them, as a Reader counts them.
        """
        if self.cache is not None:
            return self.cache.rule
        return SLICES if self.shuffle is not None and self.shuffle.has_windows else NONE

    @property
    def tiers(self) -> Room:
        """Room in a root's tiers."""
        if self.cache is None:
            return Room(0)
        return Room(int(self.cache.memory), int(self.cache.disk_bytes or 0))

    @property
    def room(self) -> int:
        """Bytes of a root's tiers."""
        return sum(self.tiers)

    def schedule(self, count: int) -> Schedule:
        """Return who uses which place, strided."""
        nodes = range(self.nodes)
        teams = tuple(tuple(split_share(self.ranks, self.nodes, node)) for node in nodes)
        length = self.epochs * count if self.ends else None
        return Schedule(count, self.batch, teams, length=length)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The reads of an epoch.

    Attributes:
        epoch: number of the epoch; None: before the first one begins.
        supplied: records and bytes by source.
        requests, read_bytes: number of requests to the file system, and bytes read, about, gaps
            included.
        messages: number of messages between roots, about.
    """

    epoch: int | None
    supplied: Supplied
    requests: int
    read_bytes: int
    messages: int


class Outlook:
    """The placement of a job over the records of a file.

    Args:
        extents: extents of all records, at least 1.
        job: job that reads the records.
        options: options of the reads.
        alignment: alignment of the reads, bytes.
    """

    def __init__(
        self, extents: _core.Extents, job: Job, options: PlanOptions, alignment: int
    ) -> None:
        self._extents, self._job, self._options = extents, job, options
        self._alignment, self._placement = alignment, job.placement
        self._preloads = job.cache is not None and job.cache.warming.is_before
        self._lengths = extents["length"].astype(np.int64)
        self.file_bytes = int((extents["offset"].astype(np.int64) + self._lengths).max())

    @cached_property
    def schedule(self) -> Schedule:
        """Says who uses which place, over all epochs."""
        job, count = self._job, len(self._lengths)
        orders = None if self.shuffle is None else self._epochs
        made = replace(job.schedule(count), epochs=orders)
        if self._placement.needs_end:
            made = replace(made, length=job.epochs * count)
        if not job.sharing.is_dealt:
            return made
        return replace(made, assignment=job.sharing, owner=self.homes.owner_of)

    @cached_property
    def homes(self) -> Homes:
        """The parts of the file that roots hold all the time."""
        extents, rooms = self._extents, [self._job.tiers] * self._job.nodes
        return Homes.fitting(
            lambda first, end: extents[first:end],
            len(extents),
            rooms,
            self._options.request_bytes_max,
            are_owned=self._placement.owns_grains,
        )

    @cached_property
    def _owners(self) -> RecordOwners:
        """The roots that cache each record, where these are cached one by one."""
        nodes, schedule = self._job.nodes, self.schedule
        self._placement.refuse_size(schedule.count, nodes, schedule.end)
        sizes, rooms = room_of(self._extents["length"]), [self._job.tiers.memory] * nodes
        return self._placement.owners(schedule, sizes, rooms, is_warm=self._preloads)

    @property
    def held_bytes(self) -> int:
        """Bytes of the file that roots hold all the time, once they are warm."""
        if self._placement.ownership is not None:
            return int(self._lengths[self._owners.are_owned].sum())
        return min(self.homes.held_bytes, self.file_bytes)

    @cached_property
    def shuffle(self) -> Shuffle | None:
        """The order of each epoch: with held records among the others where they are mixed."""
        given = self._job.shuffle
        return None if given is None else self._placement.order(given, self.homes.first_records)

    def epoch(self, number: int) -> Epoch:
        """Return the order of an epoch."""
        count = len(self._lengths)
        return Epoch(count, None, number) if self.shuffle is None else self._epochs.epoch(number)

    @cached_property
    def _epochs(self) -> Epochs:
        """The orders of all epochs; of a job that shuffles."""
        job = self._job
        return Epochs(len(self._lengths), job.seed, self.shuffle or GLOBAL, job.first)

    def rounds(self, epoch: Epoch) -> Rounds | None:
        """Return the rounds in which records stream; None: none do."""
        if not self._placement.streams:
            return None
        others = epoch.mixed_epochs()[1] if epoch.shuffle.held else epoch
        return Rounds(others, self._job.nodes) if others.count else None

    # --- where records come from

    def rows(self, number: int) -> Iterator[Rows]:
        """Yield all rows of an epoch, and where each comes from, some at a time."""
        epoch = self.epoch(number)
        for begin in range(0, epoch.count, PART):
            yield self._rows_at(epoch, np.arange(begin, min(begin + PART, epoch.count)))

    def _rows_at(self, epoch: Epoch, places: I64) -> Rows:
        """Return the rows at ascending places of an epoch."""
        records = epoch.samples(places)
        users = _users(self.schedule, epoch.number * epoch.count + places)
        servers, is_read = self._servers(epoch, records, users)
        own = np.full(len(records), OWN)
        if self._on_disk is not None:
            own[self._on_disk[records]] = DISK
        sources = np.where(is_read, FILE, np.where(servers == users, own, PEER))
        return Rows(places, records, users, servers, sources)

    def _servers(self, epoch: Epoch, records: I64, users: I64) -> tuple[I64, Flags]:
        """Return the root that has each record when it is used, and which count as read then."""
        if self._placement.ownership is not None:
            servers = self._owners.owner_of(records, epoch.number, users)
            return servers, servers == NOBODY
        servers = self.homes.owner_of(records)
        is_read = (servers == NOBODY) | (epoch.number == 0 and not self._preloads)
        streams = self.rounds(epoch)
        if streams is not None:
            rest = records >= epoch.shuffle.held
            servers[rest] = streams.owner(records[rest] - epoch.shuffle.held)
            is_read[rest] = not self._placement.hands_on
        return servers, is_read

    @cached_property
    def _on_disk(self) -> Flags | None:
        """Whether the root of each record has it on its disk; None: there are no disks."""
        tiers, homes = self._job.tiers, self.homes
        if not tiers.disk:
            return None
        found = np.zeros(len(self._lengths), np.bool_)
        for root in range(self._job.nodes):
            stored, bits = homes.owned(root), homes.grains.bits
            own = np.flatnonzero(homes.records == root)
            extents = self._extents[own]
            places = _core.place_extents(extents, bits, homes.grains.numbers, stored.start)
            memory = len(Tiers.of(len(stored), tiers, bits).memory) << bits
            if memory < len(stored) << bits:
                found[own[_core.extents_beyond(extents, places, memory)]] = True
        return found

    # --- what is read for it

    def epochs(self) -> Iterator[Forecast]:
        """Return the forecast of each epoch, and of what is read before the first, if anything."""
        if self._preloads and (self._placement.ownership is not None or self.held_bytes):
            yield _forecast(None, NOTHING, self._fill(), 0)
        for number in range(self._job.epochs):
            epoch = self.epoch(number)
            supplied = _supplied(self.rows(number), self._lengths)
            reads, messages = self._batches(epoch)
            reads = reads + self._streamed(epoch)
            if number == 0 and not self._preloads and self._placement.owns_grains:
                reads = reads + self._fill()
            yield _forecast(number, supplied, reads, messages)

    def _fill(self) -> Reads:
        """Return the reads by which roots get all that they cache, and nothing else."""
        if self._placement.ownership is None:
            return np.array([self.homes.ends[-1], self.held_bytes], np.float64)
        owned = map(self._owners.owned, range(self._job.nodes))
        return sum(map(self._reads, owned), np.zeros(2))

    def _batches(self, epoch: Epoch) -> tuple[Reads, int]:
        """Return reads of what nobody has, and messages for what another root has."""
        reads, messages, sampled, nodes = np.zeros(2), 0, 0, self._job.nodes
        for number in _sample(max(1, epoch.count // self._job.batch)):
            begin = number * self._job.batch
            places = np.arange(begin, min(epoch.count, begin + self._job.batch))
            sampled += len(places)
            rows = self._rows_at(epoch, places)
            is_missing = rows.servers == NOBODY
            for node in np.unique(rows.users[is_missing]).tolist():
                own = rows.records[is_missing & (rows.users == node)]
                reads += self._reads(own)
            sent = ~is_missing & (rows.servers != rows.users)
            messages += len(np.unique(rows.servers[sent] * nodes + rows.users[sent]))
        times = epoch.count / sampled
        return reads * times, round(messages * times)

    def _streamed(self, epoch: Epoch) -> Reads:
        """Return the reads of all rounds."""
        rounds = self.rounds(epoch)
        if rounds is None:
            return np.zeros(2)
        slices, reads = len(rounds) * rounds.roots, np.zeros(2)
        sample = _sample(slices)
        for number in sample:
            records = rounds.slice(*divmod(number, rounds.roots))
            reads += self._reads(epoch.shuffle.held + records)
        return reads * (slices / len(sample))

    def _reads(self, records: I64) -> Reads:
        if not len(records):
            return np.zeros(2)
        plan = plan_reads(self._extents[records], self._options, alignment=self._alignment)
        return np.array([plan.totals.requests, plan.totals.buffer_bytes], np.float64)


def _users(schedule: Schedule, places: I64) -> I64:
    """Return the root (team) that uses each place of a sequence.

    Args:
        schedule: strided or local, and begins with the sequence.
        places: ascending.
    """
    if not schedule.assignment.is_dealt:
        return _core.find_teams(seats(schedule), places).astype(np.int64)
    if not len(places):
        return np.empty(0, np.int64)
    size = schedule.block_iterations * schedule.batch_size
    blocks = range(int(places[0]) // size, int(places[-1]) // size + 1)
    teams = np.concatenate([schedule.dealt(block).teams for block in blocks])
    return teams[places - blocks.start * size].astype(np.int64)


def _sample(count: int) -> list[int]:
    """Return some of so many numbers, evenly spread."""
    return sorted({int(number) for number in np.linspace(0, count - 1, SAMPLED)})


def _forecast(epoch: int | None, supplied: Supplied, reads: Reads, messages: int) -> Forecast:
    requests, size = reads.tolist()
    return Forecast(epoch, supplied, round(requests), round(size), messages)


def _supplied(rows: Iterable[Rows], lengths: I64) -> Supplied:
    """Return what comes from each source.

    Args:
        rows: rows of an epoch, some at a time.
        lengths: length of each record, bytes.
    """
    kinds, sent = len(ROW_SOURCES), 0
    records, sizes = np.zeros(kinds, np.int64), np.zeros(kinds, np.int64)
    for some in rows:
        of_row = lengths[some.records]
        records += np.bincount(some.sources, minlength=kinds)
        sizes += np.bincount(some.sources, of_row, kinds).astype(np.int64)
        sent += int(of_row[(some.servers >= 0) & (some.servers != some.users)].sum())
    return Supplied(tuple(records.tolist()), tuple(sizes.tolist()), sent)
