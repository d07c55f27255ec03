"""Loaders of PyTorch's in the place of a Reader: what training scripts have today, and ours.

All give a rank its share of the same number of samples: the first KiB of each value as a tensor,
and its length. Each is what its documentation shows; none is told more of the cluster.

    dataloader   torch's DataLoader and DistributedSampler over py-lmdb, as lmdb.open reads by
                 default, keys in a list; "noahead": with readahead=False, as many scripts have it
    webdataset   WebDataset over tar files of the same records, split by rank, shuffled in memory
    streaming    MosaicML's StreamingDataset over shards of the same records: each node copies
                 those of its part to its disk, and shuffles the part; under torchrun alone
    loader       lmdbio.torch.Loader, with what roots keep, if the lane says so
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from benchmarks.cluster.task import Account, Look, Task
from benchmarks.training import forms

__all__ = ["KINDS", "ByLoader", "write_forms"]

HEAD_BYTES = 1024
#: Samples that WebDataset shuffles in memory.
SHUFFLED = 1000
#: Formats of ``benchmarks.training.forms`` that kinds of loaders read in the place of LMDB.
FORMS = {"webdataset": "tars", "streaming": "mds"}


class Batches(Protocol):
    """A loader that is open."""

    def epoch(self, number: int) -> Iterator[Any]:
        """Yield this rank's batches: heads, and lengths."""

    def close(self) -> None:
        """Give up what it holds."""


def sample(value: Any) -> tuple[Any, int]:
    """Return what a training would decode."""
    import torch

    return torch.from_numpy(np.frombuffer(value, np.uint8, HEAD_BYTES).copy()), len(value)


