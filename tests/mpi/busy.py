"""Program: a main thread that keeps Python's lock, in a call that waits for other ranks, does not
keep those ranks from reading. Arguments: a data set of data.fixed_value, a mode.

The first object that mpi4py reduces on a communicator makes another one, with the lock held until
all ranks are there. Rank 0 is there long before the others, whose roots need its turn, or its
cursor, to get there.
"""

from __future__ import annotations

import sys

from data import FIXED, fixed_value
from mpi4py import MPI

from lmdbio.planning.mode import Mode
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
ITERATIONS, BATCH = 28, 8


def main() -> None:
    path, mode = sys.argv[1:]
    chosen = Mode(locate="scan", tokens=1) if mode == "turns" else Mode.named(mode)
    with Reader(
        path, BATCH, comm=COMM, mode=chosen, iterations=ITERATIONS, ranks_per_node=1
    ) as rdr:
        for t, batch in enumerate(rdr):
            for i, index in enumerate(batch.indices.tolist()):
                assert bytes(batch[i]) == fixed_value(index % FIXED)
            if t == (3 if COMM.rank == 0 else 12):
                COMM.reduce(t)
    print("ok", flush=True)


main()
