"""Joint: a Loader's epochs out of a Reader, whose roots keep the file together and exchange rows.

epoch, used -> the Reader is there already                  -> its next batches
-> it is in the epoch before                    -> the rest of that one is dropped
-> anywhere else                                -> a new Reader, made by all ranks
batch of a Reader -> a rank's own rows, which come first    -> decoded by threads, ahead
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, cast

from lmdbio.errors import Error
from lmdbio.machine.choice import Reason
from lmdbio.observe.stats import Stats
from lmdbio.planning.order import Steps
from lmdbio.planning.schedule import Assignment
from lmdbio.planning.shuffle import GLOBAL, Shuffle
from lmdbio.planning.stepped import SteppedEpochs
from lmdbio.provenance import Paths, as_given
from lmdbio.reader.reader import Reader
from lmdbio.records.samples import Samples
from lmdbio.torch.decoding import NOTHING, DecodedBatches
from lmdbio.torch.resume import EpochCursor, EpochSlice, as_shuffle

__all__ = ["JointBatches", "JointEpoch", "joint_path"]

#: Batches of an epoch that a rank may look at and begin again.
LOOKS_MAX = 4
#: Words of a Reader that a Loader hands on.
READER_WORDS = (
    "check",
    "db",
    "depth",
    "gap_bytes_max",
    "layout",
    "memory_bytes_max",
    "mode",
    "order",
    "provenance",
    "ranks_per_node",
    "request_bytes_max",
    "skip",
    "slots",
)


def joint_path(
    source: object, assignment: str, options: Mapping[str, Any], *, keys: bool
) -> str | tuple[str, ...]:
    """Return the path of the data set that ranks are to keep together, from the root folder on.

    It is opened again after a jump, whatever folder the process is in then.

    Args:
        options: options for the Reader.

    Raises:
        ValueError: for words of a Loader that a Reader inside does not go with.
    """
    together = "cache= with comm=: the ranks keep the data set together, in a Reader"
    if isinstance(source, Samples):
        raise ValueError(f"{together}: give its path, and no Records that are open")
    if keys:
        raise ValueError(f"{together}, which brings values alone: keys=True does not go with it")
    if not Assignment(assignment).follows_places:
        raise ValueError(
            f"{together}: it has assignment='strided'; for 'local' decode the batches of a Reader "
            "of your own by ReaderLoader, or give rank= and ranks= instead of comm="
        )
    others = sorted(set(options) - {*READER_WORDS, "comm", "cache"})
    if others:
        known = ", ".join(READER_WORDS)
        raise ValueError(f"{together}: it has no {', '.join(others)}; it has {known}")
    return as_given(cast(Paths, source), absolute=True)


class JointBatches:
    """The batches of one rank, epoch by epoch.

    Each epoch is begun by all ranks alike, so that all go on with a Reader, or make a new one.

    Args:
        path: path of the data set.
        open_reader: maker of a Reader, given ``start``, ``shuffle`` and ``seed``. Collective.
        decode: maker of the ``DecodedBatches`` of a Reader, given its ``rows`` and ``seed``.
        shuffle, drop_last, even: arguments of ``EpochCursor``.
        seed: seed of the first Reader.
        left_out: function that returns how many samples were left out.
    """

    def __init__(
        self,
        path: str | tuple[str, ...],
        open_reader: Callable[..., Reader],
        decode: Callable[..., DecodedBatches],
        *,
        shuffle: bool | Shuffle,
        seed: int,
        drop_last: bool,
        even: bool,
        left_out: Callable[[], int],
    ) -> None:
        self._left_out = left_out
        order = as_shuffle(shuffle)
        if order not in (None, GLOBAL):
            raise ValueError(
                "cache= with comm=: its shuffle is True or False; for other orders decode the "
                "batches of a Reader of your own by ReaderLoader"
            )
        self._open_reader = partial(open_reader, shuffle=order is not None)
        self._decode = decode
        self._steps = Steps(drop_last=bool(drop_last), even=bool(even))
        self._done = Stats()  # of Readers that were closed
        self._is_closed, self._pid = False, os.getpid()
        self._path = path
        self._state: tuple[int, ...] | None = None  # of the database
        self._sequence: _Sequence | None = None
        self._sequence = self._open(0, 0, operator.index(seed))
        reader = self._sequence.reader
        self.count, self.caching = reader.count, reader.caching

    def _open(self, epoch: int, used: int, seed: int) -> _Sequence:
        """Make a Reader. Collective.

        Raises:
            Error: the file is another one than at first, or was written to; on all ranks alike.
            As ``Reader``.
        """
        start, changed = (
            replace(self._steps, epoch=epoch, used=used),
            "was written to, or replaced",
        )
        try:
            reader = self._open_reader(start=start, seed=seed)
        except ValueError as error:
            if self._state is None:
                raise
            raise Error(f"{self._path}: {changed}, since this Loader was made: {error}") from error
        state = reader.facts.state
        self._state = self._state or state
        if state != self._state:
            reader.close()  # all ranks are here, and see the same
            raise Error(
                f"{self._path}: {changed}, since this Loader was made, which has {self.count} "
                f"records: it has {reader.count} now; make a new Loader"
            )
        return _Sequence(reader, seed, self._decode)

    def begin(self, epoch_slice: EpochSlice, cursor: EpochCursor) -> JointEpoch:
        """Return the batches of the rest of an epoch; those of an earlier one end.

        Collective where the Reader is neither at its begin nor in the epoch before.

        Raises:
            Error: it is closed.
            As ``Reader``.
        """
        if self._is_closed:
            raise Error("this loader is closed")
        if self._pid != os.getpid():
            raise Error("a Loader with comm= cannot be used in a forked child; make one there")
        sequence, place = self._sequence, (epoch_slice.number, epoch_slice.shard.used, cursor.seed)
        if sequence is not None and (again := sequence.again(place)) is not None:
            return again
        if sequence is None or place != sequence.goes_on:
            self._end()
            sequence = self._sequence = self._open(*place)
            self.caching = sequence.reader.caching
        return sequence.begin(epoch_slice)

    def _end(self) -> None:
        """Close the Reader, if there is one."""
        sequence, self._sequence = self._sequence, None
        if sequence is not None:
            try:
                sequence.close()
            finally:
                self._done += sequence.reader.stats()

    @property
    def workers(self) -> Reason:
        """The workers that make the batches, and the reason for them."""
        return Reason("keyword", "threads share the records of each of a Reader's batches")

    def stats(self) -> Stats:
        """Return the counts of all Readers."""
        sequence = self._sequence
        read = self._done if sequence is None else self._done + sequence.reader.stats()
        return replace(read, skipped_records=self._left_out())

    def close(self) -> None:
        """End the threads and close the Reader. Collective; may be called twice."""
        self._is_closed = True
        self._end()

    def abandon(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End after an error without waiting for other ranks, and tell these; or as ``close``."""
        sequence = self._sequence
        try:
            if error is not None and sequence is not None:
                # First, for it ends also what the threads wait for.
                sequence.reader.__exit__(kind, error, trace)
        finally:
            self.close()


