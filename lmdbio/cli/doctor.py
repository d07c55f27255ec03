"""``lmdbio doctor``."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from lmdbio._core import Engine, read_meta
from lmdbio.cli import EXPECTED, one_line
from lmdbio.cli.doctor_facts import (
    collect,
    function_named,
    transform_facts,
    values_of,
)
from lmdbio.cli.file_facts import hashed_bytes, sidecar_status
from lmdbio.cli.files import files_of, largest
from lmdbio.cli.options import db_option, json_option, local_paths_argument, provenance_option
from lmdbio.cli.output import print_json, wide_console
from lmdbio.doctor.facts import Facts, ProvenanceFacts
from lmdbio.doctor.judge import Diagnosis, Finding, diagnose
from lmdbio.doctor.rules import Severity
from lmdbio.locate.open_database import settled
from lmdbio.locate.view import viewing
from lmdbio.provenance import find_sidecar

#: Of the provenance files of several files the first that is found tells what is to be done.
STATES = ("damaged", "stale", "unreadable", "unproven", "absent")
STYLES = {"good": "green", "note": "yellow", "problem": "bold red"}


@click.command()
@local_paths_argument
@db_option
@provenance_option
@click.option(
    "--transform",
    type=function_named,
    metavar="FILE.py:NAME",
    help="Import this function of a value (or MODULE:NAME), and time it on some records.",
)
@json_option
def doctor(
    paths: tuple[Path, ...],
    name: bytes | None,
    sidecar: Path | None,
    transform: tuple[str, Callable[[bytes], Any]] | None,
    as_json: bool,
) -> None:
    """Tell what limits PATH on this machine, and which command to type next.

    Looks at the file (whole, free pages, sizes of records, their order on disk), its provenance
    file, the storage, page cache and locks, and at memory, /dev/shm, limits, processors and MPI.
    Each finding is good, a note, or a problem. It reads some records and measures nothing, which
    takes a second, however large the file is; lmdbio bench measures. With --transform it also
    times that function, and says whether it holds Python's lock, so that threads gain nothing. Of
    several files (PATHs, a folder or a quoted pattern of them) it looks into the largest, and at
    the provenance files of all.

    \b
    Examples:
        lmdbio doctor train_lmdb
        lmdbio doctor scenes.mdb --db depth
        lmdbio doctor train_lmdb --transform train.py:decode
        lmdbio doctor train_lmdb --json | jq -r '.findings[] | select(.severity == "problem").text'
        $(lmdbio doctor train_lmdb --json | jq -r .command)
    """
    files = list(map(Path, files_of(paths)))
    path = Path(largest(files)) if len(files) > 1 else paths[0]

    def probe() -> tuple[Facts, str, list[bytes]]:
        with viewing(path, name) as view:
            values = [] if transform is None else values_of(view)
            return collect(view, path, sidecar), view.path, values

    facts, data, values = settled(str(path), probe)
    if transform is not None:
        facts = replace(facts, transform=transform_facts(*transform, values))
    if len(files) > 1:
        facts = with_others(facts, files, sidecar)
        data = f"{data}, the largest of {len(files):,} files"
    found = diagnose(facts)
    if len(files) > 1:
        found = of_all(found, facts, paths)
    if as_json:
        print_json({"data": data, **asdict(found), "facts": facts})
    else:
        print_diagnosis(data, facts, found)


def with_others(facts: Facts, files: Sequence[Path], sidecar: Path | None) -> Facts:
    """Return the facts of one of several files, with what the provenance files of all come to."""
    states: Counter[str] = Counter()
    damage, hashed = [], 0
    for file in files:
        try:
            with Engine(file) as engine:
                meta, place = read_meta(engine), find_sidecar(file, sidecar)
                found = sidecar_status(engine, meta, place)
        except EXPECTED as error:
            damage.append(one_line(error))
            continue
        states[found["status"]] += 1
        hashed += hashed_bytes(found)
    if damage:
        more = f", and {len(damage) - 1:,} more are damaged" * (len(damage) > 1)
        facts = replace(facts, data=replace(facts.data, damage=damage[0] + more))
    worst = next((state for state in STATES if states[state]), "good")
    counts = ", ".join(
        f"{states[state]:,} {state}" for state in (*STATES, "good") if states[state]
    )
    reason = f"of {len(files):,} files: {counts}"
    return replace(facts, provenance=ProvenanceFacts(worst, reason, hashed))


def of_all(found: Diagnosis, facts: Facts, paths: Sequence[Path]) -> Diagnosis:
    """Return what was found of several files, told as such."""
    held = facts.provenance
    severity: Severity = "good" if held.status == "good" else "note"
    first = Finding(
        "files", severity, f"The largest is looked into. Provenance files {held.reason}."
    )
    found = replace(found, findings=(first, *found.findings))
    for verb in ("convert", "verify"):  # are of all files, not of the largest
        if found.command == f"lmdbio {verb} {shlex.quote(facts.path)}":
            return replace(found, command=f"lmdbio {verb} {shlex.join(map(str, paths))}")
    return found


def print_diagnosis(data: str, facts: Facts, found: Diagnosis) -> None:
    click.echo(f"{data}{f', database {facts.name}' if facts.name else ''}")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    topic = ""
    for each in found.findings:
        displayed = "" if each.topic == topic else each.topic
        topic = each.topic
        table.add_row(Text(each.severity, STYLES[each.severity]), displayed, Text(each.text))
    wide_console(width=110).print(table, highlight=False)
    click.echo()
    click.echo(f"What limits this data set here: {found.limit}")
    click.echo(f"Next: {found.command}    ({found.reason})")
