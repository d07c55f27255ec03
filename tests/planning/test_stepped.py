"""Epochs that begin with new batches. Goal: a schedule over them gives each rank, step by step,
the samples of its ``Shard``, and then what fills its batch up; wherever the first epoch begins.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio.placement import homes
from lmdbio.placement.sources import HomeSources, row_epochs
from lmdbio.planning.order import Steps
from lmdbio.planning.schedule import Places, Schedule
from lmdbio.planning.stepped import SteppedEpochs
from tests.support import long_run

EPOCHS = 3


@st.composite
def stepped(draw: st.DrawFn) -> SteppedEpochs:
    count, ranks = draw(st.integers(1, 60)), draw(st.integers(1, 7))
    drop_last, even = draw(st.booleans()), draw(st.booleans())
    most = max(1, count // ranks) if drop_last else 20
    steps = Steps(draw(st.integers(0, 3)), draw(st.integers(0, count)), drop_last, even)
    if drop_last and count < ranks:
        ranks = 1
    size, seed = draw(st.integers(1, most)), draw(st.sampled_from([None, 5]))
    return SteppedEpochs(count, seed, batch_size=size, ranks=ranks, steps=steps)


def schedule_of(epochs: SteppedEpochs, k: int = 1, per_team: int = 1) -> Schedule:
    ranks = range(epochs.ranks)
    teams = tuple(tuple(ranks[i : i + per_team]) for i in range(0, epochs.ranks, per_team))
    size = epochs.batch_size * epochs.ranks
    return Schedule(
        epochs.count, size, teams, block_iterations=k, start=epochs.start, epochs=epochs
    )


@given(stepped())
@settings(max_examples=long_run.cases(60), deadline=None)
def test_each_rank_has_the_samples_of_its_shard_and_then_what_fills_up(
    epochs: SteppedEpochs,
) -> None:
    schedule, iteration = schedule_of(epochs), 0
    first = epochs.steps.epoch
    for number in range(first, first + EPOCHS):
        order = epochs.epoch(number)
        used = epochs.steps.used if number == first else 0
        assert epochs.shard(number).used == used
        for step in range(len(epochs.shard(number))):
            place = schedule.place_after(iteration)
            assert place == epochs.begin(number) + step * schedule.batch_size
            assert place // epochs.places == number
            for rank in range(epochs.ranks):
                own = order.samples(epochs.shard(number, rank).places(step)).tolist()
                found = schedule.records(iteration, rank).tolist()
                assert found[: len(own)] == own and len(found) == epochs.batch_size
                assert epochs.taken(place, rank) == len(own)
            iteration += 1
    assert schedule.place_after(iteration) == epochs.begin(first + EPOCHS)


@given(stepped(), st.integers(1, 40))
@settings(max_examples=long_run.cases(60), deadline=None)
def test_no_record_is_more_often_at_neighbouring_places_than_is_told(
    epochs: SteppedEpochs, length: int
) -> None:
    begin = epochs.start
    samples = epochs.samples(np.arange(begin, begin + 2 * epochs.places + length)).tolist()
    for first in range(0, len(samples) - length + 1, max(1, epochs.places // 7)):
        most = Counter(samples[first : first + length]).most_common(1)[0][1]
        assert most <= epochs.uses_max(length)


@given(stepped(), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=long_run.cases(40), deadline=None)
def test_roots_find_the_records_and_the_epochs_of_their_rows(
    epochs: SteppedEpochs, k: int, per_team: int
) -> None:
    schedule = schedule_of(epochs, k, per_team)
    for block in range(4):
        for team in range(len(schedule.teams)):
            places: tuple[Places, ...] = schedule.team_places(block, team)
            records = schedule.team_records(block, team).tolist()
            numbers = np.concatenate([one.numbers() for one in places]) + schedule.first_place
            assert epochs.samples(numbers).tolist() == records
            found: list[int] = []
            for number, end in row_epochs(schedule, block, team):
                found += [number] * (end - len(found))
            assert found == (numbers // epochs.places).tolist()


def test_the_first_epoch_of_homes_is_the_one_that_goes_on() -> None:
    epochs = SteppedEpochs(10, 1, batch_size=4, ranks=1, steps=Steps(2, used=7))
    kept = homes.Homes(
        homes.Grains(12, np.empty(0, np.int64), np.zeros(1, np.uint32), 1),
        np.zeros(2, np.int64),
        np.zeros(10, np.uint16),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        (0,),
    )
    sources = HomeSources(schedule_of(epochs), kept)
    assert not sources.is_there(2) and sources.is_there(3)


@pytest.mark.parametrize("used", [0, 5])
def test_epochs_without_a_step_are_refused(used: int) -> None:
    with pytest.raises(ValueError, match=r"drop_last leaves out all of 5 .* has 6"):
        SteppedEpochs(5, batch_size=3, ranks=2, steps=Steps(used=used, drop_last=True))
    with pytest.raises(ValueError, match="7 of 5 samples"):
        SteppedEpochs(5, batch_size=3, ranks=2, steps=Steps(used=7))


def test_a_rest_that_is_dropped_begins_with_the_next_epoch() -> None:
    epochs = SteppedEpochs(10, batch_size=2, ranks=2, steps=Steps(3, used=9, drop_last=True))
    assert epochs.start == epochs.begin(4) == 4 * epochs.places == 32
