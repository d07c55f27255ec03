"""The findings as one HTML page that needs nothing else: no network, no script. Pure."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from lmdbio.bench.columns import shown
from lmdbio.bench.drawing import (
    Bar,
    Chart,
    Series,
    axis_html,
    bar_svg,
    chart_svg,
    legend_html,
    log_ticks,
    nice_ticks,
    range_svg,
)
from lmdbio.bench.findings import MIB, Findings, Row, Spread, figure, size_text
from lmdbio.inside.keytext import show_key

__all__ = ["axis_line", "demo_page", "document", "facts_html", "line_of", "page", "section"]

STYLE = """
:root { color-scheme: light dark;
  --paper: #f6f5f1; --card: #ffffff; --ink: #1d2530; --quiet: #626d7a; --rule: #e2e4e6;
  --py-lmdb: #87919d; --lmdbio: #1c6db0; --plain: #2b8a6b; --fio: #c4712a;
  --fio-queue: #a93f5c; --fio-queue-32: #8c2f86; --fio-queue-128: #5b3aa6;
  --fio-uring-32: #b0892a; --ior: #7d55b3; --bad: #b3322b; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #12161b; --card: #1a2027; --ink: #e3e7ec; --quiet: #97a2af; --rule: #2d353f;
  --py-lmdb: #8d98a5; --lmdbio: #58a6e4; --plain: #4fb894; --fio: #e3994f;
  --fio-queue: #ea7d97; --fio-queue-32: #d98ad3; --fio-queue-128: #a392ea;
  --fio-uring-32: #d9bd62; --ior: #b08be0; --bad: #f0857e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
header p { color: var(--quiet); margin: .3rem 0 0; }
.eyebrow { font-size: .8rem; letter-spacing: .08em; text-transform: uppercase; }
h1 { font-size: clamp(1.5rem, 5vw, 2.2rem); line-height: 1.15; margin: .2rem 0 .4rem;
  overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0; }
header p.verdict { color: var(--ink); font-size: 1.1rem; margin-top: 1rem; max-width: 46rem; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
  padding: 1.1rem 1.2rem; margin-top: 1.1rem; }
section > p { color: var(--quiet); margin: .15rem 0 .9rem; font-size: .92rem; }
.tiles { display: grid; gap: 1.1rem; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr));
  margin-top: 1.4rem; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem;
  padding: .8rem 1rem; border-top: 4px solid var(--shade); }
