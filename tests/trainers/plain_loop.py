"""No trainer: a loop of one's own, alone or under torchrun, and torchdata's nodes."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta
from typing import Any

import torch
from torchdata import nodes

from tests.trainers.case import Case
from tests.trainers.loop import run_epochs
from tests.trainers.seen import Seen, run_cases
from tests.trainers.ways import Made, batch_of, make


def node_of(case: Case, made: Made) -> Any:
    """Return torchdata's Loader over a way's loader, or over its sampler and its data set."""
    if case.way != "BatchSampler":
        return nodes.Loader(nodes.IterableWrapper(made.source))
    read = made.loader.dataset.__getitems__
    batches = nodes.SamplerWrapper(made.source)
    return nodes.Loader(nodes.Mapper(batches, lambda batch: batch_of(read(batch))))


def train(case: Case, path: str, seen: Seen) -> None:
    made = make(case, path)
    if "nodes" in case.given:
        made.loader = made.keeper = node_of(case, made)
    run_epochs(case, seen, made, made.loader)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    run_cases(train)
    if "RANK" in os.environ:
        torch.distributed.destroy_process_group()
