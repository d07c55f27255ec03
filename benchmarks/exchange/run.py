"""How fast roots exchange rows, beside an idle and a busy interpreter. Run by mpiexec.

    mpiexec -n 4 python -m mpi4py -m benchmarks.exchange.run PATH [--rounds 5] [--shuffle group]

Each rank is a node of its own, and its window has room for all that it reads of one epoch, which
the page cache holds from the first, uncounted round on. The main thread takes no batch meanwhile:
it sleeps, or computes in Python without a pause. Told are the median rates at which rows came from
other roots, their spread, and the processor time of a rank.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
#: Blocks are as large as a Reader makes them by itself.
BLOCK_BYTES = 16 * 2**20
#: The part of an epoch's time in which rows are counted: no root has all of its rows by then.
COUNTED_SHARE = 0.6
#: All rows have come where none has for so long, seconds.
QUIET_SECONDS = 1.0


def rest(until_s: float) -> None:
    """Leave Python's lock to others."""
    time.sleep(max(0.0, until_s - time.monotonic()))


def compute(until_s: float) -> None:
    """Keep Python's lock, but for what the interpreter takes by itself."""
    number = 0
    while time.monotonic() < until_s:
        for _ in range(1000):
            number = (number * 3 + 1) % 1_000_003


def open_reader(path: str, shuffle: str, batch: int) -> Reader:
    """Open a Reader of one epoch that fits its window."""
    size = (Path(path) / "data.mdb").stat().st_size // COMM.size
    return Reader(
        path,
        batch,
        comm=COMM,
        shuffle=shuffle,
        epochs=1,
        ranks_per_node=1,
        slots=size // BLOCK_BYTES + 3,
        memory_bytes_max=3 * size + 2**30,
    )


def epoch_seconds(reader: Reader) -> float:
    """Return how long all rows take to come, beside an idle interpreter."""
    begun_s = grown_s = time.monotonic()
    last, is_quiet = -1, False
    while not is_quiet:
        time.sleep(0.005)
        came, now_s = reader.stats().peer_bytes, time.monotonic()
        if came != last:
            last, grown_s = came, now_s
        is_quiet = COMM.allreduce(now_s - grown_s > QUIET_SECONDS, MPI.LAND)
    return float(COMM.allreduce(grown_s - begun_s, MPI.MIN))


def measure(
    reader: Reader, seconds: float, pass_time: Callable[[float], None]
) -> tuple[float, float]:
    """Return MB/s from other roots over all ranks, and the cores that a rank takes."""
    COMM.Barrier()
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
    parser.add_argument("--batch", type=int, default=1024)
    asked = parser.parse_args()
    rates: dict[str, list[float]] = {"idle": [], "busy": []}
    seconds = 0.0
    for _ in range(2):  # the first time, the page cache may not hold the file
        with open_reader(asked.path, asked.shuffle, asked.batch) as reader:
            if not reader.windows.text.startswith("each byte"):
                raise SystemExit(f"no rows are exchanged: {reader.windows.text}")
            seconds = COUNTED_SHARE * epoch_seconds(reader)
    for turn in range(asked.rounds):
        for name in ("idle", "busy") if turn % 2 else ("busy", "idle"):
            with open_reader(asked.path, asked.shuffle, asked.batch) as reader:
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
