"""Goal: root and reader find by themselves, and alike, which rows go from one to the other.

Method: small schedules of every kind. For each pair of teams, the rows that the one asks for,
block by block, are the rows that the other is to send, in the same order.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio import _core
from lmdbio.placement.homes import Grains, Homes
from lmdbio.placement.sources import HomeSources, HybridSources, WindowSources
from lmdbio.planning.order import Epochs
from lmdbio.planning.rounds import RoundSequence
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import Shuffle
from tests.placement.exchange import check_rounds
from tests.support import long_run

SHUFFLES = st.one_of(
    st.integers(2, 40).map(Shuffle.groups),
    st.tuples(st.integers(2, 9), st.integers(1, 9)).map(lambda sizes: Shuffle.windows(*sizes)),
)


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, Epochs]:
    """Teams of every size, ends in mid-batch, starts in mid-epoch; also the order of the file."""
    count, ranks = draw(st.integers(1, 200)), draw(st.integers(1, 6))
    cuts = sorted(draw(st.sets(st.integers(1, ranks))) | {0, ranks})
    teams = tuple(tuple(range(a, b)) for a, b in itertools.pairwise(cuts))
    start = draw(st.sampled_from([0, 7, count + 3]))
    length = draw(st.one_of(st.none(), st.just(max(0, 2 * count - start))))
    shuffled = Epochs(count, draw(st.sampled_from([None, 5])), draw(SHUFFLES))
    schedule = Schedule(
        count,
        draw(st.integers(1, 40)),
        teams,
        assignment=draw(st.sampled_from(["strided", "blocked"])),
        block_iterations=draw(st.integers(1, 4)),
        start=start,
        iterations=draw(st.integers(0, 12)) if length is None else None,
        length=length,
        epochs=None if shuffled.seed is None else shuffled,
    )
    return schedule, shuffled


@given(schedules())
@settings(max_examples=long_run.cases(200), deadline=None)
def test_each_row_is_sent_as_it_is_asked_for(drawn: tuple[Schedule, Epochs]) -> None:
    schedule, epochs = drawn
    check_rounds(WindowSources(schedule, epochs), schedule)


@given(schedules())
@settings(max_examples=long_run.cases(200), deadline=None)
def test_rows_come_in_the_round_and_from_the_root_of_their_records(
    drawn: tuple[Schedule, Epochs],
) -> None:
    schedule, epochs = drawn
    sources, per_epoch = WindowSources(schedule, epochs), 0
    for block, team in itertools.product(range(schedule.blocks or 0), range(len(schedule.teams))):
        rows = sources.block(block, team)
        places = [some.numbers() for some in schedule.team_places(block, team)]
        numbers, within = np.divmod(np.concatenate(places) + schedule.first_place, schedule.count)
        expected = []
        for row, epoch in enumerate(numbers.tolist()):
            rounds = sources.sequence.rounds(epoch)
            per_epoch = len(rounds)
            (one,) = rounds.of(within[[row]]).tolist()
            (root,) = rounds.owner(rows.records[[row]]).tolist()
            expected.append((epoch * per_epoch + one, root, row))
        runs = np.repeat(np.arange(len(rows.roots)), np.diff(rows.begins))
        pairs = zip(rows.rounds[runs].tolist(), rows.roots[runs].tolist(), strict=True)
        found = [(*pair, row) for pair, row in zip(pairs, rows.order.tolist(), strict=True)]
        assert found == sorted(expected)
        assert len(set(zip(rows.rounds.tolist(), rows.roots.tolist(), strict=True))) == len(
            rows.roots
        )


@given(schedules())
@settings(max_examples=long_run.cases(100), deadline=None)
def test_a_slice_is_that_of_the_rounds(drawn: tuple[Schedule, Epochs]) -> None:
    schedule, epochs = drawn
    sources, teams = WindowSources(schedule, epochs), range(len(schedule.teams))
    for one in itertools.islice(sources.sequence.from_place(schedule.first_place), 12):
        for root in teams:
            expected = sources.sequence.rounds(one.epoch).slice(one.number, root)
            assert np.array_equal(sources.uses(one, root).records, expected)


@pytest.mark.parametrize("assignment", ["strided", "blocked"])
def test_an_endless_schedule_has_seats_far_out(assignment: str) -> None:
    far = 10**9
    epochs = Epochs(100, 0, Shuffle.groups(16))
    schedule = Schedule(
        100, 10, ((0,), (1, 2)), assignment=assignment, block_iterations=3, start=4,
        epochs=epochs,
    )  # fmt: skip
    sources, sent, own = (
        WindowSources(schedule, epochs),
        dict[tuple[int, int], list[int]](),
        {0: 0, 1: 0},
    )
    rounds = sources.sequence.from_place(far * 30 + 4 - 100)
    for one in itertools.takewhile(lambda one: one.begin < far * 30 + 104, rounds):
        for root in (0, 1):
            uses = sources.uses(one, root)
            own[root] += uses.own
            for run, (first, end) in enumerate(itertools.pairwise(uses.begins.tolist())):
                key = int(uses.teams[run]), int(uses.blocks[run])
                sent.setdefault(key, []).extend(uses.records[uses.order[first:end]].tolist())
    for block in (far, far + 1, far + 2):
        for team in (0, 1):
            rows = sources.block(block, team)
            others = np.repeat(rows.roots, np.diff(rows.begins)) != team
            assert sent[team, block] == rows.records[rows.order[others]].tolist()
    assert all(own.values())


#: Of records, and of grains in which they lie.
BYTES, GRAIN = 500, 4096


@pytest.mark.more
@given(schedules(), st.data())
@settings(max_examples=long_run.cases(200), deadline=None)
def test_each_row_is_sent_where_some_have_a_home(
    drawn: tuple[Schedule, Epochs], data: st.DataObject
) -> None:
    schedule, count, teams = drawn[0], drawn[0].count, len(drawn[0].teams)
    extents = np.zeros(count, _core.EXTENT)
    extents["offset"], extents["length"] = np.arange(count) * BYTES, BYTES
    grains = Grains.of([extents], count * BYTES, GRAIN)
    room = data.draw(st.integers(0, len(grains.used) // teams)) * GRAIN
    homes = Homes.of(grains, [room] * teams, count, lambda a, b: extents[a:b])
    held = data.draw(st.integers(0, min(homes.first_records, count - 1)))
    shuffle = Shuffle.mixed(held, data.draw(st.integers(2, 9)), data.draw(st.integers(1, 9)))
    schedule = replace(schedule, epochs=Epochs(count, 5, shuffle))
    sources = HybridSources(HomeSources(schedule, homes))
    check_rounds(sources, schedule)
    for block, team in itertools.product(range(schedule.blocks or 0), range(teams)):
        rows = sources.block(block, team)
        for run, root in enumerate(rows.roots.tolist()):
            records = rows.records[rows.rows(run)]
            assert (homes.records[records[~sources.passing(records)]] == root).all()


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
