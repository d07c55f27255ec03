"""Each benchmark still starts; `make test-benchmarks` tries what they measure and say.

Goal: a change that breaks a benchmark's imports or options, or the way of a run through
lmdbio.bench, is seen at once. Method: one process asks all of benchmarks/ for their help, since
most of a start is the imports that they share; `lmdbio bench` runs on little data.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from lmdbio.bench import micro
from lmdbio.bench.datasets import Dataset
from tests.support import ROOT
from tests.support.benching import options

COMMANDS = sorted(file.parent.name for file in (ROOT / "benchmarks").glob("*/run.py"))

PROGRAM = """
import runpy, sys
names = sys.argv[1:]
for name in names:
    sys.argv = [name, "--help"]
    try:
        runpy.run_module(f"benchmarks.{name}.run", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        assert not ended.code, name
"""


def test_every_benchmark_tells_how_it_is_used() -> None:
    pytest.importorskip("mpi4py", reason="one of them is a program of several ranks")
    assert len(COMMANDS) > 8
    words = [sys.executable, "-c", PROGRAM, *COMMANDS]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == len(COMMANDS), done.stdout


def test_lmdbio_bench_times_and_verifies_its_contestants(small: Dataset, tmp_path: Path) -> None:
    found = micro.run(options(small, tmp_path / "new", repeats=1), Console(quiet=True))
    assert found.sound
    assert [len(row.runs) for row in found.rows] == [1, 1, 1]
    assert [row.verified for row in found.rows] == [True, True, False]
    assert {file.name for file in (tmp_path / "new").iterdir()} >= {"bench.json", "bench.html"}
