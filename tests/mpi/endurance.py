"""Program: Readers made and closed many times in one job, and failures in between.

Arguments: a set of data.mixed_value with a sidecar, one of data.fixed_value, start/stop cycles,
failures, seed, and how many communicators to try for (0: none). All ranks draw the same cycles
from the seed: data, batch, mode, assignment, nodes, communicator, slots, and how the Reader
ends. Failures come evenly in between, of every kind in turn, on a rank that the seed tells, at
a moment that it tells; all other ranks, on all nodes, must be told.

Each rank counts what it holds when everything has been used once, and at the end; rank 0
prints one line of JSON with both, the most and the least of all ranks.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from counting import communicators
from data import FIXED, MIXED, fixed_value, mixed_value
from mpi4py import MPI

import lmdbio
import lmdbio.planning
import lmdbio.reader
import lmdbio.records
from lmdbio import _core
from lmdbio.cache import clear, find
from lmdbio.errors import PeerError
from lmdbio.placement import homes
from lmdbio.planning.mode import ALL_RANKS, Mode
from lmdbio.reader import block_size, lent, phases, roots, setup, supply, windows
from lmdbio.reader.reader import Reader
from lmdbio.reader.shard_rows import ShardRows

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
SETS = [(sys.argv[1], MIXED, mixed_value), (sys.argv[2], FIXED, fixed_value)]
#: A cycle that takes longer hangs, seconds.
CYCLE_SECONDS_MAX = 60
#: After so many cycles everything that is made once has been made.
WARM_CYCLES = 20
#: When a SIGINT comes at the latest, seconds after the Reader was made: in mid-epoch.
INTERRUPT_SECONDS_MAX = 0.03
COMMUNICATORS_MAX = int(sys.argv[6])
#: The last three need a sidecar.
MODES = [
    "auto",
    "lmdb",
    "lmm",
    "dm",
    Mode(ALL_RANKS, "speculate", "mmap"),
    "dio",
    Mode(ALL_RANKS),
    Mode(2, block_iterations=3),
    Mode(engine="mmap"),
    Mode(ALL_RANKS, engine="direct", block_iterations=2),
    Mode(ALL_RANKS, block_iterations=2, tokens=1),
    Mode(2, block_iterations=3, phases=2),
    "prov",
    "coal",
    "stag",
]


#: Windows of these small data sets are read whole, and their rows exchanged.
block_size.WINDOW_BYTES_MIN = block_size.BLOCK_BYTES_TARGET = 1
block_size.TURN_BLOCK_BYTES_TARGET = 1
phases.SLICE_BYTES = 16 << 10
#: Each root keeps some grains of them, in memory or in cache files.
homes.GRAIN_BYTES_MIN = 4096
DISKS = Path(WORLD.bcast(tempfile.mkdtemp() if RANK == 0 else None))
MIXED = ["memory=100K,placement=mixed"]
BY_RECORD = [f"memory=100K,placement={name}" for name in ("first", "frequency")]
ON_DISKS = [f"disk={DISKS}", f"memory=100K,disk={DISKS},disk_bytes=300K"]


@dataclass(frozen=True)
class Cycle:
    """One Reader's life, the same on all ranks of its communicator."""

    set: int
    comm: MPI.Intracomm
    batch_size: int
    mode: Mode | str
    assignment: str
    start: int
    slots: int
    per_node: int
    iterations: int | None  # None: until it fails
    end: str  # "close", "leave", "forget" or "view"
    shuffle: str | None = None
    cache: str | None = None
    own: bool = False  # its communicator is made for it, and freed after it

    def arguments(self) -> dict[str, Any]:
        return {
            "comm": self.comm,
            "mode": self.mode,
            "assignment": self.assignment,
            "start": self.start,
            "slots": self.slots,
            "ranks_per_node": self.per_node,
            "iterations": self.iterations,
            "shuffle": self.shuffle,
            "cache": self.cache,
        }

    def make(self) -> Reader:
        return Reader(SETS[self.set][0], self.batch_size, **self.arguments())


