"""TensorFlow: batches of indices, each one read, several at a time.

    data = dataset("train_lmdb", 64, decode, tf.TensorSpec((224, 224, 3), tf.uint8), seed=0)
    model.fit(data.map(preprocess).prefetch(2), epochs=90)

The order is an exact shuffle, computed index by index: a buffer of ``shuffle`` that holds all
indices takes 205 bytes for each.
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
        # NumPy's own strings would lose zeros at their ends.
        return np.array(samples, object) if spec.dtype == tf.string else np.stack(samples)

    def batch(indices: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(read, [indices], spec.dtype), (None, *spec.shape))

    def epoch(draw: tf.Tensor) -> tf.data.Dataset:
        # Ranks that step together need equally many: what is over is another part in each epoch.
        even = tf.data.Dataset.range(len(records) // ranks * ranks)
        places = even.shard(ranks, rank).batch(batch_size)
        key = tf.stack([draw, seed])
        return places.map(
            lambda place: tf.random.experimental.index_shuffle(place, key, len(records) - 1)
        )

    order = tf.data.Dataset.random(seed, rerandomize_each_iteration=True).take(1).flat_map(epoch)
    options = tf.data.Options()  # tf.distribute would share each rank's part among all once more
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return order.map(batch, num_parallel_calls=threads).with_options(options)
