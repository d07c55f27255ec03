"""Own: a Loader's batches, read by this process alone, and made by its loop, threads or processes.

epoch -> records under way -> samples, collated -> handed out in order
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from lmdbio.machine.choice import Reason
from lmdbio.observe.stats import Stats
from lmdbio.placement.cache import Cache
from lmdbio.torch.dataset import Dataset
from lmdbio.torch.prefetch import Failed, Prefetcher, Runs
from lmdbio.torch.process_cache import split_cache
from lmdbio.torch.processes import WorkerProcesses
from lmdbio.torch.ranks import Ranks, processes_alike
from lmdbio.torch.resume import EpochCursor, EpochSlice
from lmdbio.torch.samples import CalledOffError
from lmdbio.torch.threads import Wanted, WorkerThreads
from lmdbio.torch.whole import FieldDecoder, Recipe
from lmdbio.torch.workers import Workers

__all__ = ["OwnBatches"]

#: Bytes of the batches that a job makes in one go where C alone makes them, and their number at
#: most: to find records and to hand a batch over takes as long as copying some hundred KB.
RUN_BYTES, RUN_BATCHES_MAX = 4 << 20, 16


class OwnBatches:
    """The batches of one process, epoch by epoch.

    Args:
        dataset: data set whose samples they are; closed at the end.
        recipe: Recipe of the batches.
        workers: Workers, which choose who makes them.
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
        self.count = len(dataset)
        self._threads = WorkerThreads(max(1, workers.setting.count))
        self._pool = WorkerProcesses(recipe, dataset.maker)
        decoder = recipe.whole.decoder if recipe.whole else None
        self._row_bytes = decoder.row_bytes if isinstance(decoder, FieldDecoder) else 0
        self._fills = False  # whether the last batch's fields were filled

    def __repr__(self) -> str:
        return repr(self.dataset)

    @property
    def workers(self) -> Reason:
        """The workers that make the batches now, and the reason for them."""
        return self._workers.reason

    def check(self) -> None:
        """Raise Error if this is closed, or if a thread of its own asks."""
        self._threads.check()

    def begin(self, epoch_slice: EpochSlice, _: EpochCursor) -> Runs:
        """Return the batches of the rest of an epoch, made ahead."""
        self.dataset.records.expect(epoch_slice.expected, processes_alike())
        wanted, count = Wanted(self._threads), len(epoch_slice)
        batch_bytes = self._row_bytes * epoch_slice.shard.batch_size
        size = max(1, min(RUN_BYTES // batch_bytes, RUN_BATCHES_MAX)) if batch_bytes else 1
        run = partial(self._run, epoch_slice, size)
        return Runs(
            Prefetcher(
                self._threads,
                partial(run, partial(self._by_thread, epoch_slice, wanted)),
                1 + -(-(count - 1) // size) if count else 0,
                self._recipe.ahead,
                workers=self._workers,
                pool=self._pool,
                by_process=partial(run, partial(self._by_process, epoch_slice, wanted)),
                wanted=wanted,
            )
        )

    def _run(
        self, epoch_slice: EpochSlice, size: int, make: Callable[[int], Any], number: int
    ) -> deque[Any]:
        """Return the batches of a run, of which some may have ``Failed``.

        The first batch is a run of its own: the loop waits for it, and its records may be cold.
        """
        begin = max(0, (number - 1) * size + 1)
        steps = range(begin, min(number * size + 1, len(epoch_slice)))
        if self._fills and len(steps) > 1:
            begun, filled = self._fill(epoch_slice, steps)
            if filled is not None:
                return filled
            begun.close()
        made: deque[Any] = deque()
        for step in steps:
            try:
                made.append(make(step))
            except CalledOffError:
                raise
            except Exception as error:
                made.append(Failed(error))
        return made

    def _by_thread(self, epoch_slice: EpochSlice, wanted: Wanted, step: int) -> Any:
        """Return a batch that this thread makes."""
        return self._pool.make_here(partial(self._made, epoch_slice, wanted, step))

    def _made(self, epoch_slice: EpochSlice, wanted: Wanted, step: int) -> Any:
        dataset, recipe = self.dataset, self._recipe
        if recipe.whole is None:
            begun = dataset.begin(epoch_slice.samples(step))
            source = epoch_slice.source
            return dataset.samples(begun, recipe.collate, source=source, is_wanted=wanted)
        if self._row_bytes:
            begun, filled = self._fill(epoch_slice, range(step, step + 1))
            if filled is not None:
                return filled.popleft()
        else:
            begun = dataset.records.begin(epoch_slice.samples(step))
        decode, source = recipe.whole.decode, epoch_slice.source
        made, left = dataset.maker.whole(begun.batch(), decode, source, wanted)
        return self._keyed(left.indices, made)

    def _fill(self, epoch_slice: EpochSlice, steps: range) -> tuple[Any, deque[Any] | None]:
        """Begin the records of steps that follow one another, and copy their fields if cached.

        Returns:
            The records under way; and the batches, None where some records have to be read.
        """
        whole, records = self._recipe.whole, self.dataset.records
        assert whole is not None and isinstance(whole.decoder, FieldDecoder)
        indices = [epoch_slice.samples(step) for step in steps]
        tensors, fields, end = [], [], 0
        for some in indices:
            made, wanted = whole.decoder.request(len(some), whole.memory)
            rows, end = slice(end, end + len(some)), end + len(some)
            tensors.append(made)
            fields += [field._replace(rows=rows) for field in wanted]
        begun = records.begin_fields(np.concatenate(indices), fields)
        self._fills = begun.is_filled
        if not self._fills:
            return begun, None
        filled = map(whole.decoder.finish, tensors)
        return begun, deque(map(self._keyed, indices, filled))

    def _keyed(self, indices: Any, made: Any) -> Any:
        """Return a batch, with the keys of its records where they are wanted."""
        records = self.dataset.records
        return (list(map(records.key, indices.tolist())), made) if self.dataset.keys else made

    def _by_process(self, epoch_slice: EpochSlice, wanted: Wanted, step: int) -> Any:
        """Return a batch that a process makes, or this thread where none of them can."""
        which = epoch_slice, wanted, step
        return self._pool.attempt(partial(self._sent, *which), partial(self._by_thread, *which))

    def _sent(self, epoch_slice: EpochSlice, wanted: Wanted, step: int) -> Any:
        """Return a batch that a worker process makes."""
        records, keys = self.dataset.records, self.dataset.keys
        batch = records.begin(epoch_slice.samples(step)).batch()
        return self._pool.make(batch, epoch_slice.source, records.key if keys else None, wanted)

    def stats(self) -> Stats:
        """Return what was read, and how many samples were left out."""
        return self.dataset.stats()

    def close(self) -> None:
        """End threads and processes, and close the files. May be called twice."""
        self._threads.close()
        self._pool.close()
        self.dataset.close()

    def abandon(self, _error: BaseException) -> None:
        """End after an error: as ``close``, for nobody else waits."""
        self.close()
