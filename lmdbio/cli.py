"""The command line: one thin command each, over the public calls.

Answers go to standard output, as text or (``--json``) as JSON; everything else to standard
error. Exit status: 0; 1 for an error, told in one line; 2 for a wrong use; 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import lmdb
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lmdbio import _core, calibration, provenance, staleness, storage, timeline
from lmdbio import convert as conversion
from lmdbio import tune as tuning
from lmdbio import verify as verification
from lmdbio._core import Engine, Extents, Meta, Plan
from lmdbio.assignment import Schedule
from lmdbio.calibration import Stored
from lmdbio.choice import ACCESSES, Choice, Wish, choose, wished
from lmdbio.errors import ProvenanceError, StaleError
from lmdbio.locate import Source, open_source
from lmdbio.plan import PAGE_BYTES, PlanOptions, plan_reads
from lmdbio.provenance import Provenance, name_text
from lmdbio.storage import Storage
from lmdbio.tune import Tuning

__all__ = ["cli", "main"]

#: Work that takes longer than this gets a progress bar, on a terminal.
BAR_AFTER_SECONDS = 2.0
#: Reads that ``plan`` prints as text unless told ``--all``.
ROWS_MAX = 40
#: Records that ``plan`` takes unless told otherwise: a common batch.
RECORDS = 256
#: ``info`` names databases inside the main one if that means reading at most so many leaves.
LEAVES_MAX = 1024

PAGE_KINDS = ("branch", "leaf", "overflow")
#: Persistent flags of a database (enum lio_db_flag), by LMDB's names.
DB_FLAGS = {
    0x02: "reversekey",
    0x04: "dupsort",
    0x08: "integerkey",
    0x10: "dupfixed",
    0x20: "integerdup",
    0x40: "reversedup",
}
#: Who reads in which way, and which of the choices concern it.
USERS = {"stream": "Reader", "batch": "Records", "single": "lmdbio.open"}
LABELS = {
    "engine": "engine",
    "depth": "depth",
    "request_bytes_max": "request",
    "gap_bytes_max": "gap",
}
CHOSEN = {
    "stream": tuple(LABELS),
    "batch": tuple(LABELS),
    "single": ("engine", "depth"),
}
#: What a deep check calls the hints that differ, for people.
HINTS = {"mtime_ns": "mtime", "ctime_ns": "ctime", "dev": "device", "ino": "inode"}

EXPECTED = (lmdb.Error, OSError, ValueError, LookupError, MemoryError)

#: Not tested by click: whether a file can be read is an answer, not a wrong use.
PATH = click.Path(path_type=Path, readable=False)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
provenance_option = click.option(
    "--provenance",
    "sidecar",
    type=PATH,
    help="The provenance file, or the folder that holds it, if it is not beside the data.",
)


def main() -> None:
    """Entry point of the console script."""
    try:
        # Not standalone: click would turn a broken pipe or Ctrl-C into words of its own.
        status = cli.main(standalone_mode=False, prog_name="lmdbio")
        if sys.stdout is not None:  # None when it was closed before we began
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (KeyboardInterrupt, click.Abort) as interrupt:
        click.echo("lmdbio: interrupted", err=True)
        status = 128 + getattr(interrupt, "number", signal.SIGINT)
    except BrokenPipeError:
        # Whoever read our output has enough; Python's own flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 1
    except EXPECTED as error:
        click.echo(f"lmdbio: {one_line(error)}", err=True)
        status = 1
    sys.exit(status or 0)


def one_line(error: BaseException) -> str:
    """What went wrong, and with which file."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(text.split()) or type(error).__name__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 99})
@click.version_option(package_name="lmdbio")
def cli() -> None:
    """Reads LMDB data sets at the storage's own speed.

    \b
    A data set is an LMDB environment: a folder with data.mdb, or a single file.
        lmdbio convert train_lmdb     find every record once; writes train_lmdb/data.mdb.prov
        lmdbio info train_lmdb        what is in it, and whether the provenance file is good
        lmdbio verify train_lmdb      read it all, and prove it sound
        lmdbio plan train_lmdb        the reads for some records, without doing them
        lmdbio tune train_lmdb        how does its storage like to be read; remembered
        lmdbio bench train_lmdb       how fast can it be read here, by whom, and what limits it
        lmdbio trace t.json           where did the time go; several ranks' traces as one
        lmdbio demo                   write data, race py-lmdb, draw the result
    """


# --- output ------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Turns our values into what JSON knows. Names of databases are bytes in LMDB."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


