"""reader_job: how long a Reader's job takes on a file, and where its records come from. Pure.

    extents, Job --placement.forecast--> Loads --clock, by iteration--> Outcome

``Loads`` says what each node reads, sends and uses in each iteration. Requests and bytes of an
epoch from the file are those of its forecast. They lie where they are first needed: a grain of a
home in the iteration that has the first of its records, a window in the one that begins with it,
else a record in its own.

Records come from where they come from in the job itself, since the same functions say so
(``placement.homes``, ``deal``, ``rounds``, ``supply``): the counts by epoch and source are those
of ``reader.sources()`` of all ranks together, where no root was late. Seconds are a model:

    served    by the file system, which all nodes share: requests and bytes of an iteration take
              its time one after the other, those of the next one after them
    load      of a node in an iteration: whichever takes longest of its link to the file system,
              the network each way, its tiers, and making records ready, all beside one another
    ready     = max(ready of the iteration before, when there is room for this one) + load; no
              earlier than what the node reads is served
    end       = the last node's max(end of the iteration before, ready) + what it computes

A node reads as many iterations ahead as its staging buffer has room for. All nodes wait for one
another after each iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import FILE, ROW_SOURCES, Forecast, Job, Outlook, Rows
from lmdbio.placement.homes import Homes, Room, Tiers
from lmdbio.placement.owners import room_of
from lmdbio.placement.policy import Policy
from lmdbio.planning.environment import Environment
from lmdbio.planning.reads import PAGE_BYTES, PlanOptions
from lmdbio.planning.shuffle import Shuffle
from lmdbio.simulate.job import Outcome

__all__ = ["run_reader", "run_readers"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MIB = float(1 << 20)


def run_reader(
    extents: _core.Extents,
    job: Job,
    environment: Environment,
    options: PlanOptions,
    *,
    alignment: int = PAGE_BYTES,
    name: str = "reader",
    reads_ahead: bool = True,
    compute_seconds: float | None = None,
) -> Outcome:
    """Return what a job of a Reader comes to.

    Args:
        extents: extents of all records of the file, at least 1.
        job: Job with its epochs, batches, nodes, cache and order.
        environment: rates of a node's tiers, in the order of the cache's (memory, disk), of the
            network and the file system. Capacities and nodes are the job's.
        options, alignment: options of the reads, and their alignment, bytes.
        name: name of the outcome.
        reads_ahead: whether a node reads ahead; else an iteration begins when the one before has
            ended.
        compute_seconds: duration of computing in each iteration; None: as long as its bytes take
            at the environment's rate.

    Raises:
        ValueError: the cache has a tier that the environment has not; or as of ``Outlook``.
    """
    outlook = Outlook(extents, job, options, alignment)
    environment = replace(environment, nodes=job.nodes)
    loads = Loads(outlook, extents, job)
    shares = _tier_shares(outlook.homes, job.tiers)
    if len(shares) > len(environment.tiers):
        raise ValueError(
            f"the cache has {len(shares)} tiers, and there are rates of {len(environment.tiers)}"
        )
    init = _init_seconds(loads, environment, shares)
    compute = loads.used / MIB / environment.compute
    if compute_seconds is not None:
        compute = np.full_like(compute, compute_seconds)
    seconds = _load_seconds(loads, environment, shares)
    served = _served_seconds(loads, environment)
    ahead = _ahead(loads, environment) if reads_ahead else 0
    ends = _ends(served, loads.read > 0, seconds, compute, init, ahead)
    bound = np.cumsum(compute.max(axis=1))
    stalls = np.diff(ends - bound, prepend=init).clip(0)
    return Outcome(
        name,
        float(bound[-1]),
        float(ends[-1]),
        init,
        max(0.0, float(ends[-1] - bound[-1]) - init),
        _by_source(loads.records),
        stalls=stalls,
        bytes=_by_source(loads.sizes),
        epochs=_by_epoch(loads, ends, stalls, init),
    )


def run_readers(
    extents: _core.Extents,
    policies: Iterable[Policy],
    job: Job,
    environment: Environment,
    options: PlanOptions,
    windows: Shuffle,
    *,
    alignment: int = PAGE_BYTES,
) -> Iterator[Outcome]:
    """Return what each policy comes to, run by a Reader over a file, one after the other.

    Args:
        policies: policies, each with those tiers of the job's cache that it uses, its own
            assignment, and the job's order.
        job: Job whose cache has the tiers of each root; None: they have no tier with room.
        windows: the order of policies that need one by windows.
        extents, environment, options, alignment: arguments of ``run_reader``.

    Raises:
        ValueError: as of ``run_reader``.
    """
    plain = replace(job, cache=None, assignment="strided")
    bound = run_reader(extents, plain, environment, options, alignment=alignment).bound_seconds
    for policy in policies:
        if policy.name == "lower_bound":
            yield Outcome(policy.name, bound, bound)
            continue
        if job.cache is None and (reason := policy.refusal(0.0, 0.0, 0.0)) is not None:
            yield Outcome(policy.name, bound, reason=reason)
            continue
        words = policy.words(job.cache, job.shuffle, windows)
        if words is None:
            yield Outcome(policy.name, bound, reason="no Reader runs it")
            continue
        own = replace(job, **words._asdict())
        reason = _refusal(policy, extents, own, options, alignment)
        if reason is not None:
            yield Outcome(policy.name, bound, reason=reason)
            continue
        tiers = _tiers_of(environment, job.cache, own.cache)
        yield run_reader(
            extents, own, tiers, options, alignment=alignment, name=policy.name,
            reads_ahead=bool(policy.stages) or policy.reorders,
        )  # fmt: skip


def _refusal(
    policy: Policy, extents: _core.Extents, job: Job, options: PlanOptions, alignment: int
) -> str | None:
    """Return why a policy cannot load the records; None: it can."""
    if job.cache is None:
        return None
    size = 0
    if policy.fits:
        size = Outlook(extents, job, options, alignment).homes.grains.used_bytes
    memory, room = job.nodes * job.tiers.memory, job.nodes * job.room
    return policy.refusal(size / MIB, memory / MIB, room / MIB)


def _tiers_of(environment: Environment, cache: Cache | None, used: Cache | None) -> Environment:
    """Return an environment with those tiers of a cache that are used."""
    tiers = environment.tiers
    if cache is None or used is None:
        return environment
    if cache.memory and not used.memory:
        tiers = tiers[1:]
    return replace(environment, tiers=tiers)


def _tier_shares(homes: Homes, room: Room) -> list[float]:
    """Return which part of what roots hold each tier has: memory, disk, those that there are."""
    if not (room.memory and room.disk):
        return [1.0] if room.memory or room.disk else []
    owned = [len(homes.owned(root)) for root in range(len(homes.parts))]
    in_memory = sum(len(Tiers.of(grains, room, homes.grains.bits).memory) for grains in owned)
    memory = in_memory / sum(owned) if sum(owned) else room.memory / sum(room)
    return [memory, 1 - memory]


def _init_seconds(loads: Loads, environment: Environment, shares: list[float]) -> float:
    """Return how long it takes to fill the tiers before the first iteration."""
    size, requests = loads.before
    each, nodes = size / MIB / environment.nodes, environment.nodes
    ways = [
        size / MIB / environment.file_system.at(nodes) + requests * environment.file_request,
        each / environment.file_network,
    ]
    for share, tier in zip(shares, environment.tiers, strict=False):
        ways.append(each * share / tier.read_rate)
    return max(ways)


def _load_seconds(loads: Loads, environment: Environment, shares: list[float]) -> F64:
    """Return how long each node is busy with each iteration's records: (iterations, nodes)."""
    ways = [
        loads.read / MIB / environment.file_network,
        np.maximum(loads.sent, loads.received) / MIB / environment.network,
        loads.used / MIB / (environment.staging_rate * environment.staging.threads),
    ]
    for share, tier in zip(shares, environment.tiers, strict=False):
        ways.append(loads.held * share / MIB / tier.read_rate)
    return np.asarray(np.maximum.reduce(ways), np.float64)


