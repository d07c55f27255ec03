"""Goal: a row comes from where it takes least, and from nowhere that has it not.

Method: rates chosen so that each order of sources comes up; random holdings against a plain loop.
"""

from __future__ import annotations

import numpy as np
import pytest

from lmdbio.planning.environment import Curve, Environment, Tier
from lmdbio.planning.route import FILE, OWN, PEER, Routes


def environment(network: float = 1000, disk: float = 50, file: float = 400) -> Environment:
    return Environment(
        nodes=4,
        compute=1,
        preprocess=1,
        network=network,
        file_network=10_000,
        file_system=Curve.of(file),
        staging=Tier(1, 1, Curve.of(1)),
        tiers=(Tier(1, 2, Curve.of(8000)), Tier(1, 2, Curve.of(2 * disk))),
    )


def test_seconds_are_those_of_the_equations() -> None:
    routes = Routes.of(environment())
    assert routes == Routes((1 / 4000, 1 / 50), (1 / 1000, 1 / 50), 4 / 400)


@pytest.mark.parametrize(
    ("own", "peer", "source"),
    [
        (0, 0, OWN),
        (1, 0, PEER),
        (-1, 0, PEER),
        (1, -1, FILE),
        (1, 1, FILE),
        (-1, -1, FILE),
        (-1, 1, FILE),
    ],
)
def test_the_quickest_of_those_that_have_it_is_taken(own: int, peer: int, source: int) -> None:
    assert Routes.of(environment()).choose([own], [peer]).tolist() == [source]


def test_the_nearer_one_is_taken_where_both_take_as_long() -> None:
    routes = Routes((2.0,), (2.0,), 2.0)
    assert routes.choose([0, -1], [0, 0]).tolist() == [OWN, PEER]


def test_many_rows_are_routed_as_each_alone() -> None:
    routes, chance = Routes.of(environment(disk=150)), np.random.default_rng(3)
    own, peer = chance.integers(-1, 2, (2, 500))
    alone = [routes.choose([a], [b])[0] for a, b in zip(own, peer, strict=True)]
    assert routes.choose(own, peer).tolist() == alone
    assert set(alone) == {OWN, PEER, FILE}


def test_a_tier_that_is_not_there_is_refused() -> None:
    with pytest.raises(IndexError):
        Routes.of(environment()).choose([3], [0])
