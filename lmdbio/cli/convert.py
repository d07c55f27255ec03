"""``lmdbio convert`` and ``lmdbio verify``: provenance files, made and proved."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, get_args

import click

from lmdbio.cli.files import Name, files_of, report_each
from lmdbio.cli.options import (
    OUTPUT,
    database_name,
    paths_argument,
    provenance_option,
    sidecar_json_option,
)
from lmdbio.cli.output import Lines, plural, reading, size, titled
from lmdbio.convert import convert as conversion, verify as verification
from lmdbio.convert.convert import ConvertReport
from lmdbio.convert.verify import VerifyReport
from lmdbio.errors import IncompatibleError
from lmdbio.provenance import find_data, orders_recorded, sidecar_file
from lmdbio.provenance.freshness import Progress, is_described
from lmdbio.provenance.paths import SUFFIX


@click.command()
@paths_argument
@click.option(
    "--output",
    "-o",
    type=OUTPUT,
    help="Where to write: a file, or a folder to hold it. A folder that is not there is made; "
    "with one PATH it needs a slash at its end.",
)
@click.option(
    "--db",
    "names",
    type=database_name,
    multiple=True,
    metavar="NAME",
    help="A named database; may be repeated. Default: the main database, or all named ones "
    "when it holds nothing else.",
)
@click.option("--keep", is_flag=True, help="Fail instead of replacing a provenance file.")
@click.option(
    "--update/--no-update",
    default=None,
    help="Leave files alone whose provenance file describes them as they are: of a data set of "
    "many files only what was added or changed is converted. Default: of several files, unless "
    "an option says how to convert.",
)
@click.option(
    "--form",
    type=click.Choice(get_args(conversion.Form)),
    default="auto",
    show_default=True,
    help="How the file says where records lie. replay: how the database was made, if it was put "
    "in key order with sizes and commits that do not vary; runs: stretches of pages; leaves: "
    "the leaf pages, which tell the rest; explicit: each offset; auto: the smallest that is "
    "exact.",
)
@click.option(
    "--order",
    type=click.File("rb"),
    metavar="FILE",
    help="The keys of the database as they were put, one a line, for readers that ask for records "
    "in this order (order='insertion'). Not needed where keys count, as 00000042 and str(i) do.",
)
@sidecar_json_option
def convert(
    paths: tuple[Path | str, ...],
    output: str | None,
    names: tuple[bytes, ...],
    keep: bool,
    update: bool | None,
    form: conversion.Form,
    order: BinaryIO | None,
    as_json: bool,
) -> None:
    """Write the provenance file: where every record of PATH lies.

    Only branch and leaf pages are read. The file appears whole or not at all, after every
    record in it was compared with the database. Do it once, while nobody writes. A PATH may be a
    folder or a quoted pattern of several files, each of which gets its own. Of several, those that
    can be converted are, and the exit status is 1 if any cannot.

    \b
    Examples:
        lmdbio convert train_lmdb
        lmdbio convert train_lmdb val_lmdb --output ~/provenance/
        lmdbio convert graphs.lmdb --db train --db val
        lmdbio convert shards/               of a folder of files, what is new or changed
        lmdbio convert shards/*.lmdb --no-update
        lmdbio convert train_lmdb --form runs
        lmdbio convert train_lmdb --order keys.txt
        LMDBIO_PROVENANCE_DIR=~/provenance lmdbio convert /readonly/train_lmdb
    """
    files = files_of(paths)
    several, is_special = (
        len(files) > 1,
        bool(keep or names or order is not None or form != "auto"),
    )
    if output is not None and several:
        output = as_folder(output)
    if order is not None and several:
        raise click.UsageError("--order is that of one database, and there are several PATHs")
    if update and is_special:
        raise click.UsageError("--update looks for files that hold, however they were made")
    leaves_good = several and not is_special if update is None else update
    keys = None if order is None else order.read().removesuffix(b"\n").split(b"\n")

    def one(file: Name, progress: Progress | None) -> ConvertReport | UpToDate:
        return (leaves_good and up_to_date(file, output)) or conversion.convert(
            file,
            output=output,
            databases=list(names) or None,
            overwrite=not keep,
            form=form,
            order=keys,
            progress=progress,
        )

    report_each("convert", files, one, lines=convert_lines, totals=convert_totals, as_json=as_json)


def convert_totals(files: int, reports: Sequence[ConvertReport | UpToDate]) -> Lines:
    """Return the lines that are shown for many files."""
    made = [report for report in reports if isinstance(report, ConvertReport)]
    records = sum(report.records for report in made)
    record_bytes = sum(report.record_bytes for report in made)
    failed = files - len(reports)
    return [
        (plural(files, "file"), ""),
        ("  converted", f"{len(made):,}: {records:,} records ({size(record_bytes)})"),
        ("  up to date", f"{len(reports) - len(made):,}"),
        *([("  failed", f"{failed:,}")] if failed else []),
    ]


def as_folder(output: str) -> str:
    """Return the place as ``convert`` knows a folder: with a slash at its end.

    Raises:
        UsageError: it is a file, or is called as one.
    """
    if Path(output).is_file() or (not Path(output).exists() and output.endswith(SUFFIX)):
        raise click.UsageError("--output must be a folder when there are several PATHs")
    return os.path.join(output, "")  # noqa: PTH118  (a Path has no slash at its end)


def convert_lines(report: ConvertReport | UpToDate) -> Lines:
    """Return the lines that are shown for a file."""
    if isinstance(report, UpToDate):
        return [(str(report.sidecar), "is up to date")]
    return [
        (str(report.sidecar), ""),
        ("  records", f"{report.records:,} ({size(report.record_bytes)})"),
        ("  databases", ", ".join(titled(name) for name in report.databases)),
        ("  provenance file", f"{report.sidecar_bytes:,} bytes, {contents(report)}"),
        ("  read", reading(report.bytes_read, report.requests)),
        ("  time", f"{report.seconds:.2f} s"),
    ]


@dataclass(frozen=True, slots=True)
class UpToDate:
    """A file that was left alone.

    Attributes:
        data, sidecar: the two files.
        up_to_date: always; other reports have no such field.
    """

    data: Path | str
    sidecar: Path
    up_to_date: bool = True


def up_to_date(path: Path | str, output: str | None) -> UpToDate | None:
    """Return the database's report where its provenance file describes it; else None."""
    data = find_data(path)
    sidecar = sidecar_file(data, output)
    if is_described(data, sidecar):
        return UpToDate(data, sidecar)
    if orders_recorded(sidecar):
        raise IncompatibleError(
            f"{sidecar}: tells an order of the records, which would be lost: convert {path} by "
            "itself, with --order"
        )
    return None


def contents(report: ConvertReport) -> str:
    """Say what the provenance file holds."""
    if report.replayed == len(report.databases):
        return "from which the database is replayed"
    text = f"{report.runs:,} runs"
    if report.blocks_leaves and not (report.blocks_runs or report.blocks_explicit):
        text = "the leaf pages"
    return f"{text}; {report.replayed} databases are replayed" if report.replayed else text


# --- verify -------------------------------------------------------------------------------


@click.command()
@paths_argument
@provenance_option
@sidecar_json_option
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

    report_each(
        "verify",
        files,
        one,
        lines=verify_lines,
        totals=verify_totals,
        as_json=as_json,
        is_plain=True,
    )


def verify_totals(files: int, sound: Sequence[VerifyReport]) -> Lines:
    """Return the lines that are shown for many files."""
    read, requests = sum(one.bytes_read for one in sound), sum(one.requests for one in sound)
    converted = sum(report.sidecar is not None for report in sound)
    return [
        (f"{plural(files, 'file')}: {len(sound):,} sound", ""),
        ("  records", f"{sum(report.records for report in sound):,}"),
        ("  provenance files", f"{converted:,}, compared"),
        ("  read", reading(read, requests)),
    ]


def verify_lines(report: VerifyReport) -> Lines:
    """Return the lines that are shown for a file."""
    compared = (
        f"{report.sidecar}: {report.sidecar_records:,} records and {report.sidecar_keys:,} "
        "computed keys compared"
        if report.sidecar is not None
        else "none (lmdbio convert makes one)"
    )
    found = [
        (f"{report.data}: sound", ""),
        ("  records", f"{report.records:,} ({size(report.record_bytes)})"),
        ("  pages", f"{report.tree_pages:,} of trees, {report.overflow_pages:,} of values"),
        ("  provenance file", compared),
        ("  read", reading(report.bytes_read, report.requests)),
        ("  time", f"{report.seconds:.2f} s"),
    ]
    if report.duplicates:
        names = ", ".join(titled(name) for name in report.duplicates)
        found.insert(3, ("  duplicates", f"each value is a record in {names}"))
    return found
