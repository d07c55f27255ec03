"""Goal: a forecast of records that roots keep is what the rule gives, row by row.

Method: all epochs of random jobs, use by use; the same against a real job is in
tests/mpi/keeping.py.
"""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from lmdbio import _core
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import Job, Outlook
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from tests.placement.test_keepers import kept_by_hand, uses_of

EPOCHS, PAGE = 4, 4096
OPTIONS = PlanOptions(0, 64 << 10)


def extents_of(count: int) -> _core.Extents:
    extents = np.zeros(count, _core.EXTENT)
    extents["offset"] = np.arange(count) * PAGE + 16
    extents["length"] = (np.arange(count) * 37) % 3000
    return extents


@settings(max_examples=60, deadline=None)
@given(
    st.integers(5, 80), st.integers(1, 4), st.integers(1, 2), st.integers(1, 30),
    st.sampled_from([None, GLOBAL, Shuffle.groups(8)]),
    st.sampled_from(["first", "frequency"]), st.booleans(), st.integers(1, 120_000),
)  # fmt: skip
def test_records_are_those_of_a_plain_count(
    count: int, nodes: int, each: int, batch: int, shuffle: Shuffle | None, placement: str,
    is_warm: bool, memory: int,
) -> None:  # fmt: skip
    cache = Cache(memory, placement=placement, warm="preload" if is_warm else "demand")
    job = Job(cache, batch, nodes, nodes * each, EPOCHS, shuffle, ends=True)
    extents = extents_of(count)
    outlook = Outlook(extents, job, OPTIONS, PAGE)
    told = list(outlook.epochs())
    assert (told[0].epoch is None) == is_warm
    schedule, lengths = outlook._record_counts._schedule, extents["length"]
    sources = [Counter[str]() for _ in range(EPOCHS)]
    sent = [0] * EPOCHS
    uses = [uses_of(schedule, team) for team in range(nodes)]
    sizes = (-(-lengths.astype(int) // 8) * 8).tolist()
    kept = kept_by_hand(placement, schedule, sizes, [memory] * nodes)
    held = int(lengths[sorted(set().union(*kept))].sum())
    assert outlook.held_bytes == held
    first = [{r: -1 if is_warm else place for _, place, r in reversed(own)} for own in uses]
    for team, own in enumerate(uses):
        for _, place, record in own:
            before = [r for r in range(nodes) if record in kept[r] and first[r][record] < place]
            is_own = record in kept[team]
            source = "own" if team in before else "peer" if before and not is_own else "file"
            sources[place // count][source] += 1
            sent[place // count] += int(lengths[record]) * (source == "peer")
    for one in told:
        if one.epoch is not None:
            wanted = tuple(sources[one.epoch][name] for name in ("own", "peer", "file"))
            assert one.supplied.records == (*wanted, 0), "none on a disk"
            assert one.supplied.sent_bytes == one.supplied.bytes[1] == sent[one.epoch]
            assert sum(one.supplied.bytes) == lengths.sum()
            assert not one.messages or wanted[1]


def test_all_is_read_beforehand_in_large_requests() -> None:
    job = Job(Cache("1M", placement="first", warm="preload"), 32, 4, 8, 1, GLOBAL)
    before, first = Outlook(extents_of(640), job, OPTIONS, PAGE).epochs()
    assert before.epoch is None and 0 < before.requests <= 640
    assert first.requests == first.supplied.records[2] == 0


def test_uses_that_cannot_be_counted_are_refused() -> None:
    job = Job(Cache("1M", placement="frequency"), 32, 4, 8, 10**5, GLOBAL)
    with pytest.raises(ValueError, match=r"64,000 records .*: 6,400,256,000 steps"):
        next(Outlook(extents_of(64_000), job, OPTIONS, PAGE).epochs())
