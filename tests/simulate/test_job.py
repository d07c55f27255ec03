"""Goal: the clock does what the model says, for every policy and shape of cluster.

Method: the two policies that hold nothing against a few lines of Python; laws of all others (no
record is read twice or not at all, nobody beats the bound, more room never hurts the counts) over
shapes that hypothesis draws. The figures of the thesis are in tests/papers.
"""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from lmdbio import _core
from lmdbio.placement import owners
from lmdbio.placement.owners import NodeUses
from lmdbio.planning.reads import PlanOptions
from lmdbio.simulate import (
    POLICIES,
    SCENARIOS,
    Curve,
    Data,
    Located,
    Outcome,
    Policy,
    Scenario,
    Tier,
    Training,
    changed,
    run,
)
from tests.support import long_run

SMALL = replace(SCENARIOS[1], data=Data(2_000, 1.0, 0.3), training=Training(3, 40))


def outcome(scenario: Scenario, name: str, *, all_are_clients: bool = False) -> Outcome:
    (found,) = run(scenario, [Policy.named(name)], all_are_clients=all_are_clients)
    return found


def by_hand(scenario: Scenario, *, ahead: bool) -> float:
    """Naive reading, or a staging buffer that never fills, record by record."""
    node, sizes = scenario.environment, scenario.sizes
    access = scenario.access.reshape(node.nodes, scenario.iterations, -1)
    asked = [-1.0] * node.nodes
    threads = [[0.0] * node.staging.threads for _ in range(node.nodes)]
    staged = [
        stage_by_hand(scenario, row.ravel(), asked, i, threads[i]) if ahead else []
        for i, row in enumerate(access)
    ]
    start = 0.0
    for step in range(scenario.iterations):
        ends = []
        for i in range(node.nodes):
            now = start
            for at, record in enumerate(access[i, step]):
                if ahead:
                    now = max(now, staged[i][step * access.shape[2] + at])
                else:
                    begun = now
                    now += read_seconds(scenario, asked, i, begun, sizes[record])
                    asked[i] = begun
                now += sizes[record] / node.compute
            ends.append(now)
        start = max(ends)
    return start


def stage_by_hand(
    scenario: Scenario, records: np.ndarray, asked: list[float], i: int, threads: list[float]
) -> list[float]:
    staged = []
    for number, record in enumerate(records):
        thread = number % len(threads)
        begun = threads[thread]
        threads[thread] += read_seconds(scenario, asked, i, begun, scenario.sizes[record])
        asked[i] = max(asked[i], begun)
        staged.append(threads[thread])
    return staged


def read_seconds(scenario: Scenario, asked: list[float], i: int, now: float, size: float) -> float:
    clients = 1 + sum(other >= now for j, other in enumerate(asked) if j != i)
    return (
        size / scenario.environment.file_rate(clients) + size / scenario.environment.staging_rate
    )


def test_naive_reading_is_what_a_few_lines_say() -> None:
    assert outcome(SMALL, "naive").seconds == pytest.approx(by_hand(SMALL, ahead=False))


def test_a_staging_buffer_is_what_a_few_lines_say() -> None:
    large = replace(SMALL.environment, staging=replace(SMALL.environment.staging, capacity=1e9))
    scenario = replace(SMALL, environment=large)
    assert outcome(scenario, "staging_pool").seconds == pytest.approx(
        by_hand(scenario, ahead=True)
    )


shapes = st.builds(
    lambda nodes, own, steps, epochs, memory, disk, buffer, threads, seed: Scenario(
        replace(
            SCENARIOS[1].environment,
            nodes=nodes,
            staging=Tier(buffer, threads, Curve.of(20_000)),
            tiers=(Tier(memory, threads, Curve.of(20_000)), Tier(disk, 1, Curve.of(86))),
        ),
        Data(nodes * own * steps + nodes - 1, 1.0, 0.2),
        Training(epochs, nodes * own),
        seed,
    ),
    st.integers(1, 6), st.integers(1, 9), st.integers(1, 6), st.integers(1, 3),
    st.sampled_from([0.0, 3.5, 40.0, 1e6]), st.sampled_from([0.0, 7.0, 1e6]),
    st.sampled_from([0.0, 2.5, 1e6]), st.integers(1, 3), st.integers(0, 99),
)  # fmt: skip


