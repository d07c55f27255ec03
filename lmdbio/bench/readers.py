"""The loops in which data sets are read, one for each surface of py-lmdb and lmdbio.

py-lmdb and ``lmdbio.open`` run one and the same function, which is handed the module. Each loop
opens, reads and closes, and returns how many records and bytes of values it handed out. What
it hands out it shows to ``check``; at the end of each batch it calls ``lap``, if there is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Check",
    "Lap",
    "Totals",
    "by_batch",
    "by_cursor",
    "by_key",
    "by_reader",
    "by_sequence",
]

#: Called with record index, key (None where the reader has none) and value.
Check = Callable[[int, Any, Any], None]
Lap = Callable[[], None]
#: Records, and bytes of values.
Totals = tuple[int, int]


def opened(module: Any, path: str, options: dict[str, Any]) -> Any:
    """An environment for reading, with the keywords that loaders use."""
    if not Path(path).is_dir():
        options = options | {"subdir": False}
    return module.open(path, readonly=True, lock=False, **options)


def by_cursor(
    module: Any, path: str, runs: Sequence[range], check: Check | None, **options: Any
) -> Totals:
    """Runs of records in key order; those between them are stepped over, as Caffe's ranks do.

    Args:
        module: lmdb or lmdbio.
        path: of the environment.
        runs: record indices, ascending, no two adjacent.
        check: is shown every value.
        options: keywords of ``open``.
    """
    records = value_bytes = 0
    env = opened(module, path, options)
    with env, env.begin() as txn:
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
                    value_bytes += len(value)
            else:
                for index, (key, value) in zip(run, taken, strict=False):
                    check(index, key, value)
                    records += 1
                    value_bytes += len(value)
            at = run.stop - 1  # an iterator that was left stands on what it handed out last
    return records, value_bytes


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
    **options: Any,
) -> Totals:
    """``get`` for each record of a batch: what a map-style data set does.

    Args:
        module: lmdb or lmdbio.
        path: of the environment.
        batches: index and key of each record.
        check, lap: see the module.
        options: keywords of ``open``.
    """
    records = value_bytes = 0
    env = opened(module, path, options)
    with env, env.begin() as txn:
        for batch in batches:
            values = [txn.get(key) for _, key in batch]
            records += len(values)
            value_bytes += sum(map(len, values))
            if lap is not None:
                lap()
            if check is not None:
                for (index, key), value in zip(batch, values, strict=True):
                    check(index, key, value)
    return records, value_bytes


def by_batch(
    path: str,
    batches: Sequence[npt.NDArray[np.uint64]],
    check: Check | None,
    lap: Lap | None = None,
    **options: Any,
) -> Totals:
    """``Records.read`` for each batch of indices; ``options`` are keywords of ``Records``."""
    import lmdbio

    records = value_bytes = 0
    with lmdbio.Records(path, **options) as values:
        for indices in batches:
            batch = values.read(indices)
            records += len(batch)
            value_bytes += int(batch.lengths.sum())
            if lap is not None:
                lap()
            if check is not None:
                for i, index in enumerate(indices.tolist()):
                    check(index, None, batch[i])
    return records, value_bytes


def by_sequence(path: str, runs: Sequence[range], check: Check | None, **options: Any) -> Totals:
    """``Records`` as a sequence: iteration from the first record on, else a slice a run."""
    import lmdbio

    records = value_bytes = 0
    with lmdbio.Records(path, **options) as values:
        for run in runs:
            first = run.start == 0
            part = itertools.islice(values, len(run)) if first else values[run.start : run.stop]
            for index, value in zip(run, part, strict=True):
                if check is not None:
                    check(index, None, value)
                records += 1
                value_bytes += len(value)
    return records, value_bytes


def by_reader(
    path: str,
    batch_size: int,
    iterations: int,
    check: Check | None,
    *,
    comm: Any = None,
    mode: Any = "auto",
) -> Totals:
    """``Reader``, on every rank of ``comm``; each sees its share of each global batch."""
    import lmdbio

    records = value_bytes = 0
    with lmdbio.Reader(
        path, batch_size=batch_size, comm=comm, iterations=iterations, mode=mode
    ) as reader:
        for batch in reader:
            records += len(batch)
            value_bytes += int(batch.lengths.sum())
            if check is not None:
                for i, index in enumerate(batch.indices.tolist()):
                    check(index, None, batch[i])
    return records, value_bytes
