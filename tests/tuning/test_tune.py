"""lmdbio tune: what is measured, what is kept, and what follows.

Goal: bounded in time, cold, complete; what is kept is found again by all who open a file of that
file system, and a damaged or foreign file is told of and not used. Method: a data set of 8 MiB;
the figures themselves are this machine's and are not judged.
"""

from __future__ import annotations

import errno
import json
import os
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio import _core
from lmdbio.cli import cli
from lmdbio.machine import calibration, storage, tuned_folder
from lmdbio.machine.calibration import Calibration, Sample, Staggering, TokenSample
from lmdbio.machine.storage import Storage
from lmdbio.tuning import job, tune
from lmdbio.tuning.tune import Trial

SAMPLES = (
    Sample("direct", "random", 1 << 17, 32, 100, 1.0),
    Sample("direct", "random", 1 << 17, 64, 1000, 1.0),
)
JOB = Staggering(4, 8, "strided", 12.5, (TokenSample(1, (1e8, 2e8)), TokenSample(0, (1e8,))))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune") / "env"
    with lmdb.open(str(folder), map_size=64 << 20) as env, env.begin(write=True) as txn:
        for i in range(256):
            txn.put(b"%08d" % i, os.urandom(32_000))
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "lmdbio" / "tuned"


def identity(path: Path) -> str:
    with _core.Engine(path / "data.mdb") as engine:
        return calibration.identity(storage.inspect(engine, thorough=True))


