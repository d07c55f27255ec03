"""DLIO's plugins (benchmarks/dlio), run by DLIO itself.

Goal: each way reads a whole epoch, and what is missing is an error that names it.
Method: a workload of a few small samples, one process of DLIO for each run.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from tests.support import ROOT

NEEDED = ("dlio_benchmark", "dftracer", "hydra", "pandas", "psutil", "mpi4py", "torch", "yaml")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
FILES, SAMPLES, BATCH = 3, 21, 4

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("dlio") / "data"
    workload = made.with_name("small.yaml")
    workload.write_text(
        f"dataset: {{data_folder: {made}, num_files_train: {FILES}, format: npz,\n"
        f"  num_samples_per_file: {SAMPLES}, record_length: 20000}}\n"
    )
    for _ in range(2):  # written, and found written
        command = [sys.executable, "-m", "benchmarks.dlio.make_data", workload]
        told = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
        )
        assert f"{FILES} files of {SAMPLES} samples of 20,000 bytes" in told.stdout
    return made


def run(folder: Path, out: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    small = {
        "dataset.data_folder": folder,
        "dataset.num_files_train": FILES,
        "dataset.num_samples_per_file": SAMPLES,
        "dataset.record_length": 20000,
        "dataset.record_length_resize": 1000,
        "reader.batch_size": BATCH,
        "train.computation_time": 0.001,
        "train.epochs": 2,
    }
    words = [f"++workload.{name}={value}" for name, value in small.items()]
    command = [sys.executable, "-m", "benchmarks.dlio.once", out, "workload=resnet50_lmdb", *words]
    command += [f"++workload.reader.{one}" for one in overrides]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)


LOADER = (
    "data_loader_classname=benchmarks.dlio.dlio_lmdb.LmdbioLoader",
    "data_loader_sampler=index",
)


@pytest.mark.parametrize(
    "overrides",
    [
        ("reader_classname=benchmarks.dlio.dlio_lmdb.PyLmdbReader", "read_threads=1"),
        ("reader_classname=benchmarks.dlio.dlio_lmdb.LmdbioReader", "read_threads=0"),
        (*LOADER, "read_threads=2"),
    ],
    ids=["py-lmdb", "reader", "loader"],
)
def test_each_way_reads_two_epochs(folder: Path, tmp_path: Path, overrides) -> None:
    told = run(folder, tmp_path, *overrides)
    assert told.returncode == 0, told.stdout + told.stderr
    metric = json.loads(told.stdout.splitlines()[-1])
    assert len(metric["train_au_percentage"]) == 2
    assert all(0 < one <= 100 for one in metric["train_au_percentage"])
    epochs = json.loads((tmp_path / "per_epoch_stats.json").read_text())
    steps = FILES * SAMPLES // BATCH
    assert f"{steps} steps completed" in (tmp_path / "dlio.log").read_text()
    assert len(epochs) == 2


def test_a_sample_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "data"
    for name in ("train", "valid"):
        (broken / name).mkdir(parents=True)
    for path in (folder / "train").iterdir():
        (broken / "train" / path.name).write_bytes(path.read_bytes())
    victim = broken / "train" / "part-001.lmdb.npz"
    with lmdb.open(str(victim), subdir=False, lock=False, map_size=1 << 24) as env:
        with env.begin(write=True) as txn:
            txn.delete(b"00000007")
    told = run(
        broken,
        tmp_path / "out",
        "reader_classname=benchmarks.dlio.dlio_lmdb.PyLmdbReader",
        "read_threads=0",
    )
    assert told.returncode != 0
    assert "part-001.lmdb.npz has no key b'00000007'" in told.stdout + told.stderr
