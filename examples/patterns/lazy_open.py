"""An environment that each worker opens when it first reads.

Readers are written like this because py-lmdb's environments can't be pickled, and had better not
be used after fork. With lmdbio the import is all that changes, and none of it is needed any more:
see ``Eager``.
"""

from __future__ import annotations

from typing import Any

import torch.utils.data

import lmdbio as lmdb

__all__ = ["Eager", "Lazy"]


class Lazy(torch.utils.data.Dataset[Any]):
    """As it was written for py-lmdb."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.env: Any = None
        with lmdb.open(path, readonly=True, lock=False) as env, env.begin() as txn:
            self.keys = list(txn.cursor().iternext(values=False))

    def open(self) -> None:
        self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False, meminit=False)

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Any:
        if self.env is None:
            self.open()
        with self.env.begin(write=False) as txn:
            return txn.get(self.keys[index])


class Eager(torch.utils.data.Dataset[Any]):
    """As it may be: opened at once, pickled and forked as it is."""

    def __init__(self, path: str) -> None:
        self.records = lmdb.Records(path)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        return self.records[index]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return list(map(bytes, self.records.read(indices)))
