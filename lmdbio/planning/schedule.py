"""The schedule: records of each rank in each iteration. Pure: no file, no clock, no MPI.

In iteration t a job of P ranks consumes records t*B .. (t+1)*B of the circular sequence that
begins at record ``start`` (B is the global batch size), as Caffe's data layers do. Rank p's
share of a batch is its positions floor(p*B/P) .. floor((p+1)*B/P); it may be empty.

``strided``   those very records, whatever is coalesced.
``blocked``   k iterations form an aligned window. In it each team (a root and the ranks that
              it serves) takes one contiguous chunk, teams in the order of their lowest rank;
              inside the chunk the iteration comes first, then the rank. The last window is
              shorter when the iterations are no multiple of k.
``local``     each team takes those records of a batch that it caches; what it has too many of
              goes to teams that have too few (``deal``). Rows are in the order of places.

The first two consume exactly the same records in every aligned window:

    B = 4, k = 2, two teams {0}, {1}      iteration 0      iteration 1
    strided     rank 0                    0 1              4 5
                rank 1                    2 3              6 7
    blocked     rank 0                    0 1              2 3
                rank 1                    4 5              6 7

A root fills one block per window. The rows of a block are the team's records, iteration
first, then rank (ascending); so a rank finds its own rows without being told.

Source: LMDBIO (ACM TOPC 2019), its reading order with and without coalescing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.order import Epochs, split_share
from lmdbio.system.amounts import refuse_unknown

if TYPE_CHECKING:
    from lmdbio.planning.deal import Dealt, Owner

__all__ = ["ASSIGNMENTS", "Assignment", "Places", "Run", "Schedule", "filled", "merged"]

U64 = npt.NDArray[np.uint64]

#: Places of shuffled records are int64, and go on from here.
START_MAX = 2**62


class Assignment(str, Enum):
    """The rule by which ranks get the records of a batch; equal to its word."""

    STRIDED = "strided"
    BLOCKED = "blocked"
    LOCAL = "local"

    __str__ = str.__str__

    @classmethod
    def named(
        cls, word: str, known: Collection[str] = ("strided", "blocked", "local")
    ) -> Assignment:
        """Return the rule of a word.

        Raises:
            ValueError: it is none of those that are known.
        """
        refuse_unknown("assignment", word, known)
        return cls(word)

    @property
    def has_chunks(self) -> bool:
        """Whether each team has one contiguous chunk of a block."""
        return self is Assignment.BLOCKED

    @property
    def is_dealt(self) -> bool:
        """Whether teams take what they cache, as an owner says."""
        return self is Assignment.LOCAL

    @property
    def follows_places(self) -> bool:
        """Whether a rank's records are those at its places of each batch."""
        return self is Assignment.STRIDED

    @property
    def undealt(self) -> Assignment:
        """The rule while nobody caches anything."""
        return Assignment.STRIDED if self.is_dealt else self


#: Those that need no owner.
ASSIGNMENTS = ("strided", "blocked")


class Places(NamedTuple):
    """Runs of places that begin anew ``repeats`` times, ``step`` places apart.

    Attributes:
        first: place from which the first time's runs count.
        step: places, between two times.
        repeats: times.
        runs: places of one time.
    """

    first: int
    step: int
    repeats: int
    runs: tuple[range, ...]

    @property
    def begin(self) -> int:
        """The first place of all; there is one."""
        return self.first + self.runs[0].start

    @property
    def last(self) -> int:
        """The last place of all."""
        return self.first + (self.repeats - 1) * self.step + self.runs[-1].stop - 1

    def numbers(self) -> npt.NDArray[np.int64]:
        """Return all of them: int64, shape (n,), in their order."""
        runs = [np.arange(run.start, run.stop) for run in self.runs]
        once = np.concatenate([np.empty(0, np.int64), *runs])
        times = self.first + np.arange(self.repeats)[:, np.newaxis] * self.step
        return np.asarray((times + once).ravel(), np.int64)


def filled(places: Sequence[Places], start: int) -> list[Places]:
    """Return those with any place, counted from ``start`` places before."""
    return [p._replace(first=p.first + start) for p in places if p.repeats and any(p.runs)]


def merged(ranges: Iterable[range]) -> tuple[range, ...]:
    """Return the ranges, in their order, as few as they can be."""
    runs: list[range] = []
    for one in ranges:
        if runs and runs[-1].stop == one.start:
            runs[-1] = range(runs[-1].start, one.stop)
        elif one:
            runs.append(one)
    return tuple(runs)


