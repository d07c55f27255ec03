"""Drawings in SVG, made by hand: horizontal bars, ranges, and charts. Pure.

Colours are the page's CSS variables, so that one drawing serves light and dark. Bars and ranges
place everything in per cent and have no size of their own, so that their text stays readable on
a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = [
    "COLOURS",
    "Bar",
    "Chart",
    "Series",
    "axis_html",
    "bar_svg",
    "chart_svg",
    "legend_html",
    "log_ticks",
    "nice_ticks",
    "range_svg",
]

#: Of the page's variables, for series without a colour of their own, in turn.
COLOURS = (
    "lmdbio", "fio", "plain", "ior", "fio-queue", "fio-queue-32", "fio-queue-128",
    "fio-uring-32", "py-lmdb", "bad",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from zero to ``value``; ``dots`` are single runs, which a whisker spans."""

    value: float
    dots: tuple[float, ...]
    colour: str


@dataclass(frozen=True, slots=True)
class Series:
    """One thing that a chart shows.

    Attributes:
        name: name in the legend.
        colour: name of the page's variable that has the colour.
        points: (place, lowest, middle, highest), places ascending. A bar reaches from lowest to
            highest, and middle is the value that it stands for.
        kind: "line" or "dotted", with dots and a band; "dots" alone; "bar"; "mark", short and
            level; "guide", a dashed line alone, from side to side if it has one point.
        width: width of a bar or mark; two places of bars are 1 apart.
    """

    name: str
    colour: str
    points: tuple[tuple[float, float, float, float], ...]
    kind: str = "line"
    width: float = 0.6

    @classmethod
    def of(
        cls, name: str, colour: str, points: Iterable[tuple[float, float]], kind: str = "line"
    ) -> Series:
        """Return a series of places and values alone."""
        return cls(name, colour, tuple((x, y, y, y) for x, y in points), kind)


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over one pair of axes; at least one of them has a point.

    Attributes:
        title: title of the chart.
        places: places on the horizontal axis, and the text of each.
        place_name: label of the horizontal axis.
        unit: unit or name of the values.
        series: series in the order in which they are drawn.
        logarithmic: the vertical axis; a value of 0 is drawn at the lowest tick.
    """

    title: str
    places: dict[float, str]
    place_name: str
    unit: str
    series: tuple[Series, ...]
    logarithmic: bool = False


#: Steps between ticks, about.
TICKS = 5


def nice_ticks(top: float) -> list[float]:
    """Round numbers from zero to at least ``top``."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10 ** math.floor(math.log10(top / TICKS))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if factor * step * TICKS >= top)
    return [i * step for i in range(math.ceil(top / step - 1e-9) + 1)]


