"""The page of ``lmdbio simulate``: what policies come to, drawn. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from lmdbio.bench.drawing import (
    Bar,
    Chart,
    Series,
    axis_html,
    bar_svg,
    chart_svg,
    legend_html,
    nice_ticks,
)
from lmdbio.bench.page import axis_line, document, line_of, section
from lmdbio.simulate import Outcome

__all__ = ["page"]

#: Colours of the page, one for each policy in turn.
COLOURS = (
    "lmdbio", "fio", "plain", "ior", "fio-queue", "fio-queue-32", "fio-queue-128",
    "fio-uring-32", "py-lmdb", "bad",
)  # fmt: skip
#: Places of a chart over iterations: as many as can be told apart.
PLACES_MAX = 120
STYLE = """
td.heat { background: color-mix(in srgb, var(--fio) var(--share), transparent); }
"""


def page(runs: Sequence[dict[str, Any]], title: str) -> str:
    """Return a page of all runs.

    Args:
        runs: each with "set", the values that were changed, and "found", the outcomes. One alone
            is drawn in the course of its iterations, several are compared.
        title: of the page.
    """
    parts = [f"<header><h1>Simulated: {escape(title)}</h1></header>"]
    if len(runs) > 1:
        parts.append(heat_section(runs))
    for run in runs:
        words = ", ".join(f"{key}={value}" for key, value in run["set"].items())
        known = [one for one in run["found"] if one.seconds is not None]
        if known:
            parts.append(bars_section(run["found"], words))
        if known and len(runs) == 1:
            parts += [stalls_section(known), sources_section(known)]
    return document(f"lmdbio simulate: {title}", "".join(parts), STYLE)


def bars_section(found: Sequence[Outcome], words: str) -> str:
    """Draw the seconds of all policies side by side, and why one has none."""
    top = max(one.seconds or 0.0 for one in found)
    ticks = nice_ticks(top)
    rows = []
    for one in found:
        if one.seconds is None:
            rows.append(line_of(one.policy, "", f"<small>{escape(one.reason or '')}</small>"))
            continue
        drawn = bar_svg(Bar(one.seconds, (), "lmdbio"), ticks[-1], ticks)
        init = f" <small>{one.init_seconds:,.0f} before it begins</small>" * (one.init_seconds > 0)
        rows.append(line_of(one.policy, drawn, f"{one.seconds:,.1f}{init}"))
    body = f'<div class="rows wide">{"".join(rows)}{axis_line(axis_html(ticks))}</div>'
    title = "Seconds of the training" + (f": {words}" if words else "")
    return section(title, "Less is better.", body)


def stalls_section(found: Sequence[Outcome]) -> str:
    """Draw how long iterations wait, in the course of the training."""
    series, count = [], 1
    for one, colour in zip(found, COLOURS, strict=False):
        if one.stalls is None or not one.stall_seconds:
            continue
        count = len(one.stalls)
        parts = np.array_split(one.stalls, min(PLACES_MAX, count))
        ends = np.cumsum([len(part) for part in parts]).tolist()
        points = zip(map(float, ends), (float(part.mean()) for part in parts), strict=True)
        series.append(Series.of(one.policy, colour, points))
    if not series:
        return ""
    places = {float(at): f"{at:,}" for at in np.linspace(0, count, 6).astype(int).tolist()}
    chart = Chart("Stall by iteration", places, "iteration", "seconds of waiting", tuple(series))
    lead = "Means of neighbouring iterations. A policy that is not here waits for nothing."
    return section("Stall by iteration", lead, chart_svg(chart) + legend_html(chart))


def sources_section(found: Sequence[Outcome]) -> str:
    """Draw which share of each epoch's reads the shared file system serves."""
    series, epochs = [], 1
    for one, colour in zip(found, COLOURS, strict=False):
        if one.reads is None:
            continue
        epochs = len(one.reads)
        shares = [100 * epoch["file"] / max(1, sum(epoch.values())) for epoch in one.reads]
        series.append(Series.of(one.policy, colour, [(i + 1.0, s) for i, s in enumerate(shares)]))
    if not series:
        return ""
    places = {i + 1.0: str(i + 1) for i in range(0, epochs, max(1, epochs // 10))}
    chart = Chart("From the file system", places, "epoch", "% of the records", tuple(series))
    lead = "The rest comes from a node's own tiers or from other nodes."
    drawn = chart_svg(chart) + legend_html(chart)
    return section("From the shared file system, by epoch", lead, drawn)


def heat_section(runs: Sequence[dict[str, Any]]) -> str:
    """Show the seconds of all policies over all settings; the darker, the longer."""
    names = [one.policy for one in runs[0]["found"]]
    head = "".join(f"<th>{escape(key)}</th>" for key in runs[0]["set"])
    head += "".join(f"<th>{escape(name)}</th>" for name in names)
    known = [one.seconds for run in runs for one in run["found"] if one.seconds is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    rows = []
    for run in runs:
        cells = "".join(f"<td>{escape(value)}</td>" for value in run["set"].values())
        for one in run["found"]:
            if one.seconds is None:
                cells += f'<td title="{escape(one.reason or "")}">-</td>'
                continue
            share = 100 * (one.seconds - low) / (high - low or 1.0)
            cells += f'<td class="heat" style="--share: {share:.0f}%">{one.seconds:,.1f}</td>'
        rows.append(f"<tr>{cells}</tr>")
    table = f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
    return section("Seconds by setting", "The darker, the longer.", table)
