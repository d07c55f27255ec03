"""Drawings in SVG, made by hand: bars and ranges side by side with their names, and charts.

Bars and ranges place everything in per cent and have no size of their own, so that their text
stays readable on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle

__all__ = ["COLOURS", "Bar", "Chart", "Series", "bars", "chart_html", "log_ticks", "nice_ticks"]

#: Variables of the page, for series without a colour of their own, in turn.
COLOURS = (
    "lmdbio", "fio", "plain", "ior", "fio-queue", "fio-queue-32", "fio-queue-128",
    "fio-uring-32", "py-lmdb", "bad",
)  # fmt: skip
#: Steps between ticks, about.
TICKS = 5


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar beside its name.

    Attributes:
        name: name at its left.
        text: figure at its right.
        values: length of the bar, then single runs, which a line spans; empty: no bar.
        note: smaller text behind the figure.
        colour: name of the page's variable that has the colour.
    """

    name: str
    text: str
    values: Sequence[float] = ()
    note: str = ""
    colour: str = COLOURS[0]


@dataclass(frozen=True, slots=True)
class Series:
    """One thing that a chart shows.

    Attributes:
        name: name in the legend.
        points: (place, lowest, middle, highest), places ascending. A bar reaches from lowest to
            highest, and middle is the value that it stands for.
        kind: "line" or "dotted", with dots and a band; "dots" alone; "bar"; "guide", a dashed
            line alone, from side to side if it has one point.
        colour: name of the page's variable that has the colour; "": the next one of COLOURS.
        width: width of a bar; two places of bars are 1 apart.
    """

    name: str
    points: tuple[tuple[float, float, float, float], ...]
    kind: str = "line"
    colour: str = ""
    width: float = 0.6

    @classmethod
    def of(
        cls, name: str, points: Iterable[tuple[float, float]], kind: str = "line", colour: str = ""
    ) -> Series:
        """Return a series of places and values alone."""
        return cls(name, tuple((x, y, y, y) for x, y in points), kind, colour)


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over one pair of axes.

    Attributes:
        title: title of the chart.
        places: places on the horizontal axis, and the text of each.
        place_name: label of the horizontal axis.
        unit: unit or name of the values.
        series: series in the order in which they are drawn.
        logarithmic: whether the vertical axis is; a value of 0 is drawn at the lowest tick.
    """

    title: str
    places: dict[float, str]
    place_name: str
    unit: str
    series: Sequence[Series]
    logarithmic: bool = False


# --- scales --------------------------------------------------------------------------------


def nice_ticks(top: float) -> list[float]:
    """Round numbers from zero to at least ``top``."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10 ** math.floor(math.log10(top / TICKS))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if factor * step * TICKS >= top)
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten that span the values, ends included.

    Of values that differ by orders of magnitude the powers alone.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1,) if high > 1e4 * low else (1, 2, 5)
    every = [factor * 10.0**power for power in range(first, last + 2) for factor in factors]
    start = max((i for i, tick in enumerate(every) if tick <= low), default=0)
    stop = next((i for i, tick in enumerate(every) if tick >= high), len(every) - 1)
    return every[start : max(stop, start + 1) + 1]


def tick_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def scale(
    values: Iterable[float], *, logarithmic: bool
) -> tuple[list[float], Callable[[float], float]]:
    """Return ticks for values, and the function from a value to its place.

    Places are 0 at the first tick, 1 at the last; on a logarithmic scale 0 lies at the first.
    """
    known = list(values)
    if not logarithmic:
        ticks = nice_ticks(max(known))
        return ticks, lambda value: value / ticks[-1]
    above = [value for value in known if value > 0] or [1.0]
    ticks = log_ticks(min(above), max(above))
    span = math.log(ticks[-1] / ticks[0])
    return ticks, lambda value: math.log(max(value, ticks[0]) / ticks[0]) / span


# --- bars ----------------------------------------------------------------------------------


def bars(rows: Sequence[Bar], *, logarithmic: bool = False) -> str:
    """Draw bars on one scale from zero, or their values on a logarithmic one; "" without any."""
    values = [value for row in rows for value in row.values]
    if not values:
        return ""
    ticks, place = scale(values, logarithmic=logarithmic)
    grid = "".join(f"<line{_across(place(t), place(t))} class='grid' y2='100%'/>" for t in ticks)
    lines = (
        f'<div class="row"><span class="name">{escape(row.name)}</span>'
        f"{_bar(row, grid, place, logarithmic=logarithmic) if row.values else '<span></span>'}"
        f'<span class="value">{escape(row.text)} <small>{escape(row.note)}</small></span></div>'
        for row in rows
    )
    texts = "".join(
        f'<text x="{_per_cent(place(tick))}" y="12" text-anchor="'
        f'{"end" if tick == ticks[-1] else "middle" if number else "start"}">{tick_text(tick)}'
        "</text>"
        for number, tick in enumerate(ticks)
    )
    axis = f'<svg width="100%" height="16">{texts}</svg>'
    pad = '<span class="pad"></span>'
    return f'<div>{"".join(lines)}<div class="row">{pad}{axis}{pad}</div></div>'


