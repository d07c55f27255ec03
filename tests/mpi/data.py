"""The data sets of the MPI programs: every value says which record it belongs to."""

from __future__ import annotations

from pathlib import Path

import lmdb

MIXED = 173
FIXED = 400
#: How long a server is silent before it serves the rest of a file.
SILENT_SECONDS = 20


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


def write_copies(folder: Path) -> Path:
    """Write copies for copies.py: alike, with fewer records, of a later transaction, resized."""
    values = [fixed_value(i) for i in range(FIXED)]
    write(folder / "alike", values)
    write(folder / "fewer", values[:-1])
    write(folder / "later", values)
    with lmdb.open(str(folder / "later"), map_size=1 << 28) as env, env.begin(write=True) as txn:
        txn.put(b"%08d" % 0, values[0])
    write(folder / "resized", [*values[:-1], bytes(40)])
    middle = FIXED // 3 + 1
    write(folder / "middle", [*values[:middle], bytes(3500), *values[middle + 1 :]])
    return folder
