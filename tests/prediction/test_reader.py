"""Goal: a job's seconds follow from the rates that were measured, and its sources from its words.

Method: a small data set, calibrations with figures of one digit, and a Reader that runs.
"""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest
from click.testing import CliRunner

import lmdbio
from lmdbio.cli import cli
from lmdbio.machine import calibration, storage
from lmdbio.machine.calibration import Calibration, Sample, Staggering, TokenSample
from lmdbio.prediction import predict

COUNT, SIZE, BATCH = 600, 5000, 30
MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "set"
    with lmdb.open(str(made), map_size=64 << 20) as env, env.begin(write=True) as txn:
        for i in range(COUNT):
            txn.put(b"%08d" % i, bytes([i % 251]) * SIZE)
    return made


def measured(path: Path, rate: float) -> None:
    """Keep a calibration: in order at so many M a second by one node, and twice that by two."""
    samples = (
        Sample("direct", "stream", MIB, 8, int(rate), 1.0),
        Sample("direct", "random", 4096, 8, int(rate * 256), 1.0),
    )
    jobs = (Staggering(2, 2, "blocked", 1.0, (TokenSample(0, (2 * rate * MIB,)),)),)
    identity = calibration.identity(storage.inspect_folder(path))
    calibration.store(Calibration(identity, 1.0, samples, jobs))


def test_sources_are_those_of_the_job(path: Path) -> None:
    words = {"shuffle": "global", "seed": 5, "cache": "memory=1M"}
    found = predict(path, BATCH, nodes=1, epochs=3, **words)  # type: ignore[arg-type]
    with lmdbio.Reader(path, BATCH, epochs=3, **words) as reader:  # type: ignore[arg-type]
        for _ in reader:
            pass
        told = reader.sources()
    for number, epoch in enumerate(found.epochs):
        for source, (records, size) in told[number].items():
            assert (epoch.records[source], epoch.bytes[source]) == (records, size)
    assert found.seconds == pytest.approx(sum(one.seconds for one in found.epochs))


def test_an_epoch_takes_what_the_storage_was_measured_to_give(path: Path) -> None:
    """Of one node, and of two that share it; records lie on two pages each."""
    measured(path, 2.0)
    size = COUNT * 8192 / MIB
    one = predict(path, BATCH, nodes=1, epochs=1)
    both = predict(path, BATCH, nodes=2, epochs=1)
    assert one.seconds == pytest.approx(size / 2.0, rel=0.1)
    assert both.seconds == pytest.approx(size / 4.0, rel=0.1)
    assert "as lmdbio tune measured, M a second by nodes 1: 2, 2: 4" in one.rates[0]
    assert len(one.rates) == 1 and "network: not measured" in both.rates[1]


def test_a_network_that_was_measured_is_counted(path: Path) -> None:
    measured(path, 1000.0)
    words = {"nodes": 2, "epochs": 2, "shuffle": "global", "cache": "memory=8M"}
    fast = predict(path, BATCH, **words)  # type: ignore[arg-type]
    samples = (Sample("network", "stream", MIB, 2, 1, 1.0),)
    calibration.store(Calibration(calibration.NETWORK, 1.0, samples))
    slow = predict(path, BATCH, **words)  # type: ignore[arg-type]
    sent = sum(one.bytes["peer"] for one in slow.epochs) / MIB
    assert slow.seconds - fast.seconds > 0.3 * sent, "one M a second each way of two nodes"
    assert [one.records for one in fast.epochs] == [one.records for one in slow.epochs]


def test_computing_hides_reading(path: Path) -> None:
    measured(path, 1000.0)
    found = predict(path, BATCH, nodes=1, epochs=2, compute_seconds=0.5)
    assert found.seconds == pytest.approx(2 * COUNT / BATCH * 0.5, rel=0.01)
    assert sum(one.stall_seconds for one in found.epochs) < 0.1
    nothing = predict(path, BATCH, nodes=1, epochs=1)
    assert nothing.epochs[0].stall_seconds == pytest.approx(nothing.seconds, rel=0.01)