def print_json(value: Any) -> None:
    click.echo(json.dumps(plain(value), indent=2))


def print_facts(facts: list[tuple[str, str]]) -> None:
    """Aligned lines of name and value."""
    width = max(len(name) for name, text in facts if text)
    for name, text in facts:
        click.echo(f"{name:<{width}}  {text}" if text else f"{name}")


def size(count: float) -> str:
    """Bytes in a unit that reads well, exact below 1 KiB."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def reading(read_bytes: int, requests: int) -> str:
    return f"{size(read_bytes)} in {plural(requests, 'request')}"


def titled(name: bytes | None) -> str:
    return "main database" if name is None else f"database {plain(name)}"


def wide_console(*, stderr: bool = False) -> Console:
    """A console for tables; a file or a log is no window of 80 columns."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=150)


@contextmanager
def bar(what: str) -> Iterator[staleness.Progress]:
    """A progress callback (done, in all, stage); it shows a bar once the work takes long."""
    console = Console(stderr=True)
    begun = time.monotonic()
    shown: Progress | None = None
    tasks: dict[str, Any] = {}

    def advance(done: int, total: int, stage: str) -> None:
        nonlocal shown
        if shown is None:
            if not console.is_terminal or time.monotonic() - begun < BAR_AFTER_SECONDS:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            shown = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
            shown.start()
        if stage not in tasks:
            tasks[stage] = shown.add_task(f"{what}: {stage}", total=total)
        shown.update(tasks[stage], completed=done, total=total)

    try:
        yield advance
    finally:
        if shown is not None:
            shown.stop()


# --- convert -----------------------------------------------------------------------------


@cli.command()
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


# --- verify ------------------------------------------------------------------------------


@cli.command()
@click.argument("path", type=PATH)
@provenance_option
@json_option
def verify(path: Path, sidecar: Path | None, as_json: bool) -> None:
    """Prove the whole tree of PATH, and its provenance file, sound.

    Every page of every tree is read and checked, counts are compared, no page may have two
    owners, and every record of the provenance file is compared with where the tree says it
    lies. Exit status 1, with file, offset and reason, when something is wrong.

    \b
    Examples:
        lmdbio verify train_lmdb
        lmdbio verify download.mdb --json
        lmdbio verify train_lmdb --provenance ~/sidecars
    """
    with bar(f"verify {path}") as progress:
        report = verification.verify(path, sidecar, progress=progress)
    if as_json:
        print_json(report)
        return
    told = (
        f"{report.sidecar}: {report.sidecar_records:,} records compared"
        if report.sidecar is not None
        else "none (lmdbio convert makes one)"
    )
    facts = [
        (f"{report.data}: sound", ""),
        ("  records", f"{report.records:,} ({size(report.record_bytes)})"),
        ("  pages", f"{report.tree_pages:,} of trees, {report.overflow_pages:,} of values"),
        ("  sidecar", told),
        ("  read", reading(report.bytes_read, report.requests)),
        ("  time", f"{report.seconds:.2f} s"),
    ]
    if report.duplicates:
        names = ", ".join(titled(name) for name in report.duplicates)
        facts.insert(3, ("  duplicates", f"only the tree was walked of {names}"))
    print_facts(facts)


# --- info --------------------------------------------------------------------------------


@cli.command()
@click.argument("path", type=PATH)
@provenance_option
@json_option
def info(path: Path, sidecar: Path | None, as_json: bool) -> None:
    """Tell what PATH is, and what will happen when it is opened.

    Shows format, newest transaction and databases; whether there is a provenance file, whether
    it is good, and whether opening will hash pages (the deep check) and how many; what is under
    the file, and how it is read for that reason: each choice, where it comes from (a variable of
    the environment, lmdbio tune, or the facts) and why. Keywords count more than all of these.

    \b
    Examples:
        lmdbio info train_lmdb
        lmdbio info train_lmdb --json | jq .sidecar.status
        LMDBIO_DEPTH=16 lmdbio info train_lmdb --json | jq .choices.batch
    """
    data = provenance.data_file(path)
    with Engine(data) as engine:
        meta = _core.read_meta(engine)
        found = {
            "data": data,
            "file_bytes": engine.size(),
            "meta": meta,
            "databases": list_databases(engine, meta),
            "sidecar": sidecar_status(engine, meta, provenance.find_sidecar(data, sidecar)),
            "storage": (under := storage.look(engine, thorough=True)),
            "tuned": (tuned := calibration_status(under)),
            "choices": choices(under, tuned),
            "lmdb": {
                "py_lmdb": lmdb.__version__,
                "lmdb": ".".join(map(str, lmdb.version())),
            },
        }
    if as_json:
        print_json(found)
    else:
        print_info(found)


