"""What was measured, as it is handed over: on the terminal, as JSON, as a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.cluster.judged import Verdict, judge, summaries
from benchmarks.cluster.measuring import Report
from benchmarks.cluster.paper import FIGURES, Answer, answers
from benchmarks.cluster.table import paper_table, verdict_table

__all__ = ["as_json", "deliver", "status"]

SCHEMA = 1


def verdicts(report: Report) -> list[Verdict]:
    return [one for made in report.cells for one in judge(made)]


def paper(report: Report) -> list[Answer]:
    return answers([*report.cells, *report.blocks])


def status(report: Report) -> int:
    """2 if somebody failed, 1 if something that must hold was not reached, 0 otherwise."""
    if any(one.error and not one.absent for made in report.cells for one in made.lanes):
        return 2
    return int(any(one.reached is False for one in verdicts(report)))


def as_json(report: Report, judged: Sequence[Verdict], found: Sequence[Answer]) -> dict[str, Any]:
    """Everything, rank by rank."""
    return {
        "schema": SCHEMA,
        "began": report.began,
        "command": list(report.command),
        "seconds": report.seconds,
        "interrupted": report.interrupted,
        "failed": report.failed or None,
        "machine": report.machine,
        "stores": report.stores,
        "sets": report.sets,
        "verdicts": [asdict(one) | {"state": one.state} for one in judged],
        "paper": [
            {
                "words": one.claim.words,
                "unit": one.claim.unit,
                "paper": one.claim.value,
                "paper_where": one.claim.where,
                "here": one.value,
                "here_where": one.where,
                "differs": one.claim.differs,
            }
            for one in found
        ],
        "not_answered": [asdict(one) for one in FIGURES],
        "cells": [one.as_json() for one in report.cells],
        "calibrations": [one.as_json() for one in report.calibrations],
        "block_sizes": [one.as_json() for one in report.blocks],
    }


def deliver(report: Report, console: Console, json_file: Path | None, page: Path | None) -> None:
    """Shows verdicts and the paper's factors, and writes the files that were asked for."""
    judged, found = verdicts(report), paper(report)
    console.print(verdict_table(summaries(judged)))
    console.print(paper_table(found))
    states = [one.state for one in judged]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    console.print(f"{counted or 'nothing was judged'}; {report.seconds:,.0f} s")
    if json_file is not None:
        text = json.dumps(as_json(report, judged, found), indent=1)
        write(json_file, text + "\n")
    if page is not None:
        from benchmarks.cluster.page import page as drawn

        write(page, drawn(report, judged, found))


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
