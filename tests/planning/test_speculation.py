"""Goal: guesses of where records lie are soon right, never wasteful, and given up where they are
not; whatever they are, no record is taken from a place that was not read.

Method: extents of real databases, put in order, at random, and in two parts; roots that guess and
learn, iteration after iteration, as they do while they read.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from lmdbio import _core
from lmdbio.locate.open import open_record_index
from lmdbio.planning.reads import PAGE_BYTES
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.speculation import Guess, Speculation
from tests.support import databases

SIZES = {"3 KB": 3084, "small": 150, "20 KB": 20_000}
TEAMS = ((0, 1), (2, 3), (4, 5), (6, 7))
BATCH = 256


def extents_of(path: Path) -> tuple[_core.Extents, int]:
    with open_record_index(path, locate="scan") as source:
        return source.run(0, source.count).copy(), source.pages.size()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[_core.Extents, int]]:
    folder = tmp_path_factory.mktemp("speculation")
    found = {}
    for name, length in SIZES.items():
        records = databases.records(4000 if length < 10_000 else 1500, lambda _, n=length: n)
        shuffled = random.Random(1).sample(records, len(records))
        for order, content in (("in order", records), ("shuffled", shuffled)):
            with databases.open_writable(folder / f"{name} {order}", 1) as env:
                databases.write(env, content, commit_every=1000)
            found[f"{name} {order}"] = extents_of(folder / f"{name} {order}")
    return found


def pages(extents: _core.Extents) -> set[int]:
    return {
        page
        for offset, length in extents.tolist()
        for page in range(offset // PAGE_BYTES, (offset + length - 1) // PAGE_BYTES + 1)
    }


def play(
    extents: _core.Extents, size: int, iterations: int, start: int = 0
) -> list[tuple[float, float, bool]]:
    """(hit share, wasted pages over needed, whether all guessed) of each iteration."""
    count = len(extents)
    schedule = Schedule(count, BATCH, TEAMS, start=start)
    roots = [Speculation(count, size, extents[:BATCH]) for _ in TEAMS]
    told = []
    for t in range(iterations):
        hits = needed = wasted = guesses = 0
        for team, root in enumerate(roots):
            runs = [run for run in schedule.course(t) if run.team == team]
            guess = root.guess(runs, start)
            mine = extents[schedule.team_records(t, team)]
            wanted = pages(mine)
            needed += len(wanted)
            if guess is not None:
                guesses += 1
                begins = np.cumsum(guess.ranges["length"]) - guess.ranges["length"]
                hits += int((guess.places(mine, begins.astype(np.uint64)) >= 0).sum())
                wasted += len(pages(guess.ranges) - wanted)
                assert int((guess.ranges["offset"] + guess.ranges["length"]).max()) <= size
            root.learn(int(schedule.team_records(t, team)[0]), mine)
        told.append((hits / BATCH, wasted / needed, guesses == len(roots)))
    return told


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("start", [0, 1111])
def test_records_put_in_order_are_guessed_within_five_iterations(
    size: str, start: int, stored: dict[str, tuple[_core.Extents, int]]
) -> None:
    told = play(*stored[f"{size} in order"], iterations=40, start=start)
    later = told[5:]
    least = 0.8 if size == "small" else 0.95  # of these a share has two or three pages
    assert np.mean([hits for hits, _, _ in later]) > least, told
    assert np.mean([wasted for _, wasted, _ in told]) <= 1.0, told
    if size != "small":
        assert all(wasted <= 1.0 for _, wasted, _ in told), told


@pytest.mark.parametrize("size", SIZES)
def test_records_put_at_random_are_soon_guessed_no_more(
    size: str, stored: dict[str, tuple[_core.Extents, int]]
) -> None:
    told = play(*stored[f"{size} shuffled"], iterations=20)
    assert np.mean([wasted for _, wasted, _ in told]) <= 1.0, told
    if size == "20 KB":
        assert not any(guessed for _, _, guessed in told[6:]), told


def test_guesses_begin_again_where_records_are_in_order_again(
    stored: dict[str, tuple[_core.Extents, int]],
) -> None:
    extents, size = stored["3 KB in order"]
    mixed = extents.copy()
    np.random.default_rng(3).shuffle(mixed[1000:2000])
    told = play(mixed, size, iterations=15)
    assert told[2][0] > 0.95
    assert min(hits for hits, _, _ in told[4:8]) < 0.6
    assert told[-1][0] > 0.95, told


def test_a_place_is_told_only_where_all_of_a_record_was_read() -> None:
    ranges = np.array([(4096, 8192), (40960, 4096)], _core.EXTENT)
    begins = np.array([100, 9000], np.uint64)
    extents = np.array(
        [
            (4096, 10),
            (4095, 10),
            (12287, 1),
            (12287, 2),
            (12288, 0),
            (0, 5000),
            (40960, 4096),
            (40961, 4096),
            (45055, 1),
            (2**63, 1),
            (5000, 2**63),
        ],
        _core.EXTENT,
    )
    assert Guess(ranges).places(extents, begins).tolist() == [
        100,
        -1,
        100 + 8191,
        -1,
        100 + 8192,
        -1,
        9000,
        -1,
        9000 + 4095,
        -1,
        -1,
    ]


def test_one_record_alone_and_a_data_set_of_one_are_no_trouble() -> None:
    one = np.array([(4096, 10)], _core.EXTENT)
    schedule = Schedule(1, 3, ((0,),))
    root = Speculation(1, 8192, one)
    for t in range(5):
        root.guess(schedule.course(t), 0)
        root.learn(0, one[np.zeros(3, int)])
