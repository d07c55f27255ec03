"""The paper's figures, with the same axes, from what was measured here. Pure.

Processes on the horizontal axis are given with their nodes; times are of batch reading without
training. A drawing is left out where its data, or LMDB's, were not measured. Colours are variables
of the page; each mode has one of its own name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.cluster.paper import picked
from benchmarks.cluster.results import CellResult
from benchmarks.cluster.sweep import PY_LMDB
from lmdbio.bench.drawing import Chart, Series, chart_svg, legend_html
from lmdbio.bench.findings import MIB, size_text

NAMES = {
    PY_LMDB: "LMDB (py-lmdb)", "lmdb": "LMDB (Reader)", "lmm": "LMM", "dm": "LMM-DM",
    "dio": "LMM-DIO", "prov": "LMM-DIO-PROV", "coal": "..-COAL", "stag": "..-STAG",
}  # fmt: skip
#: The paper's modes, in its order.
MODES = tuple(mode for mode in NAMES if mode != "lmdb")
PARTS = (("seek_s", "seek", "lmm"), ("io_s", "I/O", "coal"), ("turn_s", "turn", "dm"),
         ("skew_s", "skew", "stag"))  # fmt: skip
#: Figures of section 5.1, with the number of modes up to the one that is new there.
SECTIONS = (("15", 2), ("17", 3), ("18", 4), ("20", 5), ("21", 6), ("22", 7))
#: Number, data set, scaling, number of modes.
SCALING = (
    ("23(a)", "3k", "strong", 3), ("23(b)", "192k", "strong", 3), ("24", "3k", "strong", 7),
    ("25", "192k", "strong", 7), ("26", "3k", "weak", 7), ("27", "192k", "weak", 7),
)  # fmt: skip
#: What vertical axes show: in words, its name in Figures, and its scale.
READ = ("read time (s)", "seconds", 1.0)
SWITCHES = ("context switches", "switches", 1.0)
STORE = ("bytes from the store (MiB)", "delivered", 1 / MIB)
RANK_TEXTS_MAX = 16

Axis = tuple[str, str, float]
Cells = Sequence[CellResult]
Values = dict[int, float]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of the paper: its number there, what it shows, the drawing, the legend as HTML."""

    number: str
    words: str
    svg: str
    legend: str


def values(cells: Cells, mode: str, name: str, scale: float = 1.0) -> Values:
    """Return a figure of the mode, by the place of the cell."""
    lanes = ((x, lane) for x, one in enumerate(cells) if (lane := one.lane(mode)))
    return {x: scale * y for x, lane in lanes if (y := lane.median(name)) is not None}


def over_shapes(cells: Cells, words: str, unit: str, drawn: Sequence[Series]) -> Chart:
    """Return the series over processes; bars have a linear axis."""
    shapes = [one.cell.shape for one in cells]
    places: dict[float, str] = {x: f"{one.ranks} ({one.nodes})" for x, one in enumerate(shapes)}
    lines = not any(one.kind == "bar" for one in drawn)
    return Chart(words, places, "processes (nodes)", unit, tuple(drawn), logarithmic=lines)


def lines(
    cells: Cells, modes: Iterable[str], words: str, axis: Axis = READ, more: Sequence[Series] = ()
) -> Chart:
    """Draw a line for each mode, and more."""
    unit, name, scale = axis
    drawn = [Series.of(NAMES[one], one, values(cells, one, name, scale).items()) for one in modes]
    return over_shapes(cells, words, unit, [*drawn, *more])


def stacked(
    cells: Cells, words: str, unit: str, parts: Iterable[tuple[str, str, Values]]
) -> Chart:
    """Draw bars upon one another from name, colour and heights of each part."""
    tops: Values = {}
    drawn = []
    for name, colour, tall in parts:
        base, tops = tops, {x: tops.get(x, 0.0) + y for x, y in tall.items()}
        points = tuple((x, base.get(x, 0.0), y, tops[x]) for x, y in tall.items())
        drawn += [Series(name, colour, points, "bar")] if any(tall.values()) else []
    return over_shapes(cells, words, unit, drawn)


def factors(cells: Cells, modes: Sequence[str], words: str) -> Chart:
    """Draw how many times as fast as LMDB the modes are, in bars by shape."""
    width = 0.8 / len(modes)
    drawn = []
    for number, mode in enumerate(modes):
        left = (number + 0.5) * width - 0.4
        found = ((x + left, one.factor(mode)) for x, one in enumerate(cells))
        points = tuple((x, 0.0, y, y) for x, y in found if y)
        drawn.append(Series(NAMES[mode], mode, points, "bar", width))
    drawn.append(Series.of("LMDB", "ink", [(0, 1)], "guide"))
    return over_shapes(cells, words, "factor of improvement over LMDB", drawn)


def breakdown(cells: Cells, mode: str, words: str) -> Chart:
    """Draw where the time of a rank goes that reads; the rest is opening and computing."""
    parts = [(label, colour, values(cells, mode, name)) for name, label, colour in PARTS]
    every = values(cells, mode, "seconds").items()
    rest = {x: max(0.0, y - sum(tall[x] for *_, tall in parts)) for x, y in every}
    parts.append(("other", PY_LMDB, rest))
    return stacked(cells, words, "read time (s), mean of the ranks that read", parts)


