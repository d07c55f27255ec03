"""Loaders whose batches threads of this process read and decode."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import TracebackType
from typing import Any

import torch

from lmdbio.machine.choice import Reason
from lmdbio.observe.stats import Stats
from lmdbio.planning.cache import Cache
from lmdbio.planning.shuffle import Shuffle
from lmdbio.provenance import Paths
from lmdbio.reader.reader import Reader
from lmdbio.records.samples import Samples
from lmdbio.torch.collate import Collate
from lmdbio.torch.dataset import Dataset
from lmdbio.torch.decoding import DecodedBatches, Decoder
from lmdbio.torch.iterable import AHEAD
from lmdbio.torch.joint import READER_WORDS, JointBatches, joint_path
from lmdbio.torch.keeping import as_cache, from_root, refuse_words
from lmdbio.torch.own import OwnBatches
from lmdbio.torch.prefetch import Ended, checked_ahead
from lmdbio.torch.ranks import Communicator, Ranks, ranks_here
from lmdbio.torch.resume import STATE_VERSION, EpochCursor, EpochSlice, State
from lmdbio.torch.sampler import BatchSampler, RankSampler
from lmdbio.torch.samples import Errors, as_errors
from lmdbio.torch.threads import WorkerThreads
from lmdbio.torch.whole import Decode, as_whole
from lmdbio.torch.words import integer, refuse_foreign
from lmdbio.torch.workers import Workers

__all__ = ["Loader", "ReaderLoader"]

#: Threads that decode a Reader's batches, unless it is told: more gain little.
DECODING_THREADS_MAX = 8
#: Workers of a kind at most, unless it is told.
WORKERS_MAX = 64
#: Workers of a kind that can be asked for.
BOUND_MAX = 1024


def _workers(
    threads: int | None, processes: int | None, *, is_light: bool, is_whole: bool, is_begun: bool
) -> Workers:
    """Return what chooses the workers of a Loader.

    Args:
        threads, processes: upper bounds; None: as many as suit the processors that this process
            has, and no processes where there is a bound of threads, or where this is a rank of
            MPI: not all networks bear that one of their processes forks.
        is_light: whether nothing is made of values.
        is_whole: whole batches are made, which need no processes.
        is_begun: whether a function begins each process: nobody else makes batches.

    Raises:
        TypeError, ValueError: a bound is no number, or negative; or there are to be no processes,
            and a function begins them.
    """
    cores = max(1, len(os.sched_getaffinity(0)) // ranks_here())
    most = min(cores, WORKERS_MAX)
    if processes is None:
        is_none = is_light or threads is not None or "mpi4py.MPI" in sys.modules
        processes = 0 if is_none else max(most - 2, min(most, 2))
    bounds = {"threads": most if threads is None else threads, "processes": processes}
    for name, bound in bounds.items():
        bounds[name] = integer(name, bound)
        if not 0 <= bounds[name] <= BOUND_MAX:
            raise ValueError(f"{name} must be 0 to {BOUND_MAX}, not {bound}")
    processes = 0 if is_whole else bounds["processes"]
    if is_begun and not processes:
        raise ValueError(
            "worker_init_fn= begins worker processes, and there are none: write processes=, and a "
            "transform= or collate_fn= for them"
        )
    if is_begun:
        return Workers(0, processes, may_loop=False)
    return Workers(bounds["threads"], processes)


class Loader(torch.utils.data.DataLoader[Any]):
    """Batches of samples, read by this process and decoded by workers that it chooses itself.

        with Loader(path, 32, shuffle=True, transform=decode) as loader:
            for batch in loader:

    Decoders in C or C++ (PIL, OpenCV, torchvision, NumPy) release Python's lock, so threads of
    this process run them. Decoders in Python hold it, so processes run them: they receive values
    and return batches in shared memory. The loop's own thread makes batches that take less time
    than handing them over (a quarter of a millisecond). The loader measures which of these, and
    how many, cost the loop least, its own step included; ``workers`` tells the choice and its
    reason. Pass ``processes=0`` for a transform that changes the program's state.

    After an epoch's last batch, the next iteration is the next epoch; an iteration that stopped
    earlier (a look, a check before the training) starts again. ``set_epoch`` or a loaded state
    override this. A batch counts for ``state_dict`` once it was handed out.

    Trainers see a ``DataLoader`` without workers whose sampler already shares samples among ranks,
    so they take it as it is; it has a ``DataLoader``'s ``dataset``, ``sampler``,
    ``batch_sampler``, ``collate_fn`` and the rest.

    With ``comm`` and ``cache`` the ranks cache one file together, in a Reader; batches stay the
    same. All ranks make the Loader, iterate and close it together. After a jump (a loaded state,
    ``set_epoch`` to any but the next epoch, or a restart of an epoch after more than a few
    batches) the next iteration makes a new Reader, whose memory fills anew. ``dataset`` does not
    exist then.

    Args:
        source, transform, keys, buffers, errors, options: arguments of ``Dataset``; with ``comm``
            and ``cache`` one path, no keys, buffers that are good until ``collate_fn`` returns,
            and options of ``Reader``.
        batch_size, shuffle, seed, drop_last, even, rank, ranks, comm: arguments of
            ``BatchSampler``.
        collate_fn: function from a list of samples to a batch; None: torch's ``default_collate``.
        decode: ``BatchDecoder`` of whole batches, such as ``Array``; a tuple, one for each record
            of a sample; or a dict, for parts of a record. With ``keys``, batches are the keys and
            the rest. The loop's thread and threads run it, no processes.
        threads: largest number of threads that make batches; None: one for each core that this
            process may use. 0: none.
        processes: largest number of processes that make batches; None: as many as there are cores
            but two, and none with ``threads``, or if mpi4py is in use. 0: none.
        worker_init_fn: function of a worker process's number, called once in each that starts;
            there, torch's ``get_worker_info()`` gives number, count and seed. Processes alone make
            the batches then.
        ahead: number of batches that are prefetched.
        pin_memory: whether tensors go to page-locked memory, for transfers to a GPU.
        cache: tiers in which each process caches its even shard of the data set: a ``Cache``,
            text ("memory=8G", or with a disk "memory=8G,disk=/local/scratch"), or "auto". No
            process sends another anything; with ``comm``, each root caches for all. None: no
            cache.
        assignment: "strided", or "local", with ``cache``: processes use the records of each step
            that they cache. All processes read the same files then.

    Raises:
        TypeError: an unknown keyword; the message says what to write instead.
        OSError, Error: the files cannot be opened, or the folder of the disk cannot be written to.
        ValueError: values that make no sense.
        MemoryError: there is less memory than the cache needs.
        As ``BatchSampler`` when an iteration begins. As ``Reader``, with ``comm`` and ``cache``;
        so does an iteration that makes a new one.
    """

    # Attributes that trainers ask of a DataLoader; this one has no workers.
    num_workers, prefetch_factor, persistent_workers = 0, None, False
    timeout, generator, multiprocessing_context = 0, None, None
    pin_memory_device, in_order = "", True
    #: Accelerate shares no batches of such a loader among processes, and keeps its state.
    _is_accelerate_prepared = use_stateful_dataloader = True

    _source: OwnBatches | JointBatches | None = None

    def __init__(
        self,
        source: Paths | Samples[Any, Any],
        batch_size: int = 1,
        *,
        transform: Callable[..., Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        decode: Decode | None = None,
        keys: bool = False,
        buffers: bool = False,
        errors: Errors = "raise",
        shuffle: bool | Shuffle = False,
        seed: int = 0,
        drop_last: bool = False,
        even: bool = True,
        threads: int | None = None,
        processes: int | None = None,
        worker_init_fn: Callable[[int], object] | None = None,
        ahead: int = AHEAD,
        pin_memory: bool = False,
        cache: Cache | str | None = None,
        assignment: str = "strided",
        rank: int | None = None,
        ranks: int | None = None,
        comm: Communicator | None = None,
        **options: Any,
    ) -> None:
        is_joint = cache is not None and comm is not None
        refuse_foreign("Loader", sorted(set(options) - set(READER_WORDS * is_joint)), Loader)
        cache = as_cache(cache, assignment)
        place = Ranks(rank, ranks, comm)
        kind = {"is_light": transform is collate_fn is None, "is_whole": decode is not None}
        workers = _workers(threads, processes, **kind, is_begun=worker_init_fn is not None)
        self._threads = WorkerThreads(max(1, workers.setting.count))
        self._ahead = checked_ahead(ahead)
        order: Any = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last, "even": even}
        each: Any = {"transform": transform, "buffers": buffers, "errors": as_errors(errors)}
        self._whole = whole = as_whole(decode, each, collate_fn, pins=pin_memory, keys=keys)
        self.collate_fn = Collate(whole.collate if whole else collate_fn, pins=pin_memory)
        self.pin_memory, self.worker_init_fn = pin_memory, worker_init_fn
        try:
            if cache is not None and comm is not None:
                options.update(comm=comm, cache=from_root(cache))
                path = joint_path(source, assignment, options, keys=keys)
                size = batch_size * place.now()[1]
                self._source = self._open_joint(path, size, each, threads, options, order)
            else:
                if cache is not None:
                    refuse_words(source, options)
                data = Dataset(source, keys=keys, **each, **options)
                made = self.collate_fn, whole, workers, worker_init_fn, self._threads, self._ahead
                self._source = OwnBatches(data, *made, cache, assignment, place)
                order.update(self._source.order)
            self._cursor = EpochCursor(self._source.count, batch_size, ranks=place, **order)
        except BaseException:
            self.close()
            raise
        #: The iteration that handed out a batch last: its epoch, its steps so far, and the version
        #: of the cursor by which it began.
        self._latest: tuple[EpochSlice, int, int] | None = None

    def _open_joint(
        self,
        path: str | tuple[str, ...],
        size: int,
        each: Mapping[str, Any],
        threads: int | None,
        options: Mapping[str, Any],
        order: Mapping[str, Any],
    ) -> JointBatches:
        """Return the batches of a Reader, of ``size`` samples of all ranks. Collective."""
        decoder = Decoder(collate=self.collate_fn, whole=self._whole, **each)
        threads = threads or min(DECODING_THREADS_MAX, len(os.sched_getaffinity(0)))
        return JointBatches(
            path,
            partial(Reader, path, size, **options),
            partial(DecodedBatches, decoder=decoder, threads=threads, ahead=self._ahead),
            left_out=partial(getattr, decoder, "left_out"),
            **order,
        )

    def __getstate__(self) -> dict[str, Any]:
        if isinstance(self._source, JointBatches):
            raise TypeError("a Loader with comm= and cache= cannot be pickled: ranks make it")
        return {**self.__dict__, "_latest": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def dataset(self) -> Dataset:
        """The data set, whose samples these are; not with ``comm`` and ``cache``."""
        if not isinstance(self._source, OwnBatches):
            raise AttributeError("a Loader with comm= and cache= has a Reader, and no dataset")
        return self._source.dataset

    @property
    def batch_size(self) -> int:
        """Number of samples of a rank's batch."""
        return self._cursor.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is left out."""
        return self._cursor.drop_last

    @property
    def sampler(self) -> RankSampler:
        """The indices of this rank's samples; trainers tell it the epoch (``set_epoch``)."""
        return RankSampler(self._cursor)

    @property
    def batch_sampler(self) -> BatchSampler:
        """The indices of the batches, for loaders that trainers make of this one to skip some."""
        return BatchSampler.over(self._cursor)

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self._cursor)

    def __iter__(self) -> Generator[Any, None, None]:
        return self._batches()

    def _batches(self) -> Generator[Any, None, None]:
        # Begun when the first batch is asked for: trainers make iterations that they do not use,
        # and say the epoch afterwards.
        self._threads.check()
        cursor = self._cursor
        epoch_slice, version = cursor.begin(use=True), cursor.version
        ahead, steps = self._batches_of.begin(epoch_slice, cursor), len(epoch_slice)
        own = self.__dict__  # a DataLoader has a look at each attribute that is set
        try:
            for step in range(steps):
                batch = ahead.next()
                if version == cursor.version:  # else a state was loaded, or an epoch was said
                    own["_latest"] = epoch_slice, step + 1, version
                    if step == steps - 1:
                        cursor.end(epoch_slice.number)
                yield batch
                del batch  # while the next one is waited for
        finally:
            ahead.cancel()
        if version == cursor.version:
            self._latest = epoch_slice, len(epoch_slice.shard), version
            cursor.end(epoch_slice.number)  # also where other ranks alone had batches

    @property
    def _batches_of(self) -> OwnBatches | JointBatches:
        assert self._source is not None
        return self._source

    @property
    def caching(self) -> Reason:
        """Why this process keeps what it keeps, or its root: it says so as ``text``."""
        return self._batches_of.caching

    @property
    def workers(self) -> Reason:
        """The workers that make the batches now, and the reason for them, as ``text``."""
        return self._batches_of.workers

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._cursor.epoch

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next iteration is; one that a state was loaded for goes on."""
        self._cursor.set_epoch(epoch)

    def state_dict(self) -> State:
        """Return where the iteration is that handed out the last batch.

        Without any since the last jump, that is where the next iteration begins.
        """
        cursor = self._cursor
        if self._latest is None or self._latest[2] != cursor.version:
            return cursor.state(cursor.epoch, cursor.used)
        epoch_slice, steps, _ = self._latest
        return epoch_slice.state(cursor, steps)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next iteration go on where the state was saved.

        Raises:
            ValueError: it is of other data.
        """
        self._cursor.load(state)

    def stats(self) -> Stats:
        """Return what this process has read so far, and where from; also after ``close``.

        Of records in batches, with a cache: ``own_records`` came out of memory, ``disk_records``
        from its disk, and ``file_records`` were read for their batch alone; ``warm_bytes`` were
        read to be kept. ``skipped_records`` were left out (``errors``). With ``comm`` these are
        the counts of ``Reader.stats``: also of batches that wait or were dropped, and of the rows
        that fill up an epoch's last batch.
        """
        return self._batches_of.stats()

    def close(self) -> None:
        """End the workers and close the files. May be called twice.

        Waits for samples that are being made, and not for whole batches. With ``comm`` and
        ``cache`` all ranks do so together.
        """
        self._threads.close()
        if self._source is not None:
            self._source.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._batches_of.abandon(kind, error, trace)
        self.close()


