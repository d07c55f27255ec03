"""``lmdbio import``: a data set of images in folders, tar archives, tables or shards."""

from __future__ import annotations

from pathlib import Path

import click

from lmdbio.cli.options import PATH, json_option
from lmdbio.cli.output import Lines, bar, print_facts, print_json, size
from lmdbio.ingest.importing import ImportReport, import_samples
from lmdbio.system.signals import ended_by_signals


@click.command("import")
@click.argument("sources", type=PATH, nargs=-1, required=True, metavar="SOURCE...")
@click.argument("target", type=PATH)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="The value of a sample, and repeated its label: an ending of members of an archive, with "
    "alternatives (jpg;png), or a column of a table. Default: the image, and cls, txt or "
    "json, or the first column of bytes, and label.",
)
@json_option
def import_command(
    sources: tuple[Path, ...], target: Path, columns: tuple[str, ...], as_json: bool
) -> None:
    """Make the data set TARGET of the samples of SOURCE.

    SOURCE is a folder with a folder of images for each class, as torchvision's ImageFolder takes
    it, or a folder of images; or tar archives as WebDataset writes them; or Parquet files (which
    take pyarrow); or a folder of these; or a folder that Hugging Face's save_to_disk (pyarrow) or
    MosaicML's MDSWriter has written. A sample is an image and its label, which
    Records(TARGET, layout="auto") and a Loader give as a pair, or an image alone. The bytes of
    images stay as they are.

    TARGET, a folder, appears whole, in the order of its keys, and with its provenance file. An
    import that is broken off, even by SIGKILL, leaves TARGET.part, and the same command goes on
    with it, unless SOURCE has changed.

    \b
    Examples:
        lmdbio import imagenet/train train_lmdb
        lmdbio import shards/train-*.tar train_lmdb
        lmdbio import shards/ train_lmdb --column 'jpg;png' --column json
        lmdbio import data/train-*.parquet train_lmdb --column image --column label
    """
    with ended_by_signals(), bar(f"import {target}") as progress:
        report = import_samples(sources, target, columns=columns, progress=progress)
    if as_json:
        print_json(report)
        return
    print_facts(lines(report))


def lines(report: ImportReport) -> Lines:
    """Return the lines to show."""
    rate = report.sample_bytes / max(report.seconds, 1e-9)
    resumed = f", {report.resumed_samples:,} of them were there" * bool(report.resumed_samples)
    return [
        (str(report.target), ""),
        ("  samples", f"{report.samples:,}{resumed}"),
        ("  file", size(report.file_bytes)),
        ("  time", f"{report.seconds:.2f} s, {size(rate)}/s"),
    ]
