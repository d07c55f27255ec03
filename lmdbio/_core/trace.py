"""Spans that engines note while a trace is taken (csrc/trace.h)."""

from __future__ import annotations

from lmdbio import errors
from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import Status
from lmdbio.system import fork
from lmdbio.system.frozen import dataclass
from lmdbio.system.slim import Lock, ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    import numpy.typing as npt

    class _Followed(Protocol):
        """An engine."""

        path: str
        kind: str

        @property
        def pointer(self) -> Any: ...


#: Spans between two looks at the ring, at most; 88 bytes each.
CAPACITY = 1 << 14


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
        self._lock = Lock()
        self._engines: set[ref[Any]] = set()
        self._pointer: Any = None
        self._spans: npt.NDArray[Any] | None = None  # made by the first trace
        #: By number; an engine's number is its place here. One for all that read a file alike.
        self.traced: list[Traced] = []
        fork.register(self)

    def _after_fork(self) -> None:
        self._lock = Lock()
        if self._pointer is not None:
            lib.lio_trace_forked(self._pointer)

    def follow(self, engine: _Followed) -> None:
        """An engine was opened."""
        self._engines.add(ref(engine, self._engines.discard))
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
        import numpy as np

        from lmdbio._core.arrays import SPAN

        with self._lock:
            if self._pointer is None:
                cell, status = cell_of("lio_trace", "trace_close"), Status()
                status.call(lib.lio_trace_open, CAPACITY, cell)
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
        import numpy as np

        from lmdbio._core.arrays import SPAN, pointer_to

        if self._pointer is None or self._spans is None:
            return np.empty(0, SPAN), 0
        dropped = ffi.new("uint64_t *")
        count = lib.lio_trace_take(
            self._pointer, pointer_to(self._spans, "lio_span *"), len(self._spans), dropped
        )
        return self._spans[: int(count)].copy(), int(dropped[0])


ring = Ring()
