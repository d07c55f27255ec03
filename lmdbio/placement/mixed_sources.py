"""mixed sources: which root brings each row where some have a home and others stream. Pure.

    place       0  1  2  3  4  5  6  7  8  9        of a mixed order (``mixing``)
    record      s  h  s  s  h  s  s  h  s  s        h: has a home    s: streams
    round       |---- 0 ----|---- 1 ---------|      a window of the records that stream, and those
                                                    with a home that are used among them

A root brings for a round the records of its home that are used in it, and its slice of the window.
So all of a round's rows are in memory at the same time, and go to other roots in one piece.

Source: DeepIO (Zhu et al.), sections III-B and III-C, of which this is both at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.homes import HomeSources
from lmdbio.placement.sources import BlockSources, RoundUses, seats
from lmdbio.planning import mixing
from lmdbio.planning.order import Epochs
from lmdbio.planning.rounds import Round, RoundSequence

__all__ = ["MixedRounds", "MixedSources"]

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MixedRounds:
    """The rounds of a mixed order.

    Attributes:
        epochs: their shuffle holds some records, and not all of them.
        roots: number of roots that read.
    """

    epochs: Epochs
    roots: int

    @property
    def _held(self) -> int:
        return self.epochs.shuffle.held

    @cached_property
    def streamed(self) -> RoundSequence:
        """The rounds of the records that stream, as if there were no others."""
        shuffle, count = self.epochs.shuffle, self.epochs.count - self._held
        return RoundSequence(Epochs(count, self.epochs.seed, shuffle.streamed), self.roots)

    @cached_property
    def per_epoch(self) -> int:
        """Rounds of an epoch."""
        return self.streamed.per_epoch

    def begin(self, epoch: int, number: int) -> int:
        """Return the first place of a round in its epoch; of the one after the last, its end."""
        if number == self.per_epoch:
            return self.epochs.count
        first = self.streamed.rounds(epoch).begin(number)
        if not first:
            return 0
        before = np.array([first - 1])
        return int(mixing.second_places(before, self._held, self.epochs.count)[0]) + 1

    def of(self, epoch: int, places: I64) -> I64:
        """Return the round of each place of an epoch."""
        before = places - places * self._held // self.epochs.count  # of them stream
        last = self.epochs.count - self._held - 1
        return self.streamed.rounds(epoch).of(np.minimum(before, last))

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


@dataclass(frozen=True)
class MixedSources:
    """Says who brings what, for a schedule whose order is mixed.

    Attributes:
        home: sources of the records that have a home: those that the order holds. Its schedule is
            strided or blocked.
        sequence: sequence of the rounds.
    """

    home: HomeSources
    sequence: MixedRounds = field(init=False)
    _seats: _core.Seats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schedule = self.home.schedule
        assert schedule.epochs is not None
        object.__setattr__(self, "sequence", MixedRounds(schedule.epochs, len(schedule.teams)))
        object.__setattr__(self, "_seats", seats(schedule))

    def is_there(self, epoch: int) -> bool:
        """Whether records with a home that are used in an epoch were read before it began."""
        return self.home.is_there(epoch)

    def passing(self, records: I64) -> Flags:
        """Return which records stream: they are read for one round alone."""
        return np.asarray(records >= self.sequence.epochs.shuffle.held)

    def block(self, number: int, team: int) -> BlockSources:
        """Return where the rows of a block come from."""
        schedule, epochs = self.home.schedule, self.sequence.epochs
        parts = [p for p in schedule.team_places(number, team) if p.repeats and p.runs]
        places = np.concatenate([np.empty(0, np.int64), *(p.numbers() for p in parts)])
        places += schedule.first_place
        records = epochs.samples(places)
        rounds, roots = np.empty_like(places), np.empty(len(places), np.uint16)
        for epoch, rows in self._by_epoch(places):
            within = places[rows] - epoch * epochs.count
            rounds[rows] = epoch * self.sequence.per_epoch + self.sequence.of(epoch, within)
            roots[rows] = self._roots(epoch, records[rows])
        orders, numbers, holders, begins = [], [], [], [np.zeros(1, np.int64)]
        bounds = np.flatnonzero(np.diff(rounds, prepend=-1, append=-1))
        for first, end in itertools.pairwise(bounds.tolist()):
            order, found, ends = _core.find_homes(roots[first:end], np.arange(end - first))
            orders.append(order + first)
            holders.append(found)
            numbers.append(np.full(len(found), rounds[first]))
            begins.append(ends[1:] + first)
        none = np.empty(0, np.int64)
        return BlockSources(
            records,
            np.concatenate([none, *orders]),
            np.concatenate([none, *numbers]),
            np.concatenate([none, *holders]),
            np.concatenate(begins),
        )

    def uses(self, one: Round, root: int) -> RoundUses:
        """Return what becomes of the records that ``root`` brings for a round."""
        schedule, epochs = self.home.schedule, self.sequence.epochs
        begin, end = max(one.begin, schedule.first_place), one.end
        if schedule.end is not None:
            end = min(end, schedule.first_place + schedule.end)
        places = np.arange(begin, max(begin, end))
        records = epochs.samples(places)
        roots = self._roots(one.epoch, records)
        # By rows, since a record that streams has its root for this round alone.
        found = _core.find_home_uses(
            roots, root, self._seats, begin - schedule.first_place, np.arange(len(records))
        )
        rows, own, order, *runs = found
        by_record = np.argsort(records[rows])
        at = np.empty_like(by_record)
        at[by_record] = np.arange(len(by_record))
        return RoundUses(records[rows][by_record], own, at[order], *runs)

    def _by_epoch(self, places: I64) -> Iterator[tuple[int, slice]]:
        """Yield the epochs of places that ascend, and which of them are of each."""
        if not len(places):
            return
        count = self.sequence.epochs.count
        for epoch in range(int(places[0]) // count, int(places[-1]) // count + 1):
            bounds = np.searchsorted(places, [epoch * count, (epoch + 1) * count])
            yield epoch, slice(*bounds.tolist())

    def _roots(self, epoch: int, records: I64) -> U16:
        """Return the root that brings each record in an epoch."""
        held = self.sequence.epochs.shuffle.held
        roots = np.empty(len(records), np.uint16)
        streams = records >= held
        roots[~streams] = self.home.homes.records[records[~streams]]
        rounds = self.sequence.streamed.rounds(epoch)
        roots[streams] = rounds.holder(records[streams] - held)
        return roots
