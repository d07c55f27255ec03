"""Records: the values of a database as a sequence, in key order."""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from time import monotonic_ns
from typing import Any, Protocol, SupportsIndex, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.batch import Batch
from lmdbio.errors import Error
from lmdbio.locate.open import Check, Locate, Order, open_record_index
from lmdbio.machine.budget import budget_bytes
from lmdbio.machine.overrides import Overrides
from lmdbio.observe import tracing
from lmdbio.observe.stats import Stats, Tally
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.reading.blocks import BLOCK_BYTES, Block, Blocks, Slices
from lmdbio.reading.direct_path import Bypass
from lmdbio.reading.engines import choose_reading, open_engine
from lmdbio.reading.file_cache import Image

__all__ = ["Begun", "Records", "as_indices", "read_ahead"]

U64 = npt.NDArray[np.uint64]

#: What records take of the budget besides their table, the image, and what they copy out of a
#: mapping: the blocks that iteration reads ahead.
OWN_BYTES = 2 * BLOCK_BYTES
#: Larger batches are copied by several threads, also from the page cache.
GATHER_BYTES_MAX = 4 << 20


def as_indices(indices: npt.ArrayLike, count: int) -> U64:
    """Indices from the beginning, of records of which there are ``count``.

    Args:
        indices: integers, shape (n,); negative ones count from the end.

    Raises:
        TypeError: something else.
        IndexError: there is no such record.
    """
    given = np.asarray(indices)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
        raise TypeError(
            f"indices must be a one-dimensional array of integers, not {given.dtype} of "
            f"shape {given.shape}"
        )
    if given.dtype.kind == "i" and given.size and int(given.min()) < 0:
        given = given.astype(np.int64)  # which can hold the sum
        given = np.where(given < 0, given + count, given)
    if given.size and (int(given.max()) >= count or int(given.min()) < 0):
        raise IndexError(f"an index lies outside the {count} records")
    return given.astype(np.uint64)


class _UnderWay(Protocol):
    def close(self) -> None: ...


B = TypeVar("B", bound=_UnderWay)


def read_ahead(
    begin: Callable[[npt.ArrayLike], B], wanted: Iterable[npt.ArrayLike], ahead: int
) -> Iterator[B]:
    """What was begun, one after another, ``ahead`` of them being under way beside the one handed
    out, which is the caller's to wait for.

    Raises:
        ValueError: ``ahead`` is below 1. Else as ``begin``, in its turn.
    """
    if ahead < 1:
        raise ValueError(f"ahead must be at least 1, not {ahead}")
    return _read_ahead(begin, wanted, ahead)


def _read_ahead(
    begin: Callable[[npt.ArrayLike], B], wanted: Iterable[npt.ArrayLike], ahead: int
) -> Iterator[B]:
    begun: deque[B] = deque()
    failure: Exception | None = None
    try:
        for indices in wanted:
            try:
                begun.append(begin(indices))
            except (OSError, MemoryError, Error) as error:
                failure = error  # it comes after the batches before it
                break
            if len(begun) > ahead:
                yield begun.popleft()
        while begun:
            yield begun.popleft()
        if failure is not None:
            raise failure
    finally:
        for one in begun:
            one.close()


