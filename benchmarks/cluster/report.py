"""The measurements of the cluster, handed over. Pure."""

from __future__ import annotations

from html import escape

from benchmarks.cluster.measuring import Report
from benchmarks.cluster.results import CellResult
from benchmarks.cluster.rules import in_short, judge
from benchmarks.cluster.table import HEADS, cell_table
from benchmarks.harness import Told
from lmdbio.page.document import facts_html, section

__all__ = ["tell"]

SCHEMA = 3


def tell(told: Told, report: Report) -> None:
    """Note all that was measured up to now, rank by rank; tables of cells were shown before."""
    told.title, told.summed = "All modes on many ranks, on one machine", True
    told.verdicts = [one for made in report.cells for one in judge(made)]
    told.failed = any(lane.error for made in report.cells for lane in made.lanes)
    told.lines = [words for made in report.cells if (words := in_short(made))]
    stores = {f"store {place}": words for place, words in enumerate(report.stores)}
    columns = {head: words for head, words in HEADS.items() if words}
    told.more = (
        "".join(map(cell_section, report.cells))
        + section("Columns", "", facts_html(columns))
        + section("Where", "", facts_html(stores))
    )
    told.facts = {
        "schema": SCHEMA,
        "stores": report.stores,
        "sets": report.sets,
        "cells": [one.as_json() for one in report.cells],
        "calibrations": [one.as_json() for one in report.calibrations],
        "block_sizes": [one.as_json() for one in report.blocks],
    }


def cell_section(made: CellResult) -> str:
    listed = "\n".join(f"{name}: {words}" for name, words in made.commands.items())
    lead = "" if made.sums_agree else "The sums of the bytes read differ."
    return cell_table(made).section(lead, f"<pre>{escape(listed)}</pre>" if listed else "")
