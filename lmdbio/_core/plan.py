"""Extents made into reads and slices (csrc/plan.h)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, REQUEST, U64, Extents, pointer_to
from lmdbio._core.brief import brief_up_to
from lmdbio._core.owner import cell_of
from lmdbio._core.status import Status
from lmdbio.system.frozen import dataclass


@dataclass(frozen=True, slots=True)
class PlanTotals:
    """Sums over a plan, in bytes and items (csrc/plan.h)."""

    buffer_bytes: int
    record_bytes: int
    needed_bytes: int
    waste_bytes: int
    regions: int
    requests: int


_TOTALS_FIELDS = tuple(PlanTotals.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Plan:
    """The reads for some records, and where each record will lie in the buffer.

    Attributes:
        requests: dtype ``REQUEST``.
        slices: uint64, one per extent in the caller's order: its first byte in the buffer.
        totals: sums.
    """

    requests: npt.NDArray[Any]
    slices: U64
    totals: PlanTotals


def make_plan(
    extents: Extents, *, gap_bytes_max: int, request_bytes_max: int, alignment: int
) -> Plan:
    """Plans the reads of ``extents`` (csrc/plan.h). Pure."""
    extents = np.ascontiguousarray(extents, EXTENT)
    options = ffi.new(
        "lio_plan_options *",
        {
            "gap_bytes_max": gap_bytes_max,
            "request_bytes_max": request_bytes_max,
            "alignment": alignment,
        },
    )
    cell, status = cell_of("lio_plan", "plan_free"), Status()
    make = brief_up_to("lio_plan_make", len(extents))
    status.call(make, pointer_to(extents, "lio_extent *"), len(extents), options, cell)
    made = cell[0]
    totals = ffi.new("lio_plan_totals *")
    lib.lio_plan_get_totals(made, totals)
    count = int(totals.requests)
    requests, slices = np.empty(count, REQUEST), np.empty(len(extents), np.uint64)
    ffi.memmove(requests, lib.lio_plan_requests(made), requests.nbytes)
    ffi.memmove(slices, lib.lio_plan_slices(made), slices.nbytes)
    return Plan(
        requests, slices, PlanTotals(*(int(getattr(totals, name)) for name in _TOTALS_FIELDS))
    )