class DataLoaderBatches:
    """torch's DataLoader over py-lmdb."""

    def __init__(self, task: Task) -> None:
        from torch.utils.data import DataLoader, DistributedSampler

        from benchmarks.training.loaders import LmdbDataset

        keys = Path(f"{task.path}.keys").read_bytes().split(b"\n")
        readahead = task.lane["kind"] == "dataloader"
        data: Any = LmdbDataset(task.path, keys[: count_of(task)], sample, readahead=readahead)
        workers = task.lane["workers"]
        self._sampler: Any = DistributedSampler(
            data, task.size, task.rank, shuffle=True, seed=task.cell["seed"]
        )
        self._loader: Any = DataLoader(
            data,
            batch_size=task.cell["batch"] // task.size,
            sampler=self._sampler,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def epoch(self, number: int) -> Iterator[Any]:
        self._sampler.set_epoch(number)
        return iter(self._loader)

    def close(self) -> None:
        del self._loader


class WebDatasetBatches:
    """WebDataset: each rank reads its own tar files in order, and shuffles some samples."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._tars = sorted(str(path) for path in form_of(Path(task.path), "tars").glob("*.tar"))

    def epoch(self, number: int) -> Iterator[Any]:
        import webdataset
        from torch.utils.data import DataLoader

        task = self._task
        order = np.random.default_rng((task.cell["seed"], number)).permutation(len(self._tars))
        own = [self._tars[i] for i in order[task.rank :: task.size]]

        def samples(source: Any) -> Iterator[Any]:
            return (sample(one["bin"]) for one in source)

        data: Any = webdataset.WebDataset(own, shardshuffle=False, nodesplitter=lambda urls: urls)
        shuffled = data.shuffle(SHUFFLED).compose(samples)
        size = task.cell["batch"] // task.size
        return iter(DataLoader(shuffled, batch_size=size, num_workers=task.lane["workers"]))

    def close(self) -> None:
        pass


class StreamingBatches:
    """MosaicML Streaming: each node copies shards to a folder of its own, once."""

    def __init__(self, task: Task) -> None:
        from streaming import StreamingDataset
        from torch.utils.data import DataLoader

        node, local = divmod(task.rank, task.ranks_per_node)
        if "LOCAL_RANK" not in os.environ:
            raise ValueError("Streaming finds ranks of torchrun alone: --transports sockets")
        self._variables = {name: os.environ[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE")}
        _be_node(node, local, task.ranks_per_node)
        self._folder = Path(tempfile.gettempdir()) / f"streaming-{node}"
        self._owns = local == 0
        size = task.cell["batch"] // task.size
        self._data: Any = StreamingDataset(
            remote=str(form_of(Path(task.path), "mds")),
            local=str(self._folder),
            shuffle=True,
            shuffle_seed=task.cell["seed"],
            batch_size=size,
        )
        self._loader: Any = DataLoader(
            self._data,
            batch_size=size,
            num_workers=task.lane["workers"],
            collate_fn=_collate_values,
        )

    def epoch(self, number: int) -> Iterator[Any]:
        del number  # each iteration is the next one
        return iter(self._loader)

    def close(self) -> None:
        del self._loader, self._data
        os.environ.update(self._variables)
        if self._owns:
            shutil.rmtree(self._folder, ignore_errors=True)


def _be_node(node: int, local: int, ranks: int) -> None:
    """Have Streaming take this rank for one of an emulated node."""
    from streaming.base import dataset
    from streaming.base.shared import prefix

    os.environ.update(LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=str(ranks))

    def path(number: int, name: str) -> str:
        return f"{number:06}_{node}_{name}"

    # Memory that ranks of a node share has a name, and all nodes are on one machine.
    dataset._get_path = prefix._get_path = path


def _collate_values(rows: list[Any]) -> Any:
    """Return the samples of a batch."""
    from torch.utils.data import default_collate

    return default_collate([sample(row["value"]) for row in rows])


class LoaderBatches:
    """lmdbio's Loader."""

    def __init__(self, task: Task) -> None:
        from lmdbio.torch import Loader

        words: dict[str, Any] = {}
        if task.lane["cache"]:
            words = {"cache": task.lane["cache"], "ranks_per_node": task.ranks_per_node}
        self.loader: Any = Loader(
            task.path,
            task.cell["batch"] // task.size,
            transform=sample,
            shuffle=True,
            seed=task.cell["seed"],
            comm=task.comm,
            **words,
        )

    def epoch(self, number: int) -> Iterator[Any]:
        del number  # each iteration is the next one
        return iter(self.loader)

    def close(self) -> None:
        self.loader.close()


KINDS: dict[str, Callable[[Task], Batches]] = {
    "dataloader": DataLoaderBatches,
    "dataloader-noahead": DataLoaderBatches,
    "webdataset": WebDatasetBatches,
    "streaming": StreamingBatches,
    "loader": LoaderBatches,
}


class ByLoader:
    """A loader, epoch after epoch."""

    def __init__(self, task: Task) -> None:
        self.task, self.account = task, Account()

    def open(self) -> None:
        """Make it."""
        self._batches = KINDS[self.task.lane["kind"]](self.task)

    def read(self, look: Look | None) -> None:
        """Take all batches; values themselves do not come this way, so nothing is looked at."""
        del look
        account, begun, shown = self.account, perf_counter(), 0.0
        for number in range(self.task.cell["epochs"]):
            asked = perf_counter()
            for heads, lengths in self._batches.epoch(number):
                waited = perf_counter() - asked
                shown += waited
                account.waited(waited)
                account.records += len(heads)
                account.bytes += int(lengths.sum())
                self.task.step()
                asked = perf_counter()
            account.epochs.append((perf_counter() - begun, shown))

    def close(self) -> None:
        """Close it."""
        self._batches.close()


# --- data ----------------------------------------------------------------------------------


def count_of(task: Task) -> int:
    """Return the records of the data set."""
    return int(task.cell["count"] // task.cell["epochs"])


def form_of(path: Path, form: str) -> Path:
    """Return the folder of a data set in another format."""
    return path.with_name(f"{path.name}-{form}")


def write_forms(path: Path, kinds: Iterable[str]) -> None:
    """Write the files of a data set that some kinds of loaders read, unless they are there."""
    for kind in kinds:
        form = FORMS.get(kind)
        if form is not None and not form_of(path, form).exists():
            forms.write(form, path, form_of(path, form))
