"""TensorFlow: batches of indices, each one read, several at a time.

    data = dataset("train_lmdb", 64, decode, tf.TensorSpec((224, 224, 3), tf.uint8), seed=0)
    model.fit(data.map(preprocess).prefetch(2), epochs=90)

The buffer of ``shuffle`` holds indices, so it holds all of them: the order is an exact shuffle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import lmdbio

__all__ = ["dataset"]


def dataset(
    path: str,
    batch_size: int,
    decode: Callable[[memoryview], Any],
    spec: tf.TensorSpec,
    *,
    seed: int,
    rank: int = 0,
    ranks: int = 1,
    threads: int = 4,
) -> tf.data.Dataset:
    """Batches of a rank's share, in another order in each epoch; ``spec`` is that of a sample."""
    records = lmdbio.Records(path)

    def read(indices: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        samples = [decode(view) for view in records.read(indices)]
        return np.array(samples, spec.dtype.as_numpy_dtype)  # objects where it is tf.string

    def batch(indices: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(read, [indices], spec.dtype), (None, *spec.shape))

    order = tf.data.Dataset.range(len(records)).shuffle(len(records), seed)
    return order.shard(ranks, rank).batch(batch_size).map(batch, num_parallel_calls=threads)