def list_databases(engine: Engine, meta: Meta) -> list[dict[str, Any]]:
    """The main database and, unless that means much reading, the named ones in it."""
    main = meta.main_db
    found = [{"name": None, **asdict(main)}]
    if main.leaf_pages > LEAVES_MAX:
        return found
    with _core.Walk(engine, meta, main) as walk:
        for chunk in walk:
            if chunk.leaf:
                for name, db in _core.leaf_databases(meta.layout, chunk, engine.path):
                    found.append({"name": name, **asdict(db)})
    return found


def sidecar_status(engine: Engine, meta: Meta, path: Path) -> dict[str, Any]:
    """Whether a reader would use the provenance file at ``path``; hashes nothing."""
    found: dict[str, Any] = {"path": path, "status": "absent", "reason": "no such file"}
    try:
        if not path.exists():
            return found
        with Provenance.open(path) as opened:
            found["bytes"] = opened.size
            found["databases"] = [
                {"name": section.name, "records": section.count, "runs": section.runs}
                for section in opened.sections
            ]
            staleness.check_facts(engine, meta, opened)
            found["deep_check"] = deep = staleness.deep_check(engine, opened)
            if deep.due:
                differ = ", ".join(HINTS.get(reason, reason) for reason in deep.reasons)
                found |= {"status": "unproven", "reason": f"a copy, or changed: other {differ}"}
            else:
                how = staleness.check(engine, meta, opened).how
                found |= {"status": "good", "reason": f"{how} check"}
    except StaleError as error:
        found |= {"status": "stale", "reason": str(error)}
    except ProvenanceError as error:
        found |= {"status": "damaged", "reason": str(error)}
    except OSError as error:
        found |= {"status": "unreadable", "reason": one_line(error)}
    return found


def calibration_status(under: Storage) -> Stored | None:
    """What ``tune`` keeps of a file system; None where there is no place for it."""
    try:
        return calibration.load(calibration.identity(under))
    except RuntimeError:
        return None


def choices(under: Storage, tuned: Stored | None) -> dict[str, Choice]:
    """How the file would be read, for each use."""
    environment = wished()
    measured = tuned.calibration if tuned is not None else None
    return {use: choose(use, under, measured, environment=environment) for use in ACCESSES}


def print_info(found: dict[str, Any]) -> None:
    meta: Meta = found["meta"]
    sidecar = found["sidecar"]
    facts = [
        (f"{found['data']}", ""),
        (
            "  format",
            f"LMDB data version {meta.layout.version}, pages of {meta.layout.page_size} bytes",
        ),
        (
            "  file",
            f"{size(found['file_bytes'])}, last page {meta.last_pgno:,}, "
            f"map {size(meta.map_size)}",
        ),
        ("  transaction", f"{meta.txnid:,}"),
    ]
    for db in found["databases"]:
        pages = ", ".join(f"{db[f'{kind}_pages']:,} {kind}" for kind in PAGE_KINDS)
        flags = "".join(f", {name}" for bit, name in DB_FLAGS.items() if db["flags"] & bit)
        facts.append(
            (
                f"  {titled(db['name'])}",
                f"{db['entries']:,} entries, depth {db['depth']}, {pages} pages{flags}",
            )
        )
    facts.append(("  sidecar", f"{sidecar['status']}: {sidecar['reason']}"))
    facts.append(("", str(sidecar["path"])))
    if "bytes" in sidecar:
        records = sum(db["records"] for db in sidecar["databases"])
        runs = sum(db["runs"] for db in sidecar["databases"])
        facts.append(("", f"{sidecar['bytes']:,} bytes, {records:,} records, {runs:,} runs"))
    if "deep_check" in sidecar:
        deep = sidecar["deep_check"]
        when = "runs at the next open: reads" if deep.due else "not due; it would read"
        facts.append(("  deep check", f"{when} {size(deep.bytes)}"))
    facts += storage_facts(found["storage"])
    facts.append(("  tuned", tuned_text(found["tuned"])))
    facts.append(
        ("  library", f"py-lmdb {found['lmdb']['py_lmdb']}, LMDB {found['lmdb']['lmdb']}")
    )
    print_facts(facts)
    click.echo()
    print_choices(found["choices"])


