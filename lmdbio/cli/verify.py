"""``lmdbio verify``."""

from __future__ import annotations

from pathlib import Path

import click

from lmdbio.cli.output import (
    DATA,
    bar,
    json_option,
    print_facts,
    print_json,
    provenance_option,
    reading,
    size,
    titled,
)
from lmdbio.convert import verify as verification


@click.command()
@click.argument("path", type=DATA)
@provenance_option
@json_option
def verify(path: Path | str, sidecar: Path | str | None, as_json: bool) -> None:
    """Prove the whole tree of PATH, and its provenance file, sound.

    Every page of every tree is read and checked, counts are compared, no page may have two
    owners, and every record of the provenance file is compared with where the tree says it
    lies, as are the keys that it computes. Exit status 1, with file, offset and reason, when
    something is wrong.

    \b
    Examples:
        lmdbio verify train_lmdb
        lmdbio verify download.mdb --json
        lmdbio verify train_lmdb --provenance ~/provenance
    """
    with bar(f"verify {path}") as progress:
        report = verification.verify(path, sidecar, progress=progress)
    if as_json:
        print_json(report)
        return
    told = (
        f"{report.sidecar}: {report.sidecar_records:,} records and {report.sidecar_keys:,} "
        "computed keys compared"
        if report.sidecar is not None
        else "none (lmdbio convert makes one)"
    )
    facts = [
        (f"{report.data}: sound", ""),
        ("  records", f"{report.records:,} ({size(report.record_bytes)})"),
        ("  pages", f"{report.tree_pages:,} of trees, {report.overflow_pages:,} of values"),
        ("  provenance file", told),
        ("  read", reading(report.bytes_read, report.requests)),
        ("  time", f"{report.seconds:.2f} s"),
    ]
    if report.duplicates:
        names = ", ".join(titled(name) for name in report.duplicates)
        facts.insert(3, ("  duplicates", f"each value is a record in {names}"))
    print_facts(facts)