@settings(max_examples=long_run.cases(60), deadline=None)
@given(shapes, st.booleans())
def test_every_use_is_read_once_and_nobody_beats_the_bound(
    scenario: Scenario, all_are_clients: bool
) -> None:
    every = run(scenario, POLICIES, all_are_clients=all_are_clients)
    found = {one.policy: one for one in every}
    bound = scenario.bound_ends()[-1]
    uses = scenario.epoch_iterations * scenario.training.batch
    for name, one in found.items():
        if one.seconds is None:
            assert one.reason and Policy.named(name).placement in ("home", "first")
            continue
        assert one.seconds >= bound * (1 - 1e-12) and one.stall_seconds >= 0
        assert one.seconds == pytest.approx(one.init_seconds + one.stall_seconds + bound)
        if one.reads is None:
            assert Policy.named(name).reorders
            continue
        assert len(one.reads) == scenario.training.epochs
        for epoch in one.reads:
            # A record counts with both, if a node asks for it before it has come by itself.
            assert sum(epoch.values()) >= uses
            assert sum(epoch.values()) == uses or name == "hdmlp"
    assert found["lower_bound"].seconds == pytest.approx(bound)
    assert (
        found["naive"].reads == ({"own": 0, "peer": 0, "file": uses},) * scenario.training.epochs
    )


def test_what_all_nodes_hold_is_read_from_no_file_again() -> None:
    for name in ("lbann_dynamic", "lbann_preloading", "deepio_ordered", "locality_aware"):
        reads = outcome(SMALL, name).reads
        assert reads is not None and all(not epoch["file"] for epoch in reads[1:]), name
    dynamic = outcome(SMALL, "lbann_dynamic")
    assert dynamic.reads is not None and dynamic.reads[0]["file"] == 2_000
    assert dynamic.init_seconds == 0 < outcome(SMALL, "lbann_preloading").init_seconds


def test_what_memory_cannot_hold_is_refused_with_a_reason() -> None:
    small = Tier(400.0, 2, Curve.of(20_000))
    scenario = replace(SMALL, environment=replace(SMALL.environment, tiers=(small,)))
    found = outcome(scenario, "lbann_dynamic")
    assert found.seconds is None and "exceed the 1,600 M of all nodes" in (found.reason or "")
    none = replace(SMALL, environment=replace(SMALL.environment, tiers=()))
    for name in ("lbann_preloading", "deepio_opportunistic", "parallel_data_staging"):
        assert "no tier has room" in (outcome(none, name).reason or ""), name
    alone = replace(SMALL, environment=changed(SMALL, "tier2.capacity", 0).environment)
    assert outcome(alone, "locality_aware").init_seconds > 0, "memory is the last tier with room"
    assert outcome(none, "hdmlp").seconds == outcome(none, "staging_pool").seconds


def test_naive_reading_takes_longer_where_all_are_clients_at_any_moment() -> None:
    assert outcome(SMALL, "naive", all_are_clients=True).seconds > outcome(SMALL, "naive").seconds


