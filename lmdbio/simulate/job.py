"""job: how long a training takes with each policy, and where its records come from. Pure.

    scenario, policy -> capacities -> holdings -> clock -> Outcome

This is the model of the HDMLP thesis, and gives the figures that it prints, to half a per cent.
For these, threads of a tier each have all of its rate, each thread that reads the file system has
a client's whole share, and a node is a client while its latest known read began then or later: so
the file system may give more than it has. ``reader_job`` has a model in which it does not.

Records that are held from the start cost what it takes to fill the tiers, of the slowest node.
Policies that use what is there wait for nothing after that. All others run against the clock
(``csrc/clock.c``): record by record, node by node, iteration by iteration.

Source: the HDMLP thesis, sections 3.1, 4.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.owners import ROUNDING, NodeUses, TierRecords
from lmdbio.placement.policy import Policy
from lmdbio.planning.environment import Environment
from lmdbio.simulate.scenario import Scenario

__all__ = ["Outcome", "run"]

F64 = npt.NDArray[np.float64]
Arrays = dict[str, npt.NDArray[Any]]

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a policy.

    Attributes:
        policy: name of the policy.
        bound_seconds: duration of the whole training, seconds, if every record were always there.
        seconds: duration of the whole training; None: the policy cannot load this data set.
        init_seconds: part of ``seconds`` before the first iteration.
        stall_seconds: part of ``seconds`` spent waiting in iterations.
        reads: number of records of each epoch by source ("own", "peer", "file"), those read ahead
            and those asked for; None: nothing was read one by one.
        reason: reason why it cannot; None: it can.
        stalls: seconds of waiting in each iteration, shape (iterations,); None: nothing was read
            one by one.
        bytes: bytes of each epoch by source, of a Reader's job; None: of others.
        epochs: seconds of each epoch of a Reader's job, and of these, waiting; None: of others.
    """

    policy: str
    bound_seconds: float
    seconds: float | None = None
    init_seconds: float = 0.0
    stall_seconds: float = 0.0
    reads: tuple[Mapping[str, int], ...] | None = None
    reason: str | None = None
    stalls: F64 | None = field(default=None, compare=False, repr=False)
    bytes: tuple[Mapping[str, int], ...] | None = None
    epochs: tuple[tuple[float, float], ...] | None = None


def run(
    scenario: Scenario, policies: Iterable[Policy], *, all_are_clients: bool = False
) -> Iterator[Outcome]:
    """Return what each policy comes to, one after the other.

    Args:
        scenario: Scenario that is simulated.
        policies: policies, each of which runs by itself.
        all_are_clients: whether all nodes are clients of the file system at any moment, as the
            thesis' text has it.

    Raises:
        ValueError: the scenario cannot be simulated (``Scenario.check``).
    """
    scenario.check()
    bound = scenario.bound_ends()
    return (_run_one(scenario, policy, all_are_clients, bound) for policy in policies)


def _run_one(scenario: Scenario, policy: Policy, all_are_clients: bool, bound: F64) -> Outcome:
    environment, at_least = scenario.environment, float(bound[-1])
    capacities = _capacities(environment, policy)
    memory = next((tier.capacity for tier in environment.tiers if tier.capacity), 0.0)
    reason = policy.refusal(
        float(scenario.sizes.sum()),
        environment.nodes * memory,
        environment.nodes * sum(capacities),
    )
    if reason is not None:
        return Outcome(policy.name, at_least, reason=reason)
    held = _copies(scenario, policy, capacities)
    init = _init_seconds(scenario, policy, held) if policy.preloads else 0.0
    if policy.reorders:  # waits for nothing
        return Outcome(policy.name, at_least, init + at_least, init)
    may = _may(policy, all_are_clients)
    numbers, arrays = _numbers(scenario, init), _arrays(scenario, policy, held)
    ends, counts = _core.run_clock(may, numbers, arrays)
    reads = tuple(dict(zip(_core.SOURCES, row, strict=True)) for row in counts.tolist())
    stalls = np.diff(ends - bound, prepend=init).clip(0)  # rounding apart, never less
    stalled = max(0.0, float(ends[-1]) - init - at_least)
    return Outcome(policy.name, at_least, float(ends[-1]), init, stalled, reads, stalls=stalls)


def _capacities(environment: Environment, policy: Policy) -> list[float]:
    """Return how much of each tier a policy uses."""
    rooms = [tier.capacity for tier in environment.tiers]
    with_room = [i for i, room in enumerate(rooms) if room]
    used = {
        "none": [],
        "memory": with_room[:1],
        "disk": with_room[-1:],
        "either": with_room[-1:],
        "all": with_room,
    }[policy.tiers]
    return [room if i in used else 0.0 for i, room in enumerate(rooms)]


