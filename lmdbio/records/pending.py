"""pending: records under way, whose reads go on while the caller does something else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from time import monotonic_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.reading.batch import Batch
from lmdbio.reading.blocks import Block
from lmdbio.records.ahead import as_indices
from lmdbio.records.routes import Field, Routes

__all__ = ["CachedValues", "Pending", "PendingBatch", "PendingValues", "ReadBatch", "ReadValues"]

U64 = npt.NDArray[np.uint64]


class Pending(ABC):
    """Records under way, of one file or of several.

    Attributes:
        indices: indices of the records, from the beginning: uint64, shape (n,).
        is_filled: whether ``Field``s of them are where they were wanted, so that there is no
            more to ask for.
    """

    indices: U64
    is_filled: bool = False

    @abstractmethod
    def values(self) -> Iterator[Any]:
        """Wait for the records and iterate over their values; to be called once.

        Raises:
            OSError, Error: a value cannot be read, or the file has moved on.
        """

    def taken(self) -> list[Any]:
        """Wait for the records and return all values at once; instead of ``values``.

        Raises:
            OSError, Error: as ``values``.
        """
        return list(self.values())

    @abstractmethod
    def close(self) -> None:
        """Give up what is under way. May be called twice."""

    def __len__(self) -> int:
        return len(self.indices)

    def __reduce__(self) -> str:
        raise TypeError("reads under way cannot be pickled")


class _OfOneFile(Pending):
    """Records of one file under way; those that have to be read are in a block."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._block: Block | None = None

    def close(self) -> None:
        """Give up what is under way. May be called twice."""
        if self._block is not None:
            self._block.close()


class PendingBatch(_OfOneFile):
    """A batch under way; ``read`` without the waiting."""

    @abstractmethod
    def batch(self) -> Batch:
        """Wait for the batch and return it.

        Raises:
            OSError, Error: it cannot be read, or the file has moved on.
        """

    def values(self) -> Iterator[memoryview]:
        """Wait for the batch and iterate over its views."""
        return iter(self.batch())


class ReadBatch(PendingBatch):
    """A batch under way out of the page cache, or into memory of its own.

    Args:
        fields: fields of the records; only these are wanted if the page cache has all of them.
    """

    def __init__(
        self, routes: Routes, indices: npt.ArrayLike, fields: Sequence[Field] = ()
    ) -> None:
        super().__init__(routes)
        self._batch: Batch | None = None
        begun = monotonic_ns()
        self.indices, self._extents = routes.locate(indices)
        is_held = routes.file_cache.complete()
        if not is_held:
            routes.in_order.bring(self.indices, self._extents)
        if fields and routes.fills(begun, self._extents, fields):
            self.is_filled = True
            return
        if is_held:
            return  # lent when its turn has come: it is guarded then
        self._batch = routes.cached(begun, self.indices, self._extents)
        if self._batch is None:
            self._plan(begun)

    def _plan(self, begun: int) -> Block:
        self._routes.counter.span("locate", begun, located_records=len(self.indices))
        self._block = self._routes.planned(self._extents)
        return self._block

    def batch(self) -> Batch:
        if self._batch is not None:
            return self._batch
        block = self._block
        if block is None:
            lent = self._routes.held(self.indices, self._extents)
            if lent is not None:
                return lent
            block = self._plan(monotonic_ns())
        with closing(block):
            block.wait()
            return block.batch(self.indices)


