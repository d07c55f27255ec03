"""The order of events of ``lmdbio bench``.

    locate the records -> verify every reader of records -> alternate everybody -> write it down

Ctrl-C ends it at any point: what was measured up to then is written.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import lmdb
from rich.console import Console

import lmdbio
from lmdbio.bench import layout, measure, processes, readers, trials
from lmdbio.bench.bars import bars
from lmdbio.bench.findings import Findings, Row, as_json
from lmdbio.bench.page import page
from lmdbio.bench.runner import Order, Outcome, ranks_by_mpi
from lmdbio.bench.trials import CONTESTANTS, Trial, Workload
from lmdbio.locate import open_source
from lmdbio.provenance import data_file, find_sidecar

__all__ = ["BYTES_MAX", "BYTES_MAX_RANDOM", "Options", "run"]

KIB, MIB = 2**10, 2**20
#: From requests that cost more than their bytes to those that cost their bytes alone.
TRANSFERS = (64 * KIB, MIB, 16 * MIB)
#: Of the file, read by one run: enough for a steady rate, little enough for many runs.
BYTES_MAX, BYTES_MAX_RANDOM = 128 * MIB, 32 * MIB
#: A contestant that is this slow has hung.
RUN_SECONDS_MAX = 300.0
MODULE = "lmdbio.bench.runner"


@dataclass(frozen=True, slots=True)
class Options:
    """What to do.

    Attributes:
        path: the environment.
        access: "sequential", "strided" or "random".
        contestants: names.
        transfers: bytes of a request, for those that read bytes; None: ``TRANSFERS``, at
            random with a record's size before them.
        processes: that read at the same time.
        batch: records of a batch, over all processes.
        repeats: timed runs of each.
        cold: put the file out of the page cache before each run.
        seconds_max: no further run begins after so long.
        bytes_max: of the file, read by each run; None: ``BYTES_MAX``, ``BYTES_MAX_RANDOM``.
        json_file, html_file: where to write.
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


def run(options: Options, console: Console) -> Findings:
    """Does everything, writes the files and returns what they say.

    Raises:
        OSError, lmdb.Error: the data set cannot be read, or the files not be written.
        ValueError: it holds no records.
    """
    begun = time.monotonic()
    with console.status("locate the records"):
        work, sidecar = describe(options)
    for file in (options.json_file, options.html_file):
        file.parent.mkdir(parents=True, exist_ok=True)
    found = Findings(
        machine=measure.machine(Path(work.data_file)),
        workload=work,
        cold=options.cold,
        repeats=options.repeats,
        began=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
        versions=versions(),
    )
    with workplace(work) as bench:
        bench.sidecar = sidecar
        made = trials.make_trials(
            work, options.contestants, options.transfers or sizes(work), missing(work)
        )
        found.rows = [Row(trial, bench.command(trial)) for trial in made]
        try:
            verify(bench, found, console)
            if not options.cold:
                warm(Path(work.data_file), work.file_bytes, console)
            alternate(bench, found, options, begun, console)
        except KeyboardInterrupt:
            found.interrupted = True
            found.notes.append("Interrupted: the figures are of what was measured up to then.")
    found.notes += remarks(found)
    found.seconds = time.monotonic() - begun
    write(found, options)
    return found


def versions() -> dict[str, str]:
    """Of the programs that take part, as far as they say."""
    told = {
        "py-lmdb": lmdb.__version__,
        "LMDB": ".".join(map(str, lmdb.version())),
        "Python": sys.version.split()[0],
    }
    if shutil.which("fio"):
        done = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=False)
        told["fio"] = done.stdout.strip()
    return told


def describe(options: Options) -> tuple[Workload, Path]:
    """The records that everybody will read, and where a sidecar would lie."""
    data = data_file(options.path)
    with open_source(options.path) as source:
        if source.count == 0:
            raise ValueError(f"{data}: the data set holds no records: there is nothing to read")
        bytes_max = options.bytes_max or (
            BYTES_MAX_RANDOM if options.access == "random" else BYTES_MAX
        )
        batch = min(options.batch, source.count)
        work = Workload(
            path=str(options.path.absolute()),
            data_file=str(data.absolute()),
            access=options.access,
            processes=options.processes,
            batch=batch,
            count=trials.records_wanted(source.count, source.used_bytes, batch, bytes_max),
            total=source.count,
            file_bytes=source.used_bytes,
            located_by=source.locate,
        )
        extents = source.extents(work.indices())
    if work.count < options.processes or batch < options.processes:
        raise ValueError(f"{data}: fewer records in a batch than processes ({options.processes})")
    pages = trials.page_bytes(extents["offset"], extents["length"])
    if pages == 0:
        raise ValueError(f"{data}: all values are empty: there is nothing to read")
    described = replace(work, value_bytes=int(extents["length"].sum()), page_bytes=pages)
    return described, find_sidecar(data)


