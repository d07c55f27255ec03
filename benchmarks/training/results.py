"""Puts side by side what runs told: tables, and the verdicts on ratios. Pure.

A ratio is one of two rates of the same round; its median over the rounds is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks import harness, report
from benchmarks.report import Verdict
from benchmarks.training.ways import LOADER, Way
from lmdbio.bench.findings import Spread, figure
from lmdbio.page.table import Table

__all__ = ["NOTES", "STATES", "Cell", "Run", "judge", "table"]

STATES = COLD, WARM = "cold", "warm"
#: Of the Loader as it comes, over the best of the others; of any number of threads, over one; of
#: a data set of ours, over py-lmdb in the same DataLoader.
BEST_LEAST, THREADS_LEAST, DATASET_LEAST = 0.95, 0.8, 0.95
NOTES = (
    "Waiting: of the loop's time after the first batch. Step: alone over beside the loader. CPU: "
    "of all processes, training included. Memory: their peak of anonymous pages and /dev/shm, "
    "each page once, over what the loop's process had before; mapped files are not counted."
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a way.

    Attributes:
        number: of its round.
        count: records of the data set.
        was_cold: the files were seen to be out of the page cache before it.
        told: what it answered (``loop``, ``watch``).
    """

    number: int
    count: int
    was_cold: bool
    told: Mapping[str, Any]

    def epochs(self, state: str) -> list[dict[str, Any]]:
        """Return the first epoch, or all others."""
        told = list(self.told["epochs"])
        return told[:1] if state == COLD else told[1:]

    def total(self, state: str, name: str) -> float:
        """Return the sum of something over the epochs of a state."""
        return float(sum(epoch[name] for epoch in self.epochs(state)))

    def rate(self, state: str) -> float:
        """Return samples a second."""
        return self.count * len(self.epochs(state)) / self.total(state, "seconds")

    def waiting(self, state: str) -> float:
        """Return the share of the loop after the first batch in which it waited."""
        after = self.total(state, "seconds") - self.total(state, "first_seconds")
        return self.total(state, "wait_seconds") / after if after > 0 else 0.0

    def step(self, state: str) -> float | None:
        """Return the seconds of a step alone over those beside the loader; None: no training."""
        alone, beside = self.told["step_alone_seconds"], self.total(state, "step_seconds")
        return float(alone * self.total(state, "steps") / beside) if alone and beside else None

    def cpu(self, state: str) -> float:
        """Return processor seconds for 1,000 samples."""
        samples = self.count * len(self.epochs(state))
        return self.total(state, "cpu_seconds") / samples * 1000


@dataclass(slots=True)
class Cell:
    """A workload, and the runs of all ways.

    Attributes:
        name, title: of the workload.
        ways: who takes part.
        runs: by the name of the way.
        failed: why a way has no more runs, by its name.
    """

    name: str
    title: str
    ways: Sequence[Way]
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def measured(self, wanted: Callable[[Way], Any]) -> list[Way]:
        """Return those ways of a kind that have runs."""
        return [way for way in self.ways if wanted(way) and self.runs.get(way.name)]

    def rates(self, state: str, *names: str) -> list[list[float]]:
        """Return the rates of some ways, in those rounds that all of them have."""
        rounds = [{run.number: run.rate(state) for run in self.runs[name]} for name in names]
        shared = sorted(set.intersection(*map(set, rounds)))
        return [[of[number] for number in shared] for of in rounds]

    def best(self, state: str, ways: Iterable[Way]) -> Way | None:
        """Return the way with the greatest median rate."""
        return max(
            ways,
            default=None,
            key=lambda way: median(run.rate(state) for run in self.runs[way.name]),
        )

    def where(self, state: str) -> str:
        """Return the cell and the state of the page cache, in words."""
        cold = all(run.was_cold for runs in self.runs.values() for run in runs)
        return f"{self.name}, {'NOT ' if state == COLD and not cold else ''}{state}"


def judge(cell: Cell) -> list[Verdict]:
    """Return the verdicts on a cell, cold and warm, as far as somebody took part."""
    verdicts: list[Verdict] = []
    for state in STATES:
        verdicts += _judge_loader(cell, state)
        verdicts += _judge_rest(cell, state)
    ours = cell.measured(lambda way: way.group != "peer")
    if ours:
        left = [name for way in ours for run in cell.runs[way.name] for name in run.told["left"]]
        verdicts.append(
            report.judged(
                "processes and files in /dev/shm that our runs left", cell.name, len(left),
                most=0, note=", ".join(left[:3]),
            )
        )  # fmt: skip
    return verdicts


