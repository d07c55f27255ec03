"""The demonstration: two data sets, every reader, one table.

    write (or reuse) -> hash through py-lmdb -> convert -> verify every reader
      -> calibrate py-lmdb -> alternate the readers, cold -> report

Verifying comes first and outside of the timed runs.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from lmdbio.bench import contestants, datasets, measure, processes, report
from lmdbio.bench.bars import bars, by_steps
from lmdbio.bench.contestants import BATCH, IN_ORDER, SHUFFLED, Job
from lmdbio.bench.datasets import Dataset, Recipe
from lmdbio.bench.demo_page import page
from lmdbio.bench.report import MIB, Report, Row

__all__ = ["Leg", "Plan", "run"]

#: Runs beyond this many are dropped once the demonstration has taken SECONDS_MAX.
REPEATS_MIN = 3
SECONDS_MAX = 150.0


@dataclass(frozen=True, slots=True)
class Leg:
    """An order to read in, and who takes part; the first one is py-lmdb, the baseline.

    Attributes:
        order: IN_ORDER or SHUFFLED.
        share: of the records; the first so many of that order are read, in whole batches.
        contestants: names in CONTESTANTS.
    """

    order: str
    share: float
    contestants: tuple[str, ...]

    def count(self, total: int) -> int:
        """How many of ``total`` records are read."""
        batches = max(1, round(total * self.share / BATCH))
        return total if self.share == 1.0 else min(total, batches * BATCH)

    def label(self, total: int) -> str:
        """As shown."""
        if self.share == 1.0:
            return self.order if self.order == IN_ORDER else f"{self.order}, whole epoch"
        batches = -(-self.count(total) // BATCH)
        return f"{self.order}, {batches} batch{'es' * (batches > 1)}†"


LEGS = (
    Leg(IN_ORDER, 1.0, ("lmdb-order", "open-order", "reader-order")),
    # Of a whole epoch the page cache serves most: these sets fit in memory many times over.
    Leg(SHUFFLED, 1.0, ("lmdb-shuffled", "records-shuffled")),
    # Of its beginning next to nothing: so a set that is much larger than memory reads always
    # (Records is told to bring nothing else to memory).
    Leg(SHUFFLED, 1 / 32, ("lmdb-shuffled", "records-shuffled")),
)
#: Read with the readahead setting that is often ten times slower.
CALIBRATION_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Attributes:
        data: folder for the data sets; kept, and reused by the next run.
        out: folder for the JSON file and the page.
        repeats: timed runs of each contestant.
        recipes: the data sets.
        legs: the orders.
    """

    data: Path
    out: Path
    repeats: int = 5
    recipes: tuple[Recipe, ...] = (datasets.CIFAR, datasets.JPEG)
    legs: tuple[Leg, ...] = LEGS


def run(plan: Plan, console: Console) -> Report:
    """Does everything and returns the report, whose ``equal`` is the verdict.

    Progress goes to ``console``; demo.json and demo.html to ``plan.out``.

    Raises:
        OSError: no room, or a folder that cannot be written.
        RunFailed: a calibration run failed.
    """
    begun = time.monotonic()
    plan.data.mkdir(parents=True, exist_ok=True)
    plan.out.mkdir(parents=True, exist_ok=True)
    check_room(plan)
    sets = [prepare(recipe, plan.data, console) for recipe in plan.recipes]
    made = Report(measure.machine(plan.data), datasets=[describe(one) for one in sets])
    for one, line in zip(sets, made.datasets, strict=True):
        line |= convert(one, console)
        line["line"] += (
            f"; sidecar {line['sidecar_bytes']:,} bytes, made in {line['sidecar_seconds']:.2f} s"
        )
    pairs = [(one, leg) for one in sets for leg in plan.legs]
    rows = [Lane(one, leg, name) for one, leg in pairs for name in leg.contestants]
    made.rows = [lane.row for lane in rows]
    running = [lane for lane in rows if lane.row.skipped is None]
    verify(running, console)
    running = [lane for lane in running if lane.row.wrong is None]
    calibrate(running, made, console)
    alternate(running, made, plan.repeats, begun, console)
    made.seconds = time.monotonic() - begun
    report.save_json(made, plan.out / "demo.json")
    (plan.out / "demo.html").write_text(page(made), encoding="utf-8")
    return made


