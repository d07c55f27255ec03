"""The report: tables for the terminal, a JSON file, a page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any

from rich.console import Console

from benchmarks import report as reports
from benchmarks.report import Verdict, verdict_table
from benchmarks.targets.cells import Cell
from benchmarks.targets.verdicts import judge
from lmdbio.bench import page as pages
from lmdbio.bench.findings import Findings, Row, as_json, figure
from lmdbio.page.document import facts_html, section
from lmdbio.page.table import Table

#: Raised whenever a reader of the JSON would notice.
SCHEMA = "lmdbio-targets/2"


@dataclass(slots=True)
class Measured:
    """A cell and what was measured in it.

    Attributes:
        cell: what was to be measured.
        findings: of the rows; None if it did not come to that.
        rows: by the name of the lane.
        calibration: everything that the plain readers tried.
        place: in words.
        link: MiB/s that the place's link lets pass, None if it has none.
        why: nothing was measured, for this reason.
    """

    cell: Cell
    findings: Findings | None = None
    rows: dict[str, list[Row]] = field(default_factory=dict)
    calibration: list[Row] = field(default_factory=list)
    place: str = ""
    link: float | None = None
    why: str = ""

    @property
    def every(self) -> list[Row]:
        """All rows, lane after lane."""
        return [row for rows in self.rows.values() for row in rows]

    @property
    def verdicts(self) -> list[Verdict]:
        """A verdict for each lane of each rule."""
        return judge(self.cell, self.rows, link=self.link, why=self.why)

    @property
    def commands(self) -> list[str]:
        """The commands of fio and ior, as run in turns with the others."""
        return [shlex.join(row.command) for row in self.every if row.command]

    @property
    def cache(self) -> str:
        """The state of the page cache, in words."""
        if self.findings is None:
            return "not known"
        if self.cell.warm:
            return "warm: the whole file was read before the rounds; every byte is looked at"
        return self.findings.state

    @property
    def facts(self) -> dict[str, str]:
        """On what the cell was measured."""
        if self.findings is None:
            return {"why": self.why}
        work = self.findings.workload
        tried = {"calibration": calibration_text(self.calibration)} if self.calibration else {}
        return self.findings.machine.facts | {
            "place": self.place,
            "page cache": self.cache,
            "data": f"{work.data_file}, {work.page_bytes / 2**20:,.0f} of "
            f"{work.file_bytes / 2**20:,.0f} MiB, {work.count:,} records in batches of "
            f"{work.batch}, located by {work.located_by}",
            **dict(self.cell.environment),
            **tried,
            "versions": ", ".join(f"{a} {b}" for a, b in self.findings.versions.items()),
        }


@dataclass(slots=True)
class Report:
    """Everything.

    Attributes:
        began: date and time, UTC.
        command: as given.
        cells: as far as it came.
        seconds: that it took.
        interrupted: by which signal; 0: it was not.
        failed: why it ended early.
    """

    began: str
    command: Sequence[str] = ()
    cells: list[Measured] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: int = 0
    failed: str = ""

    @property
    def verdicts(self) -> list[Verdict]:
        """Those of all cells."""
        return [one for made in self.cells for one in made.verdicts]


def calibration_text(tried: Sequence[Row]) -> str:
    """Say what one run of each setting gave, the best first; then which of them failed."""
    ran = sorted((row for row in tried if row.rates), key=lambda row: -row.rates[0])
    said = [f"{row.label} {figure(row.rates[0])}" for row in ran]
    failed = [f"{row.label} failed ({row.wrong})" for row in tried if row.wrong]
    return "; ".join([", ".join(said) + " MiB/s" if said else "none ran", *failed])


def table(made: Measured) -> Table:
    """Return the verdicts of a cell, under its name."""
    verdicts = [replace(one, where="") for one in made.verdicts]
    return verdict_table(verdicts, made.cell.name)


def show(report: Report, console: Console) -> None:
    """Print everything but the samples."""
    for made in report.cells:
        console.print(table(made).on_screen())
        for name, text in made.facts.items():
            console.print(f"{name:12} {text}", style="dim", highlight=False, markup=False)
        for line in made.commands:
            console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)
    said = reports.counted(report.verdicts) or "nothing was measured"
    console.print(f"\n{said}; {report.seconds:,.0f} s", highlight=False)
    if report.interrupted:
        console.print("[bold red]interrupted[/]: not everything was measured")


def plain(report: Report) -> dict[str, Any]:
    """Return everything as plain values, with every sample."""
    return {
        "schema": SCHEMA,
        "began": report.began,
        "command": list(report.command),
        "seconds": report.seconds,
        "interrupted": bool(report.interrupted),
        "failed": report.failed or None,
        "cells": [
            {
                "cell": asdict(made.cell),
                "facts": made.facts,
                "why": made.why or None,
                "verdicts": reports.as_json(made.verdicts),
                "commands": made.commands,
                "lanes": {name: [row.label for row in rows] for name, rows in made.rows.items()},
                "findings": as_json(made.findings) if made.findings is not None else None,
            }
            for made in report.cells
        ],
    }


def page(report: Report) -> str:
    """Return the whole page."""
    body = reports.summary(report.verdicts).section()
    for made in report.cells:
        body += table(made).section()
        if made.findings is not None and made.findings.measured:
            body += pages.rates_section(made.findings) + pages.latencies_section(made.findings)
            body += pages.table_section(made.findings)
        listed = f"<pre>{escape(chr(10).join(made.commands))}</pre>" if made.commands else ""
        body += section("Where and how", "", facts_html(made.facts) + listed)
    ended = report.failed or "Interrupted" * bool(report.interrupted)
    return reports.page(
        "targets", report.began, "What must hold", report.verdicts, body, ended=ended
    )
