"""Stats: what a surface says about its reading is what it did.

Goal: every sum equals what is known from elsewhere: the plan, the values written, the schedule.
Method: small real databases with values of many lengths, so that gaps, shared pages and repeats
occur; the same numbers computed from the extents alone. Also: many threads lose no count, a
forked child counts from 0, and a closed object still answers.
"""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

import lmdbio
from lmdbio import Stats
from lmdbio.locate.open import open_record_index
from lmdbio.planning.mode import Mode
from lmdbio.planning.reads import PAGE_BYTES, PlanOptions, plan_reads
from tests.support import databases

COUNT = 2000
LENGTHS = [(i * 7919) % 9000 + 1 for i in range(COUNT)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stats") / "env"
    env = databases.open_writable(folder, 1)
    pairs = zip(databases.keys(COUNT), LENGTHS, strict=True)
    databases.write(env, ((key, databases.value(key, length)) for key, length in pairs))
    env.close()
    return folder


def picks() -> dict[str, np.ndarray]:
    order = np.random.default_rng(11)
    return {
        "none": np.empty(0, np.int64),
        "one": np.array([5]),
        "a run": np.arange(100, 400),
        "a run backwards": np.arange(400, 100, -1),
        "every tenth": np.arange(0, COUNT, 10),
        "at random": order.permutation(COUNT)[:256],
        "with repeats": order.integers(0, 50, 500),
    }


def pages_needed(extents: np.ndarray, gap_bytes_max: int) -> tuple[int, int]:
    """Planned and used bytes, from a map of all bytes of the file."""
    pages = int((extents["offset"] + extents["length"]).max(initial=0)) // PAGE_BYTES + 1
    used = np.zeros(pages * PAGE_BYTES, bool)
    for offset, length in extents.tolist():
        used[offset : offset + length] = True
    touched = np.flatnonzero(used.reshape(pages, PAGE_BYTES).any(axis=1))
    planned = len(touched)
    used_in = used.reshape(pages, PAGE_BYTES)
    for before, after in zip(touched[:-1].tolist(), touched[1:].tolist(), strict=True):
        end = before * PAGE_BYTES + int(np.flatnonzero(used_in[before])[-1]) + 1
        begin = after * PAGE_BYTES + int(np.flatnonzero(used_in[after])[0])
        if begin - end <= gap_bytes_max:
            planned += after - before - 1
    return planned * PAGE_BYTES, int(used.sum())


@pytest.mark.parametrize("gap_bytes_max", [0, 6000, 64 << 10])
@pytest.mark.parametrize("name", picks())
@pytest.mark.usefixtures("planned")
def test_a_batch_counts_what_its_plan_and_its_extents_say(path, name, gap_bytes_max):
    wanted = picks()[name]
    with open_record_index(path) as source:
        extents = source.extents(wanted.astype(np.uint64))
    totals = plan_reads(extents, PlanOptions(gap_bytes_max)).totals
    with lmdbio.Records(
        path, engine="pread", readahead=False, gap_bytes_max=gap_bytes_max
    ) as records:
        batch = records.read(wanted)
        stats = records.stats()
    assert stats.records == stats.located_records == len(wanted)
    assert stats.record_bytes == int(batch.lengths.sum()) == totals.record_bytes
    assert (stats.requests, stats.read_bytes) == (totals.requests, totals.buffer_bytes)
    assert (stats.planned_bytes, stats.gap_bytes) == (totals.buffer_bytes, totals.waste_bytes)
    planned, used = pages_needed(extents, gap_bytes_max)
    assert (stats.planned_bytes, stats.gap_bytes) == (planned, planned - used)
    assert stats.page_requests > 0, "the tree was walked"


@pytest.mark.usefixtures("planned")
def test_a_record_asked_for_twice_is_handed_out_twice_and_used_once(path):
    with lmdbio.Records(path, readahead=False) as records:
        records.read([7])
        once = records.stats()
        records.read([7, 7])
        twice = records.stats() - once
    assert twice.record_bytes == 2 * once.record_bytes
    assert (twice.planned_bytes, twice.gap_bytes) == (once.planned_bytes, once.gap_bytes)


@pytest.mark.parametrize("name", picks())
def test_a_batch_out_of_the_page_cache_counts_its_records(path, name):
    wanted = picks()[name][:256]  # more, each by a call, would be planned
    with lmdbio.Records(path, engine="pread", readahead=False) as records:
        whole = records.stats()
        batch = records.read(wanted)
        stats = records.stats() - whole
    size = int(batch.lengths.sum())
    assert stats.records == stats.located_records == stats.requests == len(wanted)
    assert stats.record_bytes == stats.planned_bytes == stats.read_bytes == size
    assert stats.gap_bytes == 0 and stats.wait_seconds > 0


def test_iteration_slices_and_single_records_are_counted(path):
    with lmdbio.Records(path, engine="pread", readahead=False) as records:
        assert sum(map(len, records)) == sum(LENGTHS)
        whole = records.stats()
        assert len(records[10:20]) == 10
        assert len(records[3]) == LENGTHS[3]
        more = records.stats() - whole
    assert (whole.records, whole.record_bytes) == (COUNT, sum(LENGTHS))
    assert whole.located_records == COUNT and whole.read_bytes == whole.planned_bytes
    assert whole.planned_bytes - whole.gap_bytes == sum(LENGTHS), "each byte was wanted once"
    assert whole.wait_seconds > 0
    assert (more.records, more.located_records) == (11, 11)
    assert more.record_bytes == sum(LENGTHS[10:20]) + LENGTHS[3]


def test_records_lent_from_memory_are_handed_out_without_a_request(path, monkeypatch, off_disk):
    from lmdbio.reading import file_cache

    monkeypatch.setattr(file_cache, "PREFETCH_BUDGET_FACTOR", 10**6)
    with lmdbio.Records(path, readahead=True) as records:
        while not records._routes.file_cache.complete():
            records.read(np.arange(0, COUNT, 200))
        before = records.stats()
        assert before.ahead_bytes >= sum(LENGTHS) and before.ahead_requests > 0
        records.read([1, 2, 2])
        after = records.stats() - before
    assert (after.records, after.requests, after.planned_bytes) == (3, 0, 0)
    assert after.record_bytes == LENGTHS[1] + 2 * LENGTHS[2]


@pytest.mark.parametrize("engine", ["pread", "direct"])
def test_iteration_over_an_environment_counts_records_gaps_and_pages(path, engine, tmp_path):
    try:
        env = lmdbio.open(str(path), readonly=True, lock=False, engine=engine)
    except lmdbio.IncompatibleError as error:
        pytest.skip(str(error))
    with env, env.begin() as txn:
        got = sum(len(value) for _, value in databases.scanning(txn.cursor()))
        stats = env.stats()
    assert got == sum(LENGTHS)
    assert (stats.records, stats.record_bytes) == (COUNT, sum(LENGTHS))
    assert COUNT <= stats.located_records <= COUNT + 8
    overflow = [length for length in LENGTHS if length + 8 + 8 > databases.node_bytes_max(1)]
    assert abs(stats.planned_bytes - stats.gap_bytes - sum(overflow)) <= max(LENGTHS)
    assert stats.read_bytes == pytest.approx(stats.planned_bytes, rel=0.01)
    assert stats.page_requests > 0 and stats.page_bytes > 0
    assert stats.locate_seconds > 0 and stats.wait_seconds > 0


def test_gets_are_counted(path):
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        before = env.stats()
        for key in [b"%08d" % i for i in (4, 1999, 4)]:
            assert txn.get(key) is not None
        assert txn.get(b"nobody") is None
        stats = env.stats() - before
    assert (stats.records, stats.located_records) == (3, 3)
    assert stats.record_bytes == 2 * LENGTHS[4] + LENGTHS[1999]


def test_a_reader_counts_its_share_and_what_it_read_for_it(path):
    with lmdbio.Reader(path, 10, iterations=25, mode=Mode(block_iterations=5)) as rdr:
        for batch in rdr:
            del batch
    stats = rdr.stats()
    wanted = sum(LENGTHS[:250])
    assert (stats.records, stats.record_bytes, stats.iterations) == (250, wanted, 25)
    assert stats.located_records == 250 and stats.blocks == 5
    assert stats.planned_bytes - stats.gap_bytes == wanted
    assert stats.read_bytes == stats.planned_bytes and stats.requests >= 5
    assert stats.fill_seconds > 0


def test_a_closed_object_says_what_it_did(path):
    records = lmdbio.Records(path, readahead=False)
    records.read(range(100))
    before = records.stats()
    records.close()
    records.close()
    assert records.stats() == before and before.requests > 0
    env = lmdbio.open(str(path), readonly=True, lock=False)
    with env.begin() as txn:
        txn.get(b"%08d" % 3)
    before = env.stats()
    env.close()
    assert env.stats() == before and before.records == 1


def test_threads_that_share_an_object_lose_no_count(path):
    with lmdbio.Records(path, readahead=False) as records:

        def read(seed: int) -> None:
            for _ in range(50):
                records.read(np.random.default_rng(seed).integers(0, COUNT, 20))
                records[seed]

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = records.stats()
    assert stats.records == stats.located_records == 8 * 50 * 21


def test_a_forked_child_and_a_copy_count_from_0(path):
    with lmdbio.Records(path, readahead=False) as records:
        records.read(range(300))
        before = records.stats()
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                records.read(range(100))
                os.write(into, pickle.dumps(records.stats()))
                status = 0
            finally:
                os._exit(status)
        os.close(into)
        with os.fdopen(out, "rb") as pipe:
            told: Stats = pickle.loads(pipe.read())
        assert os.waitpid(child, 0)[1] == 0
        assert records.stats() == before
        copy = pickle.loads(pickle.dumps(records))
        assert copy.stats().records == 0
        copy.read(range(100))
        own = copy.stats()
        copy.close()
    assert (told.records, told.record_bytes) == (100, sum(LENGTHS[:100]))
    assert (told.requests, told.read_bytes, told.gap_bytes) == (
        own.requests,
        own.read_bytes,
        own.gap_bytes,
    )
    assert (before + told).records == 400


def test_values_can_be_added_and_subtracted_and_print_what_is_not_0():
    one = Stats(records=2, wait_seconds=0.5, planned_bytes=200, gap_bytes=50)
    two = Stats(records=3, wait_seconds=0.25)
    assert one + two - two == one
    assert (one + two).records == 5 and (one + two).wait_seconds == 0.75
    with pytest.raises(TypeError):
        _ = one + 1
    lines = str(one).splitlines()
    assert [line.split()[0] for line in lines] == [
        "records",
        "planned_bytes",
        "gap_bytes",
        "wait_seconds",
    ]
    assert "25.0 % of planned" in str(one)
    assert str(Stats()) == "nothing was read"
