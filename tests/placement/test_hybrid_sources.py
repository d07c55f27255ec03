"""Goal: where some records have a home and others stream, all roots find alike who brings what.

Method: small schedules of every kind in mixed orders. For each pair of teams, the rows that one
asks for, block by block, are the rows that the other is to send, in the same order.
"""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings, strategies as st

from lmdbio import _core
from lmdbio.placement.homes import Grains, Homes
from lmdbio.placement.sources import HomeSources, HybridSources
from lmdbio.planning.order import Epochs
from lmdbio.planning.rounds import RoundSequence
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import Shuffle

BYTES, GRAIN = 500, 4096


@st.composite
def mixed_sources(draw: st.DrawFn) -> HybridSources:
    """Sources of teams of every size, with ends in mid-batch, and starts in mid-epoch."""
    count, ranks = draw(st.integers(2, 200)), draw(st.integers(1, 6))
    cuts = sorted(draw(st.sets(st.integers(1, ranks))) | {0, ranks})
    teams = tuple(tuple(range(a, b)) for a, b in itertools.pairwise(cuts))
    extents = np.zeros(count, _core.EXTENT)
    extents["offset"], extents["length"] = np.arange(count) * BYTES, BYTES
    grains = Grains.of([extents], count * BYTES, GRAIN)
    room = draw(st.integers(0, len(grains.used) // len(teams))) * GRAIN
    homes = Homes.of(grains, [room] * len(teams), count, lambda a, b: extents[a:b])
    held = draw(st.integers(0, min(homes.first_records, count - 1)))
    shuffle = Shuffle.mixed(held, draw(st.integers(2, 9)), draw(st.integers(1, 9)))
    start = draw(st.sampled_from([0, 7, count + 3]))
    length = draw(st.one_of(st.none(), st.just(max(0, 2 * count - start))))
    schedule = Schedule(
        count,
        draw(st.integers(1, 40)),
        teams,
        assignment=draw(st.sampled_from(["strided", "blocked"])),
        block_iterations=draw(st.integers(1, 4)),
        start=start,
        iterations=draw(st.integers(0, 12)) if length is None else None,
        length=length,
        epochs=Epochs(count, draw(st.integers(0, 9)), shuffle),
    )
    return HybridSources(HomeSources(schedule, homes))


@given(mixed_sources())
@settings(max_examples=200, deadline=None)
def test_each_row_is_sent_as_it_is_asked_for(sources: HybridSources) -> None:
    schedule, homes = sources.home.schedule, sources.home.homes.records
    teams = range(len(schedule.teams))
    asked: dict[tuple[int, int], list[tuple[int, int, list[int]]]] = {}
    own = 0
    for block, team in itertools.product(range(schedule.blocks or 0), teams):
        rows = sources.block(block, team)
        assert np.array_equal(rows.records, schedule.team_records(block, team).view(np.int64))
        assert sorted(rows.order.tolist()) == list(range(len(rows.records)))
        runs = list(zip(rows.rounds.tolist(), rows.roots.tolist(), strict=True))
        assert runs == sorted(set(runs))
        for (number, root), (first, end) in zip(
            runs, itertools.pairwise(rows.begins.tolist()), strict=True
        ):
            places = rows.order[first:end]
            assert (np.diff(places) > 0).all(), "in the order of the schedule"
            records = rows.records[places]
            held = records[~sources.passing(records)]
            assert (homes[held] == root).all()
            if root == team:
                own += len(records)
            else:
                asked.setdefault((root, team), []).append((block, number, records.tolist()))
    sent: dict[tuple[int, int], list[tuple[int, int, list[int]]]] = {}
    kept = 0
    for one in sources.sequence.from_place(schedule.first_place):
        if one.begin >= schedule.first_place + (schedule.end or 0):
            break
        number = one.epoch * sources.sequence.per_epoch + one.number
        for root in teams:
            uses = sources.uses(one, root)
            assert (np.diff(uses.records) > 0).all()
            kept += uses.own
            assert len(uses.records) == uses.own + len(uses.order), "no more than is used"
            for run, (first, end) in enumerate(itertools.pairwise(uses.begins.tolist())):
                records = uses.records[uses.order[first:end]].tolist()
                part = int(uses.blocks[run]), number, records
                sent.setdefault((root, int(uses.teams[run])), []).append(part)
    assert asked == sent
    assert own == kept


@given(st.integers(2, 300), st.data())
def test_rounds_follow_one_another_and_have_a_window_each(count: int, data: st.DataObject) -> None:
    held = data.draw(st.integers(0, count - 1))
    shuffle = Shuffle.mixed(held, data.draw(st.integers(2, 9)), data.draw(st.integers(1, 5)))
    epochs, epoch = Epochs(count, 3, shuffle), data.draw(st.integers(0, 3))
    rounds = RoundSequence(epochs, 2)
    streamed = rounds.rounds(epoch)
    records = epochs.samples(epoch * count + np.arange(count))
    numbers = rounds.of(epoch, np.arange(count))
    streams = records >= held
    assert numbers[streams].tolist() == [
        number
        for number in range(len(streamed))
        for _ in range(streamed.begin(number), streamed.begin(number + 1))
    ]
    for number in range(rounds.per_epoch):
        begin, end = rounds.begin(epoch, number), rounds.begin(epoch, number + 1)
        assert set(numbers[begin:end].tolist()) == {number}
    assert rounds.begin(epoch, 0) == 0 and rounds.begin(epoch, rounds.per_epoch) == count
    place = data.draw(st.integers(0, count - 1))
    first = next(rounds.from_place(epoch * count + place))
    assert first.epoch == epoch and first.begin <= epoch * count + place < first.end
