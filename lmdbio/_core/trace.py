"""Spans that engines note while a trace is taken (csrc/trace.h)."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lmdbio import errors
from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import Status, pointer_to
from lmdbio.system import fork

#: Spans between two looks at the ring, at most; 88 bytes each.
CAPACITY = 1 << 14

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


class _Followed(Protocol):
    """An engine."""

    path: str
    kind: str

    @property
    def pointer(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Traced:
    """An engine that a trace has met."""

    kind: str
    path: str


class Ring:
    """The process's one ring of spans, and the engines that note in it.

    C keeps it for as long as an engine may note something: it is made by the first trace and
    used by those after it.
    """

    #: Spans that it holds.
    capacity = CAPACITY

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: set[weakref.ref[Any]] = set()
        self._pointer: Any = None
        self._spans = np.empty(0, SPAN)
        #: By number; an engine's number is its place here. One for all that read a file alike.
        self.traced: list[Traced] = []
        fork.register(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        if self._pointer is not None:
            lib.lio_trace_forked(self._pointer)

    def follow(self, engine: _Followed) -> None:
        """An engine was opened."""
        self._engines.add(weakref.ref(engine, self._engines.discard))
        if self._pointer is not None:
            with self._lock:
                self._attach(engine)

    def _attach(self, engine: _Followed) -> None:
        try:
            pointer = engine.pointer
        except errors.Error:  # it is closed
            return
        traced = Traced(engine.kind, engine.path)
        if traced not in self.traced:
            self.traced.append(traced)
        lib.lio_engine_trace(pointer, self._pointer, self.traced.index(traced))

    def start(self) -> None:
        """Has all engines, those to come included, note what they do.

        Raises:
            MemoryError: there is none for the ring.
        """
        with self._lock:
            if self._pointer is None:
                cell, status = cell_of("lio_trace", "trace_close"), Status()
                status.check(lib.lio_trace_open(CAPACITY, cell, status.error))
                self._pointer = held(cell)
                self._spans = np.empty(CAPACITY, SPAN)
                for reference in list(self._engines):
                    engine = reference()
                    if engine is not None:
                        self._attach(engine)
            lib.lio_trace_switch(self._pointer, 1)

    def stop(self) -> None:
        if self._pointer is not None:
            lib.lio_trace_switch(self._pointer, 0)

    def take(self) -> tuple[npt.NDArray[Any], int]:
        """The spans noted since the last call (dtype ``SPAN``), and how many were dropped.

        For one thread at a time.
        """
        if self._pointer is None:
            return np.empty(0, SPAN), 0
        dropped = ffi.new("uint64_t *")
        count = lib.lio_trace_take(
            self._pointer, pointer_to(self._spans, "lio_span *"), len(self._spans), dropped
        )
        return self._spans[: int(count)].copy(), int(dropped[0])


ring = Ring()
