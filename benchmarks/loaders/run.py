"""Loaders for PyTorch over one data set of JPEG files, compared.

    python -m benchmarks.loaders.run                    one shuffled epoch each, cold, in turns
    python -m benchmarks.loaders.run --warm             four, with the files in the page cache
    python -m benchmarks.loaders.run --only lmdb,loader --rounds 5 --json out.json

py-lmdb as map-style data sets use it (readahead off, which shuffled reading wants), lmdbio.torch
in each of its ways, and, where they are installed, WebDataset over tar files of the same records
and SPDL with threads that ask py-lmdb. Batches of 32, records of some 110 KB; nothing is decoded
but the first KiB of each, so that loading is what is measured.

Each run is a process of its own, before which root puts the files out of the page cache (seen to
be so, or it is called warm). WebDataset reads its files in order and shuffles in memory: it
reads less at random than all others, which is its point.

A warm run has four epochs, for nobody has all data in memory and reads it once: what opening and
the first touch of the page cache take is in the first. Rates are of all epochs together.

The exit status is 0 if all bounds were kept, 1 if one was not, 70 if a run failed.
"""

from __future__ import annotations

import importlib.util
import io
import json
import statistics
import sys
import tarfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress

from benchmarks import command, report
from benchmarks.report import Table, Verdict
from lmdbio.bench import datasets, measure, processes
from lmdbio.bench.findings import Spread, figure

LOADERS = "benchmarks.loaders.loaders"
THREADS = 4
SHARD_RECORDS = 500
EPOCHS_WARM = 4
#: Of those that have some; what the bounds are about.
WORKERS = 2


@dataclass
class Contestant:
    """One way to load, and what its runs took: seconds of each epoch of each run."""

    name: str
    title: str
    kind: str
    workers: int
    needs: str = ""
    seconds: list[list[float]] = field(default_factory=list)
    cpu_seconds: list[list[float]] = field(default_factory=list)
    cold: bool = True

    def rates(self, count: int) -> list[float]:
        """Records a second of each run, the slowest first."""
        return sorted(len(run) * count / sum(run) for run in self.seconds)

    def rate(self, count: int) -> float:
        """Their median."""
        return statistics.median(self.rates(count))

    def first_rate(self, count: int) -> float:
        """The same of first epochs."""
        return count / statistics.median(run[0] for run in self.seconds)


def contestants() -> list[Contestant]:
    workers = f"{WORKERS} workers"
    return [
        Contestant("lmdb-0", "py-lmdb, map-style", "lmdb", 0),
        Contestant("lmdb-2", f"py-lmdb, map-style, {workers}", "lmdb", WORKERS),
        Contestant("dataset-0", "lmdbio.torch.Dataset", "dataset", 0),
        Contestant("dataset-2", f"lmdbio.torch.Dataset, {workers}", "dataset", WORKERS),
        Contestant("iterable-0", "lmdbio.torch.IterableDataset", "iterable", 0),
        Contestant("iterable-2", f"lmdbio.torch.IterableDataset, {workers}", "iterable", WORKERS),
        Contestant("loader", f"lmdbio.torch.Loader, {WORKERS} threads", "loader", WORKERS),
        Contestant("webdataset-0", "WebDataset", "webdataset", 0, "webdataset"),
        Contestant("webdataset-2", f"WebDataset, {workers}", "webdataset", WORKERS, "webdataset"),
        Contestant("spdl", f"SPDL over py-lmdb, {THREADS} threads", "spdl", THREADS, "spdl"),
    ]


@dataclass(frozen=True)
class Bound:
    """``who`` is at least ``least`` times as fast as ``than``."""

    who: str
    than: str
    least: float
    warm: bool | None = None  # None: both


BOUNDS = (
    Bound("dataset-0", "lmdb-0", 12.0, False),
    Bound("loader", "lmdb-0", 12.0, False),
    Bound("dataset-2", "lmdb-2", 2.5, False),
    Bound("iterable-2", "lmdb-2", 2.5, False),
    Bound("loader", "webdataset-0", 1.0),
    Bound("loader", "webdataset-2", 1.0),
    Bound("loader", "spdl", 1.0),
    Bound("dataset-0", "lmdb-0", 1.0, True),
    Bound("dataset-2", "lmdb-2", 1.0, True),
    Bound("loader", "dataset-2", 1.0),
)


