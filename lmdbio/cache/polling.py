"""polling: one thread that needs grains of a shard, and never waits for them.

wanted by a block, or next in the order of the file -> begun, as many as suit -> looked at, turn
by turn, until they are there
"""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.loads import GrainLoads, Load
from lmdbio.cache.tier import TierReads
from lmdbio.cache.writer import TierWrite
from lmdbio.reading.guarded import GuardedReads

__all__ = ["PollingLoads"]

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def _begun(loads: list[Load]) -> list[Load]:
    """Return the loads of a list that have begun: the first ones."""
    return list(takewhile(lambda load: load.has_begun, loads))


class PollingLoads:
    """The loads of a shard, driven by one thread that polls.

    Args:
        loads: loads of the shard.
    """

    def __init__(self, loads: GrainLoads) -> None:
        self._loads, self._limits, self._table = loads, loads.limits, loads.table
        self._swept = 0

    @property
    def steps(self) -> int:
        """The number of loads that have arrived, and writes that have ended."""
        return self._loads.steps

    @property
    def slowest_s(self) -> float:
        """The longest duration of a step lately, seconds."""
        return self._loads.slowest_s

    def want(self, extents: _core.Extents) -> I64:
        """Return the grains under some records that are missing, and have them read.

        Args:
            extents: places of the records in the data file.
        """
        if self._table.is_full:
            return np.empty(0, np.int64)
        return self._want(self._table.under(extents))

    def _want(self, grains: Flags) -> I64:
        """Return those of a mask of the shard's grains that are missing, and have them read."""
        missing = np.flatnonzero(grains & self._table.missing())
        if len(missing):
            self._loads.want(grains)
            self._begin_next()
        return missing

    def still_missing(self, grains: I64) -> I64:
        """Return those of some grains that are not there yet."""
        return grains[self._table.missing()[grains]] if len(grains) else grains

    def sweep(self) -> None:
        """Start to read the next grains that nobody has needed yet."""
        owned, loads = len(self._table.owned), self._loads
        at_once = max(1, self._limits.piece_bytes // self._table.map.size)
        while self._swept < owned:
            begun = [*_begun(loads.to_front), *_begun(loads.to_back)]
            has_waiting = len(begun) < len(loads.to_front) + len(loads.to_back)
            if has_waiting or sum(load.reads is not None for load in begun) >= self._limits.loads:
                break
            part = np.arange(self._swept, min(owned, self._swept + at_once))
            self._swept += at_once
            if len(missing := self.still_missing(part)):
                grains = np.zeros(owned, np.bool_)
                grains[missing] = True
                self._want(grains)

    def tend(self) -> None:
        """Take in what has arrived, and go on.

        Raises:
            OSError, Error: the data file cannot be read.
        """
        loads = self._loads
        for load in [*_begun(loads.to_front), *_begun(loads.to_back)]:
            with load.lock:
                loads.poll(load)
        self._begin_next()
        if loads.copies and not loads.to_back:
            with loads.lock:
                loads.to_back.append(loads.copies.popleft())
            self._begin_next()

    def _begin_next(self) -> None:
        """Start as many of the loads that wait as suit, the oldest first."""
        loads, limits = self._loads, self._limits
        begun = len(_begun(loads.to_front))
        for load in loads.to_front[begun : limits.loads]:
            self._begin(load)
        most = max(1, limits.buffer_bytes // max(limits.piece_bytes, self._table.map.size))
        for load in list(loads.to_back):
            most -= load.is_of_file
            if most < 0:
                break
            if not load.has_begun and loads.back is not None and loads.back.is_full:
                loads.drop(load)
            elif not load.has_begun:
                self._begin(load)

    def _begin(self, load: Load) -> None:
        with load.lock:
            self._loads.begin(load)

    @property
    def is_stuck(self) -> bool:
        """Whether grains wait for a tier that does not answer."""
        loads, back = self._loads, self._loads.back
        begun = [*_begun(loads.to_front), *_begun(loads.to_back)]
        is_late = any(load.is_late for load in begun)
        if (
            back is None
            or not is_late
            or any(isinstance(load.reads, GuardedReads) for load in begun)
        ):
            return False
        back.note_stuck()
        return True

    @property
    def awaited(self) -> _core.Ticket | TierReads | TierWrite | None:
        """Reads or writes that are under way; None: there are none."""
        begun = [*_begun(self._loads.to_front), *_begun(self._loads.to_back)]
        begun.sort(key=lambda load: load.reads is None)  # reads before writes
        return begun[0].awaited if begun else None
