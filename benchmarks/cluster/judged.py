"""What must hold of the modes on many ranks, and whether it does. Pure.

Source of the bounds: benchmarks/README.md, "A cluster on one machine".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.cluster.results import CellResult
from benchmarks.cluster.sweep import PLAIN, PY_LMDB

__all__ = ["Summary", "Verdict", "judge", "summaries"]

#: Of ranks and nodes, where speed is judged.
RANKS, NODES = 16, (4, 8)
#: The modes from the slowest to the fastest, as the paper has them on many nodes.
ORDER = (PY_LMDB, "lmm", "dm", "dio", "prov", "coal", "stag")
#: A mode may be so much slower than the one before it and still count as not slower.
TIE = 1.05


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that must hold, in one cell.

    Attributes:
        words: what.
        cell: where.
        figure: what was measured, None if nothing was.
        bound: such as ">= 0.9"; "" if it is only reported.
        reached: None: only reported, or not measured.
        note: what else a reader should know.
    """

    words: str
    cell: str
    figure: float | None
    bound: str = ""
    reached: bool | None = None
    note: str = ""

    @property
    def state(self) -> str:
        if self.figure is None:
            return "no figure"
        if self.reached is None:
            return "reported"
        return "reached" if self.reached else "NOT reached"


@dataclass(frozen=True, slots=True)
class Summary:
    """One thing that must hold, over all cells.

    Attributes:
        reached, missed, unknown: in so many cells.
        worst: the verdict that is farthest from the bound, or nearest to it.
    """

    reached: int
    missed: int
    unknown: int
    worst: Verdict

    @property
    def state(self) -> str:
        if self.missed:
            return "NOT reached"
        return "reached" if self.reached else "no figure"


def summaries(verdicts: Sequence[Verdict]) -> list[Summary]:
    """A line for each thing that must hold."""
    made = []
    bounded = [one for one in verdicts if one.bound]
    for words in dict.fromkeys(one.words for one in bounded):
        of = [one for one in bounded if one.words == words]
        states = [one.state for one in of]
        known = [one for one in of if one.figure is not None] or of
        lowest = known[0].bound.startswith(">=")
        ordered = sorted(known, key=lambda one: one.figure or 0.0, reverse=not lowest)
        missed = [one for one in ordered if one.reached is False]
        made.append(
            Summary(
                states.count("reached"),
                states.count("NOT reached"),
                states.count("no figure"),
                (missed or ordered)[0],
            )
        )
    return made


def least(words: str, made: CellResult, figure: float | None, bound: float, note: str) -> Verdict:
    reached = None if figure is None else figure >= bound
    return Verdict(words, str(made.cell), figure, f">= {bound:g}", reached, note)


def most(words: str, made: CellResult, figure: float | None, bound: float, note: str) -> Verdict:
    reached = None if figure is None else figure <= bound
    return Verdict(words, str(made.cell), figure, f"<= {bound:g}", reached, note)


def why(made: CellResult, *names: str) -> str:
    """Which lane ran as these, or why none did."""
    said = []
    for name in names:
        lane = made.lane(name)
        if lane is not None:
            said.append(lane.lane.name)
            continue
        of = [one for one in made.lanes if name in (one.lane.mode, one.lane.name, one.lane.kind)]
        errors = {"not in this version" if one.absent else one.error for one in of}
        said.append(f"{name}: {', '.join(filter(None, errors)) or 'did not take part'}")
    return "; ".join(said)


# --- what must hold ------------------------------------------------------------------------


def speed(made: CellResult) -> Iterator[Verdict]:
    """STAG against the plain readers and py-lmdb."""
    cell = made.cell
    judged = cell.shape.ranks == RANKS and cell.shape.nodes in NODES and cell.dataset == "3k"
    bounded = judged and cell.assignment == "blocked" and cell.scaling == "strong"
    rate = made.ratio("stag", PLAIN, "rate")
    note = why(made, "stag", PLAIN)
    words = "STAG's rate over that of plain reads through the same mounts"
    if bounded:
        yield least(words, made, rate, 0.90, note)
        yield least(
            "STAG, times as fast as LMDB, reading",
            made,
            made.factor("stag", "reading_s"),
            8.0,
            note,
        )
    elif rate is not None:
        yield Verdict(words, str(cell), rate, note=note)
    total = made.factor("stag")
    if total is not None:
        words = "STAG, times as fast as LMDB, opening included"
        yield Verdict(words, str(cell), total, note=note)


