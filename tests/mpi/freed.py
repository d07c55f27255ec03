"""Program: communicators of the user's that are freed while roots still write to each other.

Arguments: a set of data.mixed_value with a sidecar, and "all" or "some": who frees them. Each
Reader goes on and gives what it should. Freed by all ranks, nothing of them is left; where a rank
never does, which MPI forbids, the others do not wait for it.
"""

from __future__ import annotations

import faulthandler
import sys
import time

from counting import communicators
from mpi4py import MPI

from lmdbio.reader import block_size
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
PATH, WHO = sys.argv[1:3]
#: How long one Reader may take, seconds.
SECONDS_MAX = 20
#: In the last one roots exchange the rows of shuffled records.
MODES = ("dm", "stag", "auto")
block_size.WINDOW_BYTES_MIN = block_size.BLOCK_BYTES_TARGET = 1
block_size.TURN_BLOCK_BYTES_TARGET = 1
#: More than MPICH has.
COMMUNICATORS_MAX = 2200


def read_on_a_freed_communicator(mode: str) -> None:
    faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
    comm = COMM.Dup()
    with Reader(
        PATH, 2 * COMM.size, comm=comm, mode=mode, iterations=40, ranks_per_node=1,
        shuffle="groups:16" if mode == "auto" else None,
    ) as reader:  # fmt: skip
        for t, batch in enumerate(reader):
            assert len(batch) == 2
            if t == 1 and (WHO == "all" or COMM.rank):
                time.sleep(0.01 * COMM.rank)
                comm.Free()
    assert t == 39
    faulthandler.cancel_dump_traceback_later()


for mode in MODES:
    read_on_a_freed_communicator(mode)


def end_what_is_left() -> None:
    """Make Readers, with which ends what earlier ones have left; messages may be on their way."""
    for _ in range(3):
        COMM.Barrier()
        time.sleep(0.05)
        with Reader(PATH, 2 * COMM.size, comm=COMM, mode="dio", iterations=2) as reader:
            assert len(list(reader)) == 2


if WHO == "all":
    end_what_is_left()
    before = communicators(COMMUNICATORS_MAX)
    for mode in 3 * MODES:
        read_on_a_freed_communicator(mode)
    end_what_is_left()
    after = communicators(COMMUNICATORS_MAX)
    assert after == before, (before, after)
print("all", flush=True)
