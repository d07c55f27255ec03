"""How a file is read: who decides, and what follows from which facts and figures.

Goal: a keyword beats a variable of the environment, that beats what was measured, that beats
what is under the file; every choice says where it comes from; nonsense is refused by name.
Method: the policy is pure, so tables of storages, samples and wishes.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import lmdb
import pytest

import lmdbio
from lmdbio.machine import choice, overrides
from lmdbio.machine.calibration import Calibration, Sample
from lmdbio.machine.choice import ACCESSES, Choice, choose
from lmdbio.machine.overrides import Overrides, overrides_from_env
from lmdbio.machine.storage import Storage, Stripes
from lmdbio.planning.mode import ENGINES
from lmdbio.planning.reads import REQUEST_BYTES_MAX, PlanOptions

GIB = 1 << 30
DISK = Storage(file_system="ext4", disk=True, readahead_bytes=128 << 10, direct=True)
FAR = Storage(
    file_system="lustre", readahead_bytes=128 << 10, direct=True, size_bytes=GIB, cached_bytes=0
)


def far(**facts: object) -> Storage:
    return Storage(**{**{name: getattr(FAR, name) for name in FAR.__slots__}, **facts})  # type: ignore[arg-type]


# --- facts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("access", "storage", "engine", "may_bypass_cache"),
    [
        *((access, DISK, "pread", True) for access in ACCESSES),
        ("stream", FAR, "direct", False),
        ("batch", FAR, "pread", False),
        ("single", FAR, "pread", False),
        ("stream", far(readahead_bytes=4 << 20), "pread", False),
        ("stream", far(cached_bytes=GIB // 2), "pread", False),
        ("stream", far(cached_bytes=GIB // 2 - 1), "direct", False),
        ("stream", far(direct=False), "pread", False),
        ("stream", far(direct=None), "direct", False),
        ("stream", far(readahead_bytes=None, cached_bytes=None), "direct", False),
        *((access, far(file_system="tmpfs"), "pread", False) for access in ACCESSES),
        *((access, Storage(), {"stream": "direct"}.get(access, "pread"), False)
          for access in ACCESSES),
    ],
)  # fmt: skip
def test_the_engine_follows_from_what_is_under_the_file(access, storage, engine, may_bypass_cache):
    found = choose(access, storage)
    assert (found.engine, found.may_bypass_cache) == (engine, may_bypass_cache)
    assert not found.demanded


@pytest.mark.parametrize("access", ["batch", "stream"])
def test_where_there_is_no_disk_more_requests_are_in_flight(access):
    assert choose(access, FAR).depth > choose(access, DISK).depth


def test_where_there_is_no_disk_streams_have_larger_requests():
    far_away, near = choose("stream", FAR), choose("stream", DISK)
    assert far_away.request_bytes_max == 2 * near.request_bytes_max


def test_what_is_usual_far_away_stays_where_it_is_measured_to_be_as_good():
    usual = choose("stream", FAR)
    tuned = measured(
        sample("direct", "stream", usual.request_bytes_max, usual.depth, 95),
        sample("direct", "stream", 256 << 10, 8, 100),
    )
    found = choose("stream", FAR, tuned)
    assert (found.depth, found.request_bytes_max) == (usual.depth, usual.request_bytes_max)


@pytest.mark.parametrize(
    ("stripes", "depth", "size"),
    [
        (Stripes(3 << 20, 16), 32, 3 << 20),
        (Stripes(4 << 20, 16), 32, 4 << 20),
        (Stripes(1 << 20, 2), choice.FAR_STREAM_DEPTH, choice.FAR_STREAM_REQUEST_BYTES_MAX),
        (Stripes(1 << 30, 2000), 64, choice.FAR_STREAM_REQUEST_BYTES_MAX),
    ],
)
def test_streams_fit_the_stripes(stripes, depth, size):
    found = choose("stream", far(stripes=stripes))
    assert (found.depth, found.request_bytes_max) == (depth, size)


def test_every_choice_has_a_reason_and_can_be_read_with():
    storages = (DISK, FAR, Storage(), far(block_bytes=4 << 20), far(stripes=Stripes(3 << 16, 7)))
    for access, storage in itertools.product(ACCESSES, storages):
        found = choose(access, storage)
        assert found.engine in ENGINES
        assert set(found.reasons) == set(overrides.VARIABLES)
        assert all(reason.text and reason.origin == "facts" for reason in found.reasons.values())
        PlanOptions(found.gap_bytes_max, found.request_bytes_max)
        assert 1 <= found.depth <= overrides.DEPTH_MAX


# --- what was measured --------------------------------------------------------------------


def sample(kind: str, pattern: str, request_bytes: int, depth: int, mib: float) -> Sample:
    """One second at so many MiB/s."""
    requests = int(mib * (1 << 20) / request_bytes)
    return Sample(kind, pattern, request_bytes, depth, requests, 1.0)  # type: ignore[arg-type]


def measured(*samples: Sample) -> Calibration:
    return Calibration("some", 1.0, samples)


@pytest.mark.parametrize(
    ("access", "storage", "past", "through", "engine", "may_bypass_cache"),
    [
        ("stream", DISK, 1500, 1000, "pread", True),
        ("stream", DISK, 1500, 1450, "pread", False),  # no gain
        ("stream", DISK, 300, 100, "pread", False),  # too slow to be read twice
        ("stream", FAR, 300, 100, "direct", False),
        ("stream", FAR, 100, 300, "pread", False),
        ("batch", FAR, 124, 119, "pread", False),  # not worth losing the cache for
        ("batch", FAR, 300, 100, "direct", False),
        ("single", FAR, 300, 100, "direct", False),
    ],
)
def test_the_measured_engine_is_taken_where_it_gains_enough(
    access, storage, past, through, engine, may_bypass_cache
):
    pattern = "stream" if access == "stream" else "random"
    tuned = measured(
        sample("direct", pattern, 1 << 20, 8, past), sample("pread", pattern, 1 << 20, 8, through)
    )
    found = choose(access, storage, tuned)
    assert (found.engine, found.may_bypass_cache) == (engine, may_bypass_cache)
    assert found.reasons["engine"].origin == "tune"
    assert f"{past:,} MiB/s" in found.reasons["engine"].text


@pytest.mark.parametrize(
    ("rates", "depth"),
    [
        ({1: 100, 8: 500, 32: 1000, 64: 1050}, 32),  # the usual is as good
        ({1: 100, 8: 500, 32: 700, 64: 1000}, 64),
        ({1: 990, 8: 995, 32: 600, 64: 1000}, 1),  # many disturb each other: as few as do
        ({32: 1000}, 32),  # one says nothing
    ],
)
def test_batches_take_the_least_depth_that_is_fast_enough(rates, depth):
    tuned = measured(*(sample("direct", "random", 1 << 17, d, r) for d, r in rates.items()))
    found = choose("batch", DISK, tuned)
    assert found.depth == depth
    assert (found.reasons["depth"].origin == "tune") == (depth != choice.BATCH_DEPTH)


def test_streams_take_depth_and_size_that_were_measured_together():
    tuned = measured(
        sample("direct", "stream", 1 << 20, 8, 400),
        sample("direct", "stream", 1 << 20, 32, 900),
        sample("direct", "stream", 2 << 20, 8, 500),
        sample("direct", "stream", 8 << 20, 8, 880),
        sample("direct", "stream", 16 << 20, 4, 5000),  # leaves too few in flight
    )
    found = choose("stream", FAR, tuned)
    assert (found.depth, found.request_bytes_max) == (32, 1 << 20)
    assert found.reasons["depth"] == found.reasons["request_bytes_max"]


def test_a_gap_costs_what_a_stream_brings_in_the_time_of_a_request():
    tuned = measured(
        sample("direct", "random", 4096, 32, 1500 * 4096 / 2**20),
        sample("direct", "stream", 1 << 20, 8, 300),
    )
    assert choose("batch", DISK, tuned).gap_bytes_max == (300 << 20) // 1500 // 4096 * 4096
    slow = measured(
        sample("direct", "random", 4096, 1, 0.01), sample("direct", "stream", 1 << 20, 8, 3000)
    )
    assert choose("batch", DISK, slow).gap_bytes_max == REQUEST_BYTES_MAX, "never more"


def test_figures_that_say_nothing_change_nothing():
    only = measured(sample("direct", "random", 4096, 1, 1))
    for access in ACCESSES:
        assert choose(access, DISK, only) == choose(access, DISK)


# --- precedence ---------------------------------------------------------------------------

TUNED = measured(
    sample("direct", "stream", 2 << 20, 8, 300),
    sample("direct", "stream", 1 << 20, 16, 900),
    sample("direct", "random", 1 << 17, 32, 100),
    sample("direct", "random", 1 << 17, 64, 900),
    sample("direct", "random", 4096, 32, 10),
    sample("pread", "stream", 1 << 20, 8, 100),
    sample("pread", "random", 1 << 17, 32, 100),
)
WISHES = {
    "keyword": Overrides("direct", 3, 12 << 10, 1),
    "environment": Overrides("mmap", 5, 8 << 10, 0),
}


def origins(found: Choice) -> dict[str, str]:
    return {name: reason.origin for name, reason in found.reasons.items()}


@pytest.mark.parametrize("access", ACCESSES)
def test_keyword_before_environment_before_tune_before_facts(access):
    both = choose(access, FAR, TUNED, **WISHES)
    assert set(origins(both).values()) == {"keyword"}
    assert (both.engine, both.depth, both.request_bytes_max, both.gap_bytes_max) == (
        "direct", 3, 12 << 10, 1,
    )  # fmt: skip
    named = choose(access, FAR, TUNED, environment=WISHES["environment"])
    assert set(origins(named).values()) == {"environment"}
    assert (named.engine, named.depth, named.request_bytes_max, named.gap_bytes_max) == (
        "mmap", 5, 8 << 10, 0,
    )  # fmt: skip
    assert "tune" in origins(choose(access, FAR, TUNED)).values()
    assert set(origins(choose(access, FAR)).values()) == {"facts"}


def test_each_field_is_asked_for_by_itself():
    found = choose(
        "batch", DISK, TUNED, keyword=Overrides(depth=2), environment=Overrides(gap_bytes_max=7)
    )
    assert origins(found) == {
        "engine": "tune",
        "depth": "keyword",
        "request_bytes_max": "facts",
        "gap_bytes_max": "environment",
    }
    assert found.engine == "pread"


def test_who_names_an_engine_gets_it_and_nothing_passes_by():
    for request in (Overrides("pread"), Overrides("direct")):
        assert not choose("batch", DISK, keyword=request).may_bypass_cache
        assert choose("batch", DISK, environment=request).demanded
    assert choose("batch", DISK, keyword=Overrides("auto")).may_bypass_cache


def test_the_environment_is_read_under_its_names():
    found = overrides_from_env(
        {
            "LMDBIO_ENGINE": "Direct",
            "LMDBIO_DEPTH": " 16 ",
            "LMDBIO_REQUEST_BYTES": "4M",
            "LMDBIO_GAP_BYTES": "0",
        }
    )
    assert found == Overrides("direct", 16, 4 << 20, 0)
    assert (
        overrides_from_env({})
        == overrides_from_env({"LMDBIO_ENGINE": "auto", "LMDBIO_DEPTH": ""})
        == Overrides()
    )


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("LMDBIO_ENGINE", "fast"),
        ("LMDBIO_URING", "0"),
        ("LMDBIO_DEPTH", "0"),
        ("LMDBIO_DEPTH", "257"),
        ("LMDBIO_DEPTH", "many"),
        ("LMDBIO_DEPTH", "-1"),
        ("LMDBIO_REQUEST_BYTES", "1000"),
        ("LMDBIO_REQUEST_BYTES", "0"),
        ("LMDBIO_GAP_BYTES", "-4"),
        ("LMDBIO_GAP_BYTES", "1.5.2"),
        ("LMDBIO_GAP_BYTES", "99999999999999999999"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_by_its_name(variable, text):
    with pytest.raises(ValueError, match=variable):
        overrides_from_env({variable: text})


# --- where it acts ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("choice") / "env"
    with lmdb.open(str(folder), map_size=64 << 20) as env, env.begin(write=True) as txn:
        for i in range(200):
            txn.put(b"%08d" % i, b"%08d" % i * 500)
    return folder


def test_readers_do_what_the_environment_says(path, monkeypatch):
    for name, text in (("ENGINE", "mmap"), ("DEPTH", "3"), ("REQUEST_BYTES", "8K")):
        monkeypatch.setenv(f"LMDBIO_{name}", text)
    with lmdbio.Records(path) as records:
        assert (records._routes.engine.kind, records._routes.engine.depth) == ("mmap", 3)
        assert records.choice.reasons["engine"].origin == "environment"
        assert bytes(records.read([199])[0]) == b"%08d" % 199 * 500
    with lmdbio.Reader(path, 10, iterations=2) as reader:
        assert reader.mode.engine == "mmap"
        assert [bytes(view) for batch in reader for view in batch.copy()][19] == b"00000019" * 500
    with lmdbio.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        assert (env._file.engine.kind, env._file.engine.depth) == ("mmap", 3)
        assert txn.get(b"%08d" % 7) == b"%08d" % 7 * 500


def test_readers_do_what_their_keywords_say_whatever_the_environment_does(path, monkeypatch):
    monkeypatch.setenv("LMDBIO_ENGINE", "mmap")
    monkeypatch.setenv("LMDBIO_DEPTH", "3")
    with lmdbio.Records(path, engine="pread", depth=2) as records:
        assert (records._routes.engine.kind, records._routes.engine.depth) == ("pread", 2)
    with lmdbio.Reader(path, 10, iterations=1, mode="dio") as reader:
        assert reader.mode.engine == "pread"
    with lmdbio.open(str(path), readonly=True, lock=False, engine="pread", depth=4) as env:
        assert (env._file.engine.kind, env._file.engine.depth) == ("pread", 4)


@pytest.mark.parametrize("mode", ["dio", "LMM-DIO"])
def test_a_named_mode_leaves_to_choice_which_explicit_read(path, monkeypatch, mode):
    monkeypatch.setenv("LMDBIO_ENGINE", "direct")
    with lmdbio.Reader(path, 10, iterations=1, mode=mode) as reader:
        assert reader.mode.engine == "direct"
    told = lmdbio.Mode(engine="pread")
    with lmdbio.Reader(path, 10, iterations=1, mode=told) as reader:
        assert reader.mode.engine == "pread"
    with lmdbio.Reader(path, 10, iterations=1, mode="lmm") as reader:
        assert reader.mode.engine == "mmap"


@pytest.mark.parametrize(
    "make",
    [
        lambda path: lmdbio.Records(path),
        lambda path: lmdbio.Reader(path, 1),
        lambda path: lmdbio.open(str(path), readonly=True, lock=False),
    ],
)
def test_readers_refuse_a_variable_that_makes_no_sense(path, monkeypatch, make):
    monkeypatch.setenv("LMDBIO_DEPTH", "several")
    with pytest.raises(ValueError, match="LMDBIO_DEPTH"):
        make(path)


def test_a_reader_whose_blocks_are_small_says_that_the_page_cache_serves(path):
    with lmdbio.Reader(path, 10, iterations=2) as reader:
        assert reader.mode.engine in ("pread", "direct")  # a disk, or none, but never staged
        assert sum(map(len, reader)) == 20
