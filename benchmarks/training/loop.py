"""A training's loop over one loader, in a process of its own.

    python -m benchmarks.training.loop JOB          JOB and the answer are JSON

The first epoch is timed from before the loader is made; later ones, which the page cache serves,
from the beginning of their iteration, each to its last batch. Imports are made before.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import torch

from benchmarks.training import loaders, peers, tree
from benchmarks.training.loaders import Job
from benchmarks.training.step import Step
from benchmarks.training.workloads import WORKLOADS, Account

END = object()


@dataclass(slots=True)
class Epoch:
    """One epoch, and the time that it took.

    Attributes:
        seconds: in all.
        first_seconds: to the first batch.
        wait_seconds: in which the loop waited for batches after the first.
        step_seconds, steps: of the training with batches that were full.
        cpu_seconds: of all processes.
        checksum: of what was handed out.
    """

    seconds: float = 0.0
    first_seconds: float = 0.0
    wait_seconds: float = 0.0
    step_seconds: float = 0.0
    steps: int = 0
    cpu_seconds: float = 0.0
    checksum: int = 0


def ran(batches: Iterable[Any], begun: float, job: Job, step: Step | None) -> Epoch:
    """Go through an epoch.

    Args:
        batches: the loader.
        begun: when the epoch began (``perf_counter``).
        job: what is loaded.
        step: the training; None: none.

    Raises:
        ValueError: a record is missing, or came twice.
    """
    account, told, size = Account(job.count), Epoch(), job.made.batch
    iterator = iter(batches)
    while True:
        asked = time.perf_counter()
        batch: Any = next(iterator, END)
        got = time.perf_counter()
        if told.first_seconds:
            told.wait_seconds += got - asked
        else:
            told.first_seconds = got - begun
        if batch is END:
            break
        is_full = account.add(batch) == size
        if step is not None:
            trained = time.perf_counter()
            step(batch if isinstance(batch, torch.Tensor) else batch[0])
            if is_full:
                told.step_seconds += time.perf_counter() - trained
                told.steps += 1
        del batch  # while the next one is waited for
    told.seconds, told.checksum = time.perf_counter() - begun, account.checksum
    if fault := account.fault():
        raise ValueError(fault)
    return told


def run(job: Job) -> dict[str, Any]:
    """Return what all epochs took, and what the loop's process was like before."""
    make = {**loaders.MAKERS, **peers.MAKERS}[job.kind]
    step = Step(job.made, job.step) if job.step else None
    alone = step.alone() if step is not None else None
    own = psutil.Process()
    before, loader, epochs = tree.memory_bytes(own), None, list[Epoch]()
    while len(epochs) < 2 or (
        len(epochs) <= job.epochs_max
        and sum(epoch.seconds for epoch in epochs[1:]) < job.warm_seconds
    ):
        used, begun = tree.cpu_seconds(own), time.perf_counter()
        if loader is None:
            loader = make(job)
        told = ran(loader, begun, job, step)
        told.cpu_seconds = tree.cpu_seconds(own) - used
        epochs.append(told)
    if close := getattr(loader, "close", None):
        close()
    del loader
    if step is not None and alone is not None:
        alone = min(alone, step.alone())  # for it must not be slow by what others do just then
    return {"epochs": [asdict(one) for one in epochs], "step_alone_seconds": alone,
            "before_bytes": before}  # fmt: skip


def main() -> None:
    words = json.loads(sys.argv[1])
    needs = words.pop("needs")
    for name in filter(None, [*needs, WORKLOADS[words["workload"]].needs]):
        importlib.import_module(name)
    if "cv2" in sys.modules:  # as in all programs with workers: they are the threads
        sys.modules["cv2"].setNumThreads(0)
    print(json.dumps(run(Job(**words))))


if __name__ == "__main__":
    main()
