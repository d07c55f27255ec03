"""The paper's figures, with the same axes, from what was measured here (matplotlib, SVG).

Processes on the horizontal axis are given with their nodes; times are of batch reading without
training. A drawing is left out where its data were not measured.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib import ticker

from benchmarks.cluster.paper import picked
from benchmarks.cluster.results import CellResult, LaneResult
from benchmarks.cluster.sweep import PY_LMDB

#: In the paper's order; a colour each.
COLOURS = {
    PY_LMDB: "#87919d", "lmdb": "#4d5660", "lmm": "#c4712a", "dm": "#b0892a", "dio": "#7d55b3",
    "prov": "#2b8a6b", "coal": "#1c6db0", "stag": "#b3322b", "plain": "#1d2530",
}  # fmt: skip
NAMES = {
    PY_LMDB: "LMDB (py-lmdb)", "lmdb": "LMDB (Reader)", "lmm": "LMM", "dm": "LMM-DM",
    "dio": "LMM-DIO", "prov": "LMM-DIO-PROV", "coal": "..-COAL", "stag": "..-STAG",
    "plain": "plain reads (IOR)",
}  # fmt: skip
PARTS = (
    ("seek_s", "seek", "#c4712a"), ("io_s", "I/O", "#1c6db0"), ("turn_s", "turn", "#b0892a"),
    ("skew_s", "skew", "#b3322b"),
)  # fmt: skip
SIZE = (6.0, 3.3)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of the paper.

    Attributes:
        number: in the paper.
        words: what it shows.
        svg: the drawing.
    """

    number: str
    words: str
    svg: str


Draw = Callable[[Any], None]


