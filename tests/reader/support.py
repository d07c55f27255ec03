"""Data sets of the tests of a Reader in one process, and the reading of all that it gives."""

from __future__ import annotations

from pathlib import Path

import lmdb

from lmdbio.planning.mode import Mode
from lmdbio.reader.reader import Reader

COUNT = 211
#: Of the data set of ``path``, some of which roots keep.
KEPT_COUNT = 300


def value(i: int) -> bytes:
    """Inline, overflow and empty values of every length class."""
    return bytes([i % 251]) * ((i * 37) % 60 if i % 3 else (i * 997) % 12_000)


def write(path: Path, values: list[bytes]) -> Path:
    with lmdb.open(str(path), map_size=1 << 28) as env:
        with env.begin(write=True) as txn:
            for i, content in enumerate(values):
                txn.put(b"%08d" % i, content)
    return path


def drain(rdr: Reader, values: list[bytes] | None = None) -> list[int]:
    """Reads to the end, compares every record, returns the indices."""
    seen: list[int] = []
    for batch in rdr:
        for i, index in enumerate(batch.indices.tolist()):
            content = bytes(batch[i])
            assert content == (values[index] if values else value(index)), index
            seen.append(index)
    return seen


MODES = [
    "auto",
    "dio",
    Mode(engine="direct"),
    Mode(engine="mmap", block_iterations=3),
    Mode(block_iterations=4),
    Mode(block_iterations=1000),
]
