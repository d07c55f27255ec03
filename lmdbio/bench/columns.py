"""The columns in which findings are shown, in a terminal and on a page alike. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmdbio.bench.findings import MIB, Findings, Row, Spread, figure

__all__ = ["COLUMNS", "Column", "shown"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures.

    Attributes:
        head: heading of the column; a line break where a terminal breaks it.
        always: a window of 80 columns has room for it.
        text: a row's figure, "-" where it has none.
    """

    head: str
    always: bool
    text: Callable[[Findings, Row], str]


def rate(_: Findings, row: Row) -> str:
    """Return the median rate; a warm one carries a star."""
    cold = all(run.sample and run.sample.cold for run in row.runs)
    return figure(row.rate.median if row.rate else None) + "*" * (not cold)


def ends(_: Findings, row: Row) -> str:
    """Return the rates of the slowest and the fastest run."""
    return f"{figure(row.rate.min)}-{figure(row.rate.max)}" if row.rate else "-"


def middle(of: Callable[[Row], Spread | None], form: str = "") -> Callable[[Findings, Row], str]:
    """Return what shows the median of a spread."""

    def text(_: Findings, row: Row) -> str:
        spread = of(row)
        return figure(spread.median if spread else None, form)

    return text


def equal(_: Findings, row: Row) -> str:
    """Say whether the values were compared with py-lmdb's."""
    if row.trial.contestant.raw:
        return "bytes only"
    return "yes" if row.verified else "not compared"


COLUMNS = (
    Column("MiB/s", True, rate),
    Column("slowest-\nfastest", True, ends),
    Column("ratio to\npy-lmdb", True, lambda f, r: figure(f.ratio(r, f.baseline), ".2f")),
    Column("ratio to\nbest plain", False, lambda f, r: figure(f.ratio(r, f.ceiling), ".2f")),
    Column("CPU s\nper GiB", True, middle(lambda row: row.cpu_per_gib, ".2f")),
    Column("switches\nper GiB", False, middle(lambda row: row.switches_per_gib, ",.0f")),
    Column("fetched\nMiB", False, middle(lambda row: row.of_samples("fetched_bytes", MIB))),
    Column("read\ncalls", False, middle(lambda row: row.of_samples("read_calls"), ",.0f")),
    Column("device\nrequests", False, middle(lambda r: r.of_samples("device_requests"), ",.0f")),
    Column("device\nMiB", False, middle(lambda row: row.of_samples("device_bytes", MIB))),
    Column("runs", False, lambda _, row: str(len(row.runs))),
    Column("values\nequal", False, equal),
)


def shown(parts: Sequence[Findings], *, narrow: bool = False) -> list[Column]:
    """Return the columns in which at least one row has a figure.

    Args:
        parts: findings of all parts of one table.
        narrow: whether columns that a window of 80 has no room for are left out.
    """
    rows = [(part, row) for part in parts for row in part.measured]
    return [
        column
        for column in COLUMNS
        if (column.always or not narrow) and any(column.text(*one) != "-" for one in rows)
    ]