# Lightning looks for it in a loader that one of its hooks made, before it asks for the rest.
setattr(Loader, "__dataset", None)


class ReaderLoader:
    """Batches of samples out of a Reader's shared window, decoded ahead.

        with lmdbio.Reader(path, 256, comm=comm) as reader:
            for batch in ReaderLoader(reader, transform=decode):

    The Reader says which records come when. A thread takes its batches and has ``threads`` others
    decode them, while this rank computes. There is one sequence of batches: an iteration goes on
    where the one before was left, and none is lost.

    Args:
        reader: Reader from whose next iteration on batches come; it is not closed. Nobody else may
            ask it.
        transform, errors: arguments of ``Dataset``, without keys.
        collate_fn, decode, ahead, pin_memory: arguments of ``Loader``. With ``decode`` the thread
            that takes batches makes them too, since its input lies in the window.
        buffers: whether values are memoryviews of the window, good until ``collate_fn`` returns,
            instead of bytes.
        threads: number of threads that decode the records of a batch.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        transform: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        decode: Decode | None = None,
        buffers: bool = False,
        errors: Errors = "raise",
        threads: int = 1,
        ahead: int = AHEAD,
        pin_memory: bool = False,
    ) -> None:
        collate = Collate(collate_fn, pins=pin_memory)
        each: Any = {"transform": transform, "buffers": buffers, "errors": as_errors(errors)}
        whole = as_whole(decode, each, collate_fn, pins=pin_memory)
        decoder = Decoder(collate=collate, whole=whole, **each)
        self._reader, self._first = reader, reader.iteration
        orders = reader.schedule.epochs
        self._batches = DecodedBatches(
            reader,
            decoder,
            seed=0 if orders is None or orders.seed is None else orders.seed,
            threads=threads,
            ahead=ahead,
        )

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
