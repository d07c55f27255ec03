"""The output of ``lmdbio simulate``: tables, JSON, and a page of drawings."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np

from lmdbio.cli.output import plain, print_table, size
from lmdbio.page.document import document, header, section
from lmdbio.page.drawing import Bar, Chart, Series, bars, chart_html
from lmdbio.simulate import ROW_SOURCES, SOURCES, ModeOutcome, Outcome

__all__ = ["Run", "refuse_targets", "write"]

Found: TypeAlias = Outcome | ModeOutcome
Rows: TypeAlias = tuple[Sequence[str], list[tuple[str, ...]]]

#: Places of a chart over iterations: as many as can be told apart.
PLACES_MAX = 120


@dataclass(frozen=True, slots=True)
class Run:
    """The outcomes with some values.

    Attributes:
        settings: values that were changed, by their keys.
        found: outcomes of policies, or of modes.
        about: other facts of the run for JSON.
    """

    settings: Mapping[str, str]
    found: Sequence[Found]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The settings, to be read."""
        return ", ".join(f"{key}={value}" for key, value in self.settings.items())


def refuse_targets(page_file: str | None, target: str | None) -> None:
    """Raise OSError where a file cannot be written; rather now than after the work."""
    for name in filter(None, (page_file, target if target != "-" else None)):
        file = Path(name)
        if not file.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(file.parent))
        if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
            raise PermissionError(errno.EACCES, "it cannot be written", str(file))


def write(
    runs: Sequence[Run], title: str, target: str | None, page_file: str | None, *, by_epoch: bool
) -> None:
    """Print tables, unless JSON goes to standard output; write JSON, and the page.

    Args:
        runs: runs to show, at least one.
        title: title of the tables and the page.
        target: file for JSON, "-" for standard output, None for none.
        page_file: file for the page; None: none.
        by_epoch: whether the epochs of a Reader's job are shown, where it is the only one.
    """
    if target != "-":
        for run in runs:
            click.echo(f"{title}{', ' + run.words if run.words else ''}\n")
            print_table(*table_of(run.found, by_epoch=by_epoch), texts=("bound",))
            click.echo()
            for one in run.found:
                if one.reason:
                    click.echo(f"{name_of(one)}: {one.reason}")
    if target is not None:
        made = [{"set": run.settings, **run.about, **as_json(run.found)} for run in runs]
        value = plain(made[0] if len(made) == 1 else {"runs": made})
        text = json.dumps(value, indent=2, allow_nan=False)
        if target == "-":
            click.echo(text)
        else:
            Path(target).write_text(text + "\n", encoding="utf-8")
    if page_file is not None:
        Path(page_file).write_text(page(runs, title), encoding="utf-8")
        click.echo(page_file, err=target == "-")


def name_of(one: Found) -> str:
    """Return the name of a policy or a mode."""
    return one.mode if isinstance(one, ModeOutcome) else one.policy


def as_json(found: Sequence[Found]) -> dict[str, Any]:
    """Return outcomes by the names of their policies or modes."""
    values, kind = {}, "policies"
    for one in found:
        facts = {**asdict(one), "supported": one.reason is None}
        if isinstance(one, ModeOutcome):
            kind = "modes"
            del facts["mode"]
        else:
            del facts["policy"], facts["stalls"]
            facts["counts"] = facts.pop("reads")
            sizes, epochs = facts.pop("bytes"), facts.pop("epochs")
            if epochs is not None:
                names = ("seconds", "stall_seconds")
                facts["bytes"] = sizes
                facts["epochs"] = [dict(zip(names, epoch, strict=True)) for epoch in epochs]
        values[name_of(one)] = facts
    return {kind: values}


# --- tables -------------------------------------------------------------------------------


def table_of(found: Sequence[Found], *, by_epoch: bool) -> Rows:
    """Return the columns and the lines of a table."""
    policies = [one for one in found if isinstance(one, Outcome)]
    if by_epoch and len(policies) == 1 and policies[0].epochs is not None:
        return _epochs(policies[0])
    return _policies(policies) if policies else _modes(found)


