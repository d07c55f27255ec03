"""The table of findings, for a terminal and a page alike, and what a terminal shows around it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement

from lmdbio.bench.findings import MIB, Findings, Row, Spread, figure
from lmdbio.inside.keytext import show_key
from lmdbio.page.table import Table
from lmdbio.system.amounts import count_text

__all__ = ["absent", "show", "show_bench", "table"]


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


#: Heads (a line break where a terminal breaks it) and figures, "-" where a row has none.
COLUMNS: dict[str, Callable[[Findings, Row], str]] = {
    "MiB/s": rate,
    "slowest-\nfastest": ends,
    "ratio to\npy-lmdb": lambda f, r: figure(f.ratio(r, f.baseline), ".2f"),
    "ratio to\nbest plain": lambda f, r: figure(f.ratio(r, f.ceiling), ".2f"),
    "CPU s\nper GiB": middle(lambda row: row.cpu_per_gib, ".2f"),
    "switches\nper GiB": middle(lambda row: row.switches_per_gib, ",.0f"),
    "fetched\nMiB": middle(lambda row: row.of_samples("fetched_bytes", MIB)),
    "read\ncalls": middle(lambda row: row.of_samples("read_calls"), ",.0f"),
    "device\nrequests": middle(lambda row: row.of_samples("device_requests"), ",.0f"),
    "device\nMiB": middle(lambda row: row.of_samples("device_bytes", MIB)),
    "runs": lambda _, row: str(len(row.runs)),
    "values\nequal": equal,
}
#: A window of 80 columns has room for these.
NARROW = ("MiB/s", "slowest-\nfastest", "ratio to\npy-lmdb", "CPU s\nper GiB")


def table(parts: Sequence[Findings], title: str, *, narrow: bool = False) -> Table:
    """Return one table of all parts, each below its own title.

    Args:
        parts: findings, with a title each where they are several.
        title: title of the table.
        narrow: whether it is for 80 columns; JSON and page have the rest.
    """
    measured = [(part, row) for part in parts for row in part.measured]
    heads = [
        head
        for head, text in COLUMNS.items()
        if (head in NARROW or not narrow) and any(text(*one) != "-" for one in measured)
    ]
    rows: list[list[str]] = []
    for part in parts:
        rows += [[part.title]] * bool(part.title)
        rows += [
            [row.label, *(COLUMNS[head](part, row) for head in heads)] for row in part.measured
        ]
    shades = [row.shade for _, row in measured] if len(rows) == len(measured) else ()
    return Table(title, ("contestant", *heads), rows, shades=shades)


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
    whole = table(parts, title).on_screen()
    unlimited = console.options.update(max_width=10_000)
    width = Measurement.get(console, unlimited, whole).maximum
    if width > console.width:
        whole = table(parts, title, narrow=True).on_screen()
        notes = [f"A window of {width} columns shows more; so does the JSON.", *notes]
    console.print(whole)
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
    processes = count_text(work.processes, "process")
    title = f"{named}{work.access}, {work.page_bytes / MIB:,.0f} MiB, {processes}"
    facts = findings.machine.facts | {"cache": findings.state}
    notes = [
        "MiB/s: bytes of the file's pages that hold the records, the same for everybody, over the "
        "time from before opening to the last value; median, slowest and fastest run.",
        "Ratios of medians: to py-lmdb at its better setting, to the best of plain, fio and ior.",
        *absent([findings]),
        *findings.notes,
    ]
    show([findings], console, title=title, facts=facts, notes=notes)
    commands = [row.command for row in findings.rows if row.command]
    if commands:
        console.print(f"[dim]{len(commands)} commands of fio and ior, the first:[/]")
        console.print(shlex.join(commands[0]), highlight=False, markup=False, soft_wrap=True)


def absent(parts: Sequence[Findings]) -> list[str]:
    """Say which contestants did not take part, and why."""
    titles: dict[str, dict[str, None]] = {}
    for part in parts:
        for row in part.rows:
            if row.trial.skipped:
                # A plain reader may be left out at one transfer size alone.
                name = row.label if row.trial.transfer else row.title
                titles.setdefault(row.trial.skipped, {})[name] = None
    return [f"Without {', '.join(names)}: {why}." for why, names in titles.items()]
