"""Joint supply: roots bring rows for each other, each what it has in memory.

    round of the order     what each root brings for it, in memory (``RoundCache``)
    block                  its rows, in the order of the epoch <- copied out of own memory
                                                               <- sent by the other roots
                                                               <- the file, where these do not

So each byte leaves the file system once an epoch, or once a job, wherever blocks begin and end.
The rows of one block that one root brings for one round lie one behind the other in the slot, so
that they come in one piece; the table says where each is.

Source: DeepIO (Zhu et al.), sections III-B and III-C; asynchronous I/O (Lee et al.), section
III-B; locality-aware loading (Yang and Cong), section V.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic, monotonic_ns
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lmdbio import _core, share
from lmdbio.errors import Error
from lmdbio.observe.stats import Stats
from lmdbio.placement.sources import CachedSources, HybridSources, WindowSources, row_epochs
from lmdbio.reader.flow import NAP_SHARE, Flight
from lmdbio.reader.round_cache import LoadedRound, RootContext, RoundCache
from lmdbio.reader.rows import END_MS_MAX, Assembly, FileRows, Rows
from lmdbio.reader.supply import PendingBlock, Supply
from lmdbio.system.log import log

__all__ = ["JointSupply"]

#: A root waits for rows of others, while nothing goes on, so many times as long as a round took it
#: itself, at least and at most so long; then it reads them from the file.
TIMEOUT_FACTOR, TIMEOUT_SECONDS_MIN, TIMEOUT_SECONDS_MAX = 8, 1.0, 4.0
#: Bounds of the time between two looks at windows, ms, of which ``NAP_SHARE`` is a part; and the
#: part of a longer wait after which a root looks again: a look takes 0.2 ms of a core.
NAP_MS_MIN, NAP_MS_MAX, RESTED_SHARE = 1, 80, 1 / 64
#: Once rows were revoked, the same roots are waited for this part of the time, until none had to
#: be revoked for so long, seconds.
IMPATIENT_PART, IMPATIENT_SECONDS = 20, 5.0

#: Says who brings what.
AnySources: TypeAlias = "WindowSources | CachedSources | HybridSources"
I64 = npt.NDArray[np.int64]


class Backpressure:
    """Revokes rows of a root's memory, where others keep it waiting.

    Its memory is full of rows that roots far behind have not asked for. Not for ever: it revokes
    them, and those roots read them from the file when they come.

    A block may have rows of many windows, and this root's own may all be in the last: while one
    window after the other is used up, nobody is behind.

    Args:
        rounds: rounds whose memory is full.
        path: path of the file, for the logger.
    """

    def __init__(self, rounds: RoundCache[Any], path: str) -> None:
        self._rounds, self._path = rounds, path
        # How far this root had come when it could not go on, and since when.
        self._since: tuple[object, float] | None = None
        self._revoked_s = -IMPATIENT_SECONDS

    def note(self, timeout_s: float, *, may_hurry: bool) -> None:
        """Note that the root cannot go on; revoke rows if that is so for too long.

        Args:
            timeout_s: time after which rows are revoked, seconds.
            may_hurry: whether, soon after rows were revoked, a part of it suffices.
        """
        progress, now_s = self._rounds.progress, monotonic()
        if self._since is None or self._since[0] != progress:
            self._since = progress, now_s
        if may_hurry and now_s < self._revoked_s + IMPATIENT_SECONDS:
            timeout_s /= IMPATIENT_PART
        if now_s - self._since[1] > timeout_s:
            log(f"{self._path}: rows for roots that are far behind are taken back")
            self._rounds.revoke()
            self._revoked_s = now_s

    def end(self) -> None:
        """Note that the root has gone on."""
        self._since = None


class JointSupply(Supply):
    """Brings the rows of one root's blocks together. Owns all but ``window``.

    Args:
        context: values by which the root brings rows.
        sources: says which root brings which of them.
        rounds: records that this root has in memory.
        window: window whose slots the supply fills.
    """

    def __init__(
        self,
        context: RootContext,
        sources: AnySources,
        rounds: RoundCache[Any],
        window: share.NodeWindow,
    ) -> None:
        source = context.source
        super().__init__(source.index.path)
        self._source, self._team, self._window = source, context.root, window
        self._schedule, self._sources, self._rounds = context.schedule, sources, rounds
        self._counter, self._exchange = context.counter, context.exchange
        self._copier, pool = _core.Copier(), _core.MemoryPool()
        self._read_rows = partial(FileRows, source, context.options, pool=pool)
        self._filled: Assembly | None = None
        self._has_left = False
        self._backpressure = Backpressure(rounds, self.path)

    def close(self) -> None:
        """Close what the root reads with, and its part in the exchange."""
        if self._exchange is not None:
            self._exchange.close()
        self._rounds.close()
        self._copier.close()
        self._rounds.free()
        self._source.close()

    def engines(self) -> Stats:
        """Return the engines' counts, and the exchange's; also after ``close``."""
        stats = self._source.stats() + self._rounds.counts
        if self._exchange is None:
            return stats
        counts = self._exchange.counts()
        exchanged = Stats(peer_bytes=counts.received_bytes, served_bytes=counts.sent_bytes)
        return stats + exchanged

    # --- a block is prepared

    def prepare(self, pending: PendingBlock, alive: Callable[[], None], *, may_read: bool) -> bool:
        """Copy the rows that this root brings itself; return whether all of them have come.

        The root's thread has tended the supply right before.
        """
        if not may_read:
            return False
        block = self._filled
        if block is None or block.number != pending.number:
            block = self._filled = self._begin(pending.number)
        while block.own:
            loaded = self._rounds.find(block.sources, block.own[0])
            pending.awaited = self._rounds.awaited
            if loaded is None and pending.awaited is None and not self.flights:
                pending.awaited = self._rounds.oldest_shipment  # for which ranks wait
            is_held_up = self._rounds.is_held_up
            if loaded is None or (not loaded.has_arrived and is_held_up):
                self._backpressure.note(self._timeout_s, may_hurry=is_held_up)
            if loaded is None or not loaded.has_arrived:
                return False
            self._backpressure.end()
            self._copy(block, loaded)
            self._rounds.tend()
            alive()
        pending.awaited = None
        return True

    @property
    def _timeout_s(self) -> float:
        """How long this root waits for another one, seconds."""
        timeout_s = TIMEOUT_FACTOR * self._rounds.slowest_s
        return min(max(TIMEOUT_SECONDS_MIN, timeout_s), TIMEOUT_SECONDS_MAX)

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
            number,
            sources,
            extents,
            laid,
            address,
            data,
            own,
            self._counter,
            self._sources.is_there,
            row_epochs(self._schedule, number, self._team),
            self._sources.passing(sources.records),
        )
        self._read(block)
        self._ask(block)
        return block

    def _read(self, block: Assembly) -> None:
        """Start to read the rows that no root brings, into memory of their own."""
        is_wanted = block.sources.roots < 0
        if self._exchange is None:
            is_wanted |= block.sources.roots != self._team
        runs = np.flatnonzero(is_wanted).tolist()
        if runs:
            rows = np.concatenate([block.rows(run) for run in runs])
            block.count("file", rows)
            block.reading = self._read_rows(
                block.extents[rows], block.laid.offsets[rows] + np.uint64(block.data)
            )

    def _ask(self, block: Assembly) -> None:
        """Ask other roots for their rows of a block."""
        sources, exchange, begins = block.sources, self._exchange, block.laid.run_offsets
        if exchange is None:
            return
        is_other = (sources.roots != self._team) & (sources.roots >= 0)
        is_empty = begins[1:] == begins[:-1]
        others = np.flatnonzero(is_other & ~is_empty)
        for run in np.flatnonzero(is_other & is_empty).tolist():  # all of it is here
            block.count("peer", block.rows(run))
        if not len(others):
            return
        known = exchange.peers()[sources.roots[others]]
        if not exchange.is_open:
            known[:] = _core.Exchange.GONE
        is_asked = known & (_core.Exchange.GONE | _core.Exchange.OWES) == 0
        asked, rest = others[is_asked], others[~is_asked]
        if len(rest):
            is_gone = known[~is_asked] & _core.Exchange.GONE != 0
            for why, runs in (("gone", rest[is_gone]), ("late", rest[~is_gone])):
                count = sum(len(block.rows(run)) for run in runs.tolist())
                self._counter.count(**{f"{why}_records": count})
            exchange.skip(block.number, sorted(set(sources.roots[rest].tolist())))
            block.missing = np.concatenate([block.rows(run) for run in rest.tolist()])
        if len(asked):
            rooms = np.zeros(len(asked), _core.ASKING)
            rooms["peer"] = sources.roots[asked]
            rooms["into"] = begins[asked] + np.uint64(block.data)
            rooms["bytes"] = begins[asked + 1] - begins[asked]
            block.rooms = [block.rows(run) for run in asked.tolist()]
            block.asked = sources.roots[asked]
            block.arrival = exchange.ask(block.number, rooms)

    def _copy(self, block: Assembly, loaded: LoadedRound) -> None:
        """Start to copy the next rows that this root brings itself."""
        begun, run = monotonic_ns(), block.own.popleft()
        rows = block.rows(run)
        copying = self._copier.start(
            loaded.loaded, rows, block.sources.records, block.laid, block.data
        )
        block.copies.append(copying)
        loaded.copies.append(copying)
        loaded.own_left -= len(rows)
        self._counter.span("submit", begun)
        for source, some in loaded.by_source(block.sources.records[rows]):
            block.count(source, rows[some])

    def submit(self, pending: PendingBlock) -> Flight:
        """Return a block whose own rows are all copied, or about to be."""
        block = self._filled
        assert block is not None and block.number == pending.number
        rows = Rows(
            block,
            self._read_rows,
            self._timeout_s,
            lambda: self._rounds.pace,
            self._signs,
            self.path,
        )
        flight = Flight(
            block.number,
            rows,
            block.address,
            block.laid.offsets,
            block.laid.lengths,
            int(block.laid.run_offsets[-1]),
            direct=False,
            requests=0,
            depth=1,
        )
        self.flights.append(flight)
        self._filled = None
        return flight

    def _signs(self) -> npt.NDArray[np.uint32]:
        return np.zeros(0, np.uint32) if self._exchange is None else self._exchange.signs()

    # --- what other roots wait for

    def tend(self) -> None:
        """Read windows, and hand on those that have arrived, for other roots too."""
        if self._exchange is not None and not self._exchange.is_open:
            self._exchange.step()  # rows that had begun to come when its communicator was freed
        if not self._has_left:
            self._rounds.tend()
        elif self.serves:
            try:
                self._rounds.tend()
            except (OSError, Error) as error:
                log(f"{self.path}: other roots get no more rows: {error}")
                self._rounds.close()
                if self._exchange is not None:
                    self._exchange.end()

    @property
    def is_cold(self) -> bool:
        """Whether this root still reads what its own ranks wait for."""
        return not self._has_left and self._rounds.is_cold

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes that this root caches by now, and those that it is to cache."""
        return self._rounds.warmth

    @property
    def serves(self) -> bool:
        """Whether another root may need rows of this one."""
        exchange = self._exchange
        if exchange is None or not exchange.is_open:
            return False
        others = np.delete(exchange.peers(), self._team)
        return bool((others & _core.Exchange.DONE == 0).any())

    def nap_ms(self, rested_s: float) -> int:
        """Return how long to wait at once, ms, while windows are read."""
        nap_s = max(NAP_SHARE * self._rounds.slowest_s, RESTED_SHARE * rested_s)
        return min(max(int(1000 * nap_s), NAP_MS_MIN), NAP_MS_MAX)

    # --- the end

    def drop(self, pending: PendingBlock | None) -> None:  # noqa: ARG002 (as of Supply)
        """Give up the blocks that are under way; go on for other roots."""
        self._has_left = True
        if self._exchange is not None:
            self._exchange.done()
        self._copier.close()  # before its window and the rounds' memory may go
        are_over = [flight.ticket.close() is not False for flight in self.flights]
        if self._filled is not None:
            if self._filled.arrival is not None:
                are_over.append(self._filled.arrival.close(END_MS_MAX))
            if self._filled.reading is not None:
                self._filled.reading.close()
        if not all(are_over):
            self._window.keep()  # something is still written to it
        self._filled = None
        if self.serves:
            self._rounds.serve_others()
        else:
            self._rounds.close()

    def leave(self) -> bool:
        """Return whether no root depends on this one any more."""
        exchange = self._exchange
        return exchange is None or not exchange.is_open or exchange.wait_over(0)
