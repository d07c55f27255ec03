"""Caching: whether roots keep parts of the file, in memory or on a disk, and which.

Cache, nodes, file -> room of each root -> grains -> homes -> memory, and pages on the disk
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lmdbio import _core, share
from lmdbio.locate.cursor_walk import CursorWalk
from lmdbio.locate.open_files import SharedExtents
from lmdbio.locate.record_index import RecordIndex
from lmdbio.machine.budget import available_bytes
from lmdbio.machine.cache_choice import FOLDER_VARIABLE, auto_memory, order_hint
from lmdbio.machine.choice import Reason
from lmdbio.planning.cache import Cache
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import GLOBAL
from lmdbio.reader.roots import RootSource
from lmdbio.system.log import tell

if TYPE_CHECKING:
    from lmdbio.planning.homes import Homes, Room
    from lmdbio.reader.record_store import RecordStore
    from lmdbio.reader.shard_store import ShardStore

__all__ = ["Caching", "Measured", "Wish", "agree_cache", "refuse_memory"]

#: Records whose extents are looked up at once.
PART = 2**18


class Wish(NamedTuple):
    """Whether roots are to keep parts of the file, and why.

    Attributes:
        cache: cache of each root; "auto": as much as there is; None: none.
    """

    cache: Cache | str | None
    reason: Reason

    @property
    def is_warm(self) -> bool:
        """Whether they are to do so before the first batch."""
        return isinstance(self.cache, Cache) and self.cache.warm == "preload"

    @property
    def is_mixed(self) -> bool:
        """Whether records that have no home are to stream through windows."""
        return isinstance(self.cache, Cache) and self.cache.placement == "mixed"


class Measured(NamedTuple):
    """The sizes that a root knows once it has gone through the extents of all records.

    Attributes:
        request_bytes: largest size of a request, bytes.
        window_bytes: least size of the root's window, bytes, beside what it keeps.
    """

    request_bytes: int
    window_bytes: int


class Caching(NamedTuple):
    """The parts that roots keep, as all ranks have agreed on it.

    Attributes:
        kept: cache of this root; None where this rank is no root, or roots keep nothing.
        are_kept: whether roots keep parts of the file.
        is_whole: whether all records have a home.
        held: number of records, from the first one on, that have a home.
        homed: number of records that have a home.
        buffer_bytes: size of a root's buffers for writes to a disk; 0: there are no disks.
        are_sent: whether roots send each other rows.
        mpi: the MPI library that carries rows, on roots; else None.
        reason: reason for the outcome.
    """

    kept: ShardStore | RecordStore | None
    are_kept: bool
    is_whole: bool
    held: int
    homed: int
    buffer_bytes: int
    are_sent: bool
    mpi: _core.MpiLibrary | None
    reason: Reason


class _Offer(NamedTuple):
    """The room and the part that a root has, before homes are settled.

    Attributes:
        room: memory and disk that this root has for its home.
        request_bytes_max: bytes of a request.
        silence: reason why it cannot send rows; empty: it can.
        left: end of the part that an earlier job has left on its disk, offset in bytes; None:
            there is none.
    """

    room: Room
    request_bytes_max: int
    silence: str
    left: int | None


class _Taken(NamedTuple):
    """The part of the file that all roots keep, and that of one of them.

    Attributes:
        held, whole: bytes that all keep, and of all records.
        held_records, homed: records from the first one on that have a home, and all that have.
        memory, disk: bytes of its grains that lie there.
        is_split: whether some grains are on its disk alone.
        is_full: whether an earlier job has left all of them there.
    """

    held: int
    whole: int
    held_records: int
    homed: int
    memory: int
    disk: int
    is_split: bool
    is_full: bool

    @property
    def counts(self) -> tuple[bool, int, int]:
        """Whether all records have a home; those from the first one on that have, and all."""
        return self.held >= self.whole, self.held_records, self.homed

    @classmethod
    def of(cls, store: ShardStore) -> _Taken:
        """Return what a root tells of its part."""
        homes, table = store.sources.homes, store.shard.table
        whole, (memory, disk) = homes.grains.used_bytes, store.shard.tier_bytes
        counts = homes.first_records, int((homes.records != _core.NO_HOME).sum())
        return cls(homes.held_bytes, whole, *counts, memory, disk, table.is_split, table.is_left)


def agree_cache(
    job: share.Job,
    wish: Wish,
    schedule: Schedule,
    source: RootSource | None,
    measure: Callable[[RootSource], Measured],
    *,
    roots_here: int,
) -> Caching:
    """Settle what each root keeps, and take the room for it. Collective over the job.

    Args:
        wish: cache that roots are to have.
        schedule: schedule of all ranks.
        source: data set of this root, whose cache file it gets; None where this rank is no root.
        measure: goes through the extents of all records.
        roots_here: number of roots on this machine.

    Raises:
        MemoryError: a root has not the memory that was asked for.
        OSError: a root's folder for cache files cannot be used.
    """
    if wish.cache is None:
        return Caching(None, False, False, 0, 0, 0, False, None, wish.reason)
    from lmdbio.cache import LIMITS  # others begin sooner without it

    library: _core.MpiLibrary | None = None
    roots, team = len(schedule.teams), schedule.team_of(job.rank)

    def offer() -> _Offer | None:
        nonlocal library
        if source is None:
            return None
        library, silence = share.find_library(job) if roots > 1 else (None, "")
        size, beside = measure(source)
        left = _take_file(wish.cache, source, team, roots, roots_here)
        return _Offer(_room(wish.cache, source, roots, roots_here, beside), size, silence, left)

    # One for each team, in the order of their first ranks, which are the roots.
    offers = [one for one in job.together(offer) if one is not None]
    silence = next((one.silence for one in offers if one.silence), "")
    kept: list[ShardStore] = []  # on this rank: one, or none

    def take() -> _Taken | None:
        if source is None:
            return None
        kept.append(_store(wish, schedule, source, team, offers))
        return _Taken.of(kept[0])

    taken = [one for one in job.together(take) if one is not None]
    own = kept[0].warm(wish.is_warm or all(one.is_full for one in taken)) if kept else None
    reason = _reason(taken, silence, _hint(wish, schedule, taken[0], offers))
    library = None if silence else library
    buffer_bytes = LIMITS.buffer_bytes if any(one.is_split for one in taken) else 0
    are_sent = not silence and roots > 1
    return Caching(own, True, *taken[0].counts, buffer_bytes, are_sent, library, reason)


def _store(
    wish: Wish, schedule: Schedule, source: RootSource, team: int, offers: list[_Offer]
) -> ShardStore:
    """Take what this root needs for its home.

    Raises:
        MemoryError, OSError: it cannot be had.
    """
    from lmdbio.planning.homes import HomeSources
    from lmdbio.reader.shard_store import ShardStore

    sources = HomeSources(schedule, _homes(source, schedule.count, offers))
    room, file = offers[team].room, source.cache_file
    return ShardStore.of(sources, team, room, file, waits=wish.is_warm)


def _reason(taken: list[_Taken], silence: str, hint: str) -> Reason:
    """Return what is kept, and tell it where that is less than it could be."""
    text = _told(taken, silence)
    reason = Reason("keyword", f"{text}; {hint}" if hint else text)
    if silence or hint:
        tell(f"cache: {reason.text}")
    return reason


def _hint(wish: Wish, schedule: Schedule, taken: _Taken, offers: list[_Offer]) -> str:
    """Return what another order would gain where nodes have no room for all records."""
    epochs = schedule.epochs
    if wish.is_mixed or epochs is None or epochs.shuffle != GLOBAL:
        return ""
    return order_hint(
        left_records=schedule.count - taken.homed,
        left_bytes=taken.whole - taken.held,
        request_bytes=min(one.request_bytes_max for one in offers),
        is_cached=taken.held > 0,
    )


def _told(taken: list[_Taken], silence: str) -> str:
    who = "1 root keeps" if len(taken) == 1 else f"{len(taken)} roots keep"
    where = []
    memory, disk = sum(one.memory for one in taken), sum(one.disk for one in taken)
    if memory:
        where.append("in memory" if not disk else f"{memory >> 20} in memory")
    if disk:
        both = " (some in both)" if memory and memory + disk > taken[0].held else ""
        where.append("on disks" if not memory else f"{disk >> 20} on disks{both}")
    is_left = disk > 0 and all(one.is_full for one in taken)
    left = " (an earlier job has left them there)" if is_left else ""
    first = taken[0]
    places = ", ".join(where) or "for there is no room"
    text = f"{who} {first.held >> 20} of {first.whole >> 20} MiB, {places}{left}"
    return text + f", but send each other nothing: {silence}" if silence else text


def _folder(cache: Cache | str | None) -> Path | None:
    """Return the folder of a disk that roots are to use; None: none."""
    named = cache.disk if isinstance(cache, Cache) else os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else None


def _take_file(
    cache: Cache | str | None, source: RootSource, team: int, roots: int, roots_here: int
) -> int | None:
    """Take a cache file in the folder of this root's disk, if it is to use one.

    Returns:
        Where the part ends that an earlier job has left in it, bytes; None: there is none.

    Raises:
        OSError: the folder is not there, or cannot be written to.
    """
    folder = _folder(cache)
    if folder is None:
        return None
    from lmdbio.cache import claim, state_of

    index = source.index
    state = state_of(index)
    asker, alone = "cache" if isinstance(cache, Cache) else FOLDER_VARIABLE, roots_here == 1
    file = source.cache_file = claim(folder, state, team, roots, asker, is_alone=alone)
    return None if file is None else file.left


def refuse_memory(source: RootSource, need: int, window_bytes: int, roots_here: int) -> None:
    """Refuse a cache that a root has not the memory for, beside its window.

    Raises:
        MemoryError: this machine has less, for each of so many roots.
    """
    available = available_bytes() // roots_here
    if need + window_bytes > available:
        raise MemoryError(
            f"{source.index.path}: cache: {need >> 20} MiB of memory, and {window_bytes >> 20} "
            f"MiB of window beside it, are more than the {available >> 20} MiB that each of the "
            f"{roots_here} roots of this machine can get"
        )


def _room(
    cache: Cache | str | None, source: RootSource, roots: int, roots_here: int, window_bytes: int
) -> Room:
    """Return how many bytes a root keeps at most, beside its window.

    Raises:
        MemoryError: it has not the memory that was asked for.
    """
    from lmdbio.planning.homes import Room

    disk = _disk_room(cache, source, roots_here)
    if not isinstance(cache, Cache):
        return Room(auto_memory(available_bytes() // roots_here, window_bytes), disk)
    memory = int(cache.memory)
    need = min(memory, source.engine.size() // roots)
    refuse_memory(source, need, window_bytes, roots_here)
    return Room(memory, disk)


def _disk_room(cache: Cache | str | None, source: RootSource, roots_here: int) -> int:
    """Return how many bytes of the data file a root keeps on its disk at most."""
    if source.cache_file is None:
        return 0
    from lmdbio.cache import room_on_disk

    asked = cache.disk_bytes if isinstance(cache, Cache) else None
    return room_on_disk(source.cache_file, None if asked is None else int(asked), roots_here)


def _homes(source: RootSource, count: int, offers: list[_Offer]) -> Homes:
    """Return the homes of all records; the same on all roots."""
    from lmdbio.planning.homes import Grains, Homes, grain_bytes, order_by_left

    index = source.index
    assert not isinstance(index, CursorWalk)  # refused with the arguments
    request_bytes_max = min(one.request_bytes_max for one in offers)
    end = max(int((part["offset"] + part["length"]).max()) for part in _parts(index, count))
    least = min(sum(one.room) for one in offers)
    grain = grain_bytes(request_bytes_max, least, end // len(offers))
    grains = Grains.of(_parts(index, count), end, grain)
    rooms = [one.room.total(grains) for one in offers]
    part_bytes = min(end, sum(rooms)) // len(offers)
    order = order_by_left([one.left for one in offers], part_bytes)
    return Homes.of(grains, rooms, count, index.run, order)


def _parts(index: RecordIndex | SharedExtents, count: int) -> Iterator[_core.Extents]:
    """Yield the extents of all records, some at a time."""
    for first in range(0, count, PART):
        yield index.run(first, min(count, first + PART))
