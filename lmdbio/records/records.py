"""records: Records, the values of a database as a sequence.

A sample may be of several records, such as an image and its label:

    sample i  ->  records i * columns and those after it  ->  one read  ->  a tuple

The records of all samples of a batch are read together, all requests in flight at once.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Sequence
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from lmdbio.locate.open import Check, Locate, Order, wanted_samples
from lmdbio.machine.budget import budget_bytes
from lmdbio.machine.overrides import Overrides
from lmdbio.observe import ledger, tracing
from lmdbio.observe.stats import Stats
from lmdbio.provenance import Paths, as_given
from lmdbio.reading.batch import Batch
from lmdbio.records.ahead import INT64, as_indices, is_several
from lmdbio.records.pending import (
    CachedValues,
    Pending,
    PendingBatch,
    PendingValues,
    ReadBatch,
    ReadValues,
)
from lmdbio.records.routes import Field, Routes, choose_reading, open_record_index
from lmdbio.records.samples import Remade, Samples, View
from lmdbio.records.shard_batch import ShardBatch, ShardValues
from lmdbio.remote import absolute, label

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from lmdbio.layouts.layout import Layout
    from lmdbio.layouts.wanted import Skip
    from lmdbio.records.options import RecordsOptions

__all__ = ["ColumnBatch", "ColumnRecords", "Records", "open_records"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class Records(Samples[bytes, Batch]):
    """Random and ordered access to the values of one database.

    ``recs[i]`` returns bytes, ``recs[a:b]`` a list of bytes, ``recs[array]`` a view (``subset``),
    and ``recs.read(indices)`` a ``Batch``: its reads are sorted, coalesced and all in flight at
    once, unless the page cache holds the batch. Iteration prefetches. ``recs.key(i)`` and
    ``recs.index_of(key)`` lead from record to key and back.

    Records can be pickled (the copy opens the file anew), used by many threads, and used after
    fork. They take no lock: when a writer has moved the file on too far, reading raises ``Error``.

    Args:
        path: folder or file of an environment, or a URL; or several files, whose records continue
            from file to file: a list of paths, a pattern (``"shards/*.lmdb"``,
            ``"**/data.mdb"``), or a folder. Few of the files are open at a time.
        db: name of a named database; None: the main one.
        locate: "auto", "provenance" or "scan": whether a provenance file or a walk of the tree
            finds the records.
        provenance: provenance file, or the folder that holds it.
        check: "fast", "deep" or "always": how to check the provenance file.
        order: "key", or "insertion" for records as they were put, if that order is known.
        layout: choice and order of the samples. None: all records, in key order. "auto": the
            layout of the program that wrote the file, else all records. Or a layout's name
            (``lmdbio.layouts.KNOWN``), or a ``Layout`` of your own. Values are tuples if a sample
            has several records, such as an image and its label.
        skip: keys to leave out: one or several, as bytes or text, or patterns (``*``, ``?``,
            ``[...]``), for which all keys are read.
        engine: "auto", "pread", "direct", "uring", "staged" or "mmap".
        depth: number of requests in flight.
        gap_bytes_max: largest number of unneeded bytes that are read to save a request.
        request_bytes_max: size of the largest request, bytes. "auto" and None in these four choose
            by the storage; the attribute ``choice`` tells how, and why.
        readahead: whether to load the whole file behind random reads, into the page cache, or,
            from remote storage, into memory. None: if there is room, once random reads have cost
            as much as loading; True: from the first read on; False: never.
        memory_bytes_max: number of bytes that this object may take in this process, including
            mapped pages of the file; an integer, or text such as "2G". Batches come in addition.
            ``expect`` divides it among processes. None: ``LMDBIO_MEMORY_BYTES``, else the smaller
            of 2.5 GB and a quarter of the memory available to the process.
        subdir: whether the path is a folder, as in ``lmdb.open``; None: either.

    Raises:
        OSError, Error: the database cannot be opened.
        IncompatibleError: the database lacks this layout or order, or its keys contradict it.
    """

    _counted = "record {} of {}"

    def __init__(
        self,
        path: Paths,
        *,
        db: bytes | str | None = None,
        locate: Locate = "auto",
        provenance: str | os.PathLike[str] | None = None,
        check: Check = "fast",
        order: Order = "key",
        layout: str | Layout | None = None,
        skip: Skip | None = None,
        engine: str = "auto",
        depth: int | None = None,
        gap_bytes_max: int | None = None,
        request_bytes_max: int | None = None,
        readahead: bool | None = None,
        memory_bytes_max: int | str | None = None,
        subdir: bool | None = None,
    ) -> None:
        state = {name: value for name, value in locals().items() if name != "self"}
        begun, samples = monotonic_ns(), wanted_samples(layout, skip, order)
        #: The arguments, by which it is made again.
        self._state: dict[str, Any] = {**state, "skip": None if samples is None else samples.skip}
        self._source = open_record_index(
            path,
            db=db,
            locate=locate,
            provenance=provenance,
            check=check,
            order=order,
            samples=samples,
            subdir=subdir,
        )
        # A folder may have other files when these are opened anew.
        seen = self._source.file_set
        self._state["path"] = as_given(path if seen is None else seen.locations, absolute=True)
        if provenance is not None:
            self._state["provenance"] = absolute(provenance)
        try:
            overrides = Overrides(engine, depth, request_bytes_max, gap_bytes_max)
            self.choice = choose_reading(self._source.pages, "batch", overrides)
            self._routes = Routes(
                self._source,
                self.choice,
                readahead=readahead,
                budget=budget_bytes(memory_bytes_max, recent=True),
            )
        except BaseException:
            self._source.close()
            raise
        tracing.note("open", begun, monotonic_ns(), {"file": self.path})
        ledger.follow(self, _facts, self._routes.counter, self._routes.engine_counts)
        if self._source.columns > 1:  # known only now
            self.__class__ = ColumnRecords

    def __getstate__(self) -> dict[str, Any]:
        return self._state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def path(self) -> str:
        """The data file."""
        return self._source.path

    @property
    def files(self) -> list[str]:
        """The data files, in the order of their records; of a URL what is secret is left out."""
        return [label(path) for path in self._source.paths]

    def file_of(self, index: SupportsIndex) -> tuple[str, int]:
        """Return the data file that has a record, and the record's index in it.

        Raises:
            IndexError: there is no such record.
        """
        return self._source.file_of(self._checked(index))

    @property
    def layout(self) -> str | None:
        """The layout of its samples, which "auto" has found; None: each record is a sample."""
        return self._source.layout

    @property
    def located_by(self) -> str:
        """ "provenance" or "scan"."""
        return self._source.locate

    def __repr__(self) -> str:
        return f"<Records of {self.path!r}: {len(self)} by {self.located_by}>"

    def _repr_html_(self) -> str:
        """Return a card as HTML; where the file cannot be read, what ``repr`` gives."""
        from lmdbio.records.card import records_card  # others begin sooner without it

        return records_card(self._source, self)

    def __len__(self) -> int:
        return self._source.count

    @overload  # an array has __index__ as well
    def __getitem__(self, index: SupportsIndex) -> bytes: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    @overload
    def __getitem__(self, index: list[int] | npt.NDArray[Any]) -> View: ...
    def __getitem__(self, index: Any) -> bytes | list[bytes] | View:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1 and start < stop:
                return self._routes.slices.read(start, stop)
            indices = np.arange(start, stop, step, dtype=np.int64).astype(np.uint64)
            return list(self._routes.streamed(indices))
        try:
            at, count = operator.index(index), self._source.count
        except TypeError:
            if not is_several(index):
                raise
            return self.subset(index)
        if at is not index and type(index) is not INT64 and is_several(index):  # torch's, of one
            return self.subset(index)
        at = at + count if at < 0 else at
        if not 0 <= at < count:
            raise IndexError(f"{self.path}: record {index} of {count}")
        return self._routes.single(at)

    def key(self, index: SupportsIndex) -> bytes:
        """Return the key of a record: by arithmetic where all keys follow a pattern, which
        ``lmdbio convert`` proved, else from its leaf.

        Raises:
            IndexError: there is no such record.
            OSError, Error: the tree cannot be read, or the file has moved on.
        """
        return self._source.key(self._checked(index))

    def index_of(self, key: bytes) -> int:
        """Return the record of a key; of a key with many values, that of the first.

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

    def sizes(self) -> I64:
        """Return the size of each sample (``Samples.sizes``)."""
        source, every = self._source, np.arange(self._source.count, dtype=np.uint64)
        return source.extents(every)["length"].reshape(-1, source.columns).sum(1, np.int64)  # type: ignore[no-any-return]

    @property
    def groups(self) -> Sequence[range]:
        """The records of each key, in key order: one, or several in a database with duplicates
        (``dupsort``), where each value is a record.
        """
        return self._source.groups

    def __iter__(self) -> Iterator[bytes]:
        return self._routes.streamed(np.arange(self._source.count, dtype=np.uint64))

    def read(self, indices: npt.ArrayLike) -> Batch:
        """Read records, all requests in flight at once, each byte of the file at most once.

        A batch of up to 4 MiB that the page cache holds is copied from there instead, each record
        to its place in the order asked, once for each time that it was asked for; they lie at one
        stride if they are of one length.

        Args:
            indices: integers, shape (n,), any order, repeats allowed; negative ones count
                from the end. Or whether each record is wanted: bool, shape (len,).

        Returns:
            A batch in the order asked, over memory of its own; with ``engine="mmap"``, and a file
            that was in the page cache when it was opened, over the mapping of the file, where it
            shows what a writer puts there later, and zeros, or ends the process by SIGBUS, once
            that is cut.

        Raises:
            IndexError: an index out of range.
            OSError, Error: the file cannot be read, or has moved on.
        """
        return self.begin(indices).batch()

    def expect(self, records: int, processes: int = 1) -> None:
        """Say how many records will be read at random, by whatever calls.

        Where reading the file whole, in order, costs less than those reads would (small records,
        a good part of them), that begins with them, behind the first batch where the file takes
        a while.

        Args:
            records: number of records.
            processes: number of processes of this machine that read the file alike, such as a
                DataLoader's workers. The memory that one may take is for all of them, and they
                rather share the page cache than keep a copy each.
        """
        self._routes.expect(records, processes)

    def begin(self, indices: npt.ArrayLike) -> PendingBatch:
        """Begin what ``read`` does: ``batch()`` waits for it, ``close()`` gives it up.

        Raises:
            IndexError, OSError, Error: as ``read``.
        """
        routes = self._routes
        return ShardBatch(routes, indices) if routes.shard else ReadBatch(routes, indices)

    def begin_fields(self, indices: npt.ArrayLike, fields: Sequence[Field]) -> PendingBatch:
        """Begin what ``read`` does, of which fields may do (``Samples.begin_fields``)."""
        routes = self._routes
        return self.begin(indices) if routes.shard else ReadBatch(routes, indices, fields)

    def begin_values(self, indices: npt.ArrayLike) -> PendingValues:
        """Begin what ``values`` does: ``values()``, once, waits for it, ``close()`` gives it up.

        Raises:
            IndexError, OSError, Error: as ``values``.
        """
        routes = self._routes
        if routes.shard:
            return ShardValues(routes, indices)
        begun = monotonic_ns()
        if isinstance(indices, list):
            indices = indices.copy()
        if (cached := routes.held_values(indices)) is None:
            return ReadValues(routes, indices)
        wanted, values = cached
        routes.counter.span("locate", begun, located_records=len(wanted))
        return CachedValues(routes, wanted, values)

    def stats(self) -> Stats:
        """Return what this process has read with this object so far; also after ``close``."""
        return self._routes.counter.stats()

    def close(self) -> None:
        """Close the file. May be called twice; batches stay valid, and a mapping under them."""
        self._routes.close()
        self._source.close()
        ledger.ended(self)

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ColumnRecords(Records):
    """``Records`` whose layout has several records per sample: values are tuples.

    ``recs[i]`` returns a tuple of bytes, ``recs[a:b]`` a list of tuples, ``recs.read(indices)`` a
    ``ColumnBatch``. ``Records`` becomes this class when it finds such a layout.
    """

    @property
    def columns(self) -> int:
        """Records of a sample."""
        return self._source.columns

    def __len__(self) -> int:
        return self._source.count // self.columns

    __getitem__ = Samples.__getitem__
    _counted = Samples._counted

    def __iter__(self) -> Iterator[Any]:
        return _tuples(super().__iter__(), self.columns)

    def file_of(self, index: SupportsIndex) -> tuple[str, int]:
        """Return the data file that has a sample, and the sample's index in it."""
        file, record = self._source.file_of(self._checked(index) * self.columns)
        return file, record // self.columns

    def key(self, index: SupportsIndex) -> Any:
        """Return the keys of a sample, a tuple (``Records.key``)."""
        first = self._checked(index) * self.columns
        return tuple(map(self._source.key, range(first, first + self.columns)))

    def index_of(self, key: bytes) -> int:
        """Return the sample that has a key (``Records.index_of``)."""
        return super().index_of(key) // self.columns

    def begin(self, indices: npt.ArrayLike) -> Any:
        """Begin what ``read`` does (``Records.begin``)."""
        samples, records = self._records(indices)
        return self._tupled(super().begin(records), samples)

    def begin_fields(self, indices: npt.ArrayLike, fields: Sequence[Field]) -> Any:
        """Begin what ``read`` does."""
        del fields  # a sample has several records
        return self.begin(indices)

    def begin_values(self, indices: npt.ArrayLike) -> Any:
        """Begin what ``values`` does (``Records.begin_values``)."""
        samples, records = self._records(indices)
        return self._tupled(super().begin_values(records), samples)

    def _tupled(self, begun: Pending, samples: U64) -> Pending:
        """Return the samples of the records of all of them, under way."""
        columns = self.columns
        batch, each = partial(ColumnBatch, columns=columns), partial(_tuples, columns=columns)
        return Remade(begun, samples, batch, each)

    def _records(self, indices: npt.ArrayLike) -> tuple[U64, npt.NDArray[np.int64]]:
        """Return samples from the beginning, and their records."""
        samples = as_indices(indices, len(self), self.path)
        firsts = samples.astype(np.int64)[:, np.newaxis] * self.columns
        return samples, (firsts + np.arange(self.columns)).reshape(-1)

    def expect(self, records: int, processes: int = 1) -> None:
        """Say how many samples will be read at random (``Records.expect``)."""
        super().expect(records * self.columns, processes)