def svg_of(draw: Draw, words: str) -> str:
    """One pair of axes, drawn."""
    with plt.rc_context({"svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"}):
        figure, axes = plt.subplots(figsize=SIZE, layout="constrained")
        axes.grid(axis="y", color="#e2e4e6", linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        draw(axes)
        axes.set_title(words, fontsize=9, loc="left")
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        plt.close(figure)
    return out.getvalue()[out.getvalue().index("<svg") :]


# --- what is drawn -------------------------------------------------------------------------


def ticks(axes: Any, cells: Sequence[CellResult]) -> None:
    labels = [f"{one.cell.shape.ranks}\n({one.cell.shape.nodes})" for one in cells]
    axes.set_xticks(range(len(cells)), labels)
    axes.set_xlabel("processes (nodes)")


def legend(axes: Any) -> None:
    """Beside the drawing, where it hides nothing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def logarithmic(axes: Any) -> None:
    """A logarithmic axis with plain numbers at 1, 2 and 5 times the powers of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def values(cells: Sequence[CellResult], mode: str, name: str) -> list[tuple[int, float]]:
    """A figure of the mode, by the place of the cell."""
    found = []
    for place, made in enumerate(cells):
        lane = made.lane(mode)
        value = None if lane is None else lane.median(name)
        if value is not None:
            found.append((place, float(value)))
    return found


def lines(
    cells: Sequence[CellResult], modes: Sequence[str], name: str, label: str, scale: float = 1.0
) -> Draw:
    """A line for each mode over the shapes."""

    def draw(axes: Any) -> None:
        for mode in modes:
            points = values(cells, mode, name)
            if points:
                axes.plot([x for x, _ in points], [scale * y for _, y in points], "o-",
                          color=COLOURS[mode], label=NAMES[mode], markersize=3.5)  # fmt: skip
        ticks(axes, cells)
        logarithmic(axes)
        axes.set_ylabel(label)
        legend(axes)

    return draw


def factors(cells: Sequence[CellResult], modes: Sequence[str]) -> Draw:
    """Times as fast as LMDB, bars by shape."""

    def draw(axes: Any) -> None:
        shown = [mode for mode in modes if any(one.factor(mode) for one in cells)]
        width = 0.8 / max(1, len(shown))
        for number, mode in enumerate(shown):
            points = [(x, factor) for x, one in enumerate(cells) if (factor := one.factor(mode))]
            axes.bar([x + (number + 0.5) * width - 0.4 for x, _ in points],
                     [y for _, y in points], width, color=COLOURS[mode],
                     label=NAMES[mode])  # fmt: skip
        axes.axhline(1, color="#1d2530", linewidth=0.8)
        ticks(axes, cells)
        axes.set_ylabel("factor of improvement over LMDB")
        legend(axes)

    return draw


def breakdown(cells: Sequence[CellResult], mode: str) -> Draw:
    """Where the time of a rank that reads goes, stacked; the rest is opening and computing."""

    def draw(axes: Any) -> None:
        shown = [(x, lane) for x, one in enumerate(cells) if (lane := one.lane(mode)) is not None]
        places = [x for x, _ in shown]
        below = [0.0] * len(shown)
        for name, label, colour in PARTS:
            tall = [lane.median(name) or 0.0 for _, lane in shown]
            if any(tall):
                axes.bar(places, tall, 0.6, bottom=below, color=colour, label=label)
            below = [low + high for low, high in zip(below, tall, strict=True)]
        rest = [max(0.0, (lane.median("seconds") or 0.0) - low)
                for (_, lane), low in zip(shown, below, strict=True)]  # fmt: skip
        axes.bar(places, rest, 0.6, bottom=below, color="#d5d9dd", label="other")
        ticks(axes, cells)
        axes.set_ylabel("read time (s), mean of the ranks that read")
        legend(axes)

    return draw


def ideal(cells: Sequence[CellResult]) -> Draw:
    """LMDB's time, and what it would be if ranks shared it evenly."""

    def draw(axes: Any) -> None:
        lines(cells, (PY_LMDB,), "seconds", "read time (s)")(axes)
        points = values(cells, PY_LMDB, "seconds")
        first = cells[points[0][0]].cell.shape.ranks * points[0][1]
        axes.plot([x for x, _ in points], [first / cells[x].cell.shape.ranks for x, _ in points],
                  "--", color="#1d2530", label="ideal", linewidth=1)  # fmt: skip
        legend(axes)

    return draw


def asleep(cells: Sequence[CellResult]) -> Draw:
    def draw(axes: Any) -> None:
        points = values(cells, PY_LMDB, "sleep_share")
        times = dict(values(cells, PY_LMDB, "reading_s"))
        places = [x for x, _ in points]
        sleeping = [share * times[x] for x, share in points]
        axes.bar(places, sleeping, 0.6, color="#87919d", label="asleep")
        axes.bar(places, [times[x] - s for x, s in zip(places, sleeping, strict=True)], 0.6,
                 bottom=sleeping, color="#1c6db0", label="computing")  # fmt: skip
        ticks(axes, cells)
        axes.set_ylabel("read time (s), mean over ranks")
        legend(axes)

    return draw


def redundant(cells: Sequence[CellResult]) -> Draw:
    """Bytes from the store of every mode, against those needed and the paper's R x B."""

    def draw(axes: Any) -> None:
        lines(cells, tuple(COLOURS)[:-1], "delivered", "bytes from the store (MiB)", 2**-20)(axes)
        for x, one in enumerate(cells):
            lane = one.lane(PY_LMDB)
            needed = lane.median("needed") if lane is not None else None
            if needed is not None:
                for times, style in ((1, "-"), (one.cell.shape.nodes, ":")):
                    label = {"-": "needed", ":": "R x B, R nodes"}[style] if x == 0 else None
                    axes.hlines(times * needed / 2**20, x - 0.3, x + 0.3, colors="#1d2530",
                                linestyles=style, label=label, linewidth=1)  # fmt: skip
        legend(axes)

    return draw


def by_rank(lanes: Sequence[tuple[str, LaneResult]], name: str, label: str) -> Draw:
    """A time of each rank that reads, in the middle run."""

    def draw(axes: Any) -> None:
        for mode, lane in lanes:
            middle = lane.middle
            assert middle is not None
            ranks = [one for one in middle["ranks"] if one["reads"]]
            axes.plot([one["rank"] for one in ranks], [one[name] for one in ranks], "o-",
                      color=COLOURS[mode], label=NAMES[mode], markersize=3.5)  # fmt: skip
        axes.set_xlabel("reader's rank")
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        axes.set_ylabel(label)
        legend(axes)

    return draw


def by_block(made: CellResult) -> Draw:
    def draw(axes: Any) -> None:
        for name, colour in (("mmap", "#87919d"), ("pread", "#1c6db0"), ("O_DIRECT", "#b3322b")):
            lanes = [
                one for one in made.lanes if one.lane.name.startswith(name + " ") and one.runs
            ]
            axes.plot([one.lane.transfer for one in lanes],
                      [one.median("rate") or 0.0 for one in lanes], "o-", color=colour,
                      label=name, markersize=3.5)  # fmt: skip
        axes.set_xscale("log", base=4)
        sizes = [one.lane.transfer for one in made.lanes[::3]]
        axes.set_xticks(sizes, [f"{size >> 10} KiB" for size in sizes], fontsize=7)
        axes.set_xlabel("I/O block size")
        axes.set_ylabel("read bandwidth (MB/s)")
        legend(axes)

    return draw


# --- the paper's figures -------------------------------------------------------------------

#: Figures of section 5.1: the modes up to the one that is new there.
SECTIONS = (
    ("15", (PY_LMDB, "lmm")),
    ("17", (PY_LMDB, "lmm", "dm")),
    ("18", (PY_LMDB, "lmm", "dm", "dio")),
    ("20", (PY_LMDB, "lmm", "dm", "dio", "prov")),
    ("21", (PY_LMDB, "lmm", "dm", "dio", "prov", "coal")),
    ("22", (PY_LMDB, "lmm", "dm", "dio", "prov", "coal", "stag")),
)
ALL = SECTIONS[-1][1]
#: Number, data set, scaling, modes.
SCALING = (
    ("23(a)", "3k", "strong", (PY_LMDB, "lmm", "dm")),
    ("23(b)", "192k", "strong", (PY_LMDB, "lmm", "dm")),
    ("24", "3k", "strong", ALL),
    ("25", "192k", "strong", ALL),
    ("26", "3k", "weak", ALL),
    ("27", "192k", "weak", ALL),
)


def has(cells: Sequence[CellResult], mode: str) -> bool:
    return any(one.lane(mode) is not None for one in cells)


def drawings(cells: Sequence[CellResult], blocks: Sequence[CellResult]) -> list[Drawing]:
    """Every figure that the measurements suffice for, in the paper's order."""
    made: list[Drawing] = []

    def add(number: str, words: str, draw: Draw) -> None:
        made.append(Drawing(number, words, svg_of(draw, words)))

    for number, dataset in (("3", "3k"), ("4", "192k")):
        of = picked(cells, dataset)
        if has(of, PY_LMDB):
            add(f"{number}(a)", f"LMDB's strong scaling, {dataset}: reading alone", ideal(of))
            add(f"{number}(b)", f"LMDB's read time, {dataset}, by what it is spent on",
                breakdown(of, PY_LMDB))  # fmt: skip
    strong = picked(cells, "3k")
    alone = [one for one in strong if one.cell.shape.nodes == 1]
    if has(alone, PY_LMDB):
        add("6(a)", "LMDB's context switches, one node",
            lines(alone, (PY_LMDB, "lmdb"), "switches", "context switches"))  # fmt: skip
        add("6(b)", "LMDB's sleep time, one node", asleep(alone))
    if has(strong, PY_LMDB):
        add("7", "redundant data movement", redundant(strong))
    for one in blocks:
        add("8", "mmap and explicit reads by block size, one process", by_block(one))
    add_sections(strong, add)
    for number, dataset, scaling, modes in SCALING:
        of = picked(cells, dataset, scaling)
        if has(of, PY_LMDB) and any(has(of, mode) for mode in modes[1:]):
            add(f"{number} time", f"{scaling} scaling, {dataset}: reading alone",
                lines(of, modes, "seconds", "read time (s)"))  # fmt: skip
            add(f"{number} factor", f"{scaling} scaling, {dataset}: over LMDB",
                factors(of, modes[1:]))  # fmt: skip
    return made


def add_sections(cells: Sequence[CellResult], add: Callable[[str, str, Draw], None]) -> None:
    """Figures of section 5.1, one group for each mode that was measured."""
    for number, modes in SECTIONS:
        new = modes[-1]
        if not has(cells, new) or not has(cells, PY_LMDB):
            continue
        add(f"{number}(a)", f"read time up to {NAMES[new]}",
            lines(cells, modes, "seconds", "read time (s)"))  # fmt: skip
        if new == "lmm":
            add("15(b)", "context switches", lines(cells, modes, "switches", "context switches"))
        add("15(c)" if new == "lmm" else f"{number}(b)", f"read time of {NAMES[new]}",
            breakdown(cells, new))  # fmt: skip
        last = cells[-1]
        if new == "lmm":
            seekers = [(mode, lane) for mode in (PY_LMDB, "lmdb", "lmm")
                       if (lane := last.lane(mode)) is not None]  # fmt: skip
            add("16(a)", f"seek time by rank, {last.cell.shape}",
                by_rank(seekers, "seek_s", "seek time (s)"))  # fmt: skip
        lane = last.lane("dio")
        if new == "dio" and lane is not None:
            add("19", f"I/O time by rank, {last.cell.shape}",
                by_rank([("dio", lane)], "io_s", "I/O time (s)"))  # fmt: skip
