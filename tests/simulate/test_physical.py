"""Goal: with the semantics "physical", nothing in a cluster gives or holds more than it has.

Method: closed forms where one part alone holds all others back; a slow copy in Python, which moves
all transfers on from event to event, for what reads the file alone; laws of all policies, and the
core's own full check at every event, over clusters that hypothesis draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from lmdbio import _core
from lmdbio.planning.environment import AMOUNT_MAX
from lmdbio.simulate import (
    PHYSICAL,
    POLICIES,
    SCENARIOS,
    SOURCES,
    Curve,
    Data,
    Environment,
    Measured,
    Outcome,
    Policy,
    Scenario,
    Tier,
    Training,
    changed,
    run,
)
from lmdbio.simulate.cluster import capacities_of, holdings_of, traffic_of

CHECKED = replace(PHYSICAL, checks=True)
#: The thesis' text: each thread has all that its node gets of the file system.
UNSHARED = replace(PHYSICAL, shared=False)
#: A rate or a room that never holds anything back.
PLENTY = 1e12

SMALL = {
    number: replace(
        scenario,
        environment=replace(
            scenario.environment,
            tiers=tuple(
                replace(tier, capacity=tier.capacity * 2_000 / scenario.data.count)
                for tier in scenario.environment.tiers
            ),
        ),
        data=replace(scenario.data, count=2_000),
        training=Training(3, 100),
    )
    for number, scenario in SCENARIOS.items()
}


def cluster(nodes: int = 1, threads: int = 1, **changes: Any) -> Environment:
    """A cluster of which nothing holds anything back but what is changed."""
    plenty = Curve.of(PLENTY)
    given_ = {
        "compute": PLENTY,
        "preprocess": PLENTY,
        "network": PLENTY,
        "file_network": PLENTY,
        "file_system": plenty,
        "staging": Tier(PLENTY, threads, plenty),
        "tiers": (Tier(PLENTY, 1, plenty),),
    }
    return Environment(nodes, **{**given_, **changes})


def outcome(scenario: Scenario, policy: str | Policy, semantics: Any = CHECKED) -> Outcome:
    one = Policy.named(policy) if isinstance(policy, str) else policy
    (found,) = run(scenario, [one], semantics)
    assert found.seconds is not None
    return found


def file_bytes(found: Outcome, size: float) -> float:
    assert found.reads is not None
    return size * sum(epoch["file"] for epoch in found.reads)


# --- closed forms


def test_one_node_reads_prepares_and_computes_one_record_after_the_other() -> None:
    environment = cluster(file_system=Curve.of(20), preprocess=50, compute=100)
    scenario = Scenario(environment, Data(30, 2.0), Training(2, 3))
    found = outcome(scenario, "naive")
    assert found.seconds == pytest.approx(120 * (1 / 20 + 1 / 50 + 1 / 100), rel=1e-9)
    assert found.init_seconds == 0 and file_bytes(found, 2.0) == 120


def test_a_thread_that_reads_ahead_hides_what_is_quicker_than_itself() -> None:
    """All but the last record is computed with while the next one is read."""
    environment = cluster(file_system=Curve.of(20), preprocess=50, compute=100)
    scenario = Scenario(environment, Data(30, 2.0), Training(2, 3))
    expected = 120 * (1 / 20 + 1 / 50) + 2 / 100
    assert outcome(scenario, "staging_pool").seconds == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_of_a_node_share_what_the_file_system_gives_it(threads: int) -> None:
    environment = cluster(threads=threads, file_system=Curve.of(20))
    scenario = Scenario(environment, Data(30, 2.0), Training(2, 3))
    assert outcome(scenario, "staging_pool").seconds == pytest.approx(120 / 20, rel=1e-9)
    text = outcome(scenario, "staging_pool", UNSHARED).seconds
    assert text == pytest.approx(6 / threads, rel=1e-9), "there each thread has all of it"


@pytest.mark.parametrize("nodes", [1, 2, 4, 5])
def test_nodes_share_the_file_system_by_how_many_there_are(nodes: int) -> None:
    """Records of one size keep the nodes in step, so that all of them are clients, or none."""
    environment = cluster(nodes, file_system=Curve.of({1: 20, 2: 30, 4: 32}), compute=100)
    scenario = Scenario(environment, Data(nodes * 12, 2.0), Training(2, nodes * 3))
    rate = {1: 20, 2: 30, 4: 32, 5: 32}[nodes]
    expected = 48 * (nodes / rate + 1 / 100)
    assert outcome(scenario, "naive").seconds == pytest.approx(expected, rel=1e-9)


def test_a_link_holds_back_what_the_file_system_would_give() -> None:
    environment = cluster(3, threads=2, file_system=Curve.of(900), file_network=4)
    scenario = Scenario(environment, Data(60, 2.0), Training(1, 60))
    assert outcome(scenario, "staging_pool").seconds == pytest.approx(40 / 4, rel=1e-9)


@pytest.mark.parametrize("network", [5.0, 7.0])
def test_the_network_holds_back_what_comes_from_other_nodes(network: float) -> None:
    """Two nodes, each the only one that reads from the other; an epoch is one iteration."""
    environment = cluster(2, network=network, file_system=Curve.of(1_000))
    scenario = Scenario(environment, Data(40, 2.0), Training(1, 40))
    found = outcome(scenario, "deepio_ordered")
    peers = max(int(np.count_nonzero(row // 20 != i)) for i, row in enumerate(scenario.access))
    assert found.seconds is not None and peers
    assert found.seconds - found.init_seconds == pytest.approx(2 * peers / network, rel=1e-6)


def test_all_that_read_from_a_node_share_its_network() -> None:
    """Nodes 1 and 2 use what node 0 holds, half each; all else has hardly a byte."""
    environment = cluster(3, network=6)
    sizes = np.array([2.0] * 20 + [1e-6] * 40)
    scenario = Scenario(environment, Measured(sizes), Training(1, 60))
    rows = [np.arange(20, 40), np.r_[0:10, 40:50], np.r_[10:20, 50:60]]
    object.__setattr__(scenario, "access", np.array(rows, np.uint32))
    found = outcome(scenario, "lbann_preloading")
    assert found.reads == ({"own": 10, "peer": 50, "file": 0},)
    assert found.seconds == pytest.approx(found.init_seconds + 20 * 2.0 / 6, rel=1e-4)


def test_filling_tiers_takes_as_long_as_the_node_with_the_most_bytes() -> None:
    """A client's share is the same for any number of them; so the slowest node counts."""
    environment = cluster(3, file_system=Curve.of({1: 8, 3: 24}))
    scenario = Scenario(environment, Measured(np.repeat([1.0, 3.0, 2.0], 10)), Training(1, 3))
    for name in ("deepio_ordered", "deepio_opportunistic", "lbann_preloading", "locality_aware"):
        assert outcome(scenario, name).init_seconds == pytest.approx(30 / 8, rel=1e-9), name


