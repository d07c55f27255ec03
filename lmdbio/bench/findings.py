"""The findings of ``lmdbio bench``, and the statistics on them. Pure.

Rates are bytes of the file's pages that a run had to read, over its seconds: for those who hand
out records the pages that hold them, for those who read bytes the bytes. So a ratio of two
rates is a ratio of times for the same work.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from lmdbio.bench import trials
from lmdbio.bench.measure import Machine
from lmdbio.bench.runner import Outcome
from lmdbio.bench.trials import Trial, Workload
from lmdbio.planning.randomness import confidence_ranks

__all__ = [
    "PERCENTILES",
    "SCHEMA",
    "Findings",
    "Row",
    "Spread",
    "as_json",
    "figure",
    "row_json",
    "size_text",
]

#: Raised whenever a reader of the JSON would notice.
SCHEMA = "lmdbio-bench/1"
MIB, GIB = 2**20, 2**30
PERCENTILES = (50.0, 90.0, 99.0, 100.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some values, and their ends.

    Attributes:
        median, min, max: middle, smallest and largest of the values.
        interval: two values between which the median of all such runs lies in 95 of 100 cases;
            None of fewer than six values, which cannot say so.
    """

    median: float
    min: float
    max: float
    interval: tuple[float, float] | None = None

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """None without values."""
        every = sorted(values)
        if not every:
            return None
        ranks = confidence_ranks(len(every))
        interval = None if ranks is None else (every[ranks[0] - 1], every[ranks[1] - 1])
        return cls(statistics.median(every), every[0], every[-1], interval)


def figure(value: float | None, form: str = "") -> str:
    """Return a number with three figures, or whole, or in a given form; "-" for None."""
    if value is None:
        return "-"
    return format(value, form or (",.0f" if abs(value) >= 100 else ".3g"))


def size_text(size: int) -> str:
    """Bytes as "64 KiB" or "1 MiB"."""
    return f"{size / MIB:g} MiB" if size >= MIB else f"{size / 1024:g} KiB"


@dataclass(slots=True)
class Row:
    """One trial and its runs.

    Attributes:
        trial: contestant and the size of its transfers.
        work: records that it reads; several rows have one workload in common as a rule.
        command: command line of fio and ior, as run.
        runs: the timed ones.
        wrong: reason why it failed, or difference that was found.
        verified: whether its records were compared with py-lmdb's.
        called: a name instead of the contestant's title.
    """

    trial: Trial
    work: Workload
    command: tuple[str, ...] = ()
    runs: list[Outcome] = field(default_factory=list)
    wrong: str = ""
    verified: bool = False
    called: str = ""

    @property
    def title(self) -> str:
        return self.called or self.trial.contestant.title

    @property
    def label(self) -> str:
        """Title and transfer."""
        transfer = self.trial.transfer
        return f"{self.title}, {size_text(transfer)}" if transfer else self.title

    @property
    def family(self) -> str:
        return self.trial.contestant.family

    @property
    def shade(self) -> str:
        return self.trial.contestant.shade

    @property
    def rates(self) -> list[float]:
        """MiB/s of each run."""
        samples = [run.sample for run in self.runs if run.sample is not None]
        return [self.trial.bytes / MIB / sample.seconds for sample in samples]

    @property
    def rate(self) -> Spread | None:
        return Spread.of(self.rates)

    def of_samples(self, name: str, scale: float = 1.0) -> Spread | None:
        """An attribute of the samples; None where a machine does not count it."""
        values = [getattr(run.sample, name) for run in self.runs if run.sample is not None]
        return None if None in values else Spread.of(value / scale for value in values)

    @property
    def cpu_per_gib(self) -> Spread | None:
        return self.of_samples("cpu_seconds", self.trial.bytes / GIB)

    @property
    def switches_per_gib(self) -> Spread | None:
        values = [run.switches for run in self.runs]
        known = [value / (self.trial.bytes / GIB) for value in values if value is not None]
        return Spread.of(known) if len(known) == len(values) else None

    @property
    def latencies(self) -> dict[float, float]:
        """Milliseconds for a batch by percentile, of all runs together."""
        laps = [lap * 1000 for run in self.runs for lap in run.laps]
        if not laps:
            return {}
        return dict(zip(PERCENTILES, np.percentile(laps, PERCENTILES).tolist(), strict=True))