class _Sequence:
    """One Reader, and how far its batches have been given to epochs.

    Args:
        reader: Reader that began with ``Steps``; closed at the end.
        seed: seed of its orders.
        decode: maker of its ``DecodedBatches``.

    Attributes:
        goes_on: epoch, used samples and seed of the next epoch that it has without a break.
        current: JointEpoch that was begun last; None: none was.
    """

    def __init__(self, reader: Reader, seed: int, decode: Callable[..., DecodedBatches]) -> None:
        epochs = reader.schedule.epochs
        assert isinstance(epochs, SteppedEpochs)
        self.reader, self._epochs = reader, epochs
        self.goes_on = epochs.steps.epoch, epochs.steps.used, seed
        self.current: JointEpoch | None = None
        self._begun_at = self.goes_on  # the place of the current one's first batch
        self._wanted_from = 0  # the first iteration that anybody wants
        self.batches = decode(reader, rows=self._rows, seed=seed)

    def _rows(self, iteration: int) -> int:
        if iteration < self._wanted_from:
            return 0
        schedule = self.reader.schedule
        return self._epochs.taken(schedule.place_after(iteration), self.reader.rank)

    def drop_before(self, iteration: int) -> None:
        """Have batches of earlier iterations not decoded, as far as none works at them."""
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

    def close(self) -> None:
        """End the threads, and then the Reader."""
        self.current = None
        self.batches.close()
        self.reader.close()


class JointEpoch:
    """The batches of an epoch, or of its rest, as a ``Prefetcher`` hands them out.

    The first ones are kept for a while: a rank that has taken a look at some begins again without
    a new Reader, which all ranks would have to make.

    Args:
        sequence: sequence whose batches they are.
        first, end: numbers of its first iteration, and of the one after its last.
        looked_at: batches that were handed out before, which come again.

    Attributes:
        first: number of its first iteration.
    """

    def __init__(
        self, sequence: _Sequence, first: int, end: int, looked_at: list[Any] | None = None
    ) -> None:
        self._sequence, self.first, self._end = sequence, first, end
        self._looked_at, self._next = looked_at or [], 0  # and the next one of them
        self._taken = 0  # of the sequence, iterations from the first one on

    @property
    def is_whole(self) -> bool:
        """Whether all of its batches are there still: Ctrl-C may have taken one away."""
        taken = max(self._sequence.batches.handed_out - self.first, 0)
        return taken == self._taken <= LOOKS_MAX

    def again(self) -> JointEpoch:
        """Return the same epoch from its first batch on."""
        made = JointEpoch(self._sequence, self.first, self._end, self._looked_at)
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
            if self._next < len(self._looked_at):
                self._next += 1
                return self._looked_at[self._next - 1]
            iteration, batch = self._sequence.batches.next()
            if iteration < self.first:
                continue
            if self._taken < LOOKS_MAX:
                if batch is not NOTHING:
                    self._looked_at.append(batch)
                    self._next = len(self._looked_at)
            elif self._looked_at:
                self._looked_at, self._next = [], 0
            self._taken += 1
            if batch is not NOTHING:
                return batch

    def cancel(self) -> None:
        """Have the rest not decoded, if it cannot be begun again: the next epoch drops it."""
        if not self.is_whole:
            self._sequence.drop_before(self._end)
