"""DLIO, the engine of MLPerf Storage, on LMDB files: py-lmdb and lmdbio compared.

    python -m benchmarks.dlio.run                            resnet50, one accelerator, cold
    python -m benchmarks.dlio.run --ranks 2 --rounds 3       two of them
    python -m benchmarks.dlio.run --workload unet3d_lmdb     147 MB a sample (4 GB are written)
    python -m benchmarks.dlio.run --set train.computation_time=0.435 --json out.json

Shown is what DLIO reports: accelerator utilisation (AU), the share of the time in which the
accelerators, which sleep here for as long as a step takes, are not waiting for data; and samples
a second of all of them. Its resnet50 asks for an AU of 90 %.

Contestants take turns, each in processes of its own, before which root puts the files out of the
page cache (seen to be so, or it is called warm). Data are made at first (make_data.py), and kept.

Needs dlio_benchmark 2.0, without most of what it asks pip for:

    pip install --no-deps dlio_benchmark==2.0.0 pydftracer==1.0.2
    pip install hydra-core pandas psutil mpi4py mpich torch

The exit status is 0, or 70 if a run failed, or 69 if this machine cannot run it.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks.command import Missing, words_of
from benchmarks.harness import Told, conduct, race_parser, turns
from benchmarks.report import spread_text
from lmdbio.bench import measure, processes
from lmdbio.bench.findings import Spread, figure
from lmdbio.page.table import Table

HERE = Path(__file__).resolve().parent
NEEDED = ("dlio_benchmark", "dftracer", "hydra", "pandas", "psutil", "mpi4py", "torch", "yaml")
SECONDS_MAX = 1800.0
READER = "++workload.reader.reader_classname=benchmarks.dlio.dlio_lmdb."


@dataclass
class Contestant:
    """One way to read, and what DLIO said of it."""

    name: str
    title: str
    overrides: list[str]
    utilisation: list[float] = field(default_factory=list)  # per cent
    samples: list[float] = field(default_factory=list)  # a second
    cold: bool = True


def contestants() -> list[Contestant]:
    loader = [
        "++workload.reader.data_loader_classname=benchmarks.dlio.dlio_lmdb.LmdbioLoader",
        "++workload.reader.data_loader_sampler=index",
    ]
    return [
        Contestant("lmdb", "py-lmdb, DLIO's loader", [READER + "PyLmdbReader"]),
        Contestant("reader", "lmdbio, DLIO's loader", [READER + "LmdbioReader"]),
        Contestant("loader", "lmdbio.torch.Loader", loader),
    ]


def run_one(one: Contestant, words: list[str], files: list[Path], ranks: int) -> None:
    dropped = [measure.drop_cache(file) for file in files]
    one.cold &= all(dropped)
    with tempfile.TemporaryDirectory(prefix="lmdbio-dlio-") as out:
        python = [sys.executable, "-m", "benchmarks.dlio.once", out, *words, *one.overrides]
        if ranks > 1:
            python[1:1] = ["-m", "mpi4py"]
            python = [processes.mpiexec() or "mpiexec", "-n", str(ranks), *python]
        told = processes.call(python, one.title, processes.inherited(), SECONDS_MAX)
    one.utilisation.append(told["train_au_mean_percentage"])
    one.samples.append(told["train_throughput_mean_samples_per_second"])


def quoted(path: Path) -> str:
    """As Hydra takes any text."""
    return "'" + str(path).replace("\\", "\\\\").replace("'", "\\'") + "'"


def table(racing: list[Contestant], title: str) -> Table:
    state = "cold" if all(one.cold for one in racing) else "NOT cold"
    least = next((statistics.median(one.samples) for one in racing if one.name == "lmdb"), None)
    rows = []
    for one in racing:
        rate = statistics.median(one.samples)
        rows.append((
            one.title,
            spread_text(Spread.of(one.utilisation), ".1f") + " %",
            figure(rate, ",.0f"),
            figure(rate / least if least else None, ".1f"),
        ))  # fmt: skip
    return Table(f"{title}, {state}", ("", "AU", "samples/s", "x py-lmdb"), rows)


def arguments() -> argparse.Namespace:
    parser = race_parser("benchmarks.dlio.run", __doc__ or "", data="dlio-data", rounds=1)
    add = parser.add_argument
    add("--workload", default="resnet50_lmdb", metavar="NAME", help="of workload/ (resnet50_lmdb)")
    add("--ranks", type=int, default=1, metavar="N", help="accelerators (1)")
    add("--only", default="all", metavar="NAME,...", help="of lmdb, reader, loader (all)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", dest="overrides",
        help="of the workload, as train.epochs=2; may be said several times")  # fmt: skip
    asked = parser.parse_args()
    if asked.ranks < 1:
        parser.error("--ranks must be at least 1")
    for one in asked.overrides:
        if not one.startswith(("reader.", "train.", "metric.")) or "=" not in one:
            parser.error(f"--set {one}: reader., train. or metric., as train.epochs=2; for what "
                         "else a workload says, copy it")  # fmt: skip
    everybody = {one.name: one for one in contestants()}
    known = {path.stem: path for path in (HERE / "workload").glob("*.yaml")}
    try:
        asked.racing = [everybody[name] for name in words_of(tuple(everybody), asked.only)]
        (asked.workload,) = words_of(sorted(known), asked.workload)
    except ValueError as error:
        parser.error(f"--only, --workload: {error}")
    asked.workload_file = known[asked.workload]
    return asked


def measured(asked: argparse.Namespace, told: Told, console: Console) -> None:
    """Make the data, and run DLIO by turns."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    missing += ["mpiexec"] * (asked.ranks > 1 and processes.mpiexec() is None)
    if missing:
        raise Missing(f"not installed: {', '.join(missing)} (run.py --help says how)")
    from benchmarks.dlio import make_data

    data = make_data.Data.of(asked.workload_file, asked.data.absolute() / asked.workload)
    words = [
        f"workload={asked.workload}",
        f"++workload.dataset.data_folder={quoted(data.folder)}",
        *(f"++workload.{one}" for one in asked.overrides),
    ]
    racing: list[Contestant] = asked.racing
    make_data.ensure(data, console)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("measure", total=asked.rounds * len(racing))
        for _, one in turns(racing, asked.rounds):
            bar.update(task, description=one.title)
            run_one(one, words, data.paths, asked.ranks)
            bar.advance(task)
    told.title = (
        f"{asked.workload}: {data.files * data.samples:,} samples of {data.sample_bytes:,} bytes, "
        f"{asked.ranks} accelerator{'s' * (asked.ranks > 1)}"
    )
    told.parts = [(table(racing, told.title), "")]
    told.facts = {
        "workload": asked.workload,
        "overrides": asked.overrides,
        "ranks": asked.ranks,
        "cold": all(one.cold for one in racing),
        "runs": [asdict(one) for one in racing],
    }


if __name__ == "__main__":
    sys.exit(conduct("dlio", arguments(), measured))
