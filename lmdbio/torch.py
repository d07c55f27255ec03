"""PyTorch: Records as data sets, in orders that can be interrupted anywhere and resumed exactly.

    Dataset          map-style; a batch of indices is one read, all requests in flight
    BatchSampler     batches of indices, for torch's DataLoader and torchdata's StatefulDataLoader
    IterableDataset  each rank's and worker's batches, read ahead
    Loader           batches read and decoded by threads of this process: no worker processes, no
                     copies between them
    ReaderLoader     the same out of a Reader's shared window

All give ``order.Epoch``'s order to ``order.Shard``'s ranks, so a state is the same for all of
them: a few integers, ``used`` samples of ``epoch`` by all ranks together. It says nothing of
ranks, workers or batches, which may be others when it is loaded.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections import deque
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice, repeat
from typing import Any, Protocol, SupportsIndex

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data
from torch.utils.data import default_collate, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from lmdbio.batch import Batch
from lmdbio.errors import Error
from lmdbio.joined import BegunJoined, BegunJoinedValues, JoinedRecords, open_records
from lmdbio.order import I64, Epoch, Shard
from lmdbio.reader import Reader
from lmdbio.records import Begun, BegunValues, Records, read_ahead

__all__ = ["BatchSampler", "Dataset", "IterableDataset", "Loader", "ReaderLoader", "state_of"]

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Source = Records | JoinedRecords
State = dict[str, Any]
_Begun = Begun | BegunValues | BegunJoined | BegunJoinedValues

#: Of the form of a state, and what is in each.
STATE_VERSION = 1
_NAMES = ("lmdbio", "count", "shuffle", "seed", "epoch", "used")
#: Batches that a Loader has read and nobody has asked for, beside those its threads work at.
AHEAD = 2
#: Samples that are drawn at once: for a batch, NumPy's calls take longer than its work.
DRAWN = 4096
#: Threads of a Loader, unless it is told: more decode no faster where Python itself does it.
THREADS_MAX = 8


class _Communicator(Protocol):
    """mpi4py's, as far as it matters."""

    def Get_rank(self) -> int: ...
    def Get_size(self) -> int: ...


def _place(rank: int | None, ranks: int | None, comm: _Communicator | None) -> tuple[int, int]:
    """Rank and number of ranks: as told, of a communicator, of torch.distributed, of torchrun.

    Raises:
        ValueError: half of it was told, or both ways.
    """
    if (rank is None) != (ranks is None):
        raise ValueError("rank= and ranks= belong together")
    if rank is not None and ranks is not None:
        if comm is not None:
            raise ValueError("either rank= and ranks=, or comm=")
        return rank, ranks
    if comm is not None:
        return comm.Get_rank(), comm.Get_size()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1


def _worker() -> tuple[int, int]:
    """Which worker of a DataLoader this process is, of how many."""
    worker = get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


