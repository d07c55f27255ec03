"""Collect what ``lmdbio doctor`` judges: of a data set, its storage, and the machine.

Everything is bounded: some records, no walk, no measurement but of a transform. A fact that cannot
be had is None, and only the data file itself may fail.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from importlib import metadata
from itertools import cycle
from pathlib import Path
from typing import Any

from lmdbio import provenance
from lmdbio._core import Engine
from lmdbio.bench.processes import mpiexec
from lmdbio.cli import one_line
from lmdbio.cli.file_facts import hashed_bytes, sidecar_status
from lmdbio.cli.options import checked
from lmdbio.cli.records import read_record
from lmdbio.doctor.facts import (
    DataFacts,
    Facts,
    LockFacts,
    MachineFacts,
    ProvenanceFacts,
    SampleFacts,
    TransformFacts,
    TunedFacts,
)
from lmdbio.errors import Error, IncompatibleError, MovedError
from lmdbio.inside.keytext import show_key
from lmdbio.inside.summary import count_kinds, describe_keys, key_forms
from lmdbio.locate.view import DatabaseView, Seen, sample_order
from lmdbio.machine import calibration, storage
from lmdbio.machine.budget import available_bytes, budget_bytes, cached_bytes_max, control_groups
from lmdbio.machine.page_reporting import reported_order
from lmdbio.machine.storage import Storage
from lmdbio.share import LAUNCHED
from lmdbio.share.meeting import Place, place_of_torchrun
from lmdbio.system import procfs, reader_slots
from lmdbio.system.pylmdb import lmdb
from lmdbio.tuning.threads import call_at_once

__all__ = ["collect", "function_named", "job_facts", "transform_facts", "values_of"]

#: Records that are looked at.
RECORDS = 64
#: Forms of keys, and kinds, that a sentence names.
FORMS_DISPLAYED, KINDS_DISPLAYED = 3, 4
FREE_RECORDS_MAX = 4096
#: An mpiexec that says nothing for so long is not asked any further.
LAUNCHER_SECONDS = 3.0
#: Bytes of the values that a transform decodes again and again, at most, but for one record.
BYTES_MAX = 64 << 20
#: Seconds of a measurement, about, and pairs of such: by one thread, by two.
SECONDS, PAIRS = 0.1, 5
#: Bytes that are hashed where a function is needed that lets go of the lock.
FREE_BYTES = 1 << 18
#: Of a limit that is none, as of cgroups.
UNBOUNDED = 1 << 62
SHM = "/dev/shm"


def collect(view: DatabaseView, path: Path, sidecar: Path | None) -> Facts:
    """Return all facts.

    Args:
        view: view of the database.
        path: path as the user named it.
        sidecar: the provenance file, where the user named one.

    Raises:
        MovedError: writers commit while it is looked at.
        OSError, Error: the data file cannot be read.
    """
    engine = view.engine
    data, sample = data_facts(view, engine), SampleFacts()
    try:
        sample = sample_facts(view)
    except MovedError:
        raise
    except (lmdb.Error, OSError) as error:
        data = replace(data, damage=one_line(error))
    view.guard()
    under = storage.inspect(engine, thorough=True)
    return Facts(
        path=str(path),
        name="" if view.name is None else show_key(view.name),
        data=data,
        sample=sample,
        storage=under,
        uring=uring_fact(engine),
        locks=lock_facts(Path(view.path), view.meta.txnid, under),
        machine=machine_facts(),
        provenance=provenance_facts(view, engine, sidecar),
        tuned=tuned_facts(under),
    )


# --- the data -----------------------------------------------------------------------------


def data_facts(view: DatabaseView, engine: Engine) -> DataFacts:
    page, db = view.meta.layout.page_size, view.db
    named = view.databases()
    free = None
    with contextlib.suppress(OSError, Error, lmdb.Error):
        free = view.free_pages(FREE_RECORDS_MAX)
    return DataFacts(
        file_bytes=engine.size(),
        used_bytes=(view.meta.last_pgno + 1) * page,
        free_bytes=None if free is None else free * page,
        entries=db.entries,
        tree_bytes=(db.branch_pages + db.leaf_pages) * page,
        named=[show_key(name) for name, _ in named],
        holds_named_only=bool(named) and len(named) == db.entries,
    )


def sampled(view: DatabaseView) -> list[Seen]:
    """Return some records, spread evenly."""
    spread = view.spread([(number + 0.5) / RECORDS for number in range(RECORDS)])
    return [seen for seen in spread if seen.database is None]


def sample_facts(view: DatabaseView) -> SampleFacts:
    records = [read_record(view, seen) for seen in sampled(view)]
    if not records:
        return SampleFacts()
    sizes = [one.seen.length for one in records]
    kinds = count_kinds(one.kind for one in records)
    forms = key_forms((one.seen.key for one in records), integers=view.has_integer_keys)
    order = sample_order(view, (one.seen.key for one in records))
    return SampleFacts(
        records=len(records),
        median_bytes=int(statistics.median(sizes)),
        largest_bytes=max(sizes),
        kinds=", ".join(
            f"{title} ({count / len(records):.0%})" if len(kinds) > 1 else title
            for title, count in kinds[:KINDS_DISPLAYED]
        ),
        keys=describe_keys(forms, FORMS_DISPLAYED),
        ascending=order.ascending,
        adjacent=order.adjacent,
    )


def provenance_facts(view: DatabaseView, engine: Engine, sidecar: Path | None) -> ProvenanceFacts:
    place = provenance.find_sidecar(view.path, sidecar)
    found = sidecar_status(engine, view.meta, place)
    return ProvenanceFacts(found["status"], found["reason"], hashed_bytes(found))


def tuned_facts(under: Storage) -> TunedFacts:
    found = calibration.load(calibration.identity(under)).calibration
    if found is None:
        return TunedFacts()
    samples = found.samples
    streams = [one.rate for one in samples if one.pattern == "stream"]
    random = [one for one in samples if one.pattern == "random"]
    # The smallest requests tell what records at random cost.
    smallest = min((one.request_bytes for one in random), default=0)
    rates = [one.rate for one in random if one.request_bytes == smallest]
    return TunedFacts(
        when=time.strftime("%Y-%m-%d", time.localtime(found.measured)),
        stream_rate=max(streams, default=None),
        random_rate=max(rates, default=None),
        random_bytes=smallest,
    )


# --- the file's surroundings --------------------------------------------------------------


def uring_fact(engine: Engine) -> bool | None:
    try:
        with engine.again("uring", 1):
            return True
    except IncompatibleError:
        return False
    except (OSError, Error, MemoryError):
        return None


def lock_facts(data: Path, txnid: int, under: Storage) -> LockFacts:
    """Look at the lock file; nothing is made, and no slot is taken.

    Args:
        data: the data file.
        txnid: number of its newest transaction.
        under: its Storage; locks on a file system of servers, which can hang, are left alone.
    """
    is_folder = data.name == "data.mdb"
    lock = data.with_name("lock.mdb") if is_folder else data.with_name(f"{data.name}-lock")
    if not lock.exists():
        return LockFacts(False, os.access(lock.parent, os.W_OK | os.X_OK))
    if not os.access(lock, os.R_OK | os.W_OK):
        return LockFacts(True, False)
    if not (under.disk or under.in_memory):
        return LockFacts(True, True, unseen="this is no disk of this machine")
    try:
        table, why = reader_table(data, subdir=is_folder)
    except (lmdb.Error, OSError, MemoryError) as error:
        return LockFacts(True, True, unseen=str(error))
    if table is None:
        return LockFacts(True, True, unseen=why)
    pids, oldest = read_table(table)
    stale = sum(not is_alive(pid) for pid in pids)
    behind = None if oldest is None else max(0, txnid - oldest)
    return LockFacts(True, True, len(pids), stale, behind)


def reader_table(data: Path, *, subdir: bool) -> tuple[str | None, str]:
    """Return py-lmdb's table of reader slots, and ""; None, and why it cannot be had."""
    status = data.stat()
    path = str(data.parent if subdir else data)
    key = status.st_dev, status.st_ino
    slots, why = reader_slots.acquire(path, key, subdir=subdir, max_readers=126)
    return (None, why) if slots is None else (str(slots.env.readers()), "")


