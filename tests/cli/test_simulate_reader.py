"""Goal: `lmdbio simulate PATH --epochs` tells what `lmdbio plan` counts of a Reader's job.

Method: the command itself, over a data set of 8 MB, beside `lmdbio plan` on the same one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lmdbio import cli
from lmdbio.machine import calibration, storage
from lmdbio.placement.policy import READERS
from lmdbio.simulate import POLICIES
from lmdbio.system.amounts import BYTES_MAX
from tests.cli.simulating import call, told
from tests.support import databases


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "env"
    env = databases.open_writable(path, 1)
    databases.write(env, ((b"%04d" % i, databases.value(i, 20_000)) for i in range(400)))
    env.close()
    return path


def planned(*words: object) -> Any:
    result = CliRunner().invoke(cli.cli, ["plan", *map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("cache", ["memory=1M", "memory=8M,warm=preload"])
@pytest.mark.parametrize("assignment", ["strided", "local"])
def test_counts_are_those_that_plan_tells(data: Path, cache: str, assignment: str) -> None:
    words = data, "--shuffle", "global", "--cache", cache, "--nodes", 2, "--ranks", 4
    words = *words, "--batch-size", 32, "--epochs", 2, "--assignment", assignment
    found = told(*words)
    one = found["policies"]["reader"]
    epochs = [row for row in planned(*words)["epochs"] if row["epoch"] is not None]
    assert one["counts"] == [row["records"] for row in epochs]
    assert one["bytes"] == [row["bytes"] for row in epochs], "20,000 is a multiple of 8"
    assert found["job"]["assignment"] == assignment
    seconds = sum(epoch["seconds"] for epoch in one["epochs"])
    assert one["init_seconds"] + seconds == pytest.approx(one["seconds"])


def test_a_table_has_the_epochs_of_one_job(data: Path) -> None:
    words = data, "--shuffle", "global", "--cache", "memory=8M", "--nodes", 2, "--epochs", 2
    output = call(*words).output
    assert (
        "env: 400 records, 2 ranks on 2 nodes, batches of 256, order global, strided, " in output
    )
    rows = [line.split() for line in output.splitlines() if line[:3] in ("0  ", "1  ", "all")]
    assert [row[0] for row in rows] == ["0", "1", "all"]
    assert rows[0][3:6] == ["0", "0", "400"] and rows[1][5] == "0"
    assert "before" in call(*words[:3], "--cache", "memory=8M,warm=preload", *words[5:]).output
    assert "no cache" in call(data, "--epochs", 1).output


def test_policies_are_compared_as_readers_run_them(data: Path, tmp_path: Path) -> None:
    words = data, "--epochs", 2, "--cache", "memory=3M", "--nodes", 4, "--batch-size", 40
    page = tmp_path / "page.html"
    found = told(*words, "--policy", "all", "--html", page)["policies"]
    assert list(found) == [policy.name for policy in POLICIES]
    assert {name for name, one in found.items() if "epochs" in one} == set(READERS)
    assert found["hdmlp"]["reason"] == "no Reader runs it" or "hdmlp" in READERS
    assert "<h2>From the shared file system" in page.read_text(encoding="utf-8")
    output = call(*words, "--policy", "all").output
    assert "x bound" in output and "order global" in output
    # One alone is told epoch by epoch.
    assert "stall s" in call(*words, "--policy", "lmdbio").output


def test_settings_change_the_job_and_its_rates(data: Path) -> None:
    words = data, "--shuffle", "global", "--cache", "memory=1M", "--epochs", 1
    runs = told(*words, "--set", "nodes=1,2", "--set", "tier1.capacity=1M,8M")["runs"]
    held = [(run["job"]["nodes"], run["job"]["memory"] >> 20) for run in runs]
    assert held == [(1, 1), (1, 8), (2, 1), (2, 8)]
    seconds = [
        run["policies"]["reader"]["seconds"]
        for run in told(*words, "--set", "file_system.request=0,1")["runs"]
    ]
    assert seconds[1] > 10 * seconds[0]
    assert "tier1.capacity=8M" in call(*words, "--set", "tier1.capacity=1M,8M").output


def test_a_tier_holds_whole_bytes_as_many_as_a_cache_takes(data: Path, tmp_path: Path) -> None:
    cache = f"memory=1M,disk={tmp_path},disk_bytes=8M"
    words = data, "--shuffle", "global", "--cache", cache, "--epochs", 2
    runs = told(*words, "--set", "tier1.capacity=0,0.5B")["runs"]
    none, less = (run["policies"]["reader"]["seconds"] for run in runs)
    assert none == less, "the disk keeps its own rate"
    assert told(*words, "--set", "tier1.capacity=1e15")["job"]["memory"] == BYTES_MAX


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["DATA", "--epochs", "2", "--semantics", "authors"], "authors is the thesis' model"),
        (
            ["DATA", "--policy", "all", "--epochs", "2", "--cache", "memory=1M,warm=preload"],
            "placement and warm are the policies'",
        ),
        (["DATA", "--epochs", "2", "--mode", "all"], "--epochs is of policies"),
        (["DATA", "--assignment", "local"], "assignment='local' needs a cache"),
        (["DATA", "--epochs", "2", "--cache", "all"], "NAME=VALUE"),
        (
            ["DATA", "--epochs", "2", "--cache", "memory=1G,warm=window"],
            "later ones in an order without",
        ),
        (["DATA", "--epochs", "1", "--nodes", "4", "--ranks", "2"], "2 ranks cannot run"),
        (
            ["--semantics", "physical", "--set", "samples=1000000000", "--policy", "naive"],
            "uses of records are more than can be simulated",
        ),
    ],
)
def test_a_wrong_use_is_told(data: Path, words: list[str], text: str) -> None:
    result = call(*(str(data) if word == "DATA" else word for word in words))
    assert result.exit_code != 0 and text in result.output + str(result.exception)


@pytest.mark.parametrize("words", [(), ("--epochs", 2), ("--epochs", 2, "--policy", "naive")])
def test_records_without_bytes_are_refused(tmp_path: Path, words: tuple[object, ...]) -> None:
    path = tmp_path / "empty"
    env = databases.open_writable(path, 1)
    databases.write(env, ((b"%04d" % i, b"") for i in range(400)))
    env.close()
    result = call(path, *words)
    assert result.exit_code != 0 and str(result.exception) == "the 400 records have no bytes"


def test_a_request_takes_as_long_as_tune_measured(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kept = calibration.identity(storage.inspect_folder(data))
    samples = [
        calibration.Sample("direct", "stream", 1 << 20, 4, 1000, 1.0),
        calibration.Sample("direct", "random", 128 << 10, 4, 80, 1.0),
    ]
    calibration.store(calibration.Calibration(kept, 1.0, tuple(samples)))
    words = data, "--epochs", 1, "--shuffle", "global", "--nodes", 1, "--batch-size", 20
    fast, slow = (
        told(*words, *more)["policies"]["reader"]["seconds"]
        for more in (("--set", "file_system.request=0"), ())
    )
    rates = [sample.rate for sample in samples]
    each = (128 << 10) * (1 / rates[1] - 1 / rates[0])
    assert slow - fast == pytest.approx(400 * each, rel=0.2), "a record is a request, nearly"


@pytest.mark.parametrize(
    "words",
    [
        ("disk=FOLDER,disk_bytes=3M",),
        ("memory=1M,disk=FOLDER,disk_bytes=3M", "--assignment", "local"),
        ("memory=4M,placement=mixed", "--shuffle", "windows:8x4"),
        ("memory=4M,placement=first", "--shuffle", "global"),
    ],
)
def test_every_cache_that_plan_takes_is_simulated(
    data: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    cache, *more = words
    job = data, "--cache", cache.replace("FOLDER", str(tmp_path)), "--nodes", 2, "--ranks", 2
    job = *job, "--epochs", 2, "--batch-size", 32, *more
    one = told(*job)["policies"]["reader"]
    epochs = [row for row in planned(*job)["epochs"] if row["epoch"] is not None]
    assert one["counts"] == [row["records"] for row in epochs]
    assert one["seconds"] >= one["bound_seconds"]
