"""The traffic of a simulated cluster (csrc/traffic.h)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import pointer_to
from lmdbio._core.clock import CLOCK_FLAGS, CLUSTER_TYPES, SOURCES, fill_in
from lmdbio._core.owner import cell_of
from lmdbio._core.status import Status

__all__ = ["TRAFFIC_FLAGS", "run_traffic"]

#: Flags of a cluster whose parts are shared, by name: its nodes may do so.
TRAFFIC_FLAGS = {
    **CLOCK_FLAGS,
    "preloads": lib.LIO_TRAFFIC_PRELOADS,
    "copies": lib.LIO_TRAFFIC_COPIES,
    "reorders": lib.LIO_TRAFFIC_REORDERS,
    "checks": lib.LIO_TRAFFIC_CHECKS,
}

#: Events between two looks at signals: a tenth of a second.
SLICE_EVENTS = 1 << 18

_SHARES_TYPES = {
    "file_system": ("const double *", np.float64),
    "reads": ("const double *", np.float64),
    "writes": ("const double *", np.float64),
}
_CAPACITIES = {"capacities": ("const double *", np.float64)}


def run_traffic(
    numbers: Mapping[str, float],
    arrays: Mapping[str, npt.NDArray[Any]],
    shares: Mapping[str, float],
    progress: Callable[[int, int], None] | None = None,
) -> tuple[float, npt.NDArray[np.float64], npt.NDArray[np.uint64]]:
    """Runs all iterations of a cluster whose parts are shared. Pure; Ctrl-C soon ends it.

    Args:
        numbers: fields of ``lio_cluster`` that are numbers.
        arrays: fields that are arrays, C-contiguous; numbers that index others must be in range.
            ``reads`` and ``writes`` have the shape (tiers, columns).
        shares: fields of ``lio_shares`` that are numbers and do not follow from the others.
        progress: function of (iterations done, iterations), called about ten times a second.

    Returns:
        When the first iteration begins; when each one ends for all nodes, shape (iterations,);
        uses by epoch and source, shape (epochs, 3).

    Raises:
        MemoryError: there is no room for the nodes.
        RuntimeError: the simulation is wrong: something gave or held more than it can.
    """
    site, result = ffi.new("lio_traffic_site *"), ffi.new("lio_traffic_result *")
    kept = fill_in(site.cluster, numbers, arrays, CLUSTER_TYPES)
    kept += fill_in(site.shares, shares, arrays, _SHARES_TYPES)
    site.shares.columns = arrays["reads"].shape[1]
    kept += fill_in(site, {"entries": len(arrays["ready"])}, arrays, _CAPACITIES)
    cluster = site.cluster
    ends = np.zeros(cluster.iterations)
    epochs = -(-cluster.iterations // cluster.epoch_iterations) if cluster.iterations else 0
    counts = np.zeros((epochs, len(SOURCES)), np.uint64)
    result.ends, result.counts = pointer_to(ends, "double *"), pointer_to(counts, "uint64_t *")
    status, cell = Status(""), cell_of("lio_traffic", "traffic_close")
    status.check(lib.lio_traffic_open(site, result, cell, status.error))
    code = lib.LIO_PENDING
    try:
        while code == lib.LIO_PENDING:
            code = lib.lio_traffic_run(cell[0], SLICE_EVENTS, status.error)
            if progress is not None:
                progress(result.done, len(ends))
    finally:
        ffi.release(cell)  # before what it borrows goes, also where Ctrl-C ends this
        del kept
    if code != lib.LIO_OK:
        raise RuntimeError(str(status.exception(code)))
    return result.start, ends, counts
