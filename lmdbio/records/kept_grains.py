"""kept_grains: the part of a file that a process keeps, grain by grain.

    the first grains   memory, from which records are lent
    the last ones      a disk, where there is one (``kept_disk``); some are in both

Threads share it. Grains are read when a record in them is first needed (``kept_loads``). In memory
a grain is marked as present after the file was seen not to have changed, and never written again.
So what is lent from it needs no look at the file.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from time import monotonic_ns
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import CacheFile
from lmdbio.locate.record_index import RecordIndex
from lmdbio.machine import storage
from lmdbio.planning.homes import Grains, Homes, Room, grain_bytes
from lmdbio.planning.reads import REQUEST_BYTES_MAX
from lmdbio.records.kept_disk import DiskRows, KeptDisk
from lmdbio.records.kept_loads import GrainLoads
from lmdbio.records.kept_slots import PRESENT, KeptSlots
from lmdbio.system.log import WARNING, tell

if TYPE_CHECKING:
    from lmdbio.records.records import Records
    from lmdbio.records.routes import Routes

__all__ = ["KeptGrains", "even_homes", "is_far", "keep"]

U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

#: Records whose extents are looked up at once.
PART = 2**18


def even_homes(records: Records, parts: int) -> Homes:
    """Return the records of a file in so many parts, even by bytes; all of them have a home.

    Nothing but the file and the number of parts matters, so that processes find the same homes
    without asking each other.

    Raises:
        ValueError: there are too many parts.
        OSError, Error: where records lie cannot be read.
    """
    index = records._source
    ends = [int((part["offset"] + part["length"]).max()) for part in _extents(index)]
    end = max(ends, default=0)
    share = end // parts
    grains = Grains.of(_extents(index), end, grain_bytes(REQUEST_BYTES_MAX, share, share))
    rooms = [(len(grains.used) + grains.span_max) << grains.bits] * parts
    return Homes.of(grains, rooms, index.count, index.run)


def _extents(index: RecordIndex) -> Iterator[_core.Extents]:
    """Yield the extents of all records, some at a time."""
    for first in range(0, index.count, PART):
        yield index.run(first, min(index.count, first + PART))


def is_far(records: Records) -> bool:
    """Return whether a file lies on storage that other machines have."""
    found = storage.look(records._source.pages, cached=False)
    return not (found.disk or found.in_memory)


def keep(
    records: Records,
    homes: Homes,
    part: int,
    room: int,
    file: CacheFile | None = None,
    disk_room: int = 0,
) -> KeptGrains:
    """Have the batches of open records keep a part of the file, as far as there is room.

    The file cache keeps nothing besides.

    Args:
        records: that no thread reads yet, and nothing is kept of.
        homes: of its records.
        part: of them.
        room: bytes of memory.
        file: on a disk, open and locked; owned from now on.
        disk_room: bytes there.

    Raises:
        MemoryError: there is none.
        OSError: the file on the disk cannot be written.
    """
    routes = records._routes
    routes.file_cache.close()
    try:
        routes.kept = KeptGrains(routes, homes, part, Room(room, disk_room), file)
    except BaseException as error:
        if file is None:
            raise
        file.close()
        if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        tell(f"{file.path}: nothing is kept on this disk: {error.strerror}", WARNING)
        routes.kept = KeptGrains(routes, homes, part, Room(room))
    return routes.kept


class KeptGrains:
    """A part of a file in memory, and on a disk.

    Threads may share it. After fork the child goes on with a copy of its own, and reads what is on
    the disk by then.

    Args:
        routes: read the file; borrowed.
        homes: of its records.
        part: of them.
        room: of each tier.
        file: on the disk; owned once this is made. None: there is no disk.
    """

    def __init__(
        self, routes: Routes, homes: Homes, part: int, room: Room, file: CacheFile | None = None
    ) -> None:
        room = Room(room.memory) if file is None else room
        self._slots = slots = KeptSlots(homes, part, room)
        self._counter, self._pool = routes.counter, routes.pool
        self.disk: KeptDisk | None = None
        if file is not None and len(slots.tiers.disk):
            begins = slots.begins[slots.tiers.disk.start :]
            self.disk = KeptDisk(file, begins, slots.size, slots.limit)
            slots.mark(np.flatnonzero(slots.disk)[self.disk.left], PRESENT)
        elif file is not None:
            file.close()
        self._loads = GrainLoads(routes, slots, self.disk)

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
        return self._slots.covered(extents, is_away=self.disk is not None and self.disk.is_away)

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
        self._counter.waited(begun)
        places, wrong = np.zeros(len(extents), np.uint64), ~there
        places[there], wrong[there] = rows.places, rows.wrong
        if rows.wrong.any() and not self.disk.is_away:
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