def is_seeking(mode: Mode | str) -> bool:
    """Whether a cursor finds the records, so that they cannot be shuffled."""
    return Mode.resolve(mode, provenance=False).locate in ("seek", "speculate")


def drawn(chance: random.Random, comms: list[MPI.Intracomm]) -> Cycle:
    number = chance.randrange(len(SETS))
    mode = chance.choice(MODES[:-3] if number else MODES)
    shuffle = cache = None
    if not is_seeking(mode):
        shuffle = chance.choice([None, "groups:16", "windows:5x4"])
        kept = ["memory=8M", "memory=300K,warm=preload", *ON_DISKS, *BY_RECORD]
        cache = chance.choice([*[None] * 4, *kept, *MIXED * (shuffle is not None)])
    return Cycle(
        set=number,
        comm=chance.choice(comms),
        batch_size=chance.choice([1, SIZE - 1, 2 * SIZE, 5 * SIZE + 1]) or 1,
        mode=mode,
        assignment=chance.choice(["strided", "blocked"]),
        start=0 if cache in MIXED else chance.choice([0, 1, 7 if shuffle else -7, 10**9]),
        slots=chance.choice([2, 3]),
        per_node=chance.choice([SIZE, 2, 1]),
        iterations=chance.choice([1, 2, 6, 15]),
        end=chance.choice(["close", "close", "leave", "forget", "view"]),
        shuffle=shuffle,
        cache=cache,
        own=chance.choice([False, False, True]),
    )


def look(cycle: Cycle, batch: Any) -> None:
    value = SETS[cycle.set][2]
    for i in {0, len(batch) - 1} if len(batch) else ():
        assert bytes(batch[i]) == value(int(batch.indices[i])), (RANK, cycle)


def live(cycle: Cycle) -> None:
    """A Reader from its beginning to its end."""
    comm, kept = cycle.comm.Dup() if cycle.own else None, None
    reader = (cycle if comm is None else replace(cycle, comm=comm)).make()
    for t, batch in enumerate(reader):
        look(cycle, batch)
        if cycle.end == "view" and t == 3 and len(batch):
            kept = batch[0]
            break
        if cycle.end in ("leave", "forget") and t == 2:
            break
        del batch
    if cycle.end != "forget":
        reader.close()
    del kept, reader
    if comm is not None:
        comm.Free()


# --- failures ----------------------------------------------------------------------------


class Injected(Exception):
    """Raised where no other exception would be natural."""


@contextlib.contextmanager
def replaced(where: Any, name: str, value: Any) -> Iterator[None]:
    kept = getattr(where, name)
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, kept)


