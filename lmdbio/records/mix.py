"""mix: samples of several sequences as one, each coming as its weight says.

index -> set and sample there (``planning.mix``) -> reads of all sets under way -> one batch
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.observe.stats import Stats
from lmdbio.planning.mix import MixOrder, whole_weights
from lmdbio.planning.order import COUNT_MAX
from lmdbio.reading.batch import Batch, packed_copy
from lmdbio.records.ahead import as_indices
from lmdbio.records.pending import Pending
from lmdbio.records.samples import Samples

__all__ = ["Mix", "MixedBatch"]

I64 = npt.NDArray[np.int64]
Sets = npt.NDArray[np.intp]
U64 = npt.NDArray[np.uint64]


class Mix(Samples[Any, Any]):
    """Samples of several sets in one order, to which each set contributes its share.

        mix = lmdbio.Mix({"coco": coco, "sbu": sbu}, weights={"coco": 0.7, "sbu": 0.3}, seed=1)
        for batch in mix.batches(mix.epoch(0), 256): ...
        loader = lmdbio.torch.Loader(mix, 32, transform=decode)

    The sample at a position is a function of seed and position alone. At any position each set has
    contributed its share to within less than one sample, and every sample of a set comes once
    before any comes again, in another order each time. A small set repeats more often than a large
    one, independently of the epochs of the mix.

    An epoch is ``epoch_size`` samples, ``len(mix)``. ``mix[i]``, slices and iteration are of epoch
    0. ``read``, ``values``, ``batches`` and ``key`` continue beyond: index e * len(mix) + i is
    sample i of epoch e. A mix can be pickled with its sets.

    Args:
        sets: open ``Records``, or views, by name; or a sequence of these.
        weights: weights of the sets, by name or in their order: positive numbers, of which only
            the proportions count. If their sum as whole numbers exceeds 65,536, they are rounded
            to 65,536ths of the whole. None: the number of samples of each set.
        seed: seed of all orders; None: each set comes in its own order.
        epoch_size: number of samples in an epoch; None: the samples of all sets together.

    Attributes:
        names: names of the sets.
        sets: the sets, in their order.
        order: order in which samples come.

    Raises:
        TypeError: a set is neither ``Records`` nor a view.
        ValueError: a set is empty or has no weight, or a weight is not above 0.
    """

    _counted = "sample {} of {} of an epoch"

    def __init__(
        self,
        sets: Mapping[str, Samples[Any, Any]] | Sequence[Samples[Any, Any]],
        weights: Mapping[str, float] | Sequence[float] | None = None,
        *,
        seed: int | None = 0,
        epoch_size: int | None = None,
    ) -> None:
        named = dict(sets) if isinstance(sets, Mapping) else dict(enumerate_names(sets))
        self.names: tuple[str, ...] = tuple(named)
        self.sets: tuple[Samples[Any, Any], ...] = tuple(named.values())
        for name, one in named.items():
            if not isinstance(one, Samples) or isinstance(one, Mix):
                kind = type(one).__name__
                raise TypeError(f"set {name!r} of a mix is Records, or a view of such, not {kind}")
            if not len(one):
                raise ValueError(f"{one.path}: set {name!r} of a mix has no samples")
        counts = tuple(map(len, self.sets))
        self.order = MixOrder(
            counts,
            whole_weights(self._in_order(weights, counts)),
            sum(counts) if epoch_size is None else operator.index(epoch_size),
            None if seed is None else operator.index(seed),
        )

    def _in_order(
        self, weights: Mapping[str, float] | Sequence[float] | None, counts: Sequence[int]
    ) -> Sequence[float]:
        """Return the weights in the order of the sets."""
        if weights is None:
            return counts
        if not isinstance(weights, Mapping):
            found = list(weights)
            if len(found) != len(counts):
                raise ValueError(f"{len(found)} weights for {len(counts)} sets")
            return found
        if set(weights) != set(self.names):
            raise ValueError(f"weights of {list(weights)}, and sets {list(self.names)}")
        return [weights[name] for name in self.names]

    @property
    def mixing(self) -> MixOrder:
        """The order of all epochs."""
        return self.order

    @property
    def path(self) -> str:
        """The data files, in words."""
        more = len(self.sets) - 1
        return f"{self.sets[0].path} and {more} more" if more else self.sets[0].path

    def __repr__(self) -> str:
        parts = zip(self.names, self.order.weights, strict=True)
        shares = ", ".join(f"{name}: {weight}" for name, weight in parts)
        return f"<Mix of {shares}; {len(self)} samples an epoch>"

    def __len__(self) -> int:
        return self.order.size

    def epoch(self, number: int) -> range:
        """Return the indices of an epoch, counted from 0."""
        if number < 0:
            raise ValueError(f"an epoch's number must not be negative ({number})")
        return range(number * len(self), (number + 1) * len(self))

    def origin(self, index: SupportsIndex) -> tuple[str, int]:
        """Return the set that a sample is of, by its name, and its index there."""
        sets, samples = self.order.find(self._places([operator.index(index)]).view(np.int64))
        return self.names[int(sets[0])], int(samples[0])

    def _one(self, at: int) -> Any:
        number, sample = self.order.find([at])
        return self.sets[int(number[0])][int(sample[0])]

    def key(self, index: SupportsIndex) -> Any:
        """Return the key of a sample in its set."""
        sets, samples = self.order.find(self._places([operator.index(index)]).view(np.int64))
        return self.sets[int(sets[0])].key(int(samples[0]))

    def index_of(self, key: bytes) -> int:
        """Raise TypeError: a sample of a mix comes again and again. Its set knows its index."""
        raise TypeError(f"a mix has its samples again and again: ask the set of key {key!r}")

    def _places(self, indices: npt.ArrayLike) -> U64:
        """Return places from the beginning; negative ones count from the end of epoch 0."""
        given = np.asarray(indices)
        if given.ndim == 1 and given.dtype.kind == "i" and given.size and int(given.min()) < 0:
            if int(given.min()) < -len(self):
                raise IndexError(f"{self.path}: sample {given.min()} of {len(self)} of an epoch")
            given = given.astype(np.int64)
            given = np.where(given < 0, given + len(self), given)
        return as_indices(given, COUNT_MAX, self.path)

    def begin(self, indices: npt.ArrayLike) -> PendingMixed:
        """Begin what ``read`` does: its batch is a ``MixedBatch``."""
        return PendingMixed(self, indices, "begin")

    def begin_values(self, indices: npt.ArrayLike) -> PendingMixed:
        """Begin what ``values`` does."""
        return PendingMixed(self, indices, "begin_values")

    def expect(self, records: int, processes: int = 1) -> None:
        """Say how many samples will be read at random (``Records.expect``), of all sets."""
        total = sum(self.order.weights)
        for one, weight in zip(self.sets, self.order.weights, strict=True):
            is_random = self.order.seed is not None
            one.expect(is_random * records * weight // total, processes)

    def stats(self) -> Stats:
        """Return what this process has read so far of all files."""
        below = {id(one): one for one in (getattr(one, "base", one) for one in self.sets)}
        total = Stats()
        for one in below.values():
            total = total + one.stats()
        return total


def enumerate_names(sets: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Iterate over sets without names, named by their numbers."""
    if isinstance(sets, Samples):
        raise TypeError("several sets: {name: set, ...} or [set, ...]")
    return ((str(number), one) for number, one in enumerate(sets))


