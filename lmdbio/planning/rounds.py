"""rounds: what comes to memory together where an epoch is shuffled in windows. Pure.

    place -> round                      a run of places; its records are those of one window
    round, root -> slice of its records     each root reads one, in the order of the file
    record -> root                      that has read it in its round

All roots together read each byte of the file once an epoch, in requests as large as a slice, and
hand records to each other inside a round. While one round is used, the next one is read.

Source: DeepIO, section III-C (its hybrid pipeline); two-phase I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.order import Epoch, Epochs, split_share

__all__ = ["Round", "RoundSequence", "Rounds"]

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rounds:
    """The rounds of an epoch.

    Attributes:
        epoch: epoch whose shuffle has windows (``Shuffle.windows``, ``Shuffle.groups``).
        roots: number of roots that read.

    Raises:
        ValueError: there is no root, or the epoch has no windows.
    """

    epoch: Epoch
    roots: int

    def __post_init__(self) -> None:
        if self.roots < 1:
            raise ValueError(f"there must be at least 1 root, not {self.roots}")
        shuffle = self.epoch.shuffle
        if shuffle.order is not None or shuffle.chunk == 1 or shuffle.held:
            raise ValueError("a round is a window of chunks, which this shuffle has not")

    def __len__(self) -> int:
        """Rounds of the epoch."""
        return -(-self._chunks // self._window)

    @property
    def _chunks(self) -> int:
        return -(-self.epoch.count // self.epoch.shuffle.chunk)

    @property
    def _window(self) -> int:
        """Chunks of a round that is full."""
        return max(1, min(self.epoch.shuffle.window, self._chunks))

    @property
    def _size(self) -> int:
        """Places of a round that is full."""
        return self.epoch.shuffle.chunk * self._window

    @cached_property
    def _chunk_order(self) -> Epoch:
        """The epoch in which windows are not shuffled inside."""
        return replace(self.epoch, shuffle=replace(self.epoch.shuffle, inner=False))

    @cached_property
    def _missing(self) -> tuple[int, int]:
        """(round, places): the last chunk of the file lacks so many, wherever it comes."""
        lacking = self._chunks * self.epoch.shuffle.chunk - self.epoch.count
        if not lacking:
            return len(self), 0
        (place,) = self._chunk_order.places([self.epoch.count - 1]).tolist()
        return place // self._size, lacking

    @cached_property
    def _begins(self) -> I64:
        """The first place of each round, and the epoch's end."""
        short, lacking = self._missing
        numbers = np.arange(len(self) + 1, dtype=np.int64)
        whole = np.minimum(numbers * self._size, self._chunks * self.epoch.shuffle.chunk)
        return np.asarray(whole - lacking * (numbers > short), np.int64)

    @cached_property
    def table(self) -> _core.RoundTable:
        """The same, as C computes with it."""
        short, lacking = self._missing
        return _core.RoundTable(self.epoch.shuffling, len(self), self._size, short, lacking)

    def begin(self, number: int) -> int:
        """Return the first place of a round; of the one after the last, the epoch's end."""
        return int(self._begins[number])

    def of(self, places: npt.ArrayLike) -> I64:
        """Return the round of each place."""
        return np.searchsorted(self._begins, np.asarray(places, np.int64), side="right") - 1

    def slice(self, number: int, root: int) -> I64:
        """Return the records that a root reads for a round, ascending."""
        begin, end = self.begin(number), self.begin(number + 1)
        own = split_share(end - begin, self.roots, root)
        places = np.arange(begin + own.start, begin + own.stop)
        return np.sort(self._chunk_order.samples(places))

    def owner(self, records: npt.ArrayLike) -> I64:
        """Return the root that reads each record, for the round in which it is used."""
        places = self._chunk_order.places(records)
        rounds = self.of(places)
        begins = self._begins
        within, sizes = places - begins[rounds], np.diff(begins)[rounds]
        # The largest root whose share (``split_share``) begins at this place or before it.
        return np.asarray(((within + 1) * self.roots - 1) // sizes, np.int64)


class Round(NamedTuple):
    """A round of the endless sequence of epochs.

    Attributes:
        epoch, number: number of the epoch, and of the round in it.
        begin, end: first place of the round, and the end, counted from the first epoch's first.
    """

    epoch: int
    number: int
    begin: int
    end: int


@dataclass(frozen=True)
class RoundSequence:
    """The rounds of all epochs, one after the other.

    Of a mixed order, a round has a window, and what is used of held records beside it:

        place       0  1  2  3  4  5  6  7  8  9        (``Shuffle``)
        record      s  h  s  s  h  s  s  h  s  s        h: is held    s: streams
        round       |---- 0 ----|---- 1 ---------|      a window of the records that stream, and
                                                        those that are used among them

    All of a round's rows are in memory at the same time, and go to other roots in one piece.

    Attributes:
        epochs: their shuffle has windows, and may hold some records, but not all of them.
        roots: number of roots that read.
    """

    epochs: Epochs
    roots: int

    @cached_property
    def _streamed(self) -> Epochs:
        """The epochs of the records that stream, as if there were no others."""
        shuffle, count = self.epochs.shuffle, self.epochs.count - self.epochs.shuffle.held
        return Epochs(count, self.epochs.seed, shuffle.streamed) if shuffle.held else self.epochs

    @cached_property
    def per_epoch(self) -> int:
        """Rounds of an epoch."""
        return len(self.rounds(0))

    def rounds(self, epoch: int) -> Rounds:
        """Return those of an epoch, of the records that stream."""
        return _rounds(self._streamed, self.roots, epoch)

    def begin(self, epoch: int, number: int) -> int:
        """Return the first place of a round in its epoch; of the one after the last, its end."""
        shuffle, first = self.epochs.shuffle, self.rounds(epoch).begin(number)
        if not shuffle.held or not first:
            return first
        if number == self.per_epoch:
            return self.epochs.count
        return int(shuffle.streamed_places(np.array([first - 1]), self.epochs.count)[0]) + 1

    def of(self, epoch: int, places: I64) -> I64:
        """Return the round of each place of an epoch."""
        held, count = self.epochs.shuffle.held, self.epochs.count
        before = places - places * held // count  # of them stream
        return self.rounds(epoch).of(np.minimum(before, count - held - 1))

    def from_place(self, place: int) -> Iterator[Round]:
        """Yield the round of a place, and all after it."""
        epoch, within = divmod(place, self.epochs.count)
        number = int(self.of(epoch, np.array([within]))[0])
        while True:
            first = epoch * self.epochs.count
            while number < self.per_epoch:
                begin, end = self.begin(epoch, number), self.begin(epoch, number + 1)
                yield Round(epoch, number, first + begin, first + end)
                number += 1
            epoch, number = epoch + 1, 0


@lru_cache(maxsize=4)
def _rounds(epochs: Epochs, roots: int, number: int) -> Rounds:
    return Rounds(Epoch(epochs.count, epochs.seed, number, epochs.shuffle), roots)
