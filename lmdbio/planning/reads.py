"""Plan reads: from where records lie to a few large requests. Pure; csrc/plan.c does the work.

    extents -> sorted, widened to pages, joined over small gaps, cut -> requests, slices

``plan_reads`` is the one door: ``Records``, a root of a ``Reader`` and ``lmdbio plan`` plan by it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.system.amounts import GAP_BYTES_MAX, PAGE_BYTES, REQUEST_BYTES_MAX
from lmdbio.system.frozen import dataclass

__all__ = [
    "GAP_BYTES_MAX",
    "PAGE_BYTES",
    "REQUEST_BYTES_MAX",
    "PlanOptions",
    "plan_reads",
    "spread",
]

#: A plan is made with all of the allowed gap; if it does not fit its room, with these parts of it,
#: and then with none: gaps that are read over take memory.
GAP_PARTS = (1, 4, 16, 0)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Limits that trade requests for bytes.

    Attributes:
        gap_bytes_max: largest gap that is read to save a request, bytes nobody asked for.
        request_bytes_max: largest single read, bytes, a multiple of ``PAGE_BYTES``.
    """

    gap_bytes_max: int = GAP_BYTES_MAX
    request_bytes_max: int = REQUEST_BYTES_MAX

    def __post_init__(self) -> None:
        if self.gap_bytes_max < 0:
            raise ValueError(f"gap_bytes_max={self.gap_bytes_max} is negative")
        if self.request_bytes_max <= 0 or self.request_bytes_max % PAGE_BYTES:
            raise ValueError(
                f"request_bytes_max={self.request_bytes_max} is no positive multiple of "
                f"{PAGE_BYTES}"
            )


def plan_reads(
    extents: _core.Extents,
    options: PlanOptions | None = None,
    *,
    alignment: int = PAGE_BYTES,
    room_bytes: int | None = None,
) -> _core.Plan:
    """Plan the reads of some records.

    Args:
        extents: dtype ``EXTENT``, any order, repeats allowed.
        options: defaults to ``PlanOptions()``.
        alignment: bytes, a power of two, no less than the engine's.
        room_bytes: size of the buffer; a plan that needs more is made again with smaller gaps.
            None: no limit.

    Returns:
        Requests that read each byte of the file at most once, and where each record will lie
        in a buffer of ``totals.buffer_bytes``. That is more than ``room_bytes`` only where the
        records need more even without a gap: the caller looks.

    Raises:
        MemoryError: there is no memory for the plan.
    """
    options = options or PlanOptions()
    for part in GAP_PARTS:
        plan = _core.make_plan(
            extents,
            gap_bytes_max=options.gap_bytes_max // part if part else 0,
            request_bytes_max=options.request_bytes_max,
            alignment=alignment,
        )
        if room_bytes is None or plan.totals.buffer_bytes <= room_bytes:
            break
    return plan


def spread(extents: _core.Extents, gap_bytes_max: int) -> npt.NDArray[np.int64]:
    """Return what each extent adds to a plan's buffer, after the one before it, bytes.

    That is its pages, and the gap before them.

    Exact where extents come in the order of the file, or against it; else an upper bound, but
    for gaps between extents that are no neighbours here. Records share pages, but no bytes.
    """
    new = np.zeros(len(extents), np.int64)
    some = np.flatnonzero(extents["length"])  # an empty record stands between no two others
    offset, length = (extents[name][some].astype(np.int64) for name in ("offset", "length"))
    low = offset & ~(PAGE_BYTES - 1)
    high = (offset + length + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)
    size = high - low
    gap = np.maximum(low[1:] - high[:-1], low[:-1] - high[1:])
    beyond = np.maximum(high[1:] - high[:-1], 0) + np.maximum(low[:-1] - low[1:], 0)
    new[some[:1]] = size[:1]
    new[some[1:]] = np.where(gap < 0, beyond, size[1:] + np.where(gap <= gap_bytes_max, gap, 0))
    return new