def storage_facts(under: Storage) -> list[tuple[str, str]]:
    """What is known of it, for people."""
    kind = under.file_system or "unknown"
    told = [f"{kind} on {under.source}" if under.source else kind]
    told.append("a disk of this machine" if under.disk else "no disk of this machine")
    if under.rotational is not None:
        told.append("rotational" if under.rotational else "not rotational")
    if under.block_bytes:
        told.append(f"blocks of {size(under.block_bytes)}")
    facts = [("  storage", ", ".join(told))]
    if under.stripes is not None:
        count, each = under.stripes.count, under.stripes.bytes
        facts.append(("  stripes", f"{size(each)} on each of {plural(count, 'server')}"))
    ahead = under.readahead_bytes
    facts.append(("  readahead", "unknown" if ahead is None else f"{size(ahead)}, by the kernel"))
    if under.direct is None:
        direct = "unknown"
    elif under.direct:
        direct = f"yes, in multiples of {under.direct_alignment} bytes"
    else:
        direct = "no"
    facts.append(("  O_DIRECT", direct))
    share = under.cached_share
    cached = "unknown" if share is None else f"{size(under.cached_bytes or 0)}, {share:.0%}"
    facts.append(("  page cache", cached))
    return facts


def tuned_text(tuned: Stored | None) -> str:
    if tuned is None:
        return "no: there is no folder to keep it in"
    if tuned.calibration is None:
        return tuned.note or "no (lmdbio tune measures)"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(tuned.calibration.measured))
    return f"{when}, {tuned.file}"


def chosen(choice: Choice, name: str) -> str:
    """A choice, for people."""
    value = getattr(choice, name)
    if name == "engine":
        return f"{value}, past cache" if choice.past_cache else str(value)
    return str(value) if name == "depth" else size(value)


def print_choices(found: dict[str, Choice]) -> None:
    """Every choice, where it comes from, and why."""
    table = Table(box=None, pad_edge=False, header_style="")
    for column in ("read by", "choice", "", "from", "because"):
        table.add_column(column, no_wrap=column != "because")
    for use, choice in found.items():
        for name in CHOSEN[use]:
            reason = choice.reasons[name]
            row = (LABELS[name], chosen(choice, name), reason.origin, reason.text)
            table.add_row(USERS[use] if name == "engine" else "", *row)
    console = wide_console()
    console.print(table, highlight=False)


# --- tune --------------------------------------------------------------------------------


@cli.command()
@click.argument("path", type=PATH)
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), default=tuning.SECONDS,
    show_default=True, help="For all trials together.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Measure and show, keep nothing.")
@click.option("--forget", is_flag=True, help="Measure nothing; remove what is kept.")
@json_option
def tune(path: Path, seconds: float, dry_run: bool, forget: bool, as_json: bool) -> None:
    """Measure how the storage under PATH likes to be read, and remember it.

    Requests of 4 KiB to 16 MiB, 1 to 64 of them in flight, in order and at random, through the
    page cache and past it, each for a moment, on data that is not in the page cache (what is
    read is put out of it first). The result is kept for the whole file system, in
    $XDG_CACHE_HOME/lmdbio/tuned (default ~/.cache), and used whenever a file of it is opened;
    keywords and LMDBIO_ENGINE, LMDBIO_DEPTH, LMDBIO_REQUEST_BYTES, LMDBIO_GAP_BYTES count more.

    Do it while the storage is as busy as it usually is, with a data set of some hundred MiB. A
    store that saves up what it did not give (a cap, a burst) wants more --seconds.

    \b
    Examples:
        lmdbio tune train_lmdb
        lmdbio tune /lustre/me/train_lmdb --seconds 30
        lmdbio tune train_lmdb --dry-run --json | jq .samples
        lmdbio tune train_lmdb --forget
    """
    if forget:
        with Engine(provenance.data_file(path)) as engine:
            identity = calibration.identity(storage.look(engine, thorough=True))
        gone = calibration.forget(identity)
        if as_json:
            print_json({"identity": identity, "forgotten": gone})
        else:
            click.echo(f"{identity}: {'forgotten' if gone else 'nothing was kept'}")
        return
    with bar(f"tune {path}") as progress:
        made = tuning.measure(path, seconds=seconds, progress=progress)
    if made.calibration is None:
        reasons = sorted({reason for _, reason in made.left_out})
        raise ValueError(f"{path}: nothing could be measured: {'; '.join(reasons)}")
    before = choices(made.storage, calibration_status(made.storage))
    now = Stored(made.calibration, calibration.file_of(made.calibration.identity))
    kept = None if dry_run else calibration.store(made.calibration)
    after = choices(made.storage, now)
    if as_json:
        rates = [{**plain(s), "mib_per_second": s.rate / 2**20} for s in made.calibration.samples]
        left = [{**plain(trial), "reason": reason} for trial, reason in made.left_out]
        print_json(
            {
                "identity": made.calibration.identity,
                "storage": made.storage,
                "seconds": made.seconds,
                "bytes": made.bytes,
                "samples": rates,
                "left_out": left,
                "choices_before": before,
                "choices": after,
                "kept": kept,
            }
        )
        return
    print_tuning(made)
    print_changes(before, after)
    click.echo(f"kept in {kept}" if kept is not None else "not kept (--dry-run)")