def _policies(found: Sequence[Outcome]) -> Rows:
    """Return each policy beside the bound: the time without any waiting."""
    rows: list[tuple[str, ...]] = []
    for one in found:
        if one.seconds is None:
            rows.append((one.policy, *"-------"))
            continue
        counts = [_reads(one, source) for source in SOURCES]
        rows.append(
            (
                one.policy,
                f"{one.seconds:,.2f}",
                f"{one.seconds / one.bound_seconds:.2f}",
                f"{one.init_seconds:,.1f}",
                f"{one.stall_seconds:,.1f}",
                *(f"{count:,}" if one.reads else "-" for count in counts),
            )
        )
    return ("policy", "seconds", "x bound", "init s", "stall s", *SOURCES), rows


def _reads(one: Outcome, source: str) -> int:
    """Return the records from a source; a node's own disk is its own."""
    names = ("own", "disk") if source == "own" else (source,)
    return sum(epoch.get(name, 0) for epoch in one.reads or () for name in names)


def _epochs(one: Outcome) -> Rows:
    """Return the epochs of a job: seconds, waiting, records and bytes by source."""
    has_disks = any(records["disk"] for records in one.reads or ())
    sources = [name for name in ROW_SOURCES if name != "disk" or has_disks]
    rows: list[tuple[str, ...]] = []
    if one.init_seconds:
        rows.append(("before", f"{one.init_seconds:,.2f}"))
    epochs = zip(one.epochs or (), one.reads or (), one.bytes or (), strict=True)
    for number, ((seconds, stall), records, sizes) in enumerate(epochs):
        times = f"{seconds:,.2f}", f"{stall:,.2f}"
        counts = (f"{records[name]:,}" for name in sources)
        rows.append((str(number), *times, *counts, *(size(sizes[name]) for name in sources)))
    rows.append(("all", f"{one.seconds:,.2f}", f"{one.stall_seconds:,.2f}"))
    of_bytes = (f"{name} bytes" for name in sources)
    return ("epoch", "seconds", "stall s", *sources, *of_bytes), rows


