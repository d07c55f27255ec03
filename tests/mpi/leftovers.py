"""Program: Readers that end with an error, one after the other. Argument: data set.

The window of such a Reader can be freed by nobody alone; the next Reader's ranks free it. Prints
how many parts of windows are mapped, for a rank that drops its views at once and for one that
holds one of them on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mpi4py import MPI

from lmdbio.errors import PeerError
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
READERS = 12


class Fire(Exception):
    pass


def mapped() -> int:
    """Mappings of /dev/shm, MPI's own included, and of windows without MPI."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return maps.count("/dev/shm/") + maps.count("/memfd:lmdbio-window")


def fail(turn: int, *, held: list[memoryview]) -> None:
    try:
        with Reader(sys.argv[1], 2 * COMM.size, comm=COMM, slots=3) as reader:
            for t, batch in enumerate(reader):
                if t == 3 and turn % COMM.size == COMM.rank:
                    if turn == 5:
                        held.append(batch[0])
                    raise Fire
    except (Fire, PeerError):
        pass


before = mapped()
kept: list[memoryview] = []
counts = []
for number in range(READERS):
    fail(number, held=kept)
    COMM.Barrier()
    counts.append(mapped() - before)
assert all(bytes(view) for view in kept)
sys.stdout.write(f"most {max(counts)} first {counts[0]} last {counts[-1]}\n")