def print_tuning(made: Tuning) -> None:
    assert made.calibration is not None
    table = Table(box=None, pad_edge=False, header_style="")
    for column in ("engine", "pattern", "request", "depth", "MiB/s", "requests/s", "latency ms"):
        table.add_column(column, justify="left" if column in ("engine", "pattern") else "right")
    for s in sorted(made.calibration.samples, key=lambda s: (s.pattern, s.kind)):
        rate = f"{s.rate / 2**20:,.0f}"
        table.add_row(
            s.kind, s.pattern, size(s.request_bytes), str(s.depth), rate,
            f"{s.requests / s.seconds:,.0f}", f"{1e3 * s.latency:.2f}",
        )  # fmt: skip
    click.echo(
        f"{made.calibration.identity}: {size(made.bytes)} of cold data in {made.seconds:.1f} s"
    )
    wide_console().print(table, highlight=False)
    for trial, reason in made.left_out:
        click.echo(f"left out: {trial}: {reason}")


def print_changes(before: dict[str, Choice], after: dict[str, Choice]) -> None:
    """What is done differently from now on."""
    changes = [
        (use, name)
        for use in after
        for name in CHOSEN[use]
        if chosen(before[use], name) != chosen(after[use], name)
    ]
    if not changes:
        click.echo("Nothing is done differently now.")
    for use, name in changes:
        was, now = chosen(before[use], name), chosen(after[use], name)
        why = after[use].reasons[name].text
        click.echo(f"{USERS[use]}: {LABELS[name]} {now} instead of {was}: {why}")


# --- plan --------------------------------------------------------------------------------


