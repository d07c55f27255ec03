"""Program: roots read a URL, and ranks share it. Arguments: a URL of data.mixed_value's set with a
provenance file beside it, and how many roots there are to be.

In several modes and orders each rank gets its share, byte for byte; only roots ask the server, and
what they ask for is less than every rank's own reads would be.
"""

from __future__ import annotations

import sys

from data import MIXED, mixed_value
from mpi4py import MPI

from lmdbio import Cache
from lmdbio.placement import homes
from lmdbio.reader import block_size
from lmdbio.reader.reader import Reader

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
URL, ROOTS = sys.argv[1], int(sys.argv[2])
BATCH = 16

homes.GRAIN_BYTES_MIN = block_size.WINDOW_BYTES_MIN = 4096


def read(**words: object) -> list[int]:
    """Read all batches, and compare every record; indices of this rank."""
    seen: list[int] = []
    with Reader(URL, BATCH, comm=COMM, **words) as rdr:  # type: ignore[arg-type]
        for batch in rdr:
            for index, record in zip(batch.indices.tolist(), batch, strict=True):
                assert bytes(record) == mixed_value(index), (RANK, index, words)
            seen += batch.indices.tolist()
            del batch
        read_bytes = rdr.stats().read_bytes
    readers = COMM.allreduce(int(read_bytes > 0))
    assert readers == ROOTS, (words, readers)
    return seen


cases = 0
for mode in ("auto", "dio", "coal"):
    own = read(mode=mode, iterations=20)
    wanted = []
    for t in range(20):
        first, last = t * BATCH + RANK * BATCH // SIZE, t * BATCH + (RANK + 1) * BATCH // SIZE
        wanted += [i % MIXED for i in range(first, last)]
    assert own == wanted, (RANK, mode)
    cases += 1
for words in (
    {"shuffle": "global"},
    {"shuffle": "groups:16"},
    {"shuffle": "global", "cache": Cache(memory="8M"), "request_bytes_max": 8192},
):
    own = read(epochs=2, seed=5, **words)
    everybody = [one for part in COMM.allgather(own) for one in part]
    assert sorted(everybody) == sorted(2 * list(range(MIXED))), words
    cases += 1
print(f"rank {RANK}: {cases} cases", flush=True)
