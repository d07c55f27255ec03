"""Pictures of results: charts and bars, as HTML. Pure.

A value of None, or one that is not finite, was not measured: it is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from lmdbio.bench.findings import figure
from lmdbio.page import drawing
from lmdbio.page.drawing import Bar, Chart, Series, chart_html, log_ticks

__all__ = ["bars", "grouped", "lines", "scatter", "stacked"]

Values = Sequence[float | None]


def framed(title: str, body: str, kind: str = "") -> str:
    """Return a picture below its title; "" if nothing was drawn."""
    return f'<figure class="{kind}"><h3>{escape(title)}</h3>{body}</figure>' * bool(body)


def chart(
    title: str,
    place_name: str,
    unit: str,
    places: Sequence[str],
    series: Iterable[Series],
    *,
    logarithmic: bool = False,
) -> str:
    """Draw series whose values stand at places with these texts."""
    texts = {float(x): text for x, text in enumerate(places)}
    drawn = Chart(title, texts, place_name, unit, tuple(series), logarithmic)
    return framed(title, chart_html(drawn))


def known(values: Values) -> list[tuple[int, float]]:
    """Return the places and values that were measured."""
    return [(x, y) for x, y in enumerate(values) if y is not None and math.isfinite(y)]


def lines(
    title: str, place_name: str, unit: str, places: Sequence[str], series: Mapping[str, Values]
) -> str:
    """Draw a line for each series, a value at each place; the vertical axis is logarithmic."""
    made = (Series.of(name, known(values)) for name, values in series.items())
    return chart(title, place_name, unit, places, made, logarithmic=True)


def grouped(
    title: str, place_name: str, unit: str, places: Sequence[str], series: Mapping[str, Values]
) -> str:
    """Draw bars side by side at each place, one of each series."""
    width, made = 0.8 / max(1, len(series)), []
    for number, (name, values) in enumerate(series.items()):
        left = (number + 0.5) * width - 0.4
        points = tuple((x + left, 0.0, y, y) for x, y in known(values))
        made.append(Series(name, points, "bar", width=width))
    return chart(title, place_name, unit, places, made)


def stacked(
    title: str, place_name: str, unit: str, places: Sequence[str], series: Mapping[str, Values]
) -> str:
    """Draw bars upon one another at each place, one of each series."""
    tops, made = [0.0] * len(places), []
    for name, values in series.items():
        points = tuple((float(x), tops[x], y, tops[x] + y) for x, y in known(values))
        for x, y in known(values):
            tops[x] += y
        made.append(Series(name, points, "bar"))
    return chart(title, place_name, unit, places, made)


def scatter(
    title: str, place_name: str, unit: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> str:
    """Draw dots by two values on logarithmic axes of one scale, and where both are equal."""
    every = [value for dots in series.values() for pair in dots for value in pair if value > 0]
    if not every:
        return ""
    ticks = log_ticks(min(every), max(every))
    made = [
        Series.of(name, sorted((math.log10(x), y) for x, y in dots if x > 0 and y > 0), "dots")
        for name, dots in series.items()
    ]
    ends = [(math.log10(tick), tick) for tick in (ticks[0], ticks[-1])]
    made.append(Series.of("equal", ends, "guide", "ink"))
    places = {math.log10(tick): f"{tick:g}" for tick in ticks}
    return framed(title, chart_html(Chart(title, places, place_name, unit, made, True)))


def bars(title: str, values: Mapping[str, float | None], unit: str = "s") -> str:
    """Draw a bar for each name, on one scale from zero; long names have room."""
    rows = [
        Bar(name, f"{figure(value)} {unit}", (value,))
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    ]
    return framed(title, drawing.bars(rows), "wide")
