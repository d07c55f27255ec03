"""Spans that engines note while a trace is taken, as NumPy has them (csrc/trace.h)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from lmdbio._core._lmdbio import ffi, lib

#: Structured dtype of ``lio_span``.
SPAN = np.dtype(
    [
        ("queued_ns", "<u8"),
        ("begun_ns", "<u8"),
        ("ended_ns", "<u8"),
        ("offset", "<u8"),
        ("amount", "<u8"),
        ("kind", "<u4"),
        ("thread", "<u4"),
        ("engine", "<u4"),
        ("count", "<u4"),
        ("depth", "<u4"),
        ("depth_after", "<u4"),
        ("failed", "<u4"),
        ("reserved", "<u4"),
    ]
)
assert SPAN.itemsize == ffi.sizeof("lio_span")


class SpanKind(IntEnum):
    """The stage of a span (``enum lio_stage``)."""

    LOCATE = lib.LIO_STAGE_LOCATE
    PLAN = lib.LIO_STAGE_PLAN
    WAIT = lib.LIO_STAGE_WAIT
    COPY = lib.LIO_STAGE_COPY
    REQUEST = lib.LIO_SPAN_REQUEST
    CACHED = lib.LIO_SPAN_CACHED
    POPULATE = lib.LIO_SPAN_POPULATE
