"""The demonstration as one HTML page that needs nothing else: a bar for each reader. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from html import escape

from lmdbio.bench.drawing import Bar, axis_html, bar_svg, nice_ticks
from lmdbio.bench.page import axis_line, document, figure, line_of, section
from lmdbio.bench.report import Report, Row, facts

__all__ = ["page"]


def bars(rows: Sequence[Row], values: Sequence[Sequence[float]], notes: Sequence[str]) -> str:
    """Draw a bar from zero for each row, all on one scale; dots are single runs."""
    ticks = nice_ticks(max(map(max, values)))
    parts, order = [], ""
    for row, runs, note in zip(rows, values, notes, strict=True):
        if row.order != order:
            order = row.order
            parts.append(f"<p>{escape(order)}</p>")
        median = statistics.median(runs)
        shade = "py-lmdb" if row.baseline else "lmdbio"
        drawn = bar_svg(Bar(median, tuple(runs), shade), ticks[-1], ticks)
        parts.append(line_of(row.contestant, drawn, f"{figure(median)} <small>{note}</small>"))
    return f'<div class="rows">{"".join(parts)}{axis_line(axis_html(ticks))}</div>'


def dataset_sections(report: Report, name: str) -> str:
    """Draw the rates, and the processor time of a GiB, of all readers of one data set."""
    rows = [row for row in report.rows if row.dataset == name and row.samples]
    ratios = [
        f"{ratio:.2f}x" if not row.baseline and (ratio := report.ratio(row)) is not None else ""
        for row in rows
    ]
    costs = [[sample.cpu_per_gib for sample in row.samples] for row in rows]
    rates = bars(rows, [row.rates for row in rows], ratios)
    lead = "MiB/s of values, median of all rounds; more is better. 2.00x: twice py-lmdb's rate."
    return section(f"{name}: bandwidth", lead, rates) + section(
        f"{name}: processor time",
        "Seconds of processor time for a GiB of values, median; less is better.",
        bars(rows, costs, [""] * len(rows)),
    )


def page(report: Report) -> str:
    """Return the whole page; a data set without figures is left out."""
    state = "cold page cache" if report.cold else "page cache warm in part"
    names = dict.fromkeys(row.dataset for row in report.rows if row.samples)
    heading = (
        '<header><p class="eyebrow">lmdbio demo</p><h1>Reading an LMDB data set</h1>'
        f'<p class="verdict">{escape(state)}; dots are single runs, the dark line spans them.</p>'
        "</header>"
    )
    told = f"<pre>{escape(chr(10).join([*facts(report), *report.notes]))}</pre>"
    body = heading + "".join(dataset_sections(report, name) for name in names)
    return document("lmdbio demo", body + section("What it ran on", "", told))
