"""torchdata's nodes: batches of indices, read and decoded by threads.

    loader = batches("train_lmdb", 64, decode, seed=0)
    loader.load_state_dict(state)

A state, of ``loader.state_dict()``, resumes exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchdata import nodes

from lmdbio.torch import BatchSampler, Dataset

__all__ = ["batches"]


def batches(
    path: str, batch_size: int, decode: Callable[[bytes], Any], *, seed: int, threads: int = 4
) -> nodes.Loader[Any]:
    """Batches of one rank; under torchrun, or in a process group, ranks share each epoch."""
    data = Dataset(path, decode)

    def read(indices: list[int]) -> Any:
        return torch.utils.data.default_collate(data.__getitems__(indices))

    order = BatchSampler(data, batch_size, shuffle=True, seed=seed)
    node = nodes.ParallelMapper(nodes.SamplerWrapper(order), read, num_workers=threads)
    return nodes.Loader(node)
