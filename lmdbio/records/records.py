"""records: Records, the values of a database as a sequence."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any, SupportsIndex, cast, overload

import numpy as np
import numpy.typing as npt

from lmdbio.batch import Batch
from lmdbio.locate.open import Check, Locate, Order, open_record_index
from lmdbio.machine.budget import budget_bytes
from lmdbio.machine.overrides import Overrides
from lmdbio.observe import ledger, tracing
from lmdbio.observe.stats import Stats
from lmdbio.reading.engines import choose_reading
from lmdbio.records.ahead import cut, read_ahead
from lmdbio.records.kept import KeptBatch, KeptValues
from lmdbio.records.pending import (
    CachedValues,
    PendingBatch,
    PendingValues,
    ReadBatch,
    ReadValues,
)
from lmdbio.records.routes import Routes
from lmdbio.records.shown import Shown

__all__ = ["Records"]


class Records(Shown, Sequence[bytes]):
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
        provenance: the provenance file, or the folder it is in.
        check: "fast", "deep" or "always".
        order: "key", or "insertion": records as they were put, where their keys tell
            (``locate.open_record_index``); IncompatibleError where they do not.
        engine: "auto", "pread", "direct", "uring", "staged" or "mmap".
        depth: requests in flight.
        gap_bytes_max, request_bytes_max: see ``PlanOptions``.
            Those of these four that are "auto" or None are chosen (``lmdbio.machine.choice``);
            ``choice`` says how, and why.
        readahead: bring the whole file to memory behind random reads
            (``lmdbio.reading.file_cache``), as
            far as the reads made so far are worth it. None: if there is room, once they have
            cost as much as that will; True: from the first read on; False: never.
        memory_bytes_max: how many bytes this object may take in this process (an integer, or text
            such as "2G"). Pages of the file that it maps, and copies records from, count as well;
            batches come on top. None: as ``LMDBIO_MEMORY_BYTES`` says, else the smaller of 2.5 GB
            and a quarter of the memory available to the process.
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
        memory_bytes_max: int | str | None = None,
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
            overrides = Overrides(engine, depth, request_bytes_max, gap_bytes_max)
            self.choice = choose_reading(self._source.pages, "batch", overrides)
            self._routes = Routes(
                self._source,
                self.choice,
                readahead=readahead,
                budget=budget_bytes(memory_bytes_max),
            )
        except BaseException:
            self._source.close()
            raise
        tracing.note("open", begun, monotonic_ns(), {"file": self.path})
        ledger.follow(self, _facts, self._routes.counter, self._routes.engine_counts)

    def __getstate__(self) -> dict[str, Any]:
        return self._state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def given_path(self) -> str:
        """The path that was opened, absolute: the folder, or the file."""
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
                return self._routes.slices.read(start, stop)
            indices = np.arange(start, stop, step, dtype=np.int64).astype(np.uint64)
            return list(self._routes.streamed(indices))
        at, count = operator.index(index), self._source.count
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
        at, count = operator.index(index), self._source.count
        at = at + count if at < 0 else at
        if not 0 <= at < count:
            raise IndexError(f"{self.path}: record {index} of {count}")
        return self._source.key(at)

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

    @property
    def groups(self) -> Sequence[range]:
        """The records of each key, in key order: one, or several in a database with duplicates
        (``dupsort``), where each value is a record.
        """
        return self._source.groups

    def __iter__(self) -> Iterator[bytes]:
        return self._routes.streamed(np.arange(len(self), dtype=np.uint64))

    def read(self, indices: npt.ArrayLike) -> Batch:
        """Read records, all requests in flight at once, each byte of the file at most once.

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
        return self.begin(indices).batch() if self._routes.kept else self._routes.read(indices)

    def values(self, indices: npt.ArrayLike) -> Iterator[bytes]:
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

    def expect(self, records: int) -> None:
        """Say how many records will be read at random, by whatever calls.

        Where reading the file whole, in order, costs less than those reads would (small records,
        a good part of them), it is begun at once, as ``readahead=True`` does.
        """
        self._routes.expect(records)

    def begin(self, indices: npt.ArrayLike) -> PendingBatch:
        """Begin what ``read`` does: ``batch()`` waits for it, ``close()`` gives it up.

        Raises:
            IndexError, OSError, Error: as ``read``.
        """
        routes = self._routes
        return KeptBatch(routes, indices) if routes.kept else ReadBatch(routes, indices)

    def begin_values(self, indices: npt.ArrayLike) -> PendingValues:
        """Begin what ``values`` does: ``values()``, once, waits for it, ``close()`` gives it up.

        Raises:
            IndexError, OSError, Error: as ``values``.
        """
        routes = self._routes
        if routes.kept or not isinstance(indices, list):
            return KeptValues(routes, indices) if routes.kept else ReadValues(routes, indices)
        begun, indices = monotonic_ns(), indices.copy()
        if (cached := routes.held_values(indices)) is None:
            return ReadValues(routes, indices)
        routes.counter.located(begun, len(indices))
        return CachedValues(routes, indices, cached)

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


def _facts(records: Records) -> ledger.Facts:
    return ledger.Facts("Records", records.path, records.choice.engine, records.located_by)
