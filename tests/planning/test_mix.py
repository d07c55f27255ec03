"""The order of a mix: shares that are exact at every place, and sets that go round by themselves.

Goal: what comes at a place is a function of seed and place alone; each set has come as often as
its share to within less than one; of each set every sample comes once before any comes again.

Method: hypothesis over counts, weights, sizes and seeds; all places of several periods, counted;
one digest written down.
"""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio.planning.mix import PERIOD_MAX, MixOrder, whole_weights
from tests.support import long_run

WEIGHTS = st.lists(st.integers(1, 60), min_size=1, max_size=9)


def assert_within_one(sets: np.ndarray, weights: tuple[int, ...]) -> None:
    """Assert that after each place no set's count is one or more from its share."""
    total = sum(weights)
    places = np.arange(1, len(sets) + 1)
    for number, weight in enumerate(weights):
        counts = np.cumsum(sets == number)
        assert (np.abs(counts * total - places * weight) < total).all(), (number, weights)


@settings(max_examples=long_run.cases(200))
@given(WEIGHTS)
def test_each_set_has_come_as_often_as_its_share(weights: list[int]) -> None:
    order = MixOrder((7,) * len(weights), tuple(weights), 100, 1)
    sets, _ = order.find(np.arange(3 * sum(weights)))
    assert_within_one(sets, tuple(weights))


@pytest.mark.parametrize(
    "weights",
    [(1,), (1, PERIOD_MAX - 1), (PERIOD_MAX - 1, 1), (1,) * 3000, (30000, 30000, 5536),
     whole_weights([1281167, 50000, 118287, 7, 2_500_000])],
    ids=str,
)  # fmt: skip
def test_so_it_has_where_weights_are_large_or_many(weights: tuple[int, ...]) -> None:
    order = MixOrder((7,) * len(weights), weights, 100, 1)
    sets, _ = order.find(np.arange(sum(weights) + 100))
    if len(weights) < 100:
        assert_within_one(sets, weights)
    else:
        assert (np.bincount(sets[: len(weights)]) == 1).all()


@settings(max_examples=long_run.cases(100))
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=5),
    st.one_of(st.none(), st.integers(-(2**80), 2**80)),
    st.integers(1, 200),
)
def test_each_set_goes_round_by_itself(
    sets_given: list[tuple[int, int]], seed: int | None, size: int
) -> None:
    counts, weights = zip(*sets_given, strict=True)
    order = MixOrder(counts, weights, size, seed)
    sets, samples = order.find(np.arange(600))
    rounds = []
    for number, count in enumerate(counts):
        mine = samples[sets == number]
        for at in range(0, len(mine) - count + 1, count):
            assert sorted(mine[at : at + count].tolist()) == list(range(count))
            rounds.append((number, tuple(mine[at : at + count].tolist())))
        rest = mine[len(mine) // count * count :]
        assert len(set(rest.tolist())) == len(rest)
    if seed is None:
        assert all(one == tuple(range(counts[number])) for number, one in rounds)


@given(st.integers(0, 2**40), st.integers(-5, 5))
def test_a_place_alone_says_what_comes(start: int, seed: int) -> None:
    order = MixOrder((1000, 37, 3), whole_weights([0.6, 0.3, 0.1]), 500, seed)
    places = start + np.arange(60)
    sets, samples = order.find(places)
    shuffled = np.random.default_rng(start).permutation(60)
    again = MixOrder((1000, 37, 3), (6, 3, 1), 500, seed).find(places[shuffled])
    assert np.array_equal(again[0], sets[shuffled])
    assert np.array_equal(again[1], samples[shuffled])
    one = [order.find([place]) for place in places.tolist()]
    assert [int(number[0]) for number, _ in one] == sets.tolist()
    assert [int(sample[0]) for _, sample in one] == samples.tolist()


def test_epochs_follow_one_another_without_a_break() -> None:
    order = MixOrder((10, 4), (2, 1), 7, 3)
    whole = order.find(np.arange(70))
    parts = [order.find(order.epoch(number).samples(np.arange(7))) for number in range(10)]
    for side in range(2):
        assert np.array_equal(np.concatenate([part[side] for part in parts]), whole[side])


def test_sets_seeds_and_rounds_have_other_orders() -> None:
    def rounds(seed: int) -> list[tuple[int, ...]]:
        order = MixOrder((50, 50), (1, 1), 100, seed)
        sets, samples = order.find(np.arange(200))
        mine = [samples[sets == number] for number in range(2)]
        return [tuple(one[at : at + 50].tolist()) for one in mine for at in (0, 50)]

    found = [one for seed in (0, 1, 2**64, -1) for one in rounds(seed)]
    assert len(set(found)) == len(found) == 16


@pytest.mark.parametrize(
    ("weights", "whole"),
    [
        ([0.7, 0.3], (7, 3)),
        ([1 / 3, 1 / 3, 1 / 3], (1, 1, 1)),
        ([1 / 3, 2 / 3], (1, 2)),
        ([2, 4, 6], (1, 2, 3)),
        ([0.5], (1,)),
        ([1e-12, 1], (1, PERIOD_MAX - 1)),
        ([Fraction(1, 7), Fraction(6, 7)], (1, 6)),
        ([np.float64(0.1), np.int64(1)], (1, 10)),
    ],
)
def test_weights_are_the_whole_numbers_that_people_mean(
    weights: list[float], whole: tuple[int, ...]
) -> None:
    assert whole_weights(weights) == whole


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12))
def test_weights_are_rounded_to_parts_of_the_whole(weights: list[float]) -> None:
    whole = whole_weights(weights)
    assert min(whole) >= 1 and sum(whole) <= PERIOD_MAX
    for one, weight in zip(whole, weights, strict=True):
        off = abs(one / sum(whole) - weight / sum(weights))
        assert off <= (len(weights) + 1) / PERIOD_MAX


@pytest.mark.parametrize("weights", [[], [0], [1, -1], [float("nan")], [float("inf"), 1]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        whole_weights(weights)


def test_values_that_make_no_order_are_refused() -> None:
    for counts, weights, size, reason in (
        ((), (), 1, "each set has a weight"),
        ((1, 2), (1,), 1, "2 sets, 1 weights"),
        ((1, 0), (1, 1), 1, "has a sample"),
        ((1, 1), (1, 0), 1, "at least 1"),
        ((1,), (PERIOD_MAX + 1,), 1, "more than"),
        ((1,), (1,), 0, "at least one sample"),
    ):
        with pytest.raises(ValueError, match=reason):
            MixOrder(counts, weights, size)
    with pytest.raises(ValueError, match="at least 0"):
        MixOrder((1,), (1,), 1).find([-1])


def test_the_order_is_that_of_every_version() -> None:
    order = MixOrder((1000, 333, 10), (57, 38, 5), 900, 11)
    found = order.find(np.arange(5000) * 7)
    text = b"".join(np.asarray(one, "<i8").tobytes() for one in found)
    digest = "d90cbf7fbf9aed9729c7ba34f2f3bfa3646ea083da807b89703b935756b5f4d7"
    assert hashlib.sha256(text).hexdigest() == digest
    assert json.loads(json.dumps(order.signature)) == order.signature
