"""``lmdbio verify``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from lmdbio.cli.each_file import Failed, Name, each_file, files_of, paths_argument
from lmdbio.cli.output import (
    json_option,
    plural,
    print_facts,
    print_json,
    provenance_option,
    reading,
    size,
    titled,
)
from lmdbio.convert import verify as verification
from lmdbio.convert.verify import VerifyReport
from lmdbio.provenance.freshness import Progress

#: Of more files than these, one paragraph is shown for all.
FILES_SHOWN = 8


@click.command()
@paths_argument
@provenance_option
@json_option
def verify(paths: tuple[Path | str, ...], sidecar: Path | str | None, as_json: bool) -> None:
    """Prove the whole tree of PATH, and its provenance file, sound.

    Every page of every tree is read and checked, counts are compared, no page may have two
    owners, and every record of the provenance file is compared with where the tree says it
    lies, as are the keys that it computes. Exit status 1, with file, offset and reason, when
    something is wrong. Of several files (PATHs, a folder or a quoted pattern of them) each is
    verified, and all that are not sound are named.

    \b
    Examples:
        lmdbio verify train_lmdb
        lmdbio verify download.mdb --json
        lmdbio verify shards/
        lmdbio verify train_lmdb --provenance ~/provenance
    """
    files = files_of(paths)
    if sidecar is not None and len(files) > 1 and not Path(sidecar).is_dir():
        raise click.UsageError("--provenance must be a folder when there are several files")

    def one(file: Name, progress: Progress | None) -> VerifyReport:
        return verification.verify(file, sidecar, progress=progress)

    reports: list[VerifyReport | Failed] = []
    for report in each_file("verify", files, one):
        reports.append(report)
        if isinstance(report, Failed):
            click.echo(f"lmdbio: {report.error}", err=True)
        elif not as_json and len(files) <= FILES_SHOWN:
            print_facts(facts(report))
    if as_json:
        print_json(reports if len(files) > 1 else reports[0])
    elif len(files) > FILES_SHOWN:
        print_facts(sum_up(reports))
    if any(isinstance(report, Failed) for report in reports):
        sys.exit(1)


def sum_up(reports: Sequence[VerifyReport | Failed]) -> list[tuple[str, str]]:
    """Return the lines that are shown for many files."""
    sound = [report for report in reports if isinstance(report, VerifyReport)]
    read, requests = sum(one.bytes_read for one in sound), sum(one.requests for one in sound)
    converted = sum(report.sidecar is not None for report in sound)
    return [
        (f"{plural(len(reports), 'file')}: {len(sound):,} sound", ""),
        ("  records", f"{sum(report.records for report in sound):,}"),
        ("  provenance files", f"{converted:,}, compared"),
        ("  read", reading(read, requests)),
    ]


def facts(report: VerifyReport) -> list[tuple[str, str]]:
    """Return the lines that are shown for a file."""
    told = (
        f"{report.sidecar}: {report.sidecar_records:,} records and {report.sidecar_keys:,} "
        "computed keys compared"
        if report.sidecar is not None
        else "none (lmdbio convert makes one)"
    )
    found = [
        (f"{report.data}: sound", ""),
        ("  records", f"{report.records:,} ({size(report.record_bytes)})"),
        ("  pages", f"{report.tree_pages:,} of trees, {report.overflow_pages:,} of values"),
        ("  provenance file", told),
        ("  read", reading(report.bytes_read, report.requests)),
        ("  time", f"{report.seconds:.2f} s"),
    ]
    if report.duplicates:
        names = ", ".join(titled(name) for name in report.duplicates)
        found.insert(3, ("  duplicates", f"each value is a record in {names}"))
    return found
