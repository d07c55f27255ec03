"""kept: batches out of the part of the file that this process keeps, the rest read as usual.

    records that are kept here   -> their grains are read, those that are absent -> memory
    the rest                     -> page cache, or planned reads (``pending``)

Both come in the order asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.batch import Batch
from lmdbio.observe.stats import Source
from lmdbio.records.pending import PendingBatch, PendingValues, ReadBatch, ReadValues
from lmdbio.records.routes import Located, Routes

__all__ = ["KeptBatch", "KeptValues"]

U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
R = TypeVar("R", bound=PendingBatch | PendingValues)


class _Rows(Generic[R]):
    """Records under way, some of which are kept here.

    Args:
        routes: of a file of which a part is kept.
        located: the records.
        read: begins to read those that are not kept.

    Attributes:
        own: whether each is kept; None: all are.
        rest: those that are not; None: there are none.
    """

    def __init__(self, routes: Routes, located: Located, read: Callable[[Routes, U64], R]) -> None:
        assert routes.kept is not None
        self._routes, self._kept, self._read = routes, routes.kept, read
        self._indices, self._extents = located
        self.own = self._kept.covered(self._extents)
        self.rest = self._begin_rest()
        self._kept.start(self._own_extents)

    @property
    def _own_extents(self) -> _core.Extents:
        return self._extents if self.own is None else self._extents[self.own]

    def _begin_rest(self) -> R | None:
        own = self.own
        return None if own is None else self._read(self._routes, self._indices[~own])

    def settle(self) -> tuple[_core.Memory, _core.Extents]:
        """Wait for what is kept, and count all.

        Returns:
            The memory that has it, and where its records lie there.

        Raises:
            OSError, Error: as ``KeptGrains.bring``.
        """
        self._kept.bring(self._own_extents)
        found = self._kept.covered(self._extents)
        if found is not None and (self.own is None or (found != self.own).any()):
            self.close()  # what cannot be read as a whole is kept no more
            self.own = found
            self.rest = self._begin_rest()
        places = self._own_extents.copy()
        self._count("own", places["length"])
        if self.own is not None:
            self._count("file", self._extents["length"][~self.own])
        places["offset"] = self._kept.places(places)
        return self._kept.memory, places

    def _count(self, source: Source, lengths: U64) -> None:
        self._routes.counter.sourced(source, len(lengths), int(lengths.sum()), 0)

    def close(self) -> None:
        """Give up what is read. May be called twice."""
        if self.rest is not None:
            self.rest.close()


class KeptValues(PendingValues):
    """Values of which this process keeps some."""

    def __init__(self, routes: Routes, indices: npt.ArrayLike) -> None:
        super().__init__(routes)
        begun = monotonic_ns()
        located = routes.locate(indices)
        self.indices = located[0]
        self._rows: _Rows[ReadValues] = _Rows(routes, located, ReadValues)
        own = self._rows.own
        routes.counter.located(begun, len(self) if own is None else int(own.sum()))

    def values(self) -> Iterator[bytes]:
        memory, places = self._rows.settle()
        own = _core.Values.of_memory(self._routes.engine, memory, places)
        if self._rows.rest is None or self._rows.own is None:
            return own
        rest = self._rows.rest.values()
        return (next(own if one else rest) for one in self._rows.own.tolist())

    def close(self) -> None:
        self._rows.close()


class KeptBatch(PendingBatch):
    """A batch of which this process keeps some: lent, if that is all of it."""

    def __init__(self, routes: Routes, indices: npt.ArrayLike) -> None:
        super().__init__(routes)
        located = routes.locate(indices)
        self.indices, self._extents = located
        self._rows: _Rows[ReadBatch] = _Rows(routes, located, ReadBatch)

    def batch(self) -> Batch:
        memory, places = self._rows.settle()
        offsets, lengths = (np.ascontiguousarray(places[name]) for name in ("offset", "length"))
        self._routes.counter.lent(lengths)
        if self._rows.rest is not None and self._rows.own is not None:
            rest = self._rows.rest.batch()
            return self._joined(self._rows.own, offsets + np.uint64(memory.address), rest)
        return Batch.over(
            memory.address,
            memory.size,
            indices=self.indices,
            offsets=offsets,
            lengths=lengths,
            keep=memory,
        )

    def _joined(self, rows: Flags, own: U64, rest: Batch) -> Batch:
        """Copy what is kept, at some addresses, and what was read into memory of their own."""
        packed = _core.pack_extents(self._extents)
        memory = self._routes.pool.take(packed.room)
        sources = np.empty(len(rows), np.uint64)
        sources[rows] = own
        buffer = rest.buffer
        sources[~rows] = rest.offsets + np.uint64(buffer.ctypes.data)
        _core.copy_rows(sources, packed.lengths, packed.offsets + np.uint64(memory.address))
        return Batch.over(
            memory.address,
            packed.room,
            indices=self.indices,
            offsets=packed.offsets,
            lengths=packed.lengths,
            keep=memory,
        )

    def close(self) -> None:
        self._rows.close()
