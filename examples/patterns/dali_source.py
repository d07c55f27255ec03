"""DALI: an external source that gives whole batches, each one read.

    pipeline = images("train_lmdb", batch_size=64, shard_id=rank, num_shards=ranks)
    pipeline.build()

The batches come in lmdbio's order of an epoch (``lmdbio.order``), which ranks share.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import lmdbio
from lmdbio.planning.order import Epoch, Shard

__all__ = ["Batches", "images"]


class Batches:
    """Batches of encoded files, epoch after epoch, for ``fn.external_source(..., batch=True)``."""

    def __init__(
        self, path: str, batch_size: int, *, seed: int = 0, rank: int = 0, ranks: int = 1
    ) -> None:
        self.records, self.epoch = lmdbio.Records(path), 0
        self.seed = seed
        self.shard = Shard(len(self.records), batch_size, rank, ranks, drop_last=True)

    def __len__(self) -> int:
        return len(self.shard)

    def __iter__(self) -> Iterator[list[npt.NDArray[np.uint8]]]:
        order = Epoch(len(self.records), self.seed, self.epoch)
        self.epoch += 1
        wanted = (order.samples(self.shard.places(step)) for step in range(len(self.shard)))
        for batch in self.records.batches(wanted, ahead=2):
            yield [np.frombuffer(view, np.uint8) for view in batch]


def images(path: str, batch_size: int, *, shard_id: int = 0, num_shards: int = 1) -> Any:
    """A pipeline that decodes JPEG files on the GPU."""
    from nvidia.dali import fn, pipeline_def, types

    source = Batches(path, batch_size, rank=shard_id, ranks=num_shards)

    @pipeline_def(batch_size=batch_size, num_threads=4, device_id=shard_id)
    def pipeline() -> Any:
        files = fn.external_source(source=source, batch=True, cycle="raise", dtype=types.UINT8)
        return fn.decoders.image(files, device="mixed", output_type=types.RGB)

    return pipeline()