def sizes(work: Workload) -> tuple[int, ...]:
    """Transfers, where none were asked for."""
    if work.access != "random":
        return TRANSFERS
    return tuple(sorted({work.record_bytes, *TRANSFERS[:2]}))


class Workplace:
    """Starts runs, and keeps what they share in a folder of its own."""

    def __init__(self, work: Workload, folder: Path) -> None:
        self.work, self.folder = work, folder
        self.sidecar: Path | None = None
        self.keys = ""

    def command(self, trial: Trial) -> tuple[str, ...]:
        """The command line of fio or ior; empty for everybody else."""
        one, made = trial.contestant, self.work.layout(trial.transfer or layout.GRAIN)
        if trial.skipped or made is None:
            return ()
        if one.kind == "fio":
            data = self.work.data_file
            return tuple(layout.fio_command(made, data, direct=one.direct, depth=one.depth))
        if one.kind == "ior":
            mpi = processes.mpiexec()
            return tuple(
                layout.ior_command(made, self.link(), self.summary, mpi, direct=one.direct)
            )
        return ()

    @property
    def summary(self) -> str:
        """Where ior writes."""
        return str(self.folder / "ior.json")

    def link(self) -> str:
        """Another name of the data file: whatever ior removes at its end, it is not the data."""
        link = self.folder / "data"
        if not link.is_symlink():
            link.symlink_to(self.work.data_file)
        return str(link)

    def order(self, row: Row, *, warm: bool, verify: bool) -> Order:
        one = row.trial.contestant
        keyed = self.work.access == "random" and one.kind in ("lmdb", "open")
        if keyed and not self.keys:
            self.keys = str(write_keys(self.work, self.folder / "keys"))
        return Order(
            workload=self.work,
            trial=row.trial,
            keys=self.keys if keyed else "",
            warm=warm,
            verify=verify,
            command=row.command,
            summary=self.summary,
            drop=(str(self.sidecar),)
            if self.sidecar is not None and self.sidecar.exists()
            else (),
        )

    def start(self, row: Row, *, warm: bool = False, verify: bool = False) -> Outcome:
        """Does one run.

        Raises:
            RunFailed: it failed.
        """
        order = self.order(row, warm=warm, verify=verify)
        python = [sys.executable, "-m", MODULE]
        if ranks_by_mpi(order):
            mpiexec = [processes.mpiexec() or "mpiexec", "-n", str(self.work.processes)]
            # mpi4py's runner ends all ranks when one of them raises.
            python = [*mpiexec, sys.executable, "-m", "mpi4py", "-m", MODULE]
        environment = processes.inherited()
        command = [*python, json.dumps(asdict(order))]
        return Outcome.parse(processes.call(command, row.title, environment, RUN_SECONDS_MAX))


@contextmanager
def workplace(work: Workload) -> Iterator[Workplace]:
    with tempfile.TemporaryDirectory(prefix="lmdbio-bench-") as folder:
        yield Workplace(work, Path(folder))


def write_keys(work: Workload, file: Path) -> Path:
    """The keys of the records to read, in their order, for those who look records up by key."""
    wanted = work.indices().tolist()
    missing_keys = set(wanted)
    keys: dict[int, bytes] = {}
    env = readers.opened(lmdbio, work.path, {})
    with env, env.begin() as txn:
        for index, key in enumerate(txn.cursor().iternext(keys=True, values=False)):
            if index in missing_keys:
                keys[index] = key
                if len(keys) == len(missing_keys):
                    break
    file.write_text("\n".join(keys[index].hex() for index in wanted), encoding="ascii")
    return file