def test_a_set_of_empty_values_is_predicted_as_it_runs(tmp_path: Path) -> None:
    """There is nothing to read or to keep, but iterations still compute."""
    with lmdb.open(str(tmp_path / "set")) as env, env.begin(write=True) as txn:
        for i in range(COUNT):
            txn.put(b"%08d" % i, b"")
    words = {"cache": "memory=1M", "epochs": 2}
    found = predict(tmp_path / "set", BATCH, nodes=1, compute_seconds=0.5, **words)  # type: ignore[arg-type]
    with lmdbio.Reader(tmp_path / "set", BATCH, **words) as reader:  # type: ignore[arg-type]
        assert sum(len(batch) for batch in reader) == 2 * COUNT
        told = reader.sources()
    for number, epoch in enumerate(found.epochs):
        assert {name: each[0] for name, each in told[number].items()} == {"file": COUNT}
        assert {name: records for name, records in epoch.records.items() if records} == {
            "file": COUNT
        }
    assert found.seconds == pytest.approx(2 * COUNT / BATCH * 0.5, rel=0.01)


def test_plan_tells_times_where_rates_are_known(path: Path) -> None:
    words = ["plan", str(path), "--cache", "memory=8M", "--nodes", "2", "--batch-size", str(BATCH)]
    before = CliRunner().invoke(cli, words)
    assert before.exit_code == 0 and "seconds" not in before.output
    measured(path, 2.0)
    after = CliRunner().invoke(cli, words)
    assert "seconds" in after.output and "file system: as lmdbio tune measured" in after.output


def test_what_is_no_job_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot run on 3 nodes"):
        predict(path, BATCH, nodes=3, ranks=2)
    with pytest.raises(ValueError, match="NAME=VALUE"):
        predict(path, BATCH, nodes=2, cache="much")
    with pytest.raises(ValueError, match="1 to 16,777,216 records, not 0"):
        predict(path, 0, nodes=1)
    with pytest.raises(ValueError, match="1 to 100,000 epochs, not 1,000,000"):
        predict(path, BATCH, nodes=1, epochs=1_000_000)
    with pytest.raises(ValueError, match="at most 1,048,576 ranks"):
        predict(path, BATCH, nodes=1, ranks=1 << 40)
    with pytest.raises(ValueError, match="0 ranks cannot run on 1 nodes"):
        predict(path, BATCH, nodes=1, ranks=0)
    with pytest.raises(TypeError, match=r"nodes must be a whole number, not 1\.5"):
        predict(path, BATCH, nodes=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="shuffle must be a Shuffle, not 5"):
        predict(path, BATCH, nodes=1, shuffle=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cache must be a Cache or words, not 5"):
        predict(path, BATCH, nodes=1, cache=5)  # type: ignore[arg-type]
    for seconds in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="compute_seconds must be 0 or more"):
            predict(path, BATCH, nodes=1, compute_seconds=seconds)
    with pytest.raises(OSError, match="absent"):
        predict(path, BATCH, nodes=2, cache=f"disk={tmp_path}/absent")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"cache: it is no folder: .*file"):
        predict(path, BATCH, nodes=2, cache=f"disk={tmp_path}/file")
    with lmdb.open(str(tmp_path / "empty")):
        pass
    with pytest.raises(ValueError, match="holds no records"):
        predict(tmp_path / "empty", BATCH, nodes=1)


def test_what_a_cache_leaves_open_is_as_on_this_machine(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMDBIO_CACHE_DIR", str(tmp_path))
    for cache in ("auto", f"disk={tmp_path}"):
        found = predict(path, BATCH, nodes=2, epochs=2, shuffle="global", cache=cache)
        assert found.epochs[1].records["file"] == 0
        assert any(words.startswith("disk: ") for words in found.rates)