class Lane:
    """One row of the table while it is being filled."""

    def __init__(self, made: Dataset, leg: Leg, name: str) -> None:
        self.leg = leg
        self.baseline = name == leg.contestants[0]
        self.mean_bytes = max(1, made.value_bytes // max(1, made.count))
        self.job = Job(
            contestant=name,
            path=str(made.path),
            order=leg.order,
            count=leg.count(made.count),
            total=made.count,
            digests=str(made.digest_file),
            keys=str(made.keys_file),
        )
        self.row = Row(
            dataset=made.recipe.name,
            order=leg.label(made.count),
            contestant=contestants.CONTESTANTS[name].title,
            baseline=self.baseline,
            skipped=processes.unavailable(name),
        )

    @property
    def label(self) -> str:
        return f"{self.row.dataset}, {self.row.order}: {self.row.contestant}"


def check_room(plan: Plan) -> None:
    """Raises OSError if the data sets that are missing do not fit."""
    missing = [
        recipe
        for recipe in plan.recipes
        if datasets.existing(recipe, plan.data / recipe.name) is None
    ]
    # A value of 3 KB occupies a page of 4 KiB.
    needed = int(sum(recipe.value_bytes_min for recipe in missing) * 1.5)
    free = shutil.disk_usage(plan.data).free
    if needed > free:
        raise OSError(
            f"{plan.data}: the data sets need {needed // MIB:,} MiB, {free // MIB:,} are free"
        )


def prepare(recipe: Recipe, folder: Path, console: Console) -> Dataset:
    """The data set of a recipe, written if need be, hashed in any case."""
    total = recipe.value_bytes_min
    with bars(console, sizes=True) as progress:
        writes = progress.add_task(f"write {recipe.name}", total=total, visible=False)
        reads = progress.add_task(f"hash {recipe.name}", total=total, visible=False)
        made, reused = datasets.ensure(
            recipe,
            folder,
            writing=by_steps(progress, writes, total),
            reading=by_steps(progress, reads, total),
        )
        for task, shown in ((writes, not reused), (reads, True)):
            progress.update(
                task, total=made.value_bytes, completed=made.value_bytes, visible=shown
            )
    return made


def describe(made: Dataset) -> dict[str, Any]:
    """A data set in words and numbers."""
    mean = made.value_bytes / max(1, made.count)
    return {
        "name": made.recipe.name,
        "path": str(made.path),
        "records": made.count,
        "value_bytes": made.value_bytes,
        "file_bytes": made.file_bytes,
        "line": (
            f"{made.recipe.name}: {made.count:,} records of {mean:,.0f} bytes on average, "
            f"{made.value_bytes / MIB:,.0f} MiB of values in {made.file_bytes / MIB:,.0f} MiB"
        ),
    }


def convert(made: Dataset, console: Console) -> dict[str, Any]:
    """Makes the sidecar of a data set anew, cold."""
    from lmdbio.convert.convert import convert as attach

    with console.status(f"convert {made.recipe.name}"):
        cold = measure.drop_cache(made.data_file)
        done = attach(made.path)
    return {
        "sidecar": str(done.sidecar),
        "sidecar_bytes": done.sidecar_bytes,
        "sidecar_seconds": done.seconds,
        "sidecar_read_bytes": done.bytes_read,
        "sidecar_cold": cold,
    }


def verify(lanes: Sequence[Lane], console: Console) -> None:
    """Compares every value that every contestant hands out."""
    with bars(console, sizes=False) as progress:
        task = progress.add_task("verify", total=len(lanes))
        for lane in lanes:
            progress.update(task, description=f"verify {lane.label}")
            try:
                answer = processes.start(replace(lane.job, verify=True))
            except processes.RunFailed as error:
                lane.row.wrong = str(error)
            else:
                lane.row.verified, lane.row.wrong = answer.verified, answer.wrong
                nodes = contestants.CONTESTANTS[lane.job.contestant].nodes
                if answer.nodes != nodes:
                    lane.row.setting = f"this MPI made {answer.nodes} node(s) of it"
            progress.advance(task)
        progress.update(task, description="verify")


def calibrate(lanes: Sequence[Lane], made: Report, console: Console) -> None:
    """Finds py-lmdb's better readahead setting for each data set and order.

    Without readahead the rate does not depend on how much is read, so there a part is enough;
    what is compared is MiB/s.
    """
    bases = [lane for lane in lanes if lane.baseline]
    with bars(console, sizes=False) as progress:
        task = progress.add_task("calibrate py-lmdb", total=2 * len(bases))
        for base in bases:
            rates = {}
            for readahead in (True, False):
                count = base.job.count
                if not readahead:
                    count = min(count, max(1, CALIBRATION_BYTES // base.mean_bytes))
                answer = processes.start(replace(base.job, readahead=readahead, count=count))
                rates[readahead] = measure.Sample(**(answer.sample or {})).mib_per_second
                progress.advance(task)
            better = rates[True] >= rates[False]
            made.calibration.append(
                {
                    "dataset": base.row.dataset,
                    "order": base.row.order,
                    "readahead_on_mib_per_second": rates[True],
                    "readahead_off_mib_per_second": rates[False],
                }
            )
            base.row.setting = (
                f"readahead {'on' if better else 'off'} "
                f"({'off' if better else 'on'}: {min(rates.values()):,.0f} MiB/s)"
            )
            # The same user code means the same keywords.
            for lane in lanes:
                if (lane.row.dataset, lane.leg) == (base.row.dataset, base.leg):
                    lane.job = replace(lane.job, readahead=better)


def alternate(
    lanes: Sequence[Lane], made: Report, repeats: int, begun: float, console: Console
) -> None:
    """Runs everyone in turn, again and again, every other time backwards."""
    with bars(console, sizes=False) as progress:
        task = progress.add_task("measure", total=repeats * len(lanes))
        for turn in range(repeats):
            if turn >= REPEATS_MIN and time.monotonic() - begun > SECONDS_MAX:
                made.notes.append(f"stopped after {turn} of {repeats} rounds: time is up.")
                progress.update(task, total=turn * len(lanes))
                break
            for lane in lanes if turn % 2 == 0 else list(reversed(lanes)):
                progress.update(task, description=f"measure {lane.label}")
                if lane.row.wrong is None:
                    try:
                        answer = processes.start(lane.job)
                    except processes.RunFailed as error:
                        lane.row.wrong = str(error)
                    else:
                        lane.row.samples.append(measure.Sample(**(answer.sample or {})))
                progress.advance(task)
        progress.update(task, description="measure")