# --- measuring ----------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 49])
def test_each_node_begins_at_a_request_of_its_own(path, monkeypatch, nodes):
    begun = []

    def run_trial(engine, trial, size, seconds, memory, *, seed, begins):
        trial = Trial("direct", "stream", size // 49, 1)  # so many requests
        begun.append(int(next(tune._places(engine, trial, size, 1, 0, begins))[0]))
        return Sample("direct", "stream", trial.request_bytes, 1, 1, 1.0)

    monkeypatch.setattr(job, "run_trial", run_trial)
    for rank in range(nodes):
        alone: Any = SimpleNamespace(
            nodes=[(r,) for r in range(nodes)], rank=rank, together=lambda step: [step()]
        )
        runs = job._Runs(path, alone)
        runs._run(Trial("direct", "stream", 1 << 12, 1), nodes, 1.0)
        runs.close()
    each = (path / "data.mdb").stat().st_size // 49
    assert begun == [49 * rank // nodes * each for rank in range(nodes)]


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("size", [1 << 20, 8 << 20, 1 << 40])
def test_trials_fit_the_file_and_memory_and_go_no_other_way_than_they_can(size, direct):
    found = tune.trials(size, direct=direct)
    assert found
    assert len(set(found)) == len(found)
    for trial in found:
        assert 2 * trial.request_bytes <= size
        assert trial.request_bytes * trial.depth <= tune.FLIGHT_BYTES_MAX
        assert direct or trial.kind == "pread"
    if size == 1 << 40:
        assert {t.request_bytes for t in found} >= {4096, 64 << 10, 1 << 20, 16 << 20}
        assert {t.depth for t in found} >= {1, 8, 32, 64}


@pytest.mark.alone
def test_measuring_takes_the_time_it_is_given_and_reports_its_steps(path):
    steps: list[tuple[int, int]] = []
    begun = time.monotonic()
    made = tune.measure(path, seconds=0.3, progress=lambda n, of, _what: steps.append((n, of)))
    assert time.monotonic() - begun < 3.0
    assert made.calibration is not None
    assert made.calibration.identity == identity(path)
    assert steps[0][0] == 0
    assert steps[-1][0] == steps[-1][1] == len(steps) - 1
    wanted = tune.trials((path / "data.mdb").stat().st_size, direct=made.storage.direct is True)
    done = [Trial(s.kind, s.pattern, s.request_bytes, s.depth) for s in made.calibration.samples]
    assert set(done) | {trial for trial, _ in made.left_out} == set(wanted)
    for sample in made.calibration.samples:
        assert sample.requests > 0
        assert sample.rate > 0
        assert sample.latency > 0


def test_nothing_is_kept_by_measuring(path, cache):
    tune.measure(path, seconds=0.05)
    assert not cache.exists()


def test_what_stays_in_the_page_cache_gives_no_figure(path, monkeypatch):
    monkeypatch.setattr(_core.Engine, "cached_bytes_in", lambda self, offset, length: length)
    made = tune.measure(path, seconds=0.05)
    assert made.left_out
    assert all("stays in the page cache" in reason for _, reason in made.left_out)
    assert all(trial.kind == "pread" for trial, _ in made.left_out)
    if made.calibration is not None:
        assert all(sample.kind == "direct" for sample in made.calibration.samples)


def test_where_o_direct_is_refused_the_page_cache_is_measured(path, monkeypatch, no_direct):
    ground = _core.inspect_at

    def untold(fd):
        found = ground(fd)
        return _core.Ground(
            **{name: getattr(found, name) for name in found.__slots__} | {"direct_alignment": None}
        )

    monkeypatch.setattr(_core, "inspect_at", untold)
    made = tune.measure(path, seconds=0.1)
    assert made.storage.direct is False
    assert made.calibration is None or {s.kind for s in made.calibration.samples} == {"pread"}


def test_a_small_file_is_refused(tmp_path):
    file = tmp_path / "data.mdb"
    file.write_bytes(bytes(4096))
    with pytest.raises(ValueError, match="too few to measure"):
        tune.measure(tmp_path)


# --- keeping ------------------------------------------------------------------------------


def test_what_is_stored_is_loaded_and_forgotten():
    made = Calibration("ext4 7", 12.5, SAMPLES)
    file = calibration.store(made)
    assert calibration.load("ext4 7").calibration == made
    assert list(file.parent.iterdir()) == [file], "no part of it lies about"
    assert calibration.load("ext4 8").calibration is None
    assert calibration.forget("ext4 7")
    assert not calibration.forget("ext4 7")
    assert calibration.load("ext4 7") == calibration.Stored(None, file)


def damage(found: dict, **changes: object) -> bytes:
    return json.dumps(found | changes).encode()


def damage_job(found: dict, **changes: object) -> bytes:
    return damage(found, staggerings=[found["staggerings"][0] | changes])


def test_a_file_of_a_version_that_knew_no_jobs_is_as_good():
    file = calibration.store(Calibration("ext4 7", 12.5, SAMPLES, (JOB,)))
    found = json.loads(file.read_text())
    del found["staggerings"]
    file.write_text(json.dumps(found))
    assert calibration.load("ext4 7").calibration == Calibration("ext4 7", 12.5, SAMPLES)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: b"",
        lambda found: b"[" * 100_000,
        lambda found: b"\xff\xfe",
        lambda found: b"[]",
        lambda found: damage(found)[:-20],
        lambda found: damage(found, version=2),
        lambda found: damage(found, identity="ext4 8"),
        lambda found: damage(found, measured="today"),
        lambda found: damage(found, measured=float("inf")),
        lambda found: damage(found, samples=[]),
        lambda found: damage(found, samples=7),
        lambda found: damage(found, samples=[7]),
        lambda found: damage(found, samples=[{}]),
        lambda found: damage(found, samples=[found["samples"][0] | {"depth": 0}]),
        lambda found: damage(found, samples=[found["samples"][0] | {"depth": 10**9}]),
        lambda found: damage(found, samples=[found["samples"][0] | {"depth": True}]),
        lambda found: damage(found, samples=[found["samples"][0] | {"seconds": -1}]),
        lambda found: damage(found, samples=[found["samples"][0] | {"kind": "fast"}]),
        lambda found: bytes(calibration.FILE_BYTES_MAX + 1),
        lambda found: damage(found, measured=1e12),
        lambda found: damage(found, samples=[{**found["samples"][0], "request_bytes": 12345}]),
        lambda found: damage(found, samples=[{**found["samples"][0], "seconds": 1e300}]),
        lambda found: damage(found, staggerings=7),
        lambda found: damage(found, staggerings=[7]),
        lambda found: damage(found, staggerings=found["staggerings"] * 99),
        lambda found: damage(found, shared=7),
        lambda found: damage(found, shared=[{"readers": 0, "sample": found["samples"][0]}]),
        lambda found: damage(found, shared=[{"readers": 2, "sample": {}}]),
        lambda found: damage(found, shared=[{"readers": 2, "sample": found["samples"][0]}] * 99),
        lambda found: damage_job(found, roots=0),
        lambda found: damage_job(found, assignment="zigzag"),
        lambda found: damage_job(found, samples=[]),
        lambda found: damage_job(found, samples=[{"tokens": 1, "rates": [1.0]}] * 2),
        lambda found: damage_job(found, samples=[{"tokens": 9, "rates": [1.0]}]),
        lambda found: damage_job(found, samples=[{"tokens": -1, "rates": [1.0]}]),
        lambda found: damage_job(found, samples=[{"tokens": True, "rates": [1.0]}]),
        lambda found: damage_job(found, samples=[{"tokens": 1, "rates": []}]),
        lambda found: damage_job(found, samples=[{"tokens": 1, "rates": [0.0]}]),
        lambda found: damage_job(found, samples=[{"tokens": 1, "rates": ["fast"]}]),
        lambda found: damage_job(found, samples=[{"tokens": 1, "rates": [1e300]}]),
    ],
)
def test_a_damaged_file_is_as_good_as_none_and_says_so(change):
    file = calibration.store(Calibration("ext4 7", 12.5, SAMPLES, (JOB,)))
    file.write_bytes(change(json.loads(file.read_text())))
    found = calibration.load("ext4 7")
    assert found.calibration is None
    assert str(file) in found.note
    assert "lmdbio tune" in found.note