@pytest.mark.parametrize(
    ("data", "training", "words"),
    [
        (Data(100, 1.0), Training(1, 30), "30 records cannot be shared evenly by 4"),
        (Data(100, 1.0), Training(1, 0), "cannot be shared"),
        (Data(10, 1.0), Training(1, 20), "10 records make no batch"),
        (Data(100, 1.0), Training(0, 20), "at least 1 epoch"),
    ],
)
def test_what_cannot_be_trained_is_refused(data: Data, training: Training, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        outcome(replace(SMALL, data=data, training=training), "naive")


def test_sizes_follow_their_distribution_and_are_positive() -> None:
    sizes = Data(20_000, 0.027, 0.01).sizes(1)
    assert sizes.mean() == pytest.approx(0.027, rel=0.005)
    assert sizes.std() == pytest.approx(0.01, rel=0.02) and sizes.min() > 0
    assert not np.array_equal(sizes, Data(20_000, 0.027, 0.01).sizes(2))


@given(st.integers(1, 5), st.integers(1, 60), st.integers(1, 4), st.integers(0, 9))
def test_frequency_holds_what_is_used_most(
    nodes: int, count: int, epochs: int, capacity: int
) -> None:
    """Against a few lines: most used first, ties by number, fetched by first use."""
    chance = np.random.default_rng(count)
    access = chance.integers(0, count, (nodes, 5 * epochs)).astype(np.uint32)
    held = owners.frequency_by_node(NodeUses(access, epochs, np.ones(count)), [capacity, 3.0])
    for row, parts in zip(access.tolist(), held, strict=True):
        ranked = sorted(set(row), key=lambda record: (-row.count(record), record))
        first, second = ranked[:capacity], ranked[capacity : capacity + 3]
        assert parts[0].tolist() == sorted(first, key=row.index)
        assert parts[1].tolist() == sorted(second, key=row.index)


def test_home_gives_each_node_its_part_and_first_what_it_used() -> None:
    nobody = np.empty((3, 0), np.uint32)
    held = owners.home_by_node(NodeUses(nobody, 1, np.ones(10)), [2.0, 1.5])
    assert [[part.tolist() for part in parts] for parts in held] == [
        [[0, 1], [2]], [[3, 4], [5]], [[6, 7], [8]],
    ]  # fmt: skip
    first = owners.first_by_node(NodeUses(np.array([[4, 1, 3]], np.uint32), 1, np.ones(5)), [2.0])
    assert first[0][0].tolist() == [4, 1]


@pytest.mark.parametrize("size", [1.0, 0.7, 0.1])
def test_a_buffer_of_three_records_holds_three_whatever_their_size(size: float) -> None:
    """Sums of 0.1 are off by a little, which must not cost a place."""
    environment = replace(
        SMALL.environment,
        nodes=1,
        compute=100 * size,
        preprocess=200 * size,
        file_network=2_000 * size,
        file_system=Curve.of(66 * size),
        staging=Tier(3 * size, 2, Curve.of(20_000 * size)),
    )
    scenario = Scenario(environment, Data(1_000, size), Training(2, 20))
    assert outcome(scenario, "staging_pool").seconds == pytest.approx(20.17, abs=0.01)
    nobody = np.empty((1, 0), np.uint32)
    assert len(owners.home_by_node(NodeUses(nobody, 1, np.full(3, size)), [3 * size])[0][0]) == 3


def test_records_without_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="have no bytes"):
        empty = Located(np.zeros(100, _core.EXTENT), 0, PlanOptions())
        outcome(replace(SMALL, data=empty), "naive")


def test_records_that_are_drawn_lie_one_after_the_other_and_have_their_sizes() -> None:
    data = Data(1_000, 0.5, 0.1)
    found = data.located(3)
    extents, mib = found.extents, 1 << 20
    assert extents["length"] / mib == pytest.approx(data.sizes(3), abs=1 / mib)
    ends = extents["offset"] + extents["length"]
    assert extents["offset"].tolist() == [0, *ends[:-1].tolist()] and ends[-1] == found.used_bytes
    assert found.sizes(3) == pytest.approx(data.sizes(3), abs=1 / mib)
    assert found.located(4) is found


def test_too_much_to_simulate_is_refused() -> None:
    with pytest.raises(ValueError, match="more than can be simulated"):
        outcome(replace(SMALL, training=Training(10**9, 40)), "naive")
