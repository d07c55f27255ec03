"""roots: how long the roots of a job take to read their blocks, event by event. Pure.

Roots begin a block in an order of chance, a seeded one: they come out of a barrier in no order
that the file has. Those that have turns begin in the file's.

Source: LMDBIO (ACM TOPC 2019), sections 4.2 to 4.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from lmdbio import _core
from lmdbio.planning.mode import Mode
from lmdbio.planning.order import Epoch
from lmdbio.planning.reads import PAGE_BYTES, PlanOptions, plan_reads
from lmdbio.planning.schedule import Run, Schedule
from lmdbio.planning.speculation import Guess, Speculation
from lmdbio.simulate.servers import Read, Servers, Then
from lmdbio.simulate.store import Store
from lmdbio.simulate.workload import Workload

__all__ = ["Roots", "speculated_shares"]

#: Records that one root looks up for all, before the first guess.
SAMPLE_RECORDS = 1024
#: Blocks of one root that are guessed as a Reader does; the others are as the last ones.
GUESSES = 12
#: Of the orders in which roots begin.
SEED = 4
FILE = "data"


class Roots:
    """The roots of a job, which read block by block.

    Attributes:
        now: time at which all that was begun has come to its end, seconds.
        servers: Servers that they read from.
        tokens: 0: each root has a turn of its own.
    """

    def __init__(
        self,
        workload: Workload,
        mode: Mode,
        store: Store,
        schedule: Schedule,
        tokens: int,
    ) -> None:
        self._workload, self._store, self._schedule = workload, store, schedule
        roots = len(schedule.teams)
        self.now = 0.0
        self.servers = Servers(store)
        self.tokens = tokens if tokens < roots else 0
        self._nodes = [team[0] // workload.ranks_per_node for team in schedule.teams]
        self._depth = store.depth
        self._options = PlanOptions(store.gap_bytes, store.request_bytes)
        self._shares: Sequence[float] = ()
        if mode.locate == "speculate":
            self._depth = store.readahead_windows
            self._options = PlanOptions(0, store.readahead_bytes)
            self._shares = speculated_shares(schedule, workload, roots // 2)

    def scan(self) -> None:
        """One process finds all records: it asks for each leaf page, in the file's order."""
        store = self._store
        options = PlanOptions(0, store.readahead_bytes)
        reads = _reads(self._workload.scanned(), options)
        # Leaf pages of large values are far from one another, and asked for several at a time.
        is_sparse = all(length <= PAGE_BYTES for _, length in reads)
        depth = store.depth if is_sparse else store.readahead_windows
        self.servers.stream(0.0, reads, self._ended, depth=depth, path=FILE)
        self.servers.run()

    def read(self, blocks: Sequence[int]) -> None:
        """All roots read these blocks, each one after the other, in turns if there are tokens.

        A turn, root by root and block by block, waits for the one that is ``tokens`` turns before,
        and for the root's own last one.
        """
        roots, store = len(self._nodes), self._store
        turns = roots * len(blocks)
        tokens = self.tokens or turns
        order = range(roots) if self.tokens else self._in_chance_order(blocks[0])
        waits_for = [(turn >= tokens) + (turn >= roots) for turn in range(turns)]

        def begin(turn: int, time: float) -> None:
            passed = partial(hand_on, turn) if store.early_turns else None
            block, team = blocks[turn // roots], order[turn % roots]
            self._read(block, team, time, partial(end, turn), asked=passed)

        def end(turn: int, time: float) -> None:
            self._ended(time)
            release(turn + roots, time)
            if not store.early_turns:
                hand_on(turn, time)

        def hand_on(turn: int, time: float) -> None:
            if turn + tokens < turns:
                self.servers.at(time + store.hop_seconds, partial(release, turn + tokens))

        def release(turn: int, time: float) -> None:
            if turn < turns:
                waits_for[turn] -= 1
                if not waits_for[turn]:
                    begin(turn, time)

        for turn in range(min(tokens, roots, turns)):
            begin(turn, self.now)
        self.servers.run()

    def _in_chance_order(self, number: int) -> Sequence[int]:
        """Return the roots as they come out of a barrier."""
        roots = len(self._nodes)
        order: list[int] = Epoch(roots, SEED, number).samples(np.arange(roots)).tolist()
        return order

    def _ended(self, time: float) -> None:
        self.now = max(self.now, time)

    def _read(
        self, block: int, team: int, now: float, then: Then, asked: Then | None = None
    ) -> None:
        extents = self._workload.extents(self._schedule.team_records(block, team))
        if self._shares:
            share = self._shares[min(block, len(self._shares) - 1)]
            extents = _widened(extents, share, self._workload.total_bytes)
        self.servers.stream(
            now,
            _reads(extents, self._options),
            then,
            depth=self._depth,
            link=self._nodes[team],
            path=FILE,
            asked=asked,
        )


def _reads(extents: _core.Extents, options: PlanOptions) -> list[Read]:
    """Return the requests that read some records, as a root plans them."""
    requests = plan_reads(extents, options).requests
    return list(zip(requests["offset"].tolist(), requests["length"].tolist(), strict=True))


def _widened(extents: _core.Extents, share: float, total: int) -> _core.Extents:
    """Return one extent of all records that has ``share`` times their bytes, inside the file."""
    if not len(extents):
        return extents
    low, high = int(extents["offset"].min()), int((extents["offset"] + extents["length"]).max())
    more = int((share - 1) * (high - low)) // 2
    low, high = max(0, low - more), min(max(total, high), high + more)
    return np.array([(low, high - low)], _core.EXTENT)


def speculated_shares(schedule: Schedule, workload: Workload, team: int) -> list[float]:
    """Return the bytes that a root reads for its blocks over those that it needs, block by block.

    It reads its guess, and then what lies outside of that. Of the first blocks only: a root whose
    guesses are right makes no others later.

    Args:
        schedule: Schedule with blocks of one iteration.
        workload: workload whose records it reads.
        team: team of the root.

    Source: LMDBIO, section 4.2.2; ``planning.speculation`` makes the guesses.
    """
    count = schedule.count
    sample = workload.extents(np.arange(min(count, SAMPLE_RECORDS), dtype=np.uint64))
    speculation = Speculation(count, workload.total_bytes, sample)
    shares: list[float] = []
    for block in range(min(GUESSES, schedule.blocks or GUESSES)):
        records = schedule.team_records(block, team)
        if not len(records):
            return [1.0]
        first = int(records[0])
        extents = workload.extents(
            np.arange(first, min(count, first + len(records)), dtype=np.uint64)
        )
        guess = speculation.guess([Run(first, len(extents), team)], 0)
        shares.append(_share(guess, extents))
        speculation.learn(first, extents)
    return shares


def _share(guess: Guess | None, extents: _core.Extents) -> float:
    low = int(extents["offset"][0]) // PAGE_BYTES * PAGE_BYTES
    high = -(-int(extents["offset"][-1] + extents["length"][-1]) // PAGE_BYTES) * PAGE_BYTES
    if guess is None:
        return 1.0
    missed = guess.places(extents, np.zeros(len(guess.ranges), np.uint64)) < 0
    read = int(guess.ranges["length"].sum()) + int(extents["length"][missed].sum())
    return max(1.0, read / (high - low))
