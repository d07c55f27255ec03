"""The loaders that are compared, each run in a process of its own.

    python -m benchmarks.loaders.loaders JOB        JOB and the answer are JSON

All give the same samples in batches: the first KiB of each value as a tensor, and its length,
whose sum proves that each value was read, whole. Epochs are timed, the first from before the
loader is made, each to its last batch; what a worker needs to begin is part of them.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

BATCH = 32
HEAD_BYTES = 1024


def sample(value: Any) -> tuple[torch.Tensor, int]:
    return torch.from_numpy(np.frombuffer(value, np.uint8, HEAD_BYTES).copy()), len(value)


class LmdbDataset(torch.utils.data.Dataset[Any]):
    """As they are written everywhere: keys in a list, opened when first used."""

    def __init__(self, path: str, keys: list[bytes]) -> None:
        self.path, self.keys = path, keys
        self.env: Any = None

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Any:
        if self.env is None:
            import lmdb

            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        with self.env.begin() as txn:
            return sample(txn.get(self.keys[index]))


def keys_of(job: dict[str, Any]) -> list[bytes]:
    return Path(job["keys"]).read_bytes().split(b"\n")[: job["count"]]


def py_lmdb(job: dict[str, Any], workers: int) -> Any:
    data = LmdbDataset(job["path"], keys_of(job))
    return DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=workers)


def dataset(job: dict[str, Any], workers: int) -> Any:
    from lmdbio.torch import BatchSampler, Dataset

    data = Dataset(job["path"], sample)
    sampler = BatchSampler(data, BATCH, shuffle=True)
    return DataLoader(data, batch_sampler=sampler, num_workers=workers)


def iterable(job: dict[str, Any], workers: int) -> Any:
    from lmdbio.torch import IterableDataset

    data = IterableDataset(job["path"], BATCH, transform=sample, shuffle=True)
    return DataLoader(data, batch_size=None, num_workers=workers)


def loader(job: dict[str, Any], workers: int) -> Any:
    from lmdbio.torch import Loader

    return Loader(job["path"], BATCH, transform=sample, shuffle=True, threads=workers)


def web_dataset(job: dict[str, Any], workers: int) -> Any:
    import webdataset

    def samples(source: Iterable[dict[str, Any]]) -> Iterable[Any]:
        return (sample(one["bin"]) for one in source)

    data = webdataset.WebDataset(job["tars"], shardshuffle=len(job["tars"]), seed=1)
    shuffled = data.shuffle(1000).compose(samples)
    return DataLoader(shuffled, batch_size=BATCH, num_workers=workers)


def spdl(job: dict[str, Any], workers: int) -> Any:
    """Threads that ask py-lmdb for one value each."""
    import lmdb
    from spdl.pipeline import PipelineBuilder
    from torch.utils.data import default_collate

    env = lmdb.open(job["path"], readonly=True, lock=False, readahead=False)
    keys = keys_of(job)
    order = np.random.default_rng(1).permutation(len(keys)).tolist()

    def read(index: int) -> Any:
        with env.begin() as txn:
            return sample(txn.get(keys[index]))

    pipeline: Any = (
        PipelineBuilder()
        .add_source(order)
        .pipe(read, concurrency=workers, executor=ThreadPoolExecutor(workers))
        .aggregate(BATCH)
        .pipe(default_collate)
        .add_sink(4)
        .build(num_threads=2)
    )

    def batches() -> Iterable[Any]:
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)

    return batches()


KINDS: dict[str, Callable[[dict[str, Any], int], Any]] = {
    "lmdb": py_lmdb,
    "dataset": dataset,
    "iterable": iterable,
    "loader": loader,
    "webdataset": web_dataset,
    "spdl": spdl,
}


def cpu_seconds() -> float:
    """Of this process and of all workers that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    job = json.loads(sys.argv[1])
    make = KINDS[job["kind"]]
    if job["kind"] in ("dataset", "iterable", "loader"):
        import lmdbio.torch  # noqa: F401 (imports are not timed)
    records, size, seconds, cpu = 0, 0, [], []
    loader: Any = None
    for _ in range(job["epochs"]):
        before, begun = cpu_seconds(), time.perf_counter()
        if loader is None or isinstance(loader, Iterator):  # which is of one epoch
            loader = make(job, job["workers"])
        for heads, lengths in loader:
            records += len(heads)
            size += int(lengths.sum())
        seconds.append(time.perf_counter() - begun)
        cpu.append(cpu_seconds() - before)
    told = {"seconds": seconds, "cpu_seconds": cpu, "records": records, "value_bytes": size}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
