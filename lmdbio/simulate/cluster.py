"""cluster: what the clocks of a simulated cluster are told. Pure.

    scenario, policy, semantics -> capacities -> holdings -> numbers and arrays

``cluster_of`` is for ``csrc/clock.c``, ``traffic_of`` for ``csrc/traffic.c``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement import papers
from lmdbio.placement.papers import Holdings
from lmdbio.placement.policy import Policy
from lmdbio.planning.environment import Curve, Environment
from lmdbio.simulate.scenario import Scenario, Semantics

__all__ = ["capacities_of", "cluster_of", "holdings_of", "rooms", "traffic_of"]

Numbers = dict[str, float]
Arrays = dict[str, npt.NDArray[Any]]


def rooms(environment: Environment) -> list[float]:
    """Return how much each tier of a node holds."""
    return [tier.capacity for tier in environment.tiers]


def capacities_of(environment: Environment, policy: Policy, semantics: Semantics) -> list[float]:
    """Return how much of each tier a policy uses."""
    tiers = semantics.locality_tier if policy.tiers == "either" else policy.tiers
    each = rooms(environment)
    with_room = [i for i, room in enumerate(each) if room]
    used = {
        "none": [],
        "memory": with_room[:1],
        "disk": with_room[-1:],
        "all": with_room,
    }[tiers]
    return [room if i in used else 0.0 for i, room in enumerate(each)]


def holdings_of(scenario: Scenario, policy: Policy, capacities: list[float]) -> Holdings:
    """Return which node holds which records, in which tier."""
    by_node = policy.rule.by_node
    if by_node is None:
        return [[] for _ in range(scenario.environment.nodes)]
    uses = papers.NodeUses(scenario.access, scenario.training.epochs, scenario.sizes)
    return by_node(uses, capacities)


def cluster_of(
    scenario: Scenario, policy: Policy, semantics: Semantics, held: Holdings, init: float
) -> tuple[Numbers, Arrays]:
    """Return what the clock is told: numbers and arrays of ``lio_cluster`` (csrc/clock.h)."""
    may = {
        **_may(policy),
        "all_are_clients": semantics.all_are_clients or policy.keeps_staged,
    }
    arrays = _arrays(scenario, policy, semantics, held)
    if policy.preloads:
        arrays["ready"] = np.zeros(len(arrays["ready"]))
        arrays["fetches"] = np.zeros_like(arrays["fetches"])
    flags = sum(_core.CLOCK_FLAGS[name] for name, given in may.items() if given)
    return {**_numbers(scenario), "may": flags, "start": init}, arrays


def traffic_of(
    scenario: Scenario,
    policy: Policy,
    semantics: Semantics,
    capacities: list[float],
    held: Holdings,
) -> tuple[Numbers, Arrays, Numbers]:
    """Return what the traffic is told: numbers, arrays, shares (``_core.run_traffic``)."""
    environment = scenario.environment
    tiers, nodes = environment.tiers, environment.nodes
    may = {
        **_may(policy),
        "stages": bool(policy.stages) or policy.reorders,
        "preloads": policy.preloads,
        "copies": policy.copies,
        "reorders": policy.reorders,
        "checks": semantics.checks,
    }
    flags = sum(_core.TRAFFIC_FLAGS[name] for name, given in may.items() if given)
    reads = [tier.reads for tier in tiers]
    writes = [tier.writes or tier.reads for tier in tiers]
    users = nodes * (1 + environment.staging.threads + sum(tier.threads for tier in tiers))
    columns = max([min(curve.points[-1][0], users) for curve in (*reads, *writes)], default=1)
    arrays = {
        **_arrays(scenario, policy, semantics, held),
        "file_system": _table([environment.file_system], nodes)[0],
        "reads": _table(reads, columns),
        "writes": _table(writes, columns),
        "capacities": np.array(capacities) * (1 + papers.ROUNDING),
    }
    shares = {"network": environment.network, "file_network": environment.file_network}
    return {**_numbers(scenario), "may": flags}, arrays, shares


def _table(curves: list[Curve], columns: int) -> npt.NDArray[np.float64]:
    """Return the rates of curves for 1 to so many that read at once."""
    rates = [[curve.at(number) for number in range(1, columns + 1)] for curve in curves]
    return np.array(rates, np.float64).reshape(len(curves), columns)


def _may(policy: Policy) -> dict[str, bool]:
    return {
        "stages": bool(policy.stages),
        "stages_peers": "peer" in policy.stages,
        "stages_file": "file" in policy.stages,
        "on_demand": policy.on_demand,
        "keeps_staged": policy.keeps_staged,
    }


def _numbers(scenario: Scenario) -> Numbers:
    environment = scenario.environment
    return {
        "nodes": environment.nodes,
        "tiers": len(environment.tiers),
        "batch": scenario.training.batch // environment.nodes,
        "iterations": scenario.iterations,
        "epoch_iterations": scenario.epoch_iterations,
        "compute": environment.compute,
        "prepare": environment.staging_rate,
        "capacity": environment.staging.capacity * (1 + papers.ROUNDING),
        "threads": environment.staging.threads,
    }


def _arrays(scenario: Scenario, policy: Policy, semantics: Semantics, held: Holdings) -> Arrays:
    environment, divided = scenario.environment, semantics.divided
    tiers, nodes = environment.tiers, environment.nodes
    ranks = range(1, len(tiers) + 1)
    arrays: Arrays = {
        "sizes": scenario.sizes,
        "access": scenario.access,
        "file_rates": np.array([environment.file_rate(n) for n in range(1, nodes + 1)]),
        "own_rates": np.array([environment.own_rate(i, divided=divided) for i in ranks]),
        "peer_rates": np.array([environment.peer_rate(i, divided=divided) for i in ranks]),
        "tier_threads": np.array([tier.threads for tier in tiers], np.uint32),
        **_entries(scenario, held, len(tiers)),
    }
    if policy.keeps_staged:
        arrays["fetches"] = np.zeros_like(arrays["fetches"])
    return arrays


def _entries(scenario: Scenario, held: Holdings, tiers: int) -> Arrays:
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


_NONE = np.empty(0, np.int64)