def test_who_is_left_filling_has_the_file_system_for_itself() -> None:
    environment = cluster(3, file_system=Curve.of(12))
    scenario = Scenario(environment, Measured(np.repeat([1.0, 3.0, 2.0], 10)), Training(1, 3))
    assert outcome(scenario, "deepio_ordered").init_seconds == pytest.approx(60 / 12, rel=1e-9)


def test_a_tier_is_filled_no_faster_than_it_is_written() -> None:
    slow = Tier(PLENTY, 2, Curve.of(PLENTY), Curve.of({1: 3, 2: 4}))
    environment = cluster(2, file_system=Curve.of(100), tiers=(slow,))
    scenario = Scenario(environment, Data(40, 1.0), Training(1, 2))
    assert outcome(scenario, "deepio_ordered").init_seconds == pytest.approx(20 / 4, rel=1e-9)


def test_copies_of_other_nodes_pass_the_network() -> None:
    environment = cluster(4, file_system=Curve.of(40), network=5)
    scenario = Scenario(environment, Data(40, 1.0), Training(1, 4))
    found = outcome(scenario, "parallel_data_staging")
    assert found.init_seconds == pytest.approx(40 / 40 + 30 / 5, rel=1e-6)


def test_a_disk_slower_than_computing_holds_back_what_is_used_in_any_order() -> None:
    disk = Tier(PLENTY, 1, Curve.of(10))
    environment = cluster(2, file_system=Curve.of(100), compute=20, tiers=(disk,))
    scenario = Scenario(environment, Data(40, 1.0), Training(2, 4))
    found = outcome(scenario, "deepio_opportunistic")
    assert found.reads == ({"own": 40, "peer": 0, "file": 0},) * 2
    assert found.seconds == pytest.approx(found.init_seconds + 40 / 10 + 1 / 20, rel=1e-6)


