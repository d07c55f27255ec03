"""Goal: roots copy what their ranks use most, and have it two epochs later. Pure.

Law, use by use: a team's row comes from its copy where its root copies the record, and its ranks
have used it two epochs before or earlier; its home sends it then to nobody of that team. Homes
send all that teams ask for, and nothing else. In jobs of several ranks: tests/mpi/copying.py.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lmdbio import Cache, _core
from lmdbio.planning import copies as copying
from lmdbio.planning.forecast import Job
from lmdbio.planning.homes import Grains, Homes, Room
from lmdbio.planning.keepers import room_of
from lmdbio.planning.order import Epochs
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import GLOBAL

GRAIN = 4096


def extents_of(sizes: list[int]) -> np.ndarray:
    extents = np.zeros(len(sizes), _core.EXTENT)
    extents["length"] = sizes
    extents["offset"] = 8192 + np.cumsum([0, *sizes[:-1]])
    return extents


def homes_of(extents: np.ndarray, rooms: list[int]) -> Homes:
    end = int((extents["offset"] + extents["length"]).max())
    grains = Grains.of([extents], end, GRAIN)
    return Homes.of(grains, rooms, len(extents), lambda first, last: extents[first:last])


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 6000), min_size=12, max_size=60),
    teams=st.integers(2, 4),
    batch=st.integers(1, 12),
    k=st.integers(1, 3),
    start=st.integers(0, 90),
    assignment=st.sampled_from(["strided", "blocked"]),
    extra=st.integers(0, 60000),
)
def test_what_homes_send_is_what_teams_ask_for_and_copies_are_two_epochs_old(
    sizes: list[int],
    teams: int,
    batch: int,
    k: int,
    start: int,
    assignment: str,
    extra: int,
) -> None:
    extents, count = extents_of([*sizes, 1]), len(sizes) + 1
    rooms = [Room(1 << 20)] * teams
    homes = homes_of(extents, [room.memory for room in rooms])
    spares = [min(spare, extra) for spare in copying.spare_rooms(homes, rooms)]
    schedule = Schedule(
        count, batch, tuple((i,) for i in range(teams)), assignment, k, start,
        epochs=Epochs(count, 7, GLOBAL), length=max(0, 5 * count - start),
    )  # fmt: skip
    lengths = room_of(extents["length"])
    copies = copying.copy_most_used(schedule, homes, lengths, spares)
    if batch * k > count or not extra:
        assert copies is None
        return
    assert copies is not None
    for root, spare in enumerate(spares):
        kept = copies.kept(root)
        assert int(lengths[kept].sum()) <= spare
        assert not (homes.records[kept] == root).any(), "it is its home"
    sources = copying.CopiedSources(schedule, homes, False, copies)
    first: list[dict[int, int]] = [{} for _ in range(teams)]
    asked: Counter[tuple[int, int, int]] = Counter()  # block, team, record
    for block in range(schedule.blocks or 0):
        for team in range(teams):
            found, epochs = sources.block(block, team), {}
            begin = 0
            for epoch, end in copying.row_epochs(schedule, block, team):
                epochs.update(dict.fromkeys(range(begin, end), epoch))
                begin = end
            for run, (root, number) in enumerate(zip(found.roots, found.rounds, strict=True)):
                for row in found.rows(run).tolist():
                    record, epoch = int(found.records[row]), epochs[row]
                    since = first[team].setdefault(record, epoch)
                    is_kept = record in set(copies.kept(team).tolist())
                    is_copied = is_kept and since + 2 <= epoch
                    assert (number == copying.COPIED) == is_copied
                    home = int(homes.records[record])
                    assert root == (team if is_copied else home)
                    if not is_copied and home != team:
                        asked[block, team, record] += 1
    sent: Counter[tuple[int, int, int]] = Counter()
    for block in range(schedule.blocks or 0):
        for root in range(teams):
            uses = sources.uses(block, root)
            assert (np.diff(uses.records) >= 0).all()
            for run, (team, number) in enumerate(zip(uses.teams, uses.blocks, strict=True)):
                assert number == block
                for place in uses.order[uses.begins[run] : uses.begins[run + 1]].tolist():
                    sent[block, int(team), int(uses.records[place])] += 1
    assert sent == asked


def test_memory_for_homes_that_do_not_hold_all_leaves_none() -> None:
    extents = extents_of([3000] * 40)
    rooms = [Room(5 * GRAIN)] * 3
    homes = homes_of(extents, [room.memory for room in rooms])
    assert copying.spare_rooms(homes, rooms) == [0, 0, 0]
    schedule = Schedule(40, 4, ((0,), (1,), (2,)), epochs=Epochs(40, 1), length=200)
    sizes = room_of(extents["length"])
    assert copying.copy_most_used(schedule, homes, sizes, [0, 0, 0]) is None


def test_copies_need_memory_and_an_end() -> None:
    with pytest.raises(ValueError, match="copies in memory"):
        Cache(disk="/local", placement="copies")
    with pytest.raises(ValueError, match="placement=home"):
        Job(Cache("1G", placement="copies"), 4, 2, 2, shuffle=GLOBAL, assignment="local")
