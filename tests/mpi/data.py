"""The data sets of the MPI programs: every value says which record it belongs to."""

from __future__ import annotations

from pathlib import Path

import lmdb

MIXED = 173
FIXED = 400


def mixed_value(i: int) -> bytes:
    """Inline, overflow and empty values."""
    return bytes([i % 251]) * ((i * 37) % 60 if i % 3 else (i * 997) % 12_000)


def fixed_value(i: int) -> bytes:
    return i.to_bytes(4, "little") * 750


def write(path: Path, values: list[bytes]) -> Path:
    with lmdb.open(str(path), map_size=1 << 28) as env:
        with env.begin(write=True) as txn:
            for i, content in enumerate(values):
                txn.put(b"%08d" % i, content)
    return path
