"""``lmdbio run``."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from dataclasses import asdict
from typing import Any

import click

from lmdbio.cli import SHOW_WARNING, ClosedOutput
from lmdbio.cli.output import plain, plural, print_table, size
from lmdbio.dropin.arguments import READONLY, impose_readonly
from lmdbio.dropin.launch import NoProgramError, run_program
from lmdbio.dropin.monitor import FileReport, Report, Way, advise, monitor
from lmdbio.observe.ledger import FileState

COLUMNS = ("read by", "opened", "records", "bytes", "requests", "MiB/s while open", "waited s")


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option(
    "--readonly",
    is_flag=True,
    help=f"Open readonly what the program opens without readonly=. The same as {READONLY}=1.",
)
@click.option("--quiet", is_flag=True, help="Print no report.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one line of JSON.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    is_module: bool,
    readonly: bool,
    quiet: bool,
    as_json: bool,
    program: str,
    arguments: tuple[str, ...],
) -> int:
    """Run a Python program with lmdbio in the place of py-lmdb, unchanged.

    As python PROGRAM ARGUMENTS, but `import lmdb` gives lmdbio. PROGRAM is a script, or with -m a
    module. Its output, its exit status and its tracebacks are those of python.

    Where a program does not say readonly=True, py-lmdb opens for writing, and py-lmdb itself
    reads. With --readonly, lmdbio reads where it says nothing of it; a program that writes there
    all the same gets lmdb.ReadonlyError.

    When the program has ended, a report on standard error tells what it read of each file, how,
    how fast, how much of it the page cache had, and what a change would gain, as far as counts
    and measurements say. Processes that the program forks (the workers of a DataLoader, by
    default before Python 3.14) are counted when they end. Those that it spawns, or starts by
    another command, are plain Python: there `import lmdb` is py-lmdb, and nothing is counted.

    \b
    Examples:
        lmdbio run train.py --epochs 2
        lmdbio run --readonly -m package.train
        mpiexec -n 4 lmdbio run train.py                a report by each rank
        torchrun --no-python lmdbio run train.py
        lmdbio run --json train.py 2>&1 >/dev/null | tail -n 1 | jq '.files[].advice'
    """
    if readonly:
        impose_readonly()
    warnings.showwarning = SHOW_WARNING
    if isinstance(sys.stdout, ClosedOutput):  # as python has it
        sys.stdout = None
    if not quiet:
        monitor(print_json_line if as_json else print_report)
    try:
        return run_program(program, arguments, is_module=is_module)
    except NoProgramError as error:
        raise click.UsageError(str(error)) from error


# --- the report --------------------------------------------------------------------------


def print_json_line(report: Report) -> None:
    values = plain(asdict(report))
    for row, file in zip(values["files"], report.files, strict=True):
        row["advice"] = advise(file)
    end_output()
    click.echo(json.dumps(values), err=True)


def print_report(report: Report) -> None:
    end_output()
    click.echo(heading(report), err=True)
    for file in report.files:
        click.echo(f"\n{file.file}: {page_cache(file)}", err=True)
        print_table(COLUMNS, map(row, file.ways), stderr=True)
        for text in advise(file):
            click.echo(f"* {text}", err=True)


def end_output() -> None:
    """Let what the program has printed come first."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()


def heading(report: Report) -> str:
    who = "lmdbio run" if report.rank is None else f"lmdbio run, rank {report.rank}"
    parts = [f"{report.seconds:.1f} s"]
    if not report.files:
        parts.append("nothing was opened by way of lmdb or lmdbio")
    if report.storage_bytes is not None:
        parts.append(
            f"{size(report.storage_bytes)} from storage, all files, by the kernel's count"
        )
    if report.forked:
        counted = plural(report.counted, "forked process")
        parts.append(f"{counted} counted of {report.forked}")
    if report.spawns:
        parts.append("spawned processes, which run plain Python, not counted")
    return f"{who}: {'; '.join(parts)}"


def page_cache(file: FileReport) -> str:
    displayed = [share(state) for state in (file.before, file.after)]
    last = file.after or file.before
    of = "a file that is not there any more" if last is None else size(last.bytes)
    return f"{of}, in the page cache {displayed[0]} when first opened, {displayed[1]} at the end"


def share(state: FileState | None) -> str:
    if state is None or state.cached_bytes is None:
        return "unknown"
    return f"{100 * state.cached_bytes / max(1, state.bytes):.0f} %"


def row(way: Way) -> tuple[str, ...]:
    facts, line = way.facts, way.line
    found = f", by {facts.located_by}" if facts.located_by else ""
    values: tuple[Any, ...] = ("not counted", "", "", "", "")
    stats = line.stats
    if facts.surface != "lmdb.open":
        rate = stats.record_bytes / line.open_seconds / 2**20 if line.open_seconds else 0.0
        # Single gets are counted, and not timed.
        waited = f"{stats.wait_seconds:.2f}" if facts.surface != "lmdbio.open" else ""
        requests = f"{stats.requests + stats.page_requests + stats.ahead_requests:,}"
        values = f"{stats.records:,}", size(stats.record_bytes), requests, f"{rate:,.1f}", waited
    return f"{facts.surface} ({facts.engine}{found})", f"{line.opened:,}", *values
