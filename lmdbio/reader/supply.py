"""Supply: reads the rows of a block, from the file, into a slot.

    prepare    finds where the block's records lie, and plans their reads
    submit     starts them: the block is the last of ``flights``
    guard      makes sure that the file has not changed, when they have arrived

A root's thread asks for one block after the other and decides when: it knows of turns, of free
slots and of ranks that wait; the supply of none of them.

Where one cursor goes from root to root (mode "dm"), the supply guesses where records lie until the
cursor has come by them, reads there at once, and afterwards only the records that it missed.

Source: LMDBIO (ACM TOPC 2019): sequential and speculative access, direct I/O, coalesced blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.locate.cursor_walk import CursorWalk
from lmdbio.machine.budget import cached_bytes_max
from lmdbio.observe.stats import StageCounter, Stats
from lmdbio.placement.sources import row_epochs
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.speculation import Guess
from lmdbio.reader.flow import Awaited, Flight
from lmdbio.reader.root_mail import RootMail
from lmdbio.reader.roots import RootSource
from lmdbio.reading.engines import is_on_disk

__all__ = ["FileSupply", "PendingBlock", "Supply"]


@dataclass(frozen=True, slots=True)
class _Speculated:
    """A guess whose reads are in flight, or done."""

    guess: Guess
    plan: _core.Plan
    ticket: _core.Ticket


@dataclass(slots=True)
class PendingBlock:
    """The block that the root reads next.

    Attributes:
        awaited: reads that must arrive before it can be submitted, or what other roots must take
            before; None: there is nothing.
        extents: extents of its records; None: not known yet.
        plan: plan of its reads; None: not made yet.
        speculated: reads that began before the supply knew where the records lie.
        is_guessed: whether the supply has tried to guess.
        is_swept: whether the file is brought to the page cache whole; all of it, or as much as the
            block needs, is ``awaited``.
    """

    number: int
    awaited: Awaited | None = None
    extents: _core.Extents | None = None
    plan: _core.Plan | None = None
    speculated: _Speculated | None = None
    is_guessed: bool = False
    is_swept: bool = False

    def has_arrived(self, timeout_ms: int = 0) -> bool:
        """Return whether the block waits for nothing any more."""
        return self.awaited is None or self.awaited.poll(timeout_ms)


class _Sweep(NamedTuple):
    """The file on its way to the page cache, as far as a block needs it."""

    prefetch: _core.Prefetch
    awaited: range

    def poll(self, timeout_ms: int = 0) -> bool:
        return self.prefetch.poll(self.awaited, timeout_ms)


class Supply(ABC):
    """The rows of blocks, for a root's thread; where nothing is said, other roots need none of it.

    Attributes:
        path: path of the file.
        flights: blocks whose reads are under way, oldest first; the root's thread takes them out.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.flights: deque[Flight] = deque()

    @abstractmethod
    def prepare(self, pending: PendingBlock, alive: Callable[[], None], *, may_read: bool) -> bool:
        """Do what can be done for a block by now; return whether it can be submitted.

        Args:
            pending: the block.
            alive: function that is called now and then while it takes long; may raise.
            may_read: whether there is a slot and a turn for the block.

        Raises:
            ValueError: the block does not fit its slot.
            OSError, Error: its records cannot be found, or read.
        """

    @abstractmethod
    def submit(self, pending: PendingBlock) -> Flight:
        """Start the reads of a prepared block into its slot."""

    def guard(self) -> None:  # noqa: B027 (rows of other roots are guarded before they are sent)
        """Raise Error where the file has changed since the records were found."""

    @property
    def is_cold(self) -> bool:
        """Whether this root still reads what its own ranks wait for before the first block."""
        return False

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes that this root caches by now, and those that it is to cache."""
        return 0, 0

    def tend(self) -> None:  # noqa: B027
        """Do what other roots wait for."""

    @property
    def serves(self) -> bool:
        """Whether another root may need rows of this one."""
        return False

    def nap_ms(self, rested_s: float) -> int:  # noqa: ARG002 (of a joint supply)
        """Return how long the root may wait at once, ms, at most.

        Args:
            rested_s: time for which it has waited already, seconds.
        """
        return _core.SLICE_MS

    def leave(self) -> bool:
        """Return whether no root depends on this one, which reads no more for itself."""
        return True

    def judge(self, flight: Flight, times: tuple[float, float]) -> None:  # noqa: B027
        """Note how long a block past the page cache took.

        Args:
            flight: the block.
            times: beginning and end of its reads (``Ticket.times``).
        """

    @abstractmethod
    def drop(self, pending: PendingBlock | None) -> None:
        """Give up all reads that are under way, those for ``pending`` included."""

    @abstractmethod
    def engines(self) -> Stats:
        """Return the engines' counts; also after ``close``."""

    @abstractmethod
    def close(self) -> None:
        """Close what the root reads with."""


