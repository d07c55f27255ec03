"""The report of the runs: a table and a JSON file. Figures are computed here, once."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.box import HEAVY_HEAD, SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from lmdbio.bench.measure import Machine, Sample

__all__ = [
    "Report",
    "Row",
    "facts",
    "machine_facts",
    "number",
    "save_json",
    "table",
    "wanted_width",
]

MIB, GIB = 2**20, 2**30


@dataclass(slots=True)
class Row:
    """One contestant on one data set in one order.

    Attributes:
        dataset, order, contestant: names as shown.
        setting: how the contestant was set ("readahead on").
        baseline: the others of this data set and order are compared with this row.
        samples: the timed runs.
        verified: values compared with py-lmdb's.
        wrong: what differed, or why it failed; None when all is well.
        skipped: why it did not run here.
    """

    dataset: str
    order: str
    contestant: str
    setting: str = ""
    baseline: bool = False
    samples: list[Sample] = field(default_factory=list)
    verified: int = 0
    wrong: str | None = None
    skipped: str | None = None

    @property
    def rates(self) -> list[float]:
        """MiB/s of each run."""
        return [sample.mib_per_second for sample in self.samples]

    def median(self, name: str) -> float | None:
        """The median of an attribute of Sample; None without samples or where unknown."""
        values = [getattr(sample, name) for sample in self.samples]
        if not values or None in values:
            return None
        return float(statistics.median(values))


@dataclass(slots=True)
class Report:
    """Everything that was found out."""

    machine: Machine
    rows: list[Row] = field(default_factory=list)
    datasets: list[dict[str, Any]] = field(default_factory=list)
    calibration: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def cold(self) -> bool:
        samples = [sample for row in self.rows for sample in row.samples]
        return bool(samples) and all(sample.cold for sample in samples)

    @property
    def verified(self) -> int:
        return sum(row.verified for row in self.rows)

    @property
    def equal(self) -> bool:
        """Every contestant that runs here was verified, and nothing was wrong."""
        ran = [row for row in self.rows if row.skipped is None]
        return bool(ran) and all(row.wrong is None and row.verified for row in ran)

    def ratio(self, row: Row) -> float | None:
        """Median rate over the baseline's."""
        for base in self.rows:
            rival = base.baseline and (base.dataset, base.order) == (row.dataset, row.order)
            if rival and base.samples and row.samples:
                return statistics.median(row.rates) / statistics.median(base.rates)
        return None


def number(value: float | None, form: str = ",.0f", scale: float = 1.0) -> str:
    return "-" if value is None else format(value / scale, form)


def rate(row: Row) -> str:
    """Median and spread of the rate; warm figures carry a star."""
    rates = row.rates
    star = "" if all(sample.cold for sample in row.samples) else " *"
    return f"{statistics.median(rates):,.0f}  ({min(rates):,.0f}-{max(rates):,.0f}){star}"


def facts(report: Report) -> list[str]:
    """Lines that belong above any figure: machine, storage, cache state."""
    state = (
        "cold: the data file was out of this machine's page cache before every run"
        if report.cold
        else "WARM where marked *: the page cache could not be dropped"
    )
    return [
        *machine_facts(report.machine),
        f"cache        {state}",
        *(f"data         {line['line']}" for line in report.datasets),
    ]


def machine_facts(machine: Machine) -> list[str]:
    """Machine and storage."""
    ahead = "unknown" if machine.read_ahead_kb is None else f"{machine.read_ahead_kb} KiB"
    return [
        f"machine      {machine.cpu}, {machine.cores} cores, "
        f"{machine.memory_bytes / GIB:.0f} GiB, {machine.system}, Python {machine.python}",
        f"storage      {machine.file_system} on {machine.device}, kernel readahead {ahead}",
    ]


def ratio_text(report: Report, row: Row) -> str:
    return number(report.ratio(row), ".2f")


def verdict(row: Row) -> str:
    return f"[red]{row.wrong}[/]" if row.wrong else f"{row.verified:,}"


#: Title, what stands below it, and whether a narrow window has room for it.
COLUMNS: tuple[tuple[str, Callable[[Report, Row], str], bool], ...] = (
    ("MiB/s\nmedian (spread)", lambda _, row: rate(row), True),
    ("read\nMiB", lambda _, row: number(row.median("fetched_bytes"), scale=MIB), True),
    ("device\nrequests", lambda _, row: number(row.median("device_requests")), False),
    ("CPU s", lambda _, row: number(row.median("cpu_seconds"), ".2f"), False),
    ("CPU s\nper GiB", lambda _, row: number(row.median("cpu_per_gib"), ".2f"), True),
    ("ratio", ratio_text, True),
    ("equal\nvalues", lambda _, row: verdict(row), False),
)


