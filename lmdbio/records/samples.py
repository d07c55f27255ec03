"""samples: sequences of samples, of which whole batches are read at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, SupportsIndex

import numpy.typing as npt

from lmdbio.batch import Batch
from lmdbio.observe.stats import Stats
from lmdbio.records.ahead import cut, read_ahead
from lmdbio.records.pending import Pending

__all__ = ["Samples"]


class Samples(Sequence[Any]):
    """A sequence of samples that is read in batches: ``Records``, or one made of them."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The data file, or several in words."""

    @abstractmethod
    def begin(self, indices: npt.ArrayLike) -> Any:
        """Begin what ``read`` does: ``batch()`` waits for it, ``close()`` gives it up."""

    @abstractmethod
    def begin_values(self, indices: npt.ArrayLike) -> Pending:
        """Begin what ``values`` does: ``values()``, once, waits for it; ``close()`` ends it."""

    @abstractmethod
    def key(self, index: SupportsIndex) -> Any:
        """Return the key of a sample."""

    @abstractmethod
    def expect(self, records: int) -> None:
        """Say how many samples will be read at random, by whatever calls."""

    @abstractmethod
    def stats(self) -> Stats:
        """Return what this process has read so far."""

    def read(self, indices: npt.ArrayLike) -> Any:
        """Read samples, all requests in flight at once (``Records.read``)."""
        return self.begin(indices).batch()

    def values(self, indices: npt.ArrayLike) -> Iterator[Any]:
        """Iterate over values of records, as bytes of their own, one made after another.

        They are read as ``read`` does it, but values that the page cache holds are copied from
        there straight into each object, when it is asked for: a caller that drops each value
        before the next has both in a core's cache. A copy of the file in memory (``readahead``)
        would spare nothing of that, so these calls do not bring one about.

        Args:
            indices: as for ``read``.

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
    ) -> Iterator[Batch]:
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
        each, known = cut(wanted, batch_size)
        self.expect(known)
        return (one.batch() for one in read_ahead(self.begin, each, ahead))
