"""Whether what was measured is what must hold. Pure.

The ratio is one of medians. Rounds alternate, so each round has a ratio of its own as well; the
spread of these says how far the ratio can be trusted.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.targets.cells import Cell, Rule
from lmdbio.bench.findings import GIB, MIB, Row, Spread

__all__ = ["UNITS", "Verdict", "judge"]

#: As shown, by a rule's quantity.
UNITS = {"rate": "MiB/s", "records": "records/s", "cpu": "CPU s/GiB", "peak": "MiB"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule for one lane.

    Attributes:
        group, cell, words: as in the cell.
        lane: who was judged.
        rival: who was the measure, as run; "" for a number.
        unit: of the next two.
        measured, measure: median, slowest and fastest; None if there is no figure.
        ratio: of the medians.
        ratios: of the rounds, from the least to the greatest.
        bound: ">= 0.9", "<= 1.1", or "" if it is only reported.
        reached: None: only reported, or not measured.
        note: why there is no figure, or what a reader of it should know.
    """

    group: str
    cell: str
    words: str
    lane: str
    rival: str = ""
    unit: str = ""
    measured: Spread | None = None
    measure: Spread | None = None
    ratio: float | None = None
    ratios: tuple[float, float] | None = None
    bound: str = ""
    reached: bool | None = None
    note: str = ""

    @property
    def state(self) -> str:
        """In a word or two."""
        if self.ratio is None:
            return "no figure"
        if self.reached is None:
            return "reported"
        return "reached" if self.reached else "NOT reached"

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"state": self.state}


def values(row: Row, quantity: str) -> list[float]:
    """A figure for each run, in the quantity's unit; empty where a machine does not count it."""
    samples = [run.sample for run in row.runs if run.sample is not None]
    if quantity == "rate":
        return row.rates
    if quantity == "records":
        return [row.work.count / sample.seconds for sample in samples]
    if quantity == "cpu":
        return [sample.cpu_seconds / (row.trial.bytes / GIB) for sample in samples]
    assert quantity == "peak"
    peaks = [sample.peak_bytes for sample in samples]
    return [peak / MIB for peak in peaks if peak is not None] if None not in peaks else []


def spread(measured: Sequence[float]) -> Spread:
    found = Spread.of(measured)
    assert found is not None
    return found


def best(rows: Sequence[Row], quantity: str) -> Row | None:
    """Of the highest median; for "cpu", where less is better, of the lowest."""
    known = [row for row in rows if not row.wrong and values(row, quantity)]
    sign = -1 if quantity in ("cpu", "peak") else 1
    return max(
        known, key=lambda row: sign * statistics.median(values(row, quantity)), default=None
    )


def judge(
    cell: Cell, rows: Mapping[str, Sequence[Row]], *, link: float | None = None, why: str = ""
) -> list[Verdict]:
    """A verdict for each lane of each rule.

    Args:
        cell: what was to be measured.
        rows: what was, by the name of the lane; the plain readers' lane may have several.
        link: MiB/s that the place's link lets pass.
        why: nothing was measured, for this reason.
    """
    return [
        verdict(cell, rule, lane, rows, link, why) for rule in cell.rules for lane in rule.lanes
    ]


def verdict(
    cell: Cell,
    rule: Rule,
    lane: str,
    rows: Mapping[str, Sequence[Row]],
    link: float | None,
    why: str,
) -> Verdict:
    """One lane, one rule."""
    bound = "" if rule.least is None else f">= {rule.least:g}"
    bound = bound if rule.most is None else f"<= {rule.most:g}"
    unit = UNITS[rule.quantity]
    bare = Verdict(rule.group, cell.name, rule.words, lane, unit=unit, bound=bound)
    mine = best(rows.get(lane, ()), rule.quantity)
    if mine is None:
        return replace(bare, note=why or trouble(lane, rows.get(lane, ())))
    own = values(mine, rule.quantity)
    bare = replace(bare, measured=spread(own), note=warmth(cell, mine))
    if not rule.rivals:
        # A cap and a budget are numbers in the unit shown, but for bytes.
        number = rule.number / MIB if rule.quantity == "peak" else rule.number
        return compared(bare, rule, own, [number] * len(own))
    rival = best([row for name in rule.rivals for row in rows.get(name, ())], rule.quantity)
    if rival is None:
        said = [trouble(name, rows.get(name, ())) for name in rule.rivals]
        return replace(bare, note=why or "; ".join(said))
    other = values(rival, rule.quantity)
    bare = replace(bare, rival=rival.label)
    if rule.bounded_by_link and link is not None:
        most = link / statistics.median(other)
        bare = replace(bare, note=f"the link lets pass {most:.2f} times this py-lmdb's rate")
    return compared(bare, rule, own, other)


def compared(bare: Verdict, rule: Rule, own: Sequence[float], other: Sequence[float]) -> Verdict:
    """With the figures filled in."""
    measure = spread(other)
    ratio = statistics.median(own) / measure.median
    rounds = [mine / its for mine, its in zip(own, other, strict=False)]
    reached = None
    if rule.least is not None:
        reached = ratio >= rule.least
    if rule.most is not None:
        reached = ratio <= rule.most
    return replace(
        bare, measure=measure, ratio=ratio, ratios=(min(rounds), max(rounds)), reached=reached
    )


def trouble(lane: str, rows: Sequence[Row]) -> str:
    """Why a lane has no figure."""
    said = [row.wrong or row.trial.skipped for row in rows if row.wrong or row.trial.skipped]
    return f"{lane}: {'; '.join(dict.fromkeys(said)) or 'not measured'}"


def warmth(cell: Cell, row: Row) -> str:
    """What a reader should know of a figure that was to be cold and is not."""
    cold = all(run.sample is not None and run.sample.cold for run in row.runs)
    return "" if cell.warm or cold else "not cold: the page cache could not be emptied"
