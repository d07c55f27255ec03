"""The report: tables for the terminal, a JSON file, a page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from benchmarks import report as reports
from benchmarks.harness import Told
from benchmarks.report import Verdict, verdict_table
from benchmarks.targets.cells import Cell
from benchmarks.targets.verdicts import judge
from lmdbio.bench import page as pages
from lmdbio.bench.findings import Findings, Row, as_json, figure
from lmdbio.page.table import Table

#: Raised whenever a reader of the JSON would notice.
SCHEMA = "lmdbio-targets/3"


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


def calibration_text(tried: Sequence[Row]) -> str:
    """Say what one run of each setting gave, the best first; then which of them failed."""
    ran = sorted((row for row in tried if row.rates), key=lambda row: -row.rates[0])
    said = [f"{row.label} {figure(row.rates[0])}" for row in ran]
    failed = [f"{row.label} failed ({row.wrong})" for row in tried if row.wrong]
    return "; ".join([", ".join(said) + " MiB/s" if said else "none ran", *failed])


def tell(told: Told, cells: Sequence[Measured]) -> None:
    """Note all that was measured up to now, with every sample."""
    told.title, told.summed = "What must hold", True
    told.verdicts = [one for made in cells for one in made.verdicts]
    told.failed = not told.verdicts or any(one.figure is None for one in told.verdicts)
    told.parts = [part(made) for made in cells]
    told.facts = {
        "schema": SCHEMA,
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
            for made in cells
        ],
    }


def part(made: Measured) -> tuple[Table, str]:
    """Return the verdicts of a cell under its name, and what a page shows below them."""
    verdicts = [replace(one, where="") for one in made.verdicts]
    facts = [f"{name}: {text}" for name, text in made.facts.items()]
    table = verdict_table(verdicts, made.cell.name, [*facts, *made.commands])
    if made.findings is None or not made.findings.measured:
        return table, ""
    sections = (pages.rates_section, pages.latencies_section, pages.table_section)
    return table, "".join(drawn(made.findings) for drawn in sections)
