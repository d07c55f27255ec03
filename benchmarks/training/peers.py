"""How programs load that have no LMDB: each as its documentation shows it.

Samples are made where that loader would decode: in its workers, or its threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.training.loaders import Job, data_loader

__all__ = ["MAKERS"]

#: Samples that WebDataset shuffles in memory: its documentation's number.
SHUFFLED = 1000


def _of_rows(job: Job, rows: Sequence[Any]) -> Any:
    """Make a batch of rows with a column "value", or of values."""
    values = (row["value"] if isinstance(row, dict) else row for row in rows)
    return job.made.collate(list(map(job.sample, values)))


class Files(torch.utils.data.Dataset[Any]):
    """Plain files, as ``ImageFolder`` reads them.

    Args:
        job: what to load.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.paths = sorted(str(path) for path in Path(job.path).glob("*/*"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with open(self.paths[index], "rb") as file:  # noqa: PTH123 (as in such programs)
            return self.job.sample(file.read())


def _files(job: Job) -> Any:
    made = job.made
    return data_loader(
        job, Files(job), batch_size=made.batch, shuffle=True, collate_fn=made.collate
    )


def _entry(job: Job, entry: Any) -> Any:
    return job.sample(entry["bin"])


def _webdataset(job: Job) -> Any:
    import webdataset

    tars = sorted(str(path) for path in Path(job.path).glob("*.tar"))
    data = webdataset.WebDataset(tars, shardshuffle=len(tars), seed=job.seed, empty_check=False)
    samples = data.shuffle(SHUFFLED).map(partial(_entry, job))
    batches = samples.batched(job.made.batch, collation_fn=job.made.collate)
    return data_loader(job, batches, batch_size=None)


def _streaming(job: Job) -> Any:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    size = job.made.batch
    data = StreamingDataset(local=job.path, shuffle=True, shuffle_seed=job.seed, batch_size=size)
    return data_loader(job, data, batch_size=size, collate_fn=partial(_of_rows, job))


def _litdata(job: Job) -> Any:
    import litdata

    data = litdata.StreamingDataset(job.path, shuffle=True, seed=job.seed, drop_last=False)
    return litdata.StreamingDataLoader(
        data,
        batch_size=job.made.batch,
        num_workers=job.workers,
        pin_memory=job.pins,
        persistent_workers=job.workers > 0,
        collate_fn=partial(_of_rows, job),
    )


def _datasets(job: Job) -> Any:
    import datasets

    data = datasets.load_from_disk(str(Path(job.path) / "data"))
    return data_loader(
        job, data, batch_size=job.made.batch, shuffle=True, collate_fn=partial(_of_rows, job)
    )


class GrainEpochs:
    """Grain's workers go on from epoch to epoch; batches are NumPy's.

    Args:
        job: what to load.
    """

    def __init__(self, job: Job) -> None:
        import grain

        paths = sorted(str(path) for path in Path(job.path).glob("*.arrayrecord"))
        source = grain.sources.ArrayRecordDataSource(paths)
        data = (
            grain.MapDataset.source(source).seed(job.seed).shuffle().map(partial(_numpy_of, job))
        )
        untouched = job.made.transform is None
        batches = data.batch(job.made.batch, batch_fn=len if untouched else None)
        options = grain.MultiprocessingOptions(num_workers=job.workers)
        self._job, self._untouched = job, untouched
        self._iterator = iter(batches.repeat().to_iter_dataset().mp_prefetch(options))

    def __iter__(self) -> Iterator[Any]:
        for batch in islice(self._iterator, -(-self._job.count // self._job.made.batch)):
            yield batch if self._untouched else _as_torch(batch)

    def close(self) -> None:
        if end := getattr(self._iterator, "close", None):
            end()


def _numpy_of(job: Job, value: Any) -> Any:
    sample = job.sample(value)
    if isinstance(sample, tuple):
        return sample[0].numpy(), np.int64(sample[1])
    return sample.numpy() if isinstance(sample, torch.Tensor) else sample


def _as_torch(batch: Any) -> Any:
    if isinstance(batch, tuple):
        return tuple(map(torch.from_numpy, batch))
    return torch.from_numpy(batch)


class SpdlEpochs:
    """Threads that ask py-lmdb for a value each, in a pipeline for each epoch.

    Args:
        job: what to load.
    """

    def __init__(self, job: Job) -> None:
        import lmdb

        self._job, self._epoch = job, 0
        self._keys = Path(job.keys).read_bytes().split(b"\n")
        self._env = lmdb.open(job.path, readonly=True, lock=False, readahead=False)

    def _read(self, index: int) -> Any:
        with self._env.begin() as txn:
            return self._job.sample(txn.get(self._keys[index]))

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder

        job, rng = self._job, np.random.default_rng((self._job.seed, self._epoch))
        self._epoch += 1
        with ThreadPoolExecutor(max(1, job.workers)) as threads:
            pipeline: Any = (
                PipelineBuilder()
                .add_source(rng.permutation(job.count).tolist())
                .pipe(self._read, concurrency=max(1, job.workers), executor=threads)
                .aggregate(job.made.batch)
                .pipe(job.made.collate)
                .add_sink(4)
                .build(num_threads=2)
            )
            with pipeline.auto_stop():
                yield from pipeline.get_iterator(timeout=60)


MAKERS: dict[str, Callable[[Job], Any]] = {
    "files": _files,
    "webdataset": _webdataset,
    "streaming": _streaming,
    "litdata": _litdata,
    "grain": GrainEpochs,
    "spdl": SpdlEpochs,
    "datasets": _datasets,
}
