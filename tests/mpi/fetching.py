"""Program: the ranks of two nodes read a URL that their roots cache for three epochs.

Argument: a URL of data.mixed_value's set. Each rank prints what share of a core its longest wait
for a batch took, all threads together, and how long that was.
"""

from __future__ import annotations

import sys
import time

from data import MIXED
from mpi4py import MPI

from lmdbio import Cache
from lmdbio.placement import homes
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
EPOCHS = 3

homes.GRAIN_BYTES_MIN = 4096


def main() -> None:
    seen, longest, share = 0, 0.0, 0.0
    with Reader(
        sys.argv[1], 16, comm=COMM, shuffle="global", seed=5, epochs=EPOCHS,
        cache=Cache(memory="8M"), ranks_per_node=2, request_bytes_max=8192,
    ) as rdr:  # fmt: skip
        batches = iter(rdr)
        while True:
            used_s, began_s = time.process_time(), time.monotonic()
            batch = next(batches, None)
            waited_s = time.monotonic() - began_s
            if batch is None:
                break
            seen += len(batch)
            if waited_s > longest:
                longest, share = waited_s, (time.process_time() - used_s) / waited_s
            del batch
        reads = rdr.stats().read_bytes > 0
    assert COMM.allreduce(seen) == EPOCHS * MIXED
    print(f"waited: {'root' if reads else 'rank'} {share:.5f} {longest:.1f}", flush=True)


main()
