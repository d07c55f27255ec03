"""``lmdbio plan``."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from lmdbio._core import Extents, Plan
from lmdbio.cli.options import (
    LIMIT,
    RECORDS_MAX,
    checked,
    db_option,
    json_option,
    paths_argument,
    provenance_option,
    renamed_option,
)
from lmdbio.cli.output import plural, print_json, print_table, size
from lmdbio.cli.plan_epochs import Order, cache_words, plan_job, plan_order, shuffle_name
from lmdbio.locate.open import Locate, open_record_index
from lmdbio.locate.record_index import RecordIndex
from lmdbio.locate.refusals import extents_end, refuse_end
from lmdbio.machine.overrides import BYTES_LARGEST, Overrides
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import BATCH_MAX, EPOCHS_MAX, RANKS_MAX, Job
from lmdbio.planning.reads import PAGE_BYTES, PlanOptions, plan_reads
from lmdbio.planning.schedule import Schedule
from lmdbio.provenance import Paths, name_text
from lmdbio.reading.engines import choose_reading

#: Reads that ``plan`` prints as text unless told ``--all``.
ROWS_MAX = 40
#: Records that ``plan`` takes unless told otherwise: a common batch.
RECORDS = 256
#: Epochs that ``plan --cache`` looks at unless told otherwise.
EPOCHS = 3


@checked
def index_ranges(text: str) -> list[tuple[int, int]]:
    """Return numbers and ranges: ``3,8,100-109`` (a range has both its ends)."""
    ranges = []
    for part in map(str.strip, text.split(",")):
        first, dash, last = part.partition("-")
        if not (first + last).isdecimal() or not first or (dash and not last):
            raise ValueError(f"{part!r} is neither a number nor A-B")
        low, high = int(first), int(last or first)
        if high < low:
            raise ValueError(f"{part!r} goes backwards")
        ranges.append((low, high))
    return ranges


def expand(ranges: list[tuple[int, int]], source: RecordIndex) -> npt.NDArray[np.uint64]:
    """The indices in some ranges. Checked first: a range may name more than memory holds."""
    for _, high in ranges:
        if high >= source.count:
            raise IndexError(f"{source.path}: record {high} of {source.count}")
    return np.concatenate([np.arange(a, b + 1, dtype=np.uint64) for a, b in ranges])


def power_of_two(ctx: click.Context, param: click.Parameter, value: int) -> int:
    if value & (value - 1):
        raise click.BadParameter(f"{value} is no power of two", ctx, param)
    return value


def whole_pages(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value is not None and value % PAGE_BYTES:
        raise click.BadParameter(f"{value} is no multiple of {PAGE_BYTES}", ctx, param)
    return value


#: As ``lmdbio plan --help`` shows it.
HELP = """List the reads for some records of PATH, without doing them.

Neighbours are joined over gaps, aligned and split; "waste" are bytes that are read and not
needed. Without a good provenance file the tree is walked to find the records. (A Reader's
root plans the shares of all its ranks, over several iterations, together. A small batch that
the page cache holds is not planned, but copied from there.)

