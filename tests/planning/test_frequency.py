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

from lmdbio.planning.frequency import least_elsewhere, most_elsewhere, share_used_more_than
from lmdbio.planning.order import Epoch


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


@given(st.lists(st.integers(0, 40), min_size=2, max_size=9))
def test_what_one_node_uses_more_another_one_uses_less(uses: list[int]) -> None:
    one, others = uses[0], uses[1:]
    assert min(others) <= least_elsewhere(one, sum(uses), len(uses))
    assert max(others) >= most_elsewhere(one, sum(uses), len(uses))
