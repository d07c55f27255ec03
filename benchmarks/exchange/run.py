"""How fast roots exchange rows, beside an idle and a busy interpreter. Run by mpiexec.

    mpiexec -n 4 python -m mpi4py -m benchmarks.exchange.run PATH [--rounds 5] [--shuffle group]

Each rank is a node of its own. It holds all slots of its window, frees them at once, and takes no
batch while its root fills them anew: the main thread sleeps, or computes in Python all the time.
The page cache holds the file from the first, uncounted rounds on. Told are the median rates at
which rows came from other roots, their spread, and the cores that a rank took.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

import lmdbio
from lmdbio.planning.mode import Mode
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
#: A batch is a block, as large as a Reader makes it by itself.
BLOCK_BYTES = 16 * 2**20
SLOTS = 64
#: The part of the time that all slots take in which rows are counted: no root is done by then.
COUNTED_SHARE = 0.6
#: All slots are full where no row has come for so long, seconds.
QUIET_SECONDS = 0.5
#: Rounds before those that are counted, but for the first.
WARM_ROUNDS = 3


def rest(until_s: float) -> None:
    """Leave Python's lock to others."""
    time.sleep(max(0.0, until_s - time.monotonic()))


def compute(until_s: float) -> None:
    """Keep Python's lock, but for what the interpreter takes by itself."""
    number = 0
    while time.monotonic() < until_s:
        for _ in range(1000):
            number = (number * 3 + 1) % 1_000_003


def open_reader(path: str, shuffle: str) -> Reader:
    """Open a Reader whose batches are as large as blocks."""
    with lmdbio.open(path, readonly=True, lock=False) as records, records.begin() as txn:
        count = txn.stat()["entries"]
    size = (Path(path) / "data.mdb").stat().st_size
    batch = COMM.size * BLOCK_BYTES * count // size
    return Reader(
        path,
        batch,
        comm=COMM,
        mode=Mode(block_iterations=1),
        shuffle=shuffle,
        ranks_per_node=1,
        slots=SLOTS,
        memory_bytes_max=COMM.size * 4 * SLOTS * BLOCK_BYTES,
    )


def fill(reader: Reader) -> float:
    """Wait until all slots are full; return how long it took, in seconds."""
    begun_s = grown_s = time.monotonic()
    last, is_quiet = -1, False
    while not is_quiet:
        time.sleep(0.005)
        came, now_s = reader.stats().peer_bytes, time.monotonic()
        if came != last:
            last, grown_s = came, now_s
        is_quiet = COMM.allreduce(now_s - grown_s > QUIET_SECONDS, MPI.LAND)
    return float(COMM.allreduce(grown_s - begun_s, MPI.MIN))


def free_slots(reader: Reader) -> None:
    """Take a batch of each slot but two, hold them until the last, and let go of all at once."""
    held = next(reader)[0]
    for _ in range(SLOTS - 3):
        next(reader)
    fill(reader)
    COMM.Barrier()
    del held
    next(reader)


def measure(
    reader: Reader, seconds: float, pass_time: Callable[[float], None]
) -> tuple[float, float]:
    """Return MB/s from other roots over all ranks, and the cores that a rank takes."""
    free_slots(reader)
    before, used_s, begun_s = reader.stats().peer_bytes, time.process_time(), time.monotonic()
    pass_time(begun_s + seconds)
    took_s = time.monotonic() - begun_s
    came, used_s = reader.stats().peer_bytes - before, time.process_time() - used_s
    return COMM.allreduce(came / took_s) / 1e6, COMM.allreduce(used_s / took_s) / COMM.size


def main() -> None:
    """Read in turn, and tell on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shuffle", default="group")
    asked = parser.parse_args()
    rates: dict[str, list[float]] = {"idle": [], "busy": []}
    with open_reader(asked.path, asked.shuffle) as reader:
        if not reader.windows.text.startswith("each byte"):
            raise SystemExit(f"no rows are exchanged: {reader.windows.text}")
        times = []
        for _ in range(1 + WARM_ROUNDS):
            free_slots(reader)
            times.append(fill(reader))
        seconds = COUNTED_SHARE * statistics.median(times[1:])
        for turn in range(asked.rounds):
            for name in ("idle", "busy") if turn % 2 else ("busy", "idle"):
                rate, cores = measure(reader, seconds, compute if name == "busy" else rest)
                rates[name].append(rate)
                if COMM.rank == 0:
                    print(f"{turn} {name}: {rate:.0f} MB/s, {cores:.2f} cores a rank", flush=True)
    if COMM.rank == 0:
        for name, found in rates.items():
            words = f"{min(found):.0f}-{max(found):.0f}"
            print(f"{name}: {statistics.median(found):.0f} MB/s ({words})")
        ratio = statistics.median(rates["busy"]) / statistics.median(rates["idle"])
        print(f"beside a busy interpreter: {ratio:.2f} of the rate, over {seconds:.2f} s")


main()
