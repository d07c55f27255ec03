"""``lmdbio doctor``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from lmdbio.cli.doctor_facts import collect
from lmdbio.cli.looking import db_option, json_option
from lmdbio.cli.output import PATH, print_json, provenance_option, wide_console
from lmdbio.doctor.facts import Facts
from lmdbio.doctor.judge import Diagnosis, diagnose
from lmdbio.locate.glance import glancing

STYLES = {"good": "green", "note": "yellow", "problem": "bold red"}


@click.command()
@click.argument("path", type=PATH)
@db_option
@provenance_option
@json_option
def doctor(path: Path, name: str | None, sidecar: Path | None, as_json: bool) -> None:
    """Tell what limits PATH on this machine, and which command to type next.

    Looks at the file (whole, free pages, sizes of records, their order on disk), its provenance
    file, the storage, page cache and locks, and at memory, /dev/shm, limits, processors and MPI.
    Each finding is good, a note, or a problem. It reads some records and measures nothing, which
    takes a second, however large the file is; lmdbio bench measures.

    \b
    Examples:
        lmdbio doctor train_lmdb
        lmdbio doctor scenes.mdb --db depth
        lmdbio doctor train_lmdb --json | jq -r '.findings[] | select(.severity == "problem").text'
        $(lmdbio doctor train_lmdb --json | jq -r .command)
    """
    with glancing(path, name) as glance:
        facts = collect(glance, path, sidecar)
        data = glance.path
    found = diagnose(facts)
    if as_json:
        print_json({"data": data, **told(found), "facts": facts})
    else:
        print_diagnosis(data, facts, found)


def told(found: Diagnosis) -> dict[str, object]:
    return {
        "findings": list(found.findings),
        "limit": found.limit,
        "command": found.command,
        "reason": found.reason,
    }


def print_diagnosis(data: str, facts: Facts, found: Diagnosis) -> None:
    click.echo(f"{data}{f', database {facts.name}' if facts.name else ''}")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    topic = ""
    for each in found.findings:
        shown = "" if each.topic == topic else each.topic
        topic = each.topic
        table.add_row(Text(each.severity, STYLES[each.severity]), shown, Text(each.text))
    wide_console(width=110).print(table, highlight=False)
    click.echo()
    click.echo(f"What limits this data set here: {found.limit}")
    click.echo(f"Next: {found.command}    ({found.reason})")
