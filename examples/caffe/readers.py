"""Two ways to read the same batches: lmdbio's, and the one of Caffe's data layer.

Both are contexts that give an iterator over this rank's share of each global batch; a share is a
sequence of messages. A user of Caffe's pattern changes ``by_cursor`` into ``by_lmdbio``.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lmdb

import lmdbio
from lmdbio.planning.mode import NAMED

__all__ = ["CURSOR", "MODES", "by_cursor", "by_lmdbio"]

CURSOR = "py-lmdb"
#: The short names of all modes: "lmdb", "lmm", "dm", "dio", ...
MODES = tuple(name.rsplit("-", 1)[-1].lower() for name in NAMED)
#: Batches that Caffe's data layer reads ahead in a thread of its own (DataParameter.prefetch).
PREFETCH = 4


def by_lmdbio(
    path: str, batch_size: int, *, comm: Any, mode: str, assignment: str, iterations: int
) -> lmdbio.Reader:
    """Return the Reader that this example is about."""
    return lmdbio.Reader(
        path,
        batch_size,
        comm=comm,
        mode=mode,
        assignment=assignment,
        iterations=iterations,
    )


@contextlib.contextmanager
def by_cursor(
    path: str, batch_size: int, *, comm: Any, iterations: int
) -> Iterator[Iterator[list[bytes]]]:
    """Caffe's: every rank walks all records and keeps its own, a few batches ahead.

    Source: data_layer.cpp (DataLayer::load_batch, Next, Skip); base_data_layer.cpp.
    """
    rank, size = (0, 1) if comm is None else (comm.rank, comm.size)
    mine = range(rank * batch_size // size, (rank + 1) * batch_size // size)
    subdir = os.path.isdir(path)  # noqa: PTH112
    with (
        lmdb.open(path, subdir=subdir, readonly=True, lock=False) as env,
        env.begin() as txn,
        ThreadPoolExecutor(1, "prefetch") as thread,
    ):
        if not txn.stat()["entries"]:
            raise ValueError(f"{path} holds no records")
        yield _ahead(_walk(txn.cursor(), batch_size, mine, iterations), thread)


def _walk(
    cursor: lmdb.Cursor, batch_size: int, mine: range, iterations: int
) -> Iterator[list[bytes]]:
    """The share ``mine`` of each batch of the circular sequence."""
    cursor.first()

    def next_record() -> None:
        if not cursor.next():
            cursor.first()

    for _ in range(iterations):
        share = []
        for position in range(batch_size):
            if position in mine:
                share.append(bytes(cursor.value()))
            next_record()
        yield share


def _ahead(batches: Iterator[list[bytes]], thread: ThreadPoolExecutor) -> Iterator[list[bytes]]:
    """The same batches, which ``thread`` reads while those before are used."""
    coming = deque(thread.submit(next, batches, None) for _ in range(PREFETCH))
    while (batch := coming.popleft().result()) is not None:
        coming.append(thread.submit(next, batches, None))
        yield batch
