"""The documented ways of loading, each over the same small data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from lmdbio.torch import BatchSampler, Dataset, IterableDataset, Loader
from tests.trainers.case import BATCH, Case

__all__ = ["Made", "batch_of", "make", "number"]


@dataclass
class Made:
    """A loader, and the object of lmdbio's in it that knows of epochs and states.

    Attributes:
        loader: what a trainer is given.
        source: the loader itself, its batch sampler or its data set.
        keeper: whichever of these the guide has states from.
    """

    loader: Any
    source: Any
    keeper: Any


def number(value: bytes) -> int:
    """Return the number that a record begins with."""
    return int.from_bytes(value[:4], "little")


def batch_of(samples: list[int]) -> dict[str, torch.Tensor]:
    """Return a batch as all of the trainers take it."""
    return {"numbers": torch.tensor(samples)}


def _threads(case: Case, path: str) -> Made:
    words = case.order | ({"cache": "memory=8M"} if "cached" in case.given else {})
    loader = Loader(path, BATCH, transform=number, collate_fn=batch_of, threads=2, **words)
    if "cached" in case.given and case.processes > 1:
        # The trainer's processes have met, and cache together.
        assert "root" in loader.caching.text, loader.caching.text
    return Made(loader, loader, loader)


def _sampled(kind: Callable[..., Any], case: Case, path: str) -> Made:
    dataset = Dataset(path, number)
    sampler = BatchSampler(dataset, BATCH, **case.order)
    loader = kind(dataset, batch_sampler=sampler, collate_fn=batch_of, num_workers=case.workers)
    return Made(loader, sampler, loader if kind is StatefulDataLoader else sampler)


def _iterated(kind: Callable[..., Any], case: Case, path: str) -> Made:
    dataset = IterableDataset(path, BATCH, transform=number, collate_fn=batch_of, **case.order)
    loader = kind(dataset, batch_size=None, num_workers=case.workers)
    return Made(loader, dataset, loader if kind is StatefulDataLoader else dataset)


def make(case: Case, path: str) -> Made:
    """Return a new loader of a case's way."""
    kind = StatefulDataLoader if case.way.startswith("Stateful") else DataLoader
    if case.way == "Loader":
        return _threads(case, path)
    return (_sampled if "BatchSampler" in case.way else _iterated)(kind, case, path)