def _served_seconds(loads: Loads, environment: Environment) -> F64:
    """Return how long the file system is busy with each iteration, for all nodes."""
    rates = np.array([environment.file_system.at(n) for n in range(1, environment.nodes + 1)])
    clients = np.maximum(1, np.count_nonzero(loads.read, axis=1))
    served = loads.read.sum(axis=1) / MIB / rates[clients - 1]
    return np.asarray(served + loads.requests.sum(axis=1) * environment.file_request, np.float64)


def _ahead(loads: Loads, environment: Environment) -> int:
    """Return how many iterations a node reads ahead: windows have memory of their own."""
    iterations, each = len(loads.used), float(loads.used.mean())
    room = environment.staging.capacity * MIB
    staged = iterations if room >= each * iterations else int(room / each)
    return min(iterations, max(1, staged, loads.window_iterations))


def _ends(served: F64, reads: Flags, loads: F64, uses: F64, init: float, ahead: int) -> F64:
    """Return when each iteration ends for all nodes.

    Args:
        served: seconds of the file system for an iteration, (iterations,).
        reads: whether a node has a part in that, (iterations, nodes).
        loads, uses: seconds of a node to have an iteration, and to compute with it.
        init: time from which on the first one may be loaded, seconds.
        ahead: iterations that are loaded ahead; 0: each when the one before has ended.
    """
    ends, ready, now, given = np.empty(len(served)), np.full(loads.shape[1], init), init, init
    for number in range(len(served)):
        before = number - 1 - ahead
        begin = float(ends[before]) if before >= 0 else init
        given = max(given, begin) + float(served[number])
        ready = np.maximum(ready, begin) + loads[number]
        ready = np.maximum(ready, np.where(reads[number], given, 0.0))
        now = ends[number] = float((np.maximum(ready, now) + uses[number]).max())
    return ends


