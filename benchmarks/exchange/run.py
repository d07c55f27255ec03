"""How fast roots exchange rows, beside an idle and a busy interpreter. Run by mpiexec.

    mpiexec -n 4 python -m mpi4py -m benchmarks.exchange.run PATH [--rounds 5] [--shuffle group]

Each rank is a node of its own. All read one epoch of the data set, which the page cache holds
from the first, uncounted round on, in turn with nothing else to do and beside a thread that
computes in Python without a pause. Told are the median rate at which rows came from other roots,
its spread, and the processor time of a rank.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

from mpi4py import MPI

from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD


def compute(until: threading.Event) -> None:
    """Keep Python's lock, but for what the interpreter takes by itself."""
    number = 0
    while not until.is_set():
        for _ in range(1000):
            number = (number * 3 + 1) % 1_000_003


def epoch(path: str, shuffle: str, batch: int, *, busy: bool) -> tuple[float, float]:
    """Read once; MB/s from other roots over all ranks, and a rank's processor seconds."""
    end = threading.Event()
    other = threading.Thread(target=compute, args=(end,))
    COMM.Barrier()
    with Reader(path, batch, comm=COMM, shuffle=shuffle, epochs=1, ranks_per_node=1) as reader:
        if busy:
            other.start()
        try:
            COMM.Barrier()
            begun, used = time.monotonic(), time.process_time()
            for batch_read in reader:
                del batch_read
            seconds, used = time.monotonic() - begun, time.process_time() - used
        finally:
            end.set()
            if busy:
                other.join()
        if not reader.windows.text.startswith("each byte"):
            raise SystemExit(f"no rows are exchanged: {reader.windows.text}")
    stats = reader.stats()
    came = COMM.allreduce(stats.peer_bytes)
    return came / COMM.allreduce(seconds, MPI.MAX) / 1e6, COMM.allreduce(used) / COMM.size


def main() -> None:
    """Read in turn, and tell on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shuffle", default="group")
    parser.add_argument("--batch", type=int, default=1024)
    asked = parser.parse_args()
    rates: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(asked.rounds + 1):
        for busy in (False, True) if turn % 2 else (True, False):
            rate, used = epoch(asked.path, asked.shuffle, asked.batch, busy=busy)
            if turn:
                rates[busy].append(rate)
            if COMM.rank == 0:
                name = "busy" if busy else "idle"
                print(f"{turn} {name}: {rate:.0f} MB/s, {used:.2f} s a rank", flush=True)
    if COMM.rank == 0:
        for busy, found in rates.items():
            words = f"{min(found):.0f}-{max(found):.0f}"
            name = "busy" if busy else "idle"
            print(f"{name}: {statistics.median(found):.0f} MB/s ({words})")
        ratio = statistics.median(rates[True]) / statistics.median(rates[False])
        print(f"beside a busy interpreter: {ratio:.2f} of the rate")


main()
