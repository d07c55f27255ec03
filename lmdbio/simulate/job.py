"""job: how long a training takes with each policy, and where its records come from. Pure.

    scenario, policy, semantics -> placement -> clock -> Outcome

Records that are held from the start cost what it takes to fill the tiers, of the slowest node.
Policies that use what is there wait for nothing after that. All others run against the clock
(``csrc/clock.c``): record by record, node by node, iteration by iteration.

Where nothing that nodes share gives more than it has (``Semantics.shared``), filling, reading and
keeping are events of all nodes in the order of time (``csrc/traffic.c``); then a policy that uses
what is there reads that, too, from the tiers that have it.

Source: the HDMLP thesis, sections 3.1, 4.1 and 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.papers import Holdings
from lmdbio.placement.policy import Policy
from lmdbio.planning.environment import Environment
from lmdbio.simulate.cluster import capacities_of, cluster_of, holdings_of, rooms, traffic_of
from lmdbio.simulate.scenario import AUTHORS, Scenario, Semantics

__all__ = ["Outcome", "run"]

F64 = npt.NDArray[np.float64]
Progress = Callable[[int, int, str], None]


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
    scenario: Scenario,
    policies: Iterable[Policy],
    semantics: Semantics = AUTHORS,
    progress: Progress | None = None,
) -> Iterator[Outcome]:
    """Return what each policy comes to, one after the other.

    Args:
        scenario: Scenario that is simulated.
        policies: policies, each of which runs by itself.
        semantics: Semantics of the papers.
        progress: function of (iterations done, iterations, policy), called while one runs.

    Raises:
        ValueError: the scenario cannot be simulated (``Scenario.check``).
    """
    scenario.check()
    return _run_all(scenario, policies, semantics, progress)


def _run_all(
    scenario: Scenario,
    policies: Iterable[Policy],
    semantics: Semantics,
    progress: Progress | None,
) -> Iterator[Outcome]:
    bound = scenario.bound_ends()
    for policy in policies:
        yield _run_one(scenario, policy, semantics, bound, progress)


def _run_one(
    scenario: Scenario,
    policy: Policy,
    semantics: Semantics,
    bound: F64,
    progress: Progress | None,
) -> Outcome:
    environment, at_least = scenario.environment, float(bound[-1])
    capacities = capacities_of(environment, policy, semantics)
    memory = environment.nodes * next(filter(None, rooms(environment)), 0.0)
    reason = policy.refusal(
        float(scenario.sizes.sum()), memory, environment.nodes * sum(capacities)
    )
    if reason is not None:
        return Outcome(policy.name, at_least, reason=reason)
    held = holdings_of(scenario, policy, capacities)
    tell = None if progress is None else partial(_tell, progress, policy.name)
    init, ends, counts = _timed(scenario, policy, semantics, capacities, held, tell)
    if ends is None:
        return Outcome(policy.name, at_least, init + at_least, init)
    reads = tuple(dict(zip(_core.SOURCES, row, strict=True)) for row in counts.tolist())
    stalls = np.diff(ends - bound, prepend=init).clip(0)  # rounding apart, never less
    stalled = max(0.0, float(ends[-1]) - init - at_least)
    return Outcome(policy.name, at_least, float(ends[-1]), init, stalled, reads, stalls=stalls)


def _tell(progress: Progress, policy: str, done: int, total: int) -> None:
    progress(done, total, policy)


def _timed(
    scenario: Scenario,
    policy: Policy,
    semantics: Semantics,
    capacities: list[float],
    held: Holdings,
    tell: Callable[[int, int], None] | None,
) -> tuple[float, F64 | None, npt.NDArray[np.uint64]]:
    """Return when the first iteration begins, when each one ends, and reads by epoch and source.

    By the thesis' model a policy that reorders waits for nothing: there are no ends.
    """
    if semantics.shared and (policy.preloads or not policy.reorders):
        told = traffic_of(scenario, policy, semantics, capacities, held)
        return _core.run_traffic(*told, tell)
    init = _init_seconds(scenario, policy, semantics, held) if policy.preloads else 0.0
    if policy.reorders:
        return init, None, _NO_READS
    ends, counts = _core.run_clock(*cluster_of(scenario, policy, semantics, held, init), tell)
    return init, ends, counts


def _init_seconds(
    scenario: Scenario, policy: Policy, semantics: Semantics, held: Holdings
) -> float:
    """Return how long the slowest node takes to fill its tiers, all nodes reading at once."""
    environment, whole = scenario.environment, float(scenario.sizes.sum())
    file_rate = environment.file_rate(environment.nodes)
    slowest = 0.0
    for parts in held:
        for number, (tier, records) in enumerate(zip(environment.tiers, parts, strict=False)):
            own = float(scenario.sizes[records].sum())
            seconds = _fill_seconds(environment, own, tier.threads, file_rate)
            if policy.copies and len(records):
                more = min(tier.capacity, whole) - own
                rate = environment.peer_rate(number + 1, divided=semantics.divided)
                seconds += _fill_seconds(environment, max(0.0, more), tier.threads, rate)
            slowest = max(slowest, seconds)
    return slowest


def _fill_seconds(environment: Environment, size: float, threads: int, rate: float) -> float:
    return size / threads * (1 / environment.preprocess + 1 / rate)


_NO_READS = np.empty((0, len(_core.SOURCES)), np.uint64)