class PendingValues(_OfOneFile):
    """Values under way. Those that the page cache holds stay there until their turn has come."""

    @abstractmethod
    def values(self) -> Iterator[bytes]:
        """Wait for those that have to be read, and iterate over all; to be called once.

        Raises:
            OSError, Error: a value cannot be read, or the file has moved on.
        """

    def taken(self) -> list[bytes]:
        """Wait for the records and return all values at once; instead of ``values``.

        Raises:
            OSError, Error: as ``values``.
        """
        values = self.values()
        return values.take() if isinstance(values, _core.Values) else list(values)

    def _cached(
        self, extents: _core.Extents, *, waits: bool = False, sure: bool = False
    ) -> Iterator[bytes]:
        """Iterate over values that the page cache holds, and over those evicted since.

        Args:
            waits: whether the evicted ones are read one by one.
            sure: whether all others are read at the first evicted one, whatever the page cache
                holds.
        """
        routes = self._routes
        values = routes.source.values(routes.engine, extents, waits=waits)
        return chain(values, self._read_evicted(values, sure=sure))

    def _read_evicted(self, values: _core.Values, *, sure: bool) -> Iterator[bytes]:
        """Iterate over what is left from the first value on that was evicted."""
        if not values.left:
            return
        routes, left = self._routes, values.rest()
        missing = None if sure else routes.missing(left)
        if missing is None:
            missing = np.full(len(left), sure)
        missing[0] = True
        block = routes.planned(left[missing])
        yield from self._in_turn(left, missing, block, sure=True)

    def _in_turn(
        self,
        extents: _core.Extents,
        missing: npt.NDArray[np.bool_],
        block: Block,
        *,
        sure: bool = False,
    ) -> Iterator[bytes]:
        """Iterate in order over missing values, from ``block``, and cached ones."""
        read = self._finish(block)
        if missing.all():
            return read
        cached = self._cached(extents[~missing], sure=sure)
        return (next(read if one else cached) for one in missing.tolist())

    @staticmethod
    def _finish(block: Block) -> Iterator[bytes]:
        """Wait for a block and iterate over its values."""
        with closing(block):
            block.wait()
            return block.values()


class CachedValues(PendingValues):
    """Values that the page cache holds, as far as is known: none has to be waited for.

    Args:
        indices: a list that nobody changes.
        values: values of these records.
    """

    def __init__(self, routes: Routes, indices: list[int], values: _core.Values) -> None:
        super().__init__(routes)
        self._given = indices
        self._held: _core.Values | None = values

    def __len__(self) -> int:
        return len(self._given)

    @property
    def indices(self) -> U64:  # type: ignore[override]
        return as_indices(self._given, self._routes.source.count, self._routes.source.path)

    def values(self) -> Iterator[bytes]:
        held, self._held = self._held, None
        if held is None:
            raise ValueError(f"{self._routes.source.path}: these values were handed out")
        return chain(held, self._read_evicted(held, sure=False))


class ReadValues(PendingValues):
    """Values of which those that the page cache lacks are being read.

    Out of a mapping none is read ahead: a view lent of it would show what a writer puts there
    later.
    """

    def __init__(self, routes: Routes, indices: npt.ArrayLike) -> None:
        super().__init__(routes)
        begun = monotonic_ns()
        self.indices, self._extents = routes.locate(indices)
        #: Whether each is read in a block; None: the page cache holds all.
        self._missing: npt.NDArray[np.bool_] | None = None
        self._waits = routes.file_cache.place == "mapping"
        self._is_lent = not self._waits and routes.file_cache.complete()
        if self._is_lent:
            return  # lent when their turn has come: they are guarded then
        routes.counter.span("locate", begun, located_records=len(self.indices))
        if not self._waits:
            routes.in_order.bring(self.indices, self._extents)
            self._missing = routes.missing(self._extents)
            if self._missing is None:
                routes.engine.prefault(self._extents)
        if self._missing is not None:
            self._block = routes.planned(self._extents[self._missing])

    def values(self) -> Iterator[bytes]:
        routes = self._routes
        if self._block is not None and self._missing is not None:
            return self._in_turn(self._extents, self._missing, self._block)
        if not self._is_lent:
            return self._cached(self._extents, waits=self._waits)
        held = routes.held_values_of(self._extents)
        if held is not None:
            routes.counter.count(located_records=len(self.indices))
            return held
        return self._finish(routes.planned(self._extents))