def ideal(cells: Cells, words: str) -> Chart:
    """Draw LMDB's time, and what it would be if the ranks shared it evenly."""
    ranks = [one.cell.shape.ranks for one in cells]
    works = {x: ranks[x] * y for x, y in values(cells, PY_LMDB, "seconds").items()}
    even = ((x, works[min(works)] / ranks[x]) for x in works)
    return lines(cells, [PY_LMDB], words, more=[Series.of("ideal", "ink", even, "guide")])


def asleep(cells: Cells, words: str) -> Chart:
    """Draw the time in which LMDB's ranks sleep, and the rest."""
    every, shares = (values(cells, PY_LMDB, name) for name in ("reading_s", "sleep_share"))
    sleeping = {x: y * every[x] for x, y in shares.items()}
    awake = {x: every[x] - y for x, y in sleeping.items()}
    parts = [("asleep", PY_LMDB, sleeping), ("computing", "coal", awake)]
    return stacked(cells, words, "read time (s), mean over ranks", parts)


def redundant(cells: Cells, words: str) -> Chart:
    """Draw the bytes from the store of every mode, those needed, and the paper's R x B."""
    needed = values(cells, PY_LMDB, "needed", 1 / MIB).items()
    often = ((x, cells[x].cell.shape.nodes * y) for x, y in needed)
    marks = [
        Series.of("needed", "ink", needed, "mark"),
        Series.of("R x B, R nodes", "fio-queue-32", often, "mark"),
    ]
    return lines(cells, NAMES, words, STORE, marks)


def by_rank(cell: CellResult, modes: Iterable[str], name: str, what: str) -> Chart:
    """Draw a time of each rank that reads, in the middle run."""
    lanes = ((mode, lane) for mode in modes if (lane := cell.lane(mode)))
    drawn = []
    for mode, lane in lanes:
        run = lane.middle
        assert run is not None
        points = ((one["rank"], one[name]) for one in run["ranks"] if one["reads"])
        drawn.append(Series.of(NAMES[mode], mode, points))
    ranks = cell.cell.shape.ranks
    places: dict[float, str] = {x: str(x) for x in range(0, ranks, -(-ranks // RANK_TEXTS_MAX))}
    words = f"{what} by rank, {cell.cell.shape}"
    return Chart(words, places, "reader's rank", f"{what} (s)", tuple(drawn))


def by_block(made: CellResult, words: str) -> Chart:
    """Draw the rates of one process by the size of its requests."""
    drawn = []
    for name, colour in (("mmap", PY_LMDB), ("pread", "coal"), ("O_DIRECT", "stag")):
        lanes = [one for one in made.lanes if one.lane.name.startswith(name + " ") and one.runs]
        points = ((math.log2(one.lane.transfer), one.median("rate") or 0.0) for one in lanes)
        drawn.append(Series.of(name, colour, points))
    places = {math.log2(one.lane.transfer): size_text(one.lane.transfer) for one in made.lanes}
    return Chart(words, places, "I/O block size", "read bandwidth (MB/s)", tuple(drawn))


def charts(cells: Cells, blocks: Cells) -> Iterator[tuple[str, Chart]]:
    """Yield figures by their numbers; one without points is of what was not measured."""
    of = {(one, scaling): picked(cells, one, scaling) for _, one, scaling, _ in SCALING}
    of = {one: found if values(found, PY_LMDB, "seconds") else [] for one, found in of.items()}
    for number, dataset in (("3", "3k"), ("4", "192k")):
        found = of[dataset, "strong"]
        yield f"{number}(a)", ideal(found, f"LMDB's strong scaling, {dataset}: reading alone")
        words = f"LMDB's read time, {dataset}, by what it is spent on"
        yield f"{number}(b)", breakdown(found, PY_LMDB, words)
    strong = of["3k", "strong"]
    alone = [one for one in strong if one.cell.shape.nodes == 1 and one.lane(PY_LMDB)]
    yield "6(a)", lines(alone, list(NAMES)[:2], "LMDB's context switches, one node", SWITCHES)
    yield "6(b)", asleep(alone, "LMDB's sleep time, one node")
    yield "7", redundant(strong, "redundant data movement")
    for one in blocks:
        yield "8", by_block(one, "mmap and explicit reads by block size, one process")
    for number, count in SECTIONS:
        modes, new = MODES[:count], MODES[count - 1]
        if not values(strong, new, "seconds"):
            continue
        yield f"{number}(a)", lines(strong, modes, f"read time up to {NAMES[new]}")
        if new == "lmm":
            yield "15(b)", lines(strong, modes, "context switches", SWITCHES)
        part = "(c)" if new == "lmm" else "(b)"
        yield number + part, breakdown(strong, new, f"read time of {NAMES[new]}")
        if new == "lmm":
            yield "16(a)", by_rank(strong[-1], (PY_LMDB, "lmdb", "lmm"), "seek_s", "seek time")
        if new == "dio":
            yield "19", by_rank(strong[-1], ("dio",), "io_s", "I/O time")
    for number, dataset, scaling, count in SCALING:
        found = of[dataset, scaling]
        shown = [one for one in MODES[:count] if values(found, one, "seconds")]
        if len(shown) > 1:
            words = f"{scaling} scaling, {dataset}"
            yield f"{number} time", lines(found, shown, f"{words}: reading alone")
            yield f"{number} factor", factors(found, shown[1:], f"{words}: over LMDB")


def drawings(cells: Cells, blocks: Cells) -> list[Drawing]:
    """Return every figure that the measurements suffice for, in the paper's order."""
    return [
        Drawing(number, chart.title, chart_svg(chart), legend_html(chart))
        for number, chart in charts(cells, blocks)
        if any(one.points for one in chart.series)
    ]
