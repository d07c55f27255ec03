"""How each way loads: what a training program has, over the LMDB file.

Each maker returns an object that may be iterated once for each epoch. Batches are those of
``workloads``: images and numbers, or a count.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.training.workloads import WORKLOADS, Workload

__all__ = ["MAKERS", "Job", "LmdbDataset", "data_loader"]


@dataclass(frozen=True, slots=True)
class Job:
    """A run that is to be made.

    Attributes:
        kind, words: see ``Way``.
        workload: name of what is made of the values.
        path: of the data set, or of the folder of its files in another format.
        keys: file with the keys, one a line, in key order.
        count: records.
        workers: processes of a DataLoader, or threads of a peer that has threads.
        seed: of the order.
        pins: tensors go to page-locked memory.
        epochs_max, warm_seconds: further epochs are loaded until either is reached.
        step: repetitions of the training's step with each batch; 0: no training.
    """

    kind: str
    workload: str
    path: str
    keys: str
    count: int
    workers: int
    words: Mapping[str, int]
    seed: int
    pins: bool
    epochs_max: int
    warm_seconds: float
    step: int

    @property
    def made(self) -> Workload:
        """The workload."""
        return WORKLOADS[self.workload]

    def sample(self, value: Any) -> Any:
        """Return what is made of a value."""
        transform = self.made.transform
        return value if transform is None else transform(value)


def data_loader(job: Job, data: Any, **options: Any) -> Any:
    """Return torch's DataLoader with what they all have in common; its workers stay."""
    workers = job.workers
    return DataLoader(
        data, num_workers=workers, pin_memory=job.pins, persistent_workers=workers > 0, **options
    )


def _shuffled(job: Job, data: Any) -> Any:
    size, collate = job.made.batch, job.made.collate
    return data_loader(job, data, batch_size=size, shuffle=True, collate_fn=collate)


class LmdbDataset(torch.utils.data.Dataset[Any]):
    """As it is written everywhere: opened when first used, a transaction for each sample.

    Args:
        path: path of the environment.
        keys: its keys.
        sample: function that makes a sample of a value.
        library: module that has ``open``.
        readahead: argument of ``open``.
    """

    def __init__(
        self,
        path: str,
        keys: list[bytes],
        sample: Callable[[Any], Any],
        library: str = "lmdb",
        *,
        readahead: bool = False,
    ) -> None:
        self.path, self.keys, self.sample = path, keys, sample
        self.library, self.readahead = library, readahead
        self.env: Any = None

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Any:
        if self.env is None:
            library = importlib.import_module(self.library)
            self.env = library.open(self.path, readonly=True, lock=False, readahead=self.readahead)
        with self.env.begin() as txn:
            return self.sample(txn.get(self.keys[index]))


def _by_lmdb(job: Job, library: str = "lmdb") -> Any:
    keys = Path(job.keys).read_bytes().split(b"\n")
    return _shuffled(job, LmdbDataset(job.path, keys, job.sample, library))


def _by_dataset(job: Job) -> Any:
    from lmdbio.torch import BatchSampler, Dataset

    data = Dataset(job.path, job.made.transform)
    sampler = BatchSampler(data, job.made.batch, shuffle=True, seed=job.seed)
    return data_loader(job, data, batch_sampler=sampler, collate_fn=job.made.collate)


def _by_iterable(job: Job) -> Any:
    from lmdbio.torch import IterableDataset

    made = job.made
    data = IterableDataset(job.path, made.batch, transform=made.transform,
                           collate_fn=made.collate, shuffle=True, seed=job.seed)  # fmt: skip
    return data_loader(job, data, batch_size=None)


def _by_loader(job: Job) -> Any:
    from lmdbio.torch import Loader

    made = job.made
    words: dict[str, Any] = {**job.words, "pin_memory": job.pins}
    if made.decoder is not None:
        words["decode"] = made.decoder()
    elif made.transform is None:
        words["collate_fn"] = made.collate
    else:
        words["transform"] = made.transform
    return Loader(job.path, made.batch, shuffle=True, seed=job.seed, **words)


MAKERS: dict[str, Callable[[Job], Any]] = {
    "lmdb": _by_lmdb,
    "open": partial(_by_lmdb, library="lmdbio"),
    "dataset": _by_dataset,
    "iterable": _by_iterable,
    "loader": _by_loader,
}
