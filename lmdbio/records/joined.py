"""joined: the records of several files as one sequence.

index -> (file, index there) -> Records.read of each file, all under way at once -> one batch
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from lmdbio.batch import Batch
from lmdbio.machine.budget import budget_bytes
from lmdbio.observe.stats import Stats
from lmdbio.records.ahead import as_indices, cut, read_ahead
from lmdbio.records.pending import Pending, PendingBatch, PendingValues
from lmdbio.records.records import Records
from lmdbio.records.samples import Samples

__all__ = ["JoinedBatch", "JoinedRecords", "open_records"]

U64 = npt.NDArray[np.uint64]
B = TypeVar("B", PendingBatch, PendingValues)
R = TypeVar("R")
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def open_records(
    source: Paths | Samples[Any, Any] | JoinedRecords, **options: Any
) -> Samples[Any, Any] | JoinedRecords:
    """Open the records of one path, or of several; return open ones as they are.

    Raises:
        ValueError: options for open records, or no path at all.
        TypeError: ``source`` is none of these.
        OSError, Error: as ``Records``.
    """
    if isinstance(source, (Samples, JoinedRecords)):
        if options:
            raise ValueError(f"{', '.join(options)}: of Records that are not open yet")
        return source
    if isinstance(source, (str, os.PathLike)):
        return Records(source, **options)
    if not isinstance(source, (list, tuple)):
        kind = type(source).__name__
        raise TypeError(f"a path, a list of paths, or Records that are open; not {kind}")
    return JoinedRecords(source, **options)


class JoinedRecords(Sequence[bytes]):
    """The values of several files: all of the first one's, then all of the second one's.

    Indices count on from file to file. It does what ``Records`` do, batches with the
    requests of all files in flight at once. It can be pickled, used by many threads and after
    fork.

    Args:
        paths: environments' folders or files, in order.
        memory_bytes_max: how many bytes all of them together may take in this process, as for
            ``Records``.
        options: of each ``Records``.

    Attributes:
        parts: the Records of each file.

    Raises:
        ValueError: there are no paths.
        OSError, Error: one cannot be opened; no other stays open then.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        memory_bytes_max: int | str | None = None,
        **options: Any,
    ) -> None:
        if isinstance(paths, (str, bytes, os.PathLike)):
            raise TypeError("several paths: [path, ...]")
        named = list(paths)
        for path in named:
            if not isinstance(path, (str, os.PathLike)):
                raise TypeError(f"a path is str or os.PathLike, not {type(path).__name__}")
        if not named:
            raise ValueError("no paths: there is nothing to join")
        share = max(1, budget_bytes(memory_bytes_max) // len(named))
        self._state = {"paths": named, "memory_bytes_max": memory_bytes_max, **options}
        self.parts: list[Records] = []
        try:
            for path in named:
                self.parts.append(Records(path, memory_bytes_max=share, **options))
        except BaseException:
            self.close()
            raise
        self._state["paths"] = [part.given_path for part in self.parts]
        #: Of each file, the index of its first record, and the count of all.
        self._firsts = np.cumsum([0, *map(len, self.parts)])

    def __getstate__(self) -> dict[str, Any]:
        return self._state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"<JoinedRecords: {len(self)} of {len(self.parts)} files>"

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @overload
    def __getitem__(self, index: SupportsIndex) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> bytes | list[bytes]:
        if not isinstance(index, slice):
            part, there = self._find(index)
            return part[there]
        start, stop, step = index.indices(len(self))
        if step != 1:
            return [bytes(value) for value in self.read(range(start, stop, step))]
        cuts = np.clip(self._firsts, start, max(start, stop)).tolist()
        firsts = self._firsts.tolist()
        return [
            value
            for part, first, a, b in zip(self.parts, firsts, cuts, cuts[1:], strict=False)
            for value in part[a - first : b - first]
        ]

    @property
    def path(self) -> str:
        """The data files, in words."""
        more = len(self.parts) - 1
        return f"{self.parts[0].path} and {more} more" if more else self.parts[0].path

    def _find(self, index: SupportsIndex) -> tuple[Records, int]:
        at, count = operator.index(index), len(self)
        at = at + count if at < 0 else at
        if not 0 <= at < count:
            raise IndexError(f"{self.path}: record {index} of {count}")
        part = int(np.searchsorted(self._firsts, at, side="right")) - 1
        return self.parts[part], at - int(self._firsts[part])

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self.parts)

    def key(self, index: SupportsIndex) -> bytes:
        """The key of a record in its file (``Records.key``)."""
        part, there = self._find(index)
        return part.key(there)

    def read(self, indices: npt.ArrayLike) -> JoinedBatch:
        """Read records, all requests of all files in flight at once (``Records.read``).

        Raises:
            IndexError: an index out of range.
            OSError, Error: a file cannot be read, or has moved on.
        """
        return self.begin(indices).batch()

    def values(self, indices: npt.ArrayLike) -> Iterator[bytes]:
        """Iterate over values of records, one made after another (``Records.values``)."""
        return self.begin_values(indices).values()

    def begin(self, indices: npt.ArrayLike) -> PendingJoinedBatch:
        """Begin what ``read`` does."""
        return PendingJoinedBatch(self, indices)

    def begin_values(self, indices: npt.ArrayLike) -> PendingJoinedValues:
        """Begin what ``values`` does."""
        return PendingJoinedValues(self, indices)

    def batches(
        self,
        wanted: Iterable[npt.ArrayLike] | npt.ArrayLike,
        batch_size: int | None = None,
        *,
        ahead: int = 1,
    ) -> Iterator[JoinedBatch]:
        """Read one batch after another, the next ones while one is used (``Records.batches``)."""
        each, known = cut(wanted, batch_size)
        self.expect(known)
        return (one.batch() for one in read_ahead(self.begin, each, ahead))

    def expect(self, records: int) -> None:
        """Say how many records will be read at random (``Records.expect``), of all files."""
        for part in self.parts:
            part.expect(records * len(part) // max(1, len(self)))

    def stats(self) -> Stats:
        """Return what was read so far from all files."""
        total = Stats()
        for part in self.parts:
            total = total + part.stats()
        return total

    def close(self) -> None:
        """Close all files. May be called twice; batches stay valid."""
        for part in self.parts:
            part.close()

    def __enter__(self) -> JoinedRecords:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Parts(Pending, Generic[B]):
    """Records of several files under way.

    Args:
        begin: begins to read in one of them.
    """

    def __init__(
        self,
        joined: JoinedRecords,
        indices: npt.ArrayLike,
        begin: Callable[[Records, npt.ArrayLike], B],
    ) -> None:
        self.indices = as_indices(indices, len(joined), joined.path)
        firsts = joined._firsts.astype(np.uint64)
        part_of = np.searchsorted(firsts, self.indices, side="right") - 1
        self._parts: list[tuple[npt.NDArray[np.int64], B]] = []
        try:
            for part in np.unique(part_of).tolist():
                rows = np.flatnonzero(part_of == part)
                begun = begin(joined.parts[part], self.indices[rows] - firsts[part])
                self._parts.append((rows, begun))
        except BaseException:
            self.close()
            raise

    def _finish(self, finish: Callable[[B], R]) -> list[tuple[npt.NDArray[np.int64], R]]:
        """Return the rows of each file, and the result of its part."""
        try:
            return [(rows, finish(begun)) for rows, begun in self._parts]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for _, begun in self._parts:
            begun.close()


class PendingJoinedBatch(_Parts[PendingBatch]):
    """A batch under way in several files."""

    def __init__(self, joined: JoinedRecords, indices: npt.ArrayLike) -> None:
        super().__init__(joined, indices, Records.begin)

    def batch(self) -> JoinedBatch:
        """Wait for the batch and return it."""
        return JoinedBatch(self.indices, self._finish(lambda begun: begun.batch()))

    def values(self) -> Iterator[memoryview]:
        """Wait for the batch and iterate over its views."""
        return iter(self.batch())


class PendingJoinedValues(_Parts[PendingValues]):
    """Values under way in several files."""

    def __init__(self, joined: JoinedRecords, indices: npt.ArrayLike) -> None:
        super().__init__(joined, indices, Records.begin_values)

    def values(self) -> Iterator[bytes]:
        """Wait for those that have to be read, and iterate over all."""
        parts = self._finish(lambda begun: begun.values())
        part_of = np.empty(len(self.indices), np.int64)
        for part, (rows, _) in enumerate(parts):
            part_of[rows] = part
        return (next(parts[part][1]) for part in part_of.tolist())


class JoinedBatch(Sequence[memoryview]):
    """Records of several files, in the order asked; each file's in memory of its own.

    Args:
        indices: of the records in all files, uint64, shape (n,).
        parts: rows of this batch, shape (m,), and a batch of so many records.
    """

    __slots__ = ("_indices", "_parts", "_places")

    def __init__(self, indices: U64, parts: list[tuple[npt.NDArray[np.int64], Batch]]) -> None:
        self._indices = indices
        self._parts = [batch for _, batch in parts]
        self._places = np.empty((len(indices), 2), np.int64)
        for part, (rows, batch) in enumerate(parts):
            self._places[rows, 0] = part
            self._places[rows, 1] = np.arange(len(batch))

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def indices(self) -> U64:
        """Of the records in all files: uint64, shape (len,)."""
        return self._indices

    @property
    def lengths(self) -> U64:
        """Bytes of each record: uint64, shape (len,)."""
        lengths = np.zeros(len(self), np.uint64)
        for part, batch in enumerate(self._parts):
            lengths[self._places[:, 0] == part] = batch.lengths
        return lengths

    @overload
    def __getitem__(self, index: SupportsIndex) -> memoryview: ...
    @overload
    def __getitem__(self, index: slice) -> list[memoryview]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> memoryview | list[memoryview]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = operator.index(index)
        if not -len(self) <= at < len(self):
            raise IndexError(f"record {at} of a batch of {len(self)}")
        part, row = map(int, self._places[at])
        return self._parts[part][row]

    def __iter__(self) -> Iterator[memoryview]:
        views = [list(part) for part in self._parts]
        for part, row in self._places.tolist():
            yield views[part][row]

    def __repr__(self) -> str:
        return f"<JoinedBatch of {len(self)} records of {len(self._parts)} files>"
