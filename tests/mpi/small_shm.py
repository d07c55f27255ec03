"""Program: a window larger than /dev/shm. Arguments: data set; "known" or "unknown" free space.

With free space unknown (as where statvfs tells too much), the root must fail in good order when it
reserves the slots that it fills, and every rank with it, instead of a touch by SIGBUS.
"""

from __future__ import annotations

import sys

from mpi4py import MPI

from lmdbio.errors import PeerError
from lmdbio.planning.mode import Mode
from lmdbio.reader.reader import Reader
from lmdbio.share import mpi

COMM = MPI.COMM_WORLD
if sys.argv[2] == "unknown":
    mpi.shm_free = lambda: None
try:
    # 400 records of 3 KB are 1.2 MB per slot.
    mode = Mode(block_iterations=1)
    with Reader(sys.argv[1], 400, comm=COMM, slots=40, mode=mode) as rdr:
        assert sys.argv[2] == "unknown"
        for _ in rdr:  # endless, and the root fills all slots at once
            pass
except (MemoryError, PeerError) as error:
    sys.stdout.write(f"{type(error).__name__}: {error}\n")
    sys.stdout.flush()
with Reader(sys.argv[1], 8, comm=COMM, iterations=5) as rdr:
    assert sum(len(batch) for batch in rdr) == 20
sys.stdout.write("works with less\n")