class PendingMixed(Pending):
    """Samples of several sets under way.

    Args:
        mix: mix of the sets.
        indices: indices of the samples.
        begin: name of the method that begins to read in one of them.
    """

    def __init__(self, mix: Mix, indices: npt.ArrayLike, begin: str) -> None:
        self.indices = mix._places(indices)
        self._sets: Sets
        self._sets, samples = mix.order.find(self.indices.view(np.int64))
        self._parts: dict[int, Any] = {}
        try:
            for number in sorted(set(self._sets.tolist())):
                some = samples[self._sets == number]
                self._parts[number] = getattr(mix.sets[number], begin)(some)
        except BaseException:
            self.close()
            raise

    def batch(self) -> MixedBatch:
        """Wait for the batch and return it."""
        return MixedBatch(self.indices, self._sets, self._finish("batch"))

    def values(self) -> Iterator[Any]:
        """Wait for those that have to be read, and iterate over all."""
        values = self._finish("values")
        return (next(values[number]) for number in self._sets.tolist())

    def taken(self) -> list[Any]:
        """Wait for the samples and return all values at once."""
        found: list[Any] = [None] * len(self._sets)
        for number, values in self._finish("taken").items():
            rows = np.flatnonzero(self._sets == number).tolist()
            for row, value in zip(rows, values, strict=True):
                found[row] = value
        return found

    def _finish(self, finish: str) -> dict[int, Any]:
        """Return the results of all parts."""
        try:
            return {number: getattr(part, finish)() for number, part in self._parts.items()}
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for part in self._parts.values():
            part.close()


