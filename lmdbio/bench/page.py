"""The findings as one HTML page that needs nothing else: no network, no script. Pure."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from lmdbio.bench.findings import MIB, Findings, Row, Spread, figure, size_text
from lmdbio.bench.tables import table
from lmdbio.inside.keytext import show_key
from lmdbio.page.document import document, facts_html, header, section, tiles
from lmdbio.page.drawing import Bar, Chart, Series, bars, chart_html
from lmdbio.system.amounts import count_text

__all__ = ["demo_page", "latencies_section", "page", "rates_section", "table_section"]


def page(findings: Findings) -> str:
    """Return the whole page."""
    work = findings.workload
    name = Path(work.path).name
    name += f", database {show_key(os.fsencode(work.db))}" if work.db else ""
    facts = [
        work.access, count_text(work.processes, "process"), f"batches of {work.batch:,}",
        f"{work.count:,} of {work.total:,} records",
        f"{work.page_bytes / MIB:,.0f} of {work.file_bytes / MIB:,.0f} MiB",
        count_text(findings.rounds, "round"), "cold" if findings.was_cold else "WARM page cache",
    ]  # fmt: skip
    ended = "Interrupted: not everything was measured." if findings.interrupted else ""
    commands = escape("\n".join(shlex.join(row.command) for row in findings.rows if row.command))
    best = (
        ("lmdbio, best", findings.best("lmdbio")),
        ("py-lmdb, better setting", findings.baseline),
        ("plain, fio or ior, best", findings.ceiling),
    )
    parts = (
        header(f"Reading {name}", f"lmdbio bench · {findings.began}", " · ".join(facts),
               verdict(findings), ended),
        tiles([
            (what, figure(row.rate.median), f"MiB/s · {row.label}", row.shade)
            for what, row in best
            if row is not None and row.rate is not None
        ]),
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
        section(
            "fio and ior commands",
            "Exactly as run here, each in a process of its own on the same page cache state.",
            f"<pre>{commands}</pre>" * bool(commands),
        ),
        facts_section(findings),
        help_section(findings),
    )  # fmt: skip
    return document(f"lmdbio bench: {name}", "".join(parts))


def verdict(findings: Findings) -> str:
    """Return the findings in a sentence or two."""
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


def rates_section(findings: Findings, of: str = "the file") -> str:
    """Draw the rate of each contestant, the fastest first.

    Args:
        findings: findings of one table.
        of: thing that rates are bytes of.
    """
    rows = [(row, row.rate) for row in findings.leading if row.rate]
    drawn = []
    for row, spread in sorted(rows, key=lambda one: -one[1].median):
        times = findings.ratio(row, findings.baseline)
        note = "" if times is None else f"{times:.2f}x"
        values = (spread.median, *row.rates)
        drawn.append(Bar(row.label, figure(spread.median), values, note, row.shade))
    lead = (
        f"MiB/s of {of}, median of all rounds; dots are single runs, the dark line spans them. "
        "More is better. 2.00x: twice the rate of py-lmdb at its better setting."
    )
    return section(findings.title or "Bandwidth", lead, bars(drawn))


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
        Series.of(row.label, [(0, row.rate.median)], "guide", row.family)
        for row in (findings.baseline, findings.best("lmdbio"))
        if row is not None and row.rate is not None
    ]
    sizes = sorted({row.trial.transfer for rows in by_name.values() for row in rows})
    places = {math.log2(size): size_text(size) for size in sizes}
    title = "MiB/s over the size of a transfer"
    lead = (
        "What plain requests of each size get from this file; bands span all runs. Solid: "
        "O_DIRECT. Dotted: through the page cache. Dashed from side to side: contestants "
        "that choose the sizes of their requests themselves."
    )
    drawn = chart_html(Chart(title, places, "transfer size", "MiB/s", series))
    return section("Bandwidth against transfer size", lead, drawn)


def transfer_series(rows: Sequence[Row]) -> Series:
    points = tuple(
        (math.log2(row.trial.transfer), rate.min, rate.median, rate.max)
        for row in sorted(rows, key=lambda row: row.trial.transfer)
        if (rate := row.rate) is not None
    )
    kind = "line" if rows[0].trial.contestant.direct else "dotted"
    return Series(rows[0].title, points, kind, rows[0].shade)


def latencies_section(findings: Findings) -> str:
    """Draw how long batches at random took, the quickest first."""
    rows = [(row, list(row.latencies.values())) for row in findings.leading if row.latencies]
    rows.sort(key=lambda one: one[1][0])
    drawn = [
        Bar(row.label, figure(first), (first, *rest), f"/ {' / '.join(map(figure, rest))}",
            row.shade)
        for row, (first, *rest) in rows
    ]  # fmt: skip
    lead = (
        f"Milliseconds from asking for a batch of {findings.workload.batch:,} random records to "
        "having all of it: median / 90th / 99th percentile / slowest, all rounds together. "
        "Plain readers: as many random requests as hold a batch. Logarithmic; less is better."
    )
    return section("Latency of a random batch", lead, bars(drawn, logarithmic=True))


def cpu_section(findings: Findings) -> str:
    """Draw the processor time of each contestant."""
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
    rows = [(row, spread) for row in findings.leading if (spread := cost(row)) is not None]
    if not any(spread.max for _, spread in rows):
        return ""
    rows.sort(key=lambda one: one[1].median)
    drawn = [
        Bar(row.label, figure(one.median), (one.median, one.min, one.max), colour=row.shade)
        for row, one in rows
    ]
    return section(title, lead, bars(drawn, logarithmic=logarithmic))


def table_section(findings: Findings) -> str:
    """Show all columns; contestants without figures have a line for all of their transfers."""
    said: dict[tuple[str, str, bool], list[str]] = {}
    for row in findings.rows:
        if row.wrong or not row.rates:
            why = row.wrong or row.trial.skipped or "not measured"
            sizes = said.setdefault((row.title, why, bool(row.wrong)), [])
            sizes += [size_text(row.trial.transfer)] * bool(row.trial.transfer)
    absent = {", ".join([name, *sizes]): why for (name, why, _), sizes in said.items()}
    bad = {", ".join([name, *sizes]) for (name, _, wrong), sizes in said.items() if wrong}
    lead = (
        "Medians. Fetched: what the readers made the kernel fetch from storage. Device: what "
        "the block device served meanwhile, for whomever."
    )
    return table([findings], "Every contestant").section(lead, facts_html(absent, bad=bad))


def facts_section(findings: Findings) -> str:
    """Tell the machine, the storage and the programs."""
    work = findings.workload
    facts = findings.machine.facts | {
        "page cache": findings.state,
        "file": f"{work.label}, {work.file_bytes / MIB:,.0f} MiB in use",
        "records located by": "the provenance file" if work.located_by == "provenance"
        else "walking the tree (lmdbio convert makes a provenance file; none is needed)",
        "versions": ", ".join(f"{name} {number}" for name, number in findings.versions.items()),
        "took": f"{findings.seconds:,.0f} s",
    }  # fmt: skip
    return section(
        "What it ran on", "Figures mean little without this.", facts_html(facts, findings.notes)
    )


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
    head = header("Reading an LMDB data set", "lmdbio demo", verdict=facts["cache"])
    body = "".join(rates_section(leg, "values") + cpu_section(leg) for leg in legs)
    reported = section("What it ran on", "", facts_html(facts, notes))
    return document("lmdbio demo", head + body + reported)
