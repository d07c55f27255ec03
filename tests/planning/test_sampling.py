"""Orders by weight, by size and of a fixed length: their laws, at any places and in any pieces.

Goal: samples come as often as their weights say; batches of like size have each sample once;
passes go on from epoch to epoch; every place of an epoch has the same sample however it is asked.

Method: hypothesis over counts, sizes and seeds; counts of many draws against their expectation.
"""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lmdbio.planning.order import Epochs, Shard
from lmdbio.planning.sampling import Buckets, Passes, Sampling, Weighted
from lmdbio.planning.shuffle import Shuffle

COUNTS = st.integers(1, 300)


def whole(order: Sampling, count: int, seed: int, number: int) -> list[int]:
    epoch = order.epoch(count, seed, number)
    return epoch.samples(np.arange(epoch.count)).tolist()


def made(kind: str, count: int, size: int) -> Sampling:
    sizes = np.arange(count) * 7919 % 101
    return {
        "weighted": lambda: Weighted(sizes + 1, size),
        "buckets": lambda: Buckets(sizes, size, 3),
        "passes": lambda: Passes(size),
        "windows": lambda: Passes(size, Shuffle.windows(3, 2)),
        "in order": lambda: Passes(size, shuffle=False),
    }[kind]()


KINDS = ("weighted", "buckets", "passes", "windows", "in order")


@given(
    kind=st.sampled_from(KINDS), count=COUNTS, size=st.integers(1, 60),
    seed=st.integers(-(2**70), 2**70), number=st.integers(0, 5), ranks=st.integers(1, 5),
    batch=st.integers(1, 9), data=st.data(),
)  # fmt: skip
def test_ranks_that_go_on_anywhere_have_the_samples_of_the_epoch(
    kind: str, count: int, size: int, seed: int, number: int, ranks: int, batch: int, data: Any
) -> None:
    order = made(kind, count, size)
    wanted = whole(order, count, seed, number)
    epoch = pickle.loads(pickle.dumps(order)).epoch(count, seed, number)
    assert len(wanted) == epoch.count and all(0 <= one < count for one in wanted)
    used = data.draw(st.integers(0, epoch.count))
    shards = [Shard(epoch.count, batch, i, ranks, used, even=False) for i in range(ranks)]
    found = [
        sample
        for step in range(len(shards[0]))
        for shard in shards
        for sample in epoch.samples(shard.places(step)).tolist()
    ]
    assert found == wanted[used:]


@pytest.mark.parametrize("seed", [0, 1, -(2**65)])
def test_samples_come_as_often_as_their_weights_say(seed: int) -> None:
    weights = np.array([0, 1, 2, 0, 5, 0.5, 0])
    draws = 200_000
    found = np.array(whole(Weighted(weights, draws), 7, seed, 2))
    counts = np.bincount(found, minlength=7)
    assert not counts[weights == 0].any()
    shares = weights / weights.sum()
    deviation = np.sqrt(draws * shares * (1 - shares))
    assert (np.abs(counts - draws * shares) <= 5 * deviation).all()
    pairs = np.bincount(found[:-1] * 7 + found[1:], minlength=49) / (draws - 1)
    assert np.abs(pairs - np.outer(shares, shares).reshape(-1)).max() < 0.005, "no draw follows"
    assert found.tolist() != whole(Weighted(weights, draws), 7, seed, 3)


def test_the_last_weight_that_counts_is_the_last_sample_drawn() -> None:
    assert set(whole(Weighted([0, 3e-320, 0], 1000), 3, 1, 0)) == {1}
    assert set(whole(Weighted([1e-300] * 3, 1000), 3, 1, 0)) == {0, 1, 2}


def test_balanced_classes_come_equally_often() -> None:
    labels = np.array(["cat"] * 900 + ["dog"] * 90 + ["emu"] * 10)
    found = labels[whole(Weighted.balanced(labels, 60_000), 1000, 3, 0)]
    _, counts = np.unique(found, return_counts=True)
    assert np.abs(counts - 20_000).max() < 600
    assert len(whole(Weighted.balanced(labels), 1000, 0, 0)) == 1000


