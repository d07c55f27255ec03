"""Goal: all roots find the same owners of each record; what a root brings is what others await.

Method: random jobs, strided and blocked, from any place on; the rules are written down once more,
use by use.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lmdbio.placement.base import FIRST, FREQUENCY, STEPS_MAX
from lmdbio.placement.cache import PLACEMENTS as KINDS
from lmdbio.placement.owners import RecordOwners, RecordSources, room_of
from lmdbio.planning.order import Epochs
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import Shuffle
from tests.placement.exchange import check_blocks

PLENTY = 1 << 40
PLACEMENTS = st.sampled_from(["first", "frequency"])


def a_schedule(seed: int, count: int, roots: int, *, ends: bool = True) -> Schedule:
    chance = np.random.default_rng(seed)
    ranks = roots + int(chance.integers(0, 4))
    team_of = [*range(roots), *chance.integers(0, roots, ranks - roots).tolist()]
    teams = tuple(tuple(i for i in range(ranks) if team_of[i] == root) for root in range(roots))
    shuffles = (None, Shuffle(), Shuffle.groups(7), Shuffle.windows(3, 4), Shuffle.runs(5))
    given_order = Shuffle.given(chance.permutation(count))
    shuffle = (*shuffles, given_order)[int(chance.integers(0, 6))]
    return Schedule(
        count,
        int(chance.integers(1, 2 * count + 1)),
        teams,
        ("strided", "blocked")[int(chance.integers(0, 2))],
        int(chance.integers(1, 5)),
        int(chance.choice([0, chance.integers(0, 3 * count)])),
        epochs=None if shuffle is None else Epochs(count, seed, shuffle),
        length=int(chance.integers(1, 6 * count)) if ends else None,
    )


def uses_of(schedule: Schedule, team: int) -> list[tuple[int, int, int]]:
    """Block, place and record of each use of a team, in their order."""
    found = []
    for block in range(schedule.blocks or 0):
        numbers = [one.numbers() for one in schedule.team_places(block, team)]
        places = np.concatenate([np.empty(0, np.int64), *numbers]) + schedule.first_place
        records = schedule.team_records(block, team).tolist()
        found += [(block, *pair) for pair in zip(places.tolist(), records, strict=True)]
    return found


def kept_by_hand(
    placement: str, schedule: Schedule, sizes: list[int], rooms: list[int]
) -> list[set[int]]:
    """The rules, use by use."""
    kept: list[set[int]] = [set() for _ in rooms]
    all_uses = sorted(
        (place, record, team) for team in range(len(rooms))
        for _, place, record in uses_of(schedule, team)
    )  # fmt: skip
    wanted: list[list[int]]
    if placement == "first":
        users: dict[int, int] = {}
        for _, record, team in all_uses:
            users.setdefault(record, team)
        wanted = [[r for r, user in users.items() if user == team] for team in range(len(rooms))]
    else:
        often = [Counter(r for _, r, t in all_uses if t == team) for team in range(len(rooms))]
        wanted = [sorted(one, key=lambda r, one=one: (-one[r], r)) for one in often]  # type: ignore[misc]
    for own, records, room in zip(kept, wanted, rooms, strict=True):
        for record in records:
            room -= sizes[record]
            if room < 0:
                break
            own.add(record)
    return kept


def owners_of(
    placement: str, seed: int, count: int, roots: int, *, is_warm: bool = False
) -> tuple[Schedule, np.ndarray, list[int], RecordOwners]:
    chance = np.random.default_rng(seed)
    schedule = a_schedule(seed, count, roots)
    sizes = room_of(chance.integers(0, 60, count).astype(np.uint64))
    rooms = [int(chance.choice([PLENTY, 0, 300, 1000])) for _ in range(roots)]
    return (
        schedule,
        sizes,
        rooms,
        KINDS[placement].owners(schedule, sizes, rooms, is_warm=is_warm),
    )


@given(PLACEMENTS, st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 5))
def test_each_root_keeps_what_the_rule_gives_it(
    placement: str, seed: int, count: int, roots: int
) -> None:
    schedule, sizes, rooms, owners = owners_of(placement, seed, count, roots)
    by_hand = kept_by_hand(placement, schedule, sizes.tolist(), rooms)
    for root in range(roots):
        assert owners.owned(root).tolist() == sorted(by_hand[root])
        assert sizes[owners.owned(root)].sum() <= rooms[root]
    assert np.flatnonzero(owners.are_owned).tolist() == sorted(set().union(*by_hand))
    if placement == "first":
        assert sum(map(len, by_hand)) == len(set().union(*by_hand)), "one home for each"


@given(PLACEMENTS, st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 5), st.booleans())
def test_rows_come_from_the_next_root_that_has_used_them_before(
    placement: str, seed: int, count: int, roots: int, is_warm: bool
) -> None:
    schedule, sizes, rooms, owners = owners_of(placement, seed, count, roots, is_warm=is_warm)
    kept = kept_by_hand(placement, schedule, sizes.tolist(), rooms)
    first: list[dict[int, int]] = [{} for _ in range(roots)]
    for root in range(roots):
        for _, place, record in uses_of(schedule, root):
            first[root].setdefault(record, -1 if is_warm else place)
    sources = RecordSources(schedule, owners)
    for team in range(roots):
        wanted: dict[int, list[int]] = {}
        for number, place, record in uses_of(schedule, team):
            near = [(team + i) % roots for i in range(roots)]
            has = [
                r for r in near if record in kept[r] and (r == team or first[r][record] < place)
            ]
            wanted.setdefault(number, []).append(has[0] if has else -1)
        for number in range(schedule.blocks or 0):
            block = sources.block(number, team)
            assert block.records.tolist() == schedule.team_records(number, team).tolist()
            found = np.full(len(block.records), -2)
            for i, root in enumerate(block.roots.tolist()):
                found[block.order[block.begins[i] : block.begins[i + 1]]] = root
            assert found.tolist() == wanted.get(number, [])


@given(PLACEMENTS, st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 5), st.booleans())
def test_what_roots_bring_is_what_teams_await(
    placement: str, seed: int, count: int, roots: int, is_warm: bool
) -> None:
    schedule, _, _, owners = owners_of(placement, seed, count, roots, is_warm=is_warm)
    check_blocks(RecordSources(schedule, owners), schedule)


def test_jobs_whose_uses_cannot_be_counted_are_refused() -> None:
    with pytest.raises(ValueError, match="needs epochs="):
        FREQUENCY.refuse_size(10, 2, None)
    with pytest.raises(ValueError, match=f"1,000,000,300 steps are more than {STEPS_MAX:,}"):
        FREQUENCY.refuse_size(100, 3, 10**9)
    FREQUENCY.refuse_size(1_281_167, 64, 90 * 1_281_167)
    FIRST.refuse_size(100, 3, 10**9)
