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

from lmdbio.bench.readers import Check, Consume, Lap, Totals, by_cursor, opened
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
            env, txn = opened(lmdb, file, {}, self._db)
            with env, txn:
                yield from txn.cursor().iternext(keys=True, values=False)

    def by_cursor(
        self, runs: Sequence[range], check: Check | None, *, consume: Consume, **options: Any
    ) -> Totals:
        """Read runs of records in order, file by file; as ``readers.by_cursor``."""
        records = total = 0
        for file, (first, stop) in zip(self.files, pairwise(self._firsts), strict=True):
            cut = [range(max(run.start, first), min(run.stop, stop)) for run in runs]
            own = [range(run.start - first, run.stop - first) for run in cut if len(run)]
            if not own:
                continue
            here = None if check is None else _shifted(check, first)
            done = by_cursor(lmdb, file, own, here, consume=consume, db=self._db, **options)
            records, total = records + done[0], total + done[1]
        return records, total

    def by_key(
        self,
        batches: Sequence[Sequence[tuple[int, bytes]]],
        check: Check | None,
        lap: Lap | None,
        *,
        consume: Consume,
        **options: Any,
    ) -> Totals:
        """Get each record of a batch by its key; as ``readers.by_key``."""
        records = total = 0
        # A data set of data sets asks each for its length when it is made.
        for path in self.files:
            env, txn = opened(lmdb, path, options, self._db)
            with env, txn:
                env.stat()
        transactions: OrderedDict[int, tuple[ExitStack, Any]] = OrderedDict()
        with ExitStack() as stack:
            stack.callback(_close_all, transactions)
            for batch in batches:
                for index, key in batch:
                    file = bisect_right(self._firsts, index) - 1
                    if file in transactions:
                        transactions.move_to_end(file)
                    else:
                        transactions[file] = self._open(file, options)
                    value = transactions[file][1].get(key)
                    if check is not None:
                        check(index, key, value)
                    total += consume(value)
                    if len(transactions) > OPEN_MAX:
                        transactions.popitem(last=False)[1][0].close()
                records += len(batch)
                if lap is not None:
                    lap()
        return records, total

    def _open(self, file: int, options: dict[str, Any]) -> tuple[ExitStack, Any]:
        """Return a transaction on a file, and the means to close both it and its environment."""
        stack = ExitStack()
        env, txn = opened(lmdb, self.files[file], options, self._db)
        stack.enter_context(env)
        return stack, stack.enter_context(txn)


def _close_all(transactions: dict[int, tuple[ExitStack, Any]]) -> None:
    for stack, _ in transactions.values():
        stack.close()


def _shifted(check: Check, first: int) -> Check:
    """Return a check of records that count from 0 in their file."""
    return lambda index, key, value: check(first + index, key, value)
