"""Loaders whose batches threads of this process read and decode."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

import torch

from lmdbio import _core
from lmdbio.machine.choice import Reason
from lmdbio.observe.stats import Stats
from lmdbio.placement.cache import Cache
from lmdbio.planning.shuffle import Shuffle
from lmdbio.provenance import Paths
from lmdbio.reader.reader import Reader
from lmdbio.records.samples import Samples
from lmdbio.system.amounts import whole
from lmdbio.torch.dataset import Dataset, refuse_foreign
from lmdbio.torch.given_order import Sampler, chosen_order
from lmdbio.torch.iterable import AHEAD
from lmdbio.torch.job import LoaderWords, Sharing, choose_sharing, find_group
from lmdbio.torch.joint import READER_WORDS, JointBatches, ReaderBatches
from lmdbio.torch.own import OwnBatches
from lmdbio.torch.prefetch import Ended
from lmdbio.torch.process_cache import as_cache, refuse_words
from lmdbio.torch.ranks import Communicator, processors_each
from lmdbio.torch.resume import (
    STATE_VERSION,
    EpochCursor,
    EpochSlice,
    Ordering,
    State,
    as_order,
)
from lmdbio.torch.sampler import BatchSampler, Ordered
from lmdbio.torch.samples import Errors, SampleMaker
from lmdbio.torch.whole import Decode, Recipe
from lmdbio.torch.workers import Workers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from lmdbio.planning.mode import Mode
    from lmdbio.records.options import RecordsOptions

    class LoaderOptions(RecordsOptions, total=False):
        """Keywords of ``Records``, and those of ``Reader`` that ``comm`` brings."""

        mode: Mode | str
        slots: int
        ranks_per_node: int | None


__all__ = ["Loader", "ReaderLoader"]

#: Workers of a kind at most, unless it is told.
WORKERS_MAX = 64
#: Workers of a kind that can be asked for.
BOUND_MAX = 1024


def _workers(
    recipe: Recipe, threads: int | None, processes: int | None, *, is_joint: bool
) -> Workers:
    """Return what chooses the workers of a Loader.

    Args:
        recipe: Recipe of the batches. Whole ones need no processes, and where a function begins
            these nobody else makes batches.
        threads, processes: upper bounds; None: as many as suit the processors that this process
            has, and no processes where there is a bound of threads, or where this is a rank of
            MPI: not all networks bear that one of their processes forks.
        is_joint: whether batches come out of a Reader, which the loop's own thread does not ask.

    Raises:
        TypeError, ValueError: a bound is no number, or negative; or there are to be no processes,
            and a function begins them.
    """
    most = min(processors_each(), WORKERS_MAX)
    if processes is None:
        is_none = recipe.is_light or threads is not None or "mpi4py.MPI" in sys.modules
        processes = 0 if is_none or _core.absence else max(most - 2, min(most, 2))
    elif processes:
        _core.need("processes= of a Loader")
    threads = whole("threads", most if threads is None else threads, 0, BOUND_MAX)
    processes = whole("processes", processes, 0, BOUND_MAX)
    processes = 0 if recipe.whole is not None else processes
    if recipe.begin is not None and not processes:
        raise ValueError(
            "worker_init_fn= begins worker processes, and there are none: write processes=, and a "
            "transform= or collate_fn= for them"
        )
    if recipe.begin is not None:
        return Workers(0, processes, may_loop=False)
    if is_joint:
        return Workers(threads if processes else max(1, threads), processes, may_loop=False)
    # Decoders of whole batches are C's, mostly: threads do not wait for each other.
    return Workers(threads, processes, start=None if recipe.whole is None else 4)


def _share(
    sharing: Sharing,
    data: tuple[Paths, int, Cache | str | None],
    options: dict[str, Any],
    recipe: Recipe,
    workers: Callable[..., Workers],
    ordering: Ordering,
) -> tuple[JointBatches | None, str]:
    """Return batches of ranks that cache together, or None and why they do not.

    Args:
        sharing: the ranks, and whether they do.
        data: path, number of samples of a rank's batch, and cache.
        options: argument of ``Loader``.
        recipe: Recipe of the batches.
        workers: function that returns what chooses their workers.
        ordering: Ordering of the epochs.
    """
    if not sharing.is_joint:
        return None, sharing.why
    path, batch_size, cache = data
    words = {**options, "comm": sharing.meet(), "cache": cache}
    size, chooser = batch_size * ordering.ranks.now()[1], workers(is_joint=True)
    return sharing.attempt(lambda: JointBatches(path, size, words, recipe, chooser, ordering))


class Loader(Ordered, torch.utils.data.DataLoader[Any]):
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

    With ``cache`` the ranks of a job cache the data set together, in a Reader; batches stay the
    same. All ranks make the Loader, iterate and close it together. After a jump (a loaded state,
    ``set_epoch`` to any but the next epoch, a restart of an epoch after more than a few batches,
    or another transform that all ranks put into ``dataset``) the next iteration makes a new
    Reader, which takes over what is cached. ``dataset`` reads past the cache.

    Args:
        source: argument of ``Dataset``; paths, where ranks share a cache.
        transform, buffers, errors: arguments of ``Dataset``.
        keys: argument of ``Dataset``; False, where ranks share a cache.
        options: keywords of ``Records``; of ``Reader``, where ranks share a cache.
        batch_size, shuffle, sampler, seed, drop_last, even, rank, ranks: arguments of
            ``BatchSampler``.
        batch_sampler: batches of indices, instead of ``batch_size``, ``shuffle``, ``sampler`` and
            ``drop_last``: an iterable of lists that has a ``len()`` and is iterated anew in each
            epoch, such as torch's; a list of lists; or a function from an epoch's number to one.
            The ranks take batches in turns.
        comm: ranks that share samples, and a cache: mpi4py's communicator, or a process group.
            None: those of ``BatchSampler``, and torch.distributed's default group shares a cache,
            if it is there when the Loader is made and a Reader can do what is asked for;
            ``caching`` says why not. False: each process caches by itself.
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
        ahead: number of batches that are prefetched; runs of up to 4 MiB, if these are of fields.
        pin_memory: whether tensors go to page-locked memory, for transfers to a GPU.
        cache: tiers of a cache: a ``Cache``, text ("memory=8G", or with a disk
            "memory=8G,disk=/local/scratch"), or "auto". Of ranks that share it one root of each
            node caches a shard of the data set for all; else each process caches its even shard,
            and sends nothing. None: no cache.
        assignment: "strided", or "local", with ``cache``: processes use the records of each step
            that they cache. All processes read the same files then.

    Raises:
        TypeError: an unknown keyword, flag or function; the message says what to write instead.
        OSError, Error: the files cannot be opened, or the folder of the disk cannot be written to.
        ValueError: values that make no sense.
        MemoryError: there is less memory than the cache needs.
        PeerError: a rank of the default group does not make the Loader within five minutes.
        As ``BatchSampler`` when an iteration begins. As ``Reader``, where ranks cache together;
        so does an iteration that makes a new one.
    """

    # Attributes that trainers ask of a DataLoader; this one has no workers.
    num_workers, prefetch_factor, persistent_workers = 0, None, False
    timeout, generator, multiprocessing_context = 0, None, None
    pin_memory_device, in_order = "", True
    #: Accelerate shares no batches of such a loader among processes, and keeps its state.
    _is_accelerate_prepared = use_stateful_dataloader = True

    _source: OwnBatches | JointBatches
    #: The iteration of the last batch: its epoch, its steps, and the cursor's version then.
    _latest: tuple[EpochSlice, int, int] | None = None

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
        sampler: Sampler | None = None,
        batch_sampler: Sampler | None = None,
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
        comm: Communicator | torch.distributed.ProcessGroup | Literal[False] | None = None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        given: dict[str, Any] = {**options}
        has_group = cache is not None and comm is not None and comm is not False
        refuse_foreign("Loader", sorted(set(given) - set(READER_WORDS * has_group)), Loader)
        cache = as_cache(cache, assignment)
        each: Any = {"keys": keys, "buffers": buffers, "errors": errors}
        made: Any = each | {"pins": pin_memory, "ahead": ahead, "begin": worker_init_fn}
        recipe = Recipe.checked(transform, collate_fn, decode, **made)
        chosen = chosen_order(shuffle, sampler, batch_sampler, batch_size, drop_last)
        words = LoaderWords(source, cache, assignment, as_order(chosen), keys, threads, processes)
        words = words._replace(rank=rank, comm=comm, options=given)
        sharing = choose_sharing(words, find_group())
        order: Any = {"drop_last": drop_last, "even": even, "rank": rank, "ranks": ranks}
        orders = Ordering.checked(chosen, seed, comm=sharing.comm, **order)
        self.collate_fn, self.pin_memory = recipe.collate, pin_memory
        self.worker_init_fn = worker_init_fn
        workers = partial(_workers, recipe, threads, processes)
        path: Any = cast(Paths, source), batch_size, cache
        shared, why = _share(sharing, path, given, recipe, workers, orders)
        if shared is not None:
            self._source = shared
        else:
            refuse_words(cache, source, given)
            data = Dataset(source, transform, **each, **given)
            keeps: Any = (cache, assignment, orders.ranks, why)
            self._source = OwnBatches(data, recipe, workers(is_joint=False), *keeps)
        try:
            count, order = self._source.count, self._source.order
            self._cursor = EpochCursor(count, batch_size, orders, **order)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        if "_cursor" not in self.__dict__:
            return "<Loader that was never open>"
        size = self.batch_size or "any size"
        return f"<Loader of {len(self)} batches of {size} from {self._source!r}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None}

    @property
    def dataset(self) -> Dataset:
        """The data set, whose samples these are; read past the cache where ranks share one."""
        return self._source.dataset

    @property
    def batch_sampler(self) -> BatchSampler:
        """The indices of the batches, for loaders that trainers make of this one to skip some."""
        return BatchSampler.over(self._cursor)

    def __iter__(self) -> Generator[Any, None, None]:
        # Begun when the first batch is asked for: trainers make iterations that they do not use,
        # and say the epoch afterwards.
        self._source.check()
        cursor = self._cursor
        epoch_slice, version = cursor.begin(use=True), cursor.version
        ahead, steps = self._source.begin(epoch_slice, cursor), len(epoch_slice)
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
    def caching(self) -> Reason:
        """Why this process keeps what it keeps, or its root: it says so as ``text``."""
        return self._source.caching

    @property
    def workers(self) -> Reason:
        """The workers that make the batches now, and the reason for them, as ``text``."""
        return self._source.workers

    def state_dict(self) -> State:
        """Return where the iteration is that handed out the last batch.

        Without any since the last jump, that is where the next iteration begins.
        """
        cursor = self._cursor
        if self._latest is None or self._latest[2] != cursor.version:
            return cursor.state(cursor.epoch, cursor.used)
        epoch_slice, steps, _ = self._latest
        return epoch_slice.state(cursor, steps)

    def stats(self) -> Stats:
        """Return what this process has read so far, and where from; also after ``close``.

        Of records in batches, with a cache: ``own_records`` came out of memory, ``disk_records``
        from its disk, and ``file_records`` were read for their batch alone; ``warm_bytes`` were
        read to be kept. ``skipped_records`` were left out (``errors``). Of ranks that cache
        together these are the counts of ``Reader.stats``: also of batches that wait or were
        dropped, and of the rows that fill up an epoch's last batch.
        """
        return self._source.stats()

    def close(self) -> None:
        """End the workers and close the files. May be called twice.

        Waits for samples that are being made, and not for whole batches. Ranks that cache together
        do so together.
        """
        self._source.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._source.abandon(error)


