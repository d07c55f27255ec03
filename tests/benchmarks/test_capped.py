"""benchmarks/capped: a disk of a set speed.

Goal: the command's reads are slowed and counted, its status is handed on, and whatever ends it,
mount, loop device, control group and image are gone. Method: a folder of 8 MiB; run as root where
loop devices and cgroup v1 blkio are present, else skipped with what is missing.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.capped import capped
from tests.support import ROOT

RUN = [sys.executable, "-m", "benchmarks.capped.run"]

MIB = 1 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("capped") / "data"
    path.mkdir()
    (path / "file").write_bytes(os.urandom(8 * MIB))
    return path


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Path]:
    """Where images go; empty afterwards, and nothing is mounted or attached from there."""
    lacking = capped.missing()
    if lacking:
        pytest.skip(lacking)
    yield tmp_path
    left = sorted(path for path in tmp_path.iterdir() if path.name.startswith("capped-"))
    assert not left
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert (
        str(tmp_path)
        not in subprocess.run(
            ["losetup", "--list"], capture_output=True, text=True, check=True
        ).stdout
    )


def start(images: Path, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    options = list(words[: words.index("--")])
    command = list(words[words.index("--") :])
    return subprocess.Popen(
        [*RUN, "--image", str(images), *options, str(folder), *command], cwd=ROOT
    )


def test_reads_are_capped_and_counted(images, folder, tmp_path):
    counters = tmp_path / "counters.json"
    script = "cmp {mount}/file %s && test $CAPPED_MOUNT = {mount}" % (folder / "file")
    process = start(
        images, folder, "--bytes", "8M", "--json", str(counters), "--", "sh", "-c", script
    )
    assert process.wait(60) == 0
    found = json.loads(counters.read_text())
    assert 8 * MIB <= found["bytes"] < 10 * MIB
    assert found["requests"] > 0
    # The kernel lets the first tenth of a second pass; half a second is far from uncapped.
    assert found["seconds"] > 0.5


def test_the_commands_status_is_handed_on(images, folder):
    assert start(images, folder, "--", "sh", "-c", "exit 7").wait(60) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing(images, folder, number, tmp_path):
    mark = tmp_path / "running"
    process = start(images, folder, "--", "sh", "-c", f"touch {mark}; sleep 600 & sleep 600")
    end = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(60) == 128 + number


def test_what_is_missing_is_told_in_one_line(folder):
    done = subprocess.run(
        [*RUN, str(folder), "--", "true"],
        cwd=ROOT,
        env={**os.environ, "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 69
    assert re.fullmatch(r"run.py: (there is no|no|loop devices) .*\n", done.stderr)


@pytest.mark.parametrize("text", ["0", "-1", "much", "1.5X"])
def test_an_amount_that_makes_no_sense_is_a_wrong_use(folder, text):
    done = subprocess.run(
        [*RUN, "--bytes", text, str(folder), "--", "true"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "--bytes" in done.stderr