.tile b { display: block; font-size: 1.7rem; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.tile span { color: var(--quiet); font-size: .85rem; display: block; }
.row { display: grid; grid-template-columns: 18rem 1fr var(--room, 8rem); gap: .9rem;
  align-items: center; font-size: .92rem; margin-bottom: .2rem; }
.rows.wide { --room: 14rem; }
.value { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
.row small, td small { color: var(--quiet); }
svg { display: block; overflow: visible; }
svg text { fill: var(--quiet); font-size: 11px; font-family: inherit; }
svg text.name { font-size: 12px; }
.lines { width: 100%; height: auto; max-width: 52rem; margin: 0 auto; }
.grid { stroke: var(--rule); stroke-width: 1; }
.whisker { stroke: var(--ink); stroke-width: 1.2; stroke-opacity: .75; }
.dot { fill: var(--card); stroke: var(--ink); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; font-size: .88rem; padding: 0;
  list-style: none; margin: .7rem 0 0; }
.legend i { display: inline-block; width: 1.5rem; vertical-align: .28em; margin-right: .45rem;
  border-top: 3px solid var(--shade); } .legend i.dotted { border-top-style: dotted; }
.legend i.guide { border-top-style: dashed; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; width: 100%; white-space: nowrap; }
th { text-align: right; font-weight: 600; color: var(--quiet); vertical-align: bottom; }
th, td { padding: .32rem .6rem; border-bottom: 1px solid var(--rule); text-align: right;
  font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td:first-child::before { content: ""; display: inline-block; width: .6rem; height: .6rem;
  border-radius: 50%; background: var(--shade); margin-right: .5rem; }
pre { margin: 0; padding: .6rem .8rem; background: var(--paper); border-radius: .4rem;
  font-size: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: .6rem 0 0;
  font-size: .92rem; } dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
dl.absent { grid-template-columns: minmax(0, 22rem) 1fr; }
.prose p, .prose li { color: var(--ink); max-width: 46rem; }
.bad { color: var(--bad); }
@media (max-width: 40rem) {
  main { padding: 1.2rem .8rem 3rem; } section { padding: .9rem .8rem; }
  .row { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 .6rem;
    margin-bottom: .4rem; }
  .row svg { order: 1; flex: 0 0 100%; } .pad { display: none; }
  dl, dl.absent { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
  svg.lines text { font-size: 15px; } }
"""


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'e' * (noun == 'process')}s"


def page(findings: Findings) -> str:
    """The whole page."""
    work = findings.workload
    name = Path(work.path).name + (
        f", database {show_key(os.fsencode(work.db))}" if work.db else ""
    )
    sections = [
        rates_section(findings),
        transfers_section(findings),
        latencies_section(findings),
        cpu_section(findings),
        costs_section(
            findings, "Context switches", "Per GiB, asked for or not. A page fault that waits for "
            "the disk is one; so is each wait for a request. Slowest, median, fastest run; "
            "logarithmic; less is better.",
            lambda row: row.switches_per_gib, logarithmic=True,
        ),
        table_section(findings),
        commands_section(findings),
        facts_section(findings),
        help_section(findings),
    ]  # fmt: skip
    body = f"{heading(findings, name)}{tiles(findings)}{''.join(filter(None, sections))}"
    return document(f"lmdbio bench: {name}", body)


def document(title: str, body: str, style: str = "") -> str:
    """A page of this look."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body><main>"
        f"{body}</main></body></html>\n"
    )


def section(title: str, lead: str, body: str, kind: str = "") -> str:
    below = f"<p>{escape(lead)}</p>" if lead else ""
    return f'<section class="{kind}"><h2>{escape(title)}</h2>{below}{body}</section>'


def heading(findings: Findings, name: str) -> str:
    work = findings.workload
    facts = [
        work.access, plural(work.processes, "process"), f"batches of {work.batch:,}",
        f"{work.count:,} of {work.total:,} records",
        f"{work.page_bytes / MIB:,.0f} of {work.file_bytes / MIB:,.0f} MiB",
        plural(findings.rounds, "round"), "cold" if findings.was_cold else "WARM page cache",
    ]  # fmt: skip
    ended = '<p class="bad">Interrupted: not everything was measured.</p>'
    return (
        f'<header><p class="eyebrow">lmdbio bench · {escape(findings.began)}</p>'
        f"<h1>Reading {escape(name)}</h1><p>{escape(' · '.join(facts))}</p>"
        f'<p class="verdict">{escape(verdict(findings))}</p>'
        f"{ended if findings.interrupted else ''}</header>"
    )


def verdict(findings: Findings) -> str:
    """The findings in a sentence or two."""
    ours, base, top = findings.best("lmdbio"), findings.baseline, findings.ceiling
    if ours is None or ours.rate is None:
        return "No reader of lmdbio was measured."
    said = f"{ours.label} is lmdbio's fastest here, with {figure(ours.rate.median)} MiB/s"
    parts = []
    if (times := findings.ratio(ours, base)) is not None:
        parts.append(f"{times:.2f} times py-lmdb at its better setting")
    if (times := findings.ratio(ours, top)) is not None and top is not None:
        parts.append(f"{100 * times:.0f} % of the best plain reader ({top.label})")
    return said + (": " + ", and ".join(parts) if parts else "") + "."


def tiles(findings: Findings) -> str:
    shown = (
        ("lmdbio, best", findings.best("lmdbio")),
        ("py-lmdb, better setting", findings.baseline),
        ("plain, fio or ior, best", findings.ceiling),
    )
    made = [
        f'<div class="tile" style="--shade: var(--{row.shade})"><span>{escape(what)}</span>'
        f"<b>{figure(row.rate.median)}</b><span>MiB/s · {escape(row.label)}</span></div>"
        for what, row in shown
        if row is not None and row.rate is not None
    ]
    return f'<div class="tiles">{"".join(made)}</div>'


def bars(rows: Sequence[tuple[Row, Spread, tuple[float, ...]]], note: Callable[[Row], str]) -> str:
    """A bar each, on one scale."""
    ticks = nice_ticks(max(spread.max for _, spread, _ in rows))
    parts = []
    for row, spread, dots in rows:
        drawn = bar_svg(Bar(spread.median, dots, row.shade), ticks[-1], ticks)
        parts.append(line_of(row.label, drawn, f"{figure(spread.median)} {note(row)}"))
    return f'<div class="rows">{"".join(parts)}{axis_line(axis_html(ticks))}</div>'


def line_of(name: str, drawn: str, value: str) -> str:
    """Side by side; on a phone the drawing stands below name and value."""
    return (
        f'<div class="row"><span class="name">{escape(name)}</span>{drawn}'
        f'<span class="value">{value}</span></div>'
    )


def axis_line(axis: str) -> str:
    return f'<div class="row"><span class="pad"></span>{axis}<span class="pad"></span></div>'


def rates_section(findings: Findings, of: str = "the file") -> str:
    rows = [(row, row.rate, tuple(row.rates)) for row in findings.leading if row.rate]
    if not rows:
        return ""
    rows.sort(key=lambda one: -one[1].median)

    def note(row: Row) -> str:
        times = findings.ratio(row, findings.baseline)
        return "" if times is None else f"<small>{times:.2f}x</small>"

    lead = (
        f"MiB/s of {of}, median of all rounds; dots are single runs, the dark line spans them. "
        "More is better. 2.00x: twice the rate of py-lmdb at its better setting."
    )
    return section(findings.title or "Bandwidth", lead, bars(rows, note))


def transfers_section(findings: Findings) -> str:
    """As figure 8 of the LMDBIO paper: what the storage gives for which size of request."""
    by_name: dict[str, list[Row]] = {}
    for row in findings.measured:
        if row.trial.transfer:
            by_name.setdefault(row.trial.name, []).append(row)
    if not by_name:
        return ""
    series = [transfer_series(rows) for rows in by_name.values()]
    series += [
        Series.of(row.label, row.family, [(0, row.rate.median)], "guide")
        for row in (findings.baseline, findings.best("lmdbio"))
        if row is not None and row.rate is not None
    ]
    sizes = sorted({row.trial.transfer for rows in by_name.values() for row in rows})
    places = {math.log2(size): size_text(size) for size in sizes}
    title = "MiB/s over the size of a transfer"
    chart = Chart(title, places, "transfer size", "MiB/s", tuple(series))
    lead = (
        "What plain requests of each size get from this file; bands span all runs. Solid: "
        "O_DIRECT. Dotted: through the page cache. Dashed from side to side: contestants "
        "that choose the sizes of their requests themselves."
    )
    drawn = chart_svg(chart) + legend_html(chart)
    return section("Bandwidth against transfer size", lead, drawn)


def transfer_series(rows: Sequence[Row]) -> Series:
    points = tuple(
        (math.log2(row.trial.transfer), rate.min, rate.median, rate.max)
        for row in sorted(rows, key=lambda row: row.trial.transfer)
        if (rate := row.rate) is not None
    )
    first = rows[0]
    kind = "line" if first.trial.contestant.direct else "dotted"
    return Series(first.title, first.shade, points, kind)


def latencies_section(findings: Findings) -> str:
    rows = [(row, list(row.latencies.values())) for row in findings.leading if row.latencies]
    if not rows:
        return ""
    rows.sort(key=lambda one: one[1][0])
    ticks = log_ticks(min(one[1][0] for one in rows), max(one[1][-1] for one in rows))
    parts = [
        line_of(
            row.label,
            range_svg(values, ticks, row.shade, "ms"),
            f"{figure(values[0])} <small>/ {' / '.join(map(figure, values[1:]))}</small>",
        )
        for row, values in rows
    ]
    lead = (
        f"Milliseconds from asking for a batch of {findings.workload.batch:,} random records to "
        "having all of it: median / 90th / 99th percentile / slowest, all rounds together. "
        "Plain readers: as many random requests as hold a batch. Logarithmic; less is better."
    )
    axis = axis_line(axis_html(ticks, logarithmic=True))
    return section(
        "Latency of a random batch", lead, f'<div class="rows wide">{"".join(parts)}{axis}</div>'
    )


def cpu_section(findings: Findings) -> str:
    lead = "CPU seconds per GiB, user and system, all processes and threads. Less is better."
    title = f"{findings.title}: processor time" if findings.title else "Processor time"
    return costs_section(findings, title, lead, lambda row: row.cpu_per_gib)


def costs_section(
    findings: Findings,
    title: str,
    lead: str,
    cost: Callable[[Row], Spread | None],
    *,
    logarithmic: bool = False,
) -> str:
    """Draw the cost of a GiB for each contestant; logarithmic where costs differ a lot."""
    rows = [
        (row, spread, (spread.min, spread.max))
        for row in findings.leading
        if (spread := cost(row)) is not None
    ]
    if not rows or max(spread.max for _, spread, _ in rows) == 0:
        return ""
    rows.sort(key=lambda one: one[1].median)
    drawn = ranges(rows) if logarithmic else bars(rows, lambda _: "")
    return section(title, lead, drawn)


def ranges(rows: Sequence[tuple[Row, Spread, tuple[float, ...]]]) -> str:
    """A line each from the least to the greatest, the median largest, on one logarithmic scale."""
    shown = [[max(1.0, value) for value in (one.median, one.min, one.max)] for _, one, _ in rows]
    ticks = log_ticks(min(map(min, shown)), max(map(max, shown)), short=True)
    parts = [
        line_of(row.label, range_svg(values, ticks, row.shade, ""), figure(spread.median))
        for (row, spread, _), values in zip(rows, shown, strict=True)
    ]
    axis = axis_line(axis_html(ticks, logarithmic=True))
    return f'<div class="rows">{"".join(parts)}{axis}</div>'


def table_section(findings: Findings) -> str:
    columns = shown([findings])
    heads = "".join(f"<th>{escape(column.head)}</th>" for column in columns)
    rows = "".join(
        f'<tr><td style="--shade: var(--{row.shade})">{escape(row.label)}</td>'
        + "".join(f"<td>{escape(column.text(findings, row))}</td>" for column in columns)
        + "</tr>"
        for row in findings.measured
    )
    body = (
        f'<div class="scroll"><table><thead><tr><th>contestant</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{absent(findings)}"
    )
    lead = "Medians. Fetched: what the readers made the kernel fetch from storage. Device: what "
    lead += "the block device served meanwhile, for whomever."
    return section("Every contestant", lead, body)


def absent(findings: Findings) -> str:
    """Say who has no figures, and why; one line for all transfers of a contestant."""
    said: dict[tuple[str, str, bool], list[str]] = {}
    for row in findings.rows:
        if row.wrong or not row.rates:
            why = row.wrong or row.trial.skipped or "not measured"
            sizes = said.setdefault((row.title, why, bool(row.wrong)), [])
            sizes += [size_text(row.trial.transfer)] * bool(row.trial.transfer)
    items = "".join(
        f'<dt>{escape(", ".join([name, *sizes]))}</dt><dd class="{"bad" * bad}">{escape(why)}</dd>'
        for (name, why, bad), sizes in said.items()
    )
    return f'<dl class="absent">{items}</dl>' if items else ""


def commands_section(findings: Findings) -> str:
    shown = [row for row in findings.rows if row.command]
    if not shown:
        return ""
    lines = "\n".join(shlex.join(row.command) for row in shown)
    lead = "Exactly as run here, each in a process of its own on the same page cache state."
    return section("fio and ior commands", lead, f"<pre>{escape(lines)}</pre>")


def facts_section(findings: Findings) -> str:
    work = findings.workload
    facts = findings.machine.facts | {
        "page cache": findings.state,
        "file": f"{work.shown}, {work.file_bytes / MIB:,.0f} MiB in use",
        "records located by": "the provenance file" if work.located_by == "provenance"
        else "walking the tree (lmdbio convert makes a provenance file; none is needed)",
        "versions": ", ".join(f"{name} {number}" for name, number in findings.versions.items()),
        "took": f"{findings.seconds:,.0f} s",
    }  # fmt: skip
    return section(
        "What it ran on", "Figures mean little without this.", facts_html(facts, findings.notes)
    )


def facts_html(facts: Mapping[str, str], notes: Sequence[str] = ()) -> str:
    """Return names and texts side by side, and notes below them."""
    items = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items()
    )
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<dl>{items}</dl>" + (f"<ul>{listed}</ul>" if listed else "")


def help_section(findings: Findings) -> str:
    work = findings.workload
    paragraphs = (
        "Everybody reads the same records of the same file, or as many bytes of it. MiB/s are "
        f"always bytes of the file: for those who hand out records the {work.page_bytes:,} bytes "
        f"of pages that hold them ({work.value_bytes:,} of these are values), for those who read "
        "bytes what they read. So a ratio of two rates is a ratio of times. The clock runs from "
        "before opening the file to the last value; fio and ior keep their own, fio's without the "
        "opening.",
        "plain, fio and ior only move bytes; they do not look for records, check anything or make "
        "Python objects. They say what the storage gives for requests of one size, one after the "
        "other per process. A reader of records beats them where it keeps more requests in "
        "flight, and falls behind where the processor, not the storage, is the limit. fio with 8 "
        "in flight is the one to compare with then.",
        "Contestants alternate, every other round backwards, so that whatever else the machine "
        "does meets all alike. Compare medians only where the spans of dots do not overlap. The "
        "best of several transfers is a choice made after the fact, and flatters a little. At "
        "random only the transfer nearest to a record's size is compared: larger requests are "
        "less random.",
        "Fetched above the needed bytes is readahead that nobody asked for, below: something was "
        "in the page cache already. Cold means that this file was out of this machine's page "
        "cache; a server's or a disk's own cache may still have held it.",
    )
    body = "".join(f"<p>{escape(text)}</p>" for text in paragraphs)
    return section("How to read this", "", body, "prose")


def demo_page(legs: Sequence[Findings], facts: Mapping[str, str], notes: Sequence[str]) -> str:
    """Return the page of ``lmdbio demo``; a leg without figures is left out.

    Args:
        legs: data sets in orders, with a title each.
        facts: facts that the figures depend on.
        notes: remarks that a reader of the figures should know.
    """
    heading = (
        '<header><p class="eyebrow">lmdbio demo</p><h1>Reading an LMDB data set</h1>'
        f'<p class="verdict">{escape(facts["cache"])}</p></header>'
    )
    body = "".join(rates_section(leg, "values") + cpu_section(leg) for leg in legs)
    told = section("What it ran on", "", facts_html(facts, notes))
    return document("lmdbio demo", heading + body + told)