def table(report: Report, *, narrow: bool = False) -> Table:
    """The one table. ``narrow``: for 80 columns, without what JSON and verdict say as well."""
    out = Table(
        title="Reading an LMDB data set",
        title_style="bold",
        header_style="bold",
        box=SIMPLE if narrow else HEAVY_HEAD,
        pad_edge=not narrow,
    )
    columns = [column for column in COLUMNS if column[2] or not narrow]
    for name in ("contestant",) if narrow else ("data set", "order", "contestant"):
        out.add_column(name)
    for name, _, _ in columns:
        out.add_column(name.replace(" (", "\n(") if narrow else name, justify="right")
    before: Row | None = None
    for row in report.rows:
        new_set = before is None or before.dataset != row.dataset
        new_order = new_set or before is None or before.order != row.order
        if before is not None and new_order:
            out.add_section()
        before = row
        name = f"{row.contestant}\n  [dim]{row.setting}[/]" if row.setting else row.contestant
        head: tuple[str, ...] = (name,)
        if not narrow:
            head = (row.dataset if new_set else "", row.order if new_order else "", name)
        elif new_order:
            out.add_row(f"[bold]{row.dataset}, {row.order}[/]")
        if row.skipped or not row.samples:
            why = row.skipped or row.wrong or "not measured"
            if narrow:  # a sentence must not widen a column of figures
                out.add_row(f"{name}\n  [yellow]{why}[/]")
            else:
                out.add_row(*head, f"[yellow]{why}[/]")
            continue
        values = [value(report, row) for _, value, _ in columns]
        if narrow:
            values[0] = values[0].replace("  (", "\n(")
        out.add_row(*head, *values)
    return out


def wanted_width(shown: Table, console: Console) -> int:
    """Columns that a table takes when nothing has to be cut or wrapped."""
    unlimited = console.options.update(max_width=10_000)
    return Measurement.get(console, unlimited, shown).maximum


def legend(report: Report) -> list[str]:
    """What the columns mean."""
    return [
        "MiB/s: bytes of values over the time from before opening to the last value; "
        "median, and slowest to fastest run.",
        "read: what the reading processes made the kernel fetch. device requests: served by "
        "the block device meanwhile, for whomever.",
        "ratio: median MiB/s over py-lmdb's at the better of its two readahead settings.",
        "†: the first batches of an epoch, which cost what every batch of a set costs that is too "
        "large for memory; Records is told to bring nothing else to memory (readahead=False).",
        *report.notes,
    ]


def show(report: Report, console: Console) -> None:
    """Prints facts, table, legend and the verdict."""
    console.print()
    for line in facts(report):
        console.print(line, highlight=False)
    whole = table(report)
    fits = wanted_width(whole, console) <= console.width
    console.print(whole if fits else table(report, narrow=True))
    if not fits:
        line = f"(a window of {wanted_width(whole, console)} columns shows more; so does the JSON)"
        console.print(line, style="dim", highlight=False)
    for line in legend(report):
        console.print(line, style="dim", highlight=False)
    for row in report.rows:
        if row.wrong:
            console.print(
                f"[bold red]NOT EQUAL[/] {row.dataset}, {row.order}: {row.wrong}", highlight=False
            )
    if report.equal:
        console.print(
            f"[bold green]equal[/]: {report.verified:,} values compared with py-lmdb's, "
            "none differs"
        )


def as_json(report: Report) -> dict[str, Any]:
    """The report as plain values: what the table shows, and every sample behind it."""
    rows = []
    for row in report.rows:
        plain = asdict(row) | {"ratio": report.ratio(row)}
        if row.samples:
            plain["mib_per_second"] = {
                "median": statistics.median(row.rates),
                "min": min(row.rates),
                "max": max(row.rates),
            }
            plain["cpu_seconds_per_gib"] = row.median("cpu_per_gib")
        rows.append(plain)
    return {
        "machine": asdict(report.machine),
        "cold": report.cold,
        "equal": report.equal,
        "verified": report.verified,
        "seconds": report.seconds,
        "datasets": report.datasets,
        "calibration": report.calibration,
        "rows": rows,
        "notes": report.notes,
    }


def save_json(report: Report, path: Path) -> None:
    path.write_text(json.dumps(as_json(report), indent=2) + "\n", encoding="utf-8")
