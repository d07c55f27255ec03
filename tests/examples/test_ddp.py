"""Goal: the script of DistributedDataParallel trains by either loader, and predicts its own.

Method: its own command, on two ranks that play two nodes, and by torchrun, on messages that the
benchmarks' writer makes; alone it runs in a child of this process, which has imported torch.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest

from lmdbio.bench import datasets
from tests.support import ROOT, TESTS, forked

pytest.importorskip("torch")
sys.path.insert(0, str(TESTS / "mpi"))
import launch
import torch

TRAIN = ROOT / "examples" / "ddp" / "train_ddp.py"
COUNT, EPOCHS = 256, 2
ROW = re.compile(r"^ +(\d)\s+(\S+)\s+([\d.]+)\s+(\S+)\s+([\d.]+)\s+(\S+)\s+([\d.]+)$", re.M)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ddp") / "images"
    draw = np.random.default_rng(1)
    with lmdb.open(str(path), map_size=16 << 20) as env, env.begin(write=True) as txn:
        for i in range(COUNT):
            pixels = draw.bytes(3 * 32 * 32)
            value = datasets.datum(pixels, i % 10, encoded=False, shape=(3, 32, 32))
            txn.put(b"%08d" % i, value)
    return path


def rows(out: str) -> list[tuple[str, ...]]:
    """Return the line of each epoch."""
    found = ROW.findall(out)
    assert [row[0] for row in found] == [str(i) for i in range(EPOCHS)], out
    return found


def words(images: Path, *more: str) -> list[str]:
    return [str(images), "--epochs", str(EPOCHS), "--batch-size", "32", *more]


def main_here(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """Run the script in this process, which has torch, and which MPI must not begin in."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setattr(sys, "argv", [str(TRAIN), *words])
    runpy.run_path(str(TRAIN), run_name="__main__")


def train_alone() -> None:
    torch.set_num_threads(1)  # as the script does, before torch is there
    sys.modules["mpi4py"] = None  # type: ignore[assignment]
    runpy.run_path(str(TRAIN), run_name="__main__")


@pytest.mark.more
@pytest.mark.parametrize("loader", ["lmdbio", "torch"])
def test_one_process_trains(images: Path, loader: str) -> None:
    asked = [str(TRAIN), *words(images, "--loader", loader)]
    done = forked.run(train_alone, asked, folder=ROOT)
    assert done.returncode == 0, done.stderr
    for _, predicted, measured, stall, waited, read, _ in rows(done.stdout):
        assert float(measured) >= float(waited)
        assert (predicted == "-") == (stall == "-") == (read == "-") == (loader == "torch")
    assert ("file system: " in done.stdout) == (loader == "lmdbio")


def some_mpi() -> launch.Mpi:
    """Return an MPI that is there."""
    for name in launch.NAMES:
        try:
            return launch.find(name)
        except launch.NotThereError as error:
            reason = str(error)
    pytest.skip(reason)


@pytest.mark.more
@pytest.mark.mpi
def test_two_nodes_keep_the_file_together(images: Path) -> None:
    mpi = some_mpi()
    env = {"LMDBIO_RANKS_PER_NODE": "1"}
    out = mpi.run(2, str(TRAIN), *words(images, "--cache", "memory=8M"), env=env)
    rows(out)
    assert "2 roots keep" in out and "network: " in out


@pytest.mark.more
@pytest.mark.mpi
def test_what_fails_on_one_rank_ends_all_with_a_line(images: Path) -> None:
    mpi = some_mpi()
    out = mpi.run(2, str(TRAIN), str(images.parent / "absent"), expect=None)
    assert out.count("absent") == 1 and "Traceback" not in out, out


@pytest.mark.parametrize("word", ["-3", "0", "1000000"])
def test_a_batch_that_makes_no_sense_is_refused(
    images: Path, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main_here(monkeypatch, str(images), "--batch-size", word)
    assert end.value.code == 2 and "--batch-size must be 1 to 4096" in capsys.readouterr().err


@pytest.mark.more
def test_ranks_of_torchrun_keep_the_file_together(images: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(TRAIN), *words(images, "--cache", "memory=8M")],
        capture_output=True, text=True, timeout=180,
        env={**os.environ, "OMP_NUM_THREADS": "1", "LMDBIO_RANKS_PER_NODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, later = (float(row[5]) for row in rows(done.stdout))
    assert first > 0.5 and later < first / 20
    assert "2 roots keep" in done.stdout


@pytest.mark.more
def test_what_is_no_data_set_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=r"^train_ddp\.py: .*absent[^\n]*$"):
        main_here(monkeypatch, str(tmp_path / "absent"))
