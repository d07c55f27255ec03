"""Whether what was measured is what must hold. Pure.

The ratio is one of medians. Rounds alternate, so each round has a ratio of its own as well; the
spread of these says how far the ratio can be trusted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from benchmarks.report import Verdict, judged, spread_text
from benchmarks.targets.cells import Cell, Rule
from lmdbio.bench.findings import GIB, MIB, Row, Spread
from lmdbio.bench.measure import Sample

#: Unit and figure of a run, by a rule's quantity; None where a machine does not count it.
QUANTITIES: Mapping[str, tuple[str, Callable[[Row, Sample], float | None]]] = {
    "rate": ("MiB/s", lambda row, sample: row.trial.bytes / MIB / sample.seconds),
    "records": ("records/s", lambda row, sample: row.work.count / sample.seconds),
    "cpu": ("CPU s/GiB", lambda row, sample: sample.cpu_seconds / (row.trial.bytes / GIB)),
    "peak": ("MiB", lambda _, sample: None if sample.peak_bytes is None
             else sample.peak_bytes / MIB),
}  # fmt: skip


def values(row: Row, quantity: str) -> list[float]:
    """Return a figure for each run, in the quantity's unit; none where one is not known."""
    of = QUANTITIES[quantity][1]
    found = [of(row, run.sample) for run in row.runs if run.sample is not None]
    known = [value for value in found if value is not None]
    return known if len(known) == len(found) else []


def best(rows: Sequence[Row], quantity: str) -> Row | None:
    """Return the row of the highest median; for "cpu", where less is better, of the lowest."""
    known = [row for row in rows if not row.wrong and values(row, quantity)]
    sign = -1 if quantity in ("cpu", "peak") else 1
    return max(
        known, key=lambda row: sign * statistics.median(values(row, quantity)), default=None
    )


def judge(
    cell: Cell, rows: Mapping[str, Sequence[Row]], *, link: float | None = None, why: str = ""
) -> list[Verdict]:
    """Return a verdict for each lane of each rule.

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
    """Return the verdict on one lane by one rule."""
    unit = QUANTITIES[rule.quantity][0]

    def told(ratio: float | None, **more: object) -> Verdict:
        return judged(
            rule.words, cell.name, ratio, least=rule.least, most=rule.most, who=lane, **more
        )

    mine = best(rows.get(lane, ()), rule.quantity)
    if mine is None:
        return told(None, note=why or trouble(lane, rows.get(lane, ())))
    own, note = values(mine, rule.quantity), warmth(cell, mine)
    measured = f"{spread_text(Spread.of(own))} {unit}"
    # A cap and a budget are numbers in the unit shown, but for bytes.
    number = rule.number / MIB if rule.quantity == "peak" else rule.number
    other, against = [number] * len(own), f"{number:,.4g} {unit}"
    if rule.rivals:
        rival = best([row for name in rule.rivals for row in rows.get(name, ())], rule.quantity)
        if rival is None:
            said = [trouble(name, rows.get(name, ())) for name in rule.rivals]
            return told(None, note=why or "; ".join(said), measured=measured)
        other = values(rival, rule.quantity)
        against = f"{spread_text(Spread.of(other))} {rival.label}"
        if rule.bounded_by_link and link is not None:
            most = link / statistics.median(other)
            note = f"the link lets pass {most:.2f} times this py-lmdb's rate"
    rounds = [mine / its for mine, its in zip(own, other, strict=False)]
    ratio = statistics.median(own) / statistics.median(other)
    ends = (min(rounds), max(rounds))
    return told(ratio, ends=ends, measured=measured, against=against, note=note)


def trouble(lane: str, rows: Sequence[Row]) -> str:
    """Say why a lane has no figure."""
    said = [row.wrong or row.trial.skipped for row in rows if row.wrong or row.trial.skipped]
    return f"{lane}: {'; '.join(dict.fromkeys(said)) or 'not measured'}"


def warmth(cell: Cell, row: Row) -> str:
    """Say what a reader should know of a figure that was to be cold and is not."""
    cold = all(run.sample is not None and run.sample.cold for run in row.runs)
    return "" if cell.warm or cold else "not cold: the page cache could not be emptied"