class Run(NamedTuple):
    """Records that one team takes from the circular sequence, one after the other.

    Attributes:
        first: place of the first, counted on from the start of the sequence.
        length: records.
        team: index of the team that takes them.
    """

    first: int
    length: int
    team: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """The records of every rank in every iteration.

    Attributes:
        count: records in the data set.
        batch_size: records per iteration, over all ranks; may exceed ``count`` (they repeat).
        teams: the job's ranks, split into the teams of its roots; each ascending, ordered by
            the first.
        assignment: "strided", "blocked" or, with ``owner``, "local", as a word or as its rule.
        block_iterations: k, iterations per block.
        start: the first record, counted modulo ``count``; with ``epochs`` the first place.
        iterations: number of iterations; None: endless, or as many as ``length`` takes.
        owner: function from records to the team that caches each, ``NOBODY`` if none; pure.
        epochs: says which record comes at which place; None: they come in their own order.
        length: places in all; the last batch may be short. None: every batch is full.

    Raises:
        ValueError: for values that describe no schedule.
    """

    count: int
    batch_size: int
    teams: tuple[tuple[int, ...], ...]
    assignment: Assignment = Assignment.STRIDED
    block_iterations: int = 1
    start: int = 0
    iterations: int | None = None
    owner: Owner | None = None
    epochs: Epochs | None = None
    length: int | None = None
    orders: Epochs = field(init=False, repr=False, compare=False)  # ``epochs``, or their own
    _deals: Callable[[int], Dealt] | None = field(init=False, repr=False, compare=False)
    _team_of: dict[int, int] = field(init=False, repr=False, compare=False)
    #: Of each team, in a full batch, and in the last one.
    _rows: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _last_rows: tuple[int, ...] = field(init=False, repr=False, compare=False)
    #: Of all teams before each.
    _rows_before: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _last_rows_before: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_numbers()
        object.__setattr__(self, "orders", self.epochs or Epochs(self.count))
        if self.length is not None:
            object.__setattr__(self, "iterations", -(-self.length // self.batch_size))
        flat = [rank for team in self.teams for rank in team]
        if sorted(flat) != list(range(len(flat))) or not all(self.teams):
            raise ValueError("teams must hold every rank once, and none may be empty")
        if any(list(t) != sorted(t) for t in self.teams) or list(self.teams) != sorted(self.teams):
            raise ValueError("teams and their ranks must be in ascending order")
        team_of = {rank: i for i, team in enumerate(self.teams) for rank in team}
        object.__setattr__(self, "_team_of", team_of)
        last = None if self.iterations is None else self.iterations - 1
        for name, iteration in (("_rows", None), ("_last_rows", last)):
            shares = [[self.share(rank, iteration) for rank in team] for team in self.teams]
            rows = tuple(sum(map(len, team)) for team in shares)
            object.__setattr__(self, name, rows)
            object.__setattr__(self, f"{name}_before", (0, *accumulate(rows)))
        object.__setattr__(self, "_deals", self._make_deals())

    def _make_deals(self) -> Callable[[int], Dealt] | None:
        if not self.assignment.is_dealt or self.owner is None:
            return None
        from lmdbio.planning.deal import cached_deals  # others begin sooner without it

        plain = replace(self, assignment=self.assignment.undealt, owner=None)
        places = self.block_iterations * self.batch_size
        return cached_deals(partial(_dealt, plain, self.owner), places)

    def _check_numbers(self) -> None:
        if self.count < 1:
            raise ValueError("the data set holds no records: there is nothing to iterate over")
        for name in ("batch_size", "block_iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("iterations", "length"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must not be negative ({value})")
        if self.epochs is not None and not 0 <= self.start <= START_MAX:
            raise ValueError(
                f"start must be a place from 0 to {START_MAX:,} for shuffled records, "
                f"not {self.start}"
            )
        known = ASSIGNMENTS if self.owner is None else tuple(Assignment)
        object.__setattr__(self, "assignment", Assignment.named(self.assignment, known))

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self._team_of)

    @property
    def blocks(self) -> int | None:
        """Number of blocks; None: endless."""
        if self.iterations is None:
            return None
        return -(-self.iterations // self.block_iterations)

    # --- batches and shares

    def batch_length(self, iteration: int) -> int:
        """Records of an iteration: ``batch_size``, or fewer in the last."""
        if self.length is None:
            return self.batch_size
        return min(self.batch_size, self.length - iteration * self.batch_size)

    def place_after(self, iterations: int) -> int:
        """Return the place at which the sequence goes on after so many iterations."""
        used = iterations * self.batch_size
        return self.start + (used if self.length is None else min(used, self.length))

    def start_after(self, iterations: int) -> int:
        """Return ``start`` of a schedule that goes on after so many iterations, with any teams.

        Raises:
            ValueError: each team is in the middle of a chunk of its own: what is left begins at no
                one place.
        """
        block, into = self.block_of(iterations)
        has_chunks = self.assignment.has_chunks and len(self.teams) > 1
        if has_chunks and into and iterations != self.iterations:
            raise ValueError(
                f"{str(self.assignment)!r} goes on only where a block of {self.block_iterations} "
                f"iterations ends, which is after {self.block_length(block) - into} more"
            )
        return self.place_after(iterations)

    @property
    def first_place(self) -> int:
        """The place of the endless sequence of records at which this one begins."""
        return self.start % self.count if self.epochs is None else self.start

    @property
    def epoch_places(self) -> int:
        """How many places an epoch takes."""
        return self.count if self.epochs is None else self.epochs.places

    @property
    def end(self) -> int | None:
        """The number of places in all; None: endless."""
        if self.iterations is None:
            return None
        return self.place_after(self.iterations) - self.start

    def share(self, rank: int, iteration: int | None = None) -> range:
        """Positions of ``rank`` in the batch of an iteration; None: in each that is full."""
        size = self.batch_size if iteration is None else self.batch_length(iteration)
        return split_share(size, len(self._team_of), rank)

    def team_of(self, rank: int) -> int:
        """Return the team of ``rank``."""
        return self._team_of[rank]

    def team_rows(self, team: int) -> int:
        """Records that ``team`` consumes in a full iteration."""
        return self._rows[team]

    def team_shares(self, iteration: int) -> tuple[int, ...]:
        """Records that each team consumes in an iteration."""
        return self._last_rows if self.is_short(iteration) else self._rows

    def is_short(self, iteration: int) -> bool:
        """Whether the batch of an iteration is not full: the last one may be so."""
        return self.batch_length(iteration) < self.batch_size

    # --- blocks

    def block_of(self, iteration: int) -> tuple[int, int]:
        """(block, iteration within it)."""
        return divmod(iteration, self.block_iterations)

    def block_length(self, block: int) -> int:
        """Iterations in ``block``: k, or fewer in the last."""
        if self.iterations is None:
            return self.block_iterations
        return min(self.block_iterations, self.iterations - block * self.block_iterations)

    def span(self, block: int) -> range:
        """The places of all teams' rows in a block, counted from the start of the sequence."""
        size = self.block_iterations * self.batch_size
        first = block * size
        return range(first, first + size if self.end is None else min(first + size, self.end))

    def _block_rows(self, block: int, full: int, last: int) -> int:
        """Records of a block, of which ``full`` are in a full batch and ``last`` in the last."""
        first, length = block * self.block_iterations, self.block_length(block)
        rows = length * full
        return rows + (last - full if self.is_short(first + length - 1) else 0)

    def _team_rows(self, block: int, team: int) -> int:
        """Records that ``team`` consumes in a block."""
        return self._block_rows(block, self._rows[team], self._last_rows[team])

    def rows(self, iteration: int, rank: int) -> range:
        """Rows of ``rank`` in its block's table in an iteration."""
        team, (_, step) = self.team_of(rank), self.block_of(iteration)
        first = step * self._rows[team]
        for other in self.teams[team]:
            if other == rank:
                break
            first += len(self.share(other, iteration))
        return range(first, first + len(self.share(rank, iteration)))

    # --- places: positions of the sequence, counted from its start

    def chunk(self, block: int, team: int) -> int:
        """``blocked``: the first place of the team's chunk."""
        before = self._block_rows(block, self._rows_before[team], self._last_rows_before[team])
        return block * self.block_iterations * self.batch_size + before

    def team_places(self, block: int, team: int) -> tuple[Places, ...]:
        """Return the places of a block's rows, in their order, by few runs; not of ``local``.

        Counted from the start of the sequence.
        """
        assert not self.assignment.is_dealt
        if self.assignment.has_chunks:
            run = range(self._team_rows(block, team))
            return (Places(self.chunk(block, team), 0, 1, (run,)),)
        first, length = block * self.block_iterations, self.block_length(block)
        full = length - self.is_short(first + length - 1)
        step, last = self.batch_size, first + full
        shares = merged(self.share(rank) for rank in self.teams[team])
        places = (Places(first * step, step, full, shares),)
        if full == length:
            return places
        rest = merged(self.share(rank, last) for rank in self.teams[team])
        return (*places, Places(last * step, step, 1, rest))

    # --- records

    def records_at(self, places: Sequence[Places]) -> npt.NDArray[np.int64]:
        """Return the records at places, counted from the start of the sequence, in their order."""
        places = filled(places, self.first_place)
        if self.epochs is not None:
            return _shuffled(self.epochs, places)
        numbers = [p.numbers() for p in places]
        return np.concatenate([np.empty(0, np.int64), *numbers]) % self.count

    def sequence(self, places: range) -> U64:
        """Record numbers at neighbouring places, counted from the start of the sequence."""
        origin, length = (self.start + places.start) % self.count, len(places)
        if self.epochs is None and origin + length <= self.count:
            return np.arange(origin, origin + length, dtype=np.uint64)
        return self.records_at([Places(places.start, 0, 1, (range(length),))]).view(np.uint64)

    def dealt(self, block: int) -> Dealt:
        """Return which team takes which record of a block; of ``local`` alone."""
        assert self._deals is not None
        return self._deals(block)

    def records(self, iteration: int, rank: int) -> U64:
        """Record indices of ``rank`` in ``iteration``: uint64, shape (share,)."""
        share, team = self.share(rank, iteration), self.team_of(rank)
        if self.assignment.follows_places:
            first = iteration * self.batch_size
            return self.sequence(range(first + share.start, first + share.stop))
        block, rows = self.block_of(iteration)[0], self.rows(iteration, rank)
        if self.assignment.is_dealt:
            return self.dealt(block).records_of(team)[rows.start : rows.stop]
        chunk = self.chunk(block, team)
        return self.sequence(range(chunk + rows.start, chunk + rows.stop))

    def team_records(self, block: int, team: int) -> U64:
        """Record indices of a block's rows: uint64, shape (rows,)."""
        if self.assignment.is_dealt:
            return self.dealt(block).records_of(team)
        if self.assignment.has_chunks:
            chunk = self.chunk(block, team)
            return self.sequence(range(chunk, chunk + self._team_rows(block, team)))
        return self.records_at(self.team_places(block, team)).view(np.uint64)

    def course(self, block: int) -> tuple[Run, ...]:
        """All records of a block of one iteration, in the order of the sequence, by team."""
        if self.block_iterations != 1 or self.assignment.is_dealt or self.epochs is not None:
            raise ValueError("only blocks of one iteration that follow the sequence have a course")
        first = block * self.batch_size
        if self.assignment.has_chunks:
            teams = range(len(self.teams))
            chunks = [Run(self.chunk(block, i), self._team_rows(block, i), i) for i in teams]
            return tuple(run for run in chunks if run.length)
        runs: list[Run] = []
        for rank in range(self.ranks):
            share, team = self.share(rank, block), self.team_of(rank)
            if not len(share):
                continue
            if runs and runs[-1].team == team:
                runs[-1] = runs[-1]._replace(length=runs[-1].length + len(share))
            else:
                runs.append(Run(first + share.start, len(share), team))
        return tuple(runs)

    def runs(self, team: int) -> tuple[int, ...]:
        """Lengths of the contiguous runs of positions that ``team`` has in each batch.

        Not of ``local``, where each batch has others.
        """
        assert not self.assignment.is_dealt
        return tuple(map(len, merged(self.share(rank) for rank in self.teams[team])))


def _shuffled(epochs: Epochs, places: list[Places]) -> npt.NDArray[np.int64]:
    """Return the records at places of the endless sequence of epochs."""
    if not places:
        return np.empty(0, np.int64)
    shuffle, is_mixed = epochs.shuffle, epochs.shuffle.held and epochs.seed is not None
    if shuffle.order is not None or is_mixed or epochs.is_stepped:
        return epochs.samples(np.concatenate([p.numbers() for p in places]))
    first, last = places[0].begin // epochs.count, places[-1].last // epochs.count
    shufflings = [epochs.epoch(number).shuffling for number in range(first, last + 1)]
    return _core.find_records(shufflings, first, places)


def _dealt(plain: Schedule, owner: Owner, number: int) -> Dealt:
    """Deal a block of a schedule by which nobody has cached anything yet."""
    from lmdbio.planning.deal import Dealt, deal_batches

    span, first = plain.span(number), number * plain.block_iterations
    iterations = range(first, first + plain.block_length(number))
    shares = [plain.team_shares(iteration) for iteration in iterations]
    records = plain.sequence(span)
    return Dealt(span.start, records, deal_batches(owner(records), shares).astype(np.uint32))