@dataclass(slots=True)
class Findings:
    """Everything: what was to be done, where, and what came of it.

    Attributes:
        machine: description of the machine and the storage.
        workload: the records that everyone read, unless a row says otherwise.
        rows: one per trial.
        cold: whether cold runs were asked for.
        repeats: rounds asked for.
        began: date and time, UTC.
        seconds: duration of all of it, seconds.
        interrupted: number of the signal that interrupted it; 0: none did.
        notes: remarks that a reader of the figures should know.
        versions: version of each program.
        title: title in a table of several findings.
    """

    machine: Machine
    workload: Workload
    rows: list[Row] = field(default_factory=list)
    cold: bool = True
    repeats: int = 0
    began: str = ""
    seconds: float = 0.0
    interrupted: int = 0
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    title: str = ""

    @property
    def measured(self) -> list[Row]:
        return [row for row in self.rows if row.rates]

    @property
    def was_cold(self) -> bool:
        """Every run found the file out of the page cache."""
        samples = [run.sample for row in self.rows for run in row.runs]
        return bool(samples) and all(sample is not None and sample.cold for sample in samples)

    @property
    def rounds(self) -> int:
        """Of which everybody has a run."""
        return min((len(row.runs) for row in self.measured), default=0)

    @property
    def sound(self) -> bool:
        """Something was measured, and nobody failed or differed."""
        return bool(self.measured) and not any(row.wrong for row in self.rows)

    @property
    def comparable(self) -> list[Row]:
        """The measured rows that do the same work.

        In order, requests of any size end up with the same bytes. At random, a request larger
        than a record is less random than what the readers of records have to do: only the size
        nearest to a record's counts.
        """
        rows, size = self.measured, self.workload.record_bytes
        transfers = {row.trial.transfer for row in rows if row.trial.transfer}
        if self.workload.access != "random" or not transfers:
            return rows
        nearest = min(transfers, key=lambda transfer: abs(math.log(transfer / size)))
        return [row for row in rows if row.trial.transfer in (0, nearest)]

    def best(self, *families: str) -> Row | None:
        """The row of the highest median rate among those families."""
        rows = [row for row in self.comparable if row.family in families]
        return max(rows, key=lambda row: statistics.median(row.rates), default=None)

    @property
    def baseline(self) -> Row | None:
        """py-lmdb at the better of its settings."""
        return self.best("py-lmdb")

    @property
    def ceiling(self) -> Row | None:
        """The best of those that read bytes."""
        return self.best("plain", "fio", "ior")

    @property
    def leading(self) -> list[Row]:
        """Comparable rows; of a contestant with several transfers only the best one."""
        best: dict[str, Row] = {}
        for row in self.comparable:
            other = best.setdefault(row.title, row)
            if statistics.median(row.rates) > statistics.median(other.rates):
                best[row.title] = row
        return list(best.values())

    def ratio(self, row: Row, to: Row | None) -> float | None:
        """Median rate over another row's."""
        mine, other = row.rate, to.rate if to is not None else None
        return mine.median / other.median if mine is not None and other is not None else None

    @property
    def state(self) -> str:
        """Of the page cache, in words."""
        if self.was_cold:
            return "cold: the file was out of the page cache before every run"
        if not self.cold:
            return "WARM, as asked: the page cache was left alone"
        return "WARM: the file could not be put out of the page cache before every run"


def row_json(findings: Findings, row: Row) -> dict[str, Any]:
    """A row with its figures, and every sample behind them."""
    one = row.trial.contestant

    def spread(value: Spread | None) -> dict[str, Any] | None:
        return None if value is None else asdict(value)

    return {
        "name": row.trial.name,
        "title": row.title,
        "family": row.family,
        "comparable": row in findings.comparable,
        "engine": one.engine,
        "transfer": row.trial.transfer or None,
        "bytes": row.trial.bytes,
        "skipped": row.trial.skipped or None,
        "wrong": row.wrong or None,
        "verified": row.verified,
        "command": list(row.command) or None,
        "mib_per_second": spread(row.rate),
        "ratio_to_lmdb": findings.ratio(row, findings.baseline),
        "ratio_to_raw": findings.ratio(row, findings.ceiling),
        "cpu_seconds_per_gib": spread(row.cpu_per_gib),
        "switches_per_gib": spread(row.switches_per_gib),
        "batch_milliseconds": {f"p{share:g}": value for share, value in row.latencies.items()},
        "samples": [
            (asdict(run.sample) if run.sample else {})
            | {"switches": run.switches, "laps": list(run.laps)}
            for run in row.runs
        ],
    }


def as_json(findings: Findings) -> dict[str, Any]:
    """All of it as plain values."""
    return {
        "schema": SCHEMA,
        "began": findings.began,
        "seconds": findings.seconds,
        "interrupted": bool(findings.interrupted),
        "machine": asdict(findings.machine),
        "versions": findings.versions,
        "workload": trials.as_json(findings.workload),
        "cache": {"asked": "cold" if findings.cold else "warm", "cold": findings.was_cold},
        "repeats": findings.repeats,
        "rounds": findings.rounds,
        "sound": findings.sound,
        "notes": findings.notes,
        "rows": [row_json(findings, row) for row in findings.rows],
    }
