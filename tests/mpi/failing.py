"""Program: one rank fails in mid-epoch. Arguments: data set, manner, failing rank, a folder.

Each rank writes into the folder how it ended ("done", "PeerError: ...", ...) and when, so that
the test sees it also where MPI tears the job down.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mpi4py import MPI

from lmdbio.errors import PeerError
from lmdbio.mode import Mode
from lmdbio.reader import Reader

COMM = MPI.COMM_WORLD
RANK = COMM.rank
PATH, MANNER, FAILING, FOLDER = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])


class Fire(Exception):
    pass


def ended(how: str) -> None:
    (FOLDER / f"rank{RANK}").write_text(f"{time.monotonic()} {os.getpid()} {how}\n")


def read(rdr: Reader) -> None:
    for t, batch in enumerate(rdr):
        words = batch.array("<u4", 750)
        assert (words == batch.indices.astype("<u4")[:, None]).all()
        del words
        time.sleep(0.001)
        if RANK == FAILING and t == 20:
            if MANNER != "holds":
                ended("failed")
                raise Fire("the rank is on fire")
            held = batch[0]
            ended("failed")
            next(rdr)
            del held
        if t == 5 and RANK == 0:
            print("reading", flush=True)


def reader() -> Reader:
    return Reader(PATH, 2 * COMM.size, comm=COMM, mode=Mode(block_iterations=2), slots=2)


try:
    if MANNER in ("with", "holds", "forever"):
        with reader() as rdr:
            read(rdr)
    else:
        rdr = reader()
        read(rdr)
except PeerError as error:
    ended(f"PeerError: {error}")
except KeyboardInterrupt:
    ended("KeyboardInterrupt")
    raise
except (Fire, BufferError):
    if MANNER == "uncaught":
        raise
if MANNER in ("with", "holds"):
    COMM.Barrier()  # the job itself is unharmed
    print(f"rank {RANK} goes on", flush=True)
