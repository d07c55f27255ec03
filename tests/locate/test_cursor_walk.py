"""Goal: records that are sought lie where a walk of the tree finds them, for one reader and for
many roots that share one cursor.

Method: databases of several shapes, walked round and round from anywhere. Roots are played in one
process; the cursor and the wishes for it take a random time; some roots are slow, some leave.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from lmdbio import _core
from lmdbio.errors import CorruptedError
from lmdbio.locate.cursor_walk import SOUGHT_MAX, CursorWalk, Relay, open_cursor_walk
from lmdbio.locate.open import open_record_index
from lmdbio.planning.schedule import Schedule
from tests.support import databases

SHAPES = ("mixed", "inline", "updated", "deep")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, _core.Extents]]:
    """Environment and all extents, by shape."""
    folder = tmp_path_factory.mktemp("seeking")
    found = {}
    for case in databases.CASES:
        if case.name in SHAPES:
            path = databases.build(case, folder, 1 if len(case.name) % 2 else 3)
            with open_record_index(path, locate="scan") as source:
                found[case.name] = path, source.run(0, source.count).copy()
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [1, 2])
def test_records_ahead_are_found_round_after_round(
    shape: str, seed: int, built: dict[str, tuple[Path, _core.Extents]]
) -> None:
    path, extents = built[shape]
    draw, count, position = random.Random(seed), len(extents), 0
    with open_cursor_walk(path) as walked:
        for _ in range(25):
            begins = position + draw.randrange(count)
            wanted = np.arange(begins, begins + draw.randrange(1, 2 * count))
            assert np.array_equal(
                walked.extents((wanted % count).astype(np.uint64)), extents[wanted % count]
            )
            position = int(wanted[-1]) + 1
            assert walked.position % count == position % count


def test_the_same_record_again_is_a_round_later(
    built: dict[str, tuple[Path, _core.Extents]],
) -> None:
    path, extents = built["mixed"]
    with open_cursor_walk(path) as walked:
        found = walked.extents(np.array([5, 5, 5], np.uint64))
        assert np.array_equal(found, extents[[5, 5, 5]])
        assert walked.position == 2 * len(extents) + 6


def test_a_tree_with_fewer_records_than_counted_is_damaged(
    built: dict[str, tuple[Path, _core.Extents]],
) -> None:
    path, extents = built["mixed"]
    with open_cursor_walk(path) as walked:
        walked.count += 1
        with pytest.raises(CorruptedError, match=rf"ends after {len(extents)} records"):
            walked.skip(len(extents) + 1)


def test_whoever_gives_up_in_the_middle_can_go_on(
    built: dict[str, tuple[Path, _core.Extents]],
) -> None:
    path, extents = built["inline"]
    calls = 0

    def alive() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise InterruptedError

    with open_cursor_walk(path) as walked:
        with pytest.raises(InterruptedError):
            walked.skip(1200, alive)
        position = walked.position
        assert 0 < position < 1200
        assert np.array_equal(walked.first(10), extents[position : position + 10])


# --- one cursor for many roots -----------------------------------------------------------


class Play:
    """Roots that share one cursor; letters arrive in any order but between two of them."""

    def __init__(self, path: Path, schedule: Schedule, seed: int) -> None:
        self.draw, self.schedule = random.Random(seed), schedule
        self.walks = [open_cursor_walk(path) for _ in schedule.teams]
        self.relays = [Relay(w, schedule, i) for i, w in enumerate(self.walks)]
        self.block = [0] * len(self.relays)
        self.gone: set[int] = set()
        self.letters: list[tuple[str, int, bytes]] = []
        self.found: dict[tuple[int, int], _core.Extents] = {}

    def step(self, slow: int | None = None) -> None:
        if self.letters and self.draw.random() < 0.5:
            kind, to, body = self.letters.pop(self.draw.randrange(len(self.letters)))
            relay = self.relays[to]
            (relay.come if kind == "cursor" else relay.hear)(body)
            return
        team = self.draw.randrange(len(self.relays))
        relay, block = self.relays[team], self.block[team]
        handover = relay.seek(-1 if team in self.gone else block)
        if handover is not None:
            self.letters.append(("cursor", handover.to, handover.body))
        if team in self.gone or block == self.schedule.blocks:
            return
        if team != slow and (extents := relay.found(block)) is not None:
            self.found[team, block] = extents
            self.block[team] += 1
        elif team != slow and not relay.holds and self.draw.random() < 0.1:
            others = [i for i in range(len(self.relays)) if i != team]
            self.letters += [("demand", i, relay.demand(block)) for i in others]

    def leave(self, team: int) -> None:
        self.gone.add(team)
        if not self.relays[team].is_out:
            self.relays[team].leave()

    def cursors(self) -> int:
        return sum(r.holds for r in self.relays) + sum(k == "cursor" for k, _, _ in self.letters)

    def close(self) -> None:
        for walk in self.walks:
            walk.close()


def schedules(count: int, iterations: int | None) -> list[Schedule]:
    interleaved = ((0, 3), (1, 4), (2, 5))
    return [
        Schedule(count, 37, ((0,), (1,), (2,)), start=count - 5, iterations=iterations),
        Schedule(count, 12, interleaved, start=3, iterations=iterations),
        Schedule(count, 2, ((0,), (1,), (2,), (3,)), iterations=iterations),
        Schedule(count, count + 9, ((0, 1), (2,)), "blocked", start=-1, iterations=iterations),
        Schedule(count, 20, ((0,),), iterations=iterations),
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("which", range(5))
def test_every_root_finds_its_own_records_and_the_cursor_ends(
    which: int, seed: int, built: dict[str, tuple[Path, _core.Extents]]
) -> None:
    path, extents = built[SHAPES[which % len(SHAPES)]]
    schedule = schedules(len(extents), 12)[which]
    play = Play(path, schedule, seed)
    for _ in range(20_000):
        assert play.cursors() <= 1
        play.step()
        if all(relay.is_out for relay in play.relays) and len(play.found) == 12 * len(play.block):
            break
    assert all(relay.is_out for relay in play.relays)
    for (team, block), found in play.found.items():
        records = schedule.team_records(block, team)
        assert np.array_equal(found, extents[records]), (team, block)
    assert len(play.found) == 12 * len(play.relays)
    play.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_root_does_not_hold_the_others_up_and_finds_its_records_later(
    seed: int, built: dict[str, tuple[Path, _core.Extents]]
) -> None:
    path, extents = built["inline"]
    schedule = schedules(len(extents), None)[0]
    play = Play(path, schedule, seed)
    ahead = SOUGHT_MAX + 10  # of the last ones it keeps nothing but where they begin
    for _ in range(200_000):
        play.step(slow=1)
        if min(play.block[0], play.block[2]) >= ahead:
            break
    assert play.block[1] == 0
    for _ in range(200_000):
        play.step()
        if play.block[1] >= ahead:
            break
    for (team, block), found in play.found.items():
        assert np.array_equal(found, extents[schedule.team_records(block, team)]), (team, block)
    assert play.block[1] >= ahead
    play.close()


@pytest.mark.parametrize("seed", range(6))
def test_roots_that_leave_are_passed_over_and_the_last_one_out_ends_it(
    seed: int, built: dict[str, tuple[Path, _core.Extents]]
) -> None:
    path, extents = built["mixed"]
    schedule = schedules(len(extents), None)[seed % 4]
    play = Play(path, schedule, seed)
    for turn in range(len(play.relays)):
        until = [block + 5 for block in play.block]
        for _ in range(100_000):
            play.step()
            if all(block >= until[i] for i, block in enumerate(play.block) if i not in play.gone):
                break
        else:
            pytest.fail("somebody is held up")
        play.leave((turn + seed) % len(play.relays))
    for _ in range(100_000):
        play.step()
        if all(relay.is_out for relay in play.relays):
            break
    assert all(relay.is_out for relay in play.relays)
    assert play.cursors() == 0
    for (team, block), found in play.found.items():
        assert np.array_equal(found, extents[schedule.team_records(block, team)]), (team, block)
    play.close()


def test_what_is_no_cursor_is_refused(built: dict[str, tuple[Path, _core.Extents]]) -> None:
    path, extents = built["mixed"]
    schedule = schedules(len(extents), None)[0]
    walked: CursorWalk
    with open_cursor_walk(path) as walked:
        relay = Relay(walked, schedule, 1)
        for body in (b"", b"x" * 16):
            with pytest.raises(RuntimeError, match="cursor"):
                relay.come(body)
        with pytest.raises(CorruptedError):
            relay.come(b"\1" + bytes(7) + b"\5" + bytes(8) + b"\1\0" + bytes(12))