class FileSupply(Supply):
    """Reads the blocks of one root's team from the file. Owns ``source``.

    Args:
        source: the root's open data set and engines.
        schedule: says which records a block has.
        team: index of the root's team in the schedule.
        window: window whose slots the supply fills.
        mail: brings the cursor, where roots share one.
        request_bytes_max: bytes per request.
        mapped_bytes_max: bytes of the page cache that are copied out of a mapping, where a disk of
            this machine is under the file: a call for each record would take longer than its copy.
        counter: counts what is located, planned, submitted and guessed.
    """

    def __init__(
        self,
        source: RootSource,
        schedule: Schedule,
        team: int,
        window: share.NodeWindow,
        mail: RootMail,
        request_bytes_max: int,
        mapped_bytes_max: int,
        counter: StageCounter,
    ) -> None:
        super().__init__(source.index.path)
        self._source, self._schedule, self._team = source, schedule, team
        self._window, self._mail, self._counter = window, mail, counter
        self._options = PlanOptions(source.choice.gap_bytes_max, request_bytes_max)
        # A guess is read as it is: what lies between its ranges is no record of the block.
        self._guess_options = PlanOptions(0, request_bytes_max)
        self._alignment = source.read_alignment
        #: Where records lie all over a file on a disk of this machine; other roots of other nodes
        #: would each bring all of a file that they share.
        self._prefetch: _core.Prefetch | None = None
        if is_on_disk(source.engine):
            self._prefetch = _core.Prefetch(
                source.engine, source.engine.size(), piece=0, sweep_bytes_max=cached_bytes_max()
            )
            if mapped_bytes_max > 0:
                source.engine.map_cached(mapped_bytes_max)

    def close(self) -> None:
        """Close what the root reads with."""
        if self._prefetch is not None:
            self._prefetch.close()
        self._source.close()

    def engines(self) -> Stats:
        """Return the engines' counts; also after ``close``."""
        return self._source.stats()

    # --- a block is prepared

    def prepare(self, pending: PendingBlock, alive: Callable[[], None], *, may_read: bool) -> bool:
        """Find where the block's records lie, and plan its reads, if that can be done by now.

        With ``may_read``, guesses may be read; they must have arrived before it is submitted.
        """
        if self._mail.relay is not None:
            if may_read:
                self._guess(pending)
            self._seek(pending, alive, may_read=may_read)
        if pending.extents is None:
            begun = monotonic_ns()
            pending.extents = self._locate(pending.number, alive)
            if pending.extents is None:
                return False
            self._counter.span("locate", begun, located_records=len(pending.extents))
            self._sweep(pending, pending.extents)
        if pending.plan is None and pending.speculated is None:
            begun = monotonic_ns()
            pending.plan = self._plan(pending.number, pending.extents)
            self._counter.planned(begun, pending.plan.totals)
        return True

    def _sweep(self, pending: PendingBlock, extents: _core.Extents) -> None:
        """Have the file brought to the page cache whole, once that pays for such blocks."""
        if self._prefetch is None or pending.speculated is not None:
            return
        size = int(extents["length"].sum())
        awaited = self._prefetch.sweep(extents, block_bytes=max(1, size))
        if awaited is not None:
            pending.is_swept, pending.awaited = True, _Sweep(self._prefetch, awaited)

    def _locate(self, number: int, alive: Callable[[], None]) -> _core.Extents | None:
        """Return the extents of a block's records; None: the cursor has not come by them yet."""
        relay, index = self._mail.relay, self._source.index
        if relay is not None:
            return relay.found(number, alive)
        records = self._schedule.team_records(number, self._team)
        if isinstance(index, CursorWalk):
            return index.extents(records, alive)
        return index.extents(records)

    def _plan(self, number: int, extents: _core.Extents) -> _core.Plan:
        """Return the reads of a block, which fit a slot.

        Raises:
            ValueError: they do not.
        """
        room = self._window.layout.data_bytes
        plan = plan_reads(extents, self._options, alignment=self._alignment, room_bytes=room)
        if plan.totals.buffer_bytes <= room:
            return plan
        raise ValueError(
            f"{self.path}: the records of block {number} need {plan.totals.buffer_bytes} bytes of "
            f"window on this root, and its part of the memory budget has "
            f"{room}: take a smaller batch_size, fewer slots, or a larger "
            "memory_bytes_max"
        )

    # --- its reads begin

    def submit(self, pending: PendingBlock) -> Flight:
        """Start the reads of a prepared block into its slot.

        Raises:
            MemoryError: there is no memory for the slot.
            OSError, Error: the engine refuses the reads.
        """
        assert pending.extents is not None
        speculated, base, plan, offsets = pending.speculated, 0, pending.plan, None
        if speculated is not None:
            base, plan, offsets = self._complete(pending.extents, speculated)
        if plan is None:
            plan = self._plan(pending.number, pending.extents)
        if offsets is None:
            offsets = plan.slices
        totals = plan.totals
        if speculated is not None:
            self._counter.planned(monotonic_ns(), totals)
        lengths = np.ascontiguousarray(pending.extents["length"], np.uint64)
        first = 0
        for epoch, end in row_epochs(self._schedule, pending.number, self._team):
            size = _core.rows_room(lengths[first:end])
            self._counter.sourced("file", end - first, size, epoch)
            first = end
        size = base + totals.buffer_bytes
        address = self._slot(pending.number, size)
        direct = None
        if not pending.is_swept:
            direct = self._source.direct_path.engine(totals.buffer_bytes)
        into = address + self._window.layout.table_bytes + base
        begun = monotonic_ns()
        engine = direct or self._source.engine
        ticket = engine.submit_plan(plan, into, self._window)
        flight = Flight(
            pending.number,
            ticket,
            address,
            offsets,
            lengths,
            size,
            direct is not None,
            totals.requests,
            engine.depth,
        )
        # From here on ``drop`` closes it, whatever happens.
        self.flights.append(flight)
        self._counter.span("submit", begun)
        if speculated is not None:
            speculated.ticket.close()
            pending.speculated = pending.awaited = None
        return flight

    def _complete(
        self, extents: _core.Extents, speculated: _Speculated
    ) -> tuple[int, _core.Plan | None, npt.NDArray[np.uint64] | None]:
        """Plan the reads of records that a guess has missed, behind the guess in the slot.

        Returns:
            Bytes of the slot that the guess fills, the plan, and where each record begins. Where
            the slot has no room for both: 0, None and None, for all is read anew.
        """
        base = speculated.plan.totals.buffer_bytes
        places = speculated.guess.places(extents, speculated.plan.slices)
        room = self._window.layout.data_bytes - base
        missed = places < 0
        plan = plan_reads(
            extents[missed], self._options, alignment=self._alignment, room_bytes=room
        )
        if plan.totals.buffer_bytes > room:
            self._counter.count(guessed_bytes=base)
            return 0, None, None
        self._counter.count(guessed_bytes=base, guessed_records=int((places >= 0).sum()))
        offsets = places.astype(np.uint64)
        offsets[missed] = plan.slices + np.uint64(base)
        return base, plan, offsets

    def _slot(self, number: int, size: int) -> int:
        """Return the address of a block's slot, with memory for ``size`` bytes of data."""
        slot = number % self._window.layout.slots
        self._window.reserve(slot, size)
        return self._window.fill_addresses[slot]

    # --- its reads arrive

    def guard(self) -> None:
        """Raise Error where the file has changed since the records were found."""
        self._source.index.guard()

    def judge(self, flight: Flight, times: tuple[float, float]) -> None:
        """Note how long a block took, so that the direct path sees whether it pays."""
        self._source.direct_path.record(flight.bytes, times)

    def drop(self, pending: PendingBlock | None) -> None:
        """Give up all reads that are under way, those for ``pending`` included."""
        if pending is not None and pending.speculated is not None:
            pending.speculated.ticket.close()
        for flight in self.flights:
            flight.ticket.close()

    # --- guessing, and seeking with the other roots

    def _guess(self, pending: PendingBlock) -> None:
        """Start to read where the block's records probably lie."""
        speculation = self._mail.speculation
        if speculation is None or pending.is_guessed or pending.extents is not None:
            return
        pending.is_guessed = True
        runs = [run for run in self._schedule.course(pending.number) if run.team == self._team]
        guess = speculation.guess(runs, self._schedule.start)
        if guess is None:
            return
        plan = plan_reads(guess.ranges, self._guess_options, alignment=self._alignment)
        if plan.totals.buffer_bytes > self._window.layout.data_bytes:
            return
        address = self._slot(pending.number, plan.totals.buffer_bytes)
        into = address + self._window.layout.table_bytes
        ticket = self._source.engine.submit_plan(plan, into, self._window)
        pending.speculated, pending.awaited = _Speculated(guess, plan, ticket), ticket

    def _seek(self, pending: PendingBlock, alive: Callable[[], None], *, may_read: bool) -> None:
        """Seek with the other roots; not before speculated reads have arrived."""
        relay, speculation = self._mail.relay, self._mail.speculation
        assert relay is not None
        is_due = may_read and pending.has_arrived()
        begun, before = monotonic_ns(), relay.sought
        is_found = self._mail.seek(
            pending.number, is_due=is_due, is_found=pending.extents is not None, alive=alive
        )
        if relay.sought != before:
            self._counter.span("locate", begun, located_records=0)
        if is_found and pending.extents is None and speculation is not None:
            for first, extents in relay.upcoming(pending.number):
                speculation.learn(first, extents)
