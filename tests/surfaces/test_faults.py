"""A short run of the soak; ``make soak`` runs it for longer.

Goal: when the system fails, nothing wrong is returned, what is raised is documented and names
the file, what failed works again, nothing leaks. Method: tests/faults, with every kind of fault
at every surface once. The random seed is today's and is printed, so that every day tries others.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lmdbio
from tests.support import TESTS

#: As those of a fuzzer or a sanitizer: a build of its own, and hundreds of failures.
pytestmark = pytest.mark.more

RUN = TESTS / "faults" / "run.py"


def soak(tmp_path: Path, *arguments: str) -> tuple[int, dict, str]:
    """The exit status, the figures and the output of a run."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        pytest.skip("faults are made by a library for glibc on Linux")
    if subprocess.run(["cc", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("there is no C compiler named cc")
    if "asan" in os.environ.get("LD_PRELOAD", "") or "tsan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("a sanitizer stands before the C library already")
    figures = tmp_path / "figures.json"
    roots = dict.fromkeys(str(Path(folder).parent) for folder in lmdbio.__path__)
    path = os.pathsep.join([*roots, os.environ.get("PYTHONPATH", "")])
    seed = str(int(time.time()) // 86400)
    done = subprocess.run(
        [sys.executable, str(RUN), "--seed", seed, "--json", str(figures), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
        timeout=300,
    )
    told = json.loads(figures.read_text()) if figures.exists() else {}
    return done.returncode, told, done.stdout + done.stderr[-4000:]


#: Those of a few milliseconds a use, which meet every kind of fault.
SMALL = ("get", "cursor", "iterate", "records", "reader", "convert", "collect", "verify")
#: Those that read past the page cache, or bring a file to memory, and what only they know.
LARGE = ("iterate past", "records iterate", "read")
LARGE_KINDS = ("read: EIO", "O_DIRECT: refused", "O_DIRECT: no reads")


def judge(code: int, told: dict, out: str, least: int) -> None:
    assert code == 0, out
    sums = told["sums"]
    assert sums["failures"] >= sums["raised"] >= least, out
    assert (sums["wrong"], sums["recovered"]) == (0, sums["raised"]), out


def test_failures_of_the_system_are_told_and_leave_nothing_behind(tmp_path):
    asked = [word for name in SMALL for word in ("--surface", name)]
    few = ("--count", "1", "--rounds", "1", "--turns", "0", "--together")
    judge(*soak(tmp_path, *few, *asked), least=100)


def test_failures_past_the_page_cache_are_told_or_borne(tmp_path):
    asked = [word for name in LARGE for word in ("--surface", name)]
    asked += [word for name in LARGE_KINDS for word in ("--kind", name)]
    few = ("--count", "1", "--rounds", "1", "--turns", "0", "--together")
    judge(*soak(tmp_path, *few, *asked), least=10)