@given(count=COUNTS, size=st.integers(1, 40), batches=st.integers(1, 9), seed=st.integers(0, 99))
def test_batches_of_like_size_have_each_sample_once(
    count: int, size: int, batches: int, seed: int
) -> None:
    sizes = np.arange(count) * 7919 % 101
    found = whole(Buckets(sizes, size, batches), count, seed, 1)
    assert sorted(found) == list(range(count))
    for begin in range(0, count, size * batches):
        window = sizes[found[begin : begin + size * batches]]
        cut = [window[at : at + size] for at in range(0, len(window), size)]
        ranges = sorted((one.min(), one.max()) for one in cut)
        assert all(low[1] <= high[0] for low, high in pairwise(ranges))


def test_batches_of_like_size_are_shuffled_and_others_in_each_epoch() -> None:
    sizes = np.arange(10_000)
    first, second = (np.array(whole(Buckets(sizes, 20), 10_000, 5, i)) for i in (0, 1))
    means = first.reshape(-1, 20).mean(axis=1)[:100]
    assert abs(np.corrcoef(means, np.arange(100))[0, 1]) < 0.4, "no batch tells the next"
    assert {tuple(sorted(one)) for one in first.reshape(-1, 20).tolist()}.isdisjoint(
        tuple(sorted(one)) for one in second.reshape(-1, 20).tolist()
    )
    spread = np.ptp(first.reshape(-1, 20), axis=1).mean()
    assert spread < 10_000 / 100 * 1.5, "of a window of 100 batches"


@given(count=st.integers(1, 60), size=st.integers(1, 150), seed=st.integers(0, 9))
def test_passes_have_each_sample_once_wherever_epochs_end(
    count: int, size: int, seed: int
) -> None:
    order = Passes(size)
    joined = [one for number in range(8) for one in whole(order, count, seed, number)]
    assert joined == Epochs(count, seed).samples(np.arange(8 * size)).tolist()
    for begin in range(0, len(joined) - count + 1, count):
        assert sorted(joined[begin : begin + count]) == list(range(count))
    plain = [one for number in range(3) for one in whole(Passes(size, False), count, seed, number)]
    assert plain == [place % count for place in range(3 * size)]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Weighted([]), "at least one"),
        (lambda: Weighted([0, 0]), "at least one"),
        (lambda: Weighted([1, -1, 2]), "from 0 on"),
        (lambda: Weighted([1, np.nan]), "from 0 on"),
        (lambda: Weighted([1, np.inf]), "from 0 on"),
        (lambda: Weighted([[1, 2]]), "one number for each sample"),
        (lambda: Weighted(["a"]), "one number for each sample"),
        (lambda: Weighted([1], 0), "size must be from 1 to"),
        (lambda: Buckets([1, np.nan], 1), "finite"),
        (lambda: Buckets([1, 2], 0), "batch_size must be"),
        (lambda: Buckets([1, 2], 1, 0), "batches must be"),
        (lambda: Passes(0), "size must be"),
        (lambda: Passes(3).epoch(0, 1, 0), "without samples"),
        (lambda: Weighted([1, 2]).epoch(3, 1, 0), "2 weights for a data set of 3"),
        (lambda: Buckets([1, 2], 1).epoch(3, 1, 0), "2 sizes for a data set of 3"),
    ],
)
def test_what_makes_no_order_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_orders_have_names_by_which_states_know_them() -> None:
    makers = [*(lambda kind=kind: made(kind, 9, 4) for kind in KINDS), lambda: Weighted([1, 2])]
    names = [make().name for make in makers]  # type: ignore[no-untyped-call]
    assert len(set(names)) == len(names) and names == [make().name for make in makers]  # type: ignore[no-untyped-call]
