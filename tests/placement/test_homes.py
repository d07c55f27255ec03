"""Homes: every record has one, all roots agree on what each brings, and no grain is kept twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lmdbio import _core
from lmdbio.placement.homes import (
    GRAIN_BYTES_MAX,
    Grains,
    Homes,
    grain_bytes,
    order_by_left,
)
from lmdbio.placement.sources import HomeSources, row_epochs
from lmdbio.planning.deal import owner_in
from lmdbio.planning.order import Epochs
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import Shuffle
from tests.placement.exchange import check_blocks

GRAIN = 1 << 16
PLENTY = 1 << 40


def records_at(seed: int, count: int) -> _core.Extents:
    """Records of all sizes, some empty, some far apart, in any order."""
    chance = np.random.default_rng(seed)
    lengths = np.where(chance.random(count) < 0.1, 0, chance.integers(0, 3 * GRAIN, count))
    gaps = np.where(chance.random(count) < 0.2, chance.integers(0, 5 * GRAIN, count), 0)
    extents = np.zeros(count, _core.EXTENT)
    extents["offset"] = 4096 + np.cumsum(gaps) + np.cumsum(lengths) - lengths
    extents["length"] = lengths
    return extents[chance.permutation(count)]


def file_bytes(extents: _core.Extents) -> int:
    return int((extents["offset"] + extents["length"]).max()) + 1


def homes_of(extents: _core.Extents, rooms: list[int], roots: list[int] | None = None) -> Homes:
    grains = Grains.of([extents[:5], extents[5:]], file_bytes(extents), GRAIN)
    return Homes.of(grains, rooms, len(extents), lambda first, last: extents[first:last], roots)


def grains_under(extents: _core.Extents) -> set[int]:
    """The same, record by record."""
    return {
        grain
        for offset, length in zip(
            extents["offset"].tolist(), extents["length"].tolist(), strict=True
        )
        if length
        for grain in range(offset // GRAIN, (offset + length - 1) // GRAIN + 1)
    }


@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(1, 6), st.booleans())
def test_records_lie_in_the_grains_of_their_home(
    seed: int, count: int, roots: int, has_room: bool
) -> None:
    extents = records_at(seed, count)
    room = PLENTY if has_room else seed % (2 * file_bytes(extents) // roots)
    order = np.random.default_rng(seed).permutation(roots).tolist()
    homes = homes_of(extents, [room] * roots, order)
    grains = homes.grains
    assert [homes.parts[root] for root in order] == list(range(roots))
    assert grains.used.tolist() == sorted(grains_under(extents))
    kept = [homes.owned(root) for root in range(roots)]
    for root, own in enumerate(kept):
        assert len(own) * GRAIN <= max(room, 0)
        held = extents[homes.records == root]
        ends = (held["offset"] + held["length"])[held["length"] > 0].tolist()
        assert homes.limit(root) == max(ends, default=0)
        assert set(np.flatnonzero(grains.under(held)).tolist()) <= set(own)
        places = _core.place_extents(held, grains.bits, grains.numbers, own.start)
        for extent, place in zip(held, places.tolist(), strict=True):
            if extent["length"]:
                grain = int(grains.used[own.start + place // GRAIN])
                assert grain * GRAIN + place % GRAIN == extent["offset"]
    if has_room:
        assert homes.held_bytes == grains.used_bytes
        has_home = homes.records != _core.NO_HOME
        assert has_home.all() if len(grains.used) else not has_home.any()


def a_schedule(seed: int, count: int, roots: int) -> Schedule:
    chance = np.random.default_rng(seed)
    ranks = roots + int(chance.integers(0, 4))
    team_of = [*range(roots), *chance.integers(0, roots, ranks - roots).tolist()]
    teams = tuple(tuple(i for i in range(ranks) if team_of[i] == root) for root in range(roots))
    shuffles = (
        None,
        Shuffle(),
        Shuffle.groups(7),
        Shuffle.windows(3, 4),
        Shuffle.runs(5),
        Shuffle.given(chance.permutation(count)),
        Shuffle.mixed(count // 2, 2, 2),
    )
    shuffle = shuffles[int(chance.integers(0, len(shuffles)))]
    return Schedule(
        count,
        int(chance.integers(1, 2 * count + 1)),
        teams,
        ("strided", "blocked")[int(chance.integers(0, 2))],
        int(chance.integers(1, 5)),
        int(chance.integers(0, 3 * count)),
        epochs=None if shuffle is None else Epochs(count, seed, shuffle),
        length=None if chance.random() < 0.5 else int(chance.integers(1, 5 * count)),
    )


def a_local_one(schedule: Schedule, homes: Homes) -> Schedule:
    return replace(schedule, assignment="local", owner=owner_in(homes.records))


@given(st.integers(0, 2**32), st.integers(1, 120), st.integers(1, 5), st.booleans(), st.booleans())
def test_what_roots_bring_is_what_teams_await(
    seed: int, count: int, roots: int, has_room: bool, is_local: bool
) -> None:
    extents = records_at(seed, count)
    room = PLENTY if has_room else seed % (2 * file_bytes(extents) // roots)
    homes, schedule = homes_of(extents, [room] * roots), a_schedule(seed, count, roots)
    if is_local:
        schedule = a_local_one(schedule, homes)
    sources = HomeSources(schedule, homes)
    check_blocks(sources, schedule)
    for number in range(min(4, schedule.blocks or 4)):
        for team in range(roots):
            block = sources.block(number, team)
            owners = np.repeat(block.roots, np.diff(block.begins))
            assert owners.tolist() == homes.owner_of(block.records[block.order]).tolist()


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 4))
def test_rows_are_told_by_epoch(seed: int, count: int, roots: int) -> None:
    schedule = a_schedule(seed, count, roots)
    for number in range(min(3, schedule.blocks or 3)):
        for team in range(roots):
            runs = [places.numbers() for places in schedule.team_places(number, team)]
            places = np.concatenate([np.empty(0, np.int64), *runs])
            told: list[int] = []
            for epoch, end in row_epochs(schedule, number, team):
                told += [epoch] * (end - len(told))
            assert told == ((places + schedule.first_place) // count).tolist()


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 4))
def test_local_rows_are_told_by_epoch(seed: int, count: int, roots: int) -> None:
    """As often as each epoch has the record: rows of one epoch are those before its end."""
    schedule = a_schedule(seed, count, roots)
    local = a_local_one(schedule, homes_of(records_at(seed, count), [PLENTY] * roots))
    plain = replace(schedule, assignment="strided")
    for number in range(min(3, schedule.blocks or 3)):
        wanted: dict[int, list[int]] = {}
        for place, record in zip(
            plain.span(number), plain.sequence(plain.span(number)).tolist(), strict=True
        ):
            wanted.setdefault((plain.first_place + place) // count, []).append(record)
        found: dict[int, list[int]] = {}
        for team in range(roots):
            records, first = local.team_records(number, team).tolist(), 0
            for epoch, end in row_epochs(local, number, team):
                found.setdefault(epoch, []).extend(records[first:end])
                first = end
            assert first == len(records)
        assert {e: sorted(r) for e, r in found.items() if r} == {
            e: sorted(r) for e, r in wanted.items()
        }


def test_grains_are_as_large_as_requests_within_limits() -> None:
    assert grain_bytes(3 << 20, PLENTY, PLENTY) == 2 << 20
    assert grain_bytes(1, PLENTY, PLENTY) == 64 << 10
    assert grain_bytes(1 << 30, PLENTY, PLENTY) == GRAIN_BYTES_MAX
    assert grain_bytes(3 << 20, 160 << 20, PLENTY) == 1 << 20
    assert grain_bytes(3 << 20, PLENTY, 160 << 20) == 1 << 20


def test_homes_of_other_records_are_refused() -> None:
    homes = homes_of(records_at(1, 20), [PLENTY])
    with pytest.raises(ValueError, match="20 homes of 21 records"):
        HomeSources(Schedule(21, 4, ((0,),)), homes)


def test_more_roots_than_homes_have_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        homes_of(records_at(1, 20), [PLENTY] * _core.NO_HOME)


def test_one_large_record_costs_the_root_alone_in_whose_part_it_lies() -> None:
    extents = np.zeros(400, _core.EXTENT)
    lengths = np.full(400, GRAIN // 4)
    lengths[150] = 40 * GRAIN
    extents["offset"], extents["length"] = np.cumsum(lengths) - lengths, lengths
    homes = homes_of(extents, [PLENTY] * 4)
    kept = sum(len(homes.owned(root)) for root in range(4))
    assert kept <= len(homes.grains.used) + 40
    # With as little room as there is file, all but the large record's surplus is kept.
    share = file_bytes(extents) // 4 + GRAIN
    assert homes_of(extents, [share + 41 * GRAIN] * 4).held_bytes == homes.grains.used_bytes


def test_a_root_gets_the_part_that_it_has_left_before() -> None:
    assert order_by_left([None] * 3, 10) == [0, 1, 2]
    # Nodes 1 to 4 kept parts 0 to 3; node 1 is gone, and a new one comes last.
    assert order_by_left([20, 30, 40, None], 10) == [3, 0, 1, 2]
    assert order_by_left([31, 10, 19], 10) == [1, 2, 0], "about there is enough"
    assert order_by_left([10, 10, 500], 10) == [0, 1, 2], "one has it, and there is no such part"
    assert order_by_left([0], 0) == [0]
