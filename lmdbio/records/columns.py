"""columns: samples of several records each, such as an image and its label.

    sample i  ->  records i * columns and those after it  ->  one read  ->  a tuple

The records of all samples of a batch are read together, all requests in flight at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from lmdbio.batch import Batch
from lmdbio.records.ahead import as_indices
from lmdbio.records.pending import Pending
from lmdbio.records.records import Records
from lmdbio.records.routes import Field
from lmdbio.records.samples import Remade, Samples

__all__ = ["ColumnBatch", "ColumnRecords"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


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

    def read(self, indices: npt.ArrayLike) -> Any:
        """Read samples, all records of all of them in flight at once, as a ``ColumnBatch``."""
        return self.begin(indices).batch()

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


Records.of_columns = ColumnRecords


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
