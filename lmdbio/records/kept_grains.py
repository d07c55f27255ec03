"""kept_grains: the part of a file that a process keeps, grain by grain.

    the first grains   memory, from which records are lent
    the last ones      a disk, where there is one (``kept_disk``); some are in both

Threads share it. Grains are read when a record in them is first needed (``kept_loads``). In memory
a grain is marked as present after the file was seen not to have changed, and never written again.
So what is lent from it needs no look at the file.
"""

from __future__ import annotations

from time import monotonic_ns

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import CacheFile
from lmdbio.planning.homes import Homes, Room
from lmdbio.reading.blocks import Blocks
from lmdbio.records.kept_disk import DiskRows, KeptDisk
from lmdbio.records.kept_loads import GrainLoads
from lmdbio.records.kept_slots import PRESENT, KeptSlots

__all__ = ["KeptGrains"]

U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

#: Records whose extents are looked up at once.
PART = 2**18


class KeptGrains:
    """A part of a file in memory, and on a disk.

    Threads may share it. After fork the child goes on with a copy of its own, and reads what is on
    the disk by then.

    Args:
        blocks: engines and memory that the file is read with; borrowed.
        homes: homes of the file's records.
        part: number of the part.
        room: capacity of each tier.
        file: file on the disk; owned once this is made. None: there is no disk.
    """

    def __init__(
        self, blocks: Blocks, homes: Homes, part: int, room: Room, file: CacheFile | None = None
    ) -> None:
        room = Room(room.memory) if file is None else room
        self._slots = slots = KeptSlots(homes, part, room)
        self._counter, self._pool = blocks.counter, blocks.pool
        self.disk: KeptDisk | None = None
        if file is not None and len(slots.tiers.disk):
            begins = slots.begins[slots.tiers.disk.start :]
            self.disk = KeptDisk(file, begins, slots.size, slots.limit)
            slots.mark(np.flatnonzero(slots.disk)[self.disk.left], PRESENT)
        elif file is not None:
            file.close()
        self._loads = GrainLoads(blocks, slots, self.disk)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the file that it keeps, or will."""
        return self._slots.kept_bytes

    @property
    def tier_bytes(self) -> tuple[int, int]:
        """Bytes of the file that it keeps, or will, in memory and on the disk."""
        return self._slots.memory_bytes, len(self._slots.tiers.disk) * self._slots.size

    @property
    def is_on_disk(self) -> bool:
        """Whether all that is to be on the disk is there."""
        return bool((self._slots.states[self._slots.disk] == PRESENT).all())

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory for what it keeps; 0 after ``close``."""
        return self._loads.memory_bytes

    @property
    def memory(self) -> _core.Memory:
        """The grains in memory, one behind the other; good as long as anybody holds it.

        Raises:
            Error: it is closed.
        """
        return self._loads.memory

    # --- records

    def covered(self, extents: _core.Extents) -> Flags | None:
        """Return which records can be had from here, empty ones included; None: all."""
        return self._slots.covered(
            extents, is_away=self.disk is not None and self.disk.tier.is_away
        )

    def apart(self, extents: _core.Extents) -> Flags | None:
        """Return which records that are covered lie on the disk; None: none of this part do."""
        return self._slots.apart(extents)

    def places(self, extents: _core.Extents) -> U64:
        """Return where records that lie in memory begin there; 0 where one is empty."""
        return self._slots.addresses(extents)

    def read_apart(self, extents: _core.Extents) -> DiskRows:
        """Read records that are covered, and lie on the disk.

        Those that are not there now, or damaged, are wrong; the grains of these are read from the
        data file again when they are next needed.
        """
        assert self.disk is not None
        begun, slots = monotonic_ns(), self._slots
        there = slots.are_there(extents)
        rows = self.disk.read_rows(extents[there], self._pool)
        self._counter.span("wait", begun)
        places, wrong = np.zeros(len(extents), np.uint64), ~there
        places[there], wrong[there] = rows.places, rows.wrong
        if rows.wrong.any() and not self.disk.tier.is_away:
            self._loads.note_damage(slots.under(extents[there][rows.wrong]))
        return DiskRows(rows.memory, places, wrong)

    # --- reading

    def start(self, extents: _core.Extents) -> None:
        """Start to read the grains of records that are covered, as far as they are absent.

        Raises:
            Error: it is closed.
        """
        self._loads.start(lambda: self._slots.under(extents))

    def bring(self, extents: _core.Extents) -> None:
        """Wait until the grains of records that are covered are present, or lost.

        Those on a disk that does not answer may still be absent.

        Raises:
            Error: the file has moved on, or it is closed.
        """
        self._loads.bring(lambda: self._slots.under(extents))

    def preload(self) -> None:
        """Read all grains.

        Raises:
            Error: the file has moved on.
        """
        self._loads.preload()

    def close(self) -> None:
        """Give up what is under way, and the memory, unless somebody holds that; unlock the file.

        May be called twice.
        """
        self._loads.close()
        if self.disk is not None:
            self.disk.close()