def _bar(row: Bar, grid: str, place: Callable[[float], float], *, logarithmic: bool) -> str:
    value, *runs = row.values
    low, high = min(row.values), max(row.values)
    title = tick_text(float(f"{value:.4g}"))
    if runs:
        title += f", from {tick_text(float(f'{low:.4g}'))} to {tick_text(float(f'{high:.4g}'))}"
    paint = f'fill="var(--{row.colour})"'
    if logarithmic:  # there is no zero for a bar to begin at
        body = f'<circle cx="{_per_cent(place(value))}" cy="50%" r="6" {paint}/>'
    else:
        width = _per_cent(place(value))
        body = f'<rect x="0" y="4" height="14" rx="2" width="{width}" {paint}/>'
    if runs:
        body += f'<line{_across(place(low), place(high), 11)} class="whisker"/>'
    body += "".join(
        f'<circle cx="{_per_cent(place(one))}" cy="50%" r="2.2" class="dot"/>' for one in runs
    )
    return (
        '<svg class="bar" role="img" width="100%" height="22">'
        f"<title>{title}</title>{grid}{body}</svg>"
    )


def _across(first: float, last: float, y: int = 0) -> str:
    level = f' y1="{y}" y2="{y}"' if y else ""
    return f' x1="{_per_cent(first)}" x2="{_per_cent(last)}"{level}'


def _per_cent(share: float) -> str:
    return f"{100 * share:.2f}%"


# --- charts --------------------------------------------------------------------------------

#: The size of a chart, and the margins around its axes.
WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, ABOVE, BELOW = 68, 14, 28, 44
DASHES = {
    "dotted": ' stroke-dasharray="2 4" stroke-linecap="round"',
    "guide": ' stroke-dasharray="7 4"',
}


def chart_html(chart: Chart) -> str:
    """Draw axes and series, above a legend; "" where no series has a point."""
    values = [y for one in chart.series for _, *three in one.points for y in three]
    if not values:
        return ""
    ticks, share = scale(values, logarithmic=chart.logarithmic)
    drawn = [one for one in chart.series if one.kind in ("line", "dotted", "dots")]
    places = [*chart.places, *(point[0] for one in drawn for point in one.points)]
    low, high = min(places), max(places)
    # A little room on both sides for dots, half a step for bars.
    wide = any(one.kind == "bar" for one in chart.series)
    room = 0.5 if wide else 0.043 * (high - low) or 1.0

    def x(place: float) -> float:
        return LEFT + (place - low + room) / (high - low + 2 * room) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return ABOVE + (1 - share(value)) * (HEIGHT - ABOVE - BELOW)

    parts = [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
        f'class="grid"/><text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">'
        f"{tick_text(tick)}</text>"
        for tick in ticks
    ]
    parts += [
        f'<text x="{x(place):.1f}" y="{HEIGHT - BELOW + 18}" text-anchor="middle">'
        f"{escape(text)}</text>"
        for place, text in chart.places.items()
    ]
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle" '
        f'class="name">{escape(chart.place_name)}</text>'
        f'<text x="4" y="11" class="name">{escape(chart.unit)}</text>'
    )
    legend = ""
    for one, next_colour in zip(chart.series, cycle(COLOURS), strict=False):
        colour = one.colour or next_colour
        at = [(x(place), y(low), y(mid), y(high)) for place, low, mid, high in one.points]
        parts.append(_series(one, colour, at, x(one.width) - x(0)) if at else "")
        entry = f'<i class="{one.kind}" style="--shade: var(--{colour})"></i>{escape(one.name)}'
        legend += f"<li>{entry}</li>" * bool(at)
    return (
        f'<svg class="lines" role="img" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{escape(chart.title)}</title>{''.join(parts)}</svg>"
        f'<ul class="legend">{legend}</ul>'
    )


def _series(
    one: Series, colour: str, at: Sequence[tuple[float, float, float, float]], width: float
) -> str:
    """Draw one series. ``at``: x, and y of lowest, middle and highest, of each point."""
    paint = f"var(--{colour})"
    marks = []
    for (x, low, mid, high), (_, _, value, _) in zip(at, one.points, strict=True):
        shape = f'circle cx="{x:.1f}" cy="{mid:.1f}" r="2.9" fill="{paint}"'
        if one.kind == "bar":
            shape = f'path d="M{x:.1f},{low:.1f}V{high:.1f}" stroke-width="{width:.1f}"'
        title = f"<title>{escape(one.name)}: {tick_text(float(f'{value:.4g}'))}</title>"
        marks.append(f'<{shape} stroke="{paint}">{title}</{shape.split()[0]}>')
    if one.kind in ("bar", "dots"):
        return "".join(marks)
    if one.kind == "guide":
        marks = []
        at = at if len(at) > 1 else [(x, *at[0][1:]) for x in (LEFT, WIDTH - RIGHT)]
    upper = [f"{x:.1f},{high:.1f}" for x, _, _, high in at]
    lower = [f"{x:.1f},{low:.1f}" for x, low, _, _ in reversed(at)]
    middle = " ".join(f"{x:.1f},{mid:.1f}" for x, _, mid, _ in at)
    return (
        f'<polygon points="{" ".join(upper + lower)}" fill="{paint}" fill-opacity="0.13"/>'
        f'<polyline points="{middle}" fill="none" stroke="{paint}" stroke-width="2.2"'
        f"{DASHES.get(one.kind, '')}/>{''.join(marks)}"
    )