def _copies(scenario: Scenario, policy: Policy, capacities: list[float]) -> TierRecords:
    """Return which node holds which records, in which tier."""
    by_node = policy.rule.by_node
    if by_node is None:
        return [[] for _ in range(scenario.environment.nodes)]
    uses = NodeUses(scenario.access, scenario.training.epochs, scenario.sizes)
    return by_node(uses, capacities)


def _init_seconds(scenario: Scenario, policy: Policy, held: TierRecords) -> float:
    """Return how long the slowest node takes to fill its tiers, all nodes reading at once."""
    environment, whole = scenario.environment, float(scenario.sizes.sum())
    file_rate = environment.file_rate(environment.nodes)
    slowest = 0.0
    for parts in held:
        for tier, records in zip(environment.tiers, parts, strict=False):
            own = float(scenario.sizes[records].sum())
            seconds = _fill_seconds(environment, own, tier.threads, file_rate)
            if policy.copies and len(records):
                more = min(tier.capacity, whole) - own
                rate = environment.peer_rate(tier)
                seconds += _fill_seconds(environment, max(0.0, more), tier.threads, rate)
            slowest = max(slowest, seconds)
    return slowest


def _fill_seconds(environment: Environment, size: float, threads: int, rate: float) -> float:
    return size / threads * (1 / environment.preprocess + 1 / rate)


def _may(policy: Policy, all_are_clients: bool) -> list[str]:
    """Return what nodes may do (csrc/clock.h)."""
    may = {
        "stages": bool(policy.stages),
        "stages_peers": "peer" in policy.stages,
        "stages_file": "file" in policy.stages,
        "on_demand": policy.on_demand,
        "keeps_staged": policy.keeps_staged,
        "all_are_clients": all_are_clients or policy.keeps_staged,
    }
    return [name for name, given in may.items() if given]


def _numbers(scenario: Scenario, init: float) -> dict[str, float]:
    """Return the numbers of ``lio_cluster`` (csrc/clock.h)."""
    environment = scenario.environment
    return {
        "nodes": environment.nodes,
        "tiers": len(environment.tiers),
        "batch": scenario.training.batch // environment.nodes,
        "iterations": scenario.iterations,
        "epoch_iterations": scenario.epoch_iterations,
        "start": init,
        "compute": environment.compute,
        "prepare": environment.staging_rate,
        "capacity": environment.staging.capacity * (1 + ROUNDING),
        "threads": environment.staging.threads,
    }


def _arrays(scenario: Scenario, policy: Policy, held: TierRecords) -> Arrays:
    """Return the arrays of ``lio_cluster``."""
    environment = scenario.environment
    tiers, nodes = environment.tiers, environment.nodes
    arrays: Arrays = {
        "sizes": scenario.sizes,
        "access": scenario.access,
        "file_rates": np.array([environment.file_rate(n) for n in range(1, nodes + 1)]),
        "own_rates": np.array([tier.read_rate for tier in tiers]),
        "peer_rates": np.array([environment.peer_rate(tier) for tier in tiers]),
        "tier_threads": np.array([tier.threads for tier in tiers], np.uint32),
        **_entries(scenario, held, len(tiers)),
    }
    if policy.preloads:
        arrays["ready"] = np.zeros(len(arrays["ready"]))
    if policy.preloads or policy.keeps_staged:
        arrays["fetches"] = np.zeros_like(arrays["fetches"])
    return arrays


def _entries(scenario: Scenario, held: TierRecords, tiers: int) -> Arrays:
    """Return who holds what: by record, and by node and tier in the order of fetching."""
    lists = [part for parts in held for part in (*parts, *[_NONE] * (tiers - len(parts)))]
    lengths = np.array([len(part) for part in lists], np.int64)
    record = np.concatenate(lists) if lists else _NONE
    owner = np.repeat(np.arange(len(lists)), lengths)
    by_record = np.argsort(record, kind="stable")
    fetch = np.empty(len(record), np.uint64)
    fetch[by_record] = np.arange(len(record), dtype=np.uint64)
    counts = np.bincount(record, minlength=scenario.data.count)
    return {
        "holders": np.concatenate(([0], np.cumsum(counts))),
        "entry_record": record[by_record],
        "entry_node": owner[by_record] // max(1, tiers),
        "entry_tier": owner[by_record] % max(1, tiers),
        "ready": np.full(len(record), np.inf),
        "fetches": np.concatenate(([0], np.cumsum(lengths))),
        "fetch": fetch,
    }
