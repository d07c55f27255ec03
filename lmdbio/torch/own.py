"""Own: a Loader's batches, read by this process alone, and made by its loop, threads or processes.

epoch -> records under way -> samples, collated -> handed out in order
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from lmdbio.machine.choice import Reason
from lmdbio.observe.stats import Stats
from lmdbio.placement.cache import Cache
from lmdbio.torch.collate import Collate
from lmdbio.torch.dataset import Dataset
from lmdbio.torch.keeping import keep_part
from lmdbio.torch.prefetch import Prefetcher
from lmdbio.torch.processes import PooledJobs, WorkerProcesses
from lmdbio.torch.ranks import Ranks, processes_alike
from lmdbio.torch.resume import EpochCursor, EpochSlice
from lmdbio.torch.threads import Wanted, WorkerThreads
from lmdbio.torch.whole import WholeBatches
from lmdbio.torch.worker_process import Work
from lmdbio.torch.workers import Workers

__all__ = ["OwnBatches"]


class OwnBatches:
    """The batches of one process, epoch by epoch.

    Args:
        dataset: data set whose samples they are; closed at the end.
        collate: function from a list of samples to a batch.
        whole: maker of whole batches; None: they are made of samples.
        workers: Workers, which choose who makes them.
        worker_init_fn: argument of ``Loader``.
        threads: threads that make them, or that ask processes; their owner ends them.
        ahead: number of batches that wait to be asked for.
        cache, assignment: arguments of ``Loader``.
        place: this process's rank, and the number of ranks.

    Attributes:
        count: number of samples of the data set.
        caching: reason why the process keeps what it keeps.
        order: arguments of ``EpochCursor`` that depend on the data set.

    Raises:
        As ``keep_part``; the data set is closed then.
    """

    def __init__(
        self,
        dataset: Dataset,
        collate: Collate,
        whole: WholeBatches | None,
        workers: Workers,
        worker_init_fn: Callable[[int], object] | None,
        threads: WorkerThreads,
        ahead: int,
        cache: Cache | str | None,
        assignment: str,
        place: Ranks,
    ) -> None:
        try:
            # A part is kept for this rank, which may change no more.
            rank = place.now() if cache is None else place.use()
            self.caching, holder = keep_part(dataset.records, cache, assignment, rank)
        except BaseException:
            dataset.close()
            raise
        self.order: dict[str, Any] = {"holder": holder, "mix": dataset.mixing}
        self.dataset = dataset
        self._collate, self._whole, self._workers, self._threads = collate, whole, workers, threads
        self._ahead, self.count = ahead, len(dataset)
        work = Work(
            dataset.transform,
            dataset.keys,
            dataset.buffers,
            dataset.errors,
            collate.function,
            begin=worker_init_fn,
        )
        self._pool = WorkerProcesses(work)

    @property
    def workers(self) -> Reason:
        """The workers that make the batches now, and the reason for them."""
        return self._workers.reason

    def begin(self, epoch_slice: EpochSlice, _: EpochCursor) -> Prefetcher:
        """Return the batches of the rest of an epoch, made ahead."""
        self.dataset.records.expect(epoch_slice.expected, processes_alike())
        wanted = Wanted(self._threads)
        here = partial(self._batch, epoch_slice, wanted)
        jobs = PooledJobs(self._pool, partial(self._sent, epoch_slice, wanted), here)
        return Prefetcher(
            self._threads,
            jobs.here,
            len(epoch_slice),
            self._ahead,
            workers=self._workers,
            processes=jobs,
            wanted=wanted,
        )

    def _batch(self, epoch_slice: EpochSlice, wanted: Wanted, step: int) -> Any:
        dataset, indices = self.dataset, epoch_slice.samples(step)
        if self._whole is not None:
            return self._whole.make(dataset, indices, epoch_slice.source, wanted)
        return dataset.samples(
            dataset.begin(indices),
            self._collate,
            source=epoch_slice.source,
            is_wanted=wanted,
        )

    def _sent(self, epoch_slice: EpochSlice, wanted: Wanted, step: int) -> Any:
        """Return a batch that a worker process makes."""
        dataset = self.dataset
        batch, left_out = self._pool.make(
            dataset.records.begin(epoch_slice.samples(step)),
            epoch_slice.source,
            dataset.records.key if dataset.keys else None,
            dataset.describe,
            wanted,
        )
        dataset.count_left_out(left_out)
        return self._collate.pinned(batch)

    def stats(self) -> Stats:
        """Return what was read, and how many samples were left out."""
        return self.dataset.stats()

    def close(self) -> None:
        """End the processes and close the files. May be called twice."""
        self._pool.close()
        self.dataset.close()

    def abandon(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """End after an error: as ``close``, for nobody else waits."""
