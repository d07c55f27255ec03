"""Runs all ways to load, each in a process of its own, by turns."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.training import forms, ways
from benchmarks.training.results import Cell, Run
from benchmarks.training.ways import Way
from benchmarks.training.workloads import Workload
from lmdbio.bench import datasets, measure, processes
from lmdbio.bench.datasets import Dataset

__all__ = ["Race", "ask", "prepare", "run_all", "turns"]

ROOT = Path(__file__).resolve().parents[2]
#: Warm epochs go on for so long, but there are at most so many; there is always one.
WARM_SECONDS, EPOCHS_MAX = 1.0, 4
SEED = 1


def environment() -> dict[str, str]:
    """Return our environment, in which this lmdbio and these benchmarks are found."""
    inherited = processes.inherited()
    return {**inherited, "PYTHONPATH": f"{inherited['PYTHONPATH']}{os.pathsep}{ROOT}"}


def ask(module: str, words: list[str], title: str) -> dict[str, Any]:
    """Run a module of this benchmark in a process of its own; return its answer.

    Raises:
        RunFailed: see ``processes.call``.
    """
    command_words = [sys.executable, "-m", f"benchmarks.training.{module}", *words]
    return processes.call(command_words, title, environment(), processes.SECONDS_MAX)


@dataclass(slots=True)
class Race:
    """All runs of one workload.

    Attributes:
        made: the data set.
        workload: what is made of its values.
        cell: where runs go.
        step: repetitions of the training's step; 0: no training.
        checksum: of the first run; all others must have the same.
    """

    made: Dataset
    workload: Workload
    cell: Cell
    step: int
    checksum: int | None = None

    def job(self, way: Way, asked: argparse.Namespace, *, pins: bool) -> dict[str, Any]:
        return {
            "kind": way.kind,
            "words": dict(way.words),
            "needs": [way.needs] if way.needs else [],
            "workload": self.workload.name,
            "path": str(forms.folder_of(way.form, self.made).absolute()),
            "keys": str(self.made.keys_file.absolute()),
            "count": self.made.count,
            "workers": asked.workers,
            "seed": SEED,
            "pins": pins,
            "epochs_max": EPOCHS_MAX,
            "warm_seconds": WARM_SECONDS,
            "step": self.step,
        }

    def run(self, way: Way, number: int, asked: argparse.Namespace, *, pins: bool) -> None:
        """Run a way, cold, and keep what it told, or why it failed."""
        files = forms.files_of(way.form, forms.folder_of(way.form, self.made))
        dropped = [measure.drop_cache(file) for file in files]
        job = json.dumps(self.job(way, asked, pins=pins))
        try:
            told = ask("watch", [job], way.title)
            sums = {epoch["checksum"] for epoch in told["epochs"]}
            self.checksum = sums.copy().pop() if self.checksum is None else self.checksum
            if sums != {self.checksum}:
                raise processes.RunFailed(f"{way.title}: other bytes than the first run's")
        except processes.RunFailed as error:
            self.cell.failed[way.name] = str(error).removeprefix(f"{way.title}: ")
            return
        run = Run(number, self.made.count, all(dropped), told)
        self.cell.runs.setdefault(way.name, []).append(run)


def convert(source: Dataset, racing: Sequence[Way], console: Console) -> dict[str, str]:
    """Write a data set in the formats of all ways, unless they are there.

    Returns:
        Why a way's format could not be written, by the way's name.
    """
    failed = {}
    for way in racing:
        folder = forms.folder_of(way.form, source)
        if folder.exists():
            continue
        with console.status(f"write {folder.name}"):
            try:
                ask("forms", [way.form, str(source.path), str(folder)], folder.name)
            except processes.RunFailed as error:
                failed[way.name] = str(error)
    return failed


def prepare(
    asked: argparse.Namespace, able: Sequence[Workload], racing: Sequence[Way], console: Console
) -> list[Race]:
    """Make data sets, the other formats of them, and measure how long a step must be.

    Raises:
        OSError: there is no room.
        RunFailed: nothing can be trained here.
    """
    kinds = {workload.kind: workload.recipe(asked.mib) for workload in able}
    made = {kind: datasets.prepare(one, asked.data, console) for kind, one in kinds.items()}
    failed = {kind: convert(source, racing, console) for kind, source in made.items()}
    races = []
    for workload in able:
        source, step = made[workload.kind], 0
        if asked.step:
            with console.status("calibrate the step"):
                step = ask("probe", ["--step", workload.name], "the step")["repeats"]
        size, workers = source.value_bytes // source.count, asked.workers
        title = (
            f"{workload.title}; {source.count:,} records of {size:,} bytes, shuffled, "
            f"batches of {workload.batch}, {workers} worker{'s' * (workers != 1)}"
        )
        cell = Cell(workload.name, title, racing, failed=dict(failed[workload.kind]))
        races.append(Race(source, workload, cell, step))
    return races


def turns(races: Sequence[Race], number: int) -> list[tuple[Race, Way]]:
    """Return who runs in a round, and when: the Loader first, and last in every other round.

    Others' formats come when all of ours were measured, for which time may not be left.
    """
    found = []
    for peers in (False, True):
        for race in races:
            those = [way for way in race.cell.ways if (way.group == "peer") == peers]
            those.sort(key=lambda way: way.name != ways.LOADER)
            found += [(race, way) for way in (those if number % 2 == 0 else reversed(those))]
    return found


def run_all(
    races: list[Race], asked: argparse.Namespace, deadline: float, console: Console, *, pins: bool
) -> str:
    """Run everybody by turns; return why not all rounds were run, "" if they were."""
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("race", total=asked.rounds * len(turns(races, 0)))
        for number in range(asked.rounds):
            begun = time.monotonic()
            for race, way in turns(races, number):
                if time.monotonic() > deadline:
                    return f"after {asked.minutes:g} minutes in round {number + 1}"
                bar.update(task, description=f"{race.cell.name}: {way.title}")
                if way.name not in race.cell.failed:
                    race.run(way, number, asked, pins=pins)
                bar.advance(task)
            if not console.is_terminal:
                console.print(f"round {number + 1}: {time.monotonic() - begun:.0f} s")
    return ""