def read_table(table: str) -> tuple[list[int], int | None]:
    """Return the processes that hold slots, and the oldest snapshot among them."""
    pids, oldest = [], None
    for line in table.splitlines():
        fields = line.split()
        if len(fields) < 3 or not fields[0].isdecimal():
            continue
        if fields[2].isdecimal():
            oldest = min(int(fields[2]), int(fields[2]) if oldest is None else oldest)
        pids.append(int(fields[0]))
    return pids, oldest


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


# --- the machine --------------------------------------------------------------------------


def job_facts() -> dict[str, Any]:
    """Return what ``MachineFacts`` says of the job of this process; MPI is not started."""
    version = ""
    with contextlib.suppress(metadata.PackageNotFoundError):
        version = metadata.version("mpi4py")
    ranks = next((os.environ[name] for name in LAUNCHED if os.environ.get(name)), "")
    place = place_of_torchrun() or Place(int(ranks) if ranks.isdecimal() else 0, 0)
    return {
        "mpi4py": version,
        "ranks": place.ranks,
        "machines": place.machines,
        "address": place.address,
        "unreachable": place.problem,
    }


def machine_facts() -> MachineFacts:
    """Look at the machine, and for MPI without starting it."""
    files, hard = (_bounded(each) for each in resource.getrlimit(resource.RLIMIT_NOFILE))
    available = available_bytes()
    of_machine = procfs.statistic("/proc/meminfo", "MemAvailable:")
    shm_free_bytes = None
    with contextlib.suppress(OSError):
        status = os.statvfs(SHM)
        shm_free_bytes = status.f_bavail * status.f_frsize
    launcher, job = mpiexec() or "", job_facts()
    return MachineFacts(
        available_bytes=available,
        # The memory of the machine swings by a little between two looks.
        is_grouped=available < 0.9 * 1024 * (of_machine or 0),
        budget_bytes=budget_bytes(None),
        cached_bytes_max=cached_bytes_max(),
        shm_free_bytes=shm_free_bytes,
        reported_order=reported_order(),
        processors=len(os.sched_getaffinity(0)),
        machine_processors=os.cpu_count() or 1,
        quota=processor_quota(),
        open_files=files,
        open_files_hard=hard,
        locked_bytes=_bounded(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        address_bytes=_bounded(resource.getrlimit(resource.RLIMIT_AS)[0]),
        mappings=procfs.number("/proc/sys/vm/max_map_count"),
        launcher=launcher,
        # A launcher within a launched process might wait for its own.
        library=launcher_library(launcher) if launcher and not job["ranks"] else "",
        **job,
    )


def _bounded(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY or limit >= UNBOUNDED else limit


def processor_quota(root: str = "") -> float | None:
    """Return how many processors' time the control groups of this process allow (version 2)."""
    found: list[float] = []
    for folder, *_ in control_groups(root):
        fields = (procfs.text(f"{folder}/cpu.max") or "").split()
        if len(fields) == 2 and all(field.isdecimal() for field in fields) and int(fields[1]):
            found.append(int(fields[0]) / int(fields[1]))
    return min(found, default=None)


def launcher_library(launcher: str) -> str:
    """Return the MPI that an mpiexec is of, by what it says of itself; "": it does not say."""
    try:
        done = subprocess.run(
            [launcher, "--version"], capture_output=True, stdin=subprocess.DEVNULL, text=True,
            errors="replace", timeout=LAUNCHER_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    said = done.stdout + done.stderr
    if (found := re.search(r"Open ?MPI\)?\D{0,8}(\d[\w.]*)", said, re.IGNORECASE)) is not None:
        return f"Open MPI {found[1]}"
    if "Intel" in said:
        return "Intel MPI"
    if (found := re.search(r"HYDRA.*?Version:\s*(\d[\w.]*)", said, re.DOTALL)) is not None:
        return f"MPICH {found[1]}"
    return "".join(said.splitlines()[:1]).strip()[:60]


# --- a transform --------------------------------------------------------------------------
#
# One that holds Python's lock gains nothing by the second thread. Neither does any other while the
# machine is busy: so a function that is known to let go of the lock is timed beside it.


@checked
def function_named(text: str) -> tuple[str, Callable[[bytes], Any]]:
    """Return the name and the function of ``FILE.py:NAME`` or ``MODULE:NAME``, imported."""
    where, colon, name = text.rpartition(":")
    if not (where and colon and name):
        raise ValueError(f"{text!r} is not FILE.py:NAME or MODULE:NAME")
    try:
        found = _imported(where)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # the user's own code runs here
        raise ValueError(f"{text}: {type(error).__name__}: {one_line(error)}") from None
    if not callable(found):
        raise ValueError(f"{text} is no function")
    return text, found


def _imported(where: str) -> Any:
    """Import a module, or a file as a module that is not the program."""
    sys.path.insert(0, str(Path(where).parent if where.endswith(".py") else Path.cwd()))
    if not where.endswith(".py"):
        return importlib.import_module(where)
    spec = importlib.util.spec_from_file_location(Path(where).stem, where)
    if spec is None or spec.loader is None or not Path(where).is_file():
        raise FileNotFoundError(f"there is no file {where}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as an import does: classes of the file pickle
    spec.loader.exec_module(module)
    return module


def values_of(view: DatabaseView) -> list[bytes]:
    """Return the values of some records, spread evenly.

    Raises:
        OSError, Error: they cannot be read.
    """
    values: list[bytes] = []
    left = BYTES_MAX
    for seen in sampled(view):
        left -= seen.length
        if not values or left >= 0:
            values.append(view.value(seen))
    return values


def transform_facts(
    name: str, transform: Callable[[bytes], Any], values: list[bytes]
) -> TransformFacts:
    """Return what a transform takes, and what a second thread gains.

    Args:
        name: name that the user gave it.
        transform: function of a value.
        values: values to try it on.
    """
    if not values:
        return TransformFacts(name)
    where = ""
    try:
        for value in values:  # also warms it up
            transform(value)
        where = ", in a thread"
        if len(os.sched_getaffinity(0)) < 2:
            return TransformFacts(name, 1 / _rate(transform, values, 1))
        free = [bytes(FREE_BYTES)]
        pairs = [(*_gain(transform, values), *_gain(sha256, free)) for _ in range(PAIRS)]
    except (Exception, SystemExit) as error:
        return TransformFacts(name, error=f"{type(error).__name__}: {one_line(error)}{where}")
    alone, gains, _, free_gains = zip(*pairs, strict=True)
    return TransformFacts(
        name, 1 / max(alone), statistics.median(gains), statistics.median(free_gains)
    )


def _gain(function: Callable[[bytes], Any], values: list[bytes]) -> tuple[float, float]:
    """Return the calls a second of one thread, and how many times as many two threads make."""
    alone = _rate(function, values, 1)
    return alone, _rate(function, values, 2) / alone


def _rate(function: Callable[[bytes], Any], values: list[bytes], threads: int) -> float:
    """Return the calls a second of some threads at once, of which each takes all values in turn.

    Raises:
        BaseException: the function has raised it.
    """
    turns = (cycle(values[number:] + values[:number]) for number in range(threads))
    counted = call_at_once([map(function, turn).__next__ for turn in turns], SECONDS)
    return sum(calls / seconds for calls, seconds in counted)
