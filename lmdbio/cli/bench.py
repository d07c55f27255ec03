"""``lmdbio bench``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from lmdbio.cli.output import (
    PATH,
    REPEATS_MAX,
    Seconds,
    database_name,
    json_option,
    print_json,
    wide_console,
)
from lmdbio.cli.plan import RECORDS
from lmdbio.placement.forecast import BATCH_MAX
from lmdbio.system.amounts import parse_bytes


def to_size(_ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """A size such as ``128M`` in bytes."""
    if text is None:
        return None
    try:
        return parse_bytes(text, "a size")
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from None


def to_transfers(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Sizes of a request, with commas between."""
    if text is None:
        return None
    sizes = {to_size(ctx, param, word) or 0 for word in text.split(",")}
    for size in sorted(sizes):
        if size % 4096 or not 4096 <= size <= 64 << 20:
            raise click.BadParameter(f"{size} is no multiple of 4K up to 64M", param=param)
    return tuple(sorted(sizes))


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
    lmdb, lmdb-noreadahead          py-lmdb: cursor, or get per key for random
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
    "--transfer", "transfers", callback=to_transfers, metavar="SIZES",
    help="How large the requests of plain, fio and ior are: 4K to 64M, with commas. [default: "
    "64K,1M,16M; random: a record's pages, 64K,1M]",
)  # fmt: skip
@click.option(
    "--processes",
    type=click.IntRange(1, 8),
    help="How many processes read at once. [default: 1; strided: 4]",
)
@click.option(
    "--batch", type=click.IntRange(1, BATCH_MAX), default=RECORDS, show_default=True,
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
    "--bytes-max", callback=to_size, metavar="SIZE",
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
@click.option(
    "--db",
    "name",
    type=database_name,
    metavar="NAME",
    help="Read this named database. [default: the main one]",
)
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
    path: Path,
    access: str,
    contestants: str,
    transfers: tuple[int, ...] | None,
    processes: int | None,
    batch: int,
    repeats: int,
    cold: bool,
    bytes_max: int | None,
    seconds_max: float,
    limit_seconds: float,
    checksum: bool,
    name: bytes | None,
    json_file: Path | None,
    as_json: bool,
    html_file: Path,
) -> None:
    """Race the readers of one file, and write a table, a page and every sample."""
    from lmdbio.bench import findings, micro, tables, trials

    try:
        names = trials.choose(word.strip() for word in contestants.split(","))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    options = micro.Options(
        path=path,
        access=access,
        contestants=tuple(names),
        transfers=transfers,
        processes=processes or (4 if access == "strided" else 1),
        batch=batch,
        repeats=repeats,
        cold=cold,
        seconds_max=seconds_max,
        bytes_max=bytes_max,
        json_file=json_file or html_file.with_suffix(".json"),
        html_file=html_file,
        limit_seconds=limit_seconds,
        consume=checksum,
        db="" if name is None else os.fsdecode(name),
    )
    found = micro.run(options, wide_console(stderr=True))
    if as_json:
        print_json(findings.as_json(found))
    else:
        console = wide_console()
        tables.show_bench(found, console)
        line = f"{html_file} and {options.json_file}, {found.seconds:.0f} s"
        console.print(line, style="dim", highlight=False, markup=False)
    if found.interrupted:
        click.echo("lmdbio: interrupted", err=True)
        sys.exit(128 + found.interrupted)
    if not found.sound:
        sys.exit(1)
