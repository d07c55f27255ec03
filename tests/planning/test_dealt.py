"""Goal: where ranks take what their root keeps, as few records move as the paper says.

Method: homes of byte ranges of a file of records of all sizes, in exact global order; what moves
is counted by the root that brings it, and held against the deficits of each batch and the share
that the paper gives for very many learners.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lmdbio import _core
from lmdbio.placement.homes import Grains, Homes
from lmdbio.placement.sources import HomeSources
from lmdbio.planning import deal
from lmdbio.planning.deal import NOBODY, deal_steps, owner_in
from lmdbio.planning.order import Epoch, Epochs, Shard, split_share
from lmdbio.planning.schedule import Schedule
from tests.support.chances import moved_share_limit

GRAIN = 4096
#: A root keeps so many records: of other numbers by a few, for homes are even by their bytes.
RECORDS_OF_ROOT = 1500


@cache
def homes_of(roots: int) -> Homes:
    """Records of up to two grains, one behind the other, and room for all of them."""
    count = RECORDS_OF_ROOT * roots
    extents = np.zeros(count, _core.EXTENT)
    extents["length"] = np.random.default_rng(7).integers(0, 2 * GRAIN, count)
    extents["offset"] = np.cumsum(extents["length"]) - extents["length"]
    size = int(extents["length"].sum())
    grains = Grains.of([extents], size, GRAIN)
    return Homes.of(grains, [2 * size // roots] * roots, count, lambda a, b: extents[a:b])


def local_one(roots: int, ranks: int, batch: int, seed: int, iterations: int = 1) -> Schedule:
    homes = homes_of(roots)
    teams = tuple(tuple(split_share(ranks, roots, root)) for root in range(roots))
    return Schedule(
        len(homes.records), batch, teams, "local", iterations,
        owner=owner_in(homes.records), epochs=Epochs(len(homes.records), seed),
    )  # fmt: skip


def moved_share(roots: int, ranks: int, local: int) -> float:
    """The share of records that teams take and others hold, over half an epoch."""
    schedule = local_one(roots, ranks, local * ranks, seed=local)
    homes, moved, places = homes_of(roots).records, 0, 0
    for block in range(schedule.count // schedule.batch_size // 2):
        _, records, teams = schedule.dealt(block)
        moved += int((homes[records] != teams).sum())
        places += len(teams)
    return moved / places


@pytest.mark.parametrize("local", [32, 64, 128])
def test_the_share_that_moves_is_what_the_paper_says_of_many_learners(local: int) -> None:
    """Batches are drawn without replacement, and homes are as even as grains are."""
    share = moved_share(256, 256, local)
    assert abs(share - moved_share_limit(local)) < 0.0035


@pytest.mark.parametrize("local", [32, 64, 128])
def test_between_nodes_whose_ranks_share_memory_less_moves(local: int) -> None:
    """Four ranks on each of 64 nodes: the node is the learner, of four times the share."""
    share = moved_share(64, 256, local)
    assert abs(share - moved_share_limit(4 * local)) < 0.0035
    assert share < 0.6 * moved_share_limit(local)


@pytest.mark.parametrize(("roots", "ranks", "batch"), [(4, 4, 64), (5, 12, 101), (3, 8, 5)])
def test_roots_send_what_others_lack_and_no_more(roots: int, ranks: int, batch: int) -> None:
    schedule = local_one(roots, ranks, batch, seed=batch, iterations=3)
    homes = homes_of(roots)
    sources = HomeSources(schedule, homes)
    for number in range(20):
        lacking = 0
        for iteration in range(3 * number, 3 * number + 3):
            records = schedule.sequence(range(iteration * batch, (iteration + 1) * batch))
            held = np.bincount(homes.records[records], minlength=roots)
            shares = np.array(schedule.team_shares(iteration))
            lacking += int(np.maximum(0, shares - held).sum())
        sent = sum(len(sources.uses(number, root).order) for root in range(roots))
        got = 0
        for team in range(roots):
            block = sources.block(number, team)
            got += int(np.diff(block.begins)[block.roots != team].sum())
        assert sent == got == lacking


def test_a_block_is_dealt_once_for_all_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(servers: np.ndarray, learners: int, shares: tuple[int, ...]) -> np.ndarray:
        asked.append(len(servers))
        return dealt_as_ever(servers, learners, shares)

    dealt_as_ever = deal.deal
    monkeypatch.setattr(deal, "deal", counted)
    schedule = local_one(4, 8, 32, seed=1, iterations=5)
    sources = HomeSources(schedule, homes_of(4))
    for root in range(4):
        sources.uses(3, root)
        sources.block(3, root)
        schedule.records(17, 2 * root)
    assert asked == [32] * 5


def test_deals_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deal, "CACHED_PLACES", 1000)
    schedule = local_one(4, 8, 100, seed=1)
    kept = [schedule.dealt(block) for block in range(12)]
    assert schedule.dealt(2) is kept[2], "ten blocks are kept"
    assert schedule.dealt(1) is not kept[1]
    assert np.array_equal(schedule.dealt(1).teams, kept[1].teams)


def test_what_has_no_home_is_held_by_nobody() -> None:
    homes = np.array([2, _core.NO_HOME, 0], np.uint16)
    assert owner_in(homes)(np.array([2, 1, 0, 1], np.uint64)).tolist() == [0, NOBODY, 2, NOBODY]


@given(
    count=st.integers(1, 300),
    size=st.integers(1, 40),
    ranks=st.integers(1, 9),
    share=st.floats(0, 1),
    seed=st.one_of(st.none(), st.integers(0, 99)),
    even=st.booleans(),
    drop_last=st.booleans(),
)
def test_each_step_that_is_dealt_is_the_strided_one_in_shares_as_large(
    count: int, size: int, ranks: int, share: float, seed: int | None, even: bool, drop_last: bool
) -> None:
    draw, epoch = np.random.default_rng(count), Epoch(count, seed, 3)
    homes = draw.integers(0, ranks, count).astype(np.uint16)
    homes[draw.random(count) < share] = _core.NO_HOME
    used = int(draw.integers(0, count))
    shards = [
        Shard(count, size, rank, ranks, used, even=even, drop_last=drop_last)
        for rank in range(ranks)
    ]
    steps = range(len(shards[0]))
    found = [deal_steps(epoch, shard, steps, owner_in(homes)) for shard in shards]
    for step in steps:
        strided = [epoch.samples(shard.places(step)) for shard in shards]
        assert [len(one[step]) for one in found] == list(map(len, strided))
        places, shares = shards[0].of_all_ranks(step)
        assert epoch.samples(places).tolist() == np.concatenate(strided).tolist()
        assert shares == list(map(len, strided))
        dealt = np.concatenate([one[step] for one in found])
        assert sorted(dealt.tolist()) == sorted(np.concatenate(strided).tolist())
        if ranks == 1:
            assert dealt.tolist() == strided[0].tolist()
        for rank, one in enumerate(found):  # nobody gives away what it has room for
            held = int((homes[np.concatenate(strided)] == rank).sum())
            assert int((homes[one[step]] == rank).sum()) == min(held, shares[rank])
    with pytest.raises(IndexError):
        shards[0].of_all_ranks(len(shards[0]))
