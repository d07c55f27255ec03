"""Goal: how often a node uses a record is told beforehand.

Method: sums by fractions of small cases; orders of real epochs, counted.
"""

from __future__ import annotations

import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from lmdbio.planning.order import Epoch
from lmdbio.planning.randomness import confidence_ranks
from tests.support.chances import share_used_more_than


@given(st.integers(1, 9), st.integers(0, 20), st.integers(-1, 22))
def test_the_share_is_the_sum_of_its_terms(nodes: int, epochs: int, uses: int) -> None:
    chance = Fraction(1, nodes)
    exact = sum(
        math.comb(epochs, k) * chance**k * (1 - chance) ** (epochs - k)
        for k in range(max(0, uses + 1), epochs + 1)
    )
    assert share_used_more_than(uses, epochs, nodes) == pytest.approx(float(exact), abs=1e-12)


def test_real_epochs_have_as_many_frequent_records() -> None:
    count, nodes, epochs = 4000, 4, 40
    uses = np.zeros(count, np.int64)
    for number in range(epochs):
        uses[Epoch(count, 2, number).samples(np.arange(count // nodes))] += 1
    expected = count * share_used_more_than(13, epochs, nodes)
    assert abs((uses > 13).sum() - expected) < 4 * math.sqrt(expected)


def test_ten_runs_have_their_median_between_the_second_and_the_ninth() -> None:
    """The HDMLP thesis' equation 5.1."""
    assert confidence_ranks(10) == (2, 9)
    assert [confidence_ranks(n) for n in (0, 1, 5, 6)] == [None, None, None, (1, 6)]


@given(st.integers(6, 400))
def test_confidence_ranks_are_as_near_as_the_binomial_allows(runs: int) -> None:
    found = confidence_ranks(runs)
    assert found is not None
    low, high = found

    def covered(low: int, high: int) -> float:
        return sum(math.comb(runs, k) for k in range(low, high)) / 2**runs

    assert low + high == runs + 1 and covered(low, high) >= 0.95
    assert covered(low + 1, high - 1) < 0.95


def test_medians_of_chance_lie_between_their_ranks() -> None:
    chance = np.random.default_rng(5)
    runs = np.sort(chance.normal(size=(20_000, 10)), axis=1)
    outside = ((runs[:, 1] > 0) | (runs[:, 8] < 0)).mean()
    assert 0.01 < outside < 0.03  # 22 of 1,024