# Lightning looks for it in a loader that one of its hooks made, before it asks for the rest.
setattr(Loader, "__dataset", None)


class ReaderLoader:
    """Batches of samples out of a Reader's shared window, decoded ahead.

        with lmdbio.Reader(path, 256, comm=comm) as reader:
            for batch in ReaderLoader(reader, transform=decode):

    The Reader decides which records come when. Threads take its batches and decode them, while
    this rank computes. There is one sequence of batches: an iteration continues where the previous
    one stopped, and no batch is lost.

    Args:
        reader: Reader whose next iterations become batches. It stays open, and nothing else may
            iterate over it.
        transform, errors: arguments of ``Dataset``, without keys.
        collate_fn, decode, ahead, pin_memory: arguments of ``Loader``.
        buffers: whether values are memoryviews instead of bytes.
        threads: largest number of threads that decode, a batch each.
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
        each: Any = {"buffers": buffers, "errors": errors, "pins": pin_memory, "ahead": ahead}
        recipe = Recipe.checked(transform, collate_fn, decode, **each)
        maker = SampleMaker(self._origin, transform, errors=recipe.errors)
        workers = Workers(whole("threads", threads, 1), may_loop=False)
        self._reader, self._first = reader, reader.iteration
        orders = reader.schedule.epochs
        seed = 0 if orders is None or orders.seed is None else orders.seed
        self._batches = ReaderBatches(reader, recipe, maker, workers, seed=seed)

    def _origin(self, index: int) -> str:
        """Return in words where a sample comes from."""
        return f"sample {index}, file {self._reader.facts.path}"

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
