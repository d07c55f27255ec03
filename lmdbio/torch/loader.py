"""Loaders whose batches threads of this process read and decode."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from lmdbio.batch import Batch
from lmdbio.observe.stats import Stats
from lmdbio.planning.cache import Cache
from lmdbio.reader.reader import Reader
from lmdbio.system.warn import warn
from lmdbio.torch.dataset import AHEAD, Dataset, Paths, Source
from lmdbio.torch.keeping import as_cache, keep_part, refuse_words
from lmdbio.torch.resume import (
    STATE_VERSION,
    Communicator,
    EpochCursor,
    EpochSlice,
    State,
    resolve_rank,
)
from lmdbio.torch.threads import Ended, Prefetcher, WorkerThreads

__all__ = ["Loader", "ReaderLoader"]

#: Threads of a Loader, unless it is told: more decode no faster where Python itself does it.
THREADS_MAX = 8


class Collate:
    """Makes a batch of samples.

    Args:
        function: None: torch's own.
        pins: tensors go to page-locked memory.
    """

    def __init__(self, function: Callable[[list[Any]], Any] | None, *, pins: bool) -> None:
        self._function = default_collate if function is None else function
        self._pins = pins and torch.cuda.is_available()
        if pins and not self._pins:
            warn("pin_memory: there is no GPU, so nothing is pinned")

    def __call__(self, samples: list[Any]) -> Any:
        batch = self._function(samples)
        return pin_memory(batch) if self._pins else batch


class Loader:
    """Batches of samples, read and decoded by threads of this process.

        with Loader(path, 32, shuffle=True, transform=decode) as loader:
            for batch in loader:

    Instead of worker processes, which each hold a copy of the program and send every batch through
    shared memory. Decoders that are written in C or C++ (PIL, OpenCV, torchvision, NumPy) let
    other threads run meanwhile; for those in Python, workers of a ``DataLoader`` do better. Where
    batches take less than to hand them over (a quarter of a millisecond), and the loop comes for
    the next one at once, the thread of the loop makes them itself.

    Each iteration is the next epoch, unless ``set_epoch`` or a state says otherwise. A batch
    counts for ``state_dict`` when it was handed out.

    Args:
        source, transform, keys, buffers, options: as for ``Dataset``.
        batch_size, shuffle, seed, drop_last, even, rank, ranks, comm: as for ``BatchSampler``.
        collate_fn: makes a batch of a list of samples; None: torch's ``default_collate``.
        threads: that work at batches; None: one for each core that this process may use, at
            least 2 and at most 8.
        ahead: batches that wait to be asked for.
        pin_memory: tensors go to page-locked memory, for transfers to a GPU.
        cache: what each process keeps: a ``Cache``, its words ("memory=8G", or with the rest on
            a disk "memory=8G,disk=/local/scratch"), or "auto". It is a part of the data set, even
            among the processes, of which none sends another anything. None: nothing.
        assignment: "strided", or "local", with ``cache``: of each step's records processes take
            what they keep, as far as it goes; the files are the same ones for all of them.

    Attributes:
        caching: why this process keeps what it keeps: it says so as ``text``.

    Raises:
        OSError, Error: the files cannot be opened, or the folder of the disk cannot be written to.
        ValueError: values that make no sense.
        MemoryError: there is not as much memory as the cache wants.
    """

    def __init__(
        self,
        source: Paths | Source,
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
        threads: int | None = None,
        ahead: int = AHEAD,
        pin_memory: bool = False,
        cache: Cache | str | None = None,
        assignment: str = "strided",
        rank: int | None = None,
        ranks: int | None = None,
        comm: Communicator | None = None,
        **options: Any,
    ) -> None:
        cache = as_cache(cache, assignment)
        place = resolve_rank(rank, ranks, comm)
        if cache is not None:
            refuse_words(source, batch_size * place[1], comm, options)
        usual = max(2, min(THREADS_MAX, len(os.sched_getaffinity(0))))
        self._threads = WorkerThreads(usual if threads is None else threads)
        self._ahead = ahead
        Prefetcher(self._threads, lambda _: None, 0, ahead)  # refuses what is none
        self._collate = Collate(collate_fn, pins=pin_memory)
        self.dataset = Dataset(source, transform, keys=keys, buffers=buffers, **options)
        try:
            keeping = keep_part(self.dataset.records, cache, assignment, place)
            self._cursor = EpochCursor(
                len(self.dataset),
                batch_size,
                shuffle=shuffle,
                seed=seed,
                drop_last=drop_last,
                even=even,
                rank=place,
                holder=keeping.holder,
            )
        except BaseException:
            self.dataset.close()
            raise
        self.caching = keeping.reason
        self._latest: tuple[EpochSlice, int] | None = None  # the iteration, and steps of it

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return len(self._cursor.begin(used=0))

    def __iter__(self) -> Generator[Any, None, None]:
        cursor = self._cursor
        epoch_slice = cursor.begin()
        cursor.set_epoch(cursor.epoch + 1)
        self._latest = going = epoch_slice, 0
        return self._batches(going)

    def _batches(self, going: tuple[EpochSlice, int]) -> Generator[Any, None, None]:
        epoch_slice = going[0]
        self.dataset.records.expect(epoch_slice.expected)
        make, steps = partial(self._batch, epoch_slice), len(epoch_slice)
        ahead = Prefetcher(self._threads, make, steps, self._ahead, inline=True)
        try:
            for step in range(steps):
                batch = ahead.next()
                if self._latest is going:  # else another one has begun, or a state was loaded
                    self._latest = going = epoch_slice, step + 1
                yield batch
                del batch  # while the next one is waited for
        finally:
            ahead.cancel()
        if self._latest is going:
            self._latest = epoch_slice, len(epoch_slice.shard)

    def _batch(self, epoch_slice: EpochSlice, step: int) -> Any:
        dataset = self.dataset
        return self._collate(dataset.samples(dataset.begin(epoch_slice.samples(step))))

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._cursor.epoch

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is; one that a state was loaded for goes on."""
        self._cursor.set_epoch(epoch)
        self._latest = None

    def state_dict(self) -> State:
        """Where the iteration is that was begun last; else where the next one begins."""
        if self._latest is None:
            return self._cursor.state(self._cursor.epoch, self._cursor.used)
        epoch_slice, steps = self._latest
        return epoch_slice.state(self._cursor, steps)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where the state was saved.

        Raises:
            ValueError: it is of other data.
        """
        self._cursor.load(state)
        self._latest = None

    def stats(self) -> Stats:
        """Return what this process has read so far, and where from; also after ``close``.

        Of records in batches, with a cache: ``own_records`` came out of memory, ``disk_records``
        from its disk, and ``file_records`` were read for their batch alone; ``warm_bytes`` were
        read to be kept.
        """
        return self.dataset.records.stats()

    def close(self) -> None:
        """Ends the threads and closes the files. May be called twice."""
        self._threads.close()
        self.dataset.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ReaderLoader:
    """Batches of samples out of a Reader's shared window, decoded ahead.

        with lmdbio.Reader(path, 256, comm=comm) as reader:
            for batch in ReaderLoader(reader, transform=decode):

    The Reader says which records come when. A thread takes its batches and has ``threads`` others
    decode them, while this rank computes. There is one sequence of batches: an iteration goes on
    where the one before was left, and none is lost.

    Args:
        reader: from whose next iteration on; it is not closed. To be asked by nobody else.
        transform: makes a sample of a value; None: the value.
        collate_fn, ahead, pin_memory: as for ``Loader``.
        buffers: values are memoryviews of the window, good until ``collate_fn`` returns, instead
            of bytes.
        threads: that decode the records of a batch.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        transform: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        buffers: bool = False,
        threads: int = 1,
        ahead: int = AHEAD,
        pin_memory: bool = False,
    ) -> None:
        self._reader, self._transform = reader, transform
        self._kind = memoryview if buffers else bytes
        self._collate = Collate(collate_fn, pins=pin_memory)
        self._taking, self._decoding = WorkerThreads(1), WorkerThreads(threads)
        self._batches = Prefetcher(self._taking, self._take, None, ahead)
        self._first = reader.iteration

    def __iter__(self) -> ReaderLoader:
        return self

    def __next__(self) -> Any:
        try:
            return self._batches.next()
        except Ended:
            raise StopIteration from None

    def _take(self, _: int) -> Any:
        try:
            batch = next(self._reader)
        except StopIteration:
            raise Ended from None
        size = -(-len(batch) // self._decoding.threads) or 1
        parts = [range(at, min(at + size, len(batch))) for at in range(0, len(batch), size)]
        begun = [self._decoding.submit(partial(self._decode, batch, part)) for part in parts]
        for task in begun:  # all, for they look at the window
            task.wait()
        try:
            return self._collate([one for task in begun for one in task.result()])
        except StopIteration as error:  # it would be taken for the end
            raise RuntimeError("transform or collate_fn raised StopIteration") from error

    def _decode(self, batch: Batch, part: range) -> list[Any]:
        kind, transform = self._kind, self._transform
        if transform is None:
            return [kind(batch[i]) for i in part]
        return [transform(kind(batch[i])) for i in part]

    def state_dict(self) -> State:
        """``start`` of a Reader that goes on where this one is, with as many ranks as it has.

        Raises:
            ValueError: as ``Reader.place``.
        """
        schedule = self._reader.schedule
        start = schedule.start_after(self._first + self._batches.handed_out)
        if schedule.epochs is None and schedule.length is None:
            start %= schedule.count
        return {"lmdbio": STATE_VERSION, "count": schedule.count, "start": start}

    def close(self) -> None:
        """Ends the threads. May be called twice; the Reader stays open."""
        self._taking.close()
        self._decoding.close()

    def __enter__(self) -> ReaderLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
