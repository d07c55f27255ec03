"""Findings as one table for a terminal."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from lmdbio.bench import columns
from lmdbio.bench.findings import MIB, Findings
from lmdbio.inside.keytext import show_key

__all__ = ["show", "show_bench"]


def table(parts: Sequence[Findings], title: str, *, narrow: bool = False) -> Table:
    """Return one table of all parts, each below its own title.

    Args:
        parts: findings, with a title each where they are several.
        title: title of the table.
        narrow: whether it is for 80 columns; JSON and page have the rest.
    """
    out = Table(
        title=escape(title), title_style="bold", header_style="bold", box=SIMPLE, pad_edge=False
    )
    shown = columns.shown(parts, narrow=narrow)
    out.add_column("contestant")
    for column in shown:
        out.add_column(column.head, justify="right")
    for part in parts:
        if part.title:
            out.add_section()
            out.add_row(f"[bold]{escape(part.title)}[/]")
        family = ""
        for row in part.measured:
            if family and family != row.family and not part.title:
                out.add_section()
            family = row.family
            out.add_row(escape(row.label), *(column.text(part, row) for column in shown))
    return out


def show(
    parts: Sequence[Findings],
    console: Console,
    *,
    title: str,
    facts: Mapping[str, str],
    notes: Sequence[str],
) -> None:
    """Print what the figures depend on, the table, what it means, and which rows failed.

    Args:
        parts: findings, with a title each where they are several.
        console: Console that is printed to.
        title: title of the table.
        facts: machine, storage and cache state.
        notes: remarks on the columns, and on contestants that are not in them.
    """
    console.print()
    for name, text in facts.items():
        console.print(f"{name:12} {text}", highlight=False, markup=False)
    whole = table(parts, title)
    unlimited = console.options.update(max_width=10_000)
    width = Measurement.get(console, unlimited, whole).maximum
    console.print(whole if width <= console.width else table(parts, title, narrow=True))
    if width > console.width:
        notes = [f"A window of {width} columns shows more; so does the JSON.", *notes]
    for line in notes:
        console.print(line, style="dim", highlight=False, markup=False)
    for part in parts:
        for row in part.rows:
            if row.wrong:
                said = f"{part.title}: {row.label}: {row.wrong}".removeprefix(": ")
                console.print(f"[bold red]failed[/] {escape(said)}", highlight=False)


def show_bench(findings: Findings, console: Console) -> None:
    """Print what ``lmdbio bench`` found out."""
    work = findings.workload
    named = f"database {show_key(os.fsencode(work.db))}, " if work.db else ""
    title = (
        f"{named}{work.access}, {work.page_bytes / MIB:,.0f} MiB, {work.processes} process"
        f"{'es' * (work.processes > 1)}"
    )
    facts = findings.machine.facts | {"cache": findings.state}
    show([findings], console, title=title, facts=facts, notes=legend(findings))
    commands = [row.command for row in findings.rows if row.command]
    if commands:
        console.print(f"[dim]{len(commands)} commands of fio and ior, the first:[/]")
        console.print(shlex.join(commands[0]), highlight=False, markup=False, soft_wrap=True)


def absent(parts: Sequence[Findings]) -> list[str]:
    """Say who did not take part, and why."""
    titles: dict[str, dict[str, None]] = {}
    for part in parts:
        for row in part.rows:
            if row.trial.skipped:
                # A plain reader may be left out at one transfer size alone.
                name = row.label if row.trial.transfer else row.title
                titles.setdefault(row.trial.skipped, {})[name] = None
    return [f"Without {', '.join(names)}: {why}." for why, names in titles.items()]


def legend(findings: Findings) -> list[str]:
    """Say what the columns mean, and name the absent."""
    return [
        "MiB/s: bytes of the file's pages that hold the records, the same for everybody, over the "
        "time from before opening to the last value; median, slowest and fastest run.",
        "Ratios of medians: to py-lmdb at its better setting, to the best of plain, fio and ior.",
        *absent([findings]),
        *findings.notes,
    ]
