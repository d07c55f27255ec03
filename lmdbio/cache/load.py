"""Load: grains on their way to a tier of a cache, step by step.

nothing has begun -> reads, from the data file or a tier -> writes, where the target lends no
memory -> over
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.tier import TierReads
from lmdbio.cache.writer import TierWrite
from lmdbio.reading.guarded import GuardedReads

__all__ = ["Load"]

I64 = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Load:
    """Grains on their way to a tier.

    Attributes:
        grains: grains, by their places in the shard.
        to_memory: whether they go to memory; else to the tier behind it.
        is_of_file: whether they are read from the data file; else the other one has them.
        lock: lock of the thread that goes on with it.
        reads: reads of the grains; None: not begun, or over.
        writes: writes to the tier; None: not begun.
        buffer: buffer that the reads fill, where they have no place in memory.
        is_over: whether nothing is left to be done.
    """

    grains: I64
    to_memory: bool
    is_of_file: bool = True
    lock: Lock = field(default_factory=Lock)
    reads: GuardedReads | TierReads | None = None
    writes: tuple[TierWrite, ...] | None = None
    buffer: _core.Memory | None = None
    is_over: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether something is under way, or was."""
        return self.reads is not None or self.writes is not None or self.is_over

    @property
    def is_late(self) -> bool:
        """Whether a tier has done nothing for it for so long that nobody should wait."""
        if self.reads is not None:
            return isinstance(self.reads, TierReads) and self.reads.is_late
        return any(write.is_late for write in self.writes or ())

    @property
    def awaited(self) -> _core.Ticket | TierReads | TierWrite | None:
        """The reads or the write that it waits for; None: nothing is under way."""
        if isinstance(self.reads, GuardedReads):
            return self.reads.awaited
        return self.reads or next((one for one in self.writes or () if not one.poll()), None)

    def close(self, *, is_away: bool = False) -> None:
        """Give up what is under way.

        Args:
            is_away: whether a tier does not answer: nobody waits for it.
        """
        reads, self.reads = self.reads, None
        if is_away and isinstance(reads, TierReads):
            reads.abandon()
        elif reads is not None:
            reads.close()
        self.is_over, self.buffer = True, None