def _by_source(counts: I64) -> tuple[dict[str, int], ...]:
    """Return the counts of each epoch, by the names of their sources."""
    return tuple(dict(zip(ROW_SOURCES, row, strict=True)) for row in counts.tolist())


def _by_epoch(
    loads: Loads, ends: F64, stalls: F64, init: float
) -> tuple[tuple[float, float], ...]:
    """Return the seconds of each epoch, up to its last record, and how much of it is waiting."""
    lasts = ends[loads.ends]
    waited = np.cumsum(stalls)[loads.ends]
    seconds = np.diff(lasts, prepend=init).tolist()
    return tuple(zip(seconds, np.diff(waited, prepend=0.0).tolist(), strict=True))


# --- loads --------------------------------------------------------------------------------


class Loads:
    """The loads of a job. Arrays of floats have the shape (iterations, nodes).

    Args:
        outlook: Outlook of the job over these records.
        extents: extents of all records.
        job: Job whose epochs follow one another in batches.

    Attributes:
        records, sizes: rows of each epoch by source, int64 of shape (epochs, 4), and their sizes,
            bytes, each row's rounded up to a multiple of 8 (``Reader.sources``).
        ends: number of the iteration that has each epoch's last record.
        used: bytes that a node's ranks use.
        held: bytes that its root takes out of its tiers, for itself and others.
        sent, received: bytes between roots.
        read, requests: bytes from the file and requests for them.
        before: bytes and requests before the first iteration, of all nodes.
        window_iterations: number of iterations in which a window is used; 0: there are no windows.
    """

    def __init__(self, outlook: Outlook, extents: _core.Extents, job: Job) -> None:
        self._outlook, self._extents, self._job = outlook, extents, job
        self._lengths = extents["length"].astype(np.int64)
        self._rooms = room_of(extents["length"])
        self._count = len(extents)
        self._is_accessed = np.zeros(len(outlook.homes.grains.used) or 1, np.bool_)
        self.before, self.window_iterations = (0, 0), 0
        self.records = np.zeros((job.epochs, len(ROW_SOURCES)), np.int64)
        self.sizes = np.zeros_like(self.records)
        self.ends = (np.arange(1, job.epochs + 1) * self._count - 1) // job.batch
        shape = -(-job.epochs * self._count // job.batch), job.nodes
        self.used, self.held, self.read = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.sent, self.received = np.zeros(shape), np.zeros(shape)
        self.requests = np.zeros(shape)
        for forecast in outlook.epochs():
            if forecast.epoch is None:
                self.before = forecast.read_bytes, forecast.requests
            else:
                self._add_epoch(forecast, forecast.epoch)

    def _add_epoch(self, forecast: Forecast, number: int) -> None:
        """Add the rows of an epoch, and as many reads as were forecast, where they are wanted."""
        first, end = number * self._count // self._job.batch, int(self.ends[number]) + 1
        read, requests = np.zeros((2, end - first, self._job.nodes))
        for rows in self._outlook.rows(number):
            rooms, kinds = self._rooms[rows.records], len(ROW_SOURCES)
            self.records[number] += np.bincount(rows.sources, minlength=kinds)
            self.sizes[number] += np.bincount(rows.sources, rooms, kinds).astype(np.int64)
            iterations = (number * self._count + rows.places) // self._job.batch
            size = self._lengths[rows.records].astype(np.float64)
            has_owner = rows.servers >= 0
            is_sent = has_owner & (rows.servers != rows.users)
            is_held = has_owner & (rows.sources != FILE) & (not self._job.placement.hands_on)
            self._add(self.used, iterations, rows.users, size)
            self._add(self.held, iterations[is_held], rows.servers[is_held], size[is_held])
            self._add(self.sent, iterations[is_sent], rows.servers[is_sent], size[is_sent])
            self._add(self.received, iterations[is_sent], rows.users[is_sent], size[is_sent])
            when, readers, sizes = self._wanted(number, rows, iterations, size)
            self._add(read, when - first, readers, sizes)
            self._add(requests, when - first, readers, np.ones(len(when)))
        if read.any():
            self.read[first:end] += read * (forecast.read_bytes / read.sum())
            self.requests[first:end] += requests * (forecast.requests / requests.sum())

    def _add(self, sums: F64, iterations: I64, nodes: I64, amounts: F64) -> None:
        """Add amounts of nodes in iterations, which ascend or not."""
        if not len(iterations):
            return
        first, last = int(iterations.min()), int(iterations.max())
        places = (iterations - first) * self._job.nodes + nodes
        found = np.bincount(places, amounts, (last - first + 1) * self._job.nodes)
        sums[first : last + 1] += found.reshape(-1, self._job.nodes)

    def _wanted(self, number: int, rows: Rows, iterations: I64, size: F64) -> tuple[I64, I64, F64]:
        """Return the rows for which a root reads the file.

        Returns:
            The iteration of each, the node whose root reads it, and its bytes, as far as this
            tells parts of the epoch from one another.
        """
        readers = np.where(rows.servers >= 0, rows.servers, rows.users)
        if self._job.placement.hands_on:
            return self._of_rounds(number, rows.places), readers, size
        is_read = rows.sources == FILE
        is_home = self._outlook.homes.records[rows.records] != _core.NO_HOME
        grains = self._outlook.homes.grains
        of_home = np.flatnonzero(is_read & is_home)
        first = of_home[self._first_of(rows.records[of_home])]
        rest = np.flatnonzero(is_read & ~is_home)
        when = np.concatenate((iterations[first], iterations[rest]))
        if self._outlook.rounds(self._outlook.epoch(number)) is not None:
            when[len(first) :] = self._of_rounds(number, rows.places[rest])
        sizes = np.concatenate((np.full(len(first), float(grains.size)), size[rest]))
        return when, readers[np.concatenate((first, rest))], sizes

    def _first_of(self, records: I64) -> I64:
        """Return which of some records are the first ones of their grains."""
        grains = self._outlook.homes.grains.first(self._extents[records])
        found, first = np.unique(grains, return_index=True)
        first = first[~self._is_accessed[found]]
        self._is_accessed[found] = True
        return np.asarray(np.sort(first), np.int64)

    def _of_rounds(self, number: int, places: I64) -> I64:
        """Return the iterations in which the windows begin that have some places."""
        epoch, batch = self._outlook.epoch(number), self._job.batch
        rounds = self._outlook.rounds(epoch)
        if rounds is None or not len(places):
            return np.empty(0, np.int64)
        if epoch.shuffle.held:  # windows stream evenly among what is held
            places = places * rounds.epoch.count // self._count
        begins = np.array([rounds.begin(one) for one in range(len(rounds) + 1)], np.int64)
        longest = int(np.diff(begins).max()) * self._count // rounds.epoch.count
        self.window_iterations = max(self.window_iterations, -(-longest // batch))
        first = begins[rounds.of(places)] * self._count // rounds.epoch.count
        return np.asarray((number * self._count + first) // batch, np.int64)
