"""Goal: root and reader find by themselves, and alike, which rows go from one to the other.

Method: small schedules of every kind. For each pair of teams, the rows that the one asks for,
block by block, are the rows that the other is to send, in the same order.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio.placement.sources import WindowSources
from lmdbio.planning.order import Epochs
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import Shuffle

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
@settings(max_examples=200, deadline=None)
def test_each_row_is_sent_as_it_is_asked_for(drawn: tuple[Schedule, Epochs]) -> None:
    schedule, epochs = drawn
    sources, teams = WindowSources(schedule, epochs), range(len(schedule.teams))
    asked: dict[tuple[int, int], list[tuple[int, int, list[int]]]] = {}
    own = 0
    for block, team in itertools.product(range(schedule.blocks or 0), teams):
        rows = sources.block(block, team)
        assert np.array_equal(rows.records, schedule.team_records(block, team).view(np.int64))
        assert sorted(rows.order.tolist()) == list(range(len(rows.records)))
        for run, (first, end) in enumerate(itertools.pairwise(rows.begins.tolist())):
            records = rows.records[rows.order[first:end]].tolist()
            if rows.roots[run] == team:
                own += len(records)
            else:
                part = block, int(rows.rounds[run]), records
                asked.setdefault((int(rows.roots[run]), team), []).append(part)
    sent: dict[tuple[int, int], list[tuple[int, int, list[int]]]] = {}
    kept, per_epoch = 0, len(sources.sequence.rounds(0))
    for one in sources.sequence.from_place(schedule.first_place):
        if one.begin >= schedule.first_place + (schedule.end or 0):
            break
        for root in teams:
            uses = sources.uses(one, root)
            assert (np.diff(uses.records) > 0).all()
            kept += uses.own
            for run, (first, end) in enumerate(itertools.pairwise(uses.begins.tolist())):
                records = uses.records[uses.order[first:end]].tolist()
                part = int(uses.blocks[run]), one.epoch * per_epoch + one.number, records
                sent.setdefault((root, int(uses.teams[run])), []).append(part)
    assert asked == sent
    assert own == kept


@given(schedules())
@settings(max_examples=200, deadline=None)
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
            (root,) = rounds.holder(rows.records[[row]]).tolist()
            expected.append((epoch * per_epoch + one, root, row))
        runs = np.repeat(np.arange(len(rows.roots)), np.diff(rows.begins))
        pairs = zip(rows.rounds[runs].tolist(), rows.roots[runs].tolist(), strict=True)
        found = [(*pair, row) for pair, row in zip(pairs, rows.order.tolist(), strict=True)]
        assert found == sorted(expected)
        assert len(set(zip(rows.rounds.tolist(), rows.roots.tolist(), strict=True))) == len(
            rows.roots
        )


@given(schedules())
@settings(max_examples=100, deadline=None)
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