class _Course:
    """In which order a rank goes through the epochs, and which it begins next.

    Attributes:
        epoch, used: where the next iteration begins.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        even: bool,
        place: tuple[int, int],
    ) -> None:
        self.count, self.seed, self.shuffle = count, operator.index(seed), bool(shuffle)
        self.epoch = self.used = 0
        self._batch_size, self._place = batch_size, place
        self._drop_last, self._even = drop_last, even
        self.begin()  # refuses what is none

    def begin(self, epoch: int | None = None, used: int | None = None) -> _Stretch:
        """What is left of an epoch; None: the next one's."""
        number, used = self.epoch if epoch is None else epoch, self.used if used is None else used
        rank, ranks = self._place
        return _Stretch(
            Epoch(self.count, self.seed if self.shuffle else None, number),
            Shard(
                self.count,
                self._batch_size,
                rank,
                ranks,
                used,
                drop_last=self._drop_last,
                even=self._even,
            ),
        )

    def set_epoch(self, epoch: int) -> None:
        number = Epoch(self.count, None, operator.index(epoch)).number
        if number != self.epoch:
            self.epoch, self.used = number, 0

    def state(self, epoch: int, used: int) -> State:
        return {
            "lmdbio": STATE_VERSION,
            "count": self.count,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "epoch": epoch,
            "used": used,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state was saved; its seed counts from now on.

        Raises:
            ValueError: it is no state, or one of other data.
        """
        if "lmdbio" not in state:
            raise ValueError("this is no state of lmdbio's")
        if state["lmdbio"] != STATE_VERSION:
            version = state["lmdbio"]
            raise ValueError(f"a state of version {version}; this is version {STATE_VERSION}")
        missing = [name for name in _NAMES if name not in state]
        if missing:
            raise ValueError(f"the state does not say {', '.join(missing)}")
        if "step" in state:
            raise ValueError(
                "the state of one worker: state_of() makes the data set's out of all workers'"
            )
        for name, known in (("count", self.count), ("shuffle", self.shuffle)):
            if state[name] != known:
                raise ValueError(
                    f"the state was saved with {name} {state[name]}, and it is {known} here"
                )
        epoch, used = int(state["epoch"]), int(state["used"])
        Epoch(self.count, None, epoch)
        Shard(self.count, 1, used=used)
        self.seed, self.epoch, self.used = int(state["seed"]), epoch, used


class _Stretch:
    """What is left of an epoch for one rank. Threads may share it."""

    def __init__(self, epoch: Epoch, shard: Shard) -> None:
        self.epoch, self.shard = epoch, shard
        self._drawn: tuple[range, list[I64]] = range(0), []  # steps, samples of each

    def __len__(self) -> int:
        return self.shard.batches

    @property
    def number(self) -> int:
        """Of the epoch."""
        return self.epoch.number

    def samples(self, step: int) -> I64:
        steps, drawn = self._drawn
        if step not in steps:
            more = max(1, DRAWN // self.shard.batch_size)
            steps = range(step, max(step + 1, min(step + more, len(self.shard))))
            places = list(map(self.shard.places, steps))
            cuts = np.cumsum(list(map(len, places)))
            drawn = np.split(self.epoch.samples(np.concatenate(places)), cuts[:-1])
            self._drawn = steps, drawn
        return drawn[step - steps.start]

    def state(self, course: _Course, steps: int) -> State:
        """After so many steps; at the end, that of the next epoch's beginning."""
        if steps >= len(self.shard):
            return course.state(self.epoch.number + 1, 0)
        return course.state(self.epoch.number, self.shard.used_after(steps))


class Dataset(torch.utils.data.Dataset[Any]):
    """A map-style data set; its sample i is record i.

    A DataLoader that asks for whole batches (``__getitems__``, as all since torch 2.0 do) has each
    read at once: sorted, coalesced, all requests in flight. It can be pickled, and used in workers
    that are forked or spawned.

    Args:
        source: one path or several, as ``Records`` takes them, or ``Records`` that are open.
        transform: makes a sample of a value; with ``keys``, of a key and a value. None: the value,
            or the pair.
        keys: hand out the keys as well.
        buffers: values are memoryviews, lent without a copy, instead of bytes. They may be kept.
            (torch's ``default_collate`` takes them for sequences of numbers.)
        options: of ``Records``.
    """

    def __init__(
        self,
        source: Paths | Source,
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

    def __getitem__(self, index: SupportsIndex) -> Any:
        value = self.records[index]
        return self._sample(index, memoryview(value) if self.buffers else value)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return self.samples(self.begin(indices))

    def begin(self, indices: npt.ArrayLike) -> _Begun:
        """Begins to read records, for ``samples``."""
        return self.records.begin(indices) if self.buffers else self.records.begin_values(indices)

    def samples(self, begun: _Begun) -> list[Any]:
        if self.transform is None and not self.keys:
            return list(begun.values())
        # One at a time: a value that was let go of leaves its memory, in the cache, to the next.
        values: Iterator[Any] = begun.values()
        return [
            self._sample(index, value)
            for index, value in zip(begun.indices.tolist(), values, strict=True)
        ]

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


class BatchSampler(torch.utils.data.Sampler[list[int]]):
    """Batches of indices: each rank's, in one order over all ranks, seeded and resumable.

        loader = DataLoader(dataset, batch_sampler=BatchSampler(dataset, 32, shuffle=True))

    Each iteration is the next epoch, unless ``set_epoch`` or a state says otherwise. With
    torchdata's ``StatefulDataLoader`` the loader's own state holds this one's. With torch's
    DataLoader, whose workers run ahead, say ``state_dict(batches)``.

    Args:
        source: the data set, or how many samples it has.
        batch_size: of a rank.
        shuffle: another order each epoch.
        seed: of these orders; the same on all ranks.
        drop_last: leave out a last batch that is not full.
        even: all ranks have as many samples (``order.Shard``).
        rank, ranks: which one of how many; or
        comm: mpi4py's. None of them: as torch.distributed or torchrun says, else one rank.

    Raises:
        ValueError: values that make no sense.
    """

    def __init__(
        self,
        source: Sized | int,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        even: bool = True,
        rank: int | None = None,
        ranks: int | None = None,
        comm: _Communicator | None = None,
    ) -> None:
        if isinstance(source, (str, bytes)):
            raise TypeError("the data set, or how many samples it has; not a path")
        self.batch_size, self.drop_last = batch_size, drop_last  # as torch's own have them
        self._course = _Course(
            source if isinstance(source, int) else len(source),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            even=even,
            place=_place(rank, ranks, comm),
        )
        self._latest: _Indices | None = None

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return len(self._course.begin(used=0))

    def __iter__(self) -> _Indices:
        return _Indices(self)

    def _begin(self, iteration: _Indices) -> _Stretch:
        """An iteration begins the next epoch, or goes on where a state says."""
        self._latest, course = iteration, self._course
        stretch = course.begin()
        course.set_epoch(course.epoch + 1)
        return stretch

    @property
    def epoch(self) -> int:
        """That the next iteration begins, or goes on with."""
        return self._course.epoch

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is; one that a state was loaded for goes on."""
        self._course.set_epoch(epoch)
        self._latest = None

    def state_dict(self, batches: int | None = None) -> State:
        """Where this iteration is.

        Args:
            batches: how many of it were used; None: all that were handed out, which a DataLoader
                with workers does before they are used.
        """
        if self._latest is None:
            return self._course.state(self._course.epoch, self._course.used)
        return self._latest.state(batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where the state was saved.

        Raises:
            ValueError: it is of other data.
        """
        self._course.load(state)
        self._latest = None


class _Indices(Iterator[list[int]]):
    """One iteration of a BatchSampler; has a state of its own, as StatefulDataLoader wants it.

    It begins when it is first asked: loaders with workers make two, and use one.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        self._sampler, self._steps = sampler, 0
        self._stretch: _Stretch | None = None

    def _begun(self) -> _Stretch:
        if self._stretch is None:
            self._stretch = self._sampler._begin(self)
        return self._stretch

    def __iter__(self) -> _Indices:
        return self

    def __next__(self) -> list[int]:
        stretch = self._begun()
        if self._steps >= len(stretch):
            self._steps = len(stretch.shard)
            raise StopIteration
        samples: list[int] = stretch.samples(self._steps).tolist()
        self._steps += 1
        return samples

    def state(self, batches: int | None) -> State:
        steps = self._steps if batches is None else batches
        return self._begun().state(self._sampler._course, steps)

    def state_dict(self) -> State:
        # Not that of the next epoch: a loader that was saved at its end ends at once.
        course, stretch, steps = self._sampler._course, self._stretch, self._steps
        if stretch is None:
            return {**course.state(course.epoch, course.used), "ended": False}
        state = course.state(stretch.epoch.number, stretch.shard.used_after(steps))
        return {**state, "ended": steps == len(stretch.shard)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sampler.load_state_dict(state)
        self._stretch, self._steps = None, 0
        if state.get("ended"):
            self._steps = len(self._begun().shard)


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
        ahead: int = AHEAD,
        rank: int | None = None,
        ranks: int | None = None,
        comm: _Communicator | None = None,
        **options: Any,
    ) -> None:
        self.dataset = Dataset(source, transform, keys=keys, buffers=buffers, **options)
        self._collate = default_collate if collate_fn is None else collate_fn
        self._ahead = ahead
        self._course = _Course(
            len(self.dataset),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            even=even,
            place=_place(rank, ranks, comm),
        )
        # Epoch, samples used of it, and whether that was said: workers that stay from epoch to
        # epoch see it here.
        self._begins = torch.zeros(3, dtype=torch.int64).share_memory_()
        self._going: tuple[_Stretch, int] | None = None  # this process's iteration, next step
        self._resumes: tuple[_Stretch, int] | None = None  # this worker's, as it was saved

    def __len__(self) -> int:
        """Batches of a rank that are left of the epoch."""
        return len(self._stretch())

    def _stretch(self) -> _Stretch:
        epoch, used, _ = self._begins.tolist()
        return self._course.begin(epoch, used)

    def __iter__(self) -> Generator[Any, None, None]:
        (first, workers), stretch = _worker(), self._stretch()
        resumes, self._resumes = self._resumes, None
        if resumes is not None and (
            resumes[0].number == stretch.number or not int(self._begins[2])
        ):
            stretch, first = resumes
        self._going = stretch, first
        return self._batches(stretch, range(first, len(stretch), workers))

    def _batches(self, stretch: _Stretch, steps: range) -> Generator[Any, None, None]:
        read = read_ahead(self.dataset.begin, map(stretch.samples, steps), self._ahead)
        for step, begun in zip(steps, read, strict=True):
            self._going = stretch, step + steps.step
            yield self._collate(self.dataset.samples(begun))
        if steps.step == 1:
            self._going = stretch, len(stretch.shard)

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iterations are; one that a state was loaded for goes on."""
        number = Epoch(self._course.count, None, operator.index(epoch)).number
        used = int(self._begins[1]) if number == int(self._begins[0]) else 0
        self._begins[:] = torch.tensor([number, used, 1])

    def state_dict(self, batches: int | None = None) -> State:
        """Where this data set is in the epoch.

        Args:
            batches: of this rank's, how many were used since the iteration began, by all workers
                together: say so where there are any. None: without workers, those that were
                handed out; in a worker, its own part of a state (``state_of``).
        """
        stretch, step = self._stretch(), _worker()[0]
        if batches is not None:
            return stretch.state(self._course, batches)
        if self._going is not None and self._going[0].number == stretch.number:
            stretch, step = self._going
        elif self._resumes is not None:
            stretch, step = self._resumes
        if get_worker_info() is None:
            return stretch.state(self._course, step)
        shard = stretch.shard
        told = self._course.state(stretch.number, shard.used)
        return {**told, "step": step, "steps": len(shard), "step_size": shard.step_size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Iterations of this epoch go on where the state was saved, until ``set_epoch``.

        Raises:
            ValueError: it is of other data, or of another seed.
        """
        whole = {name: state[name] for name in _NAMES if name in state}
        if whole.get("seed", self._course.seed) != self._course.seed:
            seed = self._course.seed
            raise ValueError(
                f"the state was saved with seed {whole['seed']}, and it is {seed} here"
            )
        self._course.load(whole)
        self._going = self._resumes = None
        if "step" in state:
            self._resumes = self._course.begin(), int(state["step"])
        else:
            self._begins[:] = torch.tensor([self._course.epoch, self._course.used, 0])


class _Ended(Exception):
    """A Reader's last iteration is over."""


class _Crew:
    """Threads that do jobs for whoever asks for what they return.

    Args:
        threads: how many.
    """

    def __init__(self, threads: int) -> None:
        self.threads = operator.index(threads)
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._pool: tuple[int, ThreadPoolExecutor] | None = None
        self._is_closed = False

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Begins a job.

        Raises:
            Error: it is closed.
        """
        self.check()
        # A child that was forked has none of its parent's threads.
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), ThreadPoolExecutor(self.threads, "lmdbio-loader")
        return self._pool[1].submit(job)

    def check(self) -> None:
        if self._is_closed:
            raise Error("this loader is closed")

    def close(self) -> None:
        """Ends the threads, when they have done what they are at. May be called twice."""
        pool, self._pool, self._is_closed = self._pool, None, True
        if pool is not None and pool[0] == os.getpid():
            pool[1].shutdown(cancel_futures=True)


class _Ahead:
    """What jobs return, in order, some of them done ahead of who asks.

    Args:
        ahead: done and not asked for, beside those that all threads are at.
    """

    def __init__(self, crew: _Crew, jobs: Iterable[Callable[[], Any]], ahead: int) -> None:
        if ahead < 0:
            raise ValueError(f"ahead must not be negative ({ahead})")
        self._crew, self._jobs, self._ahead = crew, iter(jobs), ahead
        self._begun: deque[Future[Any]] = deque()
        self._pid = os.getpid()

    def next(self) -> Any:
        """The next one. One that was not handed out, for Ctrl-C, is handed out next.

        Raises:
            _Ended: there are no more jobs.
            Error: the crew is closed, or this is a forked child, whose parent's threads have it.
            Else what the job raised.
        """
        self._crew.check()
        if self._pid != os.getpid():
            raise Error("begun before this process was forked: begin another iteration here")
        wanted = self._crew.threads + self._ahead - len(self._begun)
        for job in islice(self._jobs, wanted):
            self._begun.append(self._crew.submit(job))
        if not self._begun:
            raise _Ended
        futures.wait(list(islice(self._begun, 1)))
        return self._begun.popleft().result()

    def cancel(self) -> None:
        """Begins no more of them, and waits for none: a collector may call this, anywhere."""
        self._jobs = iter(())
        if self._pid == os.getpid():  # else a thread of the parent's may hold a lock of theirs
            for one in self._begun:
                one.cancel()
        self._begun.clear()


class _Collate:
    """Makes a batch of samples.

    Args:
        function: None: torch's own.
        pins: tensors go to page-locked memory.
    """

    def __init__(self, function: Callable[[list[Any]], Any] | None, *, pins: bool) -> None:
        self._function = default_collate if function is None else function
        self._pins = pins and torch.cuda.is_available()
        if pins and not self._pins:
            warnings.warn("pin_memory: there is no GPU, so nothing is pinned", stacklevel=3)

    def __call__(self, samples: list[Any]) -> Any:
        batch = self._function(samples)
        return pin_memory(batch) if self._pins else batch


class Loader:
    """Batches of samples, read and decoded by threads of this process.

        with Loader(path, 32, shuffle=True, transform=decode) as loader:
            for batch in loader:

    Instead of worker processes, which each hold a copy of the program and send every batch through
    shared memory. Decoders that are written in C or C++ (PIL, OpenCV, torchvision, NumPy) let
    other threads run meanwhile; for those in Python, workers of a ``DataLoader`` do better.

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

    Raises:
        OSError, Error: the files cannot be opened.
        ValueError: values that make no sense.
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
        rank: int | None = None,
        ranks: int | None = None,
        comm: _Communicator | None = None,
        **options: Any,
    ) -> None:
        usual = max(2, min(THREADS_MAX, len(os.sched_getaffinity(0))))
        self._crew = _Crew(usual if threads is None else threads)
        self._ahead = ahead
        _Ahead(self._crew, (), ahead)  # refuses what is none
        self._collate = _Collate(collate_fn, pins=pin_memory)
        self.dataset = Dataset(source, transform, keys=keys, buffers=buffers, **options)
        self._course = _Course(
            len(self.dataset),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            even=even,
            place=_place(rank, ranks, comm),
        )
        self._latest: tuple[_Stretch, int] | None = None  # the iteration, and steps of it

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return len(self._course.begin(used=0))

    def __iter__(self) -> Generator[Any, None, None]:
        course = self._course
        stretch = course.begin()
        course.set_epoch(course.epoch + 1)
        self._latest = going = stretch, 0
        return self._batches(going)

    def _batches(self, going: tuple[_Stretch, int]) -> Generator[Any, None, None]:
        stretch = going[0]
        jobs = (partial(self._batch, stretch, step) for step in range(len(stretch)))
        ahead = _Ahead(self._crew, jobs, self._ahead)
        try:
            for step in range(len(stretch)):
                batch = ahead.next()
                if self._latest is going:  # else another one has begun, or a state was loaded
                    self._latest = going = stretch, step + 1
                yield batch
                del batch  # while the next one is waited for
        finally:
            ahead.cancel()
        if self._latest is going:
            self._latest = stretch, len(stretch.shard)

    def _batch(self, stretch: _Stretch, step: int) -> Any:
        dataset = self.dataset
        return self._collate(dataset.samples(dataset.begin(stretch.samples(step))))

    @property
    def epoch(self) -> int:
        """That the next iteration begins, or goes on with."""
        return self._course.epoch

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is; one that a state was loaded for goes on."""
        self._course.set_epoch(epoch)
        self._latest = None

    def state_dict(self) -> State:
        """Where the iteration is that was begun last; else where the next one begins."""
        if self._latest is None:
            return self._course.state(self._course.epoch, self._course.used)
        stretch, steps = self._latest
        return stretch.state(self._course, steps)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where the state was saved.

        Raises:
            ValueError: it is of other data.
        """
        self._course.load(state)
        self._latest = None

    def close(self) -> None:
        """Ends the threads and closes the files. May be called twice."""
        self._crew.close()
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
        self._collate = _Collate(collate_fn, pins=pin_memory)
        self._taking, self._decoding = _Crew(1), _Crew(threads)
        self._batches = _Ahead(self._taking, repeat(self._take), ahead)
        self._used = reader.iteration

    def __iter__(self) -> ReaderLoader:
        return self

    def __next__(self) -> Any:
        try:
            batch = self._batches.next()
        except _Ended:
            raise StopIteration from None
        self._used += 1
        return batch

    def _take(self) -> Any:
        try:
            batch = next(self._reader)
        except StopIteration:
            raise _Ended from None
        size = -(-len(batch) // self._decoding.threads) or 1
        parts = [range(at, min(at + size, len(batch))) for at in range(0, len(batch), size)]
        begun = [self._decoding.submit(partial(self._decode, batch, part)) for part in parts]
        futures.wait(begun)  # all, for they look at the window
        return self._collate([one for part in begun for one in part.result()])

    def _decode(self, batch: Batch, part: range) -> list[Any]:
        kind, transform = self._kind, self._transform
        if transform is None:
            return [kind(batch[i]) for i in part]
        return [transform(kind(batch[i])) for i in part]

    def state_dict(self) -> State:
        """``start`` of a Reader that goes on where this one is, with as many ranks as it has."""
        schedule = self._reader.schedule
        start = (schedule.start + self._used * schedule.batch_size) % schedule.count
        return {"lmdbio": STATE_VERSION, "count": schedule.count, "start": start}

    def close(self) -> None:
        """Ends the threads. May be called twice; the Reader stays open."""
        self._taking.close()
        self._decoding.close()

    def __enter__(self) -> ReaderLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def state_of(state: Mapping[str, Any]) -> State:
    """The state of lmdbio's in one of torchdata's ``StatefulDataLoader``.

    That one can be loaded only with as many workers and ranks as it was saved with; this one, into
    a ``BatchSampler``, an ``IterableDataset`` or a ``Loader``, with any.

    Args:
        state: what ``StatefulDataLoader.state_dict`` gave, over one of those.

    Raises:
        ValueError: there is none in it, or it is of batches after the last snapshot
            (``snapshot_every_n_steps`` above 1).
    """
    if state.get("_steps_since_snapshot", 0):
        raise ValueError("saved between two snapshots: say snapshot_every_n_steps=1")
    found = list(_search(state))
    if not found:
        raise ValueError("there is no state of lmdbio's in it")
    # A sampler's iteration knows more than the sampler; of workers, each knows its own steps.
    first = next((one for one in found if "ended" in one), found[0])
    told: State = {name: first[name] for name in _NAMES}
    done = min((one["step"] for one in found if "step" in one), default=0)
    if first.get("ended") or ("steps" in first and done >= first["steps"]):
        return {**told, "epoch": told["epoch"] + 1, "used": 0}
    used = told["used"] + done * first.get("step_size", 0)
    return {**told, "used": min(told["count"], used)}


def _search(state: Any) -> Iterator[State]:
    if isinstance(state, Mapping):
        if "lmdbio" in state:
            yield dict(state)
            return
        for value in state.values():
            yield from _search(value)
