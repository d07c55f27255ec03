"""Supply by windows: roots read each window of a shuffled epoch once, and exchange its rows.

    window of the order    each root's slice, in the order of the file -> large requests -> memory
    block                  its rows, in the order of the epoch <- copied out of own windows
                                                               <- sent by the other roots
                                                               <- the file, where these do not

So each byte leaves the file system once an epoch, wherever blocks begin and end. The rows of one
block that one root brings for one round lie one behind the other in the slot, so that they come in
one piece; the table says where each is.

Source: DeepIO (Zhu et al.), sections III-B and III-C; asynchronous I/O (Lee et al.), section
III-B.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic, monotonic_ns

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.errors import Error
from lmdbio.observe.stats import Missed, StageCounter, Stats
from lmdbio.planning.order import Epochs
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.sources import Sources
from lmdbio.reader.block_size import WindowBuffers
from lmdbio.reader.flight import Flight
from lmdbio.reader.flow_control import NAP_SHARE
from lmdbio.reader.roots import RootSource
from lmdbio.reader.rows import END_MS_MAX, Assembly, FileRows, Rows
from lmdbio.reader.supply import PendingBlock
from lmdbio.reader.windows import Window, Windows
from lmdbio.system.log import tell

__all__ = ["WindowSupply"]

#: A root waits for rows of others so many times as long as it has read a window itself, and at
#: least so long; then it reads them from the file.
PATIENCE, PATIENCE_SECONDS_MIN = 8, 1.0
#: Bounds of the time between two looks at windows, ms, of which ``NAP_SHARE`` is a part.
NAP_MS_MIN, NAP_MS_MAX = 1, 25

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class WindowSupply:
    """Reads the blocks of one root, window by window. Owns ``source`` and ``exchange``.

    Args:
        source: what the root reads with, and from.
        schedule: says which records a block has.
        sliced: the order of its records; roots read slices of its windows.
        team: of the root, by its index in the schedule.
        window: whose slots it fills.
        request_bytes_max: bytes per request.
        buffers: memory for windows.
        exchange: brings other roots' rows; None: this is the only root.
        counter: counts what is located, planned and submitted.

    Attributes:
        path: of the file.
        guard: nothing, for windows are guarded before their rows are copied or sent.
        flights: blocks that are filled, oldest first; the root's thread takes them out.
    """

    def __init__(
        self,
        source: RootSource,
        schedule: Schedule,
        sliced: Epochs,
        team: int,
        window: share.NodeWindow,
        request_bytes_max: int,
        buffers: WindowBuffers,
        exchange: share.Exchange | None,
        counter: StageCounter,
    ) -> None:
        self._source, self._team, self._window = source, team, window
        self._counter, self._exchange = counter, exchange
        self._sources, self._copier = Sources(schedule, sliced), _core.Copier()
        self._windows = Windows(
            source,
            schedule,
            self._sources,
            team,
            request_bytes_max,
            buffers,
            exchange,
            counter,
        )
        options = PlanOptions(source.choice.gap_bytes_max, request_bytes_max)
        self._read_rows = partial(FileRows, source, options)
        self._filled: Assembly | None = None
        self._has_left = False
        # By which window this root lacks memory for another one, and since when.
        self._held_up: tuple[int | None, float] | None = None
        self.path, self.guard = source.index.path, _is_guarded
        self.flights: deque[Flight] = deque()

    def close(self) -> None:
        """Close what the root reads with, and its part in the exchange."""
        if self._exchange is not None:
            self._exchange.close()
        self._windows.close()
        self._copier.close()
        self._source.close()

    def engines(self) -> Stats:
        """Return the engines' counts, and the exchange's; also after ``close``."""
        stats = self._source.stats()
        if self._exchange is None:
            return stats
        counts = self._exchange.counts()
        exchanged = Stats(peer_bytes=counts.received_bytes, served_bytes=counts.sent_bytes)
        return stats + exchanged

    # --- a block is prepared

    def prepare(self, pending: PendingBlock, alive: Callable[[], None], *, may_read: bool) -> bool:
        """Copy the block's own rows out of windows that have arrived; return whether all came.

        The root's thread has tended the windows right before.

        Args:
            pending: the block.
            alive: called between two windows; may raise.
            may_read: there is a slot for the block.

        Raises:
            ValueError: the block does not fit its slot.
            OSError, Error: a window cannot be read.
        """
        if not may_read:
            return False
        block = self._filled
        if block is None or block.number != pending.number:
            block = self._filled = self._begin(pending.number)
        while block.own:
            window = self._windows.find(int(block.sources.rounds[block.own[0]]))
            pending.awaited = self._windows.awaited
            if window is None:
                if pending.awaited is None and not self.flights:  # for which ranks wait
                    pending.awaited = self._windows.oldest_shipment
                self._hold_up()
            if window is None or not window.has_arrived:
                return False
            self._held_up = None
            self._copy(block, window)
            self._windows.tend()
            alive()
        pending.awaited = None
        return True

    @property
    def _patience_s(self) -> float:
        """How long this root waits for another one, seconds."""
        return max(PATIENCE_SECONDS_MIN, PATIENCE * self._windows.slowest_s)

    def _hold_up(self) -> None:
        """Note that windows are full of rows that other roots have not asked for.

        Not for ever: those that are so far behind read them from the file. But a block may have
        rows of many windows, and this root's own may all be in the last: while one window after
        the other is used up, nobody is behind.
        """
        oldest, now_s = self._windows.oldest, monotonic()
        if self._held_up is None or self._held_up[0] != oldest:
            self._held_up = oldest, now_s
        if now_s - self._held_up[1] > self._patience_s:
            tell(f"{self.path}: rows for roots that are far behind are taken back")
            self._windows.take_back()

    def _begin(self, number: int) -> Assembly:
        """Make room for a block's rows in its slot, and ask other roots for theirs."""
        sources = self._sources.block(number, self._team)
        extents = self._source.index.extents(sources.records.view(np.uint64))
        laid = _core.lay_out(extents, sources.order, sources.begins)
        size, room = int(laid.run_offsets[-1]), self._window.layout.data_bytes
        if size > room:
            raise ValueError(
                f"{self.path}: the records of block {number} need {size} bytes of window on this "
                f"root, and its part of the memory budget has {room}: take a smaller batch_size, "
                "fewer slots, or a larger memory_bytes_max"
            )
        slot = number % self._window.layout.slots
        self._window.reserve(slot, size)
        address = self._window.fill_addresses[slot]
        own = deque(np.flatnonzero(sources.roots == self._team).tolist())
        data = address + self._window.layout.table_bytes
        block = Assembly(
            number, sources, laid, address, data, own, [], None, [], np.empty(0, np.int64)
        )
        self._ask(block)
        return block

    def _ask(self, block: Assembly) -> None:
        """Ask other roots for their rows of a block."""
        sources, exchange, begins = block.sources, self._exchange, block.laid.run_offsets
        is_other, is_empty = sources.roots != self._team, begins[1:] == begins[:-1]
        others = np.flatnonzero(is_other & ~is_empty)
        for run in np.flatnonzero(is_other & is_empty).tolist():  # all of it is here
            self._counter.sourced("own", len(block.rows(run)), 0)
        if exchange is None or not len(others):
            return
        known = exchange.peers()[sources.roots[others]]
        if not exchange.is_open:
            known[:] = _core.Exchange.GONE
        is_asked = known & (_core.Exchange.GONE | _core.Exchange.OWES) == 0
        asked, rest = others[is_asked], others[~is_asked]
        if len(rest):
            is_gone = known[~is_asked] & _core.Exchange.GONE != 0
            missed: tuple[tuple[Missed, I64], ...]
            missed = ("gone", rest[is_gone]), ("late", rest[~is_gone])
            for why, runs in missed:
                self._counter.missed(why, sum(len(block.rows(run)) for run in runs.tolist()))
            exchange.skip(block.number, sorted(set(sources.roots[rest].tolist())))
            block.missing = np.concatenate([block.rows(run) for run in rest.tolist()])
        if len(asked):
            rooms = np.zeros(len(asked), _core.ASKING)
            rooms["peer"] = sources.roots[asked]
            rooms["into"] = begins[asked] + np.uint64(block.data)
            rooms["bytes"] = begins[asked + 1] - begins[asked]
            block.rooms = [block.rows(run) for run in asked.tolist()]
            block.arrival = exchange.ask(block.number, rooms)

    def _copy(self, block: Assembly, window: Window) -> None:
        """Start to copy the next rows that come from this root's own windows."""
        begun, run = monotonic_ns(), block.own.popleft()
        rows = block.rows(run)
        copying = self._copier.start(
            window.loaded, rows, block.sources.records, block.laid, block.data
        )
        block.copies.append(copying)
        window.copies.append(copying)
        window.own_left -= len(rows)
        self._counter.submitted(begun)
        size = block.laid.run_offsets[run + 1] - block.laid.run_offsets[run]
        self._counter.sourced("own", len(rows), int(size))

    def submit(self, pending: PendingBlock) -> Flight:
        """Return a block whose own rows are all copied, or about to be."""
        block = self._filled
        assert block is not None and block.number == pending.number
        rows = Rows(
            block,
            self._read_rows,
            self._patience_s,
            lambda: self._windows.oldest,
            self._counter,
            self.path,
        )
        flight = Flight(
            block.number,
            rows,
            block.address,
            block.laid.offsets,
            block.laid.lengths,
            int(block.laid.run_offsets[-1]),
            past=False,
            requests=0,
            depth=1,
        )
        self.flights.append(flight)
        self._filled = None
        return flight

    # --- what other roots wait for

    def tend(self) -> None:
        """Read windows, and hand on those that have arrived, for other roots too."""
        if self._exchange is not None and not self._exchange.is_open:
            self._exchange.step()  # rows that had begun to come when its communicator was freed
        if not self._has_left:
            self._windows.tend()
        elif self.serves:
            try:
                self._windows.tend()
            except (OSError, Error) as error:
                tell(f"{self.path}: other roots get no more rows: {error}")
                self._windows.close()
                if self._exchange is not None:
                    self._exchange.end()

    @property
    def serves(self) -> bool:
        """Whether another root may need rows of this one."""
        exchange = self._exchange
        if exchange is None or not exchange.is_open:
            return False
        others = np.delete(exchange.peers(), self._team)
        return bool((others & _core.Exchange.DONE == 0).any())

    def nap_ms(self) -> int:
        """Return how long to wait at once, ms, while windows are read."""
        nap_ms = int(1000 * NAP_SHARE * self._windows.slowest_s)
        return min(max(nap_ms, NAP_MS_MIN), NAP_MS_MAX)

    # --- the end

    def judge(self, flight: Flight, times: tuple[float, float]) -> None:
        """Nothing: blocks are copied, past no page cache."""

    def drop(self, pending: PendingBlock | None) -> None:  # noqa: ARG002 (as of FileSupply)
        """Give up the blocks that are under way; go on for other roots."""
        self._has_left = True
        if self._exchange is not None:
            self._exchange.done()
        are_over = [flight.ticket.close() is not False for flight in self.flights]
        if self._filled is not None and self._filled.arrival is not None:
            are_over.append(self._filled.arrival.close(END_MS_MAX))
        if not all(are_over):
            self._window.keep()  # something is still written to it
        self._filled = None
        if self.serves:
            self._windows.serve_others()
        else:
            self._windows.close()

    def leave(self) -> bool:
        """Return whether no root depends on this one any more."""
        exchange = self._exchange
        return exchange is None or not exchange.is_open or exchange.wait_over(0)


def _is_guarded() -> None:
    """Nothing: all rows of a block are of windows, and rows, that were guarded."""
