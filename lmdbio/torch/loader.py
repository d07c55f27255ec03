"""Loaders whose batches threads of this process read and decode."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory

from lmdbio.machine.choice import Reason
from lmdbio.observe.stats import Stats
from lmdbio.planning.cache import Cache
from lmdbio.planning.dealt import Holder
from lmdbio.provenance import Paths
from lmdbio.reader.reader import Reader
from lmdbio.records.samples import Samples
from lmdbio.system.warn import warn
from lmdbio.torch.dataset import AHEAD, Dataset
from lmdbio.torch.decoding import DecodedBatches, Decoder
from lmdbio.torch.joint import JointBatches, JointEpoch, joint_path
from lmdbio.torch.keeping import as_cache, from_root, keep_part, refuse_words
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

    With ``comm`` and ``cache`` the ranks keep one file together, in a Reader (``torch.joint``);
    batches are the same ones. All ranks make it, iterate and close it alike. Where a loop was
    left early, the next iteration first takes the rest of the epoch from the Reader, and drops
    it. After a jump (a state, or ``set_epoch`` to any but the next one) the next iteration makes
    a new Reader, whose memory fills anew. ``dataset`` is not there.

    Args:
        source, transform, keys, buffers, options: as for ``Dataset``; with ``comm`` and ``cache``
            one path, no keys, buffers that are good until ``collate_fn`` returns, and options of
            ``Reader``.
        batch_size, shuffle, seed, drop_last, even, rank, ranks, comm: as for ``BatchSampler``.
        collate_fn: makes a batch of a list of samples; None: torch's ``default_collate``.
        threads: that work at batches; None: one for each core that this process may use, at
            least 2 and at most 8.
        ahead: batches that wait to be asked for.
        pin_memory: tensors go to page-locked memory, for transfers to a GPU.
        cache: what each process keeps: a ``Cache``, its words ("memory=8G", or with the rest on
            a disk "memory=8G,disk=/local/scratch"), or "auto". It is a part of the data set, even
            among the processes, of which none sends another anything; with ``comm`` what each root
            keeps for all. None: nothing.
        assignment: "strided", or "local", with ``cache``: of each step's records processes take
            what they keep, as far as it goes; the files are the same ones for all of them.

    Raises:
        OSError, Error: the files cannot be opened, or the folder of the disk cannot be written to.
        ValueError: values that make no sense.
        MemoryError: there is not as much memory as the cache wants.
        As ``Reader``, with ``comm`` and ``cache``; so does an iteration that makes a new one.
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
        usual = max(2, min(THREADS_MAX, len(os.sched_getaffinity(0))))
        self._threads = WorkerThreads(usual if threads is None else threads)
        self._ahead = ahead
        Prefetcher(self._threads, lambda _: None, 0, ahead)  # refuses what is none
        self._collate = Collate(collate_fn, pins=pin_memory)
        self._joint: JointBatches | None = None
        holder: Holder | None = None
        order: dict[str, Any]
        order = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last, "even": even}
        if cache is not None and comm is not None:
            path = joint_path(source, assignment, options, keys=keys)
            cache = from_root(cache)
            open_reader = partial(Reader, path, batch_size * place[1], comm=comm, cache=cache)
            decoder = Decoder(transform, self._collate, buffers=buffers)
            decode = partial(
                DecodedBatches, decoder=decoder, threads=self._threads.threads, ahead=ahead
            )
            self._joint = JointBatches(path, partial(open_reader, **options), decode, **order)
            count = self._joint.count
        else:
            if cache is not None:
                refuse_words(source, options)
            self.dataset = Dataset(source, transform, keys=keys, buffers=buffers, **options)
            count = len(self.dataset)
        try:
            if self._joint is None:
                self._kept, holder = keep_part(self.dataset.records, cache, assignment, place)
            mix = None if self._joint is not None else self.dataset.mixing
            self._cursor = EpochCursor(
                count, batch_size, rank=place, holder=holder, mix=mix, **order
            )
        except BaseException:
            self.close()
            raise
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

    def _begin(self, epoch_slice: EpochSlice) -> Prefetcher | JointEpoch:
        """Have batches made ahead."""
        if self._joint is not None:
            return self._joint.begin(epoch_slice, self._cursor)
        self.dataset.records.expect(epoch_slice.expected)
        make, steps = partial(self._batch, epoch_slice), len(epoch_slice)
        return Prefetcher(self._threads, make, steps, self._ahead, inline=True)

    def _batches(self, going: tuple[EpochSlice, int]) -> Generator[Any, None, None]:
        epoch_slice = going[0]
        ahead = self._begin(epoch_slice)
        try:
            for step in range(len(epoch_slice)):
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
    def caching(self) -> Reason:
        """Why this process keeps what it keeps, or its root: it says so as ``text``."""
        return self._kept if self._joint is None else self._joint.caching

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
        read to be kept. With ``comm`` these are the counts of ``Reader.stats``: also of batches
        that wait or were dropped, and of the rows that fill up an epoch's last batch.
        """
        return self.dataset.records.stats() if self._joint is None else self._joint.stats()

    def close(self) -> None:
        """Ends the threads and closes the files. May be called twice.

        With ``comm`` and ``cache`` all ranks do so together.
        """
        self._threads.close()
        if self._joint is None:
            self.dataset.close()
        else:
            self._joint.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._joint is not None:
            self._joint.abandon(kind, error, trace)
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
        decoder = Decoder(transform, Collate(collate_fn, pins=pin_memory), buffers=buffers)
        self._reader, self._first = reader, reader.iteration
        self._batches = DecodedBatches(reader, decoder, threads=threads, ahead=ahead)

    def __iter__(self) -> ReaderLoader:
        return self

    def __next__(self) -> Any:
        try:
            return self._batches.next()[1]
        except Ended:
            raise StopIteration from None

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
        self._batches.close()

    def __enter__(self) -> ReaderLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
