"""Parts of a data set: exact sizes, each sample in one part, the same everywhere.

Goal: sizes are as near to the fractions as whole numbers are; parts are disjoint and all there is;
what comes into a part is a function of count, fractions and seed alone.

Method: hypothesis over counts and fractions; a digest written down once.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lmdbio.planning.mix import part_sizes, split_samples


@given(st.integers(0, 5000), st.lists(st.integers(0, 1000), min_size=1, max_size=9).filter(any))
def test_sizes_are_less_than_one_from_their_fractions(count: int, weights: list[int]) -> None:
    whole = sum(weights)
    fractions = [weight / whole for weight in weights]
    sizes = part_sizes(count, fractions)
    assert sum(sizes) == count
    exact = sum(map(Fraction, fractions))
    for size, fraction in zip(sizes, fractions, strict=True):
        assert abs(size - Fraction(fraction) * count / exact) < 1
        assert size >= 0


@given(
    st.integers(0, 3000),
    st.lists(st.integers(1, 50), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(-(2**70), 2**70)),
)
def test_each_sample_is_in_one_part(count: int, weights: list[int], seed: int | None) -> None:
    fractions = [weight / sum(weights) for weight in weights]
    parts = split_samples(count, fractions, seed)
    assert tuple(map(len, parts)) == part_sizes(count, fractions)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(count))
    assert all((np.diff(part) > 0).all() for part in parts)
    again = split_samples(count, fractions, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    if seed is None:
        assert np.array_equal(np.concatenate(parts), np.arange(count))


@pytest.mark.parametrize(
    ("count", "fractions", "sizes"),
    [
        (10, [0.9, 0.1], (9, 1)),
        (10, [1 / 3, 1 / 3, 1 / 3], (4, 3, 3)),
        (10, [0.333, 0.333, 0.333], (4, 3, 3)),
        (5, [0.5, 0.5], (3, 2)),
        (3, [0.7, 0.2, 0.1], (2, 1, 0)),
        (100, [0.8, 0.0, 0.2], (80, 0, 20)),
        (7, [7], (7,)),
        (7, [4, 3], (4, 3)),
        (1, [0, 1], (0, 1)),
        (9, [1], (9,)),
        (0, [0.5, 0.5], (0, 0)),
    ],
)
def test_remainders_go_to_the_largest(
    count: int, fractions: list[float], sizes: tuple[int, ...]
) -> None:
    assert part_sizes(count, fractions) == sizes


@pytest.mark.parametrize(
    "fractions", [[], [0.5], [0.9, 0.2], [-0.1, 1.1], [float("nan"), 1], [float("inf")], [3, 3]]
)
def test_fractions_that_are_none_are_refused(fractions: list[float]) -> None:
    with pytest.raises(ValueError, match="fractions"):
        part_sizes(7, fractions)


def test_parts_are_those_of_every_version() -> None:
    parts = split_samples(1000, [0.8, 0.15, 0.05], 7)
    digest = hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in parts)).hexdigest()
    assert digest == "7202ed37d3501e18bc4f7da8b21f2c903bcf1b37f4d24c7d4a4aea941b7ae166"


def test_another_seed_makes_other_parts_that_chance_would_make() -> None:
    first, second = (split_samples(10_000, [0.5, 0.5], seed)[0] for seed in (1, 2))
    shared = len(np.intersect1d(first, second))
    assert 2300 < shared < 2700


@pytest.mark.parametrize(
    "kind", [float, np.float16, np.float32, np.float64, np.array, Fraction, Decimal]
)
def test_fractions_are_numbers_of_any_library(kind: Any) -> None:
    assert part_sizes(9, [kind(0.5)] * 2) == (5, 4)
    assert part_sizes(8, [kind(1)]) == (8,)
    assert part_sizes(8, [np.int64(3), np.uint8(5)]) == (3, 5)
