"""kept_slots: which grains of a part have slots in memory and on a disk, and where records lie.

    grains of a part   | 0 | 1 | 2 | 3 | 4 | 5 |
    slots in memory    | 0 | 1 | 2 | 3 |             the first ones
    slots on the disk          | 4 | 5 | 6 | 7 |     the last ones, as far as there is room

A record that lies in memory as a whole is read there, each other one of the part on the disk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.homes import Homes, Room, Tiers
from lmdbio.planning.reads import PAGE_BYTES

__all__ = ["ABSENT", "LOST", "PRESENT", "KeptSlots"]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

ABSENT, PRESENT, LOST = range(3)


class KeptSlots:
    """The slots of the grains of one part, and the state of each.

    Args:
        homes: homes of all records of the file.
        part: number of the part.
        room: capacity of each tier, filled to a whole number of grains.

    Attributes:
        kept: the part, among the used grains of the file.
        tiers: places of its grains in memory, and on the disk.
        size: size of a grain, bytes.
        begins: offset of each grain in the file, bytes.
        limit: end of the last record, offset in the file in bytes.
        states: states of all slots.
        disk: mask of the slots that are on the disk.
        is_full: whether no slot is absent.
        has_lost: whether some slot is lost.
    """

    def __init__(self, homes: Homes, part: int, room: Room) -> None:
        grains = homes.grains
        kept, bits = homes.kept(part), grains.bits
        self.kept = range(kept.start, min(kept.stop, kept.start + (room.total(grains) >> bits)))
        self.tiers = Tiers.of(len(self.kept), room, bits)
        self._grains, self.size = grains, grains.size
        self.begins: I64 = grains.used[self.kept.start : self.kept.stop] << bits
        self.limit = int(homes.limits.max(initial=0))
        self._in_memory, self._on_disk = len(self.tiers.memory), len(self.tiers.disk)
        #: Records that lie between these bytes of the file lie in these grains, and in memory.
        self._low = int(self.begins[0]) if len(self.kept) else 0
        self._memory_high, self._high = self._end(self._in_memory), self._end(len(self.kept))
        self._has_all = len(self.kept) == len(grains.used)
        self.states: U8 = np.full(self._in_memory + self._on_disk, ABSENT, np.uint8)
        self.disk: Flags = np.arange(len(self.states)) >= self._in_memory
        self.is_full, self.has_lost = not len(self.states), False

    def _end(self, grains: int) -> int:
        """Return where so many grains end in the file."""
        return min(int(self.begins[grains - 1]) + self.size, self.limit) if grains else 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of all grains of the part."""
        return len(self.kept) * self.size

    @property
    def memory_bytes(self) -> int:
        """Bytes of those that have slots in memory."""
        return self._in_memory * self.size

    def mark(self, slots: I64 | Flags, state: int) -> None:
        """Note the state of some slots; for one thread at a time."""
        # First: a lost grain is never taken for a present one.
        self.has_lost |= state == LOST and bool(np.size(self.states[slots]))
        self.states[slots] = state
        self.is_full = bool((self.states != ABSENT).all())

    # --- grains

    def places(self, slots: I64) -> I64:
        """Return the places in the part of the grains of some slots."""
        on_disk = slots - self._in_memory + self.tiers.disk.start
        return np.where(slots < self._in_memory, slots, on_disk)

    def on_disk(self, slots: I64) -> tuple[I64, I64]:
        """Return those of some slots in memory whose grains have slots on the disk, and these."""
        some = slots[slots >= self.tiers.disk.start] if self._on_disk else slots[:0]
        return some, some - self.tiers.disk.start + self._in_memory

    def reads(self, slots: I64, addresses: I64) -> npt.NDArray[np.void]:
        """Return a request (``READ``) in the data file for each of some slots."""
        reads = np.zeros(len(slots), _core.READ)
        begins = self.begins[self.places(slots)]
        needed = np.minimum(self.size, self.limit - begins)
        reads["offset"], reads["needed"] = begins, needed
        reads["length"] = -(-needed // PAGE_BYTES) * PAGE_BYTES
        reads["into"] = addresses
        return reads

    # --- records

    def covered(self, extents: _core.Extents, *, is_away: bool) -> Flags | None:
        """Return which records have slots that are not lost, empty ones included; None: all.

        Args:
            is_away: whether what is on the disk cannot be had.
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
            self._leave_out(extents, inside, in_memory, self.states[: self._in_memory] == LOST, 0)
            if apart is not None:
                self._leave_out_on_disk(extents, inside, inside & apart, self.states == LOST)
        covered = np.asarray(inside | (lengths == 0))
        return None if covered.all() else covered

    def are_there(self, extents: _core.Extents) -> Flags:
        """Return which records are on the disk now; all of them have slots there."""
        there = np.ones(len(extents), np.bool_)
        self._leave_out_on_disk(extents, there, there.copy(), self.states != PRESENT)
        return there

    def _leave_out_on_disk(
        self, extents: _core.Extents, inside: Flags, which: Flags, marked: Flags
    ) -> None:
        begin = self.tiers.disk.start
        self._leave_out(extents, inside, which, marked[self._in_memory :], begin)

    def _leave_out(
        self, extents: _core.Extents, inside: Flags, which: Flags, marked: Flags, begin: int
    ) -> None:
        """Leave those of some records out that lie in marked grains of one tier.

        Args:
            inside: mask of records, from which those left out are removed.
            which: mask of the records that lie in this tier.
            marked: grains of the tier.
            begin: place of the first one.
        """
        some = np.flatnonzero(which)
        if len(some):
            touched = self._grains.touch(extents[some], marked, self.kept.start + begin)
            inside[some[touched]] = False

    def apart(self, extents: _core.Extents) -> Flags | None:
        """Return which records of the part do not lie in memory as a whole; None: none.

        No empty one is among them. Of records that are not covered, it says nothing.
        """
        if not self._on_disk:
            return None
        apart = extents["offset"] + extents["length"] > np.uint64(self._memory_high)
        return np.asarray(apart & (extents["length"] > 0))

    def addresses(self, extents: _core.Extents) -> U64:
        """Return where records that lie in memory begin there; 0 where one is empty."""
        numbers, first = self._grains.numbers, self.kept.start
        places = _core.place_extents(extents, self._grains.bits, numbers, first)
        places[extents["length"] == 0] = 0  # which may lie anywhere
        return places

    def under(self, extents: _core.Extents) -> Flags:
        """Return which slots are needed for some records that are covered."""
        apart = self.apart(extents)
        in_memory = extents if apart is None else extents[~apart]
        first = self.kept.start
        needed = np.zeros(len(self.states), np.bool_)
        used = self._grains.under(in_memory)
        needed[: self._in_memory] = used[first : first + self._in_memory]
        if apart is not None:
            used = self._grains.under(extents[apart])
            needed[self._in_memory :] = used[first + self.tiers.disk.start : self.kept.stop]
        return needed
