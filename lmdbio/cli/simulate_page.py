"""The page of ``lmdbio simulate``: what policies or modes come to, drawn. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from lmdbio.cli.simulate_output import Run
from lmdbio.page.document import document, header, section
from lmdbio.page.drawing import Bar, Chart, Series, bars, chart_html
from lmdbio.simulate import ModeOutcome, Outcome

__all__ = ["modes_page", "page"]

#: Places of a chart over iterations: as many as can be told apart.
PLACES_MAX = 120


class Row(NamedTuple):
    """A policy or a mode: its seconds, or the reason why it has none."""

    name: str
    seconds: float | None
    reason: str | None
    note: str = ""


Rows = Sequence[tuple[str, Mapping[str, str], Sequence[Row]]]


def page(runs: Sequence[Run[Outcome]], title: str) -> str:
    """Return a page of policies.

    Args:
        runs: one alone is drawn in the course of its iterations, several are compared.
        title: title of the page.
    """
    rows = [(run.words, run.settings, [policy_row(one) for one in run.found]) for run in runs]
    parts = [*compared(rows, "Seconds of the training")]
    known = [one for one in runs[0].found if one.seconds is not None]
    if known and len(runs) == 1:
        parts += [stalls_section(known), sources_section(known)]
    return whole_page(title, parts)


def policy_row(one: Outcome) -> Row:
    note = f"{one.init_seconds:,.0f} before it begins" if one.init_seconds > 0 else ""
    return Row(one.policy, one.seconds, one.reason, note)


def modes_page(runs: Sequence[Run[ModeOutcome]], title: str) -> str:
    """Return a page of modes.

    Args:
        runs: one or several, which are compared.
        title: title of the page.
    """
    rows = [
        (run.words, run.settings, [Row(o.mode, o.seconds, o.reason, o.bound) for o in run.found])
        for run in runs
    ]
    return whole_page(title, compared(rows, "Seconds of the reading"))


def whole_page(title: str, parts: Sequence[str]) -> str:
    return document(f"lmdbio simulate: {title}", header(f"Simulated: {title}") + "".join(parts))


def compared(rows: Rows, title: str) -> list[str]:
    """Draw all runs: over a key that alone is varied, over all settings, and each by itself."""
    parts = []
    if len(rows) > 1:
        varied = [key for key in rows[0][1] if len({settings[key] for _, settings, _ in rows}) > 1]
        if len(varied) == 1:
            parts.append(lines_section(rows, title, varied[0]))
        parts.append(heat_section(rows))
    return [*parts, *(bars_section(found, title, words) for words, _, found in rows)]


def lines_section(rows: Rows, title: str, key: str) -> str:
    """Draw the seconds of each policy or mode over the values of one key."""
    places = {float(i): settings[key] for i, (_, settings, _) in enumerate(rows)}
    series = []
    for number, (name, *_) in enumerate(rows[0][2]):
        found = [(float(i), run[2][number].seconds) for i, run in enumerate(rows)]
        series.append(Series.of(name, [(i, one) for i, one in found if one is not None]))
    chart = Chart(f"{title} by {key}", places, key, "seconds", series, logarithmic=True)
    return section(f"{title}, by {key}", "Less is better.", chart_html(chart))


def bars_section(found: Sequence[Row], title: str, words: str) -> str:
    """Draw all seconds side by side, and why one has none."""
    drawn = [
        Bar(one.name, "", note=one.reason or "")
        if one.seconds is None
        else Bar(one.name, f"{one.seconds:,.1f}", (one.seconds,), one.note)
        for one in found
    ]
    return section(title + (f": {words}" if words else ""), "Less is better.", bars(drawn))


def stalls_section(found: Sequence[Outcome]) -> str:
    """Draw how long iterations wait, in the course of the training."""
    series, count = [], 1
    for one in found:
        if one.stalls is None or not one.stall_seconds:
            continue
        count = len(one.stalls)
        parts = np.array_split(one.stalls, min(PLACES_MAX, count))
        ends = np.cumsum([len(part) for part in parts]).tolist()
        points = zip(map(float, ends), (float(part.mean()) for part in parts), strict=True)
        series.append(Series.of(one.policy, points))
    places = {float(at): f"{at:,}" for at in np.linspace(0, count, 6).astype(int).tolist()}
    chart = Chart("Stall by iteration", places, "iteration", "seconds of waiting", series)
    lead = "Means of neighbouring iterations. A policy that is not here waits for nothing."
    return section("Stall by iteration", lead, chart_html(chart))


def sources_section(found: Sequence[Outcome]) -> str:
    """Draw which share of each epoch's reads the shared file system serves."""
    series, epochs = [], 1
    for one in found:
        if one.reads is None:
            continue
        epochs = len(one.reads)
        shares = [100 * epoch["file"] / max(1, sum(epoch.values())) for epoch in one.reads]
        series.append(Series.of(one.policy, enumerate(shares, 1)))
    places = {i + 1.0: str(i + 1) for i in range(0, epochs, max(1, epochs // 10))}
    chart = Chart("From the file system", places, "epoch", "% of the records", series)
    lead = "The rest comes from a node's own tiers or from other nodes."
    return section("From the shared file system, by epoch", lead, chart_html(chart))


def heat_section(rows: Rows) -> str:
    """Show the seconds over all settings; the darker, the longer."""
    _, keys, first = rows[0]
    head = "".join(f"<th>{escape(name)}</th>" for name in (*keys, *(one.name for one in first)))
    known = [one.seconds for *_, found in rows for one in found if one.seconds is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    lines = []
    for _, settings, found in rows:
        cells = "".join(f"<td>{escape(value)}</td>" for value in settings.values())
        for one in found:
            if one.seconds is None:
                cells += f'<td title="{escape(one.reason or "")}">-</td>'
                continue
            share = 100 * (one.seconds - low) / (high - low or 1.0)
            cells += f'<td class="heat" style="--share: {share:.0f}%">{one.seconds:,.1f}</td>'
        lines.append(f"<tr>{cells}</tr>")
    table = f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'
    return section("Seconds by setting", "The darker, the longer.", table)
