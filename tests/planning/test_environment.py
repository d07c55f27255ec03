"""Goal: a rate is what was measured, or between; seconds follow the equations, or are refused.

Method: points by hand, and hypothesis for what lies between them.
"""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lmdbio.planning.environment import Curve, Environment, Tier

POINTS = {1: 66, 2: 86, 4: 146, 8: 326, 16: 324}


@given(st.integers(1, 40))
def test_a_rate_lies_between_its_neighbours(number: int) -> None:
    rate = Curve.of(POINTS).at(number)
    below = max(k for k in POINTS if k <= number)
    above = min((k for k in POINTS if k >= number), default=16)
    assert min(POINTS[below], POINTS[above]) <= rate <= max(POINTS[below], POINTS[above])
    if number in POINTS:
        assert rate == POINTS[number]


def test_beyond_its_ends_a_rate_is_that_of_the_end() -> None:
    curve = Curve.of({3: 10, 5: 20})
    assert [curve.at(n) for n in (1, 3, 4, 5, 9)] == [10, 10, 15, 20, 20]
    assert Curve.of(7.5).at(100) == 7.5


@pytest.mark.parametrize(
    "points", [{}, {0: 1}, {1: 0}, {1: -2, 2: 3}, {1: math.nan}, {1: math.inf}]
)
def test_a_curve_that_is_none_is_refused(points: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="a rate"):
        Curve.of(points)
    with pytest.raises(ValueError, match="ascending"):
        Curve(((2, 1.0), (1, 1.0)))


def environment(**changed: Any) -> Environment:
    ram = Tier(1024, 2, Curve.of({1: 16550, 2: 21164}))
    given: dict[str, Any] = {
        "nodes": 4, "compute": 100, "preprocess": 200, "network": 10_000, "file_network": 2_000,
        "file_system": Curve.of(POINTS), "staging": ram,
        "tiers": (ram, Tier(100 * 1024, 2, Curve.of({2: 86}))),
    }  # fmt: skip
    return Environment(**{**given, **changed})


def test_threads_have_all_of_a_tier_each_and_peers_no_more_than_the_network() -> None:
    node = environment()
    ram, disk = node.tiers
    assert disk.read_rate == node.peer_rate(disk) == 86
    assert ram.read_rate == 21_164 and node.peer_rate(ram) == 10_000, "the network is slower"


def test_clients_share_the_file_system_and_each_has_a_link() -> None:
    assert environment().file_rate(4) == 36.5
    assert environment(file_network=20).file_rate(4) == 20


def test_the_slower_one_of_preprocessing_and_writing_counts() -> None:
    assert environment().staging_rate == 200
    slow = Tier(10, 2, Curve.of(30))
    assert environment(staging=slow).staging_rate == 15


@pytest.mark.parametrize(
    "changed",
    [{"nodes": 0}, {"nodes": 10**6}, {"compute": 0}, {"network": -1}, {"compute": math.nan}],
)
def test_what_no_cluster_has_is_refused(changed: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(changed)).rstrip("s")):
        environment(**changed)


@pytest.mark.parametrize(
    ("capacity", "threads", "words"),
    [(5, 0, "threads"), (5, 5_000, "threads"), (-1, 1, "capacity"), (math.nan, 1, "capacity")],
)
def test_what_no_tier_has_is_refused(capacity: float, threads: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Tier(capacity, threads, Curve.of(1))
