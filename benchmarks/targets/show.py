"""What came of it: a table for the terminal, a JSON file, a page."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Table

from benchmarks.targets.cells import Cell
from benchmarks.targets.verdicts import Verdict, judge
from lmdbio.bench import page as pages
from lmdbio.bench.findings import Findings, Row, Spread, as_json

__all__ = ["Measured", "Report", "save_json", "save_page", "show"]

#: Raised whenever a reader of the JSON would notice.
SCHEMA = "lmdbio-targets/1"


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
        return [row for rows in self.rows.values() for row in rows]

    @property
    def verdicts(self) -> list[Verdict]:
        return judge(self.cell, self.rows, link=self.link, why=self.why)


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
        return [one for made in self.cells for one in made.verdicts]

    @property
    def count(self) -> dict[str, int]:
        """Verdicts by state."""
        states = [one.state for one in self.verdicts]
        return {state: states.count(state) for state in dict.fromkeys(states)}


# --- words ----------------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread_text(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    if spread.min == spread.max:
        return number(spread.median)
    return f"{number(spread.median)} ({number(spread.min)}-{number(spread.max)})"


def ratio_text(one: Verdict) -> str:
    if one.ratio is None or one.ratios is None:
        return "-"
    if one.ratios[0] == one.ratios[1]:
        return f"{one.ratio:.2f}"
    return f"{one.ratio:.2f} ({one.ratios[0]:.2f}-{one.ratios[1]:.2f})"


def cache_text(made: Measured) -> str:
    """Of the page cache, in words."""
    if made.findings is None:
        return "not known"
    if made.cell.warm:
        return (
            "warm: the whole file was read before the rounds; every byte of a value is looked at"
        )
    return made.findings.state


def setting(made: Measured) -> list[str]:
    """On what a cell was measured, but for the machine; one fact a line."""
    found = made.findings
    if found is None:
        return []
    work = found.workload
    return [
        f"storage      {found.machine.facts['storage']}",
        f"place        {made.place}",
        f"cache        {cache_text(made)}",
        f"data         {work.data_file}, {work.page_bytes / 2**20:,.0f} of "
        f"{work.file_bytes / 2**20:,.0f} MiB, {work.count:,} records in batches of {work.batch}, "
        f"located by {work.located_by}",
        *(f"environment  {name}={value}" for name, value in made.cell.environment),
        *([f"calibration  {calibration_text(made.calibration)}"] if made.calibration else []),
    ]


def calibration_text(tried: Sequence[Row]) -> str:
    """What one run of each setting gave, the best first; then those that failed."""
    ran = sorted((row for row in tried if row.rates), key=lambda row: -row.rates[0])
    said = [f"{row.label} {number(row.rates[0])}" for row in ran]
    failed = [f"{row.label} failed ({row.wrong})" for row in tried if row.wrong]
    return "; ".join([", ".join(said) + " MiB/s" if said else "none ran", *failed])


def machine(report: Report) -> list[str]:
    """What it ran on."""
    found = next((made.findings for made in report.cells if made.findings is not None), None)
    if found is None:
        return []
    versions = ", ".join(f"{name} {number}" for name, number in found.versions.items())
    return [f"machine      {found.machine.facts['machine']}", f"versions     {versions}"]


def notes(made: Measured) -> list[str]:
    """What verdicts have to say, once each."""
    return list(dict.fromkeys(one.note for one in made.verdicts if one.note))


def commands(made: Measured) -> list[str]:
    """Of fio and ior, as run in turns with the others."""
    return [shlex.join(row.command) for row in made.every if row.command]


# --- the terminal ---------------------------------------------------------------------------

STYLES = {"reached": "green", "NOT reached": "bold red", "no figure": "bold yellow"}


def table(made: Measured) -> Table:
    out = Table(box=SIMPLE, pad_edge=False, header_style="bold")
    for head in ("who", "measured", "", "against", "", "ratio", "target", ""):
        justify = "right" if head in ("measured", "against", "ratio") else "left"
        out.add_column(head, justify=justify, overflow="fold")  # type: ignore[arg-type]
    words = ""
    for one in made.verdicts:
        if one.words != words:
            words = one.words
            out.add_row(f"[italic]{escape_markup(words)}[/]")
        style = STYLES.get(one.state, "")
        out.add_row(
            f"  {one.lane}", spread_text(one.measured), one.unit, spread_text(one.measure),
            one.rival, ratio_text(one), one.bound,
            f"[{style}]{one.state}[/]" if style else one.state,
        )  # fmt: skip
    return out


def show(report: Report, console: Console) -> None:
    """Everything but the samples."""
    console.print()
    for line in machine(report):
        console.print(line, style="dim", highlight=False, markup=False)
    for made in report.cells:
        console.print()
        console.print(f"[bold]{made.cell.name}[/]", highlight=False)
        for line in setting(made):
            console.print(line, style="dim", highlight=False, markup=False)
        console.print(table(made))
        for note in notes(made):
            console.print(note, highlight=False, markup=False)
        for line in commands(made):
            console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)
    said = ", ".join(f"{count} {state}" for state, count in report.count.items())
    console.print(f"\n{said or 'nothing was measured'}; {report.seconds:,.0f} s", highlight=False)
    if report.interrupted:
        console.print("[bold red]interrupted[/]: not everything was measured")


# --- files ----------------------------------------------------------------------------------


def cell_json(made: Measured) -> dict[str, Any]:
    return {
        "cell": asdict(made.cell),
        "place": made.place,
        "cache": cache_text(made),
        "why": made.why or None,
        "verdicts": [one.as_json() for one in made.verdicts],
        "commands": commands(made),
        "lanes": {name: [row.label for row in rows] for name, rows in made.rows.items()},
        "calibration": [
            {
                "label": row.label,
                "mib_per_second": row.rates[0] if row.rates else None,
                "wrong": row.wrong or None,
                "command": list(row.command),
            }
            for row in made.calibration
        ],
        "findings": as_json(made.findings) if made.findings is not None else None,
    }


def save_json(report: Report, file: Path) -> None:
    whole = {
        "schema": SCHEMA,
        "began": report.began,
        "command": list(report.command),
        "seconds": report.seconds,
        "interrupted": bool(report.interrupted),
        "failed": report.failed or None,
        "count": report.count,
        "cells": [cell_json(made) for made in report.cells],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


# --- the page -------------------------------------------------------------------------------

STYLE = """
h2.cell { font-size: 1.35rem; margin: 2.6rem 0 .3rem; scroll-margin-top: 1rem; }
td.left, th.left { text-align: left; } td.left::before { display: none !important; }
tr.words td { border: 0; padding-top: .9rem; color: var(--quiet); font-style: italic; }
tr.words td::before { display: none !important; }
td.reached { color: var(--plain); font-weight: 600; }
td.missed { color: var(--bad); font-weight: 600; }
ul.notes { margin: .8rem 0 0; padding-left: 1.1rem; font-size: .9rem; color: var(--quiet); }
a { color: inherit; }
"""
CLASSES = {"reached": "reached", "NOT reached": "missed", "no figure": "missed"}


def html_table(heads: Sequence[tuple[str, str]], rows: Sequence[str]) -> str:
    """``heads``: class and text of each."""
    head = "".join(f'<th class="{kind}">{escape(text)}</th>' for kind, text in heads)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def html_row(cells: Sequence[tuple[str, str]]) -> str:
    """``cells``: class and HTML of each."""
    return "<tr>" + "".join(f'<td class="{kind}">{text}</td>' for kind, text in cells) + "</tr>"


def verdict_rows(made: Measured) -> list[str]:
    rows, words = [], ""
    for one in made.verdicts:
        if one.words != words:
            words = one.words
            rows.append(f'<tr class="words"><td colspan="7">{escape(words)}</td></tr>')
        rows.append(
            html_row(
                (
                    ("left", escape(one.lane)),
                    (CLASSES.get(one.state, ""), escape(one.state)),
                    ("", escape(one.bound)),
                    ("", f"<b>{escape(ratio_text(one))}</b>"),
                    ("", escape(f"{spread_text(one.measured)} {one.unit}")),
                    ("", escape(spread_text(one.measure))),
                    ("left", escape(one.rival)),
                )
            )
        )
    return rows


def verdict_section(made: Measured) -> str:
    heads = (
        ("left", "who"), ("", ""), ("", "target"), ("", "ratio"), ("", "measured"),
        ("", "against"), ("left", ""),
    )  # fmt: skip
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes(made))
    below = f'<ul class="notes">{listed}</ul>' if listed else ""
    return pages.section("Targets", "", html_table(heads, verdict_rows(made)) + below)


def facts_html(lines: Sequence[str]) -> str:
    pairs = (line.partition(" ") for line in lines)
    return "<dl>" + "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text.strip())}</dd>" for name, _, text in pairs
    ) + "</dl>"  # fmt: skip


def cell_html(place: int, made: Measured) -> str:
    parts = [
        f'<h2 class="cell" id="cell{place}">{escape(made.cell.name)}</h2>',
        verdict_section(made),
    ]
    if made.findings is not None and made.findings.measured:
        parts += [pages.rates_section(made.findings), pages.latencies_section(made.findings)]
        parts.append(pages.table_section(made.findings))
    listed = "\n".join(commands(made))
    if listed:
        parts.append(pages.section("fio and ior commands", "", f"<pre>{escape(listed)}</pre>"))
    if made.findings is not None:
        parts.append(pages.section("Where and how", "", facts_html(setting(made))))
    return "".join(parts)


def summary_section(report: Report) -> str:
    """One line for each cell."""
    heads = (("left", "where and what"), ("", "reached"), ("", "not reached"), ("", "no figure"))
    rows = []
    for place, made in enumerate(report.cells):
        states = [one.state for one in made.verdicts]
        counts = [states.count(state) for state in CLASSES]
        kinds = ("reached", "missed", "missed")
        rows.append(
            html_row(
                [
                    ("left", f'<a href="#cell{place}">{escape(made.cell.name)}</a>'),
                    *((kind if n else "", str(n)) for kind, n in zip(kinds, counts, strict=True)),
                ]
            )
        )
    return pages.section("Summary", "", html_table(heads, rows) + facts_html(machine(report)))


def page(report: Report) -> str:
    """The whole page."""
    said = ", ".join(f"{count} {state}" for state, count in report.count.items())
    why = escape(report.failed or "Interrupted")
    ended = f'<p class="bad">{why}: not everything was measured.</p>'
    heading = (
        f'<header><p class="eyebrow">lmdbio targets · {escape(report.began)}</p>'
        f'<h1>What must hold</h1><p class="verdict">{escape(said or "Nothing was measured")}.</p>'
        f"{ended if report.interrupted or report.failed else ''}</header>"
    )
    cells = "".join(cell_html(place, made) for place, made in enumerate(report.cells))
    return pages.document("lmdbio targets", heading + summary_section(report) + cells, STYLE)


def save_page(report: Report, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page(report), encoding="utf-8")
