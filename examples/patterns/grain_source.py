"""Grain: ``Records`` is a random-access source as it is.

    for batch in batches("train_lmdb", 32, decode, seed=0): ...

It has ``__len__`` and ``__getitem__``, can be pickled, and is used by many threads and processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lmdbio

__all__ = ["batches"]


def batches(
    path: str, batch_size: int, decode: Callable[[bytes], Any], *, seed: int, threads: int = 16
) -> Any:
    """Shuffled batches of one epoch, read and decoded by ``threads``."""
    import grain

    data = grain.MapDataset.source(lmdbio.Records(path)).seed(seed).shuffle().map(decode)
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=4 * batch_size)
    return data.to_iter_dataset(options).batch(batch_size)
