"""``lmdbio convert``."""

from __future__ import annotations

from pathlib import Path

import click

from lmdbio import convert as conversion
from lmdbio.cli.output import (
    PATH,
    bar,
    json_option,
    print_facts,
    print_json,
    reading,
    size,
    titled,
)


@click.command()
@click.argument("paths", type=PATH, nargs=-1, required=True, metavar="PATH...")
@click.option("--output", "-o", type=PATH, help="Where to write: a file, or a folder to hold it.")
@click.option(
    "--db",
    "names",
    multiple=True,
    metavar="NAME",
    help="A named database; may be repeated. Default: the main database, or all named ones "
    "when it holds nothing else.",
)
@click.option("--keep", is_flag=True, help="Fail instead of replacing a provenance file.")
@json_option
def convert(
    paths: tuple[Path, ...], output: Path | None, names: tuple[str, ...], keep: bool, as_json: bool
) -> None:
    """Write the provenance file: where every record of PATH lies.

    Only branch and leaf pages are read. The file appears whole or not at all, after every
    record in it was compared with the database. Do it once, while nobody writes.

    \b
    Examples:
        lmdbio convert train_lmdb
        lmdbio convert train_lmdb val_lmdb --output ~/sidecars
        lmdbio convert graphs.lmdb --db train --db val
        LMDBIO_PROVENANCE_DIR=~/sidecars lmdbio convert /readonly/train_lmdb
    """
    if output is not None and len(paths) > 1 and not output.is_dir():
        raise click.UsageError("--output must be an existing folder when there are several PATHs")
    reports = []
    for path in paths:
        with bar(f"convert {path}") as progress:
            report = conversion.convert(
                path,
                output=output,
                databases=list(names) or None,
                overwrite=not keep,
                progress=progress,
            )
        reports.append(report)
        if not as_json:
            print_facts(
                [
                    (str(report.sidecar), ""),
                    ("  records", f"{report.records:,} ({size(report.record_bytes)})"),
                    ("  databases", ", ".join(titled(name) for name in report.databases)),
                    ("  sidecar", f"{report.sidecar_bytes:,} bytes, {report.runs:,} runs"),
                    ("  read", reading(report.bytes_read, report.requests)),
                    ("  time", f"{report.seconds:.2f} s"),
                ]
            )
    if as_json:
        print_json(reports)
