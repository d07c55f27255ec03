"""Helpers of the benchmarks' tests: a small data set, and figures with known answers."""

from __future__ import annotations

import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmdbio.bench import measure, micro, trials, workplace
from lmdbio.bench.datasets import Dataset, Recipe
from lmdbio.bench.findings import Findings, Row
from lmdbio.bench.runner import Order, Outcome
from lmdbio.bench.trials import Trial, Workload

#: About 2,600 raw images.
SMALL = Recipe("small", "cifar", 8_000_000)


def sample(seconds: float, *, cold: bool = True) -> measure.Sample:
    return measure.Sample(
        seconds=seconds,
        cpu_seconds=seconds / 2,
        records=10,
        value_bytes=100 << 20,
        fetched_bytes=110 << 20,
        read_calls=3,
        major_faults=0,
        device_requests=7,
        device_bytes=110 << 20,
        cold=cold,
    )


def workload(access: str, processes: int = 1, **changes: Any) -> Workload:
    base = Workload(
        path="set", data_file="set/data.mdb", access=access, processes=processes, batch=64,
        count=640, total=1000, value_bytes=640 * 3000, page_bytes=640 * 4096,
        file_bytes=1000 * 4096,
    )  # fmt: skip
    return replace(base, **changes)


def made_findings(access: str = "sequential", path: str = "set") -> Findings:
    """py-lmdb at 100 and 50 MiB/s, Records.read at 200, plain reads at 100 and 400."""
    work = workload(access, path=path, page_bytes=100 << 20)
    rates = {
        Trial("lmdb", bytes=100 << 20): 100, Trial("lmdb-noreadahead", bytes=100 << 20): 50,
        Trial("read", bytes=100 << 20): 200, Trial("plain-direct", 4096, 50 << 20): 100,
        Trial("plain-direct", 1 << 20, 50 << 20): 400,
    }  # fmt: skip
    rows = []
    for trial, rate in rates.items():
        one = replace(sample(trial.bytes / 2**20 / rate), value_bytes=trial.bytes)
        runs = [
            Outcome(replace(one, seconds=one.seconds * factor), 10, (0.001, 0.002, 0.009))
            for factor in (1.0, 0.5, 2.0)
        ]
        rows.append(Row(trial, work, runs=runs, verified=not trial.contestant.raw))
    absent = Trial("fio-direct", 4096, skipped="fio is not installed")
    rows.append(Row(absent, work, ("fio", "a b")))
    return Findings(measure.machine(Path()), work, rows, repeats=3, began="<now>", notes=["a & b"])


def parsed(text: str) -> xml.etree.ElementTree.Element:
    """The page, which is XML as well as HTML."""
    return xml.etree.ElementTree.fromstring(text.partition("\n")[2])


def options(made: Dataset, out: Path, **changes: Any) -> micro.Options:
    base = micro.Options(
        path=made.path, access="sequential", contestants=("lmdb", "read", "plain-direct"),
        transfers=(65536,), processes=1, batch=64, repeats=2, cold=True, seconds_max=60.0,
        bytes_max=1 << 20, json_file=out / "bench.json", html_file=out / "bench.html",
    )  # fmt: skip
    return replace(base, **changes)


def order(made: Dataset, tmp_path: Path, access: str, processes: int, trial: Trial) -> Order:
    work = micro.describe(made.path, access, processes=processes, batch=64, bytes_max=1 << 20)
    keys = workplace.write_keys(work, tmp_path / "keys")
    made_trials = trials.make_trials(work, [trial.name], [trial.transfer or 65536])
    return Order(work, made_trials[0], keys=str(keys))
