"""``lmdbio pull``."""

from __future__ import annotations

from dataclasses import asdict

import click

from lmdbio.cli.output import OUTPUT, bar, json_option, print_facts, print_json, size
from lmdbio.convert import pulling
from lmdbio.system.signals import ended_by_signals


@click.command()
@click.argument("url")
@click.argument("target", type=OUTPUT)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@json_option
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
