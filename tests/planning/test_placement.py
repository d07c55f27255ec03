"""Goal: each node holds what its tiers have room for, all compute the same, and clairvoyance gains
just what can be gained.

Method: small cases by hand, random ones against the definition; Belady's MIN over permutation
epochs against home, for many counts and capacities.
"""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from lmdbio.planning.order import Epoch
from lmdbio.planning.placement import bounds, frequency, home, next_use


def uses(count: int, epochs: int, node: int = 0, nodes: int = 1) -> np.ndarray:
    """Records that a node uses, one epoch after the other."""
    places = np.arange(node * count // nodes, (node + 1) * count // nodes)
    orders = [Epoch(count, 7, number).samples(places) for number in range(epochs)]
    return np.concatenate(orders).astype(np.uint32)


@pytest.mark.parametrize("capacity", [0, 1, 7, 50, 99, 100, 101])
def test_belady_s_choice_over_permutation_epochs_reads_just_what_home_reads(capacity: int) -> None:
    """In each epoch but the first one all but the capacity: static parts are as good as any."""
    count, epochs = 100, 6
    found = next_use(uses(count, epochs), np.ones(count), capacity).reshape(epochs, count)
    held = sum(len(part) for part in home(np.ones(count), 1, [capacity])[0])
    assert held == min(capacity, count)
    assert found.sum(axis=1).tolist() == [0] + [held] * (epochs - 1)


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 70))
def test_what_is_read_an_epoch_is_that_of_home_for_all_counts(
    count: int, epochs: int, capacity: int
) -> None:
    found = next_use(uses(count, epochs), np.ones(count), capacity)
    read = count * epochs - int(found.sum())
    assert read == count + (epochs - 1) * (count - min(capacity, count))


def best_by_trying(access: list[int], capacity: int) -> int:
    """The most uses that can find their record, by every choice of what is kept."""
    states = {frozenset[int](): 0}
    for record in access:
        found: dict[frozenset[int], int] = {}
        for held, hits in states.items():
            hits += record in held
            for left in (held - {record}, held | {record}):
                options = [left] if len(left) <= capacity else [left - {x} for x in left]
                for option in options:
                    found[option] = max(found.get(option, 0), hits)
        states = found
    return max(states.values())


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(0, 3))
def test_no_other_choice_finds_more_records(access: list[int], capacity: int) -> None:
    found = next_use(np.array(access, np.uint32), np.ones(5), capacity)
    assert int(found.sum()) == best_by_trying(access, capacity)


def test_one_node_of_several_finds_more_by_next_use_than_by_frequency() -> None:
    count, epochs, nodes = 4000, 20, 4
    access = uses(count, epochs, 1, nodes)
    capacity = count // 8
    (held,) = frequency(access[None], np.ones(count), [capacity])
    by_frequency = np.isin(access, held[0]).mean()
    assert next_use(access, np.ones(count), capacity).mean() > 1.5 * by_frequency


def test_sizes_count_and_what_is_larger_than_the_room_is_never_held() -> None:
    sizes = np.array([1.0, 2.0, 9.0])
    access = np.array([2, 0, 1, 2, 0, 1], np.uint32)
    assert next_use(access, sizes, 3).tolist() == [False, False, False, False, True, True]
    assert next_use(access, sizes, 2).tolist() == [False, False, False, False, True, False]


@given(
    st.integers(0, 10**7),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=9),
    st.sampled_from([1, 4096, 1 << 16]),
)
def test_parts_fit_their_rooms_and_cover_the_file_from_its_start(
    size: int, capacities: list[int], alignment: int
) -> None:
    ends = bounds(size, capacities, alignment)
    parts = np.diff(ends)
    assert ends[0] == 0 and np.all(parts >= 0) and np.all(parts <= capacities)
    rooms = sum(capacity // alignment * alignment for capacity in capacities)
    assert ends[-1] == min(size, rooms)
    assert np.all((ends % alignment == 0) | (ends == size))


def test_parts_of_nodes_with_room_to_spare_are_even() -> None:
    assert np.diff(bounds(100 << 20, [1 << 30] * 4, 1 << 20)).tolist() == [25 << 20] * 4
    assert np.diff(bounds(90, [100, 200], 1)).tolist() == [30, 60], "by their rooms"


def test_a_node_without_room_has_no_part() -> None:
    assert bounds(100, [20, 0, 30], 10).tolist() == [0, 20, 20, 50]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 40),
    st.integers(1, 6),
    st.lists(st.integers(0, 60), min_size=1, max_size=3),
    st.integers(0, 10**6),
)
def test_hdmlp_s_placement_is_the_rule_of_the_thesis(
    nodes: int, count: int, epochs: int, capacities: list[int], seed: int
) -> None:
    """Most used first, split where a tier is full, each tier fetched in the order of first use."""
    chance = np.random.default_rng(seed)
    sizes = chance.integers(1, 9, count).astype(np.float64)
    epochs_of = [chance.permutation(count) for _ in range(epochs)]
    # Node n uses each nodes-th record of every epoch, from the n-th on.
    access = [np.concatenate([one[node::nodes] for one in epochs_of]) for node in range(nodes)]
    least = min(map(len, access))
    table = np.array([row[:least] for row in access], np.uint32)
    held = frequency(table, sizes, capacities)
    for node, row in enumerate(table.tolist()):
        most_used = sorted(set(row), key=lambda record: (-row.count(record), record))
        for tier, room in enumerate(capacities):
            taken = []
            while most_used and sum(sizes[i] for i in [*taken, most_used[0]]) <= room:
                taken.append(most_used.pop(0))
            assert held[node][tier].tolist() == sorted(taken, key=row.index)
