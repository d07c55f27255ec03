"""The loops in which data sets are read, one for each surface of py-lmdb and lmdbio.

py-lmdb and ``lmdbio.open`` run one and the same function, which is handed the module. Each reader
opens, yields the records of a batch or a run and their values, and closes; one loop, ``consume``,
looks at the values of all of them.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Check",
    "Lap",
    "Part",
    "Totals",
    "Weigh",
    "by_batch",
    "by_cursor",
    "by_key",
    "by_reader",
    "by_sequence",
    "checksum",
    "consume",
    "opened",
    "word_sum",
]

#: Called with a record's index and its value.
Check = Callable[[int, Any], None]
Lap = Callable[[], None]
#: From a value, bytes or a memoryview, to what is added up.
Weigh = Callable[[Any], int]
#: Records, and the sum of ``Weigh`` over their values.
Totals = tuple[int, int]
#: Record indices, and their values, to be taken before the next part is asked for.
Part = tuple[Sequence[int] | npt.NDArray[np.uint64], Iterable[Any]]

#: From here on numpy's sum is faster than a call of zlib (measured: 3 KB 5.8 against 2.8 us,
#: 192 KB 24 against 66 us).
WORDS_FROM = 32 << 10


# --- what is done with values --------------------------------------------------------------


def consume(
    parts: Iterable[Part],
    weigh: Weigh = len,
    *,
    check: Check | None = None,
    lap: Lap | None = None,
    arrays: bool = False,
) -> Totals:
    """Take all values, and return how many there were, and their sum.

    Args:
        parts: records and values, part by part.
        weigh: function from a value to what is added up: its length, or a checksum where every
            byte is to be looked at.
        check: function that is shown every value.
        lap: function that is called at the end of each part.
        arrays: whether a batch is summed up as one array, as by decoders of records of one length,
            where every byte is looked at; else value by value.
    """
    records = total = 0
    numbers = itertools.count(1)  # one is taken with each value that comes alone: none is zero
    for indices, values in parts:
        if not hasattr(values, "lengths"):  # value by value: a view may last until the next one
            if check is not None:
                values = checked(indices, values, check)
            total += sum(map(weigh, itertools.compress(values, numbers)))
        else:
            batch: Any = values
            if check is not None:
                for index, value in zip(map(int, indices), batch, strict=True):
                    check(index, value)
            records += len(batch)
            if weigh is len:  # a batch knows without looking at values
                total += int(batch.lengths.sum())
            else:
                total += array_sum(batch) if arrays else sum(map(weigh, batch))
        if lap is not None:
            lap()
    return records + next(numbers) - 1, total


def checked(indices: Iterable[Any], values: Iterable[Any], check: Check) -> Iterator[Any]:
    """Yield values, each after it was shown to ``check``."""
    for index, value in zip(map(int, indices), values, strict=False):
        check(index, value)
        yield value


def word_sum(value: Any) -> int:
    """The sum of 64-bit words, and of the bytes after the last whole one."""
    words = np.frombuffer(value, np.uint64, len(value) // 8)
    total = int(np.add.reduce(words))
    return total + sum(bytes(value[8 * len(words) :]))


def checksum(value_bytes: int) -> Weigh:
    """The fastest sum that looks at every byte of values of about this size."""
    small: Weigh = zlib.crc32
    return word_sum if value_bytes >= WORDS_FROM else small


def array_sum(batch: Any) -> int:
    """The sum of ``word_sum`` over the values of a batch, modulo 2**64."""
    lengths = batch.lengths
    length = int(lengths[0]) if len(lengths) else 0
    if (lengths != length).any():
        return sum(map(word_sum, batch)) % 2**64
    words, rest = divmod(length, 8)
    total = int(batch.array(np.uint64, (words,)).sum(dtype=np.uint64))
    if rest:
        total += int(batch.array(np.uint8, (rest,), 8 * words).sum(dtype=np.uint64))
    return total % 2**64


# --- readers -------------------------------------------------------------------------------


def opened(module: Any, path: str, db: str = "", **options: Any) -> tuple[Any, Any]:
    """An environment for reading, with the keywords that loaders use, and a transaction on it.

    Args:
        module: lmdb or lmdbio.
        path: path of the environment.
        db: a named database, "" for the main one.
        options: further keywords of ``open``; ``buffers`` goes to ``begin``.
    """
    buffers = options.pop("buffers", False)
    if not Path(path).is_dir():
        options["subdir"] = False
    env = module.open(path, readonly=True, lock=False, max_dbs=int(bool(db)), **options)
    handle = env.open_db(os.fsencode(db), create=False) if db else None
    return env, env.begin(db=handle, buffers=buffers)


def by_cursor(module: Any, path: str, runs: Sequence[range], **options: Any) -> Iterator[Part]:
    """Runs of records in key order; those between them are stepped over, as Caffe's ranks do.

    Args:
        module: lmdb or lmdbio.
        path: path of the environment.
        runs: record indices, ascending, no two adjacent.
        options: arguments of ``opened``.
    """
    env, txn = opened(module, path, **options)
    with env, txn:
        cursor = txn.cursor()
        at: int | None = None
        for run in runs:
            if at is None and run.start > 0:
                cursor.first()
                at = 0
            if at is not None:
                for _ in range(run.start - at):
                    cursor.next()
            yield run, (value for _key, value in itertools.islice(cursor, len(run)))
            at = run.stop - 1  # an iterator that was left stands on what it handed out last


def by_key(
    module: Any, path: str, batches: Sequence[Sequence[tuple[int, bytes]]], **options: Any
) -> Iterator[Part]:
    """``get`` for each record of a batch: what a map-style data set does.

    Args:
        module: lmdb or lmdbio.
        path: path of the environment.
        batches: index and key of each record.
        options: arguments of ``opened``.
    """
    env, txn = opened(module, path, **options)
    with env, txn:
        get = txn.get
        for batch in batches:
            yield [index for index, _ in batch], (get(key) for _, key in batch)


def by_batch(
    path: str, batches: Sequence[npt.NDArray[np.uint64]], *, ahead: int = 0, **options: Any
) -> Iterator[Part]:
    """``Records.read`` for each batch of indices.

    Args:
        path: path of the environment.
        batches: record indices.
        ahead: number of batches in flight, for ``Records.batches``; 0: ``Records.read``.
        options: keywords of ``Records``.
    """
    import lmdbio

    with lmdbio.Records(path, **options) as values:
        found = values.batches(batches, ahead=ahead) if ahead else map(values.read, batches)
        yield from zip(batches, found, strict=True)


def by_sequence(
    path: str, runs: Sequence[range], *, sliced: bool = False, **options: Any
) -> Iterator[Part]:
    """``Records`` as a sequence: iteration from the first record on, else a slice a run.

    Args:
        path: path of the environment.
        runs: record indices, ascending.
        sliced: a slice for the first run too.
        options: keywords of ``Records``.
    """
    import lmdbio

    with lmdbio.Records(path, **options) as values:
        for run in runs:
            if run.start == 0 and not sliced:
                yield run, itertools.islice(values, len(run))
            else:
                yield run, values[run.start : run.stop]


def by_reader(path: str, batch_size: int, **options: Any) -> Iterator[Part]:
    """``Reader``, on every rank of ``comm``; each sees its share of each global batch.

    Args:
        path: path of the environment.
        batch_size: records of a batch, over all ranks.
        options: keywords of ``Reader``.
    """
    import lmdbio

    with lmdbio.Reader(path, batch_size=batch_size, **options) as reader:
        for batch in reader:
            yield batch.indices, batch
