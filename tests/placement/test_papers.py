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

from lmdbio.placement.homes import bounds
from lmdbio.placement.owners import (
    NodeUses,
    frequency_by_node as frequency,
    home_by_node as home,
)
from lmdbio.planning.order import Epoch
from tests.support import long_run


def uses(count: int, epochs: int) -> list[int]:
    """Records that the only node uses, one epoch after the other."""
    orders = [Epoch(count, 7, number).samples(np.arange(count)) for number in range(epochs)]
    return np.concatenate(orders).tolist()


def next_use(access: list[int], capacity: int) -> list[bool]:
    """Whether each use finds its record where what is used again soonest is held (Belady's MIN).

    Source: Belady, A Study of Replacement Algorithms for a Virtual-Storage Computer (1966).
    """
    never, held, found = len(access), dict[int, int](), []
    later = dict.fromkeys(access, never)
    following = []
    for use in range(never - 1, -1, -1):
        following.append(later[access[use]])
        later[access[use]] = use
    for record, after in zip(access, following[::-1], strict=True):
        found.append(held.pop(record, None) is not None)
        if after < never:
            held[record] = after
        if len(held) > capacity:
            del held[max(held, key=held.__getitem__)]
    return found


@pytest.mark.parametrize("capacity", [0, 1, 7, 50, 99, 100, 101])
def test_belady_s_choice_over_permutation_epochs_reads_just_what_home_reads(capacity: int) -> None:
    """In each epoch but the first one all but the capacity: static parts are as good as any."""
    count, epochs = 100, 6
    found = np.reshape(next_use(uses(count, epochs), capacity), (epochs, count))
    held = sum(
        len(part)
        for part in home(NodeUses(np.empty((1, 0), np.uint32), 1, np.ones(count)), [capacity])[0]
    )
    assert held == min(capacity, count)
    assert found.sum(axis=1).tolist() == [0] + [held] * (epochs - 1)


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 70))
def test_what_is_read_an_epoch_is_that_of_home_for_all_counts(
    count: int, epochs: int, capacity: int
) -> None:
    read = count * epochs - sum(next_use(uses(count, epochs), capacity))
    assert read == count + (epochs - 1) * (count - min(capacity, count))


@given(st.integers(0, 10**7), st.lists(st.integers(0, 10**6), min_size=1, max_size=9))
def test_parts_fit_their_rooms_and_cover_the_file_from_its_start(
    grains: int, capacities: list[int]
) -> None:
    ends = bounds(grains, capacities)
    parts = np.diff(ends)
    assert ends[0] == 0 and np.all(parts >= 0) and np.all(parts <= capacities)
    assert ends[-1] == min(grains, sum(capacities))


def test_parts_of_nodes_with_room_to_spare_are_even() -> None:
    assert np.diff(bounds(100, [1 << 30] * 4)).tolist() == [25] * 4
    assert np.diff(bounds(90, [100, 200])).tolist() == [30, 60], "by their rooms"


def test_a_node_without_room_has_no_part() -> None:
    assert bounds(100, [20, 0, 30]).tolist() == [0, 20, 20, 50]


@settings(max_examples=long_run.cases(100), deadline=None)
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
    held = frequency(NodeUses(table, epochs, sizes), capacities)
    for node, row in enumerate(table.tolist()):
        most_used = sorted(set(row), key=lambda record: (-row.count(record), record))
        for tier, room in enumerate(capacities):
            taken = []
            while most_used and sum(sizes[i] for i in [*taken, most_used[0]]) <= room:
                taken.append(most_used.pop(0))
            assert held[node][tier].tolist() == sorted(taken, key=row.index)