\b
Examples:
    lmdbio plan train_lmdb                              the first 256 records
    lmdbio plan train_lmdb --start 5000 --limit 1000
    lmdbio plan train_lmdb --indices 7,99,1000-1015 --gap-bytes 0
    lmdbio plan train_lmdb --batch-size 256 --ranks 4   each rank's share of a batch
    lmdbio plan train_lmdb --limit 1 --alignment 1      the bytes of the record alone
    lmdbio plan shards/*.lmdb                           of many files, read as one
    lmdbio plan train_lmdb --shuffle window             an epoch, by chunks shuffled together
    lmdbio plan train_lmdb --shuffle global --cache memory=8G --nodes 4 --ranks 16
"""


@click.command(help=HELP)
@paths_argument
@click.option(
    "--start",
    type=click.IntRange(0, RECORDS_MAX),
    default=0,
    help="First record to read.  [default: 0]",
)
@renamed_option(
    "--count", *LIMIT, type=click.IntRange(1, RECORDS_MAX),
    help=f"Number of records to read.  [default: {RECORDS}]",
)  # fmt: skip
@click.option(
    "--indices",
    type=index_ranges,
    metavar="I,J,A-B",
    help="Read these records instead of a range.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, BATCH_MAX),
    help="Show the reads of a Reader with this number of records per global batch.",
)
@click.option(
    "--ranks",
    type=click.IntRange(1, RANKS_MAX),
    default=1,
    help="Number of ranks that share each batch (with --batch-size).",
)
@click.option(
    "--iteration",
    type=click.IntRange(0, RECORDS_MAX),
    default=0,
    help="Iteration to show (with --batch-size).",
)
@click.option(
    "--shuffle", type=shuffle_name, metavar="ORDER",
    help="Show the cost of an epoch in this order: global, groups:SIZE, windows:CHUNKxCOUNT or "
    "runs:LENGTH, in records; group or window with sizes that suit the file (with --batch-size).",
)  # fmt: skip
@click.option(
    "--cache", type=cache_words, metavar="NAME=VALUE,...",
    help="Show the reads of a job whose roots cache a part: memory=8G, disk=FOLDER, "
    "disk_bytes=100G, placement=home|mixed|first|frequency, warm=demand|preload|window; or "
    "auto, as on nodes like this machine (with --batch-size, --shuffle).",
)  # fmt: skip
@click.option(
    "--nodes", type=click.IntRange(1, RANKS_MAX), default=1, show_default=True,
    help="Number of nodes, each with one root (with --cache).",
)  # fmt: skip
@click.option(
    "--assignment", type=click.Choice(("strided", "local")), default="strided", show_default=True,
    help="Part of each batch that a rank takes: its positions, or what its root caches (with "
    "--cache).",
)  # fmt: skip
@click.option(
    "--epochs", type=click.IntRange(1, EPOCHS_MAX),
    help=f"Number of epochs to show (with --cache).  [default: {EPOCHS}]",
)  # fmt: skip
@db_option
@click.option(
    "--gap-bytes", type=click.IntRange(0, BYTES_LARGEST),
    help="Number of unneeded bytes worth reading to save a request.  [default: see lmdbio info]",
)  # fmt: skip
@click.option(
    "--request-bytes", type=click.IntRange(1, BYTES_LARGEST), callback=whole_pages,
    help=f"Largest read, a multiple of {PAGE_BYTES}.  [default: as Records reads, with "
    "--batch-size as a Reader does; see lmdbio info]",
)  # fmt: skip
@click.option(
    "--alignment", type=click.IntRange(1, 1 << 30), default=PAGE_BYTES, show_default=True,
    callback=power_of_two,
    help="Offsets and lengths of reads are multiples of this, a power of two.",
)  # fmt: skip
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"Print all reads, also where there are more than {ROWS_MAX}.",
)
@provenance_option
@json_option
@click.pass_context
def plan(
    context: click.Context,
    /,
    paths: tuple[Path | str, ...],
    start: int,
    limit: int | None,
    indices: list[tuple[int, int]] | None,
    batch_size: int | None,
    ranks: int,
    iteration: int,
    shuffle: Order | None,
    cache: Cache | None,
    nodes: int,
    assignment: str,
    epochs: int | None,
    name: bytes | None,
    gap_bytes: int | None,
    request_bytes: int | None,
    alignment: int,
    everything: bool,
    sidecar: Path | None,
    as_json: bool,
) -> None:
    """Plan the reads of some records or of whole epochs, and print them."""
    refuse_contradictions(context)
    batch = batch_size or RECORDS
    overrides = Overrides(request_bytes_max=request_bytes, gap_bytes_max=gap_bytes)
    with open_source(paths, name, sidecar) as source:
        way = choose_reading(source.pages, "batch" if batch_size is None else "stream", overrides)
        options = PlanOptions(way.gap_bytes_max, way.request_bytes_max)
        if not source.count:
            raise ValueError(f"{source.path}: {name_text(source.db)} holds no records")
        order, words = None, "the records' own"
        if shuffle is not None:
            words, order = shuffle.sized(source.count, source.used_bytes, batch)
        if cache is not None:
            ranks, epochs = ranks if ranks > 1 else nodes, epochs or EPOCHS
            job = Job(cache, batch, nodes, ranks, epochs, order, ends=True, assignment=assignment)
            plan_job(source, words, job, options, alignment, as_json)
        elif order is not None:
            plan_order(source, words, order, batch, options, alignment, as_json)
        else:
            shares = [expand(indices or [first_records(source, start, limit)], source)]
            if batch_size is not None:
                shares = shares_of(source, batch_size, ranks, iteration, start)
            of_ranks = batch_size is not None
            print_reads(source, shares, options, alignment, of_ranks, everything, as_json)


def print_reads(
    source: RecordIndex,
    shares: list[npt.NDArray[np.uint64]],
    options: PlanOptions,
    alignment: int,
    of_ranks: bool,
    everything: bool,
    as_json: bool,
) -> None:
    """Plan the reads of each share, and print them."""
    located = [(share, source.extents(share)) for share in shares]
    refuse_end(source.path, source.pages.size(), max(extents_end(part) for _, part in located))
    made = [(*each, plan_reads(each[1], options, alignment=alignment)) for each in located]
    how = "the provenance file" if not source.reason else f"walking the tree ({source.reason})"
    if as_json:
        facts = {"data": source.path, "records": source.count, "located_by": how}
        print_json(facts | {"ranks": [as_row(rank, *each) for rank, each in enumerate(made)]})
        return
    click.echo(f"{source.path}: {plural(source.count, 'record')}, located by {how}")
    for rank, each in enumerate(made):
        print_plan(f"rank {rank} of {len(made)}: " if of_ranks else "", *each, everything)


def open_source(path: Paths, name: bytes | None, sidecar: Path | str | None) -> RecordIndex:
    """Open the records of a database; a provenance file that was named has to hold."""
    locate: Locate = "auto" if sidecar is None else "provenance"
    with warnings.catch_warnings():
        # Why a provenance file is not used, the answer says.
        warnings.simplefilter("ignore")
        return open_record_index(path, db=name, locate=locate, provenance=sidecar)


def refuse_contradictions(context: click.Context) -> None:
    """Refuse options that say different things about which records are read."""
    given = {
        one.name
        for one in context.command.params
        if context.params[one.name or ""] not in (None, one.get_default(context))
    }
    if "cache" in given:
        if given & {"indices", "limit", "start", "iteration"}:
            raise click.UsageError(
                "--cache looks at whole epochs: no --indices, --start, --limit, --iteration"
            )
        return
    if given & {"nodes", "epochs", "assignment"}:
        raise click.UsageError("--nodes, --epochs and --assignment need --cache")
    if "indices" in given and given & {"limit", "start", "batch_size"}:
        raise click.UsageError("--indices stands for itself: no --start, --limit, --batch-size")
    if "batch_size" not in given and given & {"ranks", "iteration"}:
        raise click.UsageError("--ranks and --iteration need --batch-size")
    if {"batch_size", "limit"} <= given:
        raise click.UsageError("--batch-size says how many: no --limit (--count)")


def shares_of(
    source: RecordIndex, batch_size: int, ranks: int, iteration: int, start: int
) -> list[npt.NDArray[np.uint64]]:
    """Return the records of each rank in an iteration of a Reader."""
    schedule = Schedule(source.count, batch_size, (tuple(range(ranks)),), start=start)
    return [schedule.records(iteration, rank) for rank in range(ranks)]


def as_row(
    rank: int, share: npt.NDArray[np.uint64], extents: Extents, reads: Plan
) -> dict[str, object]:
    """Return a rank's plan as JSON has it."""
    row = {"rank": rank, "records": len(share), **asdict(reads.totals)}
    return row | {"reads": list_reads(extents, reads)}


def first_records(source: RecordIndex, start: int, count: int | None) -> tuple[int, int]:
    """Return the first record and the last one (inclusive) of a run.

    The usual count may reach beyond a small data set; a number that the user gave may not.
    """
    stop = start + count if count is not None else min(start + RECORDS, source.count)
    return start, max(start, stop - 1)


def list_reads(extents: Extents, reads: Plan) -> list[dict[str, int]]:
    """Each read: offset, length, the records that begin in it, and the bytes nobody needs."""
    offsets = reads.requests["offset"].astype(np.int64)
    ends = offsets + reads.requests["length"].astype(np.int64)
    starts = np.sort(extents["offset"][extents["length"] > 0].astype(np.int64))
    records = np.searchsorted(starts, ends) - np.searchsorted(starts, offsets)
    needed = covered(extents, ends) - covered(extents, offsets)
    return [
        {"offset": int(a), "length": int(b - a), "records": int(n), "waste": int(b - a - u)}
        for a, b, n, u in zip(offsets, ends, records, needed, strict=True)
    ]


def covered(extents: Extents, points: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes of the file below each point that lie under at least one extent."""
    ordered = np.sort(extents[extents["length"] > 0], order="offset")
    if not len(ordered):
        return np.zeros(len(points), np.int64)
    low = ordered["offset"].astype(np.int64)
    high = np.maximum.accumulate(low + ordered["length"].astype(np.int64))
    # An extent adds to the union its part beyond everything before it.
    low = np.maximum(low, np.concatenate(([0], high[:-1])))
    added = np.concatenate(([0], np.cumsum(np.maximum(high - low, 0))))
    before = np.searchsorted(low, points)
    over = np.where(before > 0, high[before - 1] - points, 0)
    counted: npt.NDArray[np.int64] = added[before] - np.maximum(over, 0)
    return counted


def print_plan(
    head: str, share: npt.NDArray[np.uint64], extents: Extents, reads: Plan, everything: bool
) -> None:
    totals = reads.totals
    click.echo(
        f"{head}{plural(len(share), 'record')}, {size(totals.record_bytes)}: "
        f"{plural(totals.requests, 'read')}, {size(totals.buffer_bytes)}, "
        f"waste {size(totals.waste_bytes)}"
    )
    rows = list_reads(extents, reads)
    displayed = rows if everything else rows[:ROWS_MAX]
    if rows:
        cells = (
            (str(number), *(f"{n:,}" for n in row.values()))
            for number, row in enumerate(displayed)
        )
        print_table(("read", *rows[0]), cells, left=0, width=80)
    if len(displayed) < len(rows):
        click.echo(f"... and {len(rows) - len(displayed):,} more reads (--all shows them)")
