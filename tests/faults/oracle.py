"""The databases of the soak, written and read by py-lmdb: what it reads is right."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import lmdb


@dataclass(frozen=True, slots=True)
class Oracle:
    """A database, and what py-lmdb reads from it.

    Attributes:
        path: the environment's folder.
        items: key and value of every record, in key order.
    """

    path: Path
    items: list[tuple[bytes, bytes]]

    @property
    def file(self) -> Path:
        return self.path / "data.mdb"

    @property
    def sidecar(self) -> Path:
        return self.path / "data.mdb.prov"


#: name -> records, lengths of their values. "small": inline values and those of a few pages, on
#: three levels. "big": enough for blocks that go past the page cache (lmdbio.reading.direct_path).
SHAPES = {
    "small": (900, (0, 10, 300, 1900, 2100, 9000)),
    "big": (1400, (3000, 3000, 3000, 9000, 40_000, 110_000)),
}


def write(folder: Path, name: str) -> Oracle:
    """Writes a database with a commit every hundred records."""
    count, lengths = SHAPES[name]
    content = random.Random(name)
    path = folder / name
    with lmdb.open(str(path), map_size=1 << 28, sync=False) as env:
        for start in range(0, count, 100):
            with env.begin(write=True) as txn:
                for i in range(start, min(count, start + 100)):
                    key = b"%08d" % i + b"k" * (i % 3 * 100)
                    txn.put(key, content.randbytes(content.choice(lengths)))
    return read(path)


def read(path: Path) -> Oracle:
    """Return what py-lmdb reads from a database."""
    with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        return Oracle(path, list(txn.cursor()))