def traffic(made: CellResult) -> Iterator[Verdict]:
    """Bytes from the store over bytes needed."""
    for mode in ("prov", "coal", "stag"):
        for lane in made.lanes:
            if lane.lane.mode == mode and lane.runs:
                words = f"bytes read over bytes needed, {lane.lane.name}"
                yield most(words, made, lane.median("amplified"), 1.02, "")
    base = made.lane(PY_LMDB)
    if base is not None:
        note = f"the paper's R x B: up to {made.cell.shape.nodes}, one page cache a node"
        figure = base.median("amplified")
        yield Verdict("bytes read over bytes needed, LMDB", str(made.cell), figure, note=note)


def switches(made: CellResult) -> Iterator[Verdict]:
    if made.cell.shape.ranks != RANKS:
        return
    for mode in ("coal", "stag"):
        figure = made.ratio(PY_LMDB, mode, "switches")
        yield least(
            f"{mode.upper()}, times fewer context switches than LMDB", made, figure, 50,
            why(made, mode),
        )  # fmt: skip


def own_lmdb(made: CellResult) -> Iterator[Verdict]:
    """Reader's mode LMDB is as py-lmdb is."""
    if made.lane("lmdb") is None:
        return
    for words, figure in (("time", "reading_s"), ("bytes", "delivered")):
        ratio = made.ratio("lmdb", PY_LMDB, figure)
        reached = None if ratio is None else abs(ratio - 1) <= 0.10
        yield Verdict(
            f"Reader's mode LMDB over py-lmdb, {words}", str(made.cell), ratio, "within 10 %",
            reached,
        )  # fmt: skip


def speculation(made: CellResult) -> Iterator[Verdict]:
    lane = made.lane("dm")
    if lane is None:
        return
    amplified, seek, total = (lane.median(n) for n in ("amplified", "seek_s", "seconds"))
    yield most("DM, bytes read over bytes needed", made, amplified, 2.0, "")
    if seek is not None and total:
        yield most("DM, share of seeking in the read time", made, seek / total, 0.05, "")
    hits = lane.median("hit_rate")
    words = "DM, share of records that lay where they were guessed"
    yield Verdict(words, str(made.cell), hits, note="of a whole run, the first guesses included")


def large_records(made: CellResult) -> Iterator[Verdict]:
    """192 KB: STAG is the fastest, and COAL without it suffers from requests out of order."""
    if made.cell.dataset != "192k" or made.cell.shape.nodes < 2 or made.lane("stag") is None:
        return
    rivals = {
        one.lane.name: one.median("reading_s")
        for one in made.lanes
        if one.lane.reads_records and one.lane.mode != "stag" and one.runs
    }
    times = [time for time in rivals.values() if time is not None]
    own = made.lane("stag")
    assert own is not None
    mine = own.median("reading_s")
    if times and mine:
        yield least("STAG, times as fast as the best other mode", made, min(times) / mine, 1.0,
                    why(made, "stag"))  # fmt: skip
    figure = made.ratio("coal", "stag", "seeks")
    yield least("COAL, times as many requests out of order as STAG", made, figure, 1.0,
                why(made, "coal", "stag"))  # fmt: skip


def order(made: CellResult) -> Iterator[Verdict]:
    """Whether the modes come out as in the paper."""
    known = []
    for mode in ORDER:
        lane = made.lane(mode)
        time = None if lane is None else lane.median("seconds")
        if time is not None:
            known.append((mode, time))
    if len(known) < 3 or made.cell.shape.nodes < 2:
        return
    out = [
        f"{mode} is slower than {before}"
        for (before, earlier), (mode, time) in pairwise(known)
        if time > TIE * earlier
    ]
    yield Verdict(
        "modes that are slower than the one before them in the paper's order", str(made.cell),
        float(len(out)), "<= 0", not out, "; ".join(out),
    )  # fmt: skip


def agreement(made: CellResult) -> Iterator[Verdict]:
    looked = sum(one.sum is not None for one in made.lanes)
    if looked:
        yield Verdict(
            "everybody read the same bytes", str(made.cell), float(looked), "all",
            made.sums_agree, f"{looked} lanes",
        )  # fmt: skip


RULES: Sequence[Callable[[CellResult], Iterator[Verdict]]] = (
    agreement, speed, traffic, switches, own_lmdb, speculation, large_records, order,
)  # fmt: skip


def judge(made: CellResult) -> list[Verdict]:
    """Everything that is judged, or reported, of a cell."""
    if not any(one.runs and one.lane.reads_records for one in made.lanes):
        return []
    return [verdict for rule in RULES for verdict in rule(made)]
