"""table: which grains of a shard each of two tiers has, and where records lie.

    grains of a shard  | 0 | 1 | 2 | 3 | 4 | 5 |
    front, in memory   | 0 | 1 | 2 | 3 |             the first ones
    back, on a disk            | 2 | 3 | 4 | 5 |     the last ones, as far as there is room

A record that lies in memory as a whole is read there, each other one of the shard from the back.

    ABSENT -> PRESENT   in each tier
           -> LOST      it cannot be read as a whole, or the tier has not taken it: its records
                        come from the data file by themselves
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.grains import GrainMap
from lmdbio.placement.homes import Homes, Room, Tiers

__all__ = ["ABSENT", "LOST", "PRESENT", "GrainTable"]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

ABSENT, PRESENT, LOST = range(3)


class GrainTable:
    """The grains of one shard, by their places in it, and the state of each in each tier.

    Args:
        homes: owners of all records of the file.
        shard: number of the shard's owner.
        room: capacity of each tier, filled to a whole number of grains.
        limit: end of what is needed of the data file, bytes.

    Attributes:
        owned: grains of the shard, among the used grains of the file.
        tiers: places of these in memory, and on the disk.
        map: places of the grains in the data file.
        both: first grain that is needed in the back tier: a record that begins in memory may end
            behind it, and is read there as a whole.
        front, back: state of each grain in each tier; of those that have no room there, LOST.
        is_full: whether nothing is to be read: all is there, or cannot be.
        has_lost: whether some grain was lost.
    """

    def __init__(self, homes: Homes, shard: int, room: Room, limit: int) -> None:
        grains, owned = homes.grains, homes.owned(shard)
        most = room.total(grains) >> grains.bits
        self.owned = range(owned.start, min(owned.stop, owned.start + most))
        self.tiers = Tiers.of(len(self.owned), room, grains.bits)
        self._grains = grains
        begins = np.asarray(
            grains.used[self.owned.start : self.owned.stop] << grains.bits, np.int64
        )
        self.map = GrainMap(begins, grains.size, limit)
        in_memory = self._in_memory = len(self.tiers.memory)
        is_split = in_memory < len(self.owned)
        self.both = max(0, in_memory - grains.span_max + 1) if is_split else len(self.owned)
        #: Records that lie between these bytes of the file lie in these grains, and in memory.
        self._low = int(begins[0]) if len(begins) else 0
        self._memory_high, self._high = self._end(in_memory), self._end(len(begins))
        self._has_all = len(self.owned) == len(grains.used)
        self.front: U8 = np.full(in_memory, ABSENT, np.uint8)
        self.back: U8 = np.full(len(self.owned), LOST, np.uint8)
        self.back[self.tiers.disk.start :] = ABSENT
        # Behind it lie parts of records that another shard has.
        self.front[begins[:in_memory] >= limit] = PRESENT
        self.back[begins >= limit] = PRESENT
        self.has_lost = False
        self.recheck()

    def _end(self, grains: int) -> int:
        """Return where so many grains end in the file."""
        begins = self.map.begins
        return min(int(begins[grains - 1]) + self.map.size, self.map.limit) if grains else 0

    @property
    def is_split(self) -> bool:
        """Whether some grains have no place in memory."""
        return self._in_memory < len(self.owned)

    @property
    def is_left(self) -> bool:
        """Whether the back tier has all grains."""
        return bool((self.back == PRESENT).all())

    def has_memory_of(self, other: GrainTable) -> bool:
        """Return whether another table has the same grains at the same places in memory."""
        own, its, count = self.map, other.map, self._in_memory
        is_like = (own.size, own.limit, count) == (its.size, its.limit, other._in_memory)
        return is_like and np.array_equal(own.begins[:count], its.begins[:count])

    def mark(self, states: U8, grains: I64, state: int) -> None:
        """Note the state of some grains in a tier; for one thread at a time.

        Args:
            states: ``front`` or ``back``.
            grains: grains, by their places in the shard.
            state: state that they have now.
        """
        if not len(grains):
            return
        # First: a lost grain is never taken for a present one.
        self.has_lost |= state == LOST
        states[grains] = state
        self.recheck()

    # --- what there is to be read

    def recheck(self) -> None:
        """Note what is missing; for one thread at a time, and in a child that is forked."""
        self._missing = self._find_missing(is_away=False)
        self.is_full = not self._missing.any()

    def _find_missing(self, *, is_away: bool) -> Flags:
        missing = np.zeros(len(self.owned), np.bool_)
        if not is_away:
            missing[self.both :] = self.back[self.both :] == ABSENT
        missing[: self._in_memory] |= self.front == ABSENT
        return missing

    def missing(self, *, is_away: bool = False) -> Flags:
        """Return which grains are to be read, or are on their way: shape (owned,).

        Args:
            is_away: whether the back tier is done without.
        """
        return self._find_missing(is_away=True) if is_away else self._missing

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes of grains that are there, or cannot be; and of all of them."""
        missing = int(np.count_nonzero(self._missing))
        return (len(self.owned) - missing) * self.map.size, len(self.owned) * self.map.size

    def under(self, extents: _core.Extents) -> Flags:
        """Return which grains lie under some records: shape (owned,)."""
        return self._grains.under(extents)[self.owned.start : self.owned.stop]

    # --- records

    def covered(self, extents: _core.Extents, *, is_away: bool) -> Flags | None:
        """Return which records have grains that are not lost, empty ones included; None: all.

        Args:
            is_away: whether the back tier is done without.
        """
        if self._has_all and not self.has_lost and not is_away:
            return None
        offsets, lengths = extents["offset"], extents["length"]
        inside = (offsets >= np.uint64(self._low)) & (offsets + lengths <= np.uint64(self._high))
        inside &= lengths > 0
        apart = self.apart(extents)
        if is_away and apart is not None:
            inside &= ~apart
        if self.has_lost:
            in_memory = inside if apart is None else inside & ~apart
            inside &= ~self._touches(extents, in_memory, self.front == LOST)
            if apart is not None:
                inside &= ~self._touches(extents, inside & apart, self.back == LOST)
        covered = np.asarray(inside | (lengths == 0))
        return None if covered.all() else covered

    def lacks(self, extents: _core.Extents) -> Flags:
        """Return which records that lie apart the back tier has not now."""
        return self._touches(extents, np.ones(len(extents), np.bool_), self.back != PRESENT)

    def touches(self, extents: _core.Extents, grains: I64) -> Flags:
        """Return which records lie in one of some grains; empty ones do not."""
        marked = np.zeros(len(self.owned), np.bool_)
        marked[grains] = True
        return self._touches(extents, extents["length"] > 0, marked)

    def _touches(self, extents: _core.Extents, which: Flags, marked: Flags) -> Flags:
        """Return which of some records lie in a marked grain, none of the others."""
        found, some = np.zeros(len(extents), np.bool_), np.flatnonzero(which)
        if len(some):
            found[some] = self._grains.touch(extents[some], marked, self.owned.start)
        return found

    def apart(self, extents: _core.Extents) -> Flags | None:
        """Return which records of the shard do not lie in memory as a whole; None: none.

        No empty one is among them. Of records that are not covered, it says nothing.
        """
        if not self.is_split:
            return None
        apart = extents["offset"] + extents["length"] > np.uint64(self._memory_high)
        return np.asarray(apart & (extents["length"] > 0))

    def places(self, extents: _core.Extents) -> U64:
        """Return where records that lie in memory begin there; 0 where one is empty."""
        numbers, first = self._grains.numbers, self.owned.start
        places = _core.place_extents(extents, self._grains.bits, numbers, first)
        places[extents["length"] == 0] = 0  # which may lie anywhere
        return places
