"""Goal: `lmdbio plan --cache` says what a job with caches would read, epoch by epoch.

Method: the command itself over a real database; the figures are checked in tests/planning.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lmdbio import cli
from tests.support import databases


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan_cache") / "env"
    env = databases.open_writable(folder, 1)
    databases.write(env, ((b"%08d" % i, databases.value(i, 3000)) for i in range(1000)))
    env.close()
    return folder


def call(path: Path, *words: str) -> Result:
    return CliRunner().invoke(cli.cli, ["plan", str(path), *words])


def told(path: Path, *words: str) -> Any:
    result = call(path, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_each_epoch_is_told_by_source(path: Path) -> None:
    words = "--shuffle", "global", "--cache", "memory=2M", "--nodes", "4", "--ranks", "8"
    found = told(path, *words)
    assert (found["nodes"], found["ranks"], found["placement"]) == (4, 8, "home")
    first, second, third = found["epochs"]
    assert first["records"] == {"own": 0, "peer": 0, "file": 1000, "disk": 0}
    assert second["records"]["file"] == 0 and second["requests"] == 0
    assert sum(third["records"].values()) == 1000
    text = call(path, *words).output
    assert "8 ranks on 4 nodes" in text and "100.0% of the file" in text and "epoch" in text


def test_groups_tell_for_how_long_they_do_not_repeat(path: Path) -> None:
    words = "--shuffle", "groups:50", "--cache", "memory=2M", "--epochs", "1"
    found = told(path, *words)
    assert found["epochs_without_repeat"] == 49 and len(found["epochs"]) == 1
    assert "S < N/G holds for up to 49 epochs" in call(path, *words).output


def test_a_disk_without_a_size_is_taken_to_have_half_of_what_is_free(
    path: Path, tmp_path: Path
) -> None:
    found = told(path, "--cache", f"disk={tmp_path}", "--epochs", "2")
    assert found["held_bytes"] == found["file_bytes"]


def test_ranks_that_take_what_their_root_keeps_are_sent_less(path: Path) -> None:
    words = "--shuffle", "global", "--cache", "memory=2M", "--nodes", "4", "--ranks", "8"
    strided, local = (told(path, *words, "--assignment", name) for name in ("strided", "local"))
    assert (strided["assignment"], local["assignment"]) == ("strided", "local")
    peers = [found["epochs"][1]["records"]["peer"] for found in (strided, local)]
    assert peers[1] < 0.15 * peers[0]
    assert "assignment" in call(path, *words, "--assignment", "local").output


def test_records_that_roots_keep_one_by_one_are_told(path: Path) -> None:
    words = "--shuffle", "global", "--nodes", "4", "--ranks", "8", "--epochs", "3"
    held = {}
    for placement in ("first", "frequency"):
        found = told(path, *words, "--cache", f"memory=2M,placement={placement}")
        assert found["placement"] == placement
        first, *later = (epoch["records"] for epoch in found["epochs"])
        assert first == {"own": 0, "peer": 0, "file": 1000, "disk": 0}
        held[placement] = found["held_bytes"]
        if placement == "first":
            assert all(records["file"] == 0 for records in later)
    assert 0 < held["frequency"] == held["first"]
    text = call(path, *words, "--cache", "memory=2M,placement=first").output
    assert "placement first" in text and "of the file" in text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--cache", "memory=lots"], "memory must be a positive number"),
        (["--cache", "disk=/not/there"], "/not/there"),
        (["--cache", "memory=1M", "--start", "3"], "whole epochs"),
        (["--nodes", "2"], "--nodes, --epochs and --assignment need --cache"),
        (["--epochs", "3"], "--nodes, --epochs and --assignment need --cache"),
        (["--assignment", "local"], "--nodes, --epochs and --assignment need --cache"),
        (["--cache", "memory=1M,placement=first", "--assignment", "local"], "placement=home"),
        (["--cache", "memory=1M,disk=/tmp,placement=first"], "in memory alone"),
        (["--cache", "memory=1M", "--nodes", "4", "--ranks", "2"], "2 ranks cannot run on 4"),
        (["--cache", "memory=1M,placement=mixed"], "records that come in windows"),
        (["--cache", "memory=1M,placement=window"], "without a cache, or placement=mixed"),
    ],
)
def test_a_wrong_use_is_told(path: Path, words: list[str], reason: str) -> None:
    result = call(path, *words)
    assert result.exit_code and reason in (result.output + str(result.exception))
