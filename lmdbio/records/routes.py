"""routes: the ways from where records lie to their bytes.

    held       the file cache has the whole file: records are lent from it, uncopied
    cached     the page cache has these records: each is copied as it lies
    planned    sorted, coalesced reads, all in flight, into memory of the batch's own
    streamed   in order, by blocks, the next one being read while one is used
    shard      this process keeps a part of the file: batches come out of that, and the rest by
               the others (``shard_batch``)

A batch takes the first of held, cached and planned that can; iteration and slices are streamed.
Two duties go with every route, and each route has them in one place: after its reads it makes
sure that no writer has moved the file on (``RecordIndex.guard``; C does it for copies), and it
counts what it did (``StageCounter``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.locate.open import open_record_index
from lmdbio.locate.record_index import RecordIndex
from lmdbio.machine.budget import cached_bytes_max
from lmdbio.machine.choice import Choice
from lmdbio.observe.stats import StageCounter, Stats
from lmdbio.planning.reads import PlanOptions
from lmdbio.reading.batch import Batch, packed_batch
from lmdbio.reading.blocks import BLOCK_BYTES, Block, Blocks, InOrder, Slices
from lmdbio.reading.direct_path import DirectPath
from lmdbio.reading.engines import choose_reading, is_on_disk, open_engine
from lmdbio.reading.file_cache import FileCache, Lent
from lmdbio.reading.wait_credit import WaitCredit
from lmdbio.records.ahead import as_indices
from lmdbio.system.amounts import refuse_no_flag

if TYPE_CHECKING:
    from lmdbio.cache import CacheShard

__all__ = ["Field", "Located", "Routes", "choose_reading", "open_record_index"]

U64 = npt.NDArray[np.uint64]

#: Bytes of the budget that records take besides their table, the file cache, and what they copy
#: out of a mapping: the blocks that iteration reads ahead.
OWN_BYTES = 2 * BLOCK_BYTES
#: Larger batches are copied by several threads, also from the page cache.
GATHER_BYTES_MAX = 4 << 20

#: Indices from the beginning, uint64 of shape (n,), and the extents of these records.
Located = tuple[U64, _core.Extents]


class Field(NamedTuple):
    """The same bytes of every record of a batch, wanted one row after another in given memory.

    record | offset | field | rest |      ->      | field of record 0 | field of record 1 | ...

    The caller owns the memory until the batch is over.

    Attributes:
        offset: offset of the field, bytes from the start of each record.
        size: size of the field, bytes.
        address, room: address and size of the memory, bytes.
        rows: records of the batch whose fields are wanted there.
    """

    offset: int
    size: int
    address: int
    room: int
    rows: slice = slice(None)

    def located(self, extents: _core.Extents) -> _core.Extents | None:
        """Return where the field of each record lies in the file; None: a record is too short.

        Args:
            extents: extents of the batch's records, dtype ``EXTENT``.
        """
        if not len(extents) or int(extents["length"].min()) < self.offset + self.size:
            return None
        fields: _core.Extents = extents.copy()
        if self.offset:
            fields["offset"] += np.uint64(self.offset)
        fields["length"] = self.size
        return fields

    def packed(self, fields: _core.Extents) -> _core.Packed | None:
        """Return where the wanted rows lie, there and in the memory; None: that is too small.

        Args:
            fields: fields of the batch's records, from ``located``.
        """
        wanted = fields[self.rows]
        total = len(wanted) * self.size
        if not total or total > self.room:
            return None
        return _core.Packed(wanted, *_rows_of(len(wanted), self.size), total, total)


@lru_cache(4)  # arrays of a batch's size: those of its fields, and of an epoch's last batch
def _rows_of(count: int, size: int) -> tuple[U64, U64]:
    """Return the lengths of rows of so many bytes, and their offsets one behind the other."""
    return np.full(count, size, np.uint64), np.arange(0, count * size, size, dtype=np.uint64)


def _copy_fields(lent: Lent, packed: _core.Packed, field: Field) -> bool:
    """Copy fields of records out of memory that has the whole file; False: one lies behind it."""
    offsets = packed.extents["offset"]
    if int(offsets.max()) > lent.size - field.size:
        return False
    sources, targets = offsets + np.uint64(lent.address), packed.offsets + np.uint64(field.address)
    _core.copy_rows(sources, packed.lengths, targets)
    return True


def _fetch_held(
    file_cache: FileCache,
    guard: Callable[[], None],
    fetch: Callable[[int, int], bytes],
    offset: int,
    length: int,
) -> bytes:
    """Copy bytes of the file out of the file cache, or fetch them where that has not all of it."""
    lent = file_cache.lend()
    if lent is None or length > lent.size - offset:
        return fetch(offset, length)
    found = bytes(_core.lend(lent.address + offset, length, lent.owner))
    guard()
    return found


class Routes:
    """The ways of reading the records of one source.

    Threads may share it. It owns its engines, not the source.

    Attributes:
        source: says where records lie.
        engine: reads through the page cache, or as it was asked for.
        direct_path: reads past the page cache, while that is no loss.
        file_cache: the whole file in memory, as far as reads were worth it.
        counter: counts.
        shard: the part of the file that batches keep; None: there is none.

    Args:
        choice: engine, depth and sizes for reading.
        readahead: whether to bring the whole file to memory, as of ``Records``.
        budget: bytes that file cache and mapped pages may take.
    """

    def __init__(
        self, source: RecordIndex, choice: Choice, *, readahead: bool | None, budget: int
    ) -> None:
        refuse_no_flag(None, readahead=readahead)
        self.source, self.options = (
            source,
            PlanOptions(choice.gap_bytes_max, choice.request_bytes_max),
        )
        self.engine = open_engine(source.pages, choice)
        size = source.used_bytes
        self.direct_path = DirectPath(
            self.engine, size, depth=choice.depth, wanted=choice.may_bypass_cache
        )
        self.file_cache = FileCache(self.engine, size, memory_bytes_max=budget, wanted=readahead)
        if choice.maps_cached:
            own = OWN_BYTES + source.table_bytes + self.file_cache.memory_bytes
            self.engine.map_cached(max(0, budget - own))
            source.map_metas()
        self.pool = _core.MemoryPool()
        self.shard: CacheShard | None = None  # before ``counter``, which a fork asks
        self.counter = StageCounter(self.engine_counts)
        self.blocks = Blocks(
            source,
            self.engine,
            self.direct_path,
            self.pool,
            self.options,
            self.counter,
            0 if readahead is False else cached_bytes_max(),
        )
        self.slices = Slices(self.blocks)
        self.in_order = InOrder(self.blocks)
        # Each that waits has read nothing but its own record: the kernel reads nothing ahead here.
        # They bring the file to the page cache: memory of its own each process would take.
        ahead = size if readahead else 0 if is_on_disk(self.engine) else None
        self._wait_credit = None
        shared = self.file_cache if readahead or self.file_cache.place == "page cache" else None
        if shared is not None or (readahead is None and self.engine.kind == "pread"):
            self._wait_credit = WaitCredit(
                self.engine, size, readahead_bytes=ahead, file_cache=shared
            )
        self._fetch = source.fetcher(self.engine, self._wait_credit)
        if self._fetch is not None and self.file_cache.place == "memory":
            self._fetch = partial(_fetch_held, self.file_cache, source.guard, self._fetch)
        self.gatherer = source.gatherer(self.engine)
        #: Once it is known where all records lie.
        self._get_values: Callable[[list[int]], _core.Values | None] | None = None

    def locate(self, indices: npt.ArrayLike) -> Located:
        """Return the indices from the beginning, and where these records lie.

        Raises:
            TypeError, IndexError: as for ``as_indices``.
            OSError, Error: the provenance file or a leaf cannot be read.
        """
        count = self.source.count
        if isinstance(indices, range) and 0 <= indices.start <= count >= indices.stop >= 0:
            given = np.arange(indices.start, indices.stop, indices.step)
        else:
            given = np.asarray(indices)
        if given.dtype == np.int64 and given.ndim == 1:
            found = self.source.find(given)
            if found is not None:
                return found
        wanted = as_indices(given, self.source.count, self.source.path)
        return wanted, self.source.extents(wanted)

    # --- one record

    def single(self, at: int) -> bytes:
        """Return one record, ``at`` being below the count.

        Raises:
            OSError, Error: it cannot be read, or the file has moved on.
        """
        begun, fetch = monotonic_ns(), self._fetch
        if self.file_cache.deferred:
            self.file_cache.begin_deferred()
        offset, length = self.source.extent(at)
        if fetch is not None:
            value = fetch(offset, length)
        else:
            value = self.engine.read(offset, length)
            self.source.guard()
        self.counter.single(begun, length)
        return value

    # --- a batch

    def held(self, wanted: U64, extents: _core.Extents) -> Batch | None:
        """Lend records of the file cache; None: it has not the whole file."""
        lent = self.file_cache.lend()
        if lent is None:
            return None
        self._guard_lent()
        lengths = np.ascontiguousarray(extents["length"])
        self.counter.lent(lengths)
        return Batch.over(
            lent.address,
            lent.size,
            indices=wanted,
            offsets=np.ascontiguousarray(extents["offset"]),
            lengths=lengths,
            keep=lent.owner,
        )

    def held_values_of(self, extents: _core.Extents) -> _core.Values | None:
        """Return values out of the file cache, each made as it is asked for; None as ``held``."""
        lent = self.file_cache.lend()
        if lent is None:
            return None
        self.source.guard()
        return _core.Values.of_memory(self.engine, lent, extents)

    def cached(self, begun: int, wanted: U64, extents: _core.Extents) -> Batch | None:
        """Copy a small batch out of the page cache, which takes less than to plan it.

        Args:
            begun: the moment at which locating it began.
            wanted, extents: indices and extents of the records, from ``locate``.

        Returns:
            None: it is large, or the page cache lacks a part of it.
        """
        located = monotonic_ns()
        gatherer = self.gatherer
        if gatherer is None:
            return None
        packed = _core.pack_extents(extents)
        if packed.room > GATHER_BYTES_MAX:
            return None
        memory = self.pool.take(packed.room)
        if not gatherer.copy(packed, memory.address):
            return None
        self.file_cache.credit(packed.size, copies=True)  # the file cache would save the copy
        self.counter.gathered(begun, located, len(wanted), packed.size)
        return packed_batch(memory, packed, wanted)

    def fills(self, begun: int, extents: _core.Extents, fields: Sequence[Field]) -> bool:
        """Copy fields of cached records to where they are wanted, of any size.

        Args:
            begun: the moment at which locating them began.
            extents: extents of the records.
            fields: fields to copy, at least one.

        Returns:
            False: file cache and page cache lack a part of one, or a record is too short.
        """
        located, size, lent = monotonic_ns(), 0, self.file_cache.lend()
        found: dict[tuple[int, int], _core.Extents | None] = {}
        for field in fields:
            which = field.offset, field.size
            if which not in found:
                found[which] = field.located(extents)
            lies = found[which]
            packed = None if lies is None else field.packed(lies)
            if packed is None:
                return False
            if lent is not None:
                is_copied = _copy_fields(lent, packed, field)
            else:
                gatherer = self.gatherer
                is_copied = gatherer is not None and gatherer.copy(packed, field.address)
            if not is_copied:
                return False
            size += packed.size
        if lent is None:
            self.counter.gathered(begun, located, len(extents), size)
        else:
            self._guard_lent()
            self.counter.lent(np.ascontiguousarray(extents["length"]))
        return True

    def _guard_lent(self) -> None:
        if self.file_cache.place == "mapping":
            self.source.guard_mapped()
        else:
            self.source.guard()

    def planned(self, extents: _core.Extents) -> Block:
        """Begin to read records into memory of their own, behind the stream ahead.

        The block's ``wait`` guards, also for what the file cache received up to then.
        """
        plan = self.blocks.plan(extents)
        if self.file_cache.takes_pass() and (aside := self.direct_path.engine()) is not None:
            # A batch that is wanted soon: the stream of the file begins when it is there.
            return Block(self.blocks, extents, plan, aside, self.file_cache.begin_deferred)
        begun = monotonic_ns()
        self._credit(plan)
        self.counter.span("stream ahead", begun)
        return Block(self.blocks, extents, plan)

    def expect(self, records: int, processes: int = 1) -> None:
        """Have the file streamed where reading so many of its records at random would cost more.

        Args:
            records, processes: number of records, and of processes, as of ``Records.expect``.
        """
        if processes > 1:
            self.file_cache.share(processes)
        count = self.source.count
        bytes_each = self.source.used_bytes // count if count else 0
        self.file_cache.expect(records * (self.options.gap_bytes_max - bytes_each))

    def _credit(self, plan: _core.Plan) -> None:
        """Let the stream ahead go on as far as these reads are worth it."""
        size, anew = plan.totals.buffer_bytes, self.direct_path.once_over
        spent = plan.totals.requests * self.options.gap_bytes_max
        self.file_cache.credit(size if anew else spent - size, anew=anew)
        if self.file_cache.has_come:
            self.direct_path.stop("random reads have brought it there")

    def streamed(self, indices: U64) -> Iterator[bytes]:
        """Iterate over the values of records in order, the next ones being read meanwhile."""
        return chain.from_iterable(self.blocks.read(indices))

    # --- values that are made when they are asked for

    def held_values(self, indices: npt.ArrayLike) -> tuple[list[int], _core.Values] | None:
        """Return indices as a list, and their values, of which none need be waited for.

        None: some may have to be read, or these are no list and no array of int64.
        """
        cache = self.file_cache
        if self.gatherer is None or cache.complete():
            return None
        if self._get_values is None:
            self._get_values = self.source.value_getter(self.engine)
        if self._get_values is None:
            return None
        if isinstance(indices, list):
            wanted = indices
        elif isinstance(indices, np.ndarray) and indices.dtype == np.int64 and indices.ndim == 1:
            wanted = indices.tolist()
        else:
            return None
        values = self._get_values(wanted)
        return None if values is None else (wanted, values)

    def missing(self, extents: _core.Extents) -> npt.NDArray[np.bool_] | None:
        """Return whether each extent has to be waited for; None: none, so far as is known."""
        if self.gatherer is None:
            return np.ones(len(extents), np.bool_) if len(extents) else None
        return self.engine.missing(extents)

    # --- counts, and the end

    def engine_counts(self) -> Stats:
        """Return what all engines counted so far; also after ``close``."""
        pages, ahead = self.source.counts(), self.file_cache.counts()
        cached = Stats() if self.shard is None else self.shard.counts
        return replace(
            Stats.of(self.engine.counts() + self.direct_path.counts()),
            page_requests=pages.requests,
            page_bytes=pages.bytes,
            ahead_requests=ahead.requests,
            ahead_bytes=ahead.bytes,
            cache_bytes=cached.cache_bytes,
            cache_disk_bytes=cached.cache_disk_bytes,
            damaged_pages=cached.damaged_pages,
        )

    def close(self) -> None:
        """Close the engines. May be called twice; batches stay valid."""
        self._fetch = self.gatherer = self._get_values = None
        if self._wait_credit is not None:
            self._wait_credit.close()
        self.slices.close()
        self.in_order.close()
        if self.shard is not None:
            self.shard.close()
        self.file_cache.close()
        self.direct_path.close()
        self.engine.close()


# Py-lmdb reads where the core is absent: importers of these three need not ask which it is.
if _core.absence:
    from lmdbio.records.portable_routes import (  # type: ignore[assignment]
        Routes,
        choose_reading,
        open_record_index,
    )