class Records(Sequence[bytes]):
    """Random and ordered access to the values of one database.

    ``recs[i]`` gives bytes, ``recs[a:b]`` a list of bytes, ``recs.read(indices)`` a ``Batch``
    whose reads, where the page cache does not hold it, are sorted, coalesced and all in flight at
    once. Iteration reads ahead. ``recs.key(i)`` and ``recs.index_of(key)`` lead from record to key
    and back.

    It can be pickled (the file is opened anew), used by many threads, and used after fork.
    Never takes a lock: when a writer has moved the file on too far, reading raises ``Error``.

    Args:
        path: an environment's folder or its one file.
        db: a named database, None for the main one.
        locate: "auto", "provenance" or "scan" (``locate.open_record_index``).
        provenance: the sidecar or the folder it is in.
        check: "fast", "deep" or "always".
        order: "key", or "insertion": records as they were put, where their keys tell
            (``locate.open_record_index``); IncompatibleError where they do not.
        engine: "auto", "pread", "direct", "uring", "staged" or "mmap".
        depth: requests in flight.
        gap_bytes_max, request_bytes_max: see ``PlanOptions``.
            What is "auto" or None of these four is chosen (``lmdbio.choice``); ``choice`` says
            what, and why.
        readahead: bring the whole file to memory behind random reads (``lmdbio.image``), as
            far as the reads made so far are worth it. None: if there is room, once they have
            cost as much as that will; True: from the first read on; False: never.
        memory_bytes_max: what that may take in this process, bytes, and what it maps of the file
            to copy records from; None: as ``LMDBIO_MEMORY_BYTES`` says, else the smaller
            of 2.5 GB and a quarter of the memory available to the process. Batches come on top.
        subdir: as in ``lmdb.open``; None takes either.

    Raises:
        OSError, Error: the database cannot be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        db: bytes | str | None = None,
        locate: Locate = "auto",
        provenance: str | os.PathLike[str] | None = None,
        check: Check = "fast",
        order: Order = "key",
        engine: str = "auto",
        depth: int | None = None,
        gap_bytes_max: int | None = None,
        request_bytes_max: int | None = None,
        readahead: bool | None = None,
        memory_bytes_max: int | None = None,
        subdir: bool | None = None,
    ) -> None:
        begun = monotonic_ns()
        self._state: dict[str, Any] = {
            "path": os.fspath(Path(path).absolute()),
            "db": db,
            "locate": locate,
            "provenance": provenance,
            "check": check,
            "order": order,
            "engine": engine,
            "depth": depth,
            "gap_bytes_max": gap_bytes_max,
            "request_bytes_max": request_bytes_max,
            "readahead": readahead,
            "memory_bytes_max": memory_bytes_max,
            "subdir": subdir,
        }
        self._source = open_record_index(
            path,
            db=db,
            locate=locate,
            provenance=provenance,
            check=check,
            order=order,
            subdir=subdir,
        )
        try:
            wish = Overrides(engine, depth, request_bytes_max, gap_bytes_max)
            choice = self.choice = choose_reading(self._source.pages, "batch", wish)
            self._options = PlanOptions(choice.gap_bytes_max, choice.request_bytes_max)
            self._engine = open_engine(self._source.pages, choice)
            size = self._source.used_bytes
            self._bypass = Bypass(self._engine, size, depth=choice.depth, wanted=choice.past_cache)
            budget = budget_bytes(memory_bytes_max)
            self._image = Image(self._engine, size, memory_bytes_max=budget, wanted=readahead)
            if choice.maps_cached:
                own = OWN_BYTES + self._source.table_bytes + self._image.memory_bytes
                self._engine.map_cached(max(0, budget - own))
                self._source.map_metas()
        except BaseException:
            self._source.close()
            raise
        self._pool = _core.MemoryPool()
        self._tally = Tally(self._engines)
        self._blocks = Blocks(
            self._source, self._engine, self._bypass, self._pool, self._options, self._tally
        )
        self._slices = Slices(self._blocks)
        tracing.note("open", begun, monotonic_ns(), {"file": self.path})
        self._fetch = self._source.fetcher(self._engine)
        self._gatherer = self._source.gatherer(self._engine)
        #: Once it is known where all records lie.
        self._holder: Callable[[list[int]], _core.Values | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self._state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def given_path(self) -> str:
        """What was opened, from the root on: the folder, or the file."""
        return cast(str, self._state["path"])

    @property
    def path(self) -> str:
        """The data file."""
        return self._source.path

    @property
    def located_by(self) -> str:
        """ "provenance" or "scan"."""
        return self._source.locate

    def __repr__(self) -> str:
        return f"<Records of {self.path!r}: {len(self)} by {self.located_by}>"

    def __len__(self) -> int:
        return self._source.count

    @overload
    def __getitem__(self, index: SupportsIndex) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1 and start < stop:
                return self._slices.read(start, stop)
            indices = np.arange(start, stop, step, dtype=np.int64).astype(np.uint64)
            return [value for part in self._blocks.read(indices) for value in part]
        at, count = operator.index(index), self._source.count
        at = at + count if at < 0 else at
        if not 0 <= at < count:
            raise IndexError(f"record {index} of {count}")
        begun = monotonic_ns()
        offset, length = self._source.extent(at)
        if self._fetch is not None:
            value = self._fetch(offset, length)
            self._tally.single(begun, length)
            return value
        value = self._engine.read(offset, length)
        self._source.guard()
        self._tally.single(begun, len(value))
        return value

    def key(self, index: SupportsIndex) -> bytes:
        """The key of a record: by arithmetic where all keys follow a pattern, which
        ``lmdbio convert`` proved, else from its leaf.

        Raises:
            IndexError: there is no such record.
            OSError, Error: the tree cannot be read, or the file has moved on.
        """
        at, count = operator.index(index), self._source.count
        at = at + count if at < 0 else at
        if not 0 <= at < count:
            raise IndexError(f"record {index} of {count}")
        return self._source.key(at)

    def index_of(self, key: bytes) -> int:
        """The record of a key, likewise; of a key with many values, that of the first.

        Raises:
            KeyError: the database has no such key.
            TypeError: it is not made of bytes.
            OSError, Error: the tree cannot be read, or the file has moved on.
        """
        if not isinstance(key, (bytes, bytearray, memoryview)):
            raise TypeError(f"a key is bytes, not {type(key).__name__}")
        found = self._source.index(bytes(key))
        if found is None:
            raise KeyError(bytes(key))
        return found

    @property
    def groups(self) -> Sequence[range]:
        """The records of each key, in key order: one, or several in a database with duplicates
        (``dupsort``), where each value is a record.
        """
        return self._source.groups

    def __iter__(self) -> Iterator[bytes]:
        for part in self._blocks.read(np.arange(len(self), dtype=np.uint64)):
            yield from part

    def read(self, indices: npt.ArrayLike) -> Batch:
        """Reads records, all requests in flight at once, each byte of the file at most once.

        A batch of up to 4 MiB that the page cache holds is copied from there instead, each record
        to its place in the order asked, once for each time that it was asked for; they lie at one
        stride if they are of one length.

        Args:
            indices: integers, shape (n,), any order, repeats allowed; negative ones count
                from the end.

        Returns:
            A batch in the order asked, over memory of its own; with ``engine="mmap"``, and a file
            that was in the page cache when it was opened, over the mapping of the file, where it
            shows what a writer puts there later, and zeros, or ends the process by SIGBUS, once
            that is cut.

        Raises:
            IndexError: an index out of range.
            OSError, Error: the file cannot be read, or has moved on.
        """
        begun = monotonic_ns()
        wanted, extents = self._locate(indices)
        located = monotonic_ns()
        batch = self._lend(wanted, extents)
        if batch is None:
            batch = self._gather(begun, located, wanted, extents)
        if batch is not None:
            return batch
        plan = plan_reads(extents, self._options)
        planned = monotonic_ns()
        self._earn(plan)
        ahead = monotonic_ns()
        memory = self._pool.take(plan.totals.buffer_bytes)
        submitted = self._read_plan(plan, memory)
        # Also vouches for what the image received up to now.
        self._source.guard()
        moments = begun, located, planned, ahead, submitted
        self._tally.batch(moments, len(wanted), plan.totals)
        return Batch.over(
            memory.address,
            plan.totals.buffer_bytes,
            indices=wanted,
            offsets=plan.slices,
            lengths=np.ascontiguousarray(extents["length"]),
            keep=memory,
        )

    def values(self, indices: npt.ArrayLike) -> Iterator[bytes]:
        """Values of records, as bytes of their own, one made after another.

        They are read as ``read`` does it, but what the page cache holds is brought from there
        straight into each value, when it is asked for: whoever lets go of one before the next has
        both in a core's cache. A copy of the file in memory (``readahead``) would spare nothing
        of that, so it is not what brings one about.

        Args:
            indices: as for ``read``.

        Returns:
            An iterator in the order asked, for one thread. What is asked for later than a
            writer has moved the file on is not handed out: it raises ``Error``.

        Raises:
            IndexError: an index out of range.
            OSError, Error: the file cannot be read, or has moved on.
        """
        return self.begin_values(indices).values()

    def _locate(self, indices: npt.ArrayLike) -> tuple[U64, _core.Extents]:
        """The indices from the beginning, and where these records lie."""
        given = np.asarray(indices)
        if given.dtype == np.int64 and given.ndim == 1:
            found = self._source.find(given)
            if found is not None:
                return found
        wanted = as_indices(given, len(self))
        return wanted, self._source.extents(wanted)

    def _lend(self, wanted: U64, extents: _core.Extents) -> Batch | None:
        """Records of the image, as ``_locate`` found them; None: it is not complete."""
        image = self._image
        if not image.complete():
            return None
        if image.place == "mapping":
            self._source.guard_mapped()
        else:
            self._source.guard()
        lengths = np.ascontiguousarray(extents["length"])
        self._tally.lent(lengths)
        return Batch.over(
            image.address,
            image.size,
            indices=wanted,
            offsets=np.ascontiguousarray(extents["offset"]),
            lengths=lengths,
            keep=image.keep,
        )

    def _gather(
        self, begun: int, located: int, wanted: U64, extents: _core.Extents
    ) -> Batch | None:
        """Copies a small batch that the page cache holds, which takes less than to plan it.

        Args:
            begun, located: moments, of locating.
            wanted, extents: as ``_locate`` gives them.

        Returns:
            None: it is to be read.
        """
        gatherer = self._gatherer
        if gatherer is None:
            return None
        packed = _core.pack_extents(extents)
        if packed.room > GATHER_BYTES_MAX:
            return None
        memory = self._pool.take(packed.room)
        if not gatherer.copy(packed, memory):
            return None
        self._image.earn(packed.size)  # what the image would save is the copy
        self._tally.gathered(begun, located, len(wanted), packed.size)
        return Batch.over(
            memory.address,
            packed.room,
            indices=wanted,
            offsets=packed.offsets,
            lengths=packed.lengths,
            keep=memory,
        )

    def batches(self, wanted: Iterable[npt.ArrayLike], *, ahead: int = 1) -> Iterator[Batch]:
        """Reads one batch after another, the next ones while one is used.

        A batch read alone ends with a few requests in flight, and begins with none; where
        requests take long, or go to several servers, that is a good part of its time.

        Args:
            wanted: indices of each batch, as ``read`` takes them; asked for as they are needed.
            ahead: batches under way beside the one handed out.

        Yields:
            What ``read`` gives for each. A batch stays valid.

        Raises:
            ValueError: ``ahead`` is below 1. Else as ``read``, when the batch's turn has come,
                or, for its indices, when it is begun.
        """
        return (one.batch() for one in read_ahead(self.begin, wanted, ahead))

    def begin(self, indices: npt.ArrayLike) -> Begun:
        """Begins what ``read`` does: ``batch()`` waits for it, ``close()`` gives it up.

        Raises: as ``read``.
        """
        return Begun(self, indices)

    def begin_values(self, indices: npt.ArrayLike) -> BegunValues:
        """Begins what ``values`` does: ``values()``, once, waits for it, ``close()`` gives it up.

        Raises: as ``values``.
        """
        if not isinstance(indices, list):
            return ReadValues(self, indices)
        begun, indices = monotonic_ns(), indices.copy()
        held = self._held(indices)
        if held is None:
            return ReadValues(self, indices)
        self._tally.located(begun, len(indices))
        return HeldValues(self, indices, held)

    def _held(self, indices: list[int]) -> _core.Values | None:
        """Values that nobody need wait for; None: there is more to do."""
        if self._gatherer is None or self._image.place == "mapping" or self._image.complete():
            return None
        if self._holder is None:
            self._holder = self._source.value_holder(self._engine)
        return None if self._holder is None else self._holder(indices)

    def _missing(self, extents: _core.Extents) -> npt.NDArray[np.bool_] | None:
        """Of each extent, whether it has to be waited for; None: none, as far as is known."""
        if self._gatherer is None:
            return np.ones(len(extents), np.bool_) if len(extents) else None
        return self._engine.missing(extents)

    def _begin_block(self, extents: _core.Extents) -> Block:
        """Begins to read records to memory of their own, behind the stream ahead."""
        plan = self._blocks.plan(extents)
        block = Block(self._blocks, extents, plan)
        begun = monotonic_ns()
        self._earn(plan)
        self._tally.waited(begun, "stream ahead")
        return block

    def _earn(self, plan: _core.Plan) -> None:
        """Lets the stream ahead go on as far as these reads are worth it."""
        size, anew = plan.totals.buffer_bytes, self._bypass.once_over
        spent = plan.totals.requests * self._options.gap_bytes_max
        self._image.earn(size if anew else spent - size, anew=anew)

    def _read_plan(self, plan: _core.Plan, memory: _core.Memory) -> int:
        """Reads a plan; the moment at which it was submitted."""
        size = plan.totals.buffer_bytes
        direct = self._bypass.engine(size)
        with (direct or self._engine).submit_plan(plan, memory.address, memory) as ticket:
            submitted = monotonic_ns()
            ticket.wait()
            if direct is not None:
                self._bypass.took(size, ticket.times)
        return submitted

    def _engines(self) -> Stats:
        """What the engines counted."""
        pages, ahead = self._source.tally(), self._image.tally()
        return replace(
            Stats.of(self._engine.tally() + self._bypass.tally()),
            page_requests=pages.requests,
            page_bytes=pages.bytes,
            ahead_requests=ahead.requests,
            ahead_bytes=ahead.bytes,
        )

    def stats(self) -> Stats:
        """What this process has read with this object so far; also after ``close``."""
        return self._tally.stats()

    def close(self) -> None:
        """Closes the file. May be called twice; batches stay valid, and a mapping under them."""
        self._fetch = self._gatherer = self._holder = None
        self._slices.close()
        self._image.close()
        self._bypass.close()
        self._engine.close()
        self._source.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Begun:
    """Records under way, those that have to be read in a block.

    Attributes:
        indices: of the records, from the beginning: uint64, shape (n,).
    """

    indices: U64

    def __init__(self, records: Records) -> None:
        self._records = records
        self._block: Block | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __reduce__(self) -> str:
        raise TypeError("what is under way cannot be pickled")

    def close(self) -> None:
        if self._block is not None:
            self._block.close()


class Begun(_Begun):
    """A batch under way; ``read`` without the waiting."""

    def __init__(self, records: Records, indices: npt.ArrayLike) -> None:
        super().__init__(records)
        self._batch: Batch | None = None
        begun = monotonic_ns()
        self.indices, extents = records._locate(indices)
        if records._image.complete():
            return  # it is lent when its turn has come, for then it is made sure of
        located = monotonic_ns()
        self._batch = records._gather(begun, located, self.indices, extents)
        if self._batch is not None:
            return
        records._tally.located(begun, len(self.indices))
        self._block = records._begin_block(extents)

    def batch(self) -> Batch:
        if self._batch is not None:
            return self._batch
        if self._block is None:
            return self._records.read(self.indices)
        with self._block as block:
            block.wait()
            return block.batch(self.indices)

    def values(self) -> Iterator[memoryview]:
        """The views of the batch."""
        return iter(self.batch())


class BegunValues(_Begun, ABC):
    """Values under way; what the page cache holds is left there until its turn has come."""

    @abstractmethod
    def values(self) -> Iterator[bytes]:
        """Waits for those that have to be read; to be called once."""

    def _cached(
        self, extents: _core.Extents, *, waits: bool = False, sure: bool = False
    ) -> Iterator[bytes]:
        """Those that the page cache holds, and what it has let go of since.

        Args:
            waits: for that, one by one.
            sure: what is left at the first one that it has let go of is read, whatever it holds.
        """
        records = self._records
        values = records._source.values(records._engine, extents, waits=waits)
        return chain(values, self._let_go(values, sure=sure))

    def _let_go(self, values: _core.Values, *, sure: bool) -> Iterator[bytes]:
        """What comes after the first value that the page cache has let go of."""
        if not values.left:
            return
        records, left = self._records, values.rest()
        missing = None if sure else records._missing(left)
        if missing is None:
            missing = np.full(len(left), sure)
        missing[0] = True
        block = records._begin_block(left[missing])
        yield from self._in_turn(left, missing, block, sure=True)

    def _in_turn(
        self,
        extents: _core.Extents,
        missing: npt.NDArray[np.bool_],
        block: Block,
        *,
        sure: bool = False,
    ) -> Iterator[bytes]:
        """Those that are missing from ``block``, the others, in order, from the page cache."""
        read = self._finish(block)
        if missing.all():
            return read
        cached = self._cached(extents[~missing], sure=sure)
        return (next(read if one else cached) for one in missing.tolist())

    @staticmethod
    def _finish(block: Block) -> Iterator[bytes]:
        with block:
            block.wait()
            return block.values()


class HeldValues(BegunValues):
    """Of which none has to be waited for, as far as is known.

    Args:
        indices: a list that nobody changes.
        values: theirs.
    """

    def __init__(self, records: Records, indices: list[int], values: _core.Values) -> None:
        super().__init__(records)
        self._given = indices
        self._held: _core.Values | None = values

    def __len__(self) -> int:
        return len(self._given)

    @property
    def indices(self) -> U64:  # type: ignore[override]
        return as_indices(self._given, len(self._records))

    def values(self) -> Iterator[bytes]:
        held, self._held = self._held, None
        if held is None:
            raise ValueError(f"{self._records.path}: these values were handed out")
        return chain(held, self._let_go(held, sure=False))


class ReadValues(BegunValues):
    """Of which those that the page cache does not hold are being read. Out of a mapping none is:
    what is lent of that would show what a writer puts there later.
    """

    def __init__(self, records: Records, indices: npt.ArrayLike) -> None:
        super().__init__(records)
        begun = monotonic_ns()
        self.indices, self._extents = records._locate(indices)
        #: Of each, whether it is read in a block; None: all of them wait in the page cache.
        self._missing: npt.NDArray[np.bool_] | None = None
        self._waits = records._image.place == "mapping"
        self._is_lent = not self._waits and records._image.complete()
        if self._is_lent:
            return  # when its turn has come, for then it is made sure of
        records._tally.located(begun, len(self.indices))
        if not self._waits:
            self._missing = records._missing(self._extents)
            if self._missing is None:
                records._engine.prefault(self._extents)
        if self._missing is not None:
            self._block = records._begin_block(self._extents[self._missing])

    def values(self) -> Iterator[bytes]:
        records = self._records
        if self._block is not None and self._missing is not None:
            return self._in_turn(self._extents, self._missing, self._block)
        if not self._is_lent:
            return self._cached(self._extents, waits=self._waits)
        lent = records._lend(self.indices, self._extents)
        if lent is not None:
            return map(bytes, lent)
        return self._finish(records._begin_block(self._extents))