def at(count: int, error: Callable[[], BaseException], call: Callable[..., Any]) -> Any:
    """``call``, but for its ``count``-th time, and all after it."""
    left = [count]

    def fails(*arguments: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise error()
        return call(*arguments, **more)

    return fails


def broken() -> OSError:
    return OSError(errno.EIO, "the disk is on fire")


def while_opening(count: int) -> contextlib.AbstractContextManager[None]:
    return replaced(roots, "_root_source", at(0, broken, roots._root_source))


def while_reserving(count: int) -> contextlib.AbstractContextManager[None]:
    full = OSError(errno.ENOSPC, "No space left on device")
    return replaced(_core, "populate", at(0, lambda: full, _core.populate))


def while_launching(count: int) -> contextlib.AbstractContextManager[None]:
    return replaced(setup, "launch", at(0, broken, setup.launch))


@contextlib.contextmanager
def while_planning(count: int) -> Iterator[None]:
    """Of a block, of a window, or of the part of a block that a root keeps."""
    block, window = supply.FileSupply._plan, windows.Windows._read
    with replaced(supply.FileSupply, "_plan", at(count, broken, block)):
        with replaced(windows.Windows, "_read", at(count, broken, window)):
            look = at(count, broken, ShardRows._read_ahead)
            with replaced(ShardRows, "_read_ahead", look):
                yield


def while_reading(count: int) -> contextlib.AbstractContextManager[None]:
    """The engine fails, in the root's thread."""
    poll, left = _core.Ticket.poll, [count]

    def fails(self: Any, timeout_ms: int = 0) -> bool:
        if not poll(self, timeout_ms):
            return False
        if threading.current_thread() is not threading.main_thread():
            left[0] -= 1
            if left[0] < 0:
                raise broken()
        return True

    return replaced(_core.Ticket, "poll", fails)


def in_next(count: int) -> contextlib.AbstractContextManager[None]:
    return replaced(lent.LentBatches, "take", at(count, Injected, lent.LentBatches.take))


#: Where the rank's own loop raises; how, it finds in ``USER``.
USER: dict[str, Any] = {"at": None, "interrupt": 0.0}


@contextlib.contextmanager
def in_user_code(count: int) -> Iterator[None]:
    USER["at"] = count
    try:
        yield
    finally:
        USER["at"] = None


@contextlib.contextmanager
def ctrl_c(count: int) -> Iterator[None]:
    """SIGINT at any moment of the epoch."""
    USER["interrupt"] = random.random() * INTERRUPT_SECONDS_MAX + 1e-4
    kept = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, kept)
        USER["interrupt"] = 0.0


#: Whether only a root is struck by it.
KINDS: list[tuple[Callable[[int], Any], bool]] = [
    (while_opening, True),
    (while_reserving, True),
    (while_launching, True),
    (while_planning, True),
    (while_reading, True),
    (in_next, False),
    (in_user_code, False),
    (ctrl_c, False),
]
EXPECTED = (OSError, MemoryError, Injected, KeyboardInterrupt, PeerError)


def fail(cycle: Cycle) -> str:
    """Reads until somebody failed; what was raised."""
    try:
        with cycle.make() as reader:
            if USER["interrupt"]:
                signal.setitimer(signal.ITIMER_REAL, USER["interrupt"])
            for t, batch in enumerate(reader):
                look(cycle, batch)
                if t == USER["at"]:
                    raise Injected
                del batch
    except EXPECTED as error:
        return type(error).__name__
    raise AssertionError("endless")


def strike(chance: random.Random, number: int) -> Counter[str]:
    """One failure; what all ranks raised."""
    kind, by_root = KINDS[number % len(KINDS)]
    per_node, mode = chance.choice([SIZE, 2, 1]), chance.choice(MODES[1:])
    # The first rank of every node is a root, whatever the mode.
    struck = chance.randrange(SIZE) // (per_node if by_root else 1) * (per_node if by_root else 1)
    cache = None if is_seeking(mode) else chance.choice([None, "memory=300K", ON_DISKS[1]])
    cycle = Cycle(
        set=0,
        comm=WORLD,
        batch_size=2 * SIZE,
        mode=mode,
        shuffle=None if is_seeking(mode) else chance.choice([None, "groups:16"]),
        assignment=chance.choice(["strided", "blocked"]),
        start=number,
        slots=chance.choice([2, 3]),
        per_node=per_node,
        iterations=None,
        end="close",
        cache=cache,
    )
    # The small file is soon read, where roots keep it.
    count = chance.choice([0, 1, 2]) if cache is None or kind is not while_reading else 0
    WORLD.Barrier()  # a root that has read all of its own may still read for others
    with kind(count) if struck == RANK else contextlib.nullcontext():
        told = fail(cycle)
    everybody = WORLD.allgather(told)
    assert everybody[struck] not in ("", "PeerError"), (kind.__name__, struck, everybody)
    assert all(told == "PeerError" for rank, told in enumerate(everybody) if rank != struck), (
        kind.__name__, struck, per_node, cycle.mode, everybody
    )  # fmt: skip
    return Counter(everybody)


# --- what is held ------------------------------------------------------------------------


