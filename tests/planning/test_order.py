"""Goal: an epoch uses each sample once, in an order that looks like chance and never changes;
ranks share it without losing or repeating any, also when they go on as others than they began.

Method: whole permutations of many sizes; the counts of places and of neighbours against chi-square
quantiles, with seeds that are fixed, so that no test is one of chance; a table of orders that must
be the same for ever; hypothesis draws ranks, batches and interruptions.
"""

from __future__ import annotations

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from lmdbio.planning.order import Epoch, Epochs, Shard
from lmdbio.planning.shuffle import Shuffle


def whole(count: int, seed: int | None, number: int = 0) -> list[int]:
    return Epoch(count, seed, number).samples(np.arange(count)).tolist()


@pytest.mark.parametrize("count", [*range(70), 255, 256, 257, 1000, 65_537, 300_007])
@pytest.mark.parametrize("seed", [0, -3, 2**200])
def test_each_sample_has_one_place(count: int, seed: int) -> None:
    samples = Epoch(count, seed).samples(np.arange(count))
    assert np.array_equal(np.sort(samples), np.arange(count))


def test_without_a_seed_samples_come_in_their_own_order() -> None:
    assert whole(5, None, 7) == [0, 1, 2, 3, 4]


def test_any_part_is_that_of_the_whole() -> None:
    all_of_it = whole(1000, 5)
    places = [999, 0, 17, 17, 500]
    assert Epoch(1000, 5).samples(places).tolist() == [all_of_it[place] for place in places]


def test_a_place_far_out_is_computed_alone() -> None:
    count = 2**40 + 3
    samples = Epoch(count, 1).samples(np.array([0, 2**39, count - 1]))
    assert len(set(samples.tolist())) == 3
    assert samples.min() >= 0 and samples.max() < count


@pytest.mark.parametrize(
    ("count", "seed", "number", "samples"),
    [
        (10, 0, 0, [2, 0, 5, 1, 4, 8, 3, 6, 9, 7]),
        (10, -1, 0, [2, 5, 9, 0, 4, 7, 1, 8, 3, 6]),
        (7, 2**64, 3, [4, 6, 5, 1, 3, 2, 0]),
        (16, 1, 0, [13, 6, 15, 8, 3, 0, 11, 4, 10, 14, 12, 5, 7, 2, 9, 1]),
        (100, 0, 0, [0, 2, 59, 14, 74, 34, 45, 94, 83, 78, 61, 32]),
        (1000, 5, 2, [216, 911, 723, 675, 442, 228, 68, 627]),
    ],
)
def test_an_order_is_the_same_for_ever(
    count: int, seed: int, number: int, samples: list[int]
) -> None:
    """An epoch resumed with another version goes on in the order that it began in."""
    assert whole(count, seed, number)[: len(samples)] == samples


def test_seeds_and_epochs_differ() -> None:
    seeds = [0, 1, -1, 2**63, 2**64, 2**64 + 1, -(2**64)]
    orders = [tuple(whole(30, seed, number)) for seed in seeds for number in range(5)]
    assert len(set(orders)) == len(orders)


def chi_square(observed: np.ndarray, expected: float) -> float:
    """How many standard deviations above its mean it lies."""
    freedom = observed.size - 1
    value = float(((observed - expected) ** 2 / expected).sum())
    return (value - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("count", [5, 12, 31, 100])
def test_each_sample_is_as_likely_at_each_place(count: int) -> None:
    tables = np.zeros((count, count))
    epochs = 2000
    for number in range(epochs):
        tables[np.arange(count), whole(count, 11, number)] += 1
    assert abs(chi_square(tables, epochs / count)) < 5


@pytest.mark.parametrize("count", [5, 12, 31])
def test_each_sample_is_as_likely_after_each_other(count: int) -> None:
    tables = np.zeros((count, count))
    epochs = 2000
    for number in range(epochs):
        order = whole(count, 11, number)
        for before, after in itertools.pairwise(order):
            tables[before, after] += 1
    apart = tables[~np.eye(count, dtype=bool)]
    assert abs(chi_square(apart, epochs / count)) < 5


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_all_orders_of_a_few_are_as_likely(count: int) -> None:
    seen = dict.fromkeys(itertools.permutations(range(count)), 0)
    epochs = 100 * len(seen)
    for number in range(epochs):
        seen[tuple(whole(count, 3, number))] += 1
    assert abs(chi_square(np.array(list(seen.values())), 100)) < 5


@pytest.mark.parametrize("lag", [1, 2, 7, 1000])
def test_places_do_not_tell_samples_in_a_large_one(lag: int) -> None:
    samples = Epoch(100_003, 3).samples(np.arange(100_003)).astype(float)
    together = np.corrcoef(samples[:-lag], samples[lag:])[0, 1]
    assert abs(together) < 5 / math.sqrt(100_003)
    assert abs(np.corrcoef(samples, np.arange(100_003))[0, 1]) < 5 / math.sqrt(100_003)


def mixed(value: int) -> int:
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) % 2**64
    return value ^ value >> 31


