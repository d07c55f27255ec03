"""Mixed: a root keeps its home, and the records that have none stream through windows beside it.

    round -> its slice of the window      read, as ``Windows`` says
          -> records of its home          in memory: grains are read once a job (``CacheShard``)
          -> all of them are there: handed on

Source: DeepIO (Zhu et al.), sections III-B and III-C.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.observe.stats import StageCounter, Stats
from lmdbio.placement.sources import HybridSources, RoundUses
from lmdbio.reader.block_size import WindowBuffers
from lmdbio.reader.flight import Awaited
from lmdbio.reader.roots import RootSource
from lmdbio.reader.shard_store import ShardStore
from lmdbio.reader.windows import Window, Windows

__all__ = ["MixedWindows"]

I64 = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class MixedWindow(Window):
    """A window, and the records of the home that are used in its round.

    Attributes:
        absent: grains that it waits for, by their places in the home.
        is_read: whether the window itself has arrived.
    """

    absent: I64
    is_read: bool = False


class MixedWindows(Windows):
    """The windows of one root, and its home.

    Args:
        source: the root's open data set and engines; borrowed.
        store: memory of the home.
        sources: say which root brings which rows.
        request_bytes_max: bytes per request.
        buffers: memory for windows.
        exchange: takes rows to other roots; None: this is the only one.
        counter: counts what is located, planned, submitted and kept.
    """

    def __init__(
        self,
        source: RootSource,
        store: ShardStore,
        sources: HybridSources,
        request_bytes_max: int,
        buffers: WindowBuffers,
        exchange: share.Exchange | None,
        counter: StageCounter,
    ) -> None:
        schedule = sources.home.schedule
        super().__init__(
            source, schedule, sources, store.root, request_bytes_max, buffers, exchange, counter
        )
        self._mixed, self._waits = sources, store.waits
        self._shard = store.shard.open(source, request_bytes_max, counter)
        self._table, self._polling = self._shard.table, self._shard.polling
        self._home: _core.Memory | None = self._shard.memory
        self._told_at = 0  # step, when other roots were told
        self._is_closed = False

    @property
    def awaited(self) -> Awaited | None:
        """Reads of the window that is handed on next, or of grains; None: none are under way."""
        first = next((one for one in self._loaded if not one.has_arrived), None)
        if isinstance(first, MixedWindow) and not first.is_read:
            return first.reads.awaited
        return self._polling.awaited

    @property
    def counts(self) -> Stats:
        """The memory for what is kept."""
        return self._shard.counts

    @property
    def is_cold(self) -> bool:
        """Whether grains are missing that are to be there before anything is handed out."""
        return self._waits and not self._is_closed and not self._table.is_full

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes of grains that are there, and of all of them."""
        return self._table.warmth

    def tend(self) -> None:
        """Hand on windows that are there, and read more of them, and of the home.

        Raises:
            OSError, Error: something cannot be read.
        """
        self._polling.tend()
        self.slowest_s = max(self.slowest_s, self._polling.slowest_s)
        if self._polling.steps != self._told_at:
            self._told_at = self._polling.steps
            self._tell_reading()
        super().tend()
        if not self._is_closed:
            self._polling.sweep()

    def close(self) -> None:
        """Give up what is under way, and all windows."""
        self._is_closed = True
        self._shard.close()
        super().close()

    def free(self) -> None:
        """Free the memory of all grains."""
        self._home = None

    # --- reading

    def _begin(
        self, number: int, uses: RoundUses, extents: _core.Extents, own_left: int
    ) -> MixedWindow:
        """Start to read the records that stream, and the grains of the others."""
        streams = self._mixed.passing(uses.records)
        held = extents[~streams]
        absent = np.empty(0, np.int64)
        if not self._table.is_full:
            absent = self._polling.want(self._table.under(held))
        slices, address, reads = self._begin_reads(extents[streams])
        places = np.empty(len(extents), np.uint64)
        places[streams] = slices
        # Modulo 2**64, as C adds the address of the buffer.
        home = np.uint64((self._shard.memory.address - address) % 2**64)
        places[~streams] = home + self._table.places(held)
        return MixedWindow(
            number=number,
            uses=uses,
            loaded=_core.Loaded(uses.records, extents, places, address),
            reads=reads,
            address=address,
            own_left=own_left,
            absent=absent,
        )

    def _has_come(self, window: Window) -> bool:
        """Return whether a window has arrived, and the grains that it waits for."""
        assert isinstance(window, MixedWindow)
        window.is_read = window.is_read or super()._has_come(window)
        window.absent = self._polling.still_missing(window.absent)
        return window.is_read and not len(window.absent)
