"""Planning: from extents to reads. Pure; the work is done by csrc/plan.c."""

from __future__ import annotations

from dataclasses import dataclass

from lmdbio import _core

__all__ = ["PlanOptions", "plan_reads"]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a plan trades.

    Attributes:
        gap_bytes_max: bytes nobody asked for that are read to save a request. At 1.5 GB/s
            64 KiB cost 40 us, less than a request's latency on any storage.
        request_bytes_max: largest single read, bytes. Several in flight at 1 MiB reach what
            this storage gives; larger ones only make the first byte later.
    """

    gap_bytes_max: int = 64 << 10
    request_bytes_max: int = 1 << 20

    def __post_init__(self) -> None:
        if self.gap_bytes_max < 0:
            raise ValueError(f"gap_bytes_max={self.gap_bytes_max} is negative")
        if self.request_bytes_max <= 0 or self.request_bytes_max % 4096:
            raise ValueError(
                f"request_bytes_max={self.request_bytes_max} is no positive multiple of 4096"
            )


def plan_reads(
    extents: _core.Extents, options: PlanOptions | None = None, *, alignment: int = 1
) -> _core.Plan:
    """Plans the reads of some records.

    Args:
        extents: dtype ``EXTENT``, any order, repeats allowed.
        options: defaults to ``PlanOptions()``.
        alignment: the engine's, bytes, a power of two.

    Returns:
        Requests that read each byte of the file at most once, and where each record will lie
        in a buffer of ``totals.buffer_bytes``.
    """
    options = options or PlanOptions()
    return _core.make_plan(
        extents,
        gap_bytes_max=options.gap_bytes_max,
        request_bytes_max=options.request_bytes_max,
        alignment=alignment,
    )
