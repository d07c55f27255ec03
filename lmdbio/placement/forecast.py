"""forecast: what a job with caches reads from where, epoch by epoch, before it runs. Pure.

    extents, Job -> placement -> Forecast of each epoch: records, bytes, requests, messages

Records, bytes and what roots send to each other are counted, one by one. Requests are planned for
a part of the epoch, and the rest is taken to be like it; so are messages, one for each block and
pair of roots.

Source: DeepIO, locality-aware loading and the HDMLP thesis, for the placements (``cache``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.cache import RECORD_PLACEMENTS, Cache
from lmdbio.placement.homes import Grains, Homes, Room, Tiers, grain_bytes
from lmdbio.placement.record_counts import EpochCounts, RecordCounts
from lmdbio.placement.supply import (
    FILE,
    PEER,
    ROW_SOURCES,
    Placed,
    Rows,
    Supplied,
    sourced,
    supply,
    users,
)
from lmdbio.planning.balance import NOBODY
from lmdbio.planning.dealt import home_holder
from lmdbio.planning.order import Epoch, Epochs
from lmdbio.planning.parts import split_share
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.planning.rounds import Rounds
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import GLOBAL, Shuffle

__all__ = ["BATCH_MAX", "EPOCHS_MAX", "RANKS_MAX", "Forecast", "Job", "Outlook"]

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Parts of an epoch whose reads are planned.
SAMPLED = 16
#: The largest job that can be looked at ahead.
RANKS_MAX, BATCH_MAX, EPOCHS_MAX = 1 << 20, 1 << 24, 100_000
#: No record comes from anywhere.
NOTHING = Supplied((0,) * len(ROW_SOURCES), (0,) * len(ROW_SOURCES), 0)


@dataclass(frozen=True, slots=True)
class Job:
    """A job whose ranks share each batch, with one root on each node.

    Attributes:
        cache: cache of each root, with ``disk_bytes`` where it has a disk. None: roots keep
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
        cache = self.cache
        if cache is not None and cache.disk is not None and cache.disk_bytes is None:
            raise ValueError("Cache: disk_bytes must be known to look ahead")
        if self.placement == "mixed" and not self._has_windows:
            raise ValueError("placement=mixed needs an order by windows or groups")
        is_warmed = cache is not None and cache.warm == "window"
        if is_warmed and (self.shuffle is None or self.shuffle.streamed.has_windows):
            raise ValueError("warm=window needs an order without windows: global, say")
        if self.assignment not in ("strided", "local"):
            raise ValueError(f"assignment must be strided or local, not {self.assignment!r}")
        if self.assignment == "local" and cache is None:
            raise ValueError("assignment='local' needs a cache: ranks take what their root holds")
        if self.assignment == "local" and self.placement != "home":
            raise ValueError(
                "assignment='local' needs placement=home: with others a record changes its root"
            )

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
    def _has_windows(self) -> bool:
        return self.shuffle is not None and self.shuffle.has_windows

    @property
    def placement(self) -> str:
        """The placement of the cache; without one "slices" or "none".

        Where an epoch comes in windows, each root reads a slice of each, and hands it on: rows
        count by the root that has read them, as a Reader counts them.
        """
        if self.cache is not None:
            return self.cache.placement
        return "slices" if self._has_windows else "none"

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


class Reads(NamedTuple):
    """Requests, and the bytes that they read."""

    requests: float = 0.0
    bytes: float = 0.0

    def plus(self, other: Reads) -> Reads:
        """Return both together."""
        return Reads(self.requests + other.requests, self.bytes + other.bytes)

    def times(self, factor: float) -> Reads:
        """Return so many times as many."""
        return Reads(self.requests * factor, self.bytes * factor)


