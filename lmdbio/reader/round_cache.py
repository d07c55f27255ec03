"""round_cache: records that a root has in memory, round by round, for its own team and others.

    round -> its records arrive -> own rows are copied, other roots' are handed to the exchange
          -> used up, when the last row is copied or packed

``Windows``, ``ShardRows`` and ``RecordRows`` say what a round is, how its records arrive, and what
becomes of their memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.observe.stats import Source, StageCounter, Stats
from lmdbio.placement.sources import BlockSources, RoundUses
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.block_size import WindowBuffers
from lmdbio.reader.flow import Awaited
from lmdbio.reader.roots import RootSource

if TYPE_CHECKING:
    from lmdbio.cache import CacheShard  # others begin sooner without it

__all__ = ["BlockCache", "LoadedRound", "RootContext", "RoundCache"]

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Blocks that are looked at ahead, so that other roots find their rows whatever this one's ranks
#: do; of many rows, each of which takes 60 bytes, at least so many; and how many at a time.
BLOCKS_AHEAD, BLOCKS_AHEAD_MIN, ROWS_AHEAD, BLOCKS_AT_ONCE = 64, 4, 2**19, 2
#: Between two words to roots that wait, seconds: they give rows up after one without any.
SIGN_SECONDS = 0.2


@dataclass(slots=True, kw_only=True)
class LoadedRound:
    """The records of a round, in memory or on their way there.

    Attributes:
        number: number of the round, counted from the first epoch's first.
        uses: uses of its records, by team and block.
        loaded: the records in memory.
        own_left: rows that this root's team has not taken yet.
        copies: copies of its rows that are still in flight.
        shipment: rows that other roots have not got yet; None: there are none.
        has_arrived: whether it has been handed on.
    """

    number: int
    uses: RoundUses
    loaded: _core.Loaded
    own_left: int
    copies: list[_core.Copying] = field(default_factory=list)
    shipment: _core.Shipment | None = None
    has_arrived: bool = False

    def by_source(self, records: I64) -> Iterator[tuple[Source, Flags | slice]]:  # noqa: ARG002
        """Yield the sources of some of its records, and which of them come from each."""
        yield "own", slice(None)

    def close(self) -> None:
        """Give up what is under way."""
        self.copies.clear()

    @property
    def is_used_up(self) -> bool:
        """Whether nobody needs a row of it any more."""
        if not self.has_arrived or self.own_left:
            return False
        self.copies = [one for one in self.copies if not one.poll()]
        is_shipped = self.shipment is None or not self.shipment.left
        return is_shipped and not self.copies


class RootContext(NamedTuple):
    """The values by which a root brings rows, out of its memory and others'.

    Attributes:
        source: its open data set and engines.
        schedule: schedule of the job.
        root: index of the root in the schedule.
        options: options of its reads from the data file.
        buffers: memory for windows; none: each of its rows has an owner, or is read by itself.
        stage_bytes_max: largest size of rows on their way from a disk; more only for one block.
        exchange: takes rows to other roots, and brings theirs; None: this is the only one, or
            nothing is sent.
        counter: counts what is located, planned, submitted and cached.
    """

    source: RootSource
    schedule: Schedule
    root: int
    options: PlanOptions
    buffers: WindowBuffers
    stage_bytes_max: int
    exchange: share.Exchange | None
    counter: StageCounter


R = TypeVar("R", bound=LoadedRound)


class RoundCache(ABC, Generic[R]):
    """The records that one root has in memory, in the order of their rounds.

    Args:
        context: values by which the root brings them; borrowed.
        shard: shard of the root, open; None: it has none.
        waits: whether nothing is handed out before all that it caches is there.
    """

    def __init__(
        self, context: RootContext, shard: CacheShard | None = None, *, waits: bool = False
    ) -> None:
        self._source, self._options = context.source, context.options
        self._counter, self._exchange = context.counter, context.exchange
        self._shard, self._waits = shard, waits
        self._rounds: deque[R] = deque()  # those that are not used up, oldest first
        self._is_closed = False
        self._is_for_others = False  # this root's own team needs no more
        self._signed_s = -SIGN_SECONDS  # when other roots heard last that it reads
        self._signed_at = 0  # and at which step of the shard
        self._slowest_s = 0.0  # the longest time lately of what is read beside the shard
        #: The grains of the shard, which rounds lie in.
        self._grains = None if shard is None else shard.memory

    @property
    @abstractmethod
    def awaited(self) -> Awaited | None:
        """Reads that are under way for the next round; None: there are none."""

    @property
    @abstractmethod
    def progress(self) -> object:
        """A value that changes whenever this root makes progress."""

    @property
    def pace(self) -> object:
        """A value that changes when roots that advance alike have made progress."""
        return self.progress

    @property
    def slowest_s(self) -> float:
        """The longest time that a round took to arrive lately, seconds."""
        if self._shard is None:
            return self._slowest_s
        return max(self._slowest_s, self._shard.polling.slowest_s)

    @property
    def is_cold(self) -> bool:
        """Whether something is to be there before anything is handed out, and is not."""
        if self._shard is None or self._is_closed:
            return False
        return self._waits and not self._shard.table.is_full

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes that are cached by now, and those that are to be."""
        return (0, 0) if self._shard is None else self._shard.table.warmth

    @property
    def is_held_up(self) -> bool:
        """Whether rounds behind wait for memory of those that others have not asked for."""
        return False

    @property
    def counts(self) -> Stats:
        """The memory, and room on a disk, that is taken over all rounds, and what has damage."""
        return Stats() if self._shard is None else self._shard.counts

    def tend(self) -> None:
        """Hand on what has arrived, and read more.

        Raises:
            OSError, Error: it cannot be read.
        """
        shard = self._shard
        if shard is not None:
            shard.polling.tend()
            if shard.polling.steps != self._signed_at:
                self._signed_at = shard.polling.steps
                self._sign()
        self._advance()
        if shard is not None and not self._is_closed:
            shard.polling.sweep()

    @abstractmethod
    def _advance(self) -> None:
        """Hand on rounds that have arrived, and read more of them."""

    def close(self) -> None:
        """Give up what is under way, and all rounds."""
        self._is_closed = True
        if self._shard is not None:
            self._shard.close()
        for one in self._rounds:
            one.close()
        self._rounds.clear()

    def find(self, sources: BlockSources, run: int) -> R | None:
        """Return what there is for a run of a block's rows; None: nothing yet."""
        number = int(sources.rounds[run])
        return next((one for one in self._rounds if one.number == number), None)

    @property
    def oldest_shipment(self) -> _core.Shipment | None:
        """The rows of the oldest round that others have not got yet; None: there are none."""
        return self._rounds[0].shipment if self._rounds else None

    def free(self) -> None:
        """Free the memory of what was cached; after ``close`` and the end of the exchange."""
        self._grains = None

    def revoke(self) -> None:
        """Revoke rows that roots far behind have not asked for: their memory is needed."""
        if self._rounds and self._rounds[0].shipment is not None:
            self._rounds[0].shipment.expire()

    def serve_others(self) -> None:
        """Note that this root's own team needs no more rows, and that none are copied for it."""
        self._is_for_others = True
        for one in self._rounds:
            one.own_left = 0
            one.copies.clear()

    def _drop_used_up(self) -> None:
        """Forget the oldest rounds of which nobody needs a row any more."""
        while self._rounds and self._rounds[0].is_used_up:
            self._release(self._rounds.popleft())

    def _release(self, one: R) -> None:
        """Give back what a round has taken that is used up: nothing, unless it says so."""

    def _sign(self) -> None:
        """Let other roots know that something was read, which may be behind what they wait for."""
        now_s = monotonic()
        if self._exchange is not None and now_s > self._signed_s + SIGN_SECONDS:
            self._signed_s = now_s
            self._exchange.reads_on()

    def _hand_on(self, loaded: R) -> None:
        """Hand the rows of a round that has arrived to the exchange."""
        loaded.has_arrived = True
        uses = loaded.uses
        if self._exchange is None or not len(uses.teams):
            return
        parts = np.zeros(len(uses.teams), _core.SERVING)
        parts["peer"], parts["block"] = uses.teams, uses.blocks
        parts["first"], parts["count"] = uses.begins[:-1], np.diff(uses.begins)
        loaded.shipment = self._exchange.serve(parts, loaded.loaded, uses.order)