def _over(cell: Cell, state: str, words: str, who: str, than: Way | None,
          least: float | None) -> list[Verdict]:  # fmt: skip
    if than is None:
        return []
    where = f"{cell.where(state)}: {than.title}"
    rates = cell.rates(state, who, than.name) if cell.runs.get(who) else [[], []]
    if not rates[0]:
        return [report.judged(words, where, None, least=least, note=cell.failed.get(who, ""))]
    return [harness.judged(words, where, rates, least=least, unit="samples/s")]


def _judge_loader(cell: Cell, state: str) -> list[Verdict]:
    """Judge the Loader as it comes, over the best that a user could have told or written."""
    if all(way.name != LOADER for way in cell.ways):
        return []
    rivals: tuple[tuple[str, Callable[[Way], Any], float | None], ...] = (
        ("the best of them", lambda way: way.judged, BEST_LEAST),
        ("the best DataLoader", lambda way: way.group == "program", None),
        ("the best of other formats", lambda way: way.group == "peer", None),
    )
    found = []
    for words, wanted, least in rivals:
        best = cell.best(state, cell.measured(wanted))
        found += _over(cell, state, f"Loader as it comes, over {words}", LOADER, best, least)
    steps = [step for run in cell.runs.get(LOADER, []) if (step := run.step(state)) is not None]
    if steps:
        found.append(
            report.judged("the training's step alone, over beside the Loader", cell.where(state),
                          median(steps), ends=(min(steps), max(steps)))
        )  # fmt: skip
    return found


def _judge_rest(cell: Cell, state: str) -> list[Verdict]:
    """Judge each number of threads over one, and a data set of ours over py-lmdb's."""
    found = []
    told = {way.words["threads"]: way for way in cell.measured(lambda way: "threads" in way.words)}
    for count, way in told.items():
        if count > 1 and 1 in told:
            rates = cell.rates(state, way.name, told[1].name)
            where = f"{cell.where(state)}: {count} threads"
            if rates[0]:
                found.append(harness.judged("Loader, over the same with one thread", where, rates,
                                         least=THREADS_LEAST, unit="samples/s"))  # fmt: skip
    names = {way.name: way for way in cell.measured(lambda way: way.group == "program")}
    if {"dataset", "lmdb"} <= names.keys():
        words = f"{names['dataset'].title}, over py-lmdb"
        found += _over(cell, state, words, "dataset", names["lmdb"], DATASET_LEAST)
    return found


def table(cell: Cell, state: str) -> Table:
    """Return a line for each way that was run, or failed."""
    rows = []
    for way in cell.ways:
        runs = cell.runs.get(way.name)
        if not runs:
            if way.name in cell.failed:
                rows.append((way.title, "-", "", "", "", "", "", "", cell.failed[way.name]))
            continue
        over = cell.rates(state, LOADER, way.name) if cell.runs.get(LOADER) else [[], []]
        ratios = [ours / theirs for ours, theirs in zip(*over, strict=True)]
        steps = [step for run in runs if (step := run.step(state)) is not None]
        firsts = [run.total(state, "first_seconds") / len(run.epochs(state)) for run in runs]
        memory = median(run.told["peak_bytes"] - run.told["before_bytes"] for run in runs)
        rows.append((
            way.title,
            report.spread_text(Spread.of(run.rate(state) for run in runs), ",.0f"),
            report.spread_text(Spread.of(ratios), ".2f") if way.name != LOADER else "",
            figure(median(firsts), ".3f"),
            f"{median(run.waiting(state) for run in runs):.0%}",
            figure(median(steps), ".2f") if steps else "",
            figure(median(run.cpu(state) for run in runs), ".3g"),
            figure(max(0.0, memory) / 1e6, ",.0f"),
            cell.failed.get(way.name, ""),
        ))  # fmt: skip
    heads = ("way", "samples/s", "Loader over it", "first batch s", "waiting", "step",
             "CPU s/1,000", "memory MB", "note")  # fmt: skip
    return Table(f"{cell.where(state)}: {cell.title}", heads, rows, left=("note",))
