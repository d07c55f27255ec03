"""The measurements of the cluster, handed over: on the terminal, as JSON, as a page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import report as reports
from benchmarks.cluster.measuring import Report
from benchmarks.cluster.results import CellResult
from benchmarks.cluster.rules import in_short, judge
from benchmarks.cluster.table import HEADS, cell_table
from benchmarks.report import Verdict, summary, verdict_table
from lmdbio.page.document import facts_html, section

SCHEMA = 3


def verdicts(report: Report) -> list[Verdict]:
    """Return those of all cells."""
    return [one for made in report.cells for one in judge(made)]


def status(report: Report) -> int:
    """Return 2 if somebody failed, 1 if something that must hold was not reached, else 0."""
    lanes = [one for made in report.cells for one in made.lanes]
    return reports.status(verdicts(report), failed=any(one.error for one in lanes))


def as_json(report: Report, judged: Sequence[Verdict]) -> dict[str, Any]:
    """Return everything, rank by rank."""
    return {
        "schema": SCHEMA,
        "began": report.began,
        "command": list(report.command),
        "seconds": report.seconds,
        "interrupted": report.interrupted,
        "failed": report.failed or None,
        "machine": report.machine,
        "stores": report.stores,
        "sets": report.sets,
        "verdicts": reports.as_json(judged),
        "cells": [one.as_json() for one in report.cells],
        "calibrations": [one.as_json() for one in report.calibrations],
        "block_sizes": [one.as_json() for one in report.blocks],
    }


def cell_section(made: CellResult) -> str:
    listed = "\n".join(f"{name}: {words}" for name, words in made.commands.items())
    lead = "" if made.sums_agree else "The sums of the bytes read differ."
    return cell_table(made).section(lead, f"<pre>{escape(listed)}</pre>" if listed else "")


def page(report: Report, judged: Sequence[Verdict]) -> str:
    """Return the whole page."""
    every = verdict_table(judged).as_html()
    every = f"<details><summary>in each cell</summary>{every}</details>"
    facts = {name: str(value) for name, value in report.machine.items()}
    facts |= {f"store {place}": words for place, words in enumerate(report.stores)}
    facts |= {"command": shlex.join(report.command), "seconds": f"{report.seconds:,.0f}"}
    columns = {head: words for head, words in HEADS.items() if words}
    body = summary(judged).section(body=every)
    body += "".join(map(cell_section, report.cells))
    body += section("Columns", "", facts_html(columns))
    body += section("Where and how", "", facts_html(facts))
    ended = report.failed or "Interrupted" * report.interrupted
    title = "All modes on many ranks, on one machine"
    return reports.page("cluster", report.began, title, judged, body, ended)


def deliver(report: Report, console: Console, file: Path | None, html: Path | None) -> None:
    """Print verdicts, and write the files that were asked for."""
    judged = verdicts(report)
    console.print(summary(judged).on_screen())
    for made in report.cells:
        console.print(in_short(made), highlight=False)
    said = reports.counted(judged) or "nothing was judged"
    console.print(f"{said}; {report.seconds:,.0f} s")
    reports.write(file, as_json(report, judged))
    if html is not None:
        reports.write(html, page(report, judged))