class BlockCache(RoundCache[R]):
    """Records that stay in memory: a round is a block, and nothing is read for it twice.

    Args:
        context, shard, waits: arguments of ``RoundCache``.
    """

    def __init__(
        self, context: RootContext, shard: CacheShard | None = None, *, waits: bool
    ) -> None:
        super().__init__(context, shard, waits=waits)
        self._blocks = context.schedule.blocks  # None: endless
        self._next = 0  # block

    @property
    def progress(self) -> int:
        """The oldest block that is not used up."""
        return self._rounds[0].number if self._rounds else self._next

    @property
    def pace(self) -> None:
        """Nothing: how far this root is with its own part says nothing of others' parts."""

    @abstractmethod
    def _read_ahead(self, number: int) -> R:
        """Find what a block needs of this root, and start to read what is not there."""

    @abstractmethod
    def _is_there(self, one: R) -> bool:
        """Return whether all rows of a block are in memory."""

    def _advance(self) -> None:
        """Hand on blocks whose records are there, look at more blocks, and read what they need."""
        self._hand_on_in_order()
        self._drop_used_up()
        for _ in range(BLOCKS_AT_ONCE):
            if self._may_read_ahead():
                self._rounds.append(self._read_ahead(self._next))
                self._next += 1
                self._hand_on_in_order()

    def _hand_on_in_order(self) -> None:
        """Hand on blocks that are there: other roots expect rows in the order of blocks."""
        for one in self._rounds:
            if not one.has_arrived:
                if not self._is_there(one):
                    break
                self._hand_on(one)

    def revoke(self) -> None:
        """Revoke rows of all blocks that roots far behind have not asked for.

        Memory for them is no matter, but that the others wait once, and not for each block.
        """
        for one in self._rounds:
            if one.has_arrived and one.shipment is not None:
                one.shipment.expire()

    def _may_read_ahead(self) -> bool:
        """Return whether another block is to be looked at."""
        is_over = self._is_closed or (self._blocks is not None and self._next >= self._blocks)
        if is_over or self.is_cold or len(self._rounds) >= BLOCKS_AHEAD:
            return False
        rows = len(self._rounds) * len(self._rounds[0].uses.records) if self._rounds else 0
        return rows < ROWS_AHEAD or len(self._rounds) < BLOCKS_AHEAD_MIN
