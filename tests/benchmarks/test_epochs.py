"""The benchmark of whole epochs. Goal: every way reads every record once, in a process of its own,
and is judged beside py-lmdb and its like; the kernel's readahead is as before. Method: a small
data set, one round, a knob that is a file.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import command
from benchmarks.epochs import run
from lmdbio.bench import datasets, measure

RECIPE = datasets.Recipe("fixed-small", "fixed", 900 * 3072, record_bytes=3072)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "RECIPE", RECIPE)


@pytest.mark.parametrize("memory", [[], ["--memory", "1M"]])
def test_every_way_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture, memory: list[str]
) -> None:
    found = tmp_path / "found.json"
    words = ["--data", str(tmp_path), "--rounds", "1", "--json", str(found), *memory]
    assert run.main(words) in (0, 1), capsys.readouterr()
    told = json.loads(found.read_text())
    assert told["runs"].keys() == run.TITLES.keys()
    assert all(one["records"] == 900 for runs in told["runs"].values() for one in runs)
    assert len(told["verdicts"]) == 4 + 2
    assert all(one["figure"] > 0 for one in told["verdicts"])


def test_another_sum_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        run.processes, "call", lambda *_: {"records": 899, "value_bytes": 1, "seconds": 1.0}
    )
    words = ["--data", str(tmp_path), "--rounds", "1", "--only", "lmdb"]
    assert run.main(words) == command.FAILED


def test_the_kernels_readahead_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knob = tmp_path / "read_ahead_kb"
    knob.write_text("8192\n", encoding="ascii")
    monkeypatch.setattr(run, "knob_of", lambda _: knob)
    with pytest.raises(KeyboardInterrupt), run.kernel_readahead(tmp_path, 128):
        assert knob.read_text(encoding="ascii") == "128\n"
        raise KeyboardInterrupt
    assert knob.read_text(encoding="ascii") == "8192\n"
    knob.unlink()
    with run.kernel_readahead(tmp_path, None):
        assert not knob.exists()
    with pytest.raises(command.Missing, match="read_ahead_kb"), run.kernel_readahead(tmp_path, 64):
        pass


def test_a_bound_is_that_of_the_readahead(tmp_path: Path) -> None:
    assert measure.machine(tmp_path) is not None
    runs = {
        "lmdb": [{"seconds": 3.0}],
        "lmdb-random": [{"seconds": 2.0}],
        "records": [{"seconds": 1.0}],
        "loader-buffers": [{"seconds": 1.25}],
    }
    bounds = ((8192, True, 1.3), (128, True, 2.8), (8192, False, 1), (128, False, 2))
    for kib, fits, least in bounds:
        verdicts = run.judge(runs, "here", fits=fits, readahead_kib=kib)
        assert [one.figure for one in verdicts] == [2.0, 1.6, 0.8]
        assert [one.bound for one in verdicts] == [f">= {least:g}"] * 2 + [">= 0.95"]
