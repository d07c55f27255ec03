"""Goal: the level of chance says what may come where.

Method: small orders against all that can come, counted; the paper's figures are in tests/papers.
"""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lmdbio.planning.randomness import epochs_without_repeat, meeting, randomness
from lmdbio.planning.shuffle import GLOBAL, Shuffle


def weighed(choices: list[float]) -> float:
    """By the definition, of how many records could come to each place."""
    left = range(len(choices), 0, -1)
    return sum(math.log2(c) / n for c, n in zip(choices, left, strict=True)) / sum(
        math.log2(n) / n for n in left
    )


def test_a_whole_permutation_has_all_the_chance_and_an_order_of_ones_own_none() -> None:
    assert randomness(GLOBAL, 1000) == 1.0 == randomness(GLOBAL, 1)
    assert randomness(Shuffle.given([1, 0]), 2) == 0.0 == randomness(Shuffle.runs(50), 50)


def test_what_may_come_is_counted_place_by_place() -> None:
    # Two groups of three: one of two, then one of its three, two, one; then the other group.
    groups = randomness(Shuffle.groups(3), 6)
    assert groups == pytest.approx(weighed([6, 4, 2, 3, 2, 1]))
    assert randomness(Shuffle.windows(1, 3), 6) == 1.0, "chunks of one record go anywhere"
    runs = randomness(Shuffle.runs(2), 6)
    assert runs == pytest.approx(weighed([3, 3, 2, 2, 1, 1]))


def test_held_records_and_the_others_each_have_the_chance_of_their_own() -> None:
    # Places 0 2 4 are of the others, two chunks of two shuffled together; 1 and 3 of the held.
    assert randomness(Shuffle.mixed(2, 1, 9), 4) == pytest.approx(weighed([2, 2, 1, 1]))
    assert randomness(Shuffle.mixed(9, 2, 2), 9) == 1.0


@given(st.integers(1, 3000), st.integers(1, 80), st.integers(1, 30), st.booleans())
def test_no_order_has_more_chance_than_all_of_it(
    count: int, chunk: int, window: int, inner: bool
) -> None:
    level = randomness(Shuffle(chunk, window, inner), count)
    assert 0 <= level <= 1 + 1e-12


def test_larger_windows_have_more_chance() -> None:
    levels = [randomness(Shuffle.windows(10, w), 3_000_000) for w in (100, 1000, 10_000, 300_000)]
    assert levels == sorted(levels) and levels[-1] == 1.0
    assert levels[0] == pytest.approx(0.93, abs=0.001)


def test_pairs_that_can_meet() -> None:
    assert meeting(GLOBAL, 50) == 1.0 == meeting(GLOBAL, 1)
    assert meeting(Shuffle.groups(5), 50) == pytest.approx(4 / 49)
    assert meeting(Shuffle.windows(5, 2), 50) == pytest.approx(9 / 49)
    # Two held ones meet all; of the eight others, each meets three.
    assert meeting(Shuffle.mixed(2, 2, 2), 10) == pytest.approx(1 - 8 * 4 / 90)
    assert meeting(Shuffle.mixed(50, 2, 2), 50) == 1.0
    assert meeting(Shuffle.runs(5), 50) == 0.0 == meeting(Shuffle.given([0, 1]), 2)


@pytest.mark.parametrize(("samples", "groups", "epochs"), [(8192, 64, 127), (10, 3, 3), (3, 3, 0)])
def test_epochs_are_fewer_than_the_samples_of_a_group(
    samples: int, groups: int, epochs: int
) -> None:
    assert epochs_without_repeat(samples, groups) == epochs
    assert epochs < samples / groups <= epochs + 1


def test_no_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 group"):
        epochs_without_repeat(5, 0)
