"""The clock of a simulated cluster (csrc/clock.h)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import pointer_to
from lmdbio._core.owner import cell_of
from lmdbio._core.status import Status

__all__ = ["CLOCK_FLAGS", "SOURCES", "run_clock"]

#: Flags of a cluster, by name: its nodes may do so.
CLOCK_FLAGS = {
    "stages": lib.LIO_CLOCK_STAGES,
    "stages_peers": lib.LIO_CLOCK_STAGES_PEERS,
    "stages_file": lib.LIO_CLOCK_STAGES_FILE,
    "on_demand": lib.LIO_CLOCK_ON_DEMAND,
    "keeps_staged": lib.LIO_CLOCK_KEEPS_STAGED,
    "all_are_clients": lib.LIO_CLOCK_ALL_ARE_CLIENTS,
}
#: Where records come from, in the order of the counts.
SOURCES = ("own", "peer", "file")

#: Uses of records between two looks at signals: a tenth of a second.
SLICE_USES = 1 << 20

#: Arrays of a cluster: as C and as NumPy know them.
_TYPES = {
    "sizes": ("const double *", np.float64),
    "access": ("const uint32_t *", np.uint32),
    "file_rates": ("const double *", np.float64),
    "own_rates": ("const double *", np.float64),
    "peer_rates": ("const double *", np.float64),
    "tier_threads": ("const uint32_t *", np.uint32),
    "holders": ("const uint64_t *", np.uint64),
    "entry_record": ("const uint32_t *", np.uint32),
    "entry_node": ("const uint32_t *", np.uint32),
    "entry_tier": ("const uint32_t *", np.uint32),
    "ready": ("double *", np.float64),
    "fetches": ("const uint64_t *", np.uint64),
    "fetch": ("const uint64_t *", np.uint64),
}


def run_clock(
    numbers: Mapping[str, float], arrays: Mapping[str, npt.NDArray[Any]]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint64]]:
    """Runs all iterations of a cluster. Pure; Ctrl-C ends it within a moment.

    Args:
        numbers: fields of ``lio_cluster`` that are numbers.
        arrays: the other fields, C-contiguous; numbers that index others must be in range.

    Returns:
        When each iteration ends for all nodes, shape (iterations,); reads by epoch and source,
        shape (epochs, 3).

    Raises:
        MemoryError: there is no room for the nodes.
    """
    cluster: Any = ffi.new("lio_cluster *")
    for name, value in numbers.items():
        setattr(cluster, name, value)
    kept = []  # arrays that the cluster points to
    for name, (kind, dtype) in _TYPES.items():
        given = np.ascontiguousarray(arrays[name], dtype)
        kept.append(given.copy() if name == "ready" else given)  # the clock writes into that one
        setattr(cluster, name, pointer_to(kept[-1], kind))
    ends = np.zeros(cluster.iterations, np.float64)
    epochs = -(-cluster.iterations // cluster.epoch_iterations) if cluster.iterations else 0
    counts = np.zeros((epochs, len(SOURCES)), np.uint64)
    status, cell = Status(""), cell_of("lio_clock", "clock_close")
    status.check(lib.lio_clock_open(cluster, cell, status.error))
    slice_ = max(1, SLICE_USES // (cluster.nodes * cluster.batch))
    into = pointer_to(ends, "double *"), pointer_to(counts, "uint64_t *")
    try:
        while lib.lio_clock_run(cell[0], slice_, *into):
            pass
    finally:
        ffi.release(cell)  # before what it borrows goes, also where Ctrl-C ends this
        del kept
    return ends, counts
