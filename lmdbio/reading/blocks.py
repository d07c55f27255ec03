"""Blocks: records in order, some at a time, the next ones being read meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain, islice
from time import monotonic_ns

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.locate.record_index import RecordIndex
from lmdbio.observe.stats import StageCounter
from lmdbio.planning.reads import PlanOptions, plan_reads, spread
from lmdbio.reading.batch import Batch
from lmdbio.reading.direct_path import BATCH_BYTES_MIN, DirectPath
from lmdbio.reading.engines import is_on_disk
from lmdbio.system import fork
from lmdbio.system.frozen import dataclass

__all__ = ["Block", "Blocks", "InOrder", "Slices"]

#: Bytes of records that iteration and slices read at a time; two such blocks are in memory.
BLOCK_BYTES = 8 << 20
#: A batch follows another one where their indices are no further off than so many batches: a rank
#: has every other record, and threads begin batches out of turn.
NEAR_BATCHES = 8
#: Where the page cache has so many bytes from a batch on, or what so many batches need, they need
#: nothing else.
CACHED_BYTES_MIN, CACHED_BYTES_MAX, CACHED_BATCHES = 64 << 20, 256 << 20, 64
#: Bytes that one thread asks the page cache for at once where it has no room for the file, so that
#: no stream does; and where no disk of this machine is below: such file systems see single
#: requests, which must come in order (csrc/prefetch.h).
DISK_PIECE_BYTES = 2 << 20
PIECE_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class Blocks:
    """A way of reading records in order.

    Attributes:
        index: says where they lie.
        engine: engine for reads through the page cache, or as it was asked for.
        direct_path: engine past the page cache, while that is as good.
        pool: memory of blocks.
        options: options of the blocks' plans.
        counter: counts.
        sweep_bytes_max: bytes of the largest file that is brought to the page cache whole, where
            its records do not lie in their order.
    """

    index: RecordIndex
    engine: _core.Engine
    direct_path: DirectPath
    pool: _core.MemoryPool
    options: PlanOptions
    counter: StageCounter
    sweep_bytes_max: int

    def read(self, indices: npt.NDArray[np.uint64]) -> Generator[Iterator[bytes], None, None]:
        """Values of ``indices`` in order, by blocks, the next one being read meanwhile.

        Each is to be used up before the next one is asked for.
        """
        started: list[Block | _Direct] = []
        prefetch = self.open_prefetch()
        try:
            for part in self.cut(indices):
                started.append(self._begin(part, prefetch))
                if len(started) == 2:
                    yield self._hand_out(started.pop(0))
            while started:
                yield self._hand_out(started.pop(0))
        finally:
            for block in started:
                block.close()
            prefetch.close()

    def open_prefetch(self) -> _core.Prefetch:
        """Return what brings the file to the page cache ahead of its readers."""
        piece = PIECE_BYTES
        if is_on_disk(self.engine):
            has_room = self.index.used_bytes <= self.sweep_bytes_max
            piece = 0 if has_room else DISK_PIECE_BYTES
        return _core.Prefetch(
            self.engine, self.index.used_bytes, piece=piece, sweep_bytes_max=self.sweep_bytes_max
        )

    def _begin(self, extents: _core.Extents, prefetch: _core.Prefetch) -> Block | _Direct:
        """Through the page cache straight into the objects, where it has room for the file.

        Records that lie all over the file wait until that is there whole. Else a plan reads them,
        into memory from which they are cut, past the page cache where that is as good.
        """
        plan = None
        size = int(extents["length"].sum())
        awaited = prefetch.sweep(extents, block_bytes=max(size, 1))
        if awaited is None and prefetch.is_stream:
            awaited = self._cover(extents, size, prefetch)
        if awaited is not None:
            return _Direct(self, extents, prefetch, awaited)
        if self.direct_path.engine(max(size, BATCH_BYTES_MIN)) is not None:
            plan = self.plan(extents)
            if self.direct_path.engine(plan.totals.buffer_bytes) is not None:
                return Block(self, extents, plan)
        if not prefetch.is_stream:
            awaited = self._cover(extents, size, prefetch)
            if awaited is not None:
                return _Direct(self, extents, prefetch, awaited)
        return Block(self, extents, plan or self.plan(extents))

    @staticmethod
    def _cover(extents: _core.Extents, size: int, prefetch: _core.Prefetch) -> range | None:
        return prefetch.cover(extents, block_bytes=max(size, 1), ahead=max(2 * size, BLOCK_BYTES))

    def plan(self, extents: _core.Extents) -> _core.Plan:
        """Return the reads of extents, and count the planning."""
        begun = monotonic_ns()
        plan = plan_reads(extents, self.options)
        self.counter.planned(begun, plan.totals)
        return plan

    def cut(self, indices: npt.NDArray[np.uint64]) -> Iterator[_core.Extents]:
        """Extents in pieces of about ``BLOCK_BYTES``, the first ones smaller.

        With what is read around them, they take about twice that at most.
        """
        at, step, target = 0, 64, BLOCK_BYTES // 16
        while at < len(indices):
            begun = monotonic_ns()
            extents = self.index.extents(indices[at : at + step])
            ends = np.cumsum(extents["length"], dtype=np.uint64)
            taken = np.cumsum(spread(extents, self.options.gap_bytes_max))
            take = min(
                int(np.searchsorted(ends, np.uint64(target), side="right")),
                int(np.searchsorted(taken, 2 * target, side="right")),
            )
            take = max(1, take)
            self.counter.span("locate", begun, located_records=take)
            yield extents[:take]
            at += min(take, len(extents))
            mean = max(1, int(ends[-1]) // len(extents))
            target = min(2 * target, BLOCK_BYTES)
            step = max(1, min(target // mean + 1, 1 << 16))

    def _hand_out(self, block: Block | _Direct) -> Iterator[bytes]:
        with closing(block):
            block.wait()
            return block.values()


class Block:
    """Records under way into memory of their own.

    Args:
        blocks: the way of reading.
        extents: places of the records.
        plan: their reads.
        direct: engine past the page cache; None: ``blocks`` has it where that pays.
        after: function that is called once the records are there.
    """

    def __init__(
        self,
        blocks: Blocks,
        extents: _core.Extents,
        plan: _core.Plan,
        direct: _core.Engine | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self._blocks, self._plan, self._counter = blocks, plan, blocks.counter
        self._after = after
        begun = monotonic_ns()
        self._lengths = np.ascontiguousarray(extents["length"])
        self._memory = blocks.pool.take(plan.totals.buffer_bytes)
        direct = direct or blocks.direct_path.engine(plan.totals.buffer_bytes)
        self._is_direct = direct is not None
        self._ticket = (direct or blocks.engine).submit_plan(
            plan, self._memory.address, self._memory
        )
        self._counter.span("submit", begun)

    def wait(self) -> None:
        """Wait for all reads, then hold the file against the snapshot."""
        begun = monotonic_ns()
        self._ticket.wait()
        self._counter.span("wait", begun)
        if self._is_direct:
            self._blocks.direct_path.record(self._plan.totals.buffer_bytes, self._ticket.times)
        self._blocks.index.guard()
        if self._after is not None:
            self._after()

    def values(self) -> Iterator[bytes]:
        """Return the values, each made as it is asked for."""
        places = np.empty(len(self._lengths), _core.EXTENT)
        places["offset"], places["length"] = self._plan.slices, self._lengths
        return _core.Values.of_memory(self._blocks.engine, self._memory, places)

    def batch(self, wanted: npt.NDArray[np.uint64]) -> Batch:
        """The whole block as a batch, over its memory."""
        self._counter.span(
            "copy",
            monotonic_ns(),
            records=len(self._lengths),
            record_bytes=int(self._lengths.sum()),
        )
        return Batch.over(
            self._memory.address,
            self._plan.totals.buffer_bytes,
            indices=wanted,
            offsets=self._plan.slices,
            lengths=self._lengths,
            keep=self._memory,
        )

    def close(self) -> None:
        """End the reads, done or not."""
        self._ticket.close()


class _Direct:
    """Records that are read where they are wanted, once the file has come so far."""

    def __init__(
        self, blocks: Blocks, extents: _core.Extents, prefetch: _core.Prefetch, awaited: range
    ) -> None:
        self._blocks, self._extents = blocks, extents
        self._prefetch, self._awaited = prefetch, awaited

    def wait(self) -> None:
        self._prefetch.wait(self._awaited)

    def values(self) -> Iterator[bytes]:
        return self._blocks.index.values(self._blocks.engine, self._extents)

    def close(self) -> None:
        pass


class InOrder:
    """Small batches that follow one another, as in an epoch without shuffling.

    The third of them begins to bring the file to the page cache ahead of them, as for iteration,
    and each waits until it has come so far. Threads may share it, and begin batches a little out
    of turn.

    Args:
        blocks: open what brings the file.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        #: Of one thread again and again: a signal's handler may close it while a batch waits here.
        self._guard = threading.RLock()
        self._next = self._seen = 0
        #: A part of the file that the page cache had when it was asked, and batches until it is
        #: asked again after it had not.
        self._cached, self._unasked = range(0), 0
        self._prefetch: _core.Prefetch | None = None
        fork.register(self)

    def _after_fork(self) -> None:
        self._guard, self._prefetch = threading.RLock(), None

    def bring(self, wanted: npt.NDArray[np.uint64], extents: _core.Extents) -> None:
        """Have a batch come to the page cache, and what follows, where it follows others."""
        if not len(wanted):
            return
        low, high = sorted((int(wanted[0]), int(wanted[-1])))
        near = NEAR_BATCHES * len(wanted)
        with self._guard:
            follows = high - low <= near and abs(low - self._next) <= near
            self._next, self._seen = high + 1, self._seen + 1 if follows else 0
            if self._seen < 2:
                self._close()
                return
            if self._is_cached(extents):
                return
            size = int(extents["length"].sum())
            if size >= BATCH_BYTES_MIN:
                return  # large batches may go past the page cache
            if self._prefetch is None:
                self._prefetch = self._blocks.open_prefetch()
            prefetch = self._prefetch
            if not prefetch.is_stream:
                return  # a plan of all its reads is as good
            awaited = prefetch.sweep(extents, block_bytes=max(size, 1))
            if awaited is None:
                awaited = prefetch.cover(extents, block_bytes=max(size, 1), ahead=BLOCK_BYTES)
            if awaited is not None:
                prefetch.wait(awaited)

    def _is_cached(self, extents: _core.Extents) -> bool:
        """Whether the page cache has a batch, and what follows, as far as is known."""
        first, last = int(extents["offset"].min()), int(extents["offset"].max())
        if first in self._cached and last in self._cached:
            return True
        if self._unasked:
            self._unasked -= 1
            return False
        size = max(CACHED_BATCHES * (last - first), CACHED_BYTES_MIN)
        size = min(size, CACHED_BYTES_MAX, self._blocks.index.used_bytes - first)
        if size <= 0 or (self._blocks.engine.cached_bytes_in(first, size) or 0) < size:
            self._unasked = CACHED_BATCHES
            return False
        self._cached = range(first, first + size)
        return last in self._cached

    def _close(self) -> None:
        self._cached, self._unasked = range(0), 0
        prefetch, self._prefetch = self._prefetch, None
        if prefetch is not None:
            prefetch.close()

    def close(self) -> None:
        """End what is under way. May be called twice."""
        with self._guard:
            self._close()


