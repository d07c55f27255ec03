"""Goal: a Reader's job takes as long as what is scarcest takes, and its counts are the plans'.

Method: jobs so plain that one division says how long they take; the forecast's own counts; laws
that hold for any job. ``tests/mpi/simulated.py`` compares the counts with those of real jobs.
"""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from lmdbio import _core
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import Job, Outlook
from lmdbio.placement.policy import READERS
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from lmdbio.simulate import (
    POLICIES,
    ROW_SOURCES,
    Curve,
    Environment,
    Outcome,
    Policy,
    Tier,
    run_reader,
    run_readers,
)
from tests.support import long_run

PAGE, MIB = 4096, 1 << 20
OPTIONS = PlanOptions(0, 64 << 10)
WINDOWS = Shuffle.windows(32, 4)
FAST = Curve.of(1e9)
#: Nothing takes long here.
QUICK = Environment(
    4, 1e9, 1e9, 1e9, 1e9, FAST, Tier(1024, 2, FAST), (Tier(0, 1, FAST), Tier(0, 1, FAST))
)


def extents_of(count: int, length: int = PAGE) -> _core.Extents:
    """Records of whole pages, one behind the other."""
    extents = np.zeros(count, _core.EXTENT)
    extents["length"] = length
    extents["offset"] = np.arange(count) * length
    return extents


def run(job: Job, environment: Environment, count: int = 640) -> Outcome:
    return run_reader(extents_of(count), job, environment, OPTIONS)


def test_a_job_that_has_all_at_once_computes_alone() -> None:
    job = Job(Cache("64M"), 64, 4, 8, 3, GLOBAL, ends=True)
    found = run(job, replace(QUICK, compute=1.0))
    assert found.seconds == pytest.approx(3 * 640 * PAGE / MIB / 4, rel=1e-6)
    assert found.bound_seconds == pytest.approx(found.seconds)
    assert found.epochs is not None
    assert [epoch for epoch, _ in found.epochs] == pytest.approx([640 * PAGE / MIB / 4] * 3)


@pytest.mark.parametrize("epochs", [1, 3])
def test_without_a_cache_the_file_is_read_in_each_epoch(epochs: int) -> None:
    job = Job(None, 64, 4, 8, epochs, GLOBAL, ends=True)
    found = run(job, replace(QUICK, file_system=Curve.of(2.0)))
    assert found.seconds == pytest.approx(epochs * 640 * PAGE / MIB / 2, rel=1e-5)
    assert found.stall_seconds == pytest.approx(found.seconds, rel=1e-4)
    # A root's rows of a batch are one request each, but for neighbours.
    slow = run(job, replace(QUICK, file_request=1.0))
    assert 0.8 * epochs * 640 < (slow.seconds or 0) <= epochs * 640


def test_with_a_cache_the_file_is_read_once_and_first_touched_early() -> None:
    job = Job(Cache("64M"), 64, 4, 8, 3, GLOBAL, ends=True)
    found = run(job, replace(QUICK, file_system=Curve.of(2.0)))
    whole = 640 * PAGE / MIB / 2
    assert found.seconds == pytest.approx(whole, rel=1e-5)
    assert found.stalls is not None and found.stalls[0] > 0.5 * whole
    before = run(replace(job, cache=Cache("64M", warm="preload")), QUICK)
    assert before.init_seconds > 0 and before.stall_seconds < 1e-3
    requests = run(job, replace(QUICK, file_request=1.0))
    assert requests.seconds == pytest.approx(640 * PAGE / (64 << 10), rel=1e-5)


def test_the_network_carries_what_others_hold_each_way_and_local_jobs_need_little_of_it() -> None:
    job = Job(Cache("64M", warm="preload"), 64, 4, 8, 2, GLOBAL, ends=True)
    network = replace(QUICK, network=0.5)
    strided, local = (run(replace(job, assignment=n), network) for n in ("strided", "local"))
    assert strided.reads is not None and strided.seconds is not None
    sent = sum(epoch["peer"] for epoch in strided.reads) * PAGE / MIB / 4
    # The busiest node of each iteration counts, not the mean.
    assert sent / 0.5 < strided.seconds < 2 * sent / 0.5
    assert (local.seconds or 0) < 0.5 * strided.seconds