def test_computing_alone_counts_where_memory_holds_all() -> None:
    environment = cluster(4, threads=2, compute=10)
    scenario = Scenario(environment, Data(400, 1.0, 0.2), Training(3, 40))
    bound = scenario.bound_ends()[-1]
    for policy in POLICIES:
        assert outcome(scenario, policy).seconds == pytest.approx(bound, rel=1e-9), policy.name


def test_what_was_read_once_is_written_into_the_tier_of_its_home() -> None:
    """One thread a node: it reads, writes over the network, and only then reads on."""
    environment = cluster(
        2,
        file_system=Curve.of(8),
        network=5,
        tiers=(Tier(PLENTY, 1, Curve.of(PLENTY), Curve.of(10)),),
    )
    scenario = Scenario(environment, Data(40, 2.0), Training(1, 40))
    away = [np.count_nonzero(row // 20 != i) for i, row in enumerate(scenario.access)]
    found = outcome(replace(scenario, training=Training(2, 40)), "lmdbio")
    assert found.reads is not None and found.stalls is not None
    assert found.reads[0] == {"own": 0, "peer": 0, "file": 40} and found.reads[1]["file"] == 0
    # In the first epoch a node reads 20 records at 4 to 8 M/s, writes n of them over the network
    # at 5 M/s, the others at 5 to 10 M/s. The second one begins when all are where they are to be.
    least = max(2 * (20 / 8 + n / 5 + (20 - n) / 10) for n in away)
    most = max(2 * (20 / 4 + n / 5 + (20 - n) / 5) for n in away)
    again = max(2 * n / 5 for n in away)
    assert found.seconds is not None
    assert least + again * 0.999 <= found.seconds <= most + again * 1.001


def test_an_epoch_begins_when_what_was_read_is_where_it_is_to_be() -> None:
    """Else threads that are free again would read from the file what is still on its way."""
    environment = cluster(2, threads=3, file_system=Curve.of(8), network=5)
    found = outcome(Scenario(environment, Data(4, 2.0), Training(3, 4)), "lmdbio")
    assert found.reads is not None
    assert [epoch["file"] for epoch in found.reads] == [4, 0, 0]


def test_what_is_used_in_any_order_comes_from_all_tiers_that_hold_it() -> None:
    memory, disk = Tier(10.0, 1, Curve.of(PLENTY)), Tier(PLENTY, 1, Curve.of(10))
    environment = cluster(2, file_system=Curve.of(100), tiers=(memory, disk))
    policy = Policy("both", "home", "all", preloads=True, reorders=True)
    found = outcome(Scenario(environment, Data(40, 1.0), Training(3, 4)), policy)
    assert found.seconds == pytest.approx(found.init_seconds + 3 * 10 / 10, rel=1e-6)


def test_a_read_that_a_peer_would_serve_sooner_is_stopped() -> None:
    """Node 1 holds all; node 0 has begun to read from the slow file system what it waits for."""
    environment = cluster(2, file_system=Curve.of({1: 10, 2: 20}), compute=12, network=1_000)
    environment = replace(environment, staging=Tier(0.0, 1, Curve.of(PLENTY)))
    scenario = Scenario(environment, Data(400, 1.0), Training(4, 20))
    asks = outcome(scenario, "hdmlp")
    never = outcome(scenario, replace(Policy.named("hdmlp"), on_demand=False))
    assert asks.reads is not None and never.reads is not None
    assert sum(epoch["peer"] for epoch in asks.reads) > 0
    assert sum(epoch["peer"] for epoch in never.reads) == 0
    assert asks.seconds is not None and never.seconds is not None
    assert asks.seconds < never.seconds
    assert all(sum(epoch.values()) == 400 for epoch in (*asks.reads, *never.reads))


# --- a slow copy in Python


@dataclass
class Thread:
    """One that reads a record, and prepares it."""

    node: int
    use: int = -1
    left: float = 0.0
    reads: bool = False


@dataclass
class Node:
    """A node: what it has staged, and how far it is."""

    sizes: list[float]
    following: int = 0
    use: int = 0
    busy_until: float | None = None
    staged: set[int] = field(default_factory=set)


def by_hand(scenario: Scenario) -> float:
    """Return how long a staging buffer without end takes: from one event to the next."""
    cluster_, batch = scenario.environment, scenario.training.batch
    own = batch // cluster_.nodes
    nodes = [Node(scenario.sizes[row].tolist()) for row in scenario.access]
    threads = [Thread(i) for i in range(cluster_.nodes) for _ in range(cluster_.staging.threads)]
    now, step = 0.0, 0
    while step < scenario.iterations:
        for one in threads:
            node = nodes[one.node]
            if one.use < 0 and node.following < len(node.sizes):
                one.use, one.left, one.reads = node.following, node.sizes[node.following], True
                node.following += 1
        for node in nodes:
            if node.busy_until is None and node.use in node.staged and node.use < own * (step + 1):
                node.busy_until = now + node.sizes[node.use] / cluster_.compute
        reading = [sum(t.reads for t in threads if t.node == i) for i in range(len(nodes))]
        clients = sum(map(bool, reading))
        share = cluster_.file_rate(clients) if clients else 0.0
        rates = [share / reading[t.node] if t.reads else cluster_.staging_rate for t in threads]
        ends = [t.left / rate for t, rate in zip(threads, rates, strict=True) if t.use >= 0]
        ends += [node.busy_until - now for node in nodes if node.busy_until is not None]
        after = max(0.0, min(ends))
        for one, rate in zip(threads, rates, strict=True):
            if one.use >= 0:
                one.left -= rate * after
                if one.left <= 1e-12 and one.reads:
                    one.left, one.reads = nodes[one.node].sizes[one.use], False
                elif one.left <= 1e-12:
                    nodes[one.node].staged.add(one.use)
                    one.use = -1
        now += after
        for node in nodes:
            if node.busy_until is not None and node.busy_until <= now + 1e-12:
                node.busy_until, node.use = None, node.use + 1
        step += all(node.use == own * (step + 1) for node in nodes)
    return now


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(0, 99),
    st.sampled_from([{1: 10.0}, {1: 10.0, 2: 25.0, 4: 30.0}, {1: 30.0, 2: 20.0}]),
    st.sampled_from([4.0, 12.0, 900.0]), st.sampled_from([3.0, 30.0, 900.0]),
)  # fmt: skip
def test_reading_ahead_is_what_the_slow_copy_says(
    nodes: int,
    threads: int,
    own: int,
    seed: int,
    file_system: dict[int, float],
    link: float,
    compute: float,
) -> None:
    environment = cluster(
        nodes,
        threads,
        file_system=Curve.of(file_system),
        file_network=link,
        compute=compute,
        preprocess=40,
    )
    data = Data(nodes * own * 5, 1.0, 0.4)
    scenario = Scenario(environment, data, Training(2, nodes * own), seed)
    assert outcome(scenario, "staging_pool").seconds == pytest.approx(by_hand(scenario), rel=1e-7)


# --- laws


def rates(*values: float) -> st.SearchStrategy[Curve]:
    points = st.dictionaries(st.integers(1, 9), st.sampled_from(values), min_size=1, max_size=3)
    return st.builds(Curve.of, points)


tiers = st.builds(
    Tier,
    st.sampled_from([0.0, 2.5, 9.0, 40.0, 1e6]),
    st.integers(1, 3),
    rates(5, 86, 20_000),
    st.none() | rates(4, 60, 20_000),
)
environments = st.builds(
    Environment,
    st.integers(1, 5),
    compute=st.sampled_from([10, 100, 1e5]),
    preprocess=st.sampled_from([30, 200, 1e6]),
    network=st.sampled_from([7, 100, 10_000]),
    file_network=st.sampled_from([9, 50, 2_000]),
    file_system=rates(10, 66, 146, 5_000),
    staging=st.builds(
        Tier, st.sampled_from([0.0, 2.5, 6.0, 1e6]), st.integers(1, 3), rates(50, 20_000)
    ),
    tiers=st.lists(tiers, max_size=3).map(tuple),
)
scenarios = st.builds(
    lambda environment, own, steps, epochs, spread, seed: Scenario(
        environment,
        Data(environment.nodes * own * steps + environment.nodes - 1, 1.0, spread),
        Training(epochs, environment.nodes * own),
        seed,
    ),
    environments, st.integers(1, 5), st.integers(1, 4), st.integers(1, 3),
    st.sampled_from([0.0, 0.3]), st.integers(0, 99),
)  # fmt: skip
sources = st.sets(st.sampled_from(["own", "peer", "file"])).map(tuple)
policies = st.sampled_from(POLICIES) | st.builds(
    Policy,
    st.just("drawn"),
    st.sampled_from(["none", "home", "first", "frequency"]),
    st.sampled_from(["none", "memory", "disk", "all", "either"]),
    preloads=st.booleans(),
    keeps_staged=st.booleans(),
    stages=sources,
    on_demand=st.booleans(),
    reorders=st.booleans(),
    copies=st.booleans(),
    fits=st.just(False),
)


def check_laws(scenario: Scenario, found: Outcome, policy: Policy) -> None:
    environment, bound = scenario.environment, scenario.bound_ends()[-1]
    assert found.seconds is not None
    assert found.seconds >= bound * (1 - 1e-9) + found.init_seconds * (1 - 1e-9)
    assert found.seconds == pytest.approx(found.init_seconds + found.stall_seconds + bound)
    if found.reads is None:
        assert policy.reorders and not policy.preloads
        return
    uses = scenario.epoch_iterations * scenario.training.batch
    assert len(found.reads) == scenario.training.epochs
    assert all(sum(epoch.values()) == uses for epoch in found.reads), "each use has one source"
    highest = max(environment.file_system.at(n) for n in range(1, environment.nodes + 1))
    from_file = file_bytes(found, float(scenario.sizes.min()))
    assert found.seconds >= from_file / highest * (1 - 1e-9)


@settings(max_examples=150, deadline=None)
@given(scenarios, policies)
def test_nothing_gives_or_holds_more_than_it_has(scenario: Scenario, policy: Policy) -> None:
    """The core holds all parts, tiers and buffers against what they have, at each event."""
    (found,) = run(scenario, [policy], CHECKED)
    if found.seconds is None:
        assert found.reason
        return
    check_laws(scenario, found, policy)


@settings(max_examples=30, deadline=None)
@given(scenarios)
def test_what_a_node_holds_is_read_no_faster_than_its_tier_and_its_network_are(
    scenario: Scenario,
) -> None:
    policy, environment = Policy.named("lbann_preloading"), scenario.environment
    (found,) = run(scenario, [policy], CHECKED)
    if found.seconds is None or found.reads is None:
        return
    capacities = capacities_of(environment, policy, CHECKED)
    held = holdings_of(scenario, policy, capacities)
    users = environment.nodes * environment.staging.threads + environment.nodes
    seconds = found.seconds - found.init_seconds
    if any(epoch["file"] for epoch in found.reads):
        return  # by its predictions the file system is quicker
    for number, parts in enumerate(held):
        for tier, records in zip(environment.tiers, parts, strict=True):
            uses = [np.isin(row, records) for row in scenario.access]
            all_bytes = [
                float(scenario.sizes[row[used]].sum())
                for row, used in zip(scenario.access, uses, strict=True)
            ]
            highest = max(tier.reads.at(n) for n in range(1, users + 1))
            assert seconds >= sum(all_bytes) / highest * (1 - 1e-9)
            away = sum(all_bytes) - all_bytes[number]
            assert seconds >= away / environment.network * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(scenarios)
def test_sources_are_those_that_the_plan_of_a_job_would_choose(scenario: Scenario) -> None:
    """Where tiers are filled before: what takes least by equations 3.5 to 3.7, nearer first."""
    policy, environment = Policy.named("locality_aware"), scenario.environment
    (found,) = run(scenario, [policy], CHECKED)
    if found.reads is None:
        return
    held = holdings_of(scenario, policy, capacities_of(environment, policy, CHECKED))
    tier_of = np.full((environment.nodes, scenario.data.count), -1)
    for number, parts in enumerate(held):
        for tier, records in enumerate(parts):
            tier_of[number, records] = tier
    tiers, file = range(1, len(environment.tiers) + 1), environment.file_rate(environment.nodes)
    # -1 picks the last one: a tier that nobody has.
    own = np.array([*(environment.own_rate(tier) for tier in tiers), 0.0])
    peer = np.array([*(environment.peer_rate(tier) for tier in tiers), 0.0])
    chosen = []
    for i, row in enumerate(scenario.access):
        others = np.delete(tier_of, i, axis=0).max(axis=0, initial=-1)[row]
        rates = own[tier_of[i, row]], peer[others], np.full(len(row), file)
        chosen.append(np.stack(rates).argmax(axis=0))
    by_epoch = np.concatenate(
        [row.reshape(scenario.training.epochs, -1) for row in chosen], axis=1
    )
    expected = [np.bincount(row, minlength=len(SOURCES)).tolist() for row in by_epoch]
    assert [list(epoch.values()) for epoch in found.reads] == expected


@pytest.mark.parametrize("number", SMALL)
def test_all_policies_run_in_all_scenarios(number: int) -> None:
    scenario = SMALL[number]
    first = list(run(scenario, POLICIES, PHYSICAL))
    for one, policy in zip(first, POLICIES, strict=True):
        if one.seconds is None:
            assert policy.fits and number > 2
            continue
        check_laws(scenario, one, policy)


def test_a_run_is_the_same_each_time() -> None:
    for policy in POLICIES:
        once, again = (outcome(SMALL[2], policy, PHYSICAL) for _ in range(2))
        assert once == again and np.array_equal(once.stalls, again.stalls), policy.name


def test_checking_changes_nothing() -> None:
    scenario = replace(SMALL[2], data=Data(200, 1.0, 0.3), training=Training(2, 20))
    for policy in POLICIES:
        assert outcome(scenario, policy) == outcome(scenario, policy, PHYSICAL), policy.name


def test_counts_are_those_of_the_clock_where_the_schedule_says_what_is_held() -> None:
    for policy in POLICIES:
        if policy.name == "hdmlp" or policy.reorders:
            continue
        found, told = (outcome(SMALL[2], policy, one) for one in (PHYSICAL, UNSHARED))
        assert found.reads == told.reads, policy.name


def test_more_of_anything_is_never_slower_for_what_reads_one_record_after_the_other() -> None:
    base = outcome(SMALL[1], "naive", PHYSICAL).seconds
    for key, value in (("file_network", 1e5), ("preprocess", 1e5), ("compute", 1e5)):
        assert base is not None
        assert outcome(changed(SMALL[1], key, value), "naive", PHYSICAL).seconds <= base, key


# --- failures, progress


def test_a_tier_that_holds_too_much_is_reported_with_its_node_and_the_time() -> None:
    """The core is told of less room than the records take that it is to hold."""
    policy = Policy.named("deepio_ordered")
    scenario = Scenario(cluster(2, file_system=Curve.of(10)), Data(20, 1.0), Training(1, 2))
    capacities = capacities_of(scenario.environment, policy, PHYSICAL)
    held = holdings_of(scenario, policy, capacities)
    numbers, arrays, shares = traffic_of(scenario, policy, PHYSICAL, capacities, held)
    arrays["capacities"] = np.array([7.5])
    with pytest.raises(RuntimeError, match=r"at 1\.4 s a tier of node 0 holds more than"):
        _core.run_traffic(numbers, arrays, shares)


def test_progress_is_told_up_to_the_last_iteration() -> None:
    told: list[tuple[int, int, str]] = []
    scenario = replace(SCENARIOS[1], training=Training(10, 100))
    policy = Policy.named("lmdbio")
    list(run(scenario, [policy], PHYSICAL, lambda *one: told.append(one)))
    assert told[-1] == (1_000, 1_000, "lmdbio") and len(told) > 1
    assert all(a[0] <= b[0] for a, b in pairwise(told))


def test_amounts_at_the_edge_are_simulated() -> None:
    environment = cluster(2, file_system=Curve.of(AMOUNT_MAX), network=1e-6, file_network=1e-6)
    scenario = Scenario(environment, Data(4, 1.0), Training(1, 4))
    assert outcome(scenario, "staging_pool").seconds == pytest.approx(2e6)


def test_copies_fill_the_room_that_own_parts_leave() -> None:
    """Each node reads half of all from the file system, then takes what its peer has."""
    environment = cluster(
        2, file_system=Curve.of(8), network=5, tiers=(Tier(1_000.0, 1, Curve.of(PLENTY)),)
    )
    scenario = Scenario(environment, Data(200, 1.0), Training(1, 20))
    found = outcome(scenario, "parallel_data_staging")
    assert found.init_seconds == pytest.approx(100 / 4 + 100 / 5)
    half = replace(environment, tiers=(Tier(150.0, 1, Curve.of(PLENTY)),))
    found = outcome(replace(scenario, environment=half), "parallel_data_staging")
    assert found.init_seconds == pytest.approx(100 / 4 + 50 / 5)
