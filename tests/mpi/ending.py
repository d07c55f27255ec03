"""Program: a rank of an endless epoch ends. Judged from outside.

Arguments: a set of data.fixed_value, the failing rank (-1: none), a folder, ranks per node. The
failing rank raises what nobody catches; without one all read until they are ended. Each rank
writes into the folder its process and, later, how it ended ("done", "PeerError: ...", ...) and
when, so that the test sees it also where MPI tears the job down.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mpi4py import MPI

from lmdbio.errors import PeerError
from lmdbio.planning.mode import Mode
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
RANK = COMM.rank
PATH, FAILING, FOLDER, PER_NODE = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
#: When a rank that is not told of a failure gives up, seconds.
WAIT_SECONDS_MAX = 20.0


class Fire(Exception):
    pass


def ended(how: str) -> None:
    (FOLDER / f"rank{RANK}").write_text(f"{time.monotonic()} {os.getpid()} {how}\n")


def read(rdr: Reader) -> None:
    began = time.monotonic()
    for t, batch in enumerate(rdr):
        words = batch.array("<u4", 750)
        assert (words == batch.indices.astype("<u4")[:, None]).all()
        del words, batch
        time.sleep(0.001)
        if t == 5:
            ended("reads")
            COMM.Barrier()
            if RANK == 0:
                print("reading", flush=True)
        if RANK == FAILING and t == 20:
            ended("failed")
            raise Fire("the rank is on fire")
        if time.monotonic() - began > WAIT_SECONDS_MAX:
            ended("was not told")
            return


# No "with": an exception that nobody catches must be enough.
rdr = Reader(
    PATH,
    2 * COMM.size,
    comm=COMM,
    mode=Mode(block_iterations=2),
    slots=2,
    ranks_per_node=int(PER_NODE),
)
try:
    read(rdr)
except PeerError as error:
    ended(f"PeerError: {error}")
except KeyboardInterrupt:
    ended("KeyboardInterrupt")
    raise
