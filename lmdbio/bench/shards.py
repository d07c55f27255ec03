"""py-lmdb over several files, as data sets of data sets do it: an environment for each."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import lmdb
import numpy as np

from lmdbio.bench.readers import Part, by_cursor, opened
from lmdbio.locate.open_files import open_database

__all__ = ["Shards"]

#: Environments that are open at a time.
OPEN_MAX = 128


class Shards:
    """The files of a data set, and which records each has.

    Args:
        path: path of the environment, or of a folder or a pattern of several.
        db: a named database, "" for the main one.
    """

    def __init__(self, path: str, db: str = "") -> None:
        with open_database(path, db=db or None) as found:
            self.files = list(found.paths)
            counts = [found.count] if found.file_set is None else found.file_set.counts
        self._firsts = [0, *np.cumsum(counts).tolist()]
        self._db = db

    def keys(self) -> Iterator[bytes]:
        """Yield the keys of all records."""
        for file in self.files:
            env, txn = opened(lmdb, file, self._db)
            with env, txn:
                yield from txn.cursor().iternext(keys=True, values=False)

    def by_cursor(self, runs: Sequence[range], **options: Any) -> Iterator[Part]:
        """Read runs of records in order, file by file; as ``readers.by_cursor``."""
        for file, (first, stop) in zip(self.files, pairwise(self._firsts), strict=True):
            cut = [range(max(run.start, first), min(run.stop, stop)) for run in runs]
            own = [range(run.start - first, run.stop - first) for run in cut if len(run)]
            whole = (run for run in cut if len(run))
            if own:
                parts = by_cursor(lmdb, file, own, db=self._db, **options)
                yield from ((run, values) for run, (_, values) in zip(whole, parts, strict=True))

    def by_key(
        self, batches: Sequence[Sequence[tuple[int, bytes]]], **options: Any
    ) -> Iterator[Part]:
        """Get each record of a batch by its key; as ``readers.by_key``."""
        # A data set of data sets asks each for its length when it is made.
        for path in self.files:
            env, txn = opened(lmdb, path, self._db, **options)
            with env, txn:
                env.stat()
        transactions: OrderedDict[int, tuple[ExitStack, Any]] = OrderedDict()

        def get(index: int, key: bytes) -> Any:
            file = bisect_right(self._firsts, index) - 1
            if file not in transactions:
                env, txn = opened(lmdb, self.files[file], self._db, **options)
                stack = ExitStack()
                stack.enter_context(env)
                transactions[file] = stack, stack.enter_context(txn)
            transactions.move_to_end(file)
            if len(transactions) > OPEN_MAX:
                transactions.popitem(last=False)[1][0].close()
            return transactions[file][1].get(key)

        try:
            for batch in batches:
                yield [index for index, _ in batch], (get(index, key) for index, key in batch)
        finally:
            for stack, _ in transactions.values():
                stack.close()
