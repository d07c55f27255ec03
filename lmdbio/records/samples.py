"""samples: sequences of samples, of which whole batches are read at once, and views of them.

index of a view -> index of what it is a view of    one array, however many views are stacked
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from lmdbio.observe.stats import Stats
from lmdbio.records.ahead import INT64, as_indices, cut, is_several, read_ahead
from lmdbio.records.pending import Pending
from lmdbio.records.routes import Field

if TYPE_CHECKING:
    from lmdbio.planning.mix import MixOrder

__all__ = ["Remade", "Samples", "View"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
V = TypeVar("V")
B = TypeVar("B")

#: Samples that iteration reads at once.
STREAMED = 256


class Samples(Sequence[Any], Generic[V, B]):
    """A sequence of samples that is read in batches: ``Records``, or one made of them.

    V is the type of its values, B that of its batches.
    """

    #: The words for an index, and for the number of samples that there are.
    _counted = "sample {} of {}"

    @property
    def mixing(self) -> MixOrder | None:
        """The order of all epochs, of a ``Mix``; None: epochs may have any."""
        return None

    @property
    @abstractmethod
    def path(self) -> str:
        """The data file, or several in words."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(self._streamed(range(len(self))[index]))
        try:
            at = operator.index(index)
        except TypeError:
            if not is_several(index):
                raise
            return self.subset(index)
        if at is not index and type(index) is not INT64 and is_several(index):
            return self.subset(index)
        return self._one(self._checked(at))

    def _checked(self, index: SupportsIndex) -> int:
        """Return an index from the beginning; IndexError: there is no such sample."""
        at, count = operator.index(index), len(self)
        if not -count <= at < count:
            raise IndexError(f"{self.path}: {self._counted.format(index, count)}")
        return at % count

    def _one(self, at: int) -> V:
        """Return the sample of an index from the beginning."""
        return next(self.values([at]))

    def __iter__(self) -> Iterator[V]:
        return self._streamed(range(len(self)))

    def _streamed(self, indices: range) -> Iterator[V]:
        """Iterate over samples, the next ones being read meanwhile."""
        parts = (indices[at : at + STREAMED] for at in range(0, len(indices), STREAMED))
        for begun in read_ahead(self.begin_values, parts, 1):
            yield from begun.values()

    @abstractmethod
    def begin(self, indices: npt.ArrayLike) -> Any:
        """Begin what ``read`` does: ``batch()`` waits for it, ``close()`` gives it up."""

    def begin_fields(self, indices: npt.ArrayLike, fields: Sequence[Field]) -> Any:
        """Begin what ``read`` does, where fields of every record may be all that is wanted.

        Args:
            indices: indices of the samples, as of ``read``.
            fields: fields, at least one, each with memory for it.

        Returns:
            What ``begin`` does, whose batch is read as ever; but where ``is_filled`` says so, the
            fields have been copied to where they are wanted.
        """
        del fields  # of samples that have no one place in a file
        return self.begin(indices)

    @abstractmethod
    def begin_values(self, indices: npt.ArrayLike) -> Pending:
        """Begin what ``values`` does: ``values()``, once, waits for it; ``close()`` ends it."""

    @abstractmethod
    def key(self, index: SupportsIndex) -> Any:
        """Return the key of a sample."""

    @abstractmethod
    def index_of(self, key: bytes) -> int:
        """Return the sample of a key; KeyError: there is none."""

    def sizes(self) -> I64:
        """Return the size of each sample, bytes: int64, shape (len,). No value is read.

            short = records[records.sizes() < 1 << 20]

        Raises:
            TypeError: samples come again and again (``Mix``).
            OSError, Error: the tree cannot be read.
        """
        raise TypeError("a mix has its samples again and again: ask its sets for their sizes")

    @abstractmethod
    def expect(self, records: int, processes: int = 1) -> None:
        """Say how many samples will be read at random, by whatever calls (``Records.expect``)."""

    @abstractmethod
    def stats(self) -> Stats:
        """Return what this process has read so far."""

    def close(self) -> None:
        """Close what it has opened itself: nothing, unless it says so. May be called twice."""

    def read(self, indices: npt.ArrayLike) -> B:
        """Read samples, all requests in flight at once (``Records.read``)."""
        batch: B = self.begin(indices).batch()
        return batch

    def values(self, indices: npt.ArrayLike) -> Iterator[V]:
        """Iterate over values of records, as bytes of their own, one made after another.

        They are read as ``read`` does it, but values that the page cache holds are copied from
        there straight into each object, when it is asked for: a caller that drops each value
        before the next has both in a core's cache. A copy of the file in memory (``readahead``)
        would spare nothing of that, so these calls do not bring one about.

        Args:
            indices: indices of the samples, as of ``read``.

        Returns:
            An iterator in the order asked, for one thread. Once a writer has moved the file on, it
            raises ``Error`` instead of handing out more.

        Raises:
            IndexError: an index out of range.
            OSError, Error: the file cannot be read, or has moved on.
        """
        return self.begin_values(indices).values()

    def batches(
        self,
        wanted: Iterable[npt.ArrayLike] | npt.ArrayLike,
        batch_size: int | None = None,
        *,
        ahead: int = 1,
    ) -> Iterator[B]:
        """Read one batch after another, the next ones while one is used.

            for batch in recs.batches(rng.permutation(len(recs)), 256):

        A batch read alone ends with a few requests in flight, and begins with none. An order that
        is given as a whole is read as such from the first request on (``expect``).

        Args:
            wanted: indices of each batch, as ``read`` takes them, asked for as they are needed;
                with ``batch_size`` those of all, shape (n,).
            batch_size: records of a batch; the last one may have fewer.
            ahead: batches under way beside the one handed out.

        Yields:
            The batch that ``read`` gives for each. It stays valid.

        Raises:
            ValueError: ``ahead`` or ``batch_size`` is below 1. Else as ``read``, when the
                batch's turn has come, or, for its indices, when it is begun.
        """
        each, known = cut(wanted, batch_size, len(self))
        if self.mixing is not None and batch_size and isinstance(wanted, range):
            known = len(wanted)  # indices that go up are anywhere in their sets
        self.expect(known)
        return (one.batch() for one in read_ahead(self.begin, each, ahead))

    def subset(self, indices: npt.ArrayLike) -> View:
        """Return a view of some samples: nothing is read, and only the indices are copied.

            train = recs.subset(np.flatnonzero(labels == 3))    # the same: recs[...]

        Args:
            indices: integers, shape (n,), any order, repeats allowed; negative ones count from the
                end. Or whether each sample is wanted: bool, shape (len,).

        Raises:
            IndexError: an index out of range.
            TypeError: they are no list of integers.
        """
        return View(self, indices)

    def split(self, fractions: Sequence[float], seed: int | None = 0) -> list[View]:
        """Return views of parts, each sample in one of them.

            train, val = recs.split([0.9, 0.1])

        Parts are the same on every machine and in every version; samples keep their order in them.

        Args:
            fractions: shares of the samples, 1 in sum; or whole numbers, ``len`` in sum.
            seed: seed by which samples come into parts; None: parts are runs of samples.

        Raises:
            ValueError: the fractions are none, or their sum is another one.
        """
        from lmdbio.planning.mix import split_samples  # others begin sooner without it

        return [View(self, part) for part in split_samples(len(self), fractions, seed)]


