"""Program: a Reader that is traced and counted. Arguments: a data set of data.fixed_value.

Rank 0 prints what all ranks' stats come to.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from mpi4py import MPI

from lmdbio import Mode, Reader


def main() -> None:
    comm = MPI.COMM_WORLD
    mode = Mode(block_iterations=4)
    with Reader(sys.argv[1], 12, comm=comm, iterations=40, mode=mode, ranks_per_node=2) as reader:
        for batch in reader:
            del batch
    everybody = comm.allreduce(reader.stats())
    if comm.rank == 0:
        print(json.dumps(asdict(everybody)))


main()