@given(count=st.integers(1, 2**62), number=st.integers(0, 99), data=st.data())
def test_the_permutation_is_the_network_that_it_is_said_to_be(
    count: int, number: int, data: st.DataObject
) -> None:
    """By the text book, in numbers that cannot wrap."""
    seed = data.draw(st.integers(0, 2**63 - 1))
    golden = 0x9E3779B97F4A7C15
    key = mixed((mixed((number + golden) % 2**64) ^ seed) + golden & 2**64 - 1)
    keys = [mixed((key + golden * turn) % 2**64) for turn in range(1, 9)]
    a = max(4, math.isqrt(count))
    b = max(4, -(-count // a))
    places = data.draw(st.lists(st.integers(0, count - 1), max_size=5))
    expected = []
    for place in places:
        while True:
            left, right = place % a, place // a
            for turn, own in enumerate(keys):
                modulus = b if turn % 2 else a
                left, right = right, (left + mixed((right + own) % 2**64)) % modulus
            place = right * a + left
            if place < count:
                break
        expected.append(place)
    assert Epoch(count, seed, number).samples(places).tolist() == expected


@pytest.mark.parametrize("place", [-1, 10, 2**40])
def test_a_place_outside_is_refused(place: int) -> None:
    with pytest.raises(IndexError, match="10 samples"):
        Epoch(10, 0).samples([0, place])


@pytest.mark.parametrize(
    ("asked", "error"),
    [([[0, 1]], ValueError), (3, ValueError), ([0.5], TypeError), (["a"], TypeError)],
)
def test_what_is_no_list_of_places_is_refused(asked: object, error: type) -> None:
    for epoch in (Epoch(10, 0), Epoch(10)):
        with pytest.raises(error, match="places are"):
            epoch.samples(asked)  # type: ignore[arg-type]
        with pytest.raises(error, match="samples are"):
            epoch.places(asked)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers_and_others_are_refused() -> None:
    assert Epoch(np.int32(10), np.int64(777), np.uint8(3)) == Epoch(10, 777, 3)
    assert (
        Epoch(np.int32(10), np.int64(777), np.uint8(3)).samples([1]).tolist()
        == whole(10, 777, 3)[1:2]
    )
    for wrong in ({"count": 1.5}, {"count": 3, "seed": 1.5}, {"count": 3, "number": "1"}):
        with pytest.raises(TypeError):
            Epoch(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="more than"):
        Epoch(2**62 + 1)


def used_by_all(shards: list[Shard], steps: int) -> list[int]:
    """Places in the order in which all ranks use them."""
    return [place for step in range(steps) for shard in shards for place in used_in(shard, step)]


def used_in(shard: Shard, step: int) -> list[int]:
    return shard.places(step).tolist()


ranks = st.integers(1, 9)
sizes = st.integers(1, 12)


@given(count=st.integers(0, 200), ranks=ranks, size=sizes, even=st.booleans(), drop=st.booleans())
def test_ranks_use_each_place_once(
    count: int, ranks: int, size: int, even: bool, drop: bool
) -> None:
    shards = [Shard(count, size, i, ranks, drop_last=drop, even=even) for i in range(ranks)]
    steps = len(shards[0])
    assert all(len(shard) == steps for shard in shards)
    places = used_by_all(shards, steps)
    used = shards[0].used_after(steps)
    assert places[:used] == list(range(used)), "in the order of the epoch"
    again = places[used:]
    assert again == [place % count for place in range(used, used + len(again))]
    assert len(again) < ranks if even else not again
    assert used == count or (drop and count - used < ranks * size)
    for shard in shards:
        taken = [len(used_in(shard, step)) > 0 for step in range(steps)]
        assert sum(taken) == shard.batches and all(taken[: shard.batches])
        assert shard.batches == steps or (shard.rank > 0 and not even)
        for run in (range(steps), range(steps // 2), range(steps // 3, steps)):
            alone = [place for step in run for place in used_in(shard, step)]
            assert shard.run(run).tolist() == alone
    if even:
        for step in range(steps):
            assert len({len(used_in(shard, step)) for shard in shards}) == 1


@given(st.data())
def test_an_interrupted_epoch_goes_on_where_it_was(data: st.DataObject) -> None:
    count, used, places = data.draw(st.integers(1, 300)), 0, []
    for _ in range(data.draw(st.integers(1, 6))):
        ranks, size = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 12))
        shards = [Shard(count, size, i, ranks, used, even=False) for i in range(ranks)]
        steps = data.draw(st.integers(0, len(shards[0])))
        places += used_by_all(shards, steps)
        used = shards[0].used_after(steps)
    shards = [Shard(count, 3, i, 2, used, even=False) for i in range(2)]
    assert places + used_by_all(shards, len(shards[0])) == list(range(count))


@pytest.mark.parametrize(
    "bad",
    [
        {"batch_size": 0},
        {"rank": 2, "ranks": 2},
        {"rank": -1},
        {"used": 11},
        {"used": -1},
    ],
)
def test_what_is_no_shard_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        Shard(**{"count": 10, "batch_size": 2, **bad})


@pytest.mark.parametrize("step", [-1, 5])
def test_a_step_outside_is_refused(step: int) -> None:
    with pytest.raises(IndexError):
        used_in(Shard(10, 2), step)
    with pytest.raises(ValueError):
        Shard(10, 2).used_after(step + (step > 0))


@pytest.mark.parametrize("bad", [{"count": -1}, {"number": -1}])
def test_what_is_no_epoch_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="negative"):
        Epoch(**{"count": 10, "seed": 0, **bad})


@pytest.mark.parametrize("size", [11, 10**10, 2**62])
def test_all_in_one_batch_takes_no_more_than_there_is(size: int) -> None:
    assert Shard(10, size, 3, 4).places(0).tolist() == [9, 0, 1]
    assert Shard(10, size).run(range(1)).tolist() == list(range(10))
    assert Shard(10, size).batches == 1 and len(Shard(10, size, drop_last=True)) == 0


def test_epochs_follow_one_another() -> None:
    epochs = Epochs(10, 3, Shuffle.groups(4))
    each = [Epoch(10, 3, number, Shuffle.groups(4)).samples(range(10)) for number in range(4)]
    every = np.concatenate(each)
    assert np.array_equal(epochs.samples(range(40)), every)
    places = np.array([39, 0, 15, 15, 20])
    assert np.array_equal(epochs.samples(places), every[places])
    assert (
        epochs.samples([10**15]).tolist()
        == Epoch(10, 3, 10**14, Shuffle.groups(4)).samples([0]).tolist()
    )
    assert len(epochs.samples([])) == 0
    with pytest.raises(ValueError, match="must not be negative"):
        epochs.samples([-1])
    with pytest.raises(ValueError, match="without samples"):
        Epochs(0)
    with pytest.raises(ValueError, match="cannot be that of 10"):
        Epochs(10, 1, Shuffle.given([1, 0]))


def test_the_first_epoch_may_have_a_shuffle_of_its_own() -> None:
    first, usual = Shuffle.windows(2, 2), Shuffle.groups(4)
    epochs = Epochs(10, 3, usual, first)
    told = epochs.samples(np.arange(25))
    assert told[:10].tolist() == Epoch(10, 3, 0, first).samples(range(10)).tolist()
    assert told[10:].tolist() == Epochs(10, 3, usual).samples(np.arange(10, 25)).tolist()
    with pytest.raises(ValueError, match="2 records"):
        Epochs(10, 1, usual, Shuffle.given([1, 0]))
