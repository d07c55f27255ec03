"""The loops in which data sets are read, one for each surface of py-lmdb and lmdbio.

py-lmdb and ``lmdbio.open`` run one and the same function, which is handed the module. Each loop
opens, reads and closes, and returns how many records it handed out, and a sum over the values:
of ``consume``, which is their length, or a checksum where every byte is to be looked at. A
loop shows each value to ``check``; at the end of each batch it calls ``lap``, if there is one.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Check",
    "Consume",
    "Lap",
    "Totals",
    "by_batch",
    "by_cursor",
    "by_key",
    "by_reader",
    "by_sequence",
    "checksum",
]

#: Called with record index, key (None where the reader has none) and value.
Check = Callable[[int, Any, Any], None]
Lap = Callable[[], None]
#: Called with a value, bytes or a memoryview.
Consume = Callable[[Any], int]
#: Records, and the sum of ``Consume`` over their values.
Totals = tuple[int, int]

#: From here on numpy's sum is faster than a call of zlib (measured: 3 KB 5.8 against 2.8 us,
#: 192 KB 24 against 66 us).
WORDS_FROM = 32 << 10


def word_sum(value: Any) -> int:
    """The sum of 64-bit words, and of the bytes after the last whole one."""
    words = np.frombuffer(value, np.uint64, len(value) // 8)
    total = int(np.add.reduce(words))
    return total + sum(bytes(value[8 * len(words) :]))


def checksum(value_bytes: int) -> Consume:
    """The fastest sum that looks at every byte of values of about this size."""
    small: Consume = zlib.crc32
    return word_sum if value_bytes >= WORDS_FROM else small


def opened(module: Any, path: str, options: dict[str, Any], db: str = "") -> tuple[Any, Any]:
    """An environment for reading, with the keywords that loaders use, and a transaction on it.

    Args:
        module: lmdb or lmdbio.
        path: path of the environment.
        options: further keywords of ``open``; ``buffers`` goes to ``begin``.
        db: a named database, "" for the main one.
    """
    options = dict(options)
    buffers = options.pop("buffers", False)
    if not Path(path).is_dir():
        options["subdir"] = False
    env = module.open(path, readonly=True, lock=False, max_dbs=int(bool(db)), **options)
    handle = env.open_db(os.fsencode(db), create=False) if db else None
    return env, env.begin(db=handle, buffers=buffers)


def by_cursor(
    module: Any,
    path: str,
    runs: Sequence[range],
    check: Check | None,
    *,
    consume: Consume = len,
    db: str = "",
    **options: Any,
) -> Totals:
    """Runs of records in key order; those between them are stepped over, as Caffe's ranks do.

    Args:
        module: lmdb or lmdbio.
        path: path of the environment.
        runs: record indices, ascending, no two adjacent.
        check: function that is shown every value.
        consume: function from a value to what is added up.
        db, options: arguments of ``opened``.
    """
    records = total = 0
    env, txn = opened(module, path, options, db)
    with env, txn:
        cursor = txn.cursor()
        at: int | None = None
        for run in runs:
            if at is None and run.start > 0:
                cursor.first()
                at = 0
            if at is not None:
                step_over(cursor, run.start - at)
            taken = itertools.islice(cursor, len(run))
            if check is None:
                for _key, value in taken:
                    records += 1
                    total += consume(value)
            else:
                for index, (key, value) in zip(run, taken, strict=False):
                    check(index, key, value)
                    records += 1
                    total += consume(value)
            at = run.stop - 1  # an iterator that was left stands on what it handed out last
    return records, total


def step_over(cursor: Any, steps: int) -> None:
    """Moves a cursor on, without looking at values."""
    move = cursor.next
    for _ in range(steps):
        move()


def by_key(
    module: Any,
    path: str,
    batches: Sequence[Sequence[tuple[int, bytes]]],
    check: Check | None,
    lap: Lap | None = None,
    *,
    consume: Consume = len,
    db: str = "",
    **options: Any,
) -> Totals:
    """``get`` for each record of a batch: what a map-style data set does.

    Args:
        module: lmdb or lmdbio.
        path: path of the environment.
        batches: index and key of each record.
        check, lap, consume: functions that the loop calls (see the module).
        db, options: arguments of ``opened``.
    """
    records = total = 0
    env, txn = opened(module, path, options, db)
    with env, txn:
        get = txn.get
        for batch in batches:
            if check is None:
                for _, key in batch:
                    total += consume(get(key))
            else:
                for index, key in batch:
                    value = get(key)
                    check(index, key, value)
                    total += consume(value)
            records += len(batch)
            if lap is not None:
                lap()
    return records, total


def by_batch(
    path: str,
    batches: Sequence[npt.NDArray[np.uint64]],
    check: Check | None,
    lap: Lap | None = None,
    *,
    consume: Consume = len,
    ahead: int = 0,
    arrays: bool = False,
    **options: Any,
) -> Totals:
    """``Records.read`` for each batch of indices; ``options`` are keywords of ``Records``.

    Args:
        ahead: number of batches in flight, for ``Records.batches``; 0: ``Records.read``.
        arrays: whether a batch is summed up as one array, as by decoders of records of one length,
            where every byte is looked at; else value by value.
    """
    import lmdbio

    records = total = 0
    with lmdbio.Records(path, **options) as values:
        found = values.batches(batches, ahead=ahead) if ahead else map(values.read, batches)
        for indices, batch in zip(batches, found, strict=True):
            records += len(batch)
            if arrays and consume is not len:
                total = (total + array_sum(batch)) % 2**64
            else:
                total += batch_sum(batch, consume)
            if lap is not None:
                lap()
            if check is not None:
                for i, index in enumerate(indices.tolist()):
                    check(index, None, batch[i])
    return records, total


def batch_sum(batch: Any, consume: Consume) -> int:
    """Over the values of a batch; it knows their lengths without looking at them."""
    return int(batch.lengths.sum()) if consume is len else sum(map(consume, batch))


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


def by_sequence(
    path: str,
    runs: Sequence[range],
    check: Check | None,
    *,
    sliced: bool = False,
    consume: Consume = len,
    **options: Any,
) -> Totals:
    """``Records`` as a sequence: iteration from the first record on, else a slice a run.

    Args:
        path: path of the environment.
        runs: record indices, ascending.
        check, consume: functions that the loop calls (see the module).
        sliced: a slice for the first run too.
        options: keywords of ``Records``.
    """
    import lmdbio

    records = total = 0
    with lmdbio.Records(path, **options) as values:
        for run in runs:
            iterated = run.start == 0 and not sliced
            part: Iterable[Any] = (
                itertools.islice(values, len(run)) if iterated else values[run.start : run.stop]
            )
            if check is not None:
                part = list(part)
                for index, value in zip(run, part, strict=True):
                    check(index, None, value)
            for value in part:
                records += 1
                total += consume(value)
    return records, total


def by_reader(
    path: str,
    batch_size: int,
    iterations: int,
    check: Check | None,
    *,
    comm: Any = None,
    mode: Any = "auto",
    consume: Consume = len,
    db: str = "",
) -> Totals:
    """``Reader``, on every rank of ``comm``; each sees its share of each global batch."""
    import lmdbio

    records = total = 0
    with lmdbio.Reader(
        path,
        batch_size=batch_size,
        comm=comm,
        iterations=iterations,
        mode=mode,
        db=db or None,
    ) as reader:
        for batch in reader:
            records += len(batch)
            total += batch_sum(batch, consume)
            if check is not None:
                for i, index in enumerate(batch.indices.tolist()):
                    check(index, None, batch[i])
    return records, total