def missing(work: Workload) -> dict[str, str]:
    """Why contestants cannot run on this machine."""
    absent = {}
    for name, one in CONTESTANTS.items():
        if one.kind in ("fio", "ior") and shutil.which(one.kind) is None:
            absent[name] = f"{one.kind} is not installed"
        if one.kind == "ior" and work.processes > 1 and processes.mpiexec() is None:
            absent[name] = "there is no mpiexec"
        if one.kind == "reader" and work.processes > 1:
            if importlib.util.find_spec("mpi4py") is None:
                absent[name] = "mpi4py is not installed"
            elif processes.mpiexec() is None:
                absent[name] = "there is no mpiexec"
    return absent


def verify(bench: Workplace, found: Findings, console: Console) -> None:
    """Compares what each reader of records hands out with what py-lmdb does."""
    rows = [row for row in found.rows if not (row.trial.skipped or row.trial.contestant.raw)]
    if not rows:
        return
    with bars(console, sizes=False) as progress:
        task = progress.add_task("verify", total=len(rows) + 1)
        reference = bench.start(Row(Trial("lmdb")), warm=True, verify=True).digest
        progress.advance(task)
        for row in rows:
            progress.update(task, description=f"verify {row.title}")
            try:
                row.verified = bench.start(row, warm=True, verify=True).digest == reference
                row.wrong = "" if row.verified else "its records differ from py-lmdb's"
            except processes.RunFailed as error:
                row.wrong = str(error)
            progress.advance(task)
        progress.update(task, description="verify")


def warm(data: Path, size: int, console: Console) -> None:
    """Brings the file to the page cache."""
    with bars(console, sizes=True) as progress, data.open("rb", buffering=0) as file:
        task = progress.add_task("warm", total=size)
        while part := file.read(8 * MIB):
            progress.advance(task, len(part))


def alternate(
    bench: Workplace, found: Findings, options: Options, begun: float, console: Console
) -> None:
    """Runs everybody in turn, again and again, as long as there is time."""
    rows = {row.trial: row for row in found.rows if not row.wrong}
    rounds = trials.turns(list(rows), options.repeats)
    longest = 0.0
    with bars(console, sizes=False) as progress:
        task = progress.add_task("measure", total=sum(map(len, rounds)))
        for number, turn in enumerate(rounds):
            started = time.monotonic()
            if number and started + longest - begun > options.seconds_max:
                found.notes.append(stopped(number, options))
                progress.update(task, total=progress.tasks[task].completed)
                break
            for trial in turn:
                if time.monotonic() - begun > options.seconds_max:
                    found.notes.append(stopped(number, options))
                    return
                progress.update(task, description=f"measure {rows[trial].label}")
                one_run(bench, rows[trial], found, warm=not options.cold)
                progress.advance(task)
            longest = max(longest, time.monotonic() - started)
        progress.update(task, description="measure")


def one_run(bench: Workplace, row: Row, found: Findings, *, warm: bool) -> None:
    """One timed run of one trial; a failure is its last."""
    if row.wrong:
        return
    try:
        outcome = bench.start(row, warm=warm)
    except processes.RunFailed as error:
        row.wrong = str(error)
        return
    expected = row.trial.bytes if row.trial.contestant.raw else found.workload.value_bytes
    got = outcome.sample.value_bytes if outcome.sample else 0
    if got != expected:
        row.wrong = f"read {got:,} bytes instead of {expected:,}"
        return
    row.runs.append(outcome)


def stopped(rounds: int, options: Options) -> str:
    return (
        f"Stopped after {rounds} of {options.repeats} rounds: {options.seconds_max:g} s were up "
        "(--seconds-max)."
    )


def remarks(found: Findings) -> list[str]:
    """What a reader of these figures should know."""
    work, said = found.workload, []
    if found.cold and found.measured and not found.was_cold:
        said.append(
            "The file could not be put out of the page cache (another process maps it, or the "
            "file system keeps its pages in memory): figures marked * are warm."
        )
    if not work.whole and work.access == "random":
        said.append(
            "A part of an epoch is read, as of a set that is larger than memory: Records.read is "
            "told to bring nothing else to memory (readahead=False)."
        )
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


def write(found: Findings, options: Options) -> None:
    text = json.dumps(as_json(found), indent=1)
    options.json_file.write_text(text + "\n", encoding="utf-8")
    options.html_file.write_text(page(found), encoding="utf-8")