def _tuples(values: Iterator[Any], columns: int) -> Iterator[Any]:
    """Iterate over samples, of which each has so many values."""
    return zip(*[values] * columns, strict=True)


class ColumnBatch(Sequence[tuple[memoryview, ...]]):
    """Samples of several records: ``batch[i]`` is a tuple of read-only memoryviews.

    Args:
        batch: the records of all samples, each sample's one after the other.
        indices: indices of the samples, uint64, shape (n,).
        columns: records of a sample.

    Attributes:
        indices: indices of the samples.
        columns: a ``Batch`` for each column, over the same memory.
    """

    __slots__ = ("columns", "indices")

    def __init__(self, batch: Batch, indices: U64, columns: int) -> None:
        self.indices = indices
        self.columns = tuple(
            batch.part(slice(column, None, columns), indices) for column in range(columns)
        )

    def part(self, rows: slice | I64, indices: U64) -> ColumnBatch:
        """Return some of its samples under other numbers (``Batch.part``)."""
        part = ColumnBatch.__new__(ColumnBatch)
        part.indices = indices
        part.columns = tuple(column.part(rows, indices) for column in self.columns)
        return part

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: SupportsIndex) -> tuple[memoryview, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[memoryview, ...]]: ...
    def __getitem__(
        self, index: SupportsIndex | slice
    ) -> tuple[memoryview, ...] | list[tuple[memoryview, ...]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return tuple(column[index] for column in self.columns)

    def __iter__(self) -> Iterator[tuple[memoryview, ...]]:
        return zip(*self.columns, strict=True)

    def __repr__(self) -> str:
        return f"<ColumnBatch of {len(self)} samples, {len(self.columns)} records each>"


def _facts(records: Records) -> ledger.Facts:
    return ledger.Facts("Records", records.path, records.choice.engine, records.located_by)


def open_records(
    source: Paths | Samples[Any, Any], **options: Unpack[RecordsOptions]
) -> Samples[Any, Any]:
    """Open the records of one path, or of several; return open ones as they are.

    Raises:
        ValueError: options for open records.
        TypeError: ``source`` is none of these.
        OSError, Error: as ``Records``.
    """
    if not isinstance(source, Samples):
        return Records(source, **options)
    if options:
        raise ValueError(f"{', '.join(options)}: of Records that are not open yet")
    return source
