"""Each benchmark still starts; `make test-benchmarks` tries what they measure and say.

Goal: a change that breaks a benchmark's imports or options is seen at once. Method: one process
asks all of benchmarks/ for their help, since most of a start is the imports that they share.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT

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