def test_a_fifo_in_its_place_is_not_waited_for():
    file = calibration.file_of("ext4 7")
    file.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(file)
    found = calibration.load("ext4 7")
    assert found.calibration is None and str(file) in found.note


def test_disks_are_known_by_their_number_other_stores_by_what_is_mounted():
    disk = Storage(file_system="ext4", id=7, disk=True, source="/dev/sda")
    assert calibration.identity(disk) == "ext4 0000000000000007"
    far = Storage(file_system="nfs4", id=7, source="server:/data")
    assert calibration.identity(far) == "nfs4 server:/data"
    assert calibration.identity(Storage())


def test_readers_use_what_was_measured(path):
    with lmdbio.Records(path) as records:
        usual = records.choice.depth
        assert records.choice.reasons["depth"].origin == "facts"
    slow = Sample("direct", "random", 1 << 17, usual, 1, 1.0)
    fast = Sample("direct", "random", 1 << 17, usual + 1, 1000, 1.0)
    calibration.store(Calibration(identity(path), 1.0, (slow, fast)))
    with lmdbio.Records(path) as records:
        assert records.choice.reasons["depth"].origin == "tune"
        assert records._routes.engine.depth == usual + 1


def test_readers_tell_of_a_damaged_calibration_and_do_without(path):
    file = calibration.store(Calibration(identity(path), 1.0, SAMPLES))
    file.write_bytes(b"{")
    with pytest.warns(UserWarning, match="lmdbio tune again"):
        records = lmdbio.Records(path)
    with records:
        assert records.choice.reasons["depth"].origin == "facts"


def test_where_nothing_was_measured_nothing_is_looked_for(path, monkeypatch):
    monkeypatch.setattr(calibration, "load", lambda *_: pytest.fail("it looked"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lmdbio.Records(path).close()


def test_without_a_home_readers_do_without(path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(tuned_folder.os.path, "expanduser", str)  # so it is where there is none
    lmdbio.Records(path).close()
    assert "no: there is no folder" in CliRunner().invoke(cli, ["info", str(path)]).output
    told = CliRunner().invoke(cli, ["tune", str(path)])
    assert isinstance(told.exception, FileNotFoundError) and "no home" in str(told.exception)


def test_a_folder_that_fills_up_is_named(tmp_path, monkeypatch):
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="a file to measure with: No space") as failed:
        tune.measure_folder(tmp_path, seconds=0.1)
    assert failed.value.filename == str(tmp_path) and not list(tmp_path.glob(".lmdbio*"))


@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_what_is_kept_of_a_server_is_forgotten_without_it(scheme: str) -> None:
    """Nobody listens at this port."""
    url = f"{scheme}://127.0.0.1:9/set/data.mdb"
    under = storage.inspect_url(url)
    calibration.store(Calibration(calibration.identity(under), 0.0, SAMPLES))
    for told in ("forgotten", "nothing was kept"):
        done = CliRunner().invoke(cli, ["tune", url, "--forget"], catch_exceptions=False)
        assert done.output == f"{scheme} 127.0.0.1:9: {told}\n"
