"""``lmdbio bench`` and ``lmdbio demo``: races of readers."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmdbio.cli.options import (
    PATH,
    REPEATS_MAX,
    Seconds,
    checked,
    db_option,
    json_option,
    renamed_option,
    sidecar_json_option,
)
from lmdbio.cli.output import open_page, print_json, wide_console
from lmdbio.cli.plan import RECORDS
from lmdbio.errors import MissingExtraError
from lmdbio.placement.forecast import BATCH_MAX
from lmdbio.system.amounts import parse_bytes
from lmdbio.system.signals import ended_by_signals

if TYPE_CHECKING:
    from rich.console import Console


@checked
def byte_size(text: str) -> int:
    """Return a size such as ``128M`` in bytes."""
    return parse_bytes(text, "a size")


@checked
def transfer_sizes(text: str) -> tuple[int, ...]:
    """Return sizes of a request, with commas between."""
    sizes = sorted({parse_bytes(word, "a size") for word in text.split(",")})
    for size in sizes:
        if size % 4096 or not 4096 <= size <= 64 << 20:
            raise ValueError(f"{size} is no multiple of 4K up to 64M")
    return tuple(sizes)


#: As ``lmdbio bench --help`` shows it.
HELP = """Measure how fast PATH can be read here: py-lmdb, lmdbio, fio, ior.

Everybody reads the same records of the same file, or as many bytes of it, in turns, each run
in processes of its own on a cold page cache. A plain reader with IOR's transfers and blocks
is built in; fio and ior take part where they are installed, and their commands are shown.
No provenance file is needed. What py-lmdb reads is compared with what lmdbio reads before
anything is timed. Ctrl-C or SIGTERM ends it and every process that it started; what was
measured up to then is written. PATH may be a folder or a quoted pattern of files: then py-lmdb
opens an environment for each, and readers of a single file stay away.

Read the result so: the plain readers say what the storage gives for requests of each size;
py-lmdb far below them is what lmdbio can win; lmdbio below them is what it still loses. Look
at the spread before you believe a ratio.

\b
Contestants:
    lmdb, lmdb-noreadahead          py-lmdb: cursor, or get per key for random; with
                                    readahead=False, as open-noreadahead
    open, records, slices, read,    lmdbio.open; Records in order, by slices, by batches;
    reader                          Reader; with an engine: open-direct, reader-pread ...
    batches, arrays                 Records.batches, 3 ahead; Records.read, whose batches
                                    are looked at as one array each with --checksum
    lmdb-buffers, open-buffers,     with buffers=True, checksums always included
    open-mmap-buffers
    plain-pread, plain-direct       built in: one request at a time
    fio-pread, fio-direct           the same by fio; fio-queue: 8 requests in flight,
                                    fio-queue-32, fio-queue-128, fio-uring-32: more
    ior-pread, ior-direct           the same by ior

\b
Examples:
    lmdbio bench train_lmdb
    lmdbio bench train_lmdb --access random --contestants 'lmdb*,read*'
    lmdbio bench train_lmdb --access strided --processes 8
    lmdbio bench train_lmdb --contestants raw --transfer 4K,16K,64K,256K,1M,4M,16M,64M
    lmdbio bench train_lmdb --warm --contestants lmdb,open --checksum
    lmdbio bench shards/ --access random
    lmdbio bench train_lmdb --db images --limit-seconds 30
    lmdbio bench train_lmdb --repeats 2 --bytes-max 64M          a quick look
    lmdbio bench train_lmdb --json | jq .rows
