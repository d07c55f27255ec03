"""The findings as one table for a terminal."""

from __future__ import annotations

import shlex

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from lmdbio.bench.findings import MIB, Findings, Row, Spread, size_text
from lmdbio.bench.report import machine_facts, number, wanted_width

__all__ = ["show"]

#: Title, and whether a narrow window has room for it.
HEADS = (
    ("MiB/s", True),
    ("slowest-\nfastest", True),
    ("ratio to\npy-lmdb", True),
    ("ratio to\nbest plain", False),
    ("CPU s\nper GiB", True),
    ("switches\nper GiB", False),
    ("fetched\nMiB", False),
    ("read\ncalls", False),
    ("device\nrequests", False),
    ("runs", False),
)


def middle(spread: Spread | None, scale: float = 1.0) -> float | None:
    return None if spread is None else spread.median / scale


def cells(findings: Findings, row: Row) -> list[str]:
    """The figures of a row, one per head."""
    rate = row.rate
    if rate is None:
        return []
    star = "" if all(run.sample and run.sample.cold for run in row.runs) else "*"
    return [
        f"{rate.median:,.0f}{star}",
        f"{rate.min:,.0f}-{rate.max:,.0f}",
        number(findings.ratio(row, findings.baseline), ".2f"),
        number(findings.ratio(row, findings.ceiling), ".2f"),
        number(middle(row.cpu_per_gib), ".2f"),
        number(middle(row.switches_per_gib)),
        number(middle(row.of_samples("fetched_bytes", MIB))),
        number(middle(row.of_samples("read_calls"))),
        number(middle(row.of_samples("device_requests"))),
        str(len(row.runs)),
    ]


def table(findings: Findings, *, narrow: bool = False) -> Table:
    """The one table. ``narrow``: for 80 columns; JSON and page have the rest."""
    work = findings.workload
    named = f"database {work.db}, " if work.db else ""
    out = Table(
        title=f"{named}{work.access}, {work.page_bytes / MIB:,.0f} MiB, {work.processes} process"
        f"{'es' * (work.processes > 1)}",
        title_style="bold", header_style="bold", box=SIMPLE, pad_edge=False,
    )  # fmt: skip
    shown = [place for place, (_, always) in enumerate(HEADS) if always or not narrow]
    out.add_column("contestant")
    if not narrow:
        out.add_column("transfer", justify="right")
    for place in shown:
        out.add_column(HEADS[place][0], justify="right")
    family = ""
    for row in findings.measured:
        if family and family != row.family:
            out.add_section()
        family = row.family
        transfer = size_text(row.trial.transfer) if row.trial.transfer else ""
        head = [row.label] if narrow else [row.title, transfer]
        values = cells(findings, row)
        out.add_row(*head, *(values[place] for place in shown))
    return out


def show(findings: Findings, console: Console) -> None:
    """Prints what it ran on, the table, and what it means."""
    console.print()
    for line in [*machine_facts(findings.machine), f"cache        {findings.state}"]:
        console.print(line, highlight=False)
    whole = table(findings)
    fits = wanted_width(whole, console) <= console.width
    console.print(whole if fits else table(findings, narrow=True))
    for line in legend(findings):
        console.print(line, style="dim", highlight=False)
    for row in findings.rows:
        if row.wrong:
            console.print(f"[bold red]failed[/] {row.label}: {row.wrong}", highlight=False)
    commands = [row.command for row in findings.rows if row.command]
    if commands:
        console.print(f"[dim]{len(commands)} commands of fio and ior, the first:[/]")
        console.print(shlex.join(commands[0]), highlight=False, markup=False, soft_wrap=True)


def legend(findings: Findings) -> list[str]:
    """What the columns mean, and who is not in them."""
    absent: dict[str, list[str]] = {}
    for row in findings.rows:
        if row.trial.skipped and row.title not in absent.setdefault(row.trial.skipped, []):
            absent[row.trial.skipped].append(row.title)
    return [
        "MiB/s: bytes of the file's pages that hold the records, the same for everybody, over the "
        "time from before opening to the last value; median, slowest and fastest run.",
        "Ratios of medians: to py-lmdb at its better setting, to the best of plain, fio and ior.",
        *(f"Without {', '.join(titles)}: {why}." for why, titles in absent.items()),
        *findings.notes,
    ]
