"""Ray Data: a range of indices, of which actors read each batch.

    for batch in dataset("train_lmdb", decode, shuffled=True).iter_torch_batches(): ...

Each actor opens the data set once, on its own node, so the path must lead to it there. Ray adds
actors, up to ``readers``, while it has processors left for them. ``random_shuffle`` of the
samples would move them between nodes: ``shuffled=True`` moves indices instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ray.data

import lmdbio

__all__ = ["Read", "dataset"]


class Read:
    """An actor that turns the ids of a batch into its samples."""

    def __init__(self, path: str, decode: Callable[[memoryview], Any]) -> None:
        self.records, self.decode = lmdbio.Records(path), decode

    def __call__(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        samples = [self.decode(view) for view in self.records.read(rows["id"])]
        return {"id": rows["id"], "sample": samples}


def dataset(
    path: str,
    decode: Callable[[memoryview], Any],
    *,
    batch_size: int = 256,
    readers: int = 2,
    shuffled: bool = False,
) -> ray.data.Dataset:
    """The samples beside their ids; shuffled in another order in each epoch."""
    indices = ray.data.range(len(lmdbio.Records(path)))
    return (indices.random_shuffle() if shuffled else indices).map_batches(
        Read,
        fn_constructor_args=(path, decode),
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=readers),
    )
