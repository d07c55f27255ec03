"""shard_batch: batches out of the part of the file that this process caches, and the rest.

    records that are cached here   -> their grains are read, those that are absent
        in memory                -> lent
        on a disk                -> read into memory of their own
    the rest, and what is damaged there -> page cache, or planned reads (``pending``)

All come in the order asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.observe.stats import Source
from lmdbio.reading.batch import Batch, packed_batch
from lmdbio.records.pending import PendingBatch, PendingValues, ReadBatch, ReadValues
from lmdbio.records.routes import Located, Routes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lmdbio.cache import ApartRows  # others begin sooner without it

__all__ = ["ShardBatch", "ShardValues"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
R = TypeVar("R", bound=PendingBatch | PendingValues)


class _Part(NamedTuple):
    """Records that lie in one memory.

    Attributes:
        rows: rows of the records, among those asked for.
        memory: memory that has them.
        places: place of each record in that memory.
    """

    rows: I64 | slice
    memory: _core.Memory
    places: _core.Extents

    @classmethod
    def of(
        cls, rows: I64 | slice, memory: _core.Memory, extents: _core.Extents, begins: U64
    ) -> _Part:
        """Return rows of some extents that begin at these places of a memory."""
        places = extents[rows].copy()
        places["offset"] = begins
        return cls(rows, memory, places)


class _Rows(Generic[R]):
    """Records under way, some of which are cached here.

    Args:
        routes: routes of a file of which a part is cached.
        located: the records.
        read: begins to read those that are not cached.

    Attributes:
        own: whether each is cached.
        rest: reads of the records that are not cached; None: there are none.
    """

    def __init__(self, routes: Routes, located: Located, read: Callable[[Routes, U64], R]) -> None:
        assert routes.shard is not None
        self._routes, self._shard, self._read = routes, routes.shard, read
        self._indices, self._extents = located
        covered = self._shard.covered(self._extents)
        self.own: Flags = np.ones(len(self._extents), np.bool_) if covered is None else covered
        self.rest = self._begin_rest()
        self._shard.start(self._own_extents)

    @property
    def _own_extents(self) -> _core.Extents:
        return self._extents if self.rest is None else self._extents[self.own]

    def _begin_rest(self) -> R | None:
        return None if self.own.all() else self._read(self._routes, self._indices[~self.own])

    def settle(self) -> list[_Part]:
        """Wait for what is cached, and count all.

        Returns:
            What is cached, in each memory that has some of it; of those records that are ``own``.

        Raises:
            OSError, Error: as ``CacheShard.bring``.
        """
        shard, extents = self._shard, self._extents
        shard.bring(self._own_extents)
        covered, apart = shard.covered(extents), shard.table.apart(extents)
        if self.rest is None and covered is None and apart is None:  # all is in memory
            self._count("own", extents["length"])
            return [_Part.of(slice(None), shard.memory, extents, shard.table.places(extents))]
        # Others are read already, though a disk may be back by now.
        own = self.own if covered is None else self.own & covered
        in_memory = own if apart is None else own & ~apart
        on_disk = np.flatnonzero(own & ~in_memory)
        parts = []
        if len(on_disk):
            rows, memory = self._read_apart(extents[on_disk])
            right = on_disk[~rows.lost]
            if memory is not None and len(right):
                begins = rows.addresses[~rows.lost] - np.uint64(memory.address)
                parts.append(_Part.of(right, memory, extents, begins))
                self._count("disk", extents["length"][right])
            own = own.copy()
            own[on_disk[rows.lost]] = False
        if (own != self.own).any():
            self.close()  # what cannot be read as a whole is cached no more
            self.own = own
            self.rest = self._begin_rest()
        lent: I64 | slice = slice(None) if in_memory.all() else np.flatnonzero(in_memory)
        lengths = extents["length"][lent]
        if len(lengths) or not parts:
            places = shard.table.places(extents[lent])
            parts.insert(0, _Part.of(lent, shard.memory, extents, places))
        self._count("own", lengths)
        if self.rest is not None:
            self._count("file", extents["length"][~self.own])
        return parts

    def _read_apart(self, extents: _core.Extents) -> tuple[ApartRows, _core.Memory | None]:
        """Return records that are not in memory, and the memory that they were read to."""
        begun, taken = monotonic_ns(), list[_core.Memory]()

        def take(size: int) -> tuple[_core.Memory, int]:
            taken.append(self._routes.pool.take(size))
            return taken[0], taken[0].address

        rows = self._shard.read_apart(extents, take)
        while not rows.poll(_core.SLICE_MS):
            pass
        self._routes.counter.span("wait", begun)
        return rows, taken[0] if taken else None

    def _count(self, source: Source, lengths: U64) -> None:
        self._routes.counter.sourced(source, len(lengths), int(lengths.sum()), 0)

    def close(self) -> None:
        """Give up what is read. May be called twice."""
        if self.rest is not None:
            self.rest.close()


class ShardValues(PendingValues):
    """Values of which this process caches some."""

    def __init__(self, routes: Routes, indices: npt.ArrayLike) -> None:
        super().__init__(routes)
        begun = monotonic_ns()
        located = routes.locate(indices)
        self.indices = located[0]
        self._rows: _Rows[ReadValues] = _Rows(routes, located, ReadValues)
        routes.counter.span("locate", begun, located_records=int(self._rows.own.sum()))

    def values(self) -> Iterator[bytes]:
        parts = self._rows.settle()
        engine = self._routes.engine
        sources: list[Iterator[bytes]] = [
            _core.Values.of_memory(engine, part.memory, part.places) for part in parts
        ]
        if self._rows.rest is None and len(sources) == 1:
            return sources[0]
        turns = np.full(len(self), len(sources))
        for number, part in enumerate(parts):
            turns[part.rows] = number
        if self._rows.rest is not None:
            sources.append(self._rows.rest.values())
        return (next(sources[turn]) for turn in turns.tolist())

    def close(self) -> None:
        self._rows.close()


class ShardBatch(PendingBatch):
    """A batch of which this process caches some: lent, if that is all of it."""

    def __init__(self, routes: Routes, indices: npt.ArrayLike) -> None:
        super().__init__(routes)
        located = routes.locate(indices)
        self.indices, self._extents = located
        self._rows: _Rows[ReadBatch] = _Rows(routes, located, ReadBatch)

    def batch(self) -> Batch:
        parts = self._rows.settle()
        for part in parts:
            self._routes.counter.lent(np.ascontiguousarray(part.places["length"]))
        if self._rows.rest is not None or len(parts) > 1:
            return self._joined(parts)
        memory, places = parts[0].memory, parts[0].places
        return Batch.over(
            memory.address,
            memory.size,
            indices=self.indices,
            offsets=np.ascontiguousarray(places["offset"]),
            lengths=np.ascontiguousarray(places["length"]),
            keep=memory,
        )

    def _joined(self, parts: list[_Part]) -> Batch:
        """Copy what is cached, and what was read, into memory of their own."""
        packed = _core.pack_extents(self._extents)
        memory = self._routes.pool.take(packed.room)
        sources = np.empty(len(self), np.uint64)
        for part in parts:
            sources[part.rows] = part.places["offset"] + np.uint64(part.memory.address)
        rest = None
        if self._rows.rest is not None:
            rest = self._rows.rest.batch()
            sources[~self._rows.own] = rest.offsets + np.uint64(rest.buffer.ctypes.data)
        _core.copy_rows(sources, packed.lengths, packed.offsets + np.uint64(memory.address))
        del rest  # which had its rows until here
        return packed_batch(memory, packed, self.indices)

    def close(self) -> None:
        self._rows.close()
