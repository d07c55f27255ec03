"""Pictures of results: charts and bars, as HTML. Pure.

A value of None, or one that is not finite, was not measured: it is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from lmdbio.bench.drawing import (
    COLOURS,
    Bar,
    Chart,
    Series,
    axis_html,
    bar_svg,
    chart_svg,
    legend_html,
    log_ticks,
    nice_ticks,
)
from lmdbio.bench.findings import figure
from lmdbio.bench.page import axis_line, line_of

__all__ = ["bars", "grouped", "lines", "scatter", "stacked"]

Values = Sequence[float | None]


def drawn(chart: Chart) -> str:
    """Return a chart below its title; "" if it has no point."""
    if not any(one.points for one in chart.series):
        return ""
    return framed(chart.title, chart_svg(chart) + legend_html(chart))


def framed(title: str, body: str, kind: str = "") -> str:
    """Return a picture below its title."""
    return f'<figure class="{kind}"><h3>{escape(title)}</h3>{body}</figure>'


def coloured(series: Mapping[str, Values]) -> Iterable[tuple[str, str, list[tuple[int, float]]]]:
    """Yield the name, the colour, and the known points of each series."""
    for number, (name, values) in enumerate(series.items()):
        known = [(x, y) for x, y in enumerate(values) if y is not None and math.isfinite(y)]
        yield name, COLOURS[number % len(COLOURS)], known


def lines(
    title: str, place_name: str, unit: str, places: Sequence[str], series: Mapping[str, Values]
) -> str:
    """Draw a line for each series, a value at each place; the vertical axis is logarithmic."""
    made = [Series.of(name, colour, known) for name, colour, known in coloured(series)]
    return drawn(Chart(title, texts(places), place_name, unit, tuple(made), logarithmic=True))


def grouped(
    title: str, place_name: str, unit: str, places: Sequence[str], series: Mapping[str, Values]
) -> str:
    """Draw bars side by side at each place, one of each series."""
    width, made = 0.8 / max(1, len(series)), []
    for number, (name, colour, known) in enumerate(coloured(series)):
        left = (number + 0.5) * width - 0.4
        points = tuple((x + left, 0.0, y, y) for x, y in known)
        made.append(Series(name, colour, points, "bar", width))
    return drawn(Chart(title, texts(places), place_name, unit, tuple(made)))


def stacked(
    title: str, place_name: str, unit: str, places: Sequence[str], series: Mapping[str, Values]
) -> str:
    """Draw bars upon one another at each place, one of each series."""
    tops, made = [0.0] * len(places), []
    for name, colour, known in coloured(series):
        points = tuple((float(x), tops[x], y, tops[x] + y) for x, y in known)
        for x, y in known:
            tops[x] += y
        made.append(Series(name, colour, points, "bar"))
    return drawn(Chart(title, texts(places), place_name, unit, tuple(made)))


def texts(places: Sequence[str]) -> dict[float, str]:
    return {float(x): text for x, text in enumerate(places)}


def scatter(
    title: str, place_name: str, unit: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> str:
    """Draw dots by two values on logarithmic axes of one scale, and where both are equal."""
    every = [value for dots in series.values() for pair in dots for value in pair if value > 0]
    if not every:
        return ""
    ticks = log_ticks(min(every), max(every))
    made = [
        Series.of(name, COLOURS[number % len(COLOURS)],
                  sorted((math.log10(x), y) for x, y in dots if x > 0 and y > 0), "dots")
        for number, (name, dots) in enumerate(series.items())
    ]  # fmt: skip
    ends = [(math.log10(tick), tick) for tick in (ticks[0], ticks[-1])]
    made.append(Series.of("equal", "ink", ends, "guide"))
    places = {math.log10(tick): f"{tick:g}" for tick in ticks}
    return drawn(Chart(title, places, place_name, unit, tuple(made), logarithmic=True))


def bars(title: str, values: Mapping[str, float | None], unit: str = "s") -> str:
    """Draw a bar for each name, on one scale from zero; long names have room."""
    known = {name: one for name, one in values.items() if one is not None and math.isfinite(one)}
    if not known:
        return ""
    ticks, rows = nice_ticks(max(known.values())), []
    for name, value in known.items():
        bar = bar_svg(Bar(value, (), COLOURS[0]), ticks[-1], ticks)
        rows.append(line_of(name, bar, f"{figure(value)} {unit}"))
    rows.append(axis_line(axis_html(ticks)))
    return framed(title, f'<div class="rows">{"".join(rows)}</div>', "wide")
