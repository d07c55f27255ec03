"""``lmdbio trace``."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Table

from lmdbio.cli.output import PATH, json_option, plural, print_json, size, wide_console
from lmdbio.observe import timeline


@click.command("trace")
@click.argument("files", type=PATH, nargs=-1, required=True, metavar="FILE...")
@click.option("--output", "-o", type=PATH, help="Write all of them as one trace.")
@json_option
def sum_up(files: tuple[Path, ...], output: Path | None, as_json: bool) -> None:
    """Sum up traces, and put those of several processes together.

    A trace is taken by LMDBIO_TRACE=trace.json in the environment, or lmdbio.trace(...) in the
    program; each rank and each forked worker writes a file of its own. Open it, or what --output
    wrote, in Perfetto (https://ui.perfetto.dev) or chrome://tracing.

    \b
    Examples:
        LMDBIO_TRACE=t.json mpiexec -n 4 python train.py
        lmdbio trace t.r*.json -o all.json
    """
    traces = [timeline.load(path) for path in files]
    wrong = [
        f"{path}: {fault}"
        for path, one in zip(files, traces, strict=True)
        for fault in timeline.check(one)
    ]
    if wrong:
        raise ValueError(f"{wrong[0]} (and {len(wrong) - 1} more faults)")
    merged = timeline.merge(traces)
    if output is not None:
        output.write_text(json.dumps(merged), encoding="utf-8")
    lines, fared = timeline.stages(merged), timeline.requests(merged)
    dropped = timeline.dropped(merged)
    if as_json:
        print_json({"stages": lines, "requests": fared, "dropped": dropped})
        return
    console = wide_console()
    console.print(stage_table(lines))
    if fared:
        console.print(request_table(fared))
    if dropped:
        click.echo(f"{plural(dropped, 'event')} had to be dropped", err=True)
    if output is not None:
        click.echo(f"{output}: {plural(len(merged['traceEvents']), 'event')}")


def amount(line: timeline.Line) -> str:
    if not line.amount:
        return ""
    return f"{line.amount:,} records" if line.stage == "locate" else size(line.amount)


def stage_table(lines: list[timeline.Line]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("process")
    table.add_column("stage")
    for column in ("spans", "seconds", "mean ms", "longest ms", "amount"):
        table.add_column(column, justify="right")
    for line in lines:
        table.add_row(
            line.process,
            line.stage,
            f"{line.count:,}",
            f"{line.seconds:.3f}",
            f"{1e3 * line.seconds / line.count:.3f}",
            f"{1e3 * line.longest_seconds:.3f}",
            amount(line),
        )
    return table


def request_table(fared: list[timeline.Requests]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("process")
    table.add_column("requests")
    for column in (
        "count",
        "bytes",
        "queued ms (p50, p99, max)",
        "service ms (p50, p99, max)",
        "depth",
        "while busy",
    ):
        table.add_column(column, justify="right")
    for one in fared:
        table.add_row(
            one.process,
            one.way + (f", {one.failed} failed" if one.failed else ""),
            f"{one.count:,}",
            size(one.bytes),
            " ".join(f"{ms:.3f}" for ms in one.queue_ms),
            " ".join(f"{ms:.3f}" for ms in one.service_ms),
            f"{one.depth:.1f}",
            f"{size(one.bytes / one.busy_seconds)}/s" if one.busy_seconds else "",
        )
    return table