def _modes(found: Sequence[Found]) -> Rows:
    """Return each mode beside LMDB."""
    columns = (
        "mode", "seconds", "M/s", "x LMDB", "M read", "requests", "roots", "k", "tokens",
        "seek s", "moves %", "bound",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    lmdb = next((one.seconds for one in found if name_of(one) == "LMDB"), None)
    for one in found:
        assert isinstance(one, ModeOutcome)
        if one.seconds is None:
            rows.append((one.mode, *"-" * (len(columns) - 1)))
            continue
        rows.append(
            (
                one.mode,
                f"{one.seconds:,.2f}",
                f"{one.needed_bytes / 2**20 / one.seconds:,.0f}",
                f"{lmdb / one.seconds:.2f}" if lmdb else "-",
                f"{one.bytes / 2**20:,.0f}",
                f"{one.requests:,}",
                f"{one.roots:,}",
                f"{one.block_iterations:,}",
                f"{one.tokens or '-'}",
                f"{one.seek_seconds:,.1f}",
                f"{100 * one.out_of_order:.0f}",
                one.bound,
            )
        )
    return columns, rows


# --- the page -----------------------------------------------------------------------------


def page(runs: Sequence[Run], title: str) -> str:
    """Return a page; one run of policies is drawn in the course of its iterations as well."""
    policies = [one for one in runs[0].found if isinstance(one, Outcome)]
    what = "Seconds of the training" if policies else "Seconds of the reading"
    parts = []
    if len(runs) > 1:
        keys = runs[0].settings
        varied = [key for key in keys if len({run.settings[key] for run in runs}) > 1]
        if len(varied) == 1:
            parts.append(lines_section(runs, what, varied[0]))
        parts.append(heat_section(runs))
    parts += [bars_section(run, what) for run in runs]
    known = [one for one in policies if one.seconds is not None]
    if known and len(runs) == 1:
        parts += [stalls_section(known), sources_section(known)]
    return document(f"lmdbio simulate: {title}", header(f"Simulated: {title}") + "".join(parts))


def lines_section(runs: Sequence[Run], title: str, key: str) -> str:
    """Draw the seconds of each policy or mode over the values of one key."""
    places = {float(i): run.settings[key] for i, run in enumerate(runs)}
    series = []
    for number, one in enumerate(runs[0].found):
        found = [(float(i), run.found[number].seconds) for i, run in enumerate(runs)]
        points = [(i, seconds) for i, seconds in found if seconds is not None]
        series.append(Series.of(name_of(one), points))
    chart = Chart(f"{title} by {key}", places, key, "seconds", series, logarithmic=True)
    return section(f"{title}, by {key}", "Less is better.", chart_html(chart))


def bars_section(run: Run, title: str) -> str:
    """Draw all seconds side by side, and why one has none."""
    drawn = []
    for one in run.found:
        if one.seconds is None:
            drawn.append(Bar(name_of(one), "", note=one.reason or ""))
            continue
        note = one.bound if isinstance(one, ModeOutcome) else ""
        if isinstance(one, Outcome) and one.init_seconds > 0:
            note = f"{one.init_seconds:,.0f} before it begins"
        drawn.append(Bar(name_of(one), f"{one.seconds:,.1f}", (one.seconds,), note))
    words = f": {run.words}" if run.words else ""
    return section(title + words, "Less is better.", bars(drawn))


def stalls_section(found: Sequence[Outcome]) -> str:
    """Draw how long iterations wait, in the course of the training."""
    series, count = [], 1
    for one in found:
        if one.stalls is None or not one.stall_seconds:
            continue
        count = len(one.stalls)
        parts = np.array_split(one.stalls, min(PLACES_MAX, count))
        ends = np.cumsum([len(part) for part in parts]).tolist()
        points = zip(map(float, ends), (float(part.mean()) for part in parts), strict=True)
        series.append(Series.of(one.policy, points))
    places = {float(at): f"{at:,}" for at in np.linspace(0, count, 6).astype(int).tolist()}
    chart = Chart("Stall by iteration", places, "iteration", "seconds of waiting", series)
    lead = "Means of neighbouring iterations. A policy that is not here waits for nothing."
    return section("Stall by iteration", lead, chart_html(chart))


def sources_section(found: Sequence[Outcome]) -> str:
    """Draw which share of each epoch's reads the shared file system serves."""
    series, epochs = [], 1
    for one in found:
        if one.reads is None:
            continue
        epochs = len(one.reads)
        shares = [100 * epoch["file"] / max(1, sum(epoch.values())) for epoch in one.reads]
        series.append(Series.of(one.policy, enumerate(shares, 1)))
    places = {i + 1.0: str(i + 1) for i in range(0, epochs, max(1, epochs // 10))}
    chart = Chart("From the file system", places, "epoch", "% of the records", series)
    lead = "The rest comes from a node's own tiers or from other nodes."
    return section("From the shared file system, by epoch", lead, chart_html(chart))


def heat_section(runs: Sequence[Run]) -> str:
    """Show the seconds over all settings; the darker, the longer."""
    heads = *runs[0].settings, *map(name_of, runs[0].found)
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    known = [one.seconds for run in runs for one in run.found if one.seconds is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    lines = []
    for run in runs:
        cells = "".join(f"<td>{escape(value)}</td>" for value in run.settings.values())
        for one in run.found:
            if one.seconds is None:
                cells += f'<td title="{escape(one.reason or "")}">-</td>'
                continue
            share = 100 * (one.seconds - low) / (high - low or 1.0)
            cells += f'<td class="heat" style="--share: {share:.0f}%">{one.seconds:,.1f}</td>'
        lines.append(f"<tr>{cells}</tr>")
    table = f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'
    return section("Seconds by setting", "The darker, the longer.", table)