class Slices:
    """Slices that follow one another, read as one stream.

    The second of them begins it; the blocks that it has in hand or on their way wait for the next
    slice, and are dropped if that begins elsewhere. Threads may share it: one has the stream.

    Args:
        blocks: reader of the blocks.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._guard = threading.RLock()
        self._stream: _Stream | None = None
        self._end = 0  # of the last slice
        fork.register(self)

    def _after_fork(self) -> None:
        self._guard = threading.RLock()

    def read(self, start: int, stop: int) -> list[bytes]:
        """The records from ``start`` to ``stop``, which are there and at least one."""
        with self._guard:
            follows, self._end = 0 < start == self._end, stop
            stream, self._stream = self._stream, None
        if stream is not None and not stream.begins_at(start):
            stream.close()
            stream = None
        if stream is None:
            if not follows:
                indices = np.arange(start, stop, dtype=np.uint64)
                return [value for part in self._blocks.read(indices) for value in part]
            stream = _Stream(self._blocks, start)
        try:
            found = stream.take(stop - start)
            with self._guard:
                if self._stream is None and self._end == stop < self._blocks.index.count:
                    self._stream, stream = stream, None
        finally:
            if stream is not None:
                stream.close()
        return found

    def close(self) -> None:
        """Drops what is under way. May be called twice."""
        with self._guard:
            self._end = 0
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class _Stream:
    """The records from one on to the last, taken as many at a time as are asked for."""

    def __init__(self, blocks: Blocks, start: int) -> None:
        _core.keep_heap()
        self._at, self._pid = start, os.getpid()
        self._parts = blocks.read(np.arange(start, blocks.index.count, dtype=np.uint64))
        self._values = chain.from_iterable(self._parts)

    def begins_at(self, start: int) -> bool:
        """Whether that is the next record; what a parent process began is not gone on with."""
        return self._at == start and self._pid == os.getpid()

    def take(self, count: int) -> list[bytes]:
        self._at += count
        return list(islice(self._values, count))

    def close(self) -> None:
        self._parts.close()