class Indices(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Numbers and ranges: ``3,8,100-109`` (a range has both its ends)."""

    name = "indices"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[tuple[int, int]]:
        ranges = []
        for part in map(str.strip, str(value).split(",")):
            first, dash, last = part.partition("-")
            if not (first + last).isdecimal() or not first or (dash and not last):
                self.fail(f"{part!r} is neither a number nor A-B", param, ctx)
            low, high = int(first), int(last or first)
            if high < low:
                self.fail(f"{part!r} goes backwards", param, ctx)
            ranges.append((low, high))
        return ranges


def expand(ranges: list[tuple[int, int]], source: Source) -> npt.NDArray[np.uint64]:
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


@cli.command()
@click.argument("path", type=PATH)
@click.option("--start", type=click.IntRange(0), default=0, help="First record.  [default: 0]")
@click.option("--count", type=click.IntRange(1), help=f"Number of records.  [default: {RECORDS}]")
@click.option(
    "--indices", type=Indices(), metavar="I,J,A-B", help="These records, instead of a range."
)
@click.option("--batch-size", type=click.IntRange(1), help="The global batch of a Reader ...")
@click.option("--ranks", type=click.IntRange(1), default=1, help="... over so many ranks ...")
@click.option("--iteration", type=click.IntRange(0), default=0, help="... in this iteration.")
@click.option("--db", "name", metavar="NAME", help="A named database.")
@click.option(
    "--gap-bytes", type=click.IntRange(0),
    help="Unneeded bytes worth reading to save a request.  [default: see lmdbio info]",
)  # fmt: skip
@click.option(
    "--request-bytes", type=click.IntRange(1), callback=whole_pages,
    help=f"Largest single read, a multiple of {PAGE_BYTES}.  [default: as Records reads, with "
    "--batch-size as a Reader does; see lmdbio info]",
)  # fmt: skip
@click.option(
    "--alignment", type=click.IntRange(1, 1 << 30), default=PAGE_BYTES, show_default=True,
    callback=power_of_two, help="Of offsets and lengths, a power of two.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help=f"Print more than {ROWS_MAX} reads.")
@provenance_option
@json_option
def plan(
    path: Path,
    start: int,
    count: int | None,
    indices: list[tuple[int, int]] | None,
    batch_size: int | None,
    ranks: int,
    iteration: int,
    name: str | None,
    gap_bytes: int | None,
    request_bytes: int | None,
    alignment: int,
    everything: bool,
    sidecar: Path | None,
    as_json: bool,
) -> None:
    """List the reads for some records of PATH, without doing them.

    Neighbours are joined over gaps, aligned and split; "waste" are bytes that are read and not
    needed. Without a good provenance file the tree is walked to find the records. (A Reader's
    root plans the shares of all its ranks, over several iterations, together.)

    \b
    Examples:
        lmdbio plan train_lmdb                              the first 256 records
        lmdbio plan train_lmdb --start 5000 --count 1000
        lmdbio plan train_lmdb --indices 7,99,1000-1015 --gap-bytes 0
        lmdbio plan train_lmdb --batch-size 256 --ranks 4   each rank's share of a batch
        lmdbio plan train_lmdb --count 1 --alignment 1      the bytes of the record alone
    """
    if indices is not None and (count is not None or start or batch_size):
        raise click.UsageError("--indices stands for itself: no --start, --count, --batch-size")
    if batch_size is None and (ranks > 1 or iteration):
        raise click.UsageError("--ranks and --iteration need --batch-size")
    if batch_size is not None and count is not None:
        raise click.UsageError("--batch-size says how many: no --count")
    wish = Wish(request_bytes_max=request_bytes, gap_bytes_max=gap_bytes)
    with warnings.catch_warnings():
        # Why a provenance file is not used, the answer says.
        warnings.simplefilter("ignore")
        source = open_source(path, db=name, provenance=sidecar)
    with source:
        way = source.choose_way("batch" if batch_size is None else "stream", wish)
        options = PlanOptions(way.gap_bytes_max, way.request_bytes_max)
        if not source.count:
            raise ValueError(f"{source.path}: {name_text(source.db)} holds no records")
        if indices is not None:
            shares = [expand(indices, source)]
        elif batch_size is not None:
            teams = (tuple(range(ranks)),)
            schedule = Schedule(source.count, batch_size, teams, start=start)
            shares = [schedule.records(iteration, rank) for rank in range(ranks)]
        else:
            # The default may reach beyond a small data set, a number that was given may not.
            stop = start + count if count is not None else min(start + RECORDS, source.count)
            shares = [expand([(start, max(start, stop - 1))], source)]
        made = []
        for share in shares:
            extents = source.extents(share)
            made.append((share, extents, plan_reads(extents, options, alignment=alignment)))
    how = "the provenance file" if not source.reason else f"walking the tree ({source.reason})"
    if as_json:
        ranked = [
            {"rank": rank, "records": len(share), **asdict(reads.totals)}
            | {"reads": list_reads(extents, reads)}
            for rank, (share, extents, reads) in enumerate(made)
        ]
        found = {"data": source.path, "records": source.count, "located_by": how}
        print_json(found | {"ranks": ranked})
        return
    click.echo(f"{source.path}: {plural(source.count, 'record')}, located by {how}")
    for rank, (share, extents, reads) in enumerate(made):
        head = f"rank {rank} of {ranks}: " if batch_size is not None else ""
        print_plan(head, share, extents, reads, everything)


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
    # What an extent adds to the union: its part beyond everything before it.
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
    table = Table(box=None, pad_edge=False, header_style="")
    for column in ("read", "offset", "length", "records", "waste"):
        table.add_column(column, justify="right")
    shown = rows if everything else rows[:ROWS_MAX]
    for number, row in enumerate(shown):
        table.add_row(str(number), *(f"{row[key]:,}" for key in row))
    console = Console(file=sys.stdout, width=80, highlight=False)
    if rows:
        console.print(table)
    if len(shown) < len(rows):
        click.echo(f"... and {len(rows) - len(shown):,} more reads (--all shows them)")


# --- bench -------------------------------------------------------------------------------


SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def to_size(_ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """A size such as ``128M`` in bytes."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None or int(match[1]) == 0:
        raise click.BadParameter(f"{text!r} is no size; write 4K, 1M, 64M", param=param)
    return int(match[1]) * SIZE_UNITS[match[2].upper()]


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


@cli.command()
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
    help="Of a request for plain, fio and ior: 4K to 64M, with commas. [default: 64K,1M,16M; "
    "random: a record's pages, 64K,1M]",
)  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(1, 8), help="That read at once. [default: 1; strided: 4]"
)
@click.option(
    "--batch", type=click.IntRange(1), default=RECORDS, show_default=True,
    help="Records of a batch, over all processes.",
)  # fmt: skip
@click.option(
    "--repeats", type=click.IntRange(1), default=7, show_default=True,
    help="Timed runs of each; medians, slowest and fastest are shown.",
)  # fmt: skip
@click.option(
    "--cold/--warm", "cold", default=True, show_default=True,
    help="Put the file (and no other) out of the page cache before each run, or into it first.",
)  # fmt: skip
@click.option(
    "--bytes-max", callback=to_size, metavar="SIZE",
    help="Of the file, read by each run. [default: 128M; random: 32M]",
)  # fmt: skip
@click.option(
    "--seconds-max", type=click.FloatRange(min=0, min_open=True), default=100.0,
    show_default=True, help="No round begins that would end later.",
)  # fmt: skip
@click.option(
    "--limit-seconds", type=click.FloatRange(min=0, min_open=True), default=300.0,
    show_default=True, help="A single run that takes longer is ended and counts as failed.",
)  # fmt: skip
@click.option(
    "--checksum", is_flag=True,
    help="Look at every byte of every value, by a checksum, as a decoder would.",
)  # fmt: skip
@click.option("--db", default="", metavar="NAME", help="A named database. [default: the main one]")
@click.option(
    "--json", "json_file", type=PATH, metavar="FILE",
    help="Every sample. [default: beside the page, bench.json]",
)  # fmt: skip
@click.option(
    "--html", "html_file", type=PATH, default=Path("bench-results/bench.html"), metavar="FILE",
    show_default=True, help="One page with drawings, which needs no network.",
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
    db: str,
    json_file: Path | None,
    html_file: Path,
) -> None:
    """Measure how fast PATH can be read here: py-lmdb, lmdbio, fio, ior.

    Everybody reads the same records of the same file, or as many bytes of it, in turns, each run
    in processes of its own on a cold page cache. A plain reader with IOR's transfers and blocks
    is built in; fio and ior take part where they are installed, and their commands are shown.
    No provenance file is needed. What py-lmdb reads is compared with what lmdbio reads before
    anything is timed. Ctrl-C or SIGTERM ends it and every process that it started; what was
    measured up to then is written.

    Read the result so: the plain readers say what the storage gives for requests of each size;
    py-lmdb far below them is what lmdbio can win; lmdbio below them is what it still loses. Look
    at the spread before you believe a ratio.

    \b
    Contestants:
        lmdb, lmdb-noreadahead          py-lmdb: cursor, or get per key for random
        open, records, slices, read,    lmdbio.open; Records in order, by slices, by batches;
        reader                          Reader; with an engine: open-direct, reader-pread ...
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
        lmdbio bench train_lmdb --db images --limit-seconds 30
        lmdbio bench train_lmdb --repeats 1 --bytes-max 16M          a quick look
    """
    from lmdbio.bench import micro, screen, trials

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
        db=db,
    )
    console = wide_console()
    found = micro.run(options, console)
    screen.show(found, console)
    console.print(f"[dim]{html_file} and {options.json_file}, {found.seconds:.0f} s[/]")
    if found.interrupted:
        click.echo("lmdbio: interrupted", err=True)
        sys.exit(128 + found.interrupted)
    if not found.sound:
        sys.exit(1)


