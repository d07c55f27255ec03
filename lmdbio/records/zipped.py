"""zipped: sequences whose samples belong together by their index, as one sequence of tuples.

index -> reads of all sets under way -> a batch with a column for each set
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex

import numpy.typing as npt

from lmdbio.observe.stats import Stats
from lmdbio.records.ahead import as_indices
from lmdbio.records.mix import Mix
from lmdbio.records.pending import Pending
from lmdbio.records.records import ColumnBatch
from lmdbio.records.samples import I64, Samples

__all__ = ["Zip"]


class Zip(Samples[Any, Any]):
    """Samples of several sets that belong together by their index, as tuples.

        pairs = lmdbio.Zip([images, depths])
        image, depth = pairs[7]
        loader = lmdbio.torch.Loader(pairs, 32, shuffle=True, transform=decode)

    ``pairs.read(indices)`` returns a ``ColumnBatch``, whose ``columns`` are the batches of the
    sets. All sets are read at once. Views bring sets into one order. A Zip can be pickled with its
    sets.

    Args:
        sets: open ``Records``, or views, of equally many samples.

    Attributes:
        sets: the sets, in their order.

    Raises:
        TypeError: a set is neither ``Records`` nor a view.
        ValueError: sets have different numbers of samples, or there is none.
    """

    def __init__(self, sets: Sequence[Samples[Any, Any]]) -> None:
        self.sets: tuple[Samples[Any, Any], ...] = tuple(sets)
        for one in self.sets:
            if not isinstance(one, Samples) or isinstance(one, Mix):
                kind = type(one).__name__
                raise TypeError(f"a set of a Zip is Records, or a view of such, not {kind}")
        counts = list(map(len, self.sets))
        if len(set(counts)) != 1:
            raise ValueError(
                f"the sets of a Zip have equally many samples, not {counts}: records[indices] is "
                "a view of those that belong together"
            )

    @property
    def path(self) -> str:
        """The data files, in words."""
        return " and ".join(one.path for one in self.sets)

    def __repr__(self) -> str:
        return f"<Zip of {len(self)} samples of {len(self.sets)} sets>"

    def __len__(self) -> int:
        return len(self.sets[0])

    def _one(self, at: int) -> tuple[Any, ...]:
        return tuple(one[at] for one in self.sets)

    def key(self, index: SupportsIndex) -> tuple[Any, ...]:
        """Return the keys of a sample, one of each set."""
        return tuple(one.key(index) for one in self.sets)

    def index_of(self, key: bytes) -> int:
        """Return the sample that has a key in the first set."""
        return self.sets[0].index_of(key)

    def sizes(self) -> I64:
        """Return the size of each sample in all sets together (``Samples.sizes``)."""
        total: I64 = sum(one.sizes() for one in self.sets)  # type: ignore[assignment]
        return total

    def begin(self, indices: npt.ArrayLike) -> PendingZip:
        """Begin what ``read`` does: its batch is a ``ColumnBatch``."""
        return PendingZip(self, indices, "begin")

    def begin_values(self, indices: npt.ArrayLike) -> PendingZip:
        """Begin what ``values`` does."""
        return PendingZip(self, indices, "begin_values")

    def expect(self, records: int, processes: int = 1) -> None:
        """Say how many samples will be read at random (``Records.expect``), of each set."""
        for one in self.sets:
            one.expect(records, processes)

    def stats(self) -> Stats:
        """Return what this process has read so far of all files."""
        below = {id(one): one for one in (getattr(one, "base", one) for one in self.sets)}
        return sum((one.stats() for one in below.values()), Stats())


class PendingZip(Pending):
    """Samples of several sets under way.

    Args:
        zipped: sets that belong together.
        indices: indices of the samples.
        begin: name of the method that begins to read in one of the sets.
    """

    def __init__(self, zipped: Zip, indices: npt.ArrayLike, begin: str) -> None:
        self.indices = as_indices(indices, len(zipped), zipped.path)
        self._parts: list[Any] = []
        try:
            for one in zipped.sets:
                self._parts.append(getattr(one, begin)(self.indices))
        except BaseException:
            self.close()
            raise

    def batch(self) -> ColumnBatch:
        """Wait for the batches and return them as one."""
        made = ColumnBatch.__new__(ColumnBatch)
        made.indices, made.columns = self.indices, tuple(self._finish("batch"))
        return made

    def values(self) -> Iterator[tuple[Any, ...]]:
        """Wait for those that have to be read, and iterate over tuples."""
        return zip(*self._finish("values"), strict=True)

    def _finish(self, finish: str) -> list[Any]:
        """Return the results of all parts."""
        try:
            return [getattr(part, finish)() for part in self._parts]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for part in self._parts:
            part.close()
