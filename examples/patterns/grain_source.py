"""JAX with Grain: batches of indices, each one read.

    for batch in batches("train_lmdb", 64, decode, seed=0): step(params, jax.device_put(batch))

With several processes, ``rank=jax.process_index(), ranks=jax.process_count()``. The order, its
shares and the state (``iter(data).get_state()``) are Grain's. ``Records`` itself is a
``RandomAccessDataSource``, which ``grain.MapDataset.source`` takes; there each sample is a read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grain
import numpy as np
import numpy.typing as npt

import lmdbio

__all__ = ["batches"]


def batches(
    path: str,
    batch_size: int,
    decode: Callable[[memoryview], npt.ArrayLike],
    *,
    seed: int,
    epochs: int | None = None,
    rank: int = 0,
    ranks: int = 1,
    threads: int = 8,
) -> Any:
    """Shuffled batches of a rank's share of all epochs, read and decoded by ``threads``."""
    records = lmdbio.Records(path)

    def read(indices: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return np.stack([decode(view) for view in records.read(indices)])

    # Ranks that step together need equally many: what is over is another part in each epoch.
    even = len(records) // ranks * ranks
    order = grain.MapDataset.range(len(records)).seed(seed).shuffle()[:even][rank::ranks]
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    batched = order.repeat(epochs).batch(batch_size, drop_remainder=True)
    return batched.map(read).to_iter_dataset(options)