"""


@click.command(help=HELP)
@click.argument("path", type=PATH)
@click.option(
    "--access", type=click.Choice(("sequential", "strided", "random")), default="sequential",
    show_default=True,
    help="sequential: each process one contiguous part. strided: as Caffe's ranks, each its share "
    "of every batch. random: batches of records from all over the file.",
)  # fmt: skip
@click.option(
    "--contestants", default="default", show_default=True, metavar="NAMES",
    help="Names, groups or patterns, with commas. Groups: default, lmdbio (its surfaces), engines "
    "(surfaces with every engine), raw (plain, fio, ior), all. Names: see above.",
)  # fmt: skip
@click.option(
    "--transfer", "transfers", type=transfer_sizes, metavar="SIZES",
    help="How large the requests of plain, fio and ior are: 4K to 64M, with commas. [default: "
    "64K,1M,16M; random: a record's pages, 64K,1M]",
)  # fmt: skip
@click.option(
    "--processes",
    type=click.IntRange(1, 8),
    help="How many processes read at once. [default: 1; strided: 4]",
)
@renamed_option(
    "--batch", "--batch-size", "batch", type=click.IntRange(1, BATCH_MAX), default=RECORDS,
    show_default=True,
    help="How many records a batch has, over all processes.",
)  # fmt: skip
@click.option(
    "--repeats", type=click.IntRange(1, REPEATS_MAX), default=7, show_default=True,
    help="How often each is timed; medians, slowest and fastest are shown.",
)  # fmt: skip
@click.option(
    "--cold/--warm", "cold", default=True, show_default=True,
    help="Put the file (and no other) out of the page cache before each run, or into it first.",
)  # fmt: skip
@click.option(
    "--bytes-max", type=byte_size, metavar="SIZE",
    help="How many bytes of the file each run reads. [default: 128M; random: 32M]",
)  # fmt: skip
@click.option(
    "--seconds-max", type=Seconds(), default=100.0,
    show_default=True, help="No round begins that would end later.",
)  # fmt: skip
@click.option(
    "--limit-seconds", type=Seconds(), default=300.0,
    show_default=True, help="A single run that takes longer is ended and counts as failed.",
)  # fmt: skip
@click.option(
    "--checksum", is_flag=True,
    help="Look at every byte of every value, by a checksum, as a decoder would.",
)  # fmt: skip
@db_option
@click.option(
    "--json-file", type=PATH, metavar="FILE",
    help="Write every sample here. [default: beside the page, bench.json]",
)  # fmt: skip
@json_option
@click.option(
    "--html", "html_file", type=PATH, default=Path("bench-results/bench.html"), metavar="FILE",
    show_default=True, help="Write one page with drawings, which needs no network, here.",
)  # fmt: skip
def bench(
    access: str,
    contestants: str,
    processes: int | None,
    checksum: bool,
    name: bytes | None,
    json_file: Path | None,
    as_json: bool,
    html_file: Path,
    **others: Any,
) -> None:
    """Race the readers of one file, and write a table, a page and every sample."""
    from lmdbio.bench import findings, micro, tables, trials

    try:
        names = trials.choose(word.strip() for word in contestants.split(","))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    options = micro.Options(
        access=access,
        contestants=tuple(names),
        processes=processes or (4 if access == "strided" else 1),
        json_file=json_file or html_file.with_suffix(".json"),
        html_file=html_file,
        consume=checksum,
        db="" if name is None else os.fsdecode(name),
        **others,
    )
    found = micro.run(options, wide_console(stderr=True))
    if as_json:
        print_json(findings.as_json(found))
    else:
        console = wide_console()
        tables.show_bench(found, console)
        print_files(console, html_file, options.json_file, found.seconds)
    if found.interrupted:
        click.echo("lmdbio: interrupted", err=True)
        sys.exit(128 + found.interrupted)
    if not found.sound:
        sys.exit(1)


def print_files(console: Console, one: Path, other: Path | None, seconds: float) -> None:
    """Print which files were written, and how long all took."""
    line = f"{one} and {other}, {seconds:.0f} s"
    console.print(line, style="dim", highlight=False, markup=False)


# --- demo ---------------------------------------------------------------------------------

#: Of each data set: 1 PB.
MEGABYTES_MAX = 1_000_000_000


@click.command()
@click.option(
    "--data", type=PATH, default=Path("demo-data"), show_default=True,
    help="Write the data sets (1.2 GB) into this folder; they are kept, and reused.",
)  # fmt: skip
@click.option(
    "--out", type=PATH, default=Path("demo-results"), show_default=True,
    help="Write demo.json and demo.html into this folder.",
)  # fmt: skip
@click.option(
    "--repeats", type=click.IntRange(1, REPEATS_MAX), default=5, show_default=True,
    help="How often each contestant is timed.",
)  # fmt: skip
@click.option(
    "--megabytes", type=click.IntRange(1, MEGABYTES_MAX), default=504, show_default=True,
    help="How many bytes of values each data set has (10^6 bytes).",
)  # fmt: skip
@sidecar_json_option
def demo(data: Path, out: Path, repeats: int, megabytes: int, as_json: bool) -> None:
    """Write two data sets, race lmdbio against py-lmdb, show one table.

    The data sets are written by py-lmdb as Caffe's converter does. First every value that any
    contestant reads is compared with py-lmdb's, then each one is timed, in turns, on a cold
    page cache (figures are marked where it can't be dropped). Exit status 1 if any value
    differed. On a desktop the page opens in the browser. Needs Pillow, which the extra brings:
    pip install 'lmdbio[demo]'.

    \b
    Examples:
        lmdbio demo
        lmdbio demo --data /lustre/me/demo --out .       on the storage you care about
        lmdbio demo --megabytes 200 --repeats 2          a quick look
    """
    if find_spec("PIL") is None:
        raise MissingExtraError("lmdbio demo", "Pillow", "PIL", "demo")
    from lmdbio.bench import datasets, demo as demonstration

    recipes = tuple(
        replace(recipe, value_bytes_min=megabytes * 10**6)
        for recipe in (datasets.CIFAR, datasets.JPEG)
    )
    progress = wide_console(stderr=True)
    progress.print(
        f"Writes two data sets into {data}, and reads them by each reader in turns, {repeats} "
        f"times: up to {demonstration.estimate(megabytes, repeats)}. (A quick look: --megabytes "
        "200 --repeats 2)",
        highlight=False,
        markup=False,
    )
    with ended_by_signals():
        made = demonstration.run(data, out, progress, repeats=repeats, recipes=recipes)
    console = wide_console(stderr=as_json)
    demonstration.show(made, console)
    if as_json:
        print_json(demonstration.as_json(made))
    else:
        print_files(console, out / "demo.json", out / "demo.html", made.seconds)
        open_page(out / "demo.html")
    if not made.equal:
        sys.exit(1)
