"""The measurements of the cluster, handed over: on the terminal, as JSON, as a page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import report as reports
from benchmarks.cluster.figures import drawings
from benchmarks.cluster.measuring import Report
from benchmarks.cluster.paper import FIGURES, SCALE, Answer, answers
from benchmarks.cluster.results import CellResult
from benchmarks.cluster.rules import in_short, judge
from benchmarks.cluster.table import HEADS, cell_table
from benchmarks.report import Table, Verdict, summary, verdict_table
from lmdbio.bench import page as pages

SCHEMA = 2
STYLE = """
:root { --lmdb: #4d5660; --lmm: var(--fio); --dm: var(--fio-uring-32); --dio: var(--ior);
  --prov: var(--plain); --coal: var(--lmdbio); --stag: var(--bad); }
@media (prefers-color-scheme: dark) { :root { --lmdb: #c3cad2; } }
.drawings { display: grid; gap: 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }
.drawings figure { margin: 0; }
.drawings figcaption { color: var(--quiet); font-size: .85rem; margin-bottom: .5rem; }
"""


def verdicts(report: Report) -> list[Verdict]:
    """Return those of all cells."""
    return [one for made in report.cells for one in judge(made)]


def status(report: Report) -> int:
    """Return 2 if somebody failed, 1 if something that must hold was not reached, else 0."""
    lanes = [one for made in report.cells for one in made.lanes]
    return reports.status(verdicts(report), failed=any(one.error for one in lanes))


def as_json(report: Report, judged: Sequence[Verdict], found: Sequence[Answer]) -> dict[str, Any]:
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
        "paper": [
            {
                "words": one.claim.words,
                "unit": one.claim.unit,
                "paper": one.claim.value,
                "paper_where": one.claim.where,
                "here": one.value,
                "here_where": one.where,
                "differs": one.claim.differs,
            }
            for one in found
        ],
        "not_answered": [asdict(one) for one in FIGURES],
        "cells": [one.as_json() for one in report.cells],
        "calibrations": [one.as_json() for one in report.calibrations],
        "block_sizes": [one.as_json() for one in report.blocks],
    }


def paper_table(found: Sequence[Answer]) -> Table:
    """Return the paper's factors beside those that were found."""
    rows = [
        (one.claim.words, one.claim.value_text, one.claim.where, one.text, one.where,
         one.claim.differs)
        for one in found
    ]  # fmt: skip
    heads = ("what", "paper", "where there", "here", "where here", "why they differ")
    left = ("where there", "where here", "why they differ")
    return Table("The paper's factors and these", heads, rows, left=left)


def cell_section(made: CellResult) -> str:
    listed = "\n".join(f"{name}: {words}" for name, words in made.commands.items())
    lead = "" if made.sums_agree else "The sums of the bytes read differ."
    return cell_table(made).section(lead, f"<pre>{escape(listed)}</pre>" if listed else "")


def drawing_section(made: Sequence[CellResult], blocks: Sequence[CellResult]) -> str:
    drawn = "".join(
        f"<figure><figcaption>Fig. {escape(one.number)}: {escape(one.words)}</figcaption>"
        f"{one.svg}{one.legend}</figure>"
        for one in drawings(made, blocks)
    )
    lead = "Numbered as in the paper, with its axes; medians. Processes, and nodes in brackets."
    rows = [(one.number, one.words, one.reason) for one in FIGURES]
    heads = ("figure", "what", "why it is not answered here")
    missing = Table("What is not answered", heads, rows, left=heads)
    drawn = f'<div class="drawings">{drawn}</div>'
    return pages.section("The paper's figures", lead, drawn) + missing.section()


def page(report: Report, judged: Sequence[Verdict], found: Sequence[Answer]) -> str:
    """Return the whole page."""
    every = verdict_table(judged).as_html()
    every = f"<details><summary>in each cell</summary>{every}</details>"
    facts = {name: str(value) for name, value in report.machine.items()}
    facts |= {f"store {place}": words for place, words in enumerate(report.stores)}
    facts |= {"command": shlex.join(report.command), "seconds": f"{report.seconds:,.0f}"}
    columns = {head: words for head, words in HEADS.items() if words}
    lead = f"Everywhere: {SCALE}. Dashes: not measured in this run."
    body = summary(judged).section(body=every) + paper_table(found).section(lead)
    body += drawing_section(report.cells, report.blocks)
    body += "".join(map(cell_section, report.cells))
    body += pages.section("Columns", "", pages.facts_html(columns))
    body += pages.section("Where and how", "", pages.facts_html(facts))
    ended = report.failed or "Interrupted" * report.interrupted
    title = "All modes on many ranks, on one machine"
    return reports.page("cluster", report.began, title, judged, body, ended, STYLE)


def deliver(report: Report, console: Console, file: Path | None, html: Path | None) -> None:
    """Print verdicts and the paper's factors, and write the files that were asked for."""
    judged, found = verdicts(report), answers([*report.cells, *report.blocks])
    console.print(summary(judged).on_screen())
    known = paper_table([one for one in found if one.value is not None])
    if known.rows:  # the page says why they differ
        rows = [row[:-1] for row in known.rows]
        console.print(replace(known, heads=known.heads[:-1], rows=rows).on_screen())
        console.print(f"Why they differ: {SCALE}.", highlight=False)
    for made in report.cells:
        console.print(in_short(made), highlight=False)
    said = reports.counted(judged) or "nothing was judged"
    console.print(f"{said}; {report.seconds:,.0f} s")
    reports.write(file, as_json(report, judged, found))
    if html is not None:
        reports.write(html, page(report, judged, found))