def test_disks_serve_what_memory_has_no_room_for() -> None:
    whole = 640 * PAGE
    cache = Cache(memory=whole // 8, disk="/d", disk_bytes=whole, warm="preload")
    job = Job(cache, 64, 4, 8, 2, GLOBAL, ends=True)
    disk = Tier(0, 1, Curve.of(0.25))
    slow = run(job, replace(QUICK, tiers=(QUICK.tiers[0], disk)))
    half = whole / MIB / 4 / 2  # of a root's part, an epoch; it is written before the first one
    assert slow.init_seconds == pytest.approx(half / 0.25, rel=0.1)
    assert 2 * half / 0.25 < (slow.seconds or 0) - slow.init_seconds < 2 * 2 * half / 0.25
    with pytest.raises(ValueError, match="the cache has 2 tiers"):
        run(job, replace(QUICK, tiers=()))


def test_reading_ahead_hides_loading_behind_computing_as_far_as_there_is_room() -> None:
    job = Job(None, 64, 4, 8, 1, GLOBAL, ends=True)
    each = 64 * PAGE / MIB
    even = replace(QUICK, compute=each / 4, file_system=Curve.of(each))  # a second each
    ahead, naive = (
        run_reader(extents_of(640), job, even, OPTIONS, reads_ahead=way) for way in (True, False)
    )
    assert naive.seconds == pytest.approx(20, rel=0.2)
    assert ahead.seconds == pytest.approx(11, rel=0.2)
    short = replace(even, staging=replace(even.staging, capacity=1e-6))
    assert ahead.seconds <= (run(job, short).seconds or 0) <= (naive.seconds or 0)


def test_windows_are_read_whole_before_they_are_used() -> None:
    job = Job(None, 64, 4, 8, 1, WINDOWS, ends=True)
    found = run(job, replace(QUICK, file_system=Curve.of(1.0)))
    assert found.seconds == pytest.approx(640 * PAGE / MIB, rel=1e-4)
    assert found.stalls is not None
    assert found.stalls[0] == pytest.approx(128 * PAGE / MIB, rel=1e-3)
    assert found.reads is not None and found.reads[0]["file"] == 0


shuffles = st.sampled_from([None, GLOBAL, Shuffle.groups(8), Shuffle.windows(4, 5)])
caches = st.sampled_from(
    [
        None,
        Cache("64K"),
        Cache("256K", warm="preload"),
        Cache("128K", "/d", "128K"),
        Cache("64M", placement="first"),
        Cache("1M", placement="mixed"),
    ]
)


@settings(max_examples=long_run.cases(80), deadline=None)
@given(
    st.integers(20, 200), st.integers(1, 4), st.integers(1, 3), st.integers(1, 250), shuffles,
    caches, st.integers(0, 9), st.booleans(),
)  # fmt: skip
def test_counts_are_the_forecasts_and_time_adds_up(
    count: int, nodes: int, each: int, batch: int, shuffle: Shuffle | None, cache: Cache | None,
    seed: int, local: bool,
) -> None:  # fmt: skip
    try:
        job = Job(
            cache, batch, nodes, nodes * each, 2, shuffle, ends=True, seed=seed,
            assignment="local" if local else "strided",
        )  # fmt: skip
        outlook = Outlook(extents_of(count), job, OPTIONS, PAGE)
    except ValueError as error:
        assert "needs" in str(error) or "two windows" in str(error)
        return
    found = run(job, replace(QUICK, compute=1.0, file_system=Curve.of(1.0)), count)
    assert found.reads is not None and found.bytes is not None and found.epochs is not None
    told = [one for one in outlook.epochs() if one.epoch is not None]
    for one, records, sizes in zip(told, found.reads, found.bytes, strict=True):
        assert records == dict(zip(ROW_SOURCES, one.supplied.records, strict=True))
        assert sizes == dict(zip(ROW_SOURCES, one.supplied.bytes, strict=True))
        assert sum(records.values()) == count
    epochs = sum(seconds for seconds, _ in found.epochs)
    assert found.init_seconds + epochs == pytest.approx(found.seconds)
    assert (found.seconds or 0) >= found.bound_seconds * (1 - 1e-9)
    read = sum(one.read_bytes for one in outlook.epochs()) / MIB
    assert (found.seconds or 0) >= read * (1 - 1e-6), "the file system gives 1 M a second"


def test_bytes_are_rounded_as_a_reader_counts_them() -> None:
    found = run_reader(extents_of(10, 1001), Job(None, 4, 1, 1, 1, ends=True), QUICK, OPTIONS)
    assert found.bytes == ({"own": 0, "peer": 0, "file": 10 * 1008, "disk": 0},)


def outcomes(memory: str, *, disk: bool = False) -> dict[str, Outcome]:
    cache = Cache(memory, "/d", "64M") if disk else Cache(memory)
    job = Job(cache, 64, 4, 8, 2, GLOBAL, ends=True)
    found = run_readers(extents_of(640), POLICIES, job, QUICK, OPTIONS, WINDOWS)
    return {one.policy: one for one in found}


def test_every_policy_that_a_reader_runs_has_counts_and_others_say_why() -> None:
    found = outcomes("64M")
    assert list(found) == [policy.name for policy in POLICIES]
    for name, one in found.items():
        if name == "lower_bound":
            assert one.seconds == one.bound_seconds
        elif name in READERS:
            assert one.reason is None and one.reads is not None
        else:
            assert one.reason == "no Reader runs it" and one.seconds is None
    counts = {name: one.reads or () for name, one in found.items()}
    assert all(epoch["file"] == 640 for epoch in counts["staging_pool"])
    assert counts["deepio_ordered"] == counts["lbann_preloading"]
    assert [epoch["file"] for epoch in counts["lmdbio"]] == [640, 0]
    assert counts["locality_aware"][1]["peer"] < 0.3 * counts["deepio_ordered"][1]["peer"]
    assert counts["deepio_opportunistic"][1]["file"] == 0


def test_policies_take_their_tiers_and_refuse_what_does_not_fit() -> None:
    less, both = outcomes("256K"), outcomes("256K", disk=True)
    for found in (less, both):
        assert "exceed" in (found["lbann_preloading"].reason or "")
    memory_alone = both["deepio_ordered"].reads or ()
    assert memory_alone[1]["file"] > 0 and (both["lmdbio"].reads or ())[1]["file"] == 0


def test_policies_that_keep_need_a_tier_and_words_follow_the_policy() -> None:
    job = Job(None, 64, 4, 8, 2, GLOBAL, ends=True)
    none = {
        one.policy: one
        for one in run_readers(extents_of(64), POLICIES, job, QUICK, OPTIONS, WINDOWS)
    }
    for name, one in none.items():
        if Policy.named(name).placement in ("home", "first"):
            assert one.seconds is None and "no tier has room" in (one.reason or ""), name
    assert none["hdmlp"].reads == none["staging_pool"].reads == none["naive"].reads
    cache = Cache("1M", "/d", "2M")
    words = {one.name: one.words(cache, GLOBAL, WINDOWS) for one in POLICIES}
    assert {name for name, one in words.items() if one is not None} == set(READERS)
    assert words["lmdbio"] == (cache, "strided", GLOBAL)
    preloaded = Cache("1M", warm="preload")
    assert words["locality_aware"] == (preloaded, "local", GLOBAL)
    assert words["deepio_opportunistic"] == (None, "strided", WINDOWS)
    disk_alone = Policy.named("deepio_ordered").words(Cache(disk="/d"), None, WINDOWS)
    assert disk_alone == (Cache(disk="/d", warm="preload"), "strided", None)


def test_a_request_takes_no_less_than_nothing() -> None:
    with pytest.raises(ValueError, match="a request takes"):
        replace(QUICK, file_request=-1.0)
