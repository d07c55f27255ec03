"""Own: a Loader's batches, read by this process alone, and made by its loop, threads or processes.

epoch -> records under way -> samples, collated -> handed out in order
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

from lmdbio.machine.choice import Reason
from lmdbio.observe.stats import Stats
from lmdbio.placement.cache import Cache
from lmdbio.torch.dataset import Dataset
from lmdbio.torch.prefetch import Prefetcher
from lmdbio.torch.process_cache import split_cache
from lmdbio.torch.processes import WorkerProcesses
from lmdbio.torch.ranks import Ranks, processes_alike
from lmdbio.torch.resume import EpochCursor, EpochSlice
from lmdbio.torch.threads import Wanted, WorkerThreads
from lmdbio.torch.whole import FieldDecoder, Recipe, WholeBatches
from lmdbio.torch.workers import Workers

__all__ = ["OwnBatches"]


class OwnBatches:
    """The batches of one process, epoch by epoch (``Batches``).

    Args:
        dataset: data set whose samples they are; closed at the end.
        recipe: Recipe of the batches.
        workers: Workers, which choose who makes them.
        ahead: number of batches that wait to be asked for.
        cache, assignment: arguments of ``Loader``.
        place: this process's rank, and the number of ranks.
        why: reason why ranks do not cache together, for ``caching``; "": nobody would ask.

    Raises:
        As ``split_cache``; the data set is closed then.
    """

    def __init__(
        self,
        dataset: Dataset,
        recipe: Recipe,
        workers: Workers,
        ahead: int,
        cache: Cache | str | None,
        assignment: str,
        place: Ranks,
        why: str,
    ) -> None:
        try:
            # A part is kept for this rank, which may change no more.
            rank = place.now() if cache is None else place.use()
            self.caching, owner = split_cache(dataset.records, cache, assignment, rank)
        except BaseException:
            dataset.close()
            raise
        if why:
            self.caching = replace(self.caching, text=f"{self.caching.text}; {why}")
        self.order: dict[str, Any] = {"owner": owner, "mix": dataset.mixing}
        self.dataset, self._recipe, self._workers = dataset, recipe, workers
        self._ahead, self.count = ahead, len(dataset)
        self._threads = WorkerThreads(max(1, workers.setting.count))
        self._pool = WorkerProcesses(recipe)

    def __repr__(self) -> str:
        return repr(self.dataset)

    @property
    def workers(self) -> Reason:
        """The workers that make the batches now, and the reason for them."""
        return self._workers.reason

    def check(self) -> None:
        """Raise Error if this is closed, or if a thread of its own asks."""
        self._threads.check()

    def begin(self, epoch_slice: EpochSlice, _: EpochCursor) -> Prefetcher:
        """Return the batches of the rest of an epoch, made ahead."""
        self.dataset.records.expect(epoch_slice.expected, processes_alike())
        wanted = Wanted(self._threads)
        return Prefetcher(
            self._threads,
            partial(self._by_thread, epoch_slice, wanted),
            len(epoch_slice),
            self._ahead,
            workers=self._workers,
            pool=self._pool,
            by_process=partial(self._by_process, epoch_slice, wanted),
            wanted=wanted,
        )

    def _by_thread(self, epoch_slice: EpochSlice, wanted: Wanted, step: int) -> Any:
        """Return a batch that this thread makes."""
        return self._pool.make_here(partial(self._made, epoch_slice, wanted, step))

    def _made(self, epoch_slice: EpochSlice, wanted: Wanted, step: int) -> Any:
        dataset, indices = self.dataset, epoch_slice.samples(step)
        if self._recipe.whole is not None:
            return self._whole(self._recipe.whole, indices, epoch_slice, wanted)
        begun, collate = dataset.begin(indices), self._recipe.collate
        return dataset.samples(begun, collate, source=epoch_slice.source, is_wanted=wanted)

    def _whole(
        self, whole: WholeBatches, indices: Any, epoch_slice: EpochSlice, wanted: Wanted
    ) -> Any:
        """Read records, and return the batch that one call of a decoder makes."""
        dataset, records, decoder = self.dataset, self.dataset.records, whole.decoder
        made, tensors = None, None
        if isinstance(decoder, FieldDecoder):
            tensors, fields = decoder.request(len(indices), whole.memory)
            begun = records.begin_fields(indices, fields)
            if begun.is_filled:
                made, cached = decoder.finish(tensors), begun
        else:
            begun = records.begin(indices)
        if made is None:
            del tensors  # records are there in part, or none: they all come another way
            source, maker = epoch_slice.source, dataset.maker
            made, cached = maker.whole(begun.batch(), whole.decode, source, wanted)
        return (list(map(records.key, cached.indices.tolist())), made) if dataset.keys else made

    def _by_process(self, epoch_slice: EpochSlice, wanted: Wanted, step: int) -> Any:
        """Return a batch that a process makes, or this thread where none of them can."""
        which = epoch_slice, wanted, step
        return self._pool.attempt(partial(self._sent, *which), partial(self._by_thread, *which))

    def _sent(self, epoch_slice: EpochSlice, wanted: Wanted, step: int) -> Any:
        """Return a batch that a worker process makes."""
        dataset = self.dataset
        batch, left_out = self._pool.make(
            dataset.records.begin(epoch_slice.samples(step)).batch(),
            epoch_slice.source,
            dataset.records.key if dataset.keys else None,
            dataset.maker.where,
            wanted,
        )
        dataset.maker.count_left_out(left_out)
        return self._recipe.collate.pinned(batch)

    def stats(self) -> Stats:
        """Return what was read, and how many samples were left out."""
        return self.dataset.stats()

    def close(self) -> None:
        """End threads and processes, and close the files. May be called twice."""
        self._threads.close()
        self._pool.close()
        self.dataset.close()

    def abandon(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """End after an error: as ``close``, for nobody else waits."""
        self.close()
