"""``lmdbio compact`` and ``lmdbio pull``: copies in order, and of what lies elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from lmdbio.cli.options import OUTPUT, PATH, sidecar_json_option
from lmdbio.cli.output import bar, print_facts, print_json, size
from lmdbio.convert import pulling
from lmdbio.convert.compacting import CompactReport, compact as compact_copy
from lmdbio.system.signals import ended_by_signals


@click.command()
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@click.option(
    "--output",
    "-o",
    type=OUTPUT,
    help="Where to write the provenance file of TARGET: a file, or a folder to hold it (a new one "
    "ends in a slash).",
)
@click.option("--no-convert", is_flag=True, help="Write no provenance file.")
@click.option(
    "--no-values",
    is_flag=True,
    help="Compare keys, and lengths of values, but not the values: both files are read once less.",
)
@sidecar_json_option
def compact(
    source: Path,
    target: Path,
    output: str | None,
    no_convert: bool,
    no_values: bool,
    as_json: bool,
) -> None:
    """Copy SOURCE to TARGET without its free pages, in order, and convert the copy.

    Records that were put in random order, updated or deleted lie in pieces all over their file.
    The copy is smaller, neighbours in key order lie side by side, and its provenance file is
    short. SOURCE, a folder with data.mdb or a single file, stays as it is; TARGET becomes the
    same, with the same databases, data format, page size and map size. It must not exist (an
    empty folder may), and appears whole or not at all, whatever ends the command: after every
    page of it was checked, and all databases, keys and values were found to be SOURCE's, byte for
    byte.

    Runs are stretches of records that lie at one distance from each other; few of them make large
    reads.

    \b
    Examples:
        lmdbio compact train_lmdb train_compact
        lmdbio compact graphs.mdb /fast/graphs.mdb --output ~/provenance/
        lmdbio compact train_lmdb train_compact --no-convert --no-values
        lmdbio compact train_lmdb train_compact --json
    """
    with ended_by_signals(), bar(f"compact {source}") as progress:
        report = compact_copy(
            source,
            target,
            convert=not no_convert,
            values=not no_values,
            output=output,
            progress=progress,
        )
    if as_json:
        print_json(report)
        return
    click.echo(str(report.target))
    for name, before, after in rows(report):
        click.echo(f"  {name:<16}  {before:>14}  {after:>14}".rstrip())


def rows(report: CompactReport) -> list[tuple[str, str, str]]:
    """Return the lines to show: name, before, after."""
    before, after = report.before, report.after
    return [
        ("", "before", "after"),
        ("file", size(before.file_bytes), size(after.file_bytes)),
        ("in use", size(before.used_bytes), size(after.used_bytes)),
        ("free pages", f"{before.free_pages:,}", f"{after.free_pages:,}"),
        ("records", f"{before.records:,}", f"{after.records:,}"),
        ("runs", f"{before.runs:,}", f"{after.runs:,}"),
        ("provenance file", sidecar(before.sidecar_bytes), sidecar(after.sidecar_bytes)),
        ("time", "", f"{report.seconds:.2f} s"),
    ]


def sidecar(count: int) -> str:
    return f"{count:,} bytes" if count else "none"


@click.command()
@click.argument("url")
@click.argument("target", type=OUTPUT)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@sidecar_json_option
def pull(url: str, target: str, overwrite: bool, as_json: bool) -> None:
    """Copy the data file at URL to TARGET, a file or a folder (which ends in a slash).

    Many requests are in flight, each for bytes of the one state that the file was found in. A copy
    that is broken off leaves TARGET.part, and the same command goes on with it. TARGET appears
    whole, after every page of its trees was read and found sound. The provenance file at URL.prov
    comes along, if there is one.

    \b
    Examples:
        lmdbio pull https://example.org/sets/train.mdb train.mdb
        lmdbio pull s3://bucket/train_lmdb/ train_lmdb/
    """
    with ended_by_signals(), bar(f"pull {target}") as progress:
        report = pulling.pull(url, target, overwrite=overwrite, progress=progress)
    if as_json:
        print_json(asdict(report))
        return
    print_facts(
        [
            (f"{report.target}", ""),
            ("  from", report.source),
            ("  size", f"{size(report.bytes)}, {size(report.resumed_bytes)} of it were there"),
            ("  records", f"{report.records:,}, all trees are sound"),
            ("  provenance file", str(report.sidecar or "none (lmdbio convert makes one)")),
            ("  time", f"{report.seconds:.2f} s"),
        ]
    )