class Outlook:
    """The placement of a job's caches over the records of a file.

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
        self._alignment = alignment
        self._offsets = extents["offset"].astype(np.int64)
        self._lengths = extents["length"].astype(np.int64)
        self.file_bytes = int((self._offsets + self._lengths).max())

    @cached_property
    def _schedule(self) -> Schedule:
        """Says who uses which place, over all epochs."""
        strided = self._job.schedule(len(self._lengths))
        if self._job.assignment != "local":
            return strided
        epochs = None if self.shuffle is None else self._epochs
        holder = home_holder(self.homes.records)
        return replace(strided, assignment="local", epochs=epochs, holder=holder)

    @cached_property
    def homes(self) -> Homes:
        """The parts of the file that roots hold all the time."""
        extents = self._extents
        share = self.file_bytes // self._job.nodes
        size = grain_bytes(self._options.request_bytes_max, self._job.room, share)
        grains = Grains.of([extents], self.file_bytes, size)
        room = self._job.tiers.total(grains) if self._job.placement in ("home", "mixed") else 0
        return Homes.of(
            grains, [room] * self._job.nodes, len(extents), lambda first, end: extents[first:end]
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of the file that roots hold all the time, once they are warm."""
        if self._job.placement in RECORD_PLACEMENTS:
            return self._record_counts.held_bytes
        return min(self.homes.held_bytes, self.file_bytes)

    @cached_property
    def _epoch_counts(self) -> list[EpochCounts]:
        return list(self._record_counts.epochs())

    @cached_property
    def _record_counts(self) -> RecordCounts:
        job, count = self._job, len(self._lengths)
        assert job.cache is not None
        length = job.epochs * count
        order = None if self.shuffle is None else self._epochs
        schedule = replace(job.schedule(count), epochs=order)
        if job.placement == "frequency":  # of a job that has an end
            schedule = replace(schedule, length=length)
        lengths, memory = self._extents["length"], int(job.cache.memory)
        is_warm = job.cache.warm == "preload"
        return RecordCounts(job.placement, schedule, job.epochs, lengths, memory, is_warm=is_warm)

    @cached_property
    def shuffle(self) -> Shuffle | None:
        """The order of each epoch: with held records among the others where they are mixed."""
        given = self._job.shuffle
        if self._job.placement != "mixed" or given is None:
            return given
        return Shuffle.mixed(self.homes.first_records, given.chunk, given.window)

    def epoch(self, number: int) -> Epoch:
        """Return the order of an epoch."""
        count = len(self._offsets)
        return Epoch(count, None, number) if self.shuffle is None else self._epochs.epoch(number)

    @cached_property
    def _epochs(self) -> Epochs:
        """The orders of all epochs; of a job that shuffles."""
        job = self._job
        return Epochs(len(self._offsets), job.seed, self.shuffle or GLOBAL, job.first)

    def epochs(self) -> Iterator[Forecast]:
        """Return the forecast of each epoch, and of what is read before the first."""
        if self._job.placement in RECORD_PLACEMENTS:
            yield from self._by_record()
            return
        grains = Reads(int(self.homes.ends[-1]), self.held_bytes)
        if self._preloads:
            yield _forecast(None, NOTHING, grains, 0)
        for number in range(self._job.epochs):
            epoch = self.epoch(number)
            found = supply(epoch, self._schedule, self._placed, self._lengths)
            reads, messages = self._batches(epoch)
            reads = reads.plus(self._streamed(epoch))
            is_warm = self._is_warm(number)
            yield _forecast(number, found, reads if is_warm else reads.plus(grains), messages)

    @property
    def _preloads(self) -> bool:
        cache = self._job.cache
        return cache is not None and cache.warm == "preload" and self.held_bytes > 0

    def _is_warm(self, number: int) -> bool:
        """Return whether roots hold all of their homes when an epoch begins."""
        return number > 0 or self._preloads

    def _brought(self, epoch: Epoch, records: I64) -> tuple[I64, Flags]:
        """Return the root that brings each record, and whether that is no read of the file."""
        root, held = self.holder(epoch, records)
        if self._job.placement == "slices":
            return root, np.ones(len(root), np.bool_)
        return root, held & self._is_warm(epoch.number)

    @property
    def _placed(self) -> Placed:
        """Say where records are."""
        return Placed(self._brought, self._on_disk)

    @cached_property
    def _on_disk(self) -> Flags | None:
        """Whether the root of each record has it on its disk; None: there are no disks."""
        tiers, homes = self._job.tiers, self.homes
        if not tiers.disk:
            return None
        found = np.zeros(len(self._lengths), np.bool_)
        for root in range(self._job.nodes):
            kept, bits = homes.kept(root), homes.grains.bits
            own = np.flatnonzero(homes.records == root)
            extents = self._extents[own]
            places = _core.place_extents(extents, bits, homes.grains.numbers, kept.start)
            memory = len(Tiers.of(len(kept), tiers, bits).memory) << bits
            if memory < len(kept) << bits:
                found[own[_core.extents_beyond(extents, places, memory)]] = True
        return found

    def rows(self, number: int) -> Iterator[Rows]:
        """Yield all rows of an epoch, and where each comes from, some at a time."""
        if self._job.placement not in RECORD_PLACEMENTS:
            yield from sourced(self.epoch(number), self._schedule, self._placed)
            return
        one = self._epoch_counts[number]
        holders = np.where(one.sources == PEER, one.roots, one.teams)
        holders[one.sources == FILE] = NOBODY
        yield Rows(np.arange(len(holders)), one.records, one.teams, holders, one.sources)

    def holder(self, epoch: Epoch, records: I64) -> tuple[I64, Flags]:
        """Return the root that has each record when it is used, and whether it always has."""
        homes = self.homes.records[records]
        root = np.where(homes == _core.NO_HOME, NOBODY, homes.astype(np.int64))
        held = root != NOBODY
        streams = self.rounds(epoch)
        if streams is not None:
            first = epoch.shuffle.held
            rest = records >= first
            root[rest], held[rest] = streams.holder(records[rest] - first), False
        return root, held

    def rounds(self, epoch: Epoch) -> Rounds | None:
        """Return the rounds in which records stream; None: none do."""
        if self._job.placement not in ("mixed", "slices"):
            return None
        others = epoch.mixed_epochs()[1] if epoch.shuffle.held else epoch
        return Rounds(others, self._job.nodes) if others.count else None

    def _batches(self, epoch: Epoch) -> tuple[Reads, int]:
        """Return reads of what nobody has, and messages for what another root has."""
        reads, messages, looked_at = Reads(), 0, 0
        sample = _sample(max(1, epoch.count // self._job.batch))
        for number in sample:
            begin = number * self._job.batch
            places = np.arange(begin, min(epoch.count, begin + self._job.batch))
            looked_at += len(places)
            records = epoch.samples(places)
            user = users(self._schedule, epoch.number * epoch.count + places)
            root, _ = self.holder(epoch, records)
            for node in np.unique(user[root == NOBODY]).tolist():
                reads = reads.plus(self._reads(records[(root == NOBODY) & (user == node)]))
            sent = (root != NOBODY) & (root != user)
            messages += len(np.unique(root[sent] * self._job.nodes + user[sent]))
        times = epoch.count / looked_at
        return reads.times(times), round(messages * times)

    def _streamed(self, epoch: Epoch) -> Reads:
        """Return the reads of all rounds."""
        rounds = self.rounds(epoch)
        if rounds is None:
            return Reads()
        slices, reads = len(rounds) * rounds.roots, Reads()
        sample = _sample(slices)
        for number in sample:
            records = rounds.slice(*divmod(number, rounds.roots))
            reads = reads.plus(self._reads(epoch.shuffle.held + records))
        return reads.times(slices / len(sample))

    def _reads(self, records: I64) -> Reads:
        if not len(records):
            return Reads()
        plan = plan_reads(self._extents[records], self._options, alignment=self._alignment)
        return Reads(plan.totals.requests, plan.totals.buffer_bytes)

    def _by_record(self) -> Iterator[Forecast]:
        """Each root keeps records one by one."""
        kept = self._record_counts
        is_warm = self._job.cache is not None and self._job.cache.warm == "preload"
        if is_warm:
            own = [kept.keepers.kept(root) for root in range(self._job.nodes)]
            reads = Reads()
            for records in own:
                reads = reads.plus(self._reads(records))
            yield _forecast(None, NOTHING, reads, 0)
        for one in kept.epochs():
            reads = self._missed(one.records, one.sources != FILE, one.teams)
            yield _forecast(one.number, one.supplied, reads, self._sent(one))

    def _sent(self, one: EpochCounts) -> int:
        """Return the messages for what comes from another root, batch by batch."""
        messages, looked_at = 0, 0
        for number in _sample(max(1, len(one.records) // self._job.batch)):
            part = slice(number * self._job.batch, (number + 1) * self._job.batch)
            looked_at += len(one.records[part])
            sent = one.sources[part] == PEER
            pairs = one.roots[part][sent] * self._job.nodes + one.teams[part][sent]
            messages += len(np.unique(pairs))
        return round(messages * len(one.records) / looked_at)

    def _missed(self, records: I64, hits: Flags, user: I64) -> Reads:
        """Return the reads of what roots do not find, batch by batch."""
        reads, looked_at = Reads(), 0
        for number in _sample(max(1, len(records) // self._job.batch)):
            part = slice(number * self._job.batch, (number + 1) * self._job.batch)
            looked_at += len(records[part])
            for node in range(self._job.nodes):
                missed = records[part][(user[part] == node) & ~hits[part]]
                reads = reads.plus(self._reads(missed))
        return reads.times(len(records) / looked_at)


def _sample(count: int) -> list[int]:
    """Return some of so many numbers, evenly spread."""
    return sorted({int(number) for number in np.linspace(0, count - 1, SAMPLED)})


def _forecast(epoch: int | None, supplied: Supplied, reads: Reads, messages: int) -> Forecast:
    return Forecast(epoch, supplied, round(reads.requests), round(reads.bytes), messages)
