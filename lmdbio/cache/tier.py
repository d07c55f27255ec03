"""The seam between a cache and the tiers behind memory that keep its grains.

A tier takes grains out of memory (``write``), and gives them, or rows, back to it (``read``). The
code that moves grains knows it by ``Tier`` alone. The data file has everything: a tier that fails,
lies, or does not answer costs time.

Source: HDMLP thesis (Dryden et al.), section 4.3 (tiers of a node); NoPFS, its storage backends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.writer import TierWrite
from lmdbio.errors import Error

__all__ = ["LIMITS", "CacheLimits", "Take", "Tier", "TierReads"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

#: Gives memory of so many bytes, and the address from which on it is to be filled.
Take = Callable[[int], tuple[_core.Memory, int]]

#: Reads that a tier did not answer: their memory is given back when the process ends.
_ABANDONED: list[object] = []


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Bounds of a cache: what is under way in it at a time, and its trust in a tier.

    Attributes:
        load_bytes: size of what is read, and guarded, together, bytes: a block's first reads may
            be those of the whole shard, and its guard waits behind all that was submitted before.
        loads: number of such loads under way that nobody waits for.
        piece_bytes: size of what is read to a buffer at once, or in advance, bytes: blocks wait
            behind it.
        buffer_bytes: size of all buffers of grains on their way to a tier, bytes.
        damaged_max: number of damaged pages after which a tier is asked no more.
        stuck_s: seconds without progress after which nobody waits for a tier.
        retry_s, retry_s_max: seconds until it is asked again, at first; each time twice as long,
            up to the second of these.
    """

    load_bytes: int = 16 << 20
    loads: int = 2
    piece_bytes: int = 8 << 20
    buffer_bytes: int = 32 << 20
    damaged_max: int = 1024
    stuck_s: float = 2.0
    retry_s: float = 10.0
    retry_s_max: float = 600.0


LIMITS = CacheLimits()


class Reads(Protocol):
    """Reads that are under way (``_core.Ticket``)."""

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether all have arrived, after ``timeout_ms`` at most; raise what failed."""

    def left(self) -> float:
        """Return the share of them that have not ended."""

    def close(self) -> None:
        """Give up those that have not begun, and wait for the others."""


class TierReads:
    """Grains or rows on their way from a tier to memory.

    Args:
        tier: tier that has them.
        addresses: address of each in memory.
        begin: starts the reads.
        judge: compares what its reads have brought with what was written; returns which are
            wrong, and the grains that are damaged.

    Attributes:
        addresses: address of each in memory.
        damaged: grains that are not as they were written; known at the end.
    """

    def __init__(
        self,
        tier: Tier,
        addresses: U64,
        begin: Callable[[], Reads],
        judge: Callable[[Any], tuple[Flags, I64]],
    ) -> None:
        self._tier, self.addresses, self._judge = tier, addresses, judge
        self._wrong, self.damaged = np.ones(len(addresses), np.bool_), np.empty(0, np.int64)
        self._left, self._moved_s = 1.0, monotonic()
        self._reads: Reads | None = None
        try:
            self._reads = begin()
        except (OSError, Error) as error:
            tier.note_failure(error)

    def poll(self, timeout_ms: int = 0) -> bool:
        """Return whether nothing is under way, after ``timeout_ms`` at most."""
        reads = self._reads
        if reads is None:
            return True
        try:
            if not reads.poll(timeout_ms):
                if reads.left() < self._left:
                    self._left, self._moved_s = reads.left(), monotonic()
                return False
            self._wrong, self.damaged = self._judge(reads)
        except (OSError, Error) as error:
            self._tier.note_failure(error)
        self.close()
        return True

    def await_from_now(self) -> None:
        """Note that somebody begins to wait: what nobody has looked at meanwhile is not late."""
        self._moved_s = monotonic()

    @property
    def is_late(self) -> bool:
        """Whether nothing has arrived for so long that nobody should wait."""
        has_ended = self._reads is None
        return not has_ended and monotonic() > self._moved_s + self._tier.limits.stuck_s

    def right(self) -> Flags:
        """Return which have arrived as they were written; none of a tier that has failed."""
        return np.zeros(len(self._wrong), np.bool_) if self._tier.is_over else ~self._wrong

    def abandon(self) -> None:
        """Wait no more; the memory is kept for the reads, which may still fill it."""
        reads, self._reads = self._reads, None
        if reads is not None:
            _ABANDONED.append(reads)  # to end them would be to wait for them
            self._wrong[:] = True
            self._tier.note_stuck()

    def close(self) -> None:
        """Give up what is under way. May be called twice."""
        reads, self._reads = self._reads, None
        if reads is not None:
            reads.close()


class Tier(Protocol):
    """A place that keeps grains of one shard. Threads may share it.

    ``GrainTable`` notes which grains it has: none is written twice but those that were damaged,
    and none is read that is not there.

    Attributes:
        places: grains that it has room for, by their places in the shard.
        limits: bounds of the trust in it.
        is_over: whether it has failed, and nothing is read or written any more.
        is_full: whether nothing is written any more.
        damaged_pages: number of pages that were not as they had been written.
    """

    places: range
    limits: CacheLimits
    is_over: bool
    is_full: bool
    damaged_pages: int

    @property
    def is_away(self) -> bool:
        """Whether it has failed, or did not answer lately."""

    @property
    def was_stuck(self) -> bool:
        """Whether it did not answer once: reads that were given up may still fill memory."""

    @property
    def kept_bytes(self) -> int:
        """Bytes of what it has."""

    def left(self) -> Flags:
        """Return which of its ``places`` an earlier job has left there whole."""

    def read(self, grains: I64, addresses: I64, memory: _core.Memory) -> TierReads:
        """Start to read grains whole.

        Args:
            grains: grains that it has, by their places in the shard, ascending.
            addresses: address in the memory for each.
            memory: memory that is held until the reads have ended.
        """

    def room_for(self, extents: _core.Extents) -> int:
        """Return the size of the memory that rows need to be read to, bytes, at most."""

    def read_rows(self, extents: _core.Extents, take: Take) -> TierReads:
        """Start to read rows.

        Args:
            extents: places of the rows in the data file, in grains that it has; none is empty.
            take: gives memory of so many bytes.
        """

    def write(self, grains: I64, addresses: I64, memory: _core.Memory) -> Sequence[TierWrite]:
        """Start to write grains, behind those that are under way.

        Args:
            grains: grains, by their places in the shard, ascending.
            addresses: address of each in the memory.
            memory: memory that is held until they are written.

        Returns:
            The writes, which have ended already where nothing is written any more.
        """

    def note_failure(self, error: object) -> None:
        """Note that it has failed."""

    def note_stuck(self) -> None:
        """Note that it does not answer."""

    def close(self) -> None:
        """Give up what is under way. May be called twice."""
