"""The order of events of ``lmdbio bench``.

    locate the records -> verify every reader of records -> alternate everybody -> write it down

Ctrl-C, SIGTERM or SIGHUP ends it at any point: what was measured up to then is written.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import lmdb
import numpy as np
from rich.console import Console
from rich.progress import Progress, TaskID

from lmdbio.bench import measure, processes, trials
from lmdbio.bench.bars import bars
from lmdbio.bench.findings import Findings, Row, as_json
from lmdbio.bench.page import page
from lmdbio.bench.processes import SECONDS_MAX
from lmdbio.bench.trials import CONTESTANTS, Trial, Workload
from lmdbio.bench.workplace import Workplace, make_folder, workplace
from lmdbio.locate.open import open_record_index
from lmdbio.provenance import data_files
from lmdbio.system.signals import ended_by_signals, number_of

__all__ = [
    "BYTES_MAX",
    "BYTES_MAX_RANDOM",
    "START_UP_BYTES",
    "Options",
    "alternate",
    "describe",
    "missing",
    "run",
    "start_up_note",
    "verify",
    "versions",
    "warm",
]

KIB, MIB = 2**10, 2**20
#: From requests that cost more than their bytes to those that cost their bytes alone.
TRANSFERS = (64 * KIB, MIB, 16 * MIB)
#: Of the file, read by one run: enough for a steady rate, little enough for many runs.
BYTES_MAX, BYTES_MAX_RANDOM = 128 * MIB, 32 * MIB
#: From here on a run is said to take its time.
SECONDS_SILENT = 3.0
#: A run of fewer bytes, in order and at random, measures how a program starts as much as it reads.
START_UP_BYTES, START_UP_BYTES_RANDOM = 64 * MIB, 24 * MIB


@dataclass(frozen=True, slots=True)
class Options:
    """The benchmark to be run.

    Attributes:
        path: the environment, or a folder or a pattern of several.
        access: "sequential", "strided" or "random".
        contestants: names of the contestants.
        transfers: bytes of a request, for those that read bytes; None: ``TRANSFERS``, at
            random with a record's size before them.
        processes: number of processes that read at the same time.
        batch: records of a batch, over all processes.
        repeats: number of timed runs of each.
        cold: whether each run finds the file out of the page cache.
        seconds_max: time after which no further run begins.
        limit_seconds: a run that takes longer has failed.
        consume: whether every byte of every value is looked at, by a checksum.
        db: a named database, "" for the main one.
        bytes_max: size of what each run reads, bytes; None: ``BYTES_MAX``, ``BYTES_MAX_RANDOM``.
        json_file, html_file: files for the results.
    """

    path: Path
    access: str
    contestants: tuple[str, ...]
    transfers: tuple[int, ...] | None
    processes: int
    batch: int
    repeats: int
    cold: bool
    seconds_max: float
    bytes_max: int | None
    json_file: Path
    html_file: Path
    limit_seconds: float = SECONDS_MAX
    consume: bool = False
    db: str = ""


def run(options: Options, console: Console) -> Findings:
    """Does everything, writes the files and returns what they say.

    Raises:
        OSError, lmdb.Error: the data set cannot be read, or the files not be written.
        ValueError: it holds no records.
    """
    begun = time.monotonic()
    with console.status("locate the records"):
        usual = BYTES_MAX_RANDOM if options.access == "random" else BYTES_MAX
        work = describe(
            options.path, options.access, processes=options.processes, batch=options.batch,
            bytes_max=options.bytes_max or usual, db=options.db,
        )  # fmt: skip
    make_folder(options.html_file.parent, "--html")
    make_folder(options.json_file.parent, "--json-file")
    found = Findings(
        machine=measure.machine(Path(work.data_file)),
        workload=work,
        cold=options.cold,
        repeats=options.repeats,
        began=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
        versions=versions(),
    )
    with workplace() as bench:
        bench.warm, bench.consume = not options.cold, options.consume
        bench.limit_seconds = options.limit_seconds
        made = trials.make_trials(
            work, options.contestants, options.transfers or sizes(work), missing(work)
        )
        found.rows = [bench.row(trial, work) for trial in made]
        try:
            with ended_by_signals():
                verify(bench, found.rows, console)
                if not options.cold:
                    warm(work.path, work.file_bytes, console)
                ending = begun + options.seconds_max
                rounds = alternate(bench, found.rows, options.repeats, console, ending=ending)
        except KeyboardInterrupt as interrupt:
            found.interrupted = number_of(interrupt)
            found.notes.append("Interrupted: the figures are of what was measured up to then.")
        else:
            if rounds < options.repeats:
                found.notes.append(
                    f"Stopped after {rounds} of {options.repeats} rounds: "
                    f"{options.seconds_max:g} s were up (--seconds-max)."
                )
    found.notes += remarks(found)
    found.seconds = time.monotonic() - begun
    write(found, options)
    return found


def versions() -> dict[str, str]:
    """Of the programs that take part, as far as they say."""
    reported = {
        "py-lmdb": lmdb.__version__,
        "LMDB": ".".join(map(str, lmdb.version())),
        "Python": sys.version.split()[0],
    }
    if shutil.which("fio"):
        done = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=False)
        reported["fio"] = done.stdout.strip()
    return reported


def describe(
    path: Path, access: str, *, processes: int, batch: int, bytes_max: int | None, db: str = ""
) -> Workload:
    """A workload on a data set.

    Args:
        path: the environment, or a folder or a pattern of several.
        access: order of the reads (``trials``).
        processes: number of processes that read at the same time.
        batch: records of a batch, over all processes.
        bytes_max: size of the records read, bytes; rounded up to a whole batch. None: every
            record.
        db: a named database, "" for the main one.

    Raises:
        OSError, lmdb.Error: it cannot be read.
        ValueError: it holds too little.
    """
    files = data_files(path)
    data = Path(files[0])
    named = f"{data}, database {db!r}" if db else str(data)
    with open_record_index(path, db=db or None) as source:
        if source.count == 0:
            raise ValueError(f"{named}: the data set holds no records: there is nothing to read")
        batch = min(batch, source.count)
        # Several databases share a file: what counts is this one's records.
        every = source.extents(np.arange(source.count, dtype=np.uint64)) if db else None
        own = int(every["length"].sum()) if every is not None else source.used_bytes
        work = Workload(
            path=str(path.absolute()),
            data_file=str(data.absolute()),
            access=access,
            processes=processes,
            batch=batch,
            count=source.count
            if bytes_max is None
            else trials.records_wanted(source.count, max(1, own), batch, bytes_max),
            total=source.count,
            file_bytes=source.used_bytes,
            located_by=source.locate,
            db=db,
            files=len(files),
        )
        extents = source.extents(work.indices())
    if batch < processes:
        raise ValueError(f"{named}: fewer records in a batch than processes ({processes})")
    pages = trials.page_bytes(extents["offset"], extents["length"])
    if pages == 0:
        raise ValueError(f"{named}: all values are empty: there is nothing to read")
    return replace(work, value_bytes=int(extents["length"].sum()), page_bytes=pages)


def sizes(work: Workload) -> tuple[int, ...]:
    """Transfers, where none were asked for."""
    if work.access != "random":
        return TRANSFERS
    return tuple(sorted({work.record_bytes, *TRANSFERS[:2]}))


def missing(work: Workload) -> dict[str, str]:
    """Why contestants cannot run on this machine."""
    absent = {}
    for name, one in CONTESTANTS.items():
        is_pread = one.engine in ("auto", "pread")
        if work.files > 1 and (one.raw or one.kind == "open" or not is_pread):
            absent[name] = f"reads one file, and there are {work.files:,}"
            continue
        if one.kind in ("fio", "ior") and shutil.which(one.kind) is None:
            absent[name] = f"{one.kind} is not installed"
        if one.kind == "ior" and work.processes > 1 and processes.mpiexec() is None:
            absent[name] = "there is no mpiexec"
        if one.kind == "reader" and work.processes > 1:
            if importlib.util.find_spec("mpi4py") is None:
                absent[name] = "mpi4py is not installed (pip install 'lmdbio[mpi]')"
            elif processes.mpiexec() is None:
                absent[name] = "there is no mpiexec"
    return absent


def verify(bench: Workplace, rows: Sequence[Row], console: Console) -> None:
    """Compares what each reader of records hands out with what py-lmdb does."""
    wanted = [row for row in rows if not (row.trial.skipped or row.trial.contestant.raw)]
    if not wanted:
        return
    references: dict[Workload, int] = {}
    with bars(console, sizes=False) as progress:
        task = progress.add_task("verify", total=len(wanted))
        for row in wanted:
            waiting = reported(progress, task, f"verify {row.title}", bench.limit_seconds)
            # The processes share the records, so that one process reads the same.
            alone = replace(row.work, processes=1)
            try:
                if alone not in references:
                    first = Row(Trial("lmdb"), alone)
                    references[alone] = bench.start(first, verify=True, waiting=waiting).digest
                outcome = bench.start(row, verify=True, waiting=waiting)
                row.verified = outcome.digest == references[alone]
                row.wrong = "" if row.verified else "its records differ from py-lmdb's"
            except processes.RunFailed as error:
                row.wrong = str(error)
            progress.advance(task)
        progress.update(task, description="verify")


def reported(progress: Progress, task: TaskID, text: str, limit: float) -> processes.Waiting:
    """Shows what runs, and how long it has taken once that is long."""
    progress.update(task, description=text)

    def waiting(seconds: float) -> None:
        if seconds >= SECONDS_SILENT:
            progress.update(task, description=f"{text}: {seconds:.0f} of at most {limit:g} s")

    return waiting


def warm(path: Path | str, size: int, console: Console) -> None:
    """Brings the file, or several, to the page cache."""
    with bars(console, sizes=True) as progress:
        task = progress.add_task("warm", total=size)
        for data in map(Path, data_files(path)):
            with data.open("rb", buffering=0) as file:
                while part := file.read(8 * MIB):
                    progress.advance(task, len(part))


def alternate(
    bench: Workplace,
    rows: Sequence[Row],
    repeats: int,
    console: Console,
    *,
    ending: float = math.inf,
    title: str = "measure",
) -> int:
    """Runs everybody in turn, again and again, as long as there is time.

    Args:
        bench: Workplace that starts the runs.
        rows: contestants; each gets its runs, or the error of one.
        repeats: number of rounds.
        console: Console that shows the progress.
        ending: deadline on the clock of ``time.monotonic``; no round begins that would end later.
        title: title of the progress.

    Returns:
        The rounds that were begun and ended.
    """
    running = [row for row in rows if not (row.wrong or row.trial.skipped)]
    longest = 0.0
    with bars(console, sizes=False) as progress:
        task = progress.add_task(title, total=repeats * len(running))
        for number in range(repeats):
            started = time.monotonic()
            if number and started + longest > ending:
                progress.update(task, total=progress.tasks[task].completed)
                return number
            # Every other time backwards: whatever else the machine does meets all alike.
            for row in running if number % 2 == 0 else running[::-1]:
                if number and time.monotonic() > ending:
                    return number
                text = f"{title} {row.label}"
                one_run(bench, row, reported(progress, task, text, bench.limit_seconds))
                progress.advance(task)
            longest = max(longest, time.monotonic() - started)
        progress.update(task, description=title)
    return repeats


def one_run(bench: Workplace, row: Row, waiting: processes.Waiting | None = None) -> None:
    """One timed run of one row; a failure is its last."""
    if row.wrong:
        return
    try:
        outcome = bench.start(row, waiting=waiting)
    except processes.RunFailed as error:
        row.wrong = str(error)
        return
    expected = row.trial.bytes if row.trial.contestant.raw else row.work.value_bytes
    got = outcome.sample.value_bytes if outcome.sample else 0
    if got != expected:
        row.wrong = f"read {got:,} bytes instead of {expected:,}"
        return
    if row.runs and row.runs[0].digest != outcome.digest:
        row.wrong = "two runs read different bytes"
        return
    row.runs.append(outcome)


def remarks(found: Findings) -> list[str]:
    """Return notes that a reader of these figures needs."""
    work, said = found.workload, []
    if found.cold and found.measured and not found.was_cold:
        said.append(
            "The file could not be put out of the page cache (another process maps it, or the "
            "file system keeps its pages in memory): figures marked * are warm."
        )
    if found.cold and not work.whole and work.access == "random":
        said.append(
            "A part of an epoch is read, as of a set that is larger than memory: Records.read is "
            "told to bring nothing else to memory (readahead=False)."
        )
    enough = START_UP_BYTES_RANDOM if work.access == "random" else START_UP_BYTES
    if work.page_bytes < enough:
        said.append(start_up_note(work.page_bytes, "--bytes-max, if the data set has them"))
    base = found.baseline
    fetched = base.of_samples("fetched_bytes") if base is not None else None
    ahead = fetched is not None and found.was_cold and fetched.median > 1.5 * work.page_bytes
    if fetched is not None and ahead and work.access == "random":
        said.append(
            f"py-lmdb fetched {fetched.median / MIB:,.0f} MiB for the "
            f"{work.page_bytes / MIB:,.0f} MiB asked for: the kernel's readahead brings what "
            "later batches find in memory. That ends where the set is larger than memory."
        )
    if any(row.family == "ior" and row.rates for row in found.rows):
        said.append("ior reads a symbolic link to the file; its CPU time includes MPI's start.")
    return said


def start_up_note(read_bytes: int, option: str) -> str:
    """Say that runs were too short to tell a rate, and which option makes them longer."""
    return (
        f"A run reads {read_bytes / MIB:,.0f} MiB only: its time is that of opening and of the "
        f"first requests as much as that of reading. Give it more ({option}) before you judge."
    )


def write(found: Findings, options: Options) -> None:
    text = json.dumps(as_json(found), indent=1)
    options.json_file.write_text(text + "\n", encoding="utf-8")
    options.html_file.write_text(page(found), encoding="utf-8")
