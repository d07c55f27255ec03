"""Holdings: records that a root has in memory, round by round, for its own team and for others.

    round -> its records arrive -> own rows are copied, other roots' are handed to the exchange
          -> used up, when the last row is copied or packed

``Windows``, ``Home`` and others say what a round is, how its records arrive, and what becomes of
their memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.observe.stats import Source, Stats
from lmdbio.placement.sources import BlockSources, RoundUses
from lmdbio.reader.flight import Awaited

__all__ = ["BLOCKS_AT_ONCE", "Holding", "Holdings", "KeptHoldings"]

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Blocks that are looked at ahead, so that other roots find their rows whatever this one's ranks
#: do; of many rows, each of which takes 60 bytes, at least so many; and how many at a time.
BLOCKS_AHEAD, BLOCKS_AHEAD_MIN, ROWS_AHEAD, BLOCKS_AT_ONCE = 64, 4, 2**19, 2
#: Between two words to roots that wait, seconds: they give rows up after one without any.
SIGN_SECONDS = 0.2


@dataclass(slots=True, kw_only=True)
class Holding:
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

    @property
    def is_used_up(self) -> bool:
        """Whether nobody needs a row of it any more."""
        if not self.has_arrived or self.own_left:
            return False
        self.copies = [one for one in self.copies if not one.poll()]
        is_shipped = self.shipment is None or not self.shipment.left
        return is_shipped and not self.copies


H = TypeVar("H", bound=Holding)


class Holdings(ABC):
    """The holdings of one root, in the order of their rounds.

    Args:
        exchange: takes rows to other roots; None: this is the only one.

    Attributes:
        slowest_s: longest time that a round took to arrive lately, seconds.
    """

    def __init__(self, exchange: share.Exchange | None) -> None:
        self._exchange = exchange
        self._is_for_others = False  # this root's own team needs no more
        self._told_s = -SIGN_SECONDS  # when other roots were told that it reads
        self.slowest_s = 0.0

    @property
    @abstractmethod
    def _rounds(self) -> Sequence[Holding]:
        """Those that are not used up, oldest first."""

    @property
    @abstractmethod
    def awaited(self) -> Awaited | None:
        """Reads that are under way for the next round; None: there are none."""

    @property
    @abstractmethod
    def progress(self) -> object:
        """A value that is another one whenever something has gone on here."""

    @property
    def pace(self) -> object:
        """A value that is another one when roots that go on alike have gone on."""
        return self.progress

    @property
    def is_cold(self) -> bool:
        """Whether something is to be there before anything is handed out, and is not."""
        return False

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes that are kept by now, and those that are to be."""
        return 0, 0

    @property
    def is_held_up(self) -> bool:
        """Whether rounds behind wait for memory of those that others have not asked for."""
        return False

    @property
    def counts(self) -> Stats:
        """The memory, and room on a disk, that is taken over all rounds."""
        return Stats()

    @abstractmethod
    def tend(self) -> None:
        """Hand on what has arrived, and read more.

        Raises:
            OSError, Error: it cannot be read.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up what is under way, and all rounds."""

    def find(self, sources: BlockSources, run: int) -> Holding | None:
        """Return what there is for a run of a block's rows; None: nothing yet."""
        number = int(sources.rounds[run])
        for holding in self._rounds:
            if holding.number == number:
                return holding
        return None

    @property
    def oldest_shipment(self) -> _core.Shipment | None:
        """The rows of the oldest round that others have not got yet; None: there are none."""
        return self._rounds[0].shipment if self._rounds else None

    def free(self) -> None:  # noqa: B027 (most have nothing)
        """Free the memory of what was kept; after ``close``, and after the exchange has ended."""

    def take_back(self) -> None:
        """Take rows back that roots far behind have not asked for: their memory is needed."""
        if self._rounds and self._rounds[0].shipment is not None:
            self._rounds[0].shipment.expire()

    def serve_others(self) -> None:
        """Note that this root's own team needs no more rows, and that none are copied for it."""
        self._is_for_others = True
        for holding in self._rounds:
            holding.own_left = 0
            holding.copies.clear()

    def _tell_reading(self) -> None:
        """Let other roots know that something was read, which may be behind what they wait for."""
        now_s = monotonic()
        if self._exchange is not None and now_s > self._told_s + SIGN_SECONDS:
            self._told_s = now_s
            self._exchange.reads_on()

    def _hand_on(self, holding: Holding) -> None:
        """Hand the rows of a round that has arrived to the exchange."""
        holding.has_arrived = True
        uses = holding.uses
        if self._exchange is None or not len(uses.teams):
            return
        parts = np.zeros(len(uses.teams), _core.SERVING)
        parts["peer"], parts["block"] = uses.teams, uses.blocks
        parts["first"], parts["count"] = uses.begins[:-1], np.diff(uses.begins)
        holding.shipment = self._exchange.serve(parts, holding.loaded, uses.order)


class KeptHoldings(Holdings, Generic[H]):
    """Holdings whose records stay in memory: a round is a block, and nothing is read for it twice.

    Args:
        blocks: number of blocks; None: endless.
        exchange: takes rows to other roots; None: this is the only one.
    """

    def __init__(self, blocks: int | None, exchange: share.Exchange | None) -> None:
        super().__init__(exchange)
        self._blocks = blocks
        self._spans: deque[H] = deque()
        self._next = 0  # block
        self._has_ended = False

    @property
    def _rounds(self) -> Sequence[H]:
        return self._spans

    @property
    def progress(self) -> int:
        """The oldest block that is not used up."""
        return self._spans[0].number if self._spans else self._next

    @property
    def pace(self) -> None:
        """Nothing: how far this root is with its own part says nothing of others' parts."""

    def take_back(self) -> None:
        """Take rows of all blocks back that roots far behind have not asked for.

        Memory for them is no matter, but that the others wait once, and not for each block.
        """
        for span in self._spans:
            if span.has_arrived and span.shipment is not None:
                span.shipment.expire()

    def _may_look_ahead(self) -> bool:
        """Return whether another block is to be looked at."""
        is_over = self._has_ended or (self._blocks is not None and self._next >= self._blocks)
        if is_over or self.is_cold or len(self._spans) >= BLOCKS_AHEAD:
            return False
        rows = len(self._spans) * len(self._spans[0].uses.records) if self._spans else 0
        return rows < ROWS_AHEAD or len(self._spans) < BLOCKS_AHEAD_MIN
