"""Results as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from benchmarks.cluster.judged import Summary
from benchmarks.cluster.paper import Answer
from benchmarks.cluster.results import CellResult, LaneResult, Spread
from benchmarks.cluster.sweep import PLAIN

__all__ = [
    "HEADS",
    "SUMMARY_HEADS",
    "cell_table",
    "paper_table",
    "row",
    "summary_row",
    "text",
    "verdict_table",
]

#: Of a cell's table, and what they mean.
HEADS = {
    "who": "",
    "s": "from opening to the last record, median (least to most)",
    "reading": "seconds without opening",
    "MB/s": "bytes needed over seconds of reading",
    "of plain": "that over the best plain reader's",
    "x LMDB": "times as fast as py-lmdb, opening included",
    "seek": "seconds, mean over the ranks that read",
    "I/O": "the same, waiting for bytes",
    "turn": "the same, waiting for a turn",
    "skew": "the same, waiting for the last rank",
    "KiB": "mean request at the store",
    "out of order": "requests of these",
    "read/needed": "bytes from the store over the pages that hold each node's records",
    "switches": "context switches of a record",
    "asleep": "share of reading, mean over ranks",
    "CPU s": "of all ranks",
}
STYLES = {"reached": "green", "NOT reached": "bold red", "no figure": "bold yellow"}


def spread_text(spread: Spread | None, form: str = ".2f") -> str:
    if spread is None:
        return "-"
    if spread.low == spread.high:
        return f"{spread.median:{form}}"
    return f"{spread.median:{form}} ({spread.low:{form}} to {spread.high:{form}})"


def text(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else f"{value:{form}}"


def row(made: CellResult, lane: LaneResult) -> list[str]:
    """The cells of a lane's line."""
    if not lane.runs:
        why = "not in this version" if lane.absent else "failed" if lane.error else "-"
        return [lane.lane.name, why]
    ceiling, base = made.lane(PLAIN), made.lane("py-lmdb")
    rate, seconds = lane.median("rate"), lane.median("seconds")
    ceiling_rate = ceiling.median("rate") if ceiling else None
    base_seconds = base.median("seconds") if base else None
    records = lane.lane.reads_records
    return [
        lane.lane.name,
        spread_text(lane.spread("seconds")),
        text(lane.median("reading_s")),
        text(rate, ".0f"),
        text(rate / ceiling_rate if rate and ceiling_rate else None),
        text(base_seconds / seconds if records and base_seconds and seconds else None, ".1f"),
        text(lane.median("seek_s"), ".3f") if records else "",
        text(lane.median("io_s")),
        text(lane.median("turn_s")) if records else "",
        text(lane.median("skew_s")),
        text((lane.median("request_bytes") or 0.0) / 1024, ".0f"),
        text(lane.median("seeks"), ",.0f"),
        text(lane.median("amplified"), ".3f") if records else "",
        text(lane.median("switches_per_record"), ".3f") if records else "",
        text(100 * (lane.median("sleep_share") or 0.0), ".0f") + " %" if records else "",
        text(lane.median("cpu_s")),
    ]


def cell_table(made: CellResult) -> Table:
    """All lanes of a cell."""
    out = Table(title=str(made.cell), title_justify="left", box=SIMPLE, pad_edge=False)
    for head in HEADS:
        out.add_column(head, justify="left" if head == "who" else "right", overflow="fold")
    said = {}
    for lane in made.lanes:
        words = row(made, lane)
        if lane.error and not lane.absent:
            said[lane.lane.name] = lane.error
        style = None if lane.runs else "dim"
        out.add_row(*(escape(word) for word in words), style=style)
    if said:
        out.caption = escape("\n".join(f"{name}: {error}" for name, error in said.items()))
        out.caption_justify = "left"
    return out


SUMMARY_HEADS = ("what", "bound", "", "reached", "not", "no figure", "worst", "where", "note")


def summary_row(one: Summary) -> list[str]:
    """The cells of a summary's line, under SUMMARY_HEADS."""
    worst = one.worst
    counts = (str(count) if count else "" for count in (one.reached, one.missed, one.unknown))
    figure = text(worst.figure, ".3g")
    return [worst.words, worst.bound, one.state, *counts, figure, worst.cell, worst.note]


def verdict_table(found: Sequence[Summary]) -> Table:
    """What must hold, over all cells; JSON and page have each cell."""
    out = Table(title="What must hold", title_justify="left", box=SIMPLE, pad_edge=False)
    for head in SUMMARY_HEADS:
        right = head in ("reached", "not", "no figure", "worst")
        out.add_column(head, justify="right" if right else "left", overflow="fold")
    for one in found:
        words = [escape(word) for word in summary_row(one)]
        style = STYLES.get(one.state)
        words[2] = f"[{style}]{one.state}[/]" if style else one.state
        out.add_row(*words)
    return out


def paper_table(answers: Sequence[Answer]) -> Table:
    """Those that were measured; JSON and page have all, and why they differ."""
    out = Table(
        title="The paper's factors and these", title_justify="left", box=SIMPLE, pad_edge=False
    )
    for head in ("what", "paper", "where there", "here", "where here"):
        out.add_column(head, justify="right" if head in ("paper", "here") else "left")
    for one in answers:
        if one.value is not None:
            claim = one.claim
            words = (claim.words, claim.value_text, claim.where, one.text, one.where)
            out.add_row(*(escape(word) for word in words))
    return out
