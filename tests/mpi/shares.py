"""Program: shares of every shape of job. Arguments: a data set of data.mixed_value.

Each rank compares its records with the values written; rank by rank the shares are put
together and compared with the circular sequence.
"""

from __future__ import annotations

import itertools
import sys

from data import MIXED, mixed_value
from mpi4py import MPI

from lmdbio.planning.mode import ALL_RANKS, Mode
from lmdbio.reader.reader import Reader

ITERATIONS = 9


def read(comm: MPI.Intracomm, path: str, **more: object) -> tuple[list[list[int]], Reader]:
    shares = []
    with Reader(path, comm=comm, iterations=ITERATIONS, **more) as rdr:  # type: ignore[arg-type]
        for batch in rdr:
            for i, index in enumerate(batch.indices.tolist()):
                assert bytes(batch[i]) == mixed_value(index), (comm.rank, index, more)
            shares.append(batch.indices.tolist())
    return shares, rdr


def check(comm: MPI.Intracomm, shares: list[list[int]], rdr: Reader, batch_size: int) -> None:
    start, k = rdr.schedule.start, rdr.mode.block_iterations
    strided = rdr.schedule.assignment == "strided"
    everybody = comm.allgather(shares)
    for first in range(0, ITERATIONS, 1 if strided else k):
        last = min(first + (1 if strided else k), ITERATIONS)
        wanted = [(start + i) % MIXED for i in range(first * batch_size, last * batch_size)]
        got = [i for t in range(first, last) for rank in everybody for i in rank[t]]
        assert (got if strided else sorted(got)) == (wanted if strided else sorted(wanted))
    sizes = [
        (p + 1) * batch_size // comm.size - p * batch_size // comm.size for p in range(comm.size)
    ]
    assert [len(rank[0]) for rank in everybody] == sizes


def main() -> None:
    comm, path = MPI.COMM_WORLD, sys.argv[1]
    modes = itertools.cycle(
        [
            "auto",
            "dio",
            "prov",
            Mode(block_iterations=4),
            Mode(ALL_RANKS, engine="direct"),
            Mode(2, block_iterations=3),
            Mode(engine="mmap", block_iterations=ITERATIONS),
            "stag",
            "dm",
            "lmdb",
            Mode(2, block_iterations=2, tokens=2),
        ]
    )
    starts = itertools.cycle([0, 1, MIXED - 2, 10**12, -5])
    nodes = sorted({comm.size, -(-comm.size // 2), -(-comm.size // 3), -(-comm.size // 4)})
    cases = 0
    # Fewer records than ranks, shares that differ, shares alike, more than there are.
    sizes = (1, comm.size + 1, 4 * comm.size, MIXED + 9)
    for turn, per_node in enumerate(nodes):
        for assignment in ("strided", "blocked"):
            # Many ranks on few cores are slow: each assignment takes every other size in turn.
            turn += 1
            for batch_size in sizes if comm.size <= 3 else sizes[turn % 2 :: 2]:
                shares, rdr = read(
                    comm,
                    path,
                    batch_size=batch_size,
                    assignment=assignment,
                    mode=next(modes),
                    start=next(starts),
                    ranks_per_node=per_node,
                )
                check(comm, shares, rdr, batch_size)
                cases += 1
    if comm.rank == 0:
        print(f"{cases} cases")


main()