def held(folders: list[Path]) -> dict[str, int]:
    used = communicators(COMMUNICATORS_MAX)  # before memory is looked at, for this takes some
    gc.collect()
    deadline = time.monotonic() + 5
    tasks = Path("/proc/self/task")
    while len(list(tasks.iterdir())) > THREADS and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread that has ended is gone a moment later
    maps = Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    statm = Path("/proc/self/statm").read_text(encoding="ascii").split()
    shared = [line for line in maps if "/dev/shm/" in line or "/memfd:lmdbio-window" in line]
    return {
        "windows": sum(
            any(name in line for name in ("shar_tmp", "osc_", "lmdbio-window")) for line in shared
        ),
        "shared mappings": len(shared),
        "mappings": len(maps),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(tasks.iterdir())),
        "children": len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
        "communicators": used,
        "files": sum(len(list(folder.rglob("*"))) for folder in folders),
        "cache files in use": sum(entry.is_open for entry in find(DISKS)),
        "files in /dev/shm": len(list(Path("/dev/shm").glob("mpich_shar*")))
        + len(list(Path("/dev/shm").glob("osc_sm*"))),
        "Python objects": sys.getallocatedblocks(),
        "resident bytes": int(statm[1]) * os.sysconf("SC_PAGE_SIZE"),
    }


THREADS = 0


def load_all() -> None:
    """Loads the modules that some Readers need and others do not, so that none counts as left."""
    for room in (lmdbio.planning, lmdbio.records, lmdbio.reader):
        for found in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            importlib.import_module(found.name)
    np.unique([0])  # loads numpy.ma


def main() -> None:
    global THREADS
    cycles, failures, seed = map(int, sys.argv[3:6])
    chance = random.Random(seed)
    random.seed(f"{seed}/{RANK}")
    # A shell has programs that it starts in the background ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")  # of views that are alive when their Reader ends
    half = WORLD.Split(RANK % 2, RANK)
    comms = [WORLD, WORLD, WORLD.Split(0, -RANK), half, MPI.COMM_SELF]
    folders = [Path(sys.argv[1]).parent, Path(sys.argv[2]).parent]
    plain = Cycle(1, WORLD, SIZE, "dio", "strided", 0, 2, SIZE, 2, "close")
    THREADS = len(list(Path("/proc/self/task").iterdir()))
    for comm in comms:  # what letters go over is made once, and kept as long as this one
        live(replace(plain, comm=comm, per_node=1))
        live(replace(plain, comm=comm, mode=Mode(ALL_RANKS, "scan"), cache=ON_DISKS[1]))
    load_all()
    told: Counter[str] = Counter()
    before: dict[str, int] = {}
    done = 0
    warm = min(WARM_CYCLES, cycles // 2)
    warm_failures = min(len(KINDS), failures // 2)
    for number in range(cycles):
        faulthandler.dump_traceback_later(CYCLE_SECONDS_MAX, exit=True)
        live(drawn(chance, comms))
        due = warm_failures * (number + 1) // warm
        if number >= warm:
            later = (failures - warm_failures) * (number + 1 - warm) // (cycles - warm)
            due = warm_failures + later
        while done < due:
            told += strike(chance, done)
            done += 1
        if number + 1 == warm or number + 1 == cycles:
            for _ in range(2):
                live(plain)  # frees what those before have left
            after = held(folders)
            before = before or after
    faulthandler.cancel_dump_traceback_later()
    everybody = WORLD.gather((before, after))
    if RANK == 0:
        assert everybody is not None
        counts = {
            name: [
                [function(one[i][name] for one in everybody) for function in (min, max)]
                for i in (0, 1)
            ]
            for name in before
        }
        growth = {
            name: max(after[name] - before[name] for before, after in everybody) for name in before
        }
        report = {"ranks": SIZE, "cycles": cycles, "failures": done, "raised": told}
        print(json.dumps({**report, "held": counts, "growth": growth}), flush=True)
        assert all(clear(entry) for entry in find(DISKS))
        DISKS.rmdir()


main()
