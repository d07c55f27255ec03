"""Hugging Face datasets: a table of indices, whose samples are read when rows are asked for.

    data = dataset("train_lmdb", decode).train_test_split(0.1, seed=0)["train"]
    for batch in DataLoader(data, batch_size=64, shuffle=True, num_workers=4): ...

Arrow holds the indices alone, so nothing is copied: splits, shuffles and shards are those of
datasets, and the rows of a batch are one read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import datasets
import numpy as np

import lmdbio

__all__ = ["Read", "dataset", "stream"]


class Read:
    """Turns the rows of a batch, which are indices, into its samples."""

    def __init__(self, path: str, decode: Callable[[memoryview], Any]) -> None:
        self.records, self.decode = lmdbio.Records(path), decode

    def __call__(self, rows: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
        return {"sample": [self.decode(view) for view in self.records.read(rows["index"])]}


def dataset(path: str, decode: Callable[[memoryview], Any]) -> datasets.Dataset:
    """A map-style data set, for a DataLoader or a Trainer."""
    read = Read(path, decode)
    indices = datasets.Dataset.from_dict({"index": np.arange(len(read.records))})
    return indices.with_transform(read)


def stream(
    path: str, decode: Callable[[memoryview], Any], batch_size: int, *, seed: int, shards: int = 64
) -> datasets.IterableDataset:
    """One epoch as an IterableDataset, which ``split_dataset_by_node`` shares among ranks."""
    read = Read(path, decode)
    indices = datasets.Dataset.from_dict({"index": np.arange(len(read.records))}).shuffle(seed)
    rows = indices.to_iterable_dataset(num_shards=min(shards, len(indices)))
    return rows.map(read, batched=True, batch_size=batch_size, remove_columns="index")