def log_ticks(low: float, high: float, *, short: bool = False) -> list[float]:
    """1, 2 and 5 times the powers of ten that span the values, ends included.

    ``short``: the powers alone, for values that differ by orders of magnitude.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1,) if short else (1, 2, 5)
    every = [factor * 10.0**power for power in range(first, last + 2) for factor in factors]
    start = max((i for i, tick in enumerate(every) if tick <= low), default=0)
    stop = next((i for i, tick in enumerate(every) if tick >= high), len(every) - 1)
    return every[start : max(stop, start + 1) + 1]


def tick_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def scale(ticks: Sequence[float], *, logarithmic: bool = False) -> Callable[[float], float]:
    """Return the function from a value to its place: 0 at the first tick, 1 at the last."""
    if not logarithmic:
        return lambda value: value / ticks[-1]
    span = math.log(ticks[-1] / ticks[0])
    return lambda value: math.log(max(value, ticks[0]) / ticks[0]) / span


def per_cent(share: float) -> str:
    return f"{100 * share:.2f}%"


def grid(places: Sequence[float]) -> str:
    return "".join(
        f'<line x1="{per_cent(place)}" x2="{per_cent(place)}" y1="0" y2="100%" class="grid"/>'
        for place in places
    )


def bar_svg(bar: Bar, top: float, ticks: Sequence[float]) -> str:
    """One bar on a scale that ends at ``top``; without dots it is a value and no more."""
    title, whisker = tick_text(round(bar.value, 3)), ""
    if bar.dots:
        low, high = min(bar.dots), max(bar.dots)
        title = f"median {title}, from {tick_text(round(low, 3))} to {tick_text(round(high, 3))}"
        whisker = (
            f'<line x1="{per_cent(low / top)}" x2="{per_cent(high / top)}" y1="11" y2="11" '
            'class="whisker"/>'
        )
    dots = "".join(
        f'<circle cx="{per_cent(dot / top)}" cy="50%" r="2.2" class="dot"/>' for dot in bar.dots
    )
    return (
        '<svg class="bar" role="img" width="100%" height="22">'
        f"<title>{title}</title>{grid([tick / top for tick in ticks])}"
        f'<rect x="0" y="4" height="14" rx="2" width="{per_cent(bar.value / top)}" '
        f'fill="var(--{bar.colour})"/>'
        f"{whisker}{dots}</svg>"
    )


def range_svg(values: Sequence[float], ticks: Sequence[float], colour: str, unit: str) -> str:
    """Values on a logarithmic scale from the first tick to the last; the first one is largest."""
    place = scale(ticks, logarithmic=True)
    first, last = per_cent(place(min(values))), per_cent(place(max(values)))
    marks = "".join(
        f'<circle cx="{per_cent(place(value))}" cy="50%" r="{6 - number}" '
        f'fill="var(--{colour})" fill-opacity="{1 - 0.2 * number:g}"/>'
        for number, value in enumerate(values)
    )
    return (
        '<svg class="bar" role="img" width="100%" height="22">'
        f"<title>{', '.join(f'{value:.3g}' for value in values)} {unit}</title>"
        f"{grid([place(tick) for tick in ticks])}"
        f'<line x1="{first}" x2="{last}" y1="11" y2="11" stroke="var(--{colour})" '
        f'stroke-width="2"/>{marks}</svg>'
    )


def axis_html(ticks: Sequence[float], *, logarithmic: bool = False) -> str:
    """The numbers below bars or ranges."""
    place = scale(ticks, logarithmic=logarithmic)
    texts = []
    for number, tick in enumerate(ticks):
        share = place(tick)
        anchor = {0: "start", len(ticks) - 1: "end"}.get(number, "middle")
        texts.append(
            f'<text x="{per_cent(share)}" y="12" text-anchor="{anchor}">{tick_text(tick)}</text>'
        )
    return f'<svg class="axis" width="100%" height="16">{"".join(texts)}</svg>'


#: The size of a chart, and the margins around its axes.
WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, ABOVE, BELOW = 68, 14, 28, 44
DASHES = {
    "dotted": ' stroke-dasharray="2 4" stroke-linecap="round"',
    "guide": ' stroke-dasharray="7 4"',
}


def chart_svg(chart: Chart) -> str:
    """Draw axes and series; the legend stands apart."""
    values = [y for one in chart.series for _, *three in one.points for y in three]
    ticks = nice_ticks(max(values))
    if chart.logarithmic:
        known = [value for value in values if value > 0] or [1.0]
        ticks = log_ticks(min(known), max(known), short=max(known) > 1e4 * min(known))
    share = scale(ticks, logarithmic=chart.logarithmic)
    lines = [one for one in chart.series if one.kind in ("line", "dotted", "dots")]
    places = [*chart.places, *(point[0] for one in lines for point in one.points)]
    low, high = min(places), max(places)
    # A little room on both sides for dots, half a step for bars.
    wide = any(one.kind in ("bar", "mark") for one in chart.series)
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
    for one in chart.series:
        at = [(x(place), y(low), y(mid), y(high)) for place, low, mid, high in one.points]
        parts.append(series_svg(one, at, x(one.width) - x(0)))
    return (
        f'<svg class="lines" role="img" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{escape(chart.title)}</title>{''.join(parts)}</svg>"
    )


def legend_html(chart: Chart) -> str:
    """List the series by colour and name."""
    entries = "".join(
        f'<li><i class="{one.kind}" style="--shade: var(--{one.colour})"></i>'
        f"{escape(one.name)}</li>"
        for one in chart.series
        if one.points
    )
    return f'<ul class="legend">{entries}</ul>'


def series_svg(one: Series, at: Sequence[tuple[float, float, float, float]], width: float) -> str:
    """Draw one series. ``at``: x, and y of lowest, middle and highest, of each point."""
    paint = f"var(--{one.colour})"
    marks = []
    for (x, low, mid, high), (_, _, value, _) in zip(at, one.points, strict=True):
        shape = {
            "bar": f'path d="M{x:.1f},{low:.1f}V{high:.1f}" stroke-width="{width:.1f}"',
            "mark": f'path d="M{x - width / 2:.1f},{mid:.1f}h{width:.1f}" stroke-width="2.2"',
        }.get(one.kind, f'circle cx="{x:.1f}" cy="{mid:.1f}" r="2.9" fill="{paint}"')
        title = f"<title>{escape(one.name)}: {tick_text(float(f'{value:.4g}'))}</title>"
        marks.append(f'<{shape} stroke="{paint}">{title}</{shape.split()[0]}>')
    if one.kind in ("bar", "mark", "dots"):
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