def tars(made: datasets.Dataset, folder: Path) -> list[Path]:
    """WebDataset's files of the same records; kept, and reused."""
    shards = -(-made.count // SHARD_RECORDS)
    paths = [folder / f"{made.path.name}-{made.content[:12]}-{i:03d}.tar" for i in range(shards)]
    if all(path.exists() for path in paths):
        return paths
    import lmdbio

    with lmdbio.Records(made.path) as records:
        for shard, path in enumerate(paths):
            part = path.with_suffix(".part")
            with tarfile.open(part, "w") as tar:
                first = shard * SHARD_RECORDS
                for i, value in enumerate(records[first : first + SHARD_RECORDS], first):
                    entry = tarfile.TarInfo(f"{i:08d}.bin")
                    entry.size = len(value)
                    tar.addfile(entry, io.BytesIO(value))
            part.rename(path)
    return paths


def run_one(
    one: Contestant, job: dict[str, Any], files: list[Path], *, warm: bool, kept: bool
) -> None:
    if warm and not kept:
        for file in files:
            with file.open("rb") as opened:
                while opened.read(1 << 20):
                    pass
    elif not warm:
        dropped = [measure.drop_cache(file) for file in files]
        one.cold &= all(dropped)
    words = [
        sys.executable,
        "-m",
        LOADERS,
        json.dumps({**job, "kind": one.kind, "workers": one.workers}),
    ]
    told = processes.call(words, one.title, processes.inherited(), processes.SECONDS_MAX)
    wanted = job["epochs"] * job["count"], job["epochs"] * job["value_bytes"]
    if (told["records"], told["value_bytes"]) != wanted:
        raise processes.RunFailed(f"{one.title}: {told['records']} records, not {wanted[0]}")
    one.seconds.append(told["seconds"])
    one.cpu_seconds.append(told["cpu_seconds"])


def table(racing: list[Contestant], made: datasets.Dataset, *, warm: bool) -> Table:
    state = "warm" if warm else "cold" if all(one.cold for one in racing) else "NOT cold"
    base = next((one for one in racing if one.name == "lmdb-0"), None)
    rows = []
    for one in racing:
        cpu = statistics.median(statistics.mean(run) for run in one.cpu_seconds)
        rate = one.rate(made.count)
        rows.append((
            one.title,
            report.spread_text(Spread.of(one.rates(made.count)), ",.0f"),
            figure(cpu, ".2f"),
            figure(rate / base.rate(made.count) if base else None, ".2f"),
            figure(one.first_rate(made.count), ",.0f") if warm else "",
        ))  # fmt: skip
    title = (
        f"{made.count:,} records of {made.value_bytes // made.count:,} bytes, shuffled, "
        f"batches of 32, {state}"
    )
    heads = ("loader", "records/s", "CPU s an epoch", "x py-lmdb", "first epoch")
    return Table(title, heads, rows)


def judge(racing: list[Contestant], made: datasets.Dataset, *, warm: bool) -> list[Verdict]:
    known = {one.name: one for one in racing}
    state = "warm" if warm else "cold"
    return [
        report.judged(
            f"{bound.who}, times as fast as {bound.than}", state,
            known[bound.who].rate(made.count) / known[bound.than].rate(made.count),
            least=bound.least,
        )
        for bound in BOUNDS
        if bound.warm in (None, warm) and {bound.who, bound.than} <= known.keys()
    ]  # fmt: skip


def main() -> int:
    parser = command.race_parser(
        "benchmarks.loaders.run", __doc__ or "", data="loaders-data", rounds=3
    )
    add = parser.add_argument
    add("--warm", action="store_true", help="have the files in the page cache, locked there")
    add("--only", metavar="NAME,...", help="these, or those whose names begin so")
    asked = parser.parse_args()
    console = report.wide_console()
    names = tuple(asked.only.split(",")) if asked.only else ("",)
    racing = [one for one in contestants() if one.name.startswith(names)]
    if not racing:
        parser.error(f"--only: none of {', '.join(one.name for one in contestants())}")
    for one in list(racing):
        if one.needs and importlib.util.find_spec(one.needs) is None:
            console.print(f"{one.title}: left out, {one.needs} is not installed")
            racing.remove(one)
    made = datasets.prepare(datasets.JPEG, asked.data, console)
    shards = tars(made, asked.data) if any(one.kind == "webdataset" for one in racing) else []
    job = {
        "path": str(made.path.absolute()),
        "keys": str(made.keys_file.absolute()),
        "count": made.count,
        "value_bytes": made.value_bytes,
        "epochs": EPOCHS_WARM if asked.warm else 1,
        "tars": [str(shard.absolute()) for shard in shards],
    }
    begun = time.monotonic()
    keeping = measure.held_in_memory([made.data_file, *shards] if asked.warm else [])
    with keeping as kept, Progress(console=console, transient=True) as bar:
        if not kept:
            console.print("the files cannot be locked in memory (ulimit -l): read before each run")
        task = bar.add_task("race", total=asked.rounds * len(racing))
        for number in range(asked.rounds):
            for one in racing if number % 2 == 0 else reversed(racing):
                files = shards if one.kind == "webdataset" else [made.data_file]
                bar.update(task, description=one.title)
                try:
                    run_one(one, job, files, warm=asked.warm, kept=kept)
                except processes.RunFailed as error:
                    print(f"run.py: {error}", file=sys.stderr)
                    return 70
                bar.advance(task)
    verdicts = judge(racing, made, warm=asked.warm)
    console.print(table(racing, made, warm=asked.warm).on_screen())
    console.print(report.verdict_table(verdicts, "What must hold").on_screen())
    console.print(f"{report.counted(verdicts)}; {time.monotonic() - begun:.0f} s")
    report.write(asked.json, {
        "machine": asdict(measure.machine(asked.data)),
        "cold": not asked.warm and all(one.cold for one in racing),
        "count": made.count,
        "value_bytes": made.value_bytes,
        "runs": [asdict(one) for one in racing],
        "verdicts": report.as_json(verdicts),
    })  # fmt: skip
    return report.status(verdicts)


if __name__ == "__main__":
    sys.exit(command.guarded(main))
