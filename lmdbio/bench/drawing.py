"""Drawings in SVG, made by hand: horizontal bars, ranges, and lines over sizes. Pure.

Colours are the page's CSS variables, so that one drawing serves light and dark. Bars and ranges
place everything in per cent and have no size of their own, so that their text stays readable on
a phone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = [
    "Bar",
    "Line",
    "axis_html",
    "bar_svg",
    "lines_svg",
    "log_ticks",
    "nice_ticks",
    "range_svg",
]


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar from zero to ``value``; ``dots`` are single runs, which a whisker spans."""

    value: float
    dots: tuple[float, ...]
    colour: str


@dataclass(frozen=True, slots=True)
class Line:
    """Values over sizes: (size, lowest, middle, highest)."""

    name: str
    colour: str
    points: tuple[tuple[int, float, float, float], ...]
    dashed: bool = False


def nice_ticks(top: float, wanted: int = 5) -> list[float]:
    """Round numbers from zero to at least ``top``."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10 ** math.floor(math.log10(top / wanted))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if factor * step * wanted >= top)
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


def per_cent(share: float) -> str:
    return f"{100 * share:.2f}%"


def grid(places: Sequence[float]) -> str:
    return "".join(
        f'<line x1="{per_cent(place)}" x2="{per_cent(place)}" y1="0" y2="100%" class="grid"/>'
        for place in places
    )


def bar_svg(bar: Bar, top: float, ticks: Sequence[float]) -> str:
    """One bar on a scale that ends at ``top``."""
    low, high = min(bar.dots), max(bar.dots)
    dots = "".join(
        f'<circle cx="{per_cent(dot / top)}" cy="50%" r="2.2" class="dot"/>' for dot in bar.dots
    )
    return (
        '<svg class="bar" role="img" width="100%" height="22">'
        f"<title>median {tick_text(round(bar.value, 3))}, from {tick_text(round(low, 3))} to "
        f"{tick_text(round(high, 3))}</title>{grid([tick / top for tick in ticks])}"
        f'<rect x="0" y="4" height="14" rx="2" width="{per_cent(bar.value / top)}" '
        f'fill="var(--{bar.colour})"/>'
        f'<line x1="{per_cent(low / top)}" x2="{per_cent(high / top)}" y1="11" y2="11" '
        f'class="whisker"/>{dots}</svg>'
    )


def range_svg(values: Sequence[float], ticks: Sequence[float], colour: str, unit: str) -> str:
    """Values on a logarithmic scale from the first tick to the last; the first one is largest."""

    def place(value: float) -> float:
        return math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0])

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
    span = math.log(ticks[-1] / ticks[0]) if logarithmic else ticks[-1]
    texts = []
    for number, tick in enumerate(ticks):
        share = math.log(tick / ticks[0]) / span if logarithmic else tick / span
        anchor = {0: "start", len(ticks) - 1: "end"}.get(number, "middle")
        texts.append(
            f'<text x="{per_cent(share)}" y="12" text-anchor="{anchor}">{tick_text(tick)}</text>'
        )
    return f'<svg class="axis" width="100%" height="16">{"".join(texts)}</svg>'


#: The drawing of lines: its size, and the margins around its axes.
WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, ABOVE, BELOW = 52, 14, 28, 44


def lines_svg(
    lines: Sequence[Line],
    levels: Sequence[tuple[str, str, float]],
    size_text: dict[int, str],
    unit: str,
) -> str:
    """Values over sizes; the sizes at equal steps of their logarithm.

    Args:
        lines: each with a band from lowest to highest.
        levels: name, colour and value of what does not depend on the size.
        size_text: the sizes, ascending, and how to write them.
        unit: of the values.
    """
    highest = max(
        [point[3] for line in lines for point in line.points] + [level[2] for level in levels]
    )
    ticks = nice_ticks(highest)
    logs = [math.log2(size) for size in size_text]
    low, high = (logs[0], logs[-1]) if len(logs) > 1 else (logs[0] - 1, logs[0] + 1)

    def x(size: float) -> float:
        # A little room on both sides, for the dots.
        share = 0.04 + 0.92 * (math.log2(size) - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return ABOVE + (1 - value / ticks[-1]) * (HEIGHT - ABOVE - BELOW)

    parts = [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
        f'class="grid"/><text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">'
        f"{tick_text(tick)}</text>"
        for tick in ticks
    ]
    parts += [
        f'<text x="{x(size):.1f}" y="{HEIGHT - BELOW + 18}" text-anchor="middle">'
        f"{escape(text)}</text>"
        for size, text in size_text.items()
    ]
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle" '
        f'class="name">transfer size</text><text x="4" y="11" class="name">{escape(unit)}</text>'
    )
    parts += [level_svg(number, level, y(level[2])) for number, level in enumerate(levels)]
    for line in lines:
        places = [(x(size), y(low), y(mid), y(high)) for size, low, mid, high in line.points]
        parts.append(line_svg(line, places))
    return (
        f'<svg class="lines" role="img" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{escape(unit)} over the size of a transfer</title>{''.join(parts)}</svg>"
    )


def level_svg(number: int, level: tuple[str, str, float], at: float) -> str:
    """A dashed line from side to side; names alternate between left and right."""
    name, colour, _ = level
    left = number % 2 == 0
    place = f'x="{LEFT + 6}"' if left else f'x="{WIDTH - RIGHT - 4}" text-anchor="end"'
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" '
        f'stroke="var(--{colour})" stroke-width="1.6" stroke-dasharray="7 4"/>'
        f'<text {place} y="{at - 5:.1f}" class="level" style="fill: var(--{colour})">'
        f"{escape(name)}</text>"
    )


def line_svg(line: Line, places: Sequence[tuple[float, float, float, float]]) -> str:
    """The band, the line and its dots. ``places``: x, and y of lowest, middle, highest."""
    paint = f"var(--{line.colour})"
    upper = [f"{x:.1f},{high:.1f}" for x, _, _, high in places]
    lower = [f"{x:.1f},{low:.1f}" for x, low, _, _ in reversed(places)]
    middle = " ".join(f"{x:.1f},{mid:.1f}" for x, _, mid, _ in places)
    dash = ' stroke-dasharray="2 4" stroke-linecap="round"' if line.dashed else ""
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{mid:.1f}" r="3.4" fill="{paint}">'
        f"<title>{escape(line.name)}: {tick_text(round(value[2], 1))}</title></circle>"
        for (x, _, mid, _), value in zip(places, line.points, strict=True)
    )
    return (
        f'<polygon points="{" ".join(upper + lower)}" fill="{paint}" fill-opacity="0.13"/>'
        f'<polyline points="{middle}" fill="none" stroke="{paint}" stroke-width="2.2"{dash}/>'
        f"{dots}"
    )
