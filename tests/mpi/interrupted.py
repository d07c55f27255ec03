"""Program: Ctrl-C comes on one rank while a Reader is made. Argument: a set of data.fixed_value.

That rank gets its KeyboardInterrupt, all others are told, and the job goes on.
"""

from __future__ import annotations

import faulthandler
import signal
import sys

from mpi4py import MPI

from lmdbio import roots
from lmdbio.errors import PeerError
from lmdbio.reader import Reader

COMM = MPI.COMM_WORLD
#: Who is not told waits for ever.
SECONDS_MAX = 10

work = roots._work


def interrupted(*arguments: object) -> roots.Work:
    signal.raise_signal(signal.SIGINT)
    return work(*arguments)  # type: ignore[arg-type]


for rank in (0, COMM.size - 1):
    faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
    roots._work = interrupted if rank == COMM.rank else work
    try:
        Reader(sys.argv[1], 8, comm=COMM, ranks_per_node=1)
    except KeyboardInterrupt:
        assert rank == COMM.rank
    except PeerError as error:
        assert rank != COMM.rank and f"rank {rank} failed: KeyboardInterrupt" in str(error)
    else:
        raise AssertionError("nobody was told")
    roots._work = work
    with Reader(sys.argv[1], 2 * COMM.size, comm=COMM, iterations=2) as reader:
        assert [len(batch) for batch in reader] == [2, 2]
faulthandler.cancel_dump_traceback_later()
print("all", flush=True)
