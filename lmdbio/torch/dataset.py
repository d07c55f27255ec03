"""Data sets for torch's DataLoader: those that it asks by index, and those that iterate."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy.typing as npt
import torch
import torch.utils.data
from torch.utils.data import default_collate, get_worker_info

from lmdbio.planning.order import Epoch
from lmdbio.provenance import Paths
from lmdbio.records.ahead import read_ahead
from lmdbio.records.pending import Pending
from lmdbio.records.records import open_records
from lmdbio.records.samples import Samples
from lmdbio.torch.resume import (
    Communicator,
    EpochCursor,
    EpochSlice,
    State,
    resolve_rank,
    whole_state,
    worker,
)

if TYPE_CHECKING:
    from lmdbio.planning.mix import MixOrder

__all__ = ["AHEAD", "Dataset", "IterableDataset"]


#: Batches that are read and nobody has asked for, beside those that threads work at.
AHEAD = 2


class Dataset(torch.utils.data.Dataset[Any]):
    """A map-style data set; its sample i is record i, or what a layout says (``Records``).

    A DataLoader that asks for whole batches (``__getitems__``, as all since torch 2.0 do) has each
    read at once: sorted, coalesced, all requests in flight. It can be pickled, and used in workers
    that are forked or spawned.

    Args:
        source: one path or several, as ``Records`` takes them, or ``Records`` that are open, or a
            view of such (``Records.split``), or a ``Mix``.
        transform: makes a sample of a value; with ``keys``, of a key and a value. None: the value,
            or the pair. Where samples are of several records, value and key are tuples.
        keys: hand out the keys as well.
        buffers: values are memoryviews, lent without a copy, instead of bytes. They may be kept.
            (torch's ``default_collate`` takes them for sequences of numbers.)
        options: of ``Records``.
    """

    def __init__(
        self,
        source: Paths | Samples[Any, Any],
        transform: Callable[..., Any] | None = None,
        *,
        keys: bool = False,
        buffers: bool = False,
        **options: Any,
    ) -> None:
        self.records = open_records(source, **options)
        self.transform, self.keys, self.buffers = transform, keys, buffers
        self._is_owner = self.records is not source

    def __len__(self) -> int:
        return len(self.records)

    @property
    def mixing(self) -> MixOrder | None:
        """The order of all epochs, where the source is a ``Mix``."""
        return self.records.mixing

    def __getitem__(self, index: SupportsIndex) -> Any:
        value = self.records[index]
        try:
            return self._sample(index, _lent(value) if self.buffers else value)
        except StopIteration as error:
            raise RuntimeError(f"the transform raised StopIteration for sample {index}") from error

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return self.samples(self.begin(indices))

    def begin(self, indices: npt.ArrayLike) -> Pending:
        """Begin to read records, for ``samples``."""
        return self.records.begin(indices) if self.buffers else self.records.begin_values(indices)

    def samples(self, begun: Pending) -> list[Any]:
        """Return the samples of records that ``begin`` began to read, transformed."""
        if self.transform is None and not self.keys:
            return begun.taken()
        # One at a time, and no name that keeps it until there is the next: a value that was let
        # go of leaves its memory, which is in a core's cache, to the next one.
        values: Iterator[Any] = begun.values()
        if self.transform is not None and not self.keys:
            samples = list(map(self.transform, values))
        else:
            samples = list(map(self._sample, begun.indices.tolist(), values))
        if len(samples) < len(begun):  # for map() that is the end, as for a DataLoader
            index = begun.indices[len(samples)]
            raise RuntimeError(f"the transform raised StopIteration for sample {index}")
        return samples

    def _sample(self, index: SupportsIndex, value: bytes | memoryview) -> Any:
        transform = self.transform
        if not self.keys:
            return value if transform is None else transform(value)
        key = self.records.key(index)
        return (key, value) if transform is None else transform(key, value)

    def close(self) -> None:
        """Closes the files that it has opened. May be called twice; samples stay good."""
        if self._is_owner:
            self.records.close()


def _lent(value: Any) -> Any:
    """Return a memoryview of a value, or of each in a tuple."""
    return tuple(map(memoryview, value)) if isinstance(value, tuple) else memoryview(value)


class IterableDataset(torch.utils.data.IterableDataset[Any]):
    """Batches of samples, each rank's and each worker's own, read ahead.

        data = IterableDataset(path, 32, shuffle=True)
        loader = DataLoader(data, batch_size=None, num_workers=2)
        for epoch in range(epochs):
            data.set_epoch(epoch)
            for batch in loader:

    Workers take a rank's batches in turns, so a loader gives the same ones in the same order
    whatever ``num_workers`` is; all ranks get as many. A worker cannot know which epoch it is in:
    as with torch's DistributedSampler, ``set_epoch`` says so.

    Args:
        source, transform, keys, buffers, options: as for ``Dataset``.
        batch_size, shuffle, seed, drop_last, even, rank, ranks, comm: as for ``BatchSampler``.
        collate_fn: makes a batch of a list of samples; None: torch's ``default_collate``.
        ahead: batches that are read while one is used.
    """

    def __init__(
        self,
        source: Paths | Samples[Any, Any],
        batch_size: int = 1,
        *,
        transform: Callable[..., Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        keys: bool = False,
        buffers: bool = False,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        even: bool = True,
        ahead: int = AHEAD,
        rank: int | None = None,
        ranks: int | None = None,
        comm: Communicator | None = None,
        **options: Any,
    ) -> None:
        self.dataset = Dataset(source, transform, keys=keys, buffers=buffers, **options)
        self._collate = default_collate if collate_fn is None else collate_fn
        self._ahead = ahead
        self._cursor = EpochCursor(
            len(self.dataset),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            even=even,
            rank=resolve_rank(rank, ranks, comm),
            mix=self.dataset.mixing,
        )
        # Epoch, samples used of it, and whether that was said: workers that stay from epoch to
        # epoch see it here.
        self._begins = torch.zeros(3, dtype=torch.int64).share_memory_()
        self._going: tuple[EpochSlice, int] | None = None  # this process's iteration, next step
        self._resumes: tuple[EpochSlice, int] | None = None  # this worker's, as it was saved

    def __len__(self) -> int:
        """Batches of a rank that are left of the epoch."""
        return len(self._slice())

    def _slice(self) -> EpochSlice:
        epoch, used, _ = self._begins.tolist()
        return self._cursor.begin(epoch, used)

    def __iter__(self) -> Generator[Any, None, None]:
        (first, workers), epoch_slice = worker(), self._slice()
        resumes, self._resumes = self._resumes, None
        if resumes is not None and (
            resumes[0].number == epoch_slice.number or not int(self._begins[2])
        ):
            epoch_slice, first = resumes
        self._going = epoch_slice, first
        return self._batches(epoch_slice, range(first, len(epoch_slice), workers))

    def _batches(self, epoch_slice: EpochSlice, steps: range) -> Generator[Any, None, None]:
        # Where workers take the epoch's batches in turns, this one's are its share.
        self.dataset.records.expect(epoch_slice.expected // steps.step)
        read = read_ahead(self.dataset.begin, map(epoch_slice.samples, steps), self._ahead)
        for step, begun in zip(steps, read, strict=True):
            self._going = epoch_slice, step + steps.step
            yield self._collate(self.dataset.samples(begun))
        if steps.step == 1:
            self._going = epoch_slice, len(epoch_slice.shard)

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iterations are; one that a state was loaded for goes on."""
        number = Epoch(self._cursor.count, None, operator.index(epoch)).number
        used = int(self._begins[1]) if number == int(self._begins[0]) else 0
        self._begins[:] = torch.tensor([number, used, 1])

    def state_dict(self, batches: int | None = None) -> State:
        """Where this data set is in the epoch.

        Args:
            batches: of this rank's, how many were used since the iteration began, by all workers
                together: say so where there are any. None: without workers, those that were
                handed out; in a worker, its own part of a state (``state_of``).
        """
        epoch_slice, step = self._slice(), worker()[0]
        if batches is not None:
            return epoch_slice.state(self._cursor, batches)
        if self._going is not None and self._going[0].number == epoch_slice.number:
            epoch_slice, step = self._going
        elif self._resumes is not None:
            epoch_slice, step = self._resumes
        if get_worker_info() is None:
            return epoch_slice.state(self._cursor, step)
        shard = epoch_slice.shard
        told = self._cursor.state(epoch_slice.number, shard.used)
        return {**told, "step": step, "steps": len(shard), "step_size": shard.step_size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Iterations of this epoch go on where the state was saved, until ``set_epoch``.

        Raises:
            ValueError: it is of other data, or of another seed.
        """
        whole = whole_state(state)
        if whole.get("seed", self._cursor.seed) != self._cursor.seed:
            seed = self._cursor.seed
            raise ValueError(
                f"the state was saved with seed {whole['seed']}, and it is {seed} here"
            )
        self._cursor.load(whole)
        self._going = self._resumes = None
        if "step" in state:
            self._resumes = self._cursor.begin(), int(state["step"])
        else:
            self._begins[:] = torch.tensor([self._cursor.epoch, self._cursor.used, 0])
