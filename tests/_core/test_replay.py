"""Replays (csrc/replay.h) of databases that py-lmdb made: every record, or the right refusal.

Goal: where each record lies, and what the meta page says, follows from how the database was made,
in both formats; another history is seen to differ; nothing crashes. Method: random histories
written by py-lmdb, replayed and compared with a walk of the file. ``make replay`` does a thousand
of each format. The random seed is today's, so that every day tries others.
"""

from __future__ import annotations

import dataclasses
import random
import time
from pathlib import Path

import numpy as np
import pytest

from lmdbio import _core
from lmdbio._core import SplitRule
from lmdbio.errors import IncompatibleError
from lmdbio.locate.open import open_record_index
from tests.support import databases, histories

TODAY = int(time.time()) // 86400
FEW = 60


def some(**more: object) -> _core.History:
    usual = {"version": 1, "page_size": 4096, "count": 1000, "commit_every": 100}
    return _core.History(**(usual | {"key_size": 8, "length": 3000} | more))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [1, 3])
def test_every_record_is_where_the_replay_says(tmp_path: Path, version: int) -> None:
    for turn in range(FEW):
        seed = f"{TODAY}/{version}/{turn}"
        made = histories.make(random.Random(seed), tmp_path / str(turn), version)
        assert not histories.differences(made), f"seed {seed}: {made.told}"


@pytest.mark.parametrize("records", [1, 7, 100, 999])
def test_a_replay_in_parts_is_the_same(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals are looked at between the parts, which end anywhere in a transaction."""
    order = np.random.default_rng(1).permutation(1000)
    for more in ({}, {"named": True}, {"named": True, "apart": True}, {"length": 100}):
        history = some(**more)
        whole = [_core.replay(history), _core.replay(history, order=order)]
        with monkeypatch.context() as patch:
            patch.setattr("lmdbio._core.history.SLICE", records)
            parts = [_core.replay(history), _core.replay(history, order=order)]
        for a, b in zip(whole, parts, strict=True):
            assert np.array_equal(a.extents, b.extents)
            assert dataclasses.replace(a, extents=None) == dataclasses.replace(b, extents=None)


@pytest.mark.parametrize("version", [1, 3])
def test_another_history_is_seen_to_differ(tmp_path: Path, version: int) -> None:
    """A history compared record by record is never taken for right when it is not."""
    seen = 0
    for turn in range(FEW):
        made = histories.make(random.Random(f"{TODAY}/{turn}"), tmp_path / str(turn), version)
        assert made.replay(expected=made.expected).extents is not None
        for change in (
            {"commit_every": made.history.commit_every + 1},
            {"append": not made.history.append},
            {"version": 4 - version},
        ):
            other = dataclasses.replace(made.history, **change)
            full, early = made.replay(other), made.replay(other, expected=made.expected)
            assert full.extents is not None
            put = np.flatnonzero((full.extents != made.expected)[made.order])
            if len(put):
                assert early.extents is None and early.right in put, made.told
                seen += 1
            else:
                assert early.right == made.history.count
    assert seen > FEW


def test_a_commit_is_seen_where_it_was_made(tmp_path: Path) -> None:
    """One transaction too long differs from its first commit on: that is how it is found."""
    env = databases.open_writable(tmp_path / "env", 1)
    databases.write(
        env, ((b"%08d" % i, bytes(3000)) for i in range(5000)), commit_every=700, append=True
    )
    env.close()
    with open_record_index(tmp_path / "env", locate="scan") as source:
        expected = source.run(0, 5000).copy()
    history = some(count=5000, commit_every=5000, append=True)
    assert _core.replay(history, expected=expected).right == 700
    history = dataclasses.replace(history, commit_every=700)
    assert _core.replay(history, expected=expected).right == 5000


def test_older_rules_of_splitting_are_other_histories() -> None:
    order = np.random.default_rng(1).permutation(1000)
    several = {
        rule: _core.replay(some(split=rule, length=120), order=order).extents for rule in SplitRule
    }
    first = several[SplitRule.BY_PAGE]
    assert first is not None
    assert not np.array_equal(first, several[SplitRule.BY_TWENTY])
    falls = [_core.replay(some(split=rule, length=120)).extents for rule in SplitRule]
    assert np.array_equal(falls[0], falls[1])
    assert not np.array_equal(falls[0], falls[2])


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2},
        {"page_size": 4095},
        {"page_size": 128},
        {"count": 0},
        {"commit_every": 0},
        {"key_size": 0},
        {"key_size": 512},
        {"page_size": 256, "key_size": 200},
        {"length": 2**32 - 1},
        {"split": 3},
    ],
)
def test_what_is_no_history_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"history|impossible"):
        _core.replay(some(**wrong))


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="permutation"):
        _core.replay(some(count=3), order=[0, 1, 1])
    with pytest.raises(ValueError, match="permutation"):
        _core.replay(some(count=3), order=[0, 1, 3])
    for name in ("order", "lengths", "key_sizes"):
        with pytest.raises(ValueError, match=name):
            _core.replay(some(count=3), **{name: [1, 2]})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected"):
        _core.replay(some(count=3), expected=np.zeros(2, _core.EXTENT))
    with pytest.raises(ValueError, match="impossible"):
        _core.replay(some(count=3), key_sizes=[8, 0, 8])


def test_a_free_list_of_many_pages_is_refused() -> None:
    """Nobody models how that tree is split; whoever wrote so is served by other forms."""
    order = np.random.default_rng(1).permutation(20_000)
    with pytest.raises(IncompatibleError, match="free list"):
        _core.replay(some(count=20_000, commit_every=2, page_size=256, length=100), order=order)
