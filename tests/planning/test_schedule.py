"""Goal: whatever the job looks like, its ranks consume the circular sequence and nothing else.

Method: the schedule is pure, so it is compared, for jobs drawn by hypothesis and for every
combination of a small table, with a definition spelled out record by record.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio.planning.order import Epoch, Epochs, split_share
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from tests.support import long_run


def contiguous_teams(ranks: int, teams: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(split_share(ranks, teams, i)) for i in range(teams))


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    ranks = draw(st.integers(1, 8))
    if draw(st.booleans()):
        teams = contiguous_teams(ranks, draw(st.integers(1, ranks)))
    else:  # ranks dealt to nodes in turn, as some launchers do
        nodes = draw(st.integers(1, ranks))
        teams = tuple(tuple(range(node, ranks, nodes)) for node in range(nodes))
    count = draw(st.integers(1, 50))
    shuffle = draw(st.sampled_from([None, GLOBAL, Shuffle.groups(3), Shuffle.windows(2, 3)]))
    is_whole = draw(st.booleans())
    return Schedule(
        count=count,
        batch_size=draw(st.integers(1, 40)),
        teams=teams,
        assignment=draw(st.sampled_from(["strided", "blocked"])),
        block_iterations=draw(st.integers(1, 7)),
        start=draw(st.integers(-100 if shuffle is None else 0, 10**12)),
        iterations=draw(st.integers(1, 20)) if is_whole else None,
        epochs=None if shuffle is None else Epochs(count, 7, shuffle),
        length=None if is_whole else draw(st.integers(1, 200)),
    )


def sequence(schedule: Schedule, first: int, last: int) -> list[int]:
    """Records of iterations [first, last), by the definition."""
    size = schedule.batch_size
    end = last * size if schedule.length is None else min(last * size, schedule.length)
    places = range(schedule.start + first * size, schedule.start + end)
    if schedule.epochs is None:
        return [place % schedule.count for place in places]
    epochs = schedule.epochs
    return [
        int(Epoch(epochs.count, epochs.seed, number, epochs.shuffle).samples([within])[0])
        for number, within in (divmod(place, schedule.count) for place in places)
    ]


@settings(max_examples=long_run.cases(300), deadline=None)
@given(schedules())
def test_the_union_of_shares_is_the_circular_sequence_in_every_aligned_window(
    schedule: Schedule,
) -> None:
    assert schedule.iterations is not None
    k = 1 if schedule.assignment == "strided" else schedule.block_iterations
    for first in range(0, schedule.iterations, k):
        last = min(first + k, schedule.iterations)
        got = [
            int(i)
            for t in range(first, last)
            for rank in range(schedule.ranks)
            for i in schedule.records(t, rank)
        ]
        assert sorted(got) == sorted(sequence(schedule, first, last))
        if schedule.assignment == "strided":
            assert got == sequence(schedule, first, last)


@settings(max_examples=long_run.cases(300), deadline=None)
@given(schedules())
def test_a_ranks_rows_of_its_teams_table_are_its_records(schedule: Schedule) -> None:
    assert schedule.iterations is not None and schedule.blocks is not None
    for rank in range(schedule.ranks):
        team = schedule.team_of(rank)
        tables = [schedule.team_records(block, team) for block in range(schedule.blocks)]
        for t in range(schedule.iterations):
            block, _ = schedule.block_of(t)
            rows = schedule.rows(t, rank)
            assert len(rows) == len(schedule.share(rank, t))
            np.testing.assert_array_equal(
                tables[block][rows.start : rows.stop], schedule.records(t, rank)
            )


@settings(max_examples=long_run.cases(200), deadline=None)
@given(schedules())
def test_blocked_gives_each_team_one_chunk_iteration_first_then_rank(schedule: Schedule) -> None:
    assert schedule.iterations is not None and schedule.blocks is not None
    if schedule.assignment != "blocked":
        return
    for block in range(schedule.blocks):
        first = block * schedule.block_iterations
        last = first + schedule.block_length(block)
        chunks = [
            [
                int(i)
                for t in range(first, last)
                for rank in team
                for i in schedule.records(t, rank)
            ]
            for team in schedule.teams
        ]
        assert list(itertools.chain(*chunks)) == sequence(schedule, first, last)


@settings(max_examples=long_run.cases(300), deadline=None)
@given(schedules(), st.integers(0, 20))
def test_what_was_used_ends_where_another_job_is_told_to_begin(
    schedule: Schedule, done: int
) -> None:
    assert schedule.iterations is not None
    done = min(done, schedule.iterations)
    used = [
        int(i)
        for t in range(done)
        for rank in range(schedule.ranks)
        for i in schedule.records(t, rank)
    ]
    try:
        start = schedule.start_after(done)
    except ValueError as error:
        assert schedule.assignment == "blocked" and "goes on only where a block" in str(error)
        assert done % schedule.block_iterations and len(schedule.teams) > 1
        return
    assert start - schedule.start == len(used)
    assert sorted(used) == sorted(sequence(schedule, 0, done))


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("batch_size", [1, 3, 8, 12, 256])
def test_shares_are_floors_as_documented_and_leave_nothing_out(
    ranks: int, batch_size: int
) -> None:
    shares = [split_share(batch_size, ranks, p) for p in range(ranks)]
    assert list(itertools.chain(*shares)) == list(range(batch_size))
    assert all(s.start == p * batch_size // ranks for p, s in enumerate(shares))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_the_drawing_in_the_modules_header_is_right() -> None:
    def of(assignment: str) -> list[list[list[int]]]:
        schedule = Schedule(100, 4, ((0,), (1,)), assignment, 2)
        return [[schedule.records(t, p).tolist() for t in (0, 1)] for p in (0, 1)]

    assert of("strided") == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert of("blocked") == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_an_endless_schedule_has_no_last_block() -> None:
    schedule = Schedule(10, 4, ((0,),), block_iterations=3)
    assert schedule.blocks is None
    assert schedule.block_length(10**15) == 3
    assert schedule.records(10**18, 0).tolist() == [(10**18 * 4 + i) % 10 for i in range(4)]


def test_runs_are_the_contiguous_pieces_of_a_teams_batch() -> None:
    dealt = Schedule(100, 8, ((0, 2), (1, 3)))
    assert dealt.runs(0) == (2, 2)
    packed = Schedule(100, 8, ((0, 1), (2, 3)))
    assert packed.runs(0) == packed.runs(1) == (4,)
    sparse = Schedule(100, 2, ((0, 1, 2), (3, 4, 5, 6, 7)))
    assert sparse.runs(0) == ()
    assert sum(map(sum, map(sparse.runs, (0, 1)))) == 2


@settings(max_examples=long_run.cases(200), deadline=None)
@given(schedules())
def test_tables_have_all_rows_of_their_team_and_no_others(schedule: Schedule) -> None:
    assert schedule.iterations is not None and schedule.blocks is not None
    for team, members in enumerate(schedule.teams):
        for block in range(schedule.blocks):
            first = block * schedule.block_iterations
            iterations = range(first, first + schedule.block_length(block))
            rows = [i for t in iterations for rank in members for i in schedule.rows(t, rank)]
            assert rows == list(range(len(schedule.team_records(block, team))))


@pytest.mark.parametrize("shuffle", [GLOBAL, Shuffle.groups(7), Shuffle.windows(5, 4)])
@pytest.mark.parametrize("assignment", ["strided", "blocked"])
def test_whole_epochs_have_each_record_once_and_the_last_batch_is_short(
    shuffle: Shuffle, assignment: str
) -> None:
    teams = ((0, 1), (2, 3, 4))
    schedule = Schedule(
        103, 12, teams, assignment, 4, epochs=Epochs(103, 1, shuffle), length=3 * 103
    )
    assert schedule.iterations == 26 and schedule.batch_length(25) == 9
    assert [len(schedule.records(25, rank)) for rank in range(5)] == [1, 2, 2, 2, 2]
    seen = np.concatenate(
        [schedule.records(t, rank) for t in range(26) for rank in range(5)]
    ).tolist()
    assert sorted(seen) == sorted([*range(103)] * 3)
    assert schedule.is_short(25) and not schedule.is_short(24)


def test_a_batch_may_span_two_epochs() -> None:
    schedule = Schedule(10, 8, ((0,),), epochs=Epochs(10, 3))
    both = np.concatenate([schedule.records(t, 0) for t in (0, 1, 2)])[:20]
    assert sorted(both[:10].tolist()) == sorted(both[10:].tolist()) == list(range(10))
    later = Schedule(10, 8, ((0,),), epochs=Epochs(10, 3), start=13)
    assert later.records(0, 0).tolist()[:7] == both[13:20].tolist()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"length": -1}, "length must not be negative"),
        ({"epochs": Epochs(10, 1), "start": -1}, "start must be a place from 0 to"),
        ({"epochs": Epochs(10, 1), "start": 10**30}, "start must be a place from 0 to"),
        ({"count": 0}, "no records"),
        ({"batch_size": 0}, "batch_size"),
        ({"block_iterations": 0}, "block_iterations"),
        ({"iterations": -1}, "iterations"),
        ({"assignment": "random"}, "strided"),
        ({"teams": ((0,), (2,))}, "every rank once"),
        ({"teams": ((0, 1), ())}, "every rank once"),
        ({"teams": ((1,), (0,))}, "ascending"),
    ],
)
def test_values_that_describe_no_schedule_are_refused(
    wrong: dict[str, object], words: str
) -> None:
    good: dict[str, object] = {"count": 10, "batch_size": 4, "teams": ((0,), (1,))}
    with pytest.raises(ValueError, match=words):
        Schedule(**(good | wrong))  # type: ignore[arg-type]


@settings(max_examples=long_run.cases(200), deadline=None)
@given(st.integers(1, 60), st.integers(1, 30), st.integers(1, 8), st.data())
def test_local_batches_are_those_of_strided_and_each_rank_takes_what_its_team_holds(
    count: int, batch_size: int, ranks: int, data: st.DataObject
) -> None:
    teams = contiguous_teams(ranks, data.draw(st.integers(1, ranks)))
    holder_of = np.array(
        data.draw(st.lists(st.integers(-1, len(teams) - 1), min_size=count, max_size=count))
    )
    shuffle = data.draw(st.sampled_from([None, GLOBAL, Shuffle.windows(2, 3)]))
    strided = Schedule(
        count, batch_size, teams, "strided", data.draw(st.integers(1, 3)),
        start=data.draw(st.integers(0, 200)),
        epochs=None if shuffle is None else Epochs(count, 3, shuffle),
        length=data.draw(st.none() | st.integers(3 * batch_size + 1, 4 * batch_size)),
    )  # fmt: skip
    local = replace(
        strided, assignment="local", owner=lambda records: holder_of[records.astype(np.int64)]
    )
    for iteration in range(4):
        shares = [local.records(iteration, rank) for rank in range(ranks)]
        usual = [strided.records(iteration, rank) for rank in range(ranks)]
        assert [len(share) for share in shares] == [len(share) for share in usual]
        assert sorted(np.concatenate(shares).tolist()) == sorted(np.concatenate(usual).tolist())
        if len(teams) == 1:
            assert np.array_equal(np.concatenate(shares), np.concatenate(usual))
        assert local.start_after(iteration) == strided.start_after(iteration)
    for block in range(min(2, local.blocks or 2)):
        for team, members in enumerate(teams):
            table = local.team_records(block, team)
            for step in range(local.block_length(block)):
                iteration = block * local.block_iterations + step
                for rank in members:
                    rows = local.rows(iteration, rank)
                    own = table[rows.start : rows.stop]
                    assert np.array_equal(own, local.records(iteration, rank))


def test_a_team_that_holds_its_share_takes_it_and_nothing_moves() -> None:
    teams = ((0, 1), (2, 3))
    schedule = Schedule(8, 8, teams, "local", owner=lambda records: (records % 2).astype(np.int64))
    assert schedule.team_records(0, 0).tolist() == [0, 2, 4, 6]
    assert [schedule.records(0, rank).tolist() for rank in (2, 3)] == [[1, 3], [5, 7]]
    with pytest.raises(ValueError, match="course"):
        schedule.course(0)


def test_local_needs_a_holder() -> None:
    with pytest.raises(ValueError, match="one of strided, blocked, not 'local'"):
        Schedule(8, 8, ((0,),), "local")