class MixedBatch(Sequence[Any]):
    """Samples of several sets, in the order asked; each set's in memory of its own.

    ``batch[i]`` is what the set's own batch has: a memoryview, or a tuple of such.

    Attributes:
        indices: indices of the samples in the mix, uint64, shape (n,).
        sets: the number of the set that each is of, shape (n,).
        parts: the batch of each set that has samples here, by its number.
    """

    __slots__ = ("_rows", "indices", "parts", "sets")

    def __init__(self, indices: U64, sets: Sets, parts: dict[int, Any]) -> None:
        self.indices, self.sets, self.parts = indices, sets, parts
        self._rows = np.empty(len(sets), np.int64)  # of each, in its part
        for number, part in parts.items():
            self._rows[sets == number] = np.arange(len(part))

    def part(self, rows: slice | I64, indices: U64) -> MixedBatch:
        """Return some of its samples under other numbers (``Batch.part``)."""
        return self._over(self.parts, rows, indices)

    def _over(self, parts: dict[int, Any], rows: slice | I64, indices: U64) -> MixedBatch:
        made = MixedBatch.__new__(MixedBatch)
        made.indices, made.parts = indices, parts
        made.sets, made._rows = self.sets[rows], self._rows[rows]
        return made

    @property
    def columns(self) -> tuple[MixedBatch, ...] | None:
        """A batch for each record of a sample; None: samples are of one record."""
        counts = {len(getattr(part, "columns", ())) for part in self.parts.values()}
        if counts == {0} or len(counts) > 1:
            return None
        return tuple(
            self._over(
                {number: part.columns[column] for number, part in self.parts.items()},
                slice(None),
                self.indices,
            )
            for column in range(counts.pop())
        )

    def joined(self) -> Batch:
        """Return the samples in one memory of their own.

        Raises:
            ValueError: samples are of several records: ``columns`` has batches that can be joined.
        """
        places = np.zeros(len(self), _core.EXTENT)  # of each: address and bytes
        for number, part in self.parts.items():
            if not isinstance(part, Batch):
                raise ValueError("samples of several records have a memory for each column")
            mine = self.sets == number
            rows = self._rows[mine]
            places["offset"][mine] = part.offsets[rows] + np.uint64(part.buffer.ctypes.data)
            places["length"][mine] = part.lengths[rows]
        return packed_copy(places, self.indices)

    def __len__(self) -> int:
        return len(self.sets)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = operator.index(index)
        if not -len(self) <= at < len(self):
            raise IndexError(f"sample {at} of a batch of {len(self)}")
        return self.parts[int(self.sets[at])][int(self._rows[at])]

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"<MixedBatch of {len(self)} samples of {len(self.parts)} sets>"
