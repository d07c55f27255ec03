"""The results of a cell, as a table. Pure."""

from __future__ import annotations

from benchmarks.cluster.results import CellResult, LaneResult
from benchmarks.cluster.sweep import PLAIN
from benchmarks.report import spread_text
from lmdbio.bench.findings import figure
from lmdbio.page.table import Table

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
    "exposed": "share of the time from the first batch on in which ranks wait for the next one",
    "CPU s": "of all ranks",
}


def row(made: CellResult, lane: LaneResult) -> list[str]:
    """Return the texts of a lane's line."""
    if not lane.runs:
        return [lane.lane.name, "failed" if lane.error else "-"]
    ceiling, base = made.lane(PLAIN), made.lane("py-lmdb")
    rate, seconds = lane.median("rate"), lane.median("seconds")
    ceiling_rate = ceiling.median("rate") if ceiling else None
    base_seconds = base.median("seconds") if base else None
    records = lane.lane.reads_records
    return [
        lane.lane.name,
        spread_text(lane.spread("seconds"), ".2f"),
        figure(lane.median("reading_s"), ".2f"),
        figure(rate, ".0f"),
        figure(rate / ceiling_rate if rate and ceiling_rate else None, ".2f"),
        figure(base_seconds / seconds if records and base_seconds and seconds else None, ".1f"),
        figure(lane.median("seek_s"), ".3f") if records else "",
        figure(lane.median("io_s"), ".2f"),
        figure(lane.median("turn_s"), ".2f") if records else "",
        figure(lane.median("skew_s"), ".2f"),
        figure((lane.median("request_bytes") or 0.0) / 1024, ".0f"),
        figure(lane.median("seeks"), ",.0f"),
        figure(lane.median("amplified"), ".3f") if records else "",
        figure(lane.median("switches_per_record"), ".3f") if records else "",
        figure(100 * (lane.median("sleep_share") or 0.0), ".0f") + " %" if records else "",
        figure(100 * (lane.median("exposed") or 0.0), ".2f") + " %"
        if made.cell.compute_ms and lane.lane.kind == "reader"
        else "",
        figure(lane.median("cpu_s"), ".2f"),
    ]


def cell_table(made: CellResult) -> Table:
    """Return all lanes of a cell; errors stand below."""
    notes = [f"{lane.lane.name}: {lane.error}" for lane in made.lanes if lane.error]
    rows = [row(made, lane) for lane in made.lanes]
    return Table(str(made.cell), tuple(HEADS), rows, notes=notes)
