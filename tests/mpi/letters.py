"""Program: communicators of the user's that are freed once their Reader is closed.

Arguments: a set of data.mixed_value with a sidecar. Letters of the roots that nobody has taken
must not reach whatever communicator comes next, which may have the same number inside MPI.
"""

from __future__ import annotations

import faulthandler
import sys

from mpi4py import MPI

from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
#: How long one Reader may take, seconds.
SECONDS_MAX = 20

for _ in range(12):
    for mode in ("dm", "stag"):
        faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
        comm = COMM.Dup()
        with Reader(
            sys.argv[1], 2 * COMM.size, comm=comm, mode=mode, iterations=6, ranks_per_node=1
        ) as reader:
            assert [len(batch) for batch in reader] == [2] * 6
        comm.Free()
faulthandler.cancel_dump_traceback_later()
print("all", flush=True)
