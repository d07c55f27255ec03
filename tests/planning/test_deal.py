"""Goal: each place of a step goes to one learner, shares differ by one at most, and no more moves
than must.

Method: hypothesis draws holders; the moves against the sums that theorem 2 gives.
"""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from lmdbio.planning.deal import NOBODY, Move, balance, deal
from tests.support.chances import held_limit, moved_share_limit


@given(st.integers(1, 64), st.integers(1, 32), st.integers(0, 2**32 - 1))
def test_moves_are_as_large_as_the_deficits_and_few(learners: int, share: int, seed: int) -> None:
    held = np.bincount(
        np.random.default_rng(seed).integers(0, learners, learners * share), minlength=learners
    ).tolist()
    moves = balance(held, [share] * learners)
    after = list(held)
    for move in moves:
        assert move.records > 0
        after[move.source] -= move.records
        after[move.target] += move.records
    assert after == [share] * learners
    off = sum(count != share for count in held)
    assert sum(move.records for move in moves) == sum(max(0, share - count) for count in held)
    assert math.ceil(off / 2) <= len(moves) <= max(0, off - 1)


def test_the_largest_surplus_goes_to_the_largest_deficit_the_lowest_first() -> None:
    assert balance([9, 2, 9, 0], [5] * 4) == [Move(0, 3, 4), Move(2, 1, 3), Move(2, 3, 1)]
    assert balance([5, 5], [5, 5]) == []


def test_numbers_that_do_not_add_up_are_refused() -> None:
    for held, shares in (([3, 1], [2, 1]), ([4], [2, 2])):
        with pytest.raises(ValueError, match="cannot become"):
            balance(held, shares)


@given(st.data(), st.integers(1, 12))
def test_each_place_goes_to_one_learner(data: st.DataObject, learners: int) -> None:
    servers = data.draw(st.lists(st.integers(NOBODY, learners - 1), max_size=60))
    taken = deal(servers, learners).tolist()
    assert len(taken) == len(servers)
    sizes = [taken.count(i) for i in range(learners)]
    assert sum(sizes) == len(servers) and max(sizes) - min(sizes) <= 1
    both = list(zip(servers, taken, strict=True))
    moved = sum(holder not in (learner, NOBODY) for holder, learner in both)
    kept = [both.count((i, i)) for i in range(learners)]
    assert moved == sum(max(0, servers.count(i) - sizes[i]) for i in range(learners))
    assert kept == [min(servers.count(i), sizes[i]) for i in range(learners)]


def test_the_example_of_the_words_at_the_top() -> None:
    taken = deal([1, 1, 0, 1, 2, 1, 0, 2, 1, 1, 2, 2], 3)
    assert taken.tolist() == [1, 1, 0, 1, 2, 1, 0, 2, 0, 0, 2, 2]


def test_a_holder_that_is_none_is_refused() -> None:
    for holder in (3, -2):
        with pytest.raises(ValueError, match="none of 3 learners"):
            deal([0, holder], 3)


def test_with_many_learners_the_share_that_moves_is_near_its_limit() -> None:
    chance = np.random.default_rng(1)
    shares = []
    for _ in range(40):
        held = np.bincount(chance.integers(0, 512, 512 * 32), minlength=512).tolist()
        shares.append(sum(m.records for m in balance(held, [32] * 512)) / (512 * 32))
    assert np.mean(shares) == pytest.approx(moved_share_limit(32), rel=0.02)


@given(st.data(), st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_shares_of_ones_own_are_kept(data: st.DataObject, shares: list[int]) -> None:
    learners, places = len(shares), sum(shares)
    whose = st.integers(NOBODY, learners - 1)
    servers = data.draw(st.lists(whose, min_size=places, max_size=places))
    taken = deal(servers, learners, shares)
    assert np.bincount(taken, minlength=learners).tolist() == shares


@given(st.data(), st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_of_ones_own_the_first_ones_are_kept(data: st.DataObject, shares: list[int]) -> None:
    learners, places = len(shares), sum(shares)
    whose = st.integers(NOBODY, learners - 1)
    servers = np.array(data.draw(st.lists(whose, min_size=places, max_size=places)), np.int64)
    taken = deal(servers, learners, shares)
    for learner, share in enumerate(shares):
        own = np.flatnonzero(servers == learner)
        assert (taken[own[:share]] == learner).all()
        assert (taken[own[share:]] != learner).all()


def test_shares_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot become"):
        deal([0, 1, 1], 2, [1, 1])


@pytest.mark.parametrize(("learners", "local"), [(16, 64), (64, 128), (256, 1024)])
def test_no_learner_holds_much_more_than_its_share(learners: int, local: int) -> None:
    chance = np.random.default_rng(learners)
    batch = learners * local
    fullest = [np.bincount(chance.integers(0, learners, batch)).max() for _ in range(200)]
    assert np.mean(np.array(fullest) > held_limit(batch, learners, 1.1)) < 0.1
    assert held_limit(batch, learners, 1.1) < 2 * local