# --- trace -------------------------------------------------------------------------------


@cli.command("trace")
@click.argument("files", type=PATH, nargs=-1, required=True, metavar="FILE...")
@click.option("--output", "-o", type=PATH, help="Write all of them as one trace.")
@json_option
def sum_up(files: tuple[Path, ...], output: Path | None, as_json: bool) -> None:
    """Sum up traces, and put those of several processes together.

    A trace is taken by LMDBIO_TRACE=trace.json in the environment, or lmdbio.trace(...) in the
    program; each rank and each forked worker writes a file of its own. Open it, or what --output
    wrote, in Perfetto (https://ui.perfetto.dev) or chrome://tracing.

    \b
    Examples:
        LMDBIO_TRACE=t.json mpiexec -n 4 python train.py
        lmdbio trace t.r*.json -o all.json
    """
    traces = [timeline.load(path) for path in files]
    wrong = [
        f"{path}: {fault}"
        for path, one in zip(files, traces, strict=True)
        for fault in timeline.check(one)
    ]
    if wrong:
        raise ValueError(f"{wrong[0]} (and {len(wrong) - 1} more faults)")
    merged = timeline.merge(traces)
    if output is not None:
        output.write_text(json.dumps(merged), encoding="utf-8")
    lines, fared = timeline.stages(merged), timeline.requests(merged)
    dropped = timeline.dropped(merged)
    if as_json:
        print_json({"stages": lines, "requests": fared, "dropped": dropped})
        return
    console = wide_console()
    console.print(stage_table(lines))
    if fared:
        console.print(request_table(fared))
    if dropped:
        click.echo(f"{plural(dropped, 'event')} had to be dropped", err=True)
    if output is not None:
        click.echo(f"{output}: {plural(len(merged['traceEvents']), 'event')}")


