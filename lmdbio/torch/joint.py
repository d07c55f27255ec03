"""Joint: a Loader's epochs out of a Reader, whose roots keep the file together and exchange rows.

epoch, used -> the Reader is there already                  -> its next batches
-> it is in the epoch before                    -> the rest of that one is dropped
-> anywhere else                                -> a new Reader, made by all ranks, whose roots
                                                   go on with what they have in memory
batch of a Reader -> a rank's own rows, which come first    -> made ahead, by threads or processes
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from threading import Condition
from typing import Any, NoReturn

from lmdbio.errors import Error
from lmdbio.machine.choice import Reason
from lmdbio.observe.stats import Stats
from lmdbio.planning.order import Steps
from lmdbio.planning.stepped import SteppedEpochs
from lmdbio.provenance import Paths, as_given
from lmdbio.reader.reader import Reader, moved
from lmdbio.reading.batch import Batch
from lmdbio.records.records import Records
from lmdbio.torch.dataset import Dataset
from lmdbio.torch.draws import Source
from lmdbio.torch.prefetch import Ended, Prefetcher
from lmdbio.torch.processes import WorkerProcesses
from lmdbio.torch.resume import EpochCursor, EpochSlice, Ordering
from lmdbio.torch.samples import POLL_SECONDS, CalledOffError, SampleMaker
from lmdbio.torch.threads import Wanted, WorkerThreads
from lmdbio.torch.whole import Recipe
from lmdbio.torch.workers import Workers

__all__ = ["READER_WORDS", "JointBatches", "JointEpoch", "ReaderBatches"]

#: Stands for a batch of which no row is wanted.
NOTHING = object()
#: Batches of an epoch that a rank may look at and begin again.
REPEATED_BATCHES_MAX = 4
#: Words of a Reader that a Loader says itself, or that go not with it.
_OWN = {"self", "path", "batch_size", "comm", "cache", "assignment", "start", "shuffle", "seed"}
_OWN |= {"iterations", "epochs"}
#: Words of a Reader that a Loader hands on, and those of them that Records have as well.
READER_WORDS = tuple(sorted(set(inspect.signature(Reader.__init__).parameters) - _OWN))
_OF_RECORDS = set(READER_WORDS) & set(inspect.signature(Records.__init__).parameters)


class ReaderBatches:
    """A Reader's batches in their order, made ahead.

    Threads take them out of the window one after the other, each as a copy of its own, and make
    them beside one another, or have processes make them.

    Args:
        reader: Reader from whose next batch on; it is not closed. Nobody else may ask it.
        recipe: Recipe of the batches.
        maker: maker of their samples.
        workers: Workers, which choose who makes them.
        seed: seed of what samples draw.

    Attributes:
        reader: the argument.
    """

    def __init__(
        self,
        reader: Reader,
        recipe: Recipe,
        maker: SampleMaker,
        workers: Workers,
        *,
        seed: int,
    ) -> None:
        self.reader, self._recipe, self._maker, self._seed = reader, recipe, maker, seed
        self._threads = WorkerThreads(max(1, workers.setting.count))
        self._pool = WorkerProcesses(recipe, maker)
        self._wanted = Wanted(self._threads)
        #: The number of the job that takes the Reader's next batch.
        self._turn, self._moved = 0, Condition()
        self._batches = Prefetcher(
            self._threads,
            self._by_thread,
            None,
            recipe.ahead,
            workers=workers,
            pool=self._pool,
            by_process=self._by_process,
        )

    @property
    def handed_out(self) -> int:
        """Batches, and errors, that the caller has had."""
        return self._batches.handed_out

    def check(self) -> None:
        """Raise Error if this is closed, or if a thread of its own asks."""
        self._threads.check()

    def next(self) -> tuple[int, Any]:
        """Return the next batch, ``NOTHING`` if no row is wanted, and the iteration that it is of.

        Raises:
            Ended: the Reader's last iteration is over.
            What ``transform``, ``collate_fn`` or the Reader raised.
        """
        one: tuple[int, Any] = self._batches.next()
        return one

    def _by_thread(self, number: int) -> tuple[int, Any]:
        """Return an iteration and its batch, which this thread makes."""
        iteration, batch = self._taken(number)
        if batch is None:
            return iteration, NOTHING
        return iteration, self._here(self._source(iteration), batch)

    def _by_process(self, number: int) -> tuple[int, Any]:
        """Return an iteration and its batch, which a process makes where one can."""
        iteration, batch = self._taken(number)
        if batch is None:
            return iteration, NOTHING
        source = self._source(iteration)
        return iteration, self._pool.attempt(
            partial(self._pool.make, batch, source, None, self._wanted),
            partial(self._here, source, batch),
        )

    def _taken(self, number: int) -> tuple[int, Batch | None]:
        """Return what ``_take`` does when it is a job's turn."""
        with self._moved:
            # Those of before were begun before, or called off, as this one may be.
            while (is_wanted := self._wanted()) and self._turn != number:
                self._moved.wait(POLL_SECONDS)
            if not is_wanted:
                raise CalledOffError("this loader is closed")
            try:
                return self._take()
            finally:
                self._turn += 1
                self._moved.notify_all()

    def _source(self, iteration: int) -> Source:
        schedule = self.reader.schedule
        return Source(self._seed, schedule.place_after(iteration) // schedule.epoch_places)

    def _here(self, source: Source, batch: Batch) -> Any:
        """Return the batch that this thread makes of its values."""
        return self._pool.make_here(partial(self._made, batch, source))

    def _made(self, batch: Batch, source: Source) -> Any:
        recipe, maker, wanted = self._recipe, self._maker, self._wanted
        if recipe.whole is not None:
            return maker.whole(batch, recipe.whole.decode, source, wanted)[0]
        values: Iterator[Any] | list[Any] = iter(batch) if recipe.buffers else map(bytes, batch)
        if maker.transform is None:
            values = list(values)
        return maker.samples(values, batch, source, wanted, recipe.collate)

    def _take(self) -> tuple[int, Batch | None]:
        """Return the Reader's next iteration, and a copy of the rows that are wanted, if any."""
        iteration = self.reader.iteration
        try:
            batch = next(self.reader)
        except StopIteration:
            raise Ended from None
        rows = self._rows(iteration, len(batch))
        if rows == len(batch):
            return iteration, batch.copy()
        return iteration, batch.part(slice(0, rows), batch.indices[:rows]) if rows else None

    def _rows(self, _iteration: int, size: int) -> int:
        """Return how many rows of a batch of some size are wanted, the first ones: all."""
        return size

    def close(self) -> None:
        """End threads and processes. May be called twice; the Reader stays open."""
        self._threads.close()
        self._pool.close()


class JointBatches:
    """The batches of one rank, epoch by epoch, as ``OwnBatches`` has those of one process.

    Each epoch is begun by all ranks alike, so that all go on with a Reader, or make a new one.

    Args:
        path: path of the data set.
        batch_size: number of samples of all ranks' step.
        options: options for a Reader.
        recipe: Recipe of the batches.
        workers: Workers, which choose who makes them.
        ordering: Ordering of the epochs, whose seed is that of the first Reader.
    """

    def __init__(
        self,
        path: Paths,
        batch_size: int,
        options: Mapping[str, Any],
        recipe: Recipe,
        workers: Workers,
        ordering: Ordering,
    ) -> None:
        # It is opened again after a jump, whatever folder the process is in then.
        self._path, self._batch_size = as_given(path, absolute=True), batch_size
        self._options = {**options, "shuffle": ordering.shuffle is not None}
        self._recipe, self._workers = recipe, workers
        self._maker = SampleMaker(self._origin, recipe.transform, errors=recipe.errors)
        self._steps = Steps(drop_last=ordering.drop_last, even=ordering.even)
        self._dataset: Dataset | None = None
        self._done = Stats()  # of Readers that were closed
        self._is_closed, self._pid = False, os.getpid()
        self._state: tuple[int, ...] | None = None  # of the database
        self._sequence: _Sequence | None = None
        self._sequence = self._open(0, 0, ordering.seed)
        reader = self._sequence.reader
        self.order: dict[str, Any] = {}
        self.count, self.caching = reader.count, reader.caching

    def _origin(self, index: int) -> str:
        """Return in words where a sample comes from."""
        sequence = self._sequence
        path = self._path if sequence is None else sequence.reader.facts.path
        return f"sample {index}, file {path}"

    def __getstate__(self) -> NoReturn:
        raise TypeError("a Loader whose ranks cache together cannot be pickled: they make it")

    def __repr__(self) -> str:
        return f"<JointBatches of {self._path!r}: {self.count} samples>"

    @property
    def dataset(self) -> Dataset:
        """The data set, which this process opens for itself when it is first asked for."""
        if self._dataset is None:
            self.check()
            words = {name: self._options[name] for name in _OF_RECORDS & self._options.keys()}
            recipe = self._recipe
            words |= {"buffers": recipe.buffers, "errors": recipe.errors}
            self._dataset = Dataset(self._path, self._maker.transform, **words)
        return self._dataset

    def _open(self, epoch: int, used: int, seed: int, last: Reader | None = None) -> _Sequence:
        """Make a Reader, with what the roots of the last one have in memory. Collective.

        Raises:
            Error: the file is another one than at first, or was written to; on all ranks alike.
            As ``Reader``.
        """
        start = replace(self._steps, epoch=epoch, used=used)
        changed = f"{self._path}: was written to, or replaced, since this Loader was made"
        try:
            if last is None:
                size = self._batch_size
                reader = Reader(self._path, size, start=start, seed=seed, **self._options)
            else:
                reader = moved(last, self._options["comm"], start=start, seed=seed)
        except ValueError as error:
            if self._state is None:
                raise
            raise Error(f"{changed}: {error}") from error
        state = reader.facts.state
        self._state = self._state or state
        if state != self._state:
            reader.close()  # all ranks are here, and see the same
            raise Error(
                f"{changed}, which has {self.count} records: it has {reader.count} now; make a "
                "new Loader"
            )
        return _Sequence(reader, self._recipe, self._maker, self._workers, seed=seed)

    def check(self) -> None:
        """Raise Error if this is closed, in a forked child, or if a thread of its own asks."""
        if self._is_closed:
            raise Error("this loader is closed")
        if self._pid != os.getpid():
            raise Error(
                "a Loader whose ranks cache together cannot be used in a forked child; make one"
            )
        if self._sequence is not None:
            self._sequence.check()

    def begin(self, epoch_slice: EpochSlice, cursor: EpochCursor) -> JointEpoch:
        """Return the batches of the rest of an epoch; those of an earlier one end.

        Collective where the Reader is neither at its begin nor in the epoch before, and where the
        transform was replaced, with which it has batches made ahead.

        Raises:
            As ``Reader``.
        """
        sequence, place = self._sequence, (epoch_slice.number, epoch_slice.shard.used, cursor.seed)
        if self._takes_over() or sequence is None:
            return self._jump(sequence, place).begin(epoch_slice)
        if (again := sequence.again(place)) is not None:
            return again
        if place != sequence.goes_on:
            sequence = self._jump(sequence, place)
        return sequence.begin(epoch_slice)

    def _takes_over(self) -> bool:
        """Return whether the data set has another transform, which batches have from now on."""
        if self._dataset is None or self._recipe.whole is not None:
            return False
        before, self._maker.transform = self._maker.transform, self._dataset.transform
        return before != self._maker.transform  # a method is another object each time

    def _jump(self, sequence: _Sequence | None, place: tuple[int, int, int]) -> _Sequence:
        """Return the batches from another place on, of a new Reader. Collective."""
        try:
            last = None if sequence is None else sequence.end()
            made = self._open(*place, last)
        finally:
            self._end()
        self._sequence, self.caching = made, made.reader.caching
        return made

    def _end(self) -> None:
        """Close the Reader, if there is one."""
        sequence, self._sequence = self._sequence, None
        if sequence is not None:
            try:
                sequence.end().close()
            finally:
                self._done += sequence.reader.stats()

    @property
    def workers(self) -> Reason:
        """The workers that make the batches now, and the reason for them."""
        return self._workers.reason

    def stats(self) -> Stats:
        """Return the counts of all Readers."""
        sequence = self._sequence
        read = self._done if sequence is None else self._done + sequence.reader.stats()
        return replace(read, skipped_records=self._maker.left_out)

    def close(self) -> None:
        """End the workers and close the Reader. Collective; may be called twice."""
        self._is_closed = True
        if self._dataset is not None:
            self._dataset.close()
        self._end()

    def abandon(self, error: BaseException) -> None:
        """End after an error without waiting for other ranks, and tell these."""
        sequence = self._sequence
        try:
            if sequence is not None:
                # First, for it ends also what the threads wait for.
                sequence.reader.__exit__(type(error), error, error.__traceback__)
        finally:
            self.close()


class _Sequence(ReaderBatches):
    """The batches of one Reader, and how far they have been given to epochs.

    Args:
        reader: Reader that began with ``Steps``.
        recipe, maker, workers, seed: arguments of ``ReaderBatches``.

    Attributes:
        goes_on: epoch, used samples and seed of the next epoch that it has without a break.
        current: JointEpoch that was begun last; None: none was.
    """

    def __init__(
        self,
        reader: Reader,
        recipe: Recipe,
        maker: SampleMaker,
        workers: Workers,
        *,
        seed: int,
    ) -> None:
        epochs = reader.schedule.epochs
        assert isinstance(epochs, SteppedEpochs)
        self._epochs = epochs
        self.goes_on = epochs.steps.epoch, epochs.steps.used, seed
        self.current: JointEpoch | None = None
        self._begun_at = self.goes_on  # the place of the current one's first batch
        self._wanted_from = 0  # the first iteration that anybody wants
        super().__init__(reader, recipe, maker, workers, seed=seed)

    def _rows(self, iteration: int, _size: int) -> int:
        if iteration < self._wanted_from:
            return 0
        schedule = self.reader.schedule
        return self._epochs.taken(schedule.place_after(iteration), self.reader.rank)

    def drop_before(self, iteration: int) -> None:
        """Have batches of earlier iterations not made, as far as none works at them."""
        self._wanted_from = max(self._wanted_from, iteration)

    def begin(self, epoch_slice: EpochSlice) -> JointEpoch:
        """Return the batches of the epoch that comes next."""
        schedule, number = self.reader.schedule, epoch_slice.number
        self._begun_at = self.goes_on
        first = (self._epochs.begin(number) - schedule.start) // schedule.batch_size
        self.drop_before(first)
        self.current = JointEpoch(self, first, first + len(epoch_slice.shard))
        self.goes_on = number + 1, 0, self.goes_on[2]
        return self.current

    def again(self, place: tuple[int, int, int]) -> JointEpoch | None:
        """Return the current epoch from its first batch on, if all of them are left."""
        current = self.current
        if current is None or place != self._begun_at or not current.is_whole:
            return None
        self._wanted_from = min(self._wanted_from, current.first)
        self.current = current.again()
        return self.current

    def end(self) -> Reader:
        """End the workers; return the Reader, which is open still."""
        self.current = None
        self.close()
        return self.reader


class JointEpoch:
    """The batches of an epoch, or of its rest, as a ``Prefetcher`` hands them out.

    The first ones are kept for a while: a rank that has taken a look at some begins again without
    a new Reader, which all ranks would have to make.

    Args:
        sequence: sequence whose batches they are.
        first, end: numbers of its first iteration, and of the one after its last.
        repeated: batches that were handed out before, which come again.

    Attributes:
        first: number of its first iteration.
    """

    def __init__(
        self, sequence: _Sequence, first: int, end: int, repeated: list[Any] | None = None
    ) -> None:
        self._sequence, self.first, self._end = sequence, first, end
        self._repeated, self._next = repeated or [], 0  # and the next one of them
        self._taken = 0  # of the sequence, iterations from the first one on

    @property
    def is_whole(self) -> bool:
        """Whether all of its batches are there still: Ctrl-C may have taken one away."""
        taken = max(self._sequence.handed_out - self.first, 0)
        return taken == self._taken <= REPEATED_BATCHES_MAX

    def again(self) -> JointEpoch:
        """Return the same epoch from its first batch on."""
        made = JointEpoch(self._sequence, self.first, self._end, self._repeated)
        made._taken = self._taken
        return made

    def next(self) -> Any:
        """Return the next batch of which this rank has samples; those before the epoch go.

        Raises:
            Error: another epoch has been begun, or it is closed.
            What ``transform``, ``collate_fn`` or the Reader raised.
        """
        while True:
            if self._sequence.current is not self:
                raise Error("another iteration has begun, and it goes on with the batches of this")
            if self._next < len(self._repeated):
                self._next += 1
                return self._repeated[self._next - 1]
            iteration, batch = self._sequence.next()
            if iteration < self.first:
                continue
            if self._taken < REPEATED_BATCHES_MAX:
                if batch is not NOTHING:
                    self._repeated.append(batch)
                    self._next = len(self._repeated)
            elif self._repeated:
                self._repeated, self._next = [], 0
            self._taken += 1
            if batch is not NOTHING:
                return batch

    def cancel(self) -> None:
        """Have the rest not made, if it cannot be begun again: the next epoch drops it."""
        if not self.is_whole:
            self._sequence.drop_before(self._end)
