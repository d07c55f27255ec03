"""The clock of a simulated cluster (csrc/clock.h)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import pointer_to
from lmdbio._core.owner import cell_of
from lmdbio._core.status import Status

__all__ = ["SOURCES", "run_clock"]

#: Where records come from, in the order of the counts.
SOURCES = ("own", "peer", "file")

#: Uses of records between two looks at signals: a tenth of a second.
SLICE_USES = 1 << 20

#: Fields of a cluster, and types of the arrays that they point to.
_FIELDS = dict(ffi.typeof("lio_cluster").fields)
_DTYPES = {"double": np.float64, "uint32_t": np.uint32, "uint64_t": np.uint64}


def run_clock(
    may: Collection[str],
    numbers: Mapping[str, float],
    arrays: Mapping[str, npt.NDArray[Any]],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint64]]:
    """Runs all iterations of a cluster. Pure; Ctrl-C ends it within a moment.

    Args:
        may: names of what nodes may do: those of LIO_CLOCK_... without that, in small letters.
        numbers: other fields of ``lio_cluster`` that are numbers.
        arrays: the other fields, C-contiguous; numbers that index others must be in range.

    Returns:
        When each iteration ends for all nodes, shape (iterations,); reads by epoch and source,
        shape (epochs, 3).

    Raises:
        MemoryError: there is no room for the nodes.
    """
    cluster: Any = ffi.new("lio_cluster *")
    cluster.may = sum(getattr(lib, f"LIO_CLOCK_{name.upper()}") for name in may)
    for name, value in numbers.items():
        setattr(cluster, name, value)
    pointed_to = []  # arrays that the cluster points to
    for name, array in arrays.items():
        kind = _FIELDS[name].type
        given = np.ascontiguousarray(array, _DTYPES[kind.item.cname])
        pointed_to.append(
            given.copy() if name == "ready" else given
        )  # the clock writes into that one
        setattr(cluster, name, pointer_to(pointed_to[-1], kind.cname))
    ends = np.zeros(cluster.iterations, np.float64)
    epochs = -(-cluster.iterations // cluster.epoch_iterations) if cluster.iterations else 0
    counts = np.zeros((epochs, len(SOURCES)), np.uint64)
    status, cell = Status(""), cell_of("lio_clock", "clock_close")
    status.call(lib.lio_clock_open, cluster, cell)
    slice_ = max(1, SLICE_USES // (cluster.nodes * cluster.batch))
    into = pointer_to(ends, "double *"), pointer_to(counts, "uint64_t *")
    try:
        while lib.lio_clock_run(cell[0], slice_, *into):
            pass
    finally:
        ffi.release(cell)  # before what it borrows goes, also where Ctrl-C ends this
        del pointed_to
    return ends, counts