def amount(line: timeline.Line) -> str:
    if not line.amount:
        return ""
    return f"{line.amount:,} records" if line.stage == "locate" else size(line.amount)


def stage_table(lines: list[timeline.Line]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("process")
    table.add_column("stage")
    for column in ("spans", "seconds", "mean ms", "longest ms", "amount"):
        table.add_column(column, justify="right")
    for line in lines:
        table.add_row(
            line.process,
            line.stage,
            f"{line.count:,}",
            f"{line.seconds:.3f}",
            f"{1e3 * line.seconds / line.count:.3f}",
            f"{1e3 * line.longest_seconds:.3f}",
            amount(line),
        )
    return table


def request_table(fared: list[timeline.Requests]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("process")
    table.add_column("requests")
    for column in (
        "count",
        "bytes",
        "queued ms (p50, p99, max)",
        "service ms (p50, p99, max)",
        "depth",
        "while busy",
    ):
        table.add_column(column, justify="right")
    for one in fared:
        table.add_row(
            one.process,
            one.way + (f", {one.failed} failed" if one.failed else ""),
            f"{one.count:,}",
            size(one.bytes),
            " ".join(f"{ms:.3f}" for ms in one.queue_ms),
            " ".join(f"{ms:.3f}" for ms in one.service_ms),
            f"{one.depth:.1f}",
            f"{size(one.bytes / one.busy_seconds)}/s" if one.busy_seconds else "",
        )
    return table


# --- demo --------------------------------------------------------------------------------


@cli.command()
@click.option(
    "--data", type=PATH, default=Path("demo-data"), show_default=True,
    help="Folder of the data sets (1.2 GB); kept, and reused.",
)  # fmt: skip
@click.option(
    "--out", type=PATH, default=Path("demo-results"), show_default=True,
    help="Folder for demo.json and demo.png.",
)  # fmt: skip
@click.option(
    "--repeats", type=click.IntRange(1), default=5, show_default=True,
    help="Timed runs of each contestant.",
)  # fmt: skip
@click.option(
    "--megabytes", type=click.IntRange(1), default=504, show_default=True,
    help="Of values, in each data set (10^6 bytes).",
)  # fmt: skip
@json_option
def demo(data: Path, out: Path, repeats: int, megabytes: int, as_json: bool) -> None:
    """Write two data sets, race lmdbio against py-lmdb, show one table.

    The data sets are written by py-lmdb as Caffe's converter does. First every value that any
    contestant reads is compared with py-lmdb's, then each one is timed, in turns, on a cold
    page cache (figures are marked where it can't be dropped). Exit status 1 if any value
    differed.

    \b
    Examples:
        lmdbio demo
        lmdbio demo --data /lustre/me/demo --out .       on the storage you care about
        lmdbio demo --megabytes 20 --repeats 1           a quick look
    """
    from dataclasses import replace

    missing = [name for name in ("PIL", "matplotlib") if find_spec(name) is None]
    if missing:
        raise click.ClickException(
            f"no {', no '.join(missing)} here; the demonstration needs: pip install 'lmdbio[demo]'"
        )
    from lmdbio.bench import datasets, processes, report
    from lmdbio.bench import demo as demonstration

    console = wide_console(stderr=as_json)
    recipes = tuple(
        replace(recipe, value_bytes_min=megabytes * 10**6)
        for recipe in (datasets.CIFAR, datasets.JPEG)
    )
    plan = demonstration.Plan(data=data, out=out, repeats=repeats, recipes=recipes)
    with processes.ended_by_signals():
        made = demonstration.run(plan, console)
    report.show(made, console)
    if as_json:
        print_json(report.as_json(made))
    else:
        console.print(
            f"[dim]{out / 'demo.json'} and {out / 'demo.png'}, {made.seconds:.0f} s[/]",
            highlight=False,
        )
    if not made.equal:
        sys.exit(1)
