"""Measures whole shuffled epochs of small records from the disk, beside py-lmdb.

    python -m benchmarks.epochs.run                         the file fits the memory budget
    python -m benchmarks.epochs.run --memory 400M           it does not
    python -m benchmarks.epochs.run --only lmdb,records --rounds 9

250,000 records of 3 KiB, each asked for once, in batches of 256: py-lmdb with and without the
kernel's readahead, `Records.batches` of the whole order, which lends views, `Records.values` of
each batch, and `lmdbio.torch.Loader`, which gives bytes, or views with `buffers=True`. Each run is
a process of its own, before which the file is put out of the page cache (seen to be so, or the
table says that it was not). All take turns, each round in another order: a virtual machine whose
host takes back free memory is slow after a long run that needed little. A ratio is of one round,
over py-lmdb's quicker setting in that round, and the medians are judged.

The bounds depend on the kernel's readahead of the file system (read_ahead_kb): the larger it is,
the better py-lmdb reads. --kernel-readahead sets it for the time of the runs.

The exit status is 0 if all bounds were reached, 1 if one was not, 69 if this machine cannot do
it, 70 if a run failed.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from rich.progress import Progress

from benchmarks import command, report
from benchmarks.report import Table, Verdict
from lmdbio.bench import datasets, measure, processes
from lmdbio.bench.findings import Spread, figure
from lmdbio.machine.budget import budget_bytes

RECIPE = datasets.Recipe("fixed-3k", "fixed", 250_000 * 3072, record_bytes=3072)
TITLES = {
    "lmdb": "py-lmdb",
    "lmdb-random": "py-lmdb, readahead=False",
    "records": "Records.batches",
    "values": "Records.values",
    "loader": "Loader",
    "loader-buffers": "Loader, buffers=True",
}
THEIRS = "lmdb", "lmdb-random"
#: At least, over py-lmdb: by whether the file fits the budget; with a kernel readahead that is
#: large, and with one of up to SMALL_KIB.
BOUNDS = {True: (1.3, 2.8), False: (1.0, 2.0)}
SMALL_KIB = 512
#: Of the Loader over what gives the same objects without threads.
LOADER_LEAST, LIKE = 0.95, {"loader": "values", "loader-buffers": "records"}
SEED = 7

Runs = dict[str, list[dict[str, Any]]]


def knob_of(folder: Path) -> Path:
    return Path(f"/sys/class/bdi/{measure.device_of(folder)}/read_ahead_kb")


@contextmanager
def kernel_readahead(folder: Path, kib: int | None) -> Iterator[None]:
    """Have the kernel read so many KiB ahead on a folder's file system; afterwards as before.

    Args:
        kib: None: leave it as it is.

    Raises:
        Missing: it cannot be set here.
    """
    if kib is None:
        yield
        return
    knob = knob_of(folder)
    try:
        before = knob.read_text(encoding="ascii")
        knob.write_text(f"{kib}\n", encoding="ascii")
    except OSError as error:
        raise command.Missing(f"{knob}: {error.strerror}") from error
    try:
        yield
    finally:
        knob.write_text(before, encoding="ascii")


def run_all(
    made: datasets.Dataset, ways: tuple[str, ...], memory: int | None, rounds: int, bar: Progress
) -> tuple[Runs, bool]:
    """Run the ways in turn; return what each told, and whether the file was out each time.

    Raises:
        Failed: a run failed, or read something else.
    """
    runs: Runs = {way: [] for way in ways}
    task, is_cold = bar.add_task("race", total=rounds * len(ways)), True
    job = {
        "path": str(made.path.absolute()),
        "keys": str(made.keys_file.absolute()),
        "count": made.count,
        "memory": memory,
        "seed": SEED,
    }
    for number in range(rounds):
        for way in random.Random(number).sample(ways, len(ways)):
            bar.update(task, description=TITLES[way])
            is_cold &= measure.drop_cache(made.data_file)
            words = [sys.executable, "-m", "benchmarks.epochs.epoch"]
            words.append(json.dumps({**job, "way": way}))
            try:
                told = processes.call(
                    words, TITLES[way], processes.inherited(), processes.SECONDS_MAX
                )
            except processes.RunFailed as error:
                raise command.Failed(str(error)) from error
            if (told["records"], told["value_bytes"]) != (made.count, made.value_bytes):
                raise command.Failed(f"{TITLES[way]}: {told['records']} records, not {made.count}")
            runs[way].append(told)
            bar.advance(task)
    return runs, is_cold


def seconds(runs: Runs, way: str) -> list[float]:
    return [float(one["seconds"]) for one in runs[way]]


def judge(runs: Runs, where: str, *, fits: bool, readahead_kib: int | None) -> list[Verdict]:
    """Judge ours over the quicker py-lmdb of the round, and the Loader over its like."""
    verdicts: list[Verdict] = []

    def judged(words: str, over: list[float], way: str, least: float) -> None:
        ratios = [a / b for a, b in zip(over, seconds(runs, way), strict=True)]
        verdicts.append(
            report.judged(
                words, where, median(ratios), least=least, ends=(min(ratios), max(ratios))
            )
        )

    theirs = [seconds(runs, way) for way in THEIRS if way in runs]
    if theirs and readahead_kib is not None:
        best = list(map(min, *theirs)) if len(theirs) > 1 else theirs[0]
        least = BOUNDS[fits][readahead_kib <= SMALL_KIB]
        for way in runs:
            if way not in THEIRS:
                judged(f"{TITLES[way]}, times as fast as py-lmdb", best, way, least)
    for way, like in LIKE.items():
        if {way, like} <= runs.keys():
            words = f"{TITLES[way]}, times as fast as {TITLES[like]}"
            judged(words, seconds(runs, like), way, LOADER_LEAST)
    return verdicts


def table(runs: Runs, made: datasets.Dataset, where: str) -> Table:
    rows = []
    for way, told in runs.items():
        rates = [made.count / taken for taken in sorted(seconds(runs, way), reverse=True)]
        rows.append((
            TITLES[way],
            report.spread_text(Spread.of(rates), ",.0f"),
            figure(median(one["cpu_seconds"] for one in told), ".2f"),
            figure(median(one["peak_bytes"] or 0 for one in told) / 1e6, ",.0f"),
        ))  # fmt: skip
    size = made.value_bytes // made.count
    title = f"{made.count:,} records of {size:,} bytes, shuffled, {where}"
    return Table(title, ("way", "records/s", "CPU s", "peak MB"), rows)


def main(words: list[str]) -> int:
    parser = command.race_parser(
        "benchmarks.epochs.run", __doc__ or "", data="epochs-data", rounds=7
    )
    add = parser.add_argument
    add("--memory", type=budget_bytes, metavar="BYTES", help="budget, such as 400M (Records' own)")
    add("--kernel-readahead", type=int, metavar="KIB", help="set it meanwhile (root)")
    add("--only", default="all", metavar="WAY,...", help=f"of {', '.join(TITLES)} (all)")
    chosen = parser.parse_args(words)
    began = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    console = report.wide_console()

    def measured() -> int:
        ways = command.words_of(tuple(TITLES), chosen.only)
        made = datasets.prepare(RECIPE, chosen.data, console)
        fits = chosen.memory is None or chosen.memory >= made.file_bytes
        with kernel_readahead(chosen.data, chosen.kernel_readahead):
            machine = measure.machine(chosen.data)
            with Progress(console=console, transient=True) as bar:
                runs, is_cold = run_all(made, ways, chosen.memory, chosen.rounds, bar)
        where = (
            f"{'cold' if is_cold else 'NOT cold'}, {'fits' if fits else 'exceeds'} the budget, "
            f"read_ahead_kb {machine.read_ahead_kb}"
        )
        verdicts = judge(runs, where, fits=fits, readahead_kib=machine.read_ahead_kb)
        console.print(table(runs, made, where).on_screen())
        console.print(report.verdict_table(verdicts, "What must hold").on_screen())
        console.print(report.counted(verdicts))
        found = {"machine": asdict(machine), "began": began, "cold": is_cold, "runs": runs}
        report.write(chosen.json, {**found, "verdicts": report.as_json(verdicts)})
        return report.status(verdicts)

    return command.guarded(measured)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
