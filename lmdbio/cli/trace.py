"""``lmdbio trace``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lmdbio.cli.options import PATH, json_option
from lmdbio.cli.output import plural, print_json, print_table, size
from lmdbio.observe import timeline


@click.command()
@click.argument("files", type=PATH, nargs=-1, required=True, metavar="FILE...")
@click.option("--output", "-o", type=PATH, help="Write all of them as one trace.")
@json_option
def trace(files: tuple[Path, ...], output: Path | None, as_json: bool) -> None:
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
    print_stages(lines)
    if fared:
        print_requests(fared)
    if dropped:
        click.echo(f"{plural(dropped, 'event')} had to be dropped", err=True)
    if output is not None:
        click.echo(f"{output}: {plural(len(merged['traceEvents']), 'event')}")


def amount(line: timeline.Line) -> str:
    if not line.amount:
        return ""
    return f"{line.amount:,} records" if line.stage == "locate" else size(line.amount)


def print_stages(lines: list[timeline.Line]) -> None:
    columns = ("process", "stage", "spans", "seconds", "mean ms", "longest ms", "amount")
    rows = (
        (
            line.process,
            line.stage,
            f"{line.count:,}",
            f"{line.seconds:.3f}",
            f"{1e3 * line.seconds / line.count:.3f}",
            f"{1e3 * line.longest_seconds:.3f}",
            amount(line),
        )
        for line in lines
    )
    print_table(columns, rows, left=2)


def print_requests(fared: list[timeline.Requests]) -> None:
    times = ("queued ms (p50, p99, max)", "service ms (p50, p99, max)")
    rows = (
        (
            one.process,
            one.way + (f", {one.failed} failed" if one.failed else ""),
            f"{one.count:,}",
            size(one.bytes),
            " ".join(f"{ms:.3f}" for ms in one.queue_ms),
            " ".join(f"{ms:.3f}" for ms in one.service_ms),
            f"{one.depth:.1f}",
            f"{size(one.bytes / one.busy_seconds)}/s" if one.busy_seconds else "",
        )
        for one in fared
    )
    columns = ("process", "requests", "count", "bytes", *times, "depth", "while busy")
    print_table(columns, rows, left=2)