class View(Samples[Any, Any]):
    """Some samples of a sequence, in an order of their own; does all that ``Records`` do.

    ``view[i]``, ``view.read(indices)`` and the rest take the view's own indices, and batches have
    them. It keeps alive what it is a view of, and can be pickled with it. A view of a view is one
    of what lies below.

    Args:
        base: the samples.
        indices: indices of the samples, as of ``Samples.subset``.

    Attributes:
        base: the samples that lie below, never a view themselves.
        indices: index in ``base`` of each sample, int64; read-only.
    """

    _counted = "sample {} of a view of {}"

    def __init__(self, base: Samples[Any, Any], indices: npt.ArrayLike) -> None:
        chosen = as_indices(indices, len(base), base.path).astype(np.int64)
        self.base: Samples[Any, Any] = base
        self.indices: I64 = chosen
        if isinstance(base, View):
            self.base, self.indices = base.base, base.indices[chosen]
        self.indices.flags.writeable = False

    @property
    def path(self) -> str:
        """The data file, or several in words."""
        return self.base.path

    def __repr__(self) -> str:
        return f"<View of {len(self)} samples of {self.base!r}>"

    def __len__(self) -> int:
        return len(self.indices)

    def _one(self, at: int) -> Any:
        return self.base[int(self.indices[at])]

    def _streamed(self, indices: range) -> Iterator[Any]:
        chosen = self.indices[np.arange(indices.start, indices.stop, indices.step)]
        parts = (chosen[at : at + STREAMED] for at in range(0, len(chosen), STREAMED))
        for begun in read_ahead(self.base.begin_values, parts, 1):
            yield from begun.values()

    def key(self, index: SupportsIndex) -> Any:
        """Return the key of a sample (``Records.key``)."""
        return self.base.key(int(self.indices[self._checked(index)]))

    def index_of(self, key: bytes) -> int:
        """Return the first sample of the view that has a key.

        Raises:
            KeyError: no sample of the view has it.
        """
        found = np.flatnonzero(self.indices == self.base.index_of(key))
        if not len(found):
            raise KeyError(bytes(key))
        return int(found[0])

    def begin(self, indices: npt.ArrayLike) -> Any:
        """Begin what ``read`` does (``Records.begin``)."""
        own, below = self._below(indices)
        return Remade(self.base.begin(below), own, _renumbered)

    def begin_fields(self, indices: npt.ArrayLike, fields: Sequence[Field]) -> Any:
        """Begin what ``read`` does, of which fields may do (``Samples.begin_fields``)."""
        own, below = self._below(indices)
        return Remade(self.base.begin_fields(below, fields), own, _renumbered)

    def begin_values(self, indices: npt.ArrayLike) -> Pending:
        """Begin what ``values`` does (``Records.begin_values``)."""
        own, below = self._below(indices)
        return Remade(self.base.begin_values(below), own, _renumbered)

    def _below(self, indices: npt.ArrayLike) -> tuple[U64, Any]:
        """Return indices from the beginning, and those in ``base``: a list for a list."""
        own = as_indices(indices, len(self), self.path)
        below = self.indices[own.view(np.int64)]
        return own, below.tolist() if isinstance(indices, list) else below

    def sizes(self) -> I64:
        """Return the size of each sample of the view (``Samples.sizes``)."""
        sizes: I64 = self.base.sizes()[self.indices]
        return sizes

    def expect(self, records: int, processes: int = 1) -> None:
        """Say how many samples will be read at random (``Records.expect``)."""
        self.base.expect(records, processes)

    def stats(self) -> Stats:
        """Return what this process has read so far of ``base``."""
        return self.base.stats()


class Remade(Pending):
    """Samples under way that are made of others.

    Args:
        begun: the others.
        indices: indices of the samples, uint64, shape (n,).
        remake: function from the batch of the others, and the indices, to the batch.
        each: function from the values of the others to the values; None: they are the same.
    """

    def __init__(
        self,
        begun: Any,
        indices: U64,
        remake: Callable[[Any, U64], Any],
        each: Callable[[Iterator[Any]], Iterator[Any]] | None = None,
    ) -> None:
        self._begun, self.indices = begun, indices
        self._remake, self._each = remake, each
        self.is_filled = begun.is_filled

    def batch(self) -> Any:
        """Wait for the batch and return it."""
        return self._remake(self._begun.batch(), self.indices)

    def values(self) -> Iterator[Any]:
        values: Iterator[Any] = self._begun.values()
        return values if self._each is None else self._each(values)

    def taken(self) -> list[Any]:
        values: list[Any] = self._begun.taken()
        return values if self._each is None else list(self._each(iter(values)))

    def close(self) -> None:
        self._begun.close()


def _renumbered(batch: Any, indices: U64) -> Any:
    """Return a batch whose samples have other indices for the caller that began them."""
    return batch.part(slice(None), indices)
