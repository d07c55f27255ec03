"""DALI: an external source that gives whole batches, each one read.

    pipeline = images("train_lmdb", batch_size=64, device_id=0, rank=rank, ranks=ranks)
    pipeline.build()

The batches come in lmdbio's order of an epoch, which ranks share.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import lmdbio
from lmdbio.torch import BatchSampler

__all__ = ["Batches", "images"]


class Batches:
    """Batches of encoded files, epoch after epoch, for ``fn.external_source(..., batch=True)``."""

    def __init__(self, path: str, batch_size: int, **order: Any) -> None:
        self.records = lmdbio.Records(path)
        self.order = BatchSampler(self.records, batch_size, shuffle=True, drop_last=True, **order)

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[list[npt.NDArray[np.uint8]]]:
        for batch in self.records.batches(self.order, ahead=2):
            yield [np.frombuffer(view, np.uint8) for view in batch]


def images(path: str, batch_size: int, *, device_id: int | None = None, **order: Any) -> Any:
    """A pipeline that decodes JPEG files, on a GPU or, without ``device_id``, on the CPU.

    ``order`` has the words of ``BatchSampler``: ``seed``, ``rank``, ``ranks``.
    """
    from nvidia.dali import fn, pipeline_def, types

    source = Batches(path, batch_size, **order)
    device = "cpu" if device_id is None else "mixed"

    @pipeline_def(batch_size=batch_size, num_threads=4, device_id=device_id)
    def pipeline() -> Any:
        files = fn.external_source(source=source, batch=True, cycle="raise", dtype=types.UINT8)
        return fn.decoders.image(files, device=device, output_type=types.RGB)

    return pipeline()
