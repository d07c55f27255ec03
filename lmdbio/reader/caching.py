"""Caching: whether roots cache parts of the file, in memory or on a disk, or records, and which.

Cache, nodes, file -> room of each root -> grains -> owners -> memory, and pages on the disk
                                        -> memory for records, which are cached one by one
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lmdbio import _core, share
from lmdbio.locate.cursor_walk import CursorWalk
from lmdbio.machine.budget import available_bytes
from lmdbio.machine.cache_choice import FOLDER_VARIABLE, auto_memory, order_hint
from lmdbio.machine.choice import Reason
from lmdbio.placement.base import HOME, NONE, Placement
from lmdbio.placement.cache import Cache
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import GLOBAL
from lmdbio.reader.block_size import Sizing, copied_window_bytes
from lmdbio.reader.roots import RootSource
from lmdbio.system.log import log

if TYPE_CHECKING:
    from lmdbio.cache import CacheFile, LeftGrains
    from lmdbio.locate.open_database import OpenDatabase
    from lmdbio.reader.record_rows import RecordStore
    from lmdbio.reader.shard_rows import ShardStore

__all__ = [
    "CacheRequest",
    "CachedParts",
    "agree_cache",
    "memory_room",
    "take_disk",
    "where_cached",
]


class CacheRequest(NamedTuple):
    """Whether roots are to cache parts of the file, and why.

    Attributes:
        cache: cache of each root; "auto": as much as there is; None: none.
        left: grains that an earlier Reader of this process has left in memory; None: there are
            none.
    """

    cache: Cache | str | None
    reason: Reason
    left: LeftGrains | None = None

    @property
    def is_warm(self) -> bool:
        """Whether they are to do so before the first batch."""
        return isinstance(self.cache, Cache) and self.cache.warming.is_before

    @property
    def rule(self) -> Placement:
        """The placement by which roots cache what they cache."""
        if isinstance(self.cache, Cache):
            return self.cache.rule
        return NONE if self.cache is None else HOME


class CachedParts(NamedTuple):
    """The parts that roots cache, as all ranks have agreed on it.

    Attributes:
        store: cache of this root; None where this rank is no root, or roots cache nothing.
        are_cached: whether roots cache parts of the file.
        is_whole: whether all records have an owner.
        first_records: number of records, from the first one on, that have an owner.
        owned_records: number of records that have an owner.
        buffer_bytes: size of a root's buffers for writes to a disk; 0: there are no disks.
        are_sent: whether roots send each other rows.
        mpi: the MPI library that carries rows, on roots; else None.
        reason: reason for the outcome.
    """

    store: ShardStore | RecordStore | None
    are_cached: bool
    is_whole: bool
    first_records: int
    owned_records: int
    buffer_bytes: int
    are_sent: bool
    mpi: _core.MpiLibrary | None
    reason: Reason

    @property
    def left(self) -> LeftGrains | None:
        """The grains of this root's memory, for another Reader; None: single records, or none."""
        if self.store is None:
            return None
        from lmdbio.reader.shard_rows import ShardStore  # others begin sooner without it

        return self.store.leave() if isinstance(self.store, ShardStore) else None


class _Offer(NamedTuple):
    """The room and the part that a root has, before owners are settled.

    Attributes:
        memory, disk: room that this root has for its shard, bytes.
        need: bytes of memory that it takes at most, of those that were asked for.
        request_bytes_max: bytes of a request.
        silence: reason why it cannot send rows; empty: it can.
        left: end of the part that an earlier job has left on its disk, offset in bytes; None:
            there is none.
    """

    memory: int
    disk: int
    need: int
    request_bytes_max: int
    silence: str
    left: int | None


class _Taken(NamedTuple):
    """The part of the file that all roots cache, and that of one of them.

    Attributes:
        held, whole: bytes that all cache, and of all records.
        first_records, owned_records: records from the first one on that have an owner, and all
            that have.
        memory, disk: bytes of its grains that lie there.
        is_split: whether some grains are on its disk alone.
        is_full: whether an earlier job, or Reader, has left all of them there.
    """

    held: int
    whole: int
    first_records: int
    owned_records: int
    memory: int
    disk: int
    is_split: bool
    is_full: bool

    @property
    def counts(self) -> tuple[bool, int, int]:
        """Whether all records have an owner; those from the first one on that have, and all."""
        return self.held >= self.whole, self.first_records, self.owned_records

    @classmethod
    def of(cls, store: ShardStore | RecordStore) -> _Taken:
        """Return what a root reports of its part; of single records nothing."""
        from lmdbio.reader.shard_rows import ShardStore  # others begin sooner without it

        if not isinstance(store, ShardStore):
            return cls(0, 1, 0, 0, 0, 0, False, False)
        homes, table = store.sources.homes, store.shard.table
        whole, (memory, disk) = homes.grains.used_bytes, store.shard.tier_bytes
        counts = homes.first_records, int((homes.records != _core.NO_HOME).sum())
        is_full = table.is_left or table.is_full
        return cls(homes.held_bytes, whole, *counts, memory, disk, table.is_split, is_full)


def agree_cache(
    job: share.Job,
    request: CacheRequest,
    schedule: Schedule,
    source: RootSource | None,
    sizing: Sizing,
) -> CachedParts:
    """Settle what each root caches, and take the room for it. Collective over the job.

    Args:
        request: cache that roots are to have.
        schedule: schedule of all ranks.
        source: data set of this root, whose cache file it gets; None where this rank is no root.
        sizing: sizing of this root's slots, which measures the records.

    Raises:
        MemoryError: a root has not the memory that was asked for.
        OSError: a root's folder for cache files cannot be used.
        ValueError: it would take too long to say what roots cache.
    """
    cache = request.cache
    if cache is None:
        return CachedParts(None, False, False, 0, 0, 0, False, None, request.reason)
    from lmdbio.cache import LIMITS  # others begin sooner without it

    library: _core.MpiLibrary | None = None
    roots, team = len(schedule.teams), schedule.team_of(job.rank)

    def offer() -> _Offer | None:
        nonlocal library
        request.rule.refuse_size(schedule.count, roots, schedule.end)
        if source is None:
            return None
        library, silence = share.find_library(job) if roots > 1 else (None, "")
        sizing.measure(job, source)
        memory, need = _memory(request, cache, schedule, source, sizing)
        source.cache_file, disk = take_disk(cache, source.index, team, roots, sizing.roots_here)
        left = None if source.cache_file is None else source.cache_file.left
        return _Offer(memory, disk, need, sizing.request_bytes_max, silence, left)

    # One for each team, in the order of their first ranks, which are the roots.
    offers = [one for one in job.together(offer) if one is not None]
    silence = next((one.silence for one in offers if one.silence), "")
    stores: list[ShardStore | RecordStore] = []  # on this rank: one, or none

    def take() -> _Taken | None:
        if source is None:
            return None
        stores.append(_store(request, schedule, source, team, offers))
        return _Taken.of(stores[0])

    taken = [one for one in job.together(take) if one is not None]
    own = stores[0].warm(request.is_warm or all(one.is_full for one in taken)) if stores else None
    reason = _reason(_text(request, taken), silence, _hint(request, schedule, taken[0], offers))
    buffer_bytes = LIMITS.buffer_bytes if any(one.is_split for one in taken) else 0
    are_sent, library = not silence and roots > 1, None if silence else library
    return CachedParts(own, True, *taken[0].counts, buffer_bytes, are_sent, library, reason)


def _store(
    request: CacheRequest, schedule: Schedule, source: RootSource, team: int, offers: list[_Offer]
) -> ShardStore | RecordStore:
    """Take what this root needs for what it caches; memory is had page by page, when it is used.

    Raises:
        MemoryError, OSError: it cannot be had.
    """
    from lmdbio.placement.homes import Homes, Room
    from lmdbio.placement.sources import HomeSources
    from lmdbio.reader.record_rows import RecordStore
    from lmdbio.reader.shard_rows import ShardStore

    index, rooms = source.index, [Room(one.memory, one.disk) for one in offers]
    assert not isinstance(index, CursorWalk)  # refused with the arguments
    if request.rule.ownership is not None:
        memory = _core.MappedMemory(max(1, offers[team].need))
        return RecordStore(request.rule, team, tuple(one.memory for one in rooms), memory)
    request_bytes, left = min(one.request_bytes_max for one in offers), [o.left for o in offers]
    are_owned = request.rule.owns_grains
    homes = Homes.fitting(
        index.run, schedule.count, rooms, request_bytes, left, are_owned=are_owned
    )
    sources = HomeSources(schedule, homes)
    return ShardStore(sources, team, rooms[team], source, request.left, waits=request.is_warm)


def _reason(text: str, silence: str, hint: str) -> Reason:
    """Return what is cached, and log it where that is less than it could be."""
    text = f"{text}, but send each other nothing: {silence}" if silence else text
    reason = Reason("keyword", f"{text}; {hint}" if hint else text)
    if silence or hint:
        log(f"cache: {reason.text}")
    return reason


def _hint(request: CacheRequest, schedule: Schedule, taken: _Taken, offers: list[_Offer]) -> str:
    """Return what another order would gain where nodes have no room for all records."""
    epochs = schedule.epochs
    if not request.rule.is_static or epochs is None or epochs.shuffle != GLOBAL:
        return ""
    return order_hint(
        left_records=schedule.count - taken.owned_records,
        left_bytes=taken.whole - taken.held,
        request_bytes=min(one.request_bytes_max for one in offers),
        is_cached=taken.held > 0,
    )


def _text(request: CacheRequest, taken: list[_Taken]) -> str:
    """Return what roots cache, and where, in words."""
    who = "1 root keeps" if len(taken) == 1 else f"{len(taken)} roots keep"
    if request.rule.ownership is not None:
        assert isinstance(request.cache, Cache)
        room = int(request.cache.memory) >> 20
        return f"{who} {request.rule.text}: {room} MiB each at most, in memory"
    first, is_left = taken[0], all(one.is_full for one in taken)
    memory, disk = sum(one.memory for one in taken), sum(one.disk for one in taken)
    both = " (some in both)" if memory and memory + disk > first.held else ""
    places = where_cached(memory, disk, f"on disks{both}", is_left=is_left)
    return f"{who} {first.held >> 20} of {first.whole >> 20} MiB, {places}"


def _memory(
    request: CacheRequest,
    cache: Cache | str,
    schedule: Schedule,
    source: RootSource,
    sizing: Sizing,
) -> tuple[int, int]:
    """Return how many bytes of memory a root caches at most, beside its window.

    Returns:
        These; and how many it takes at most, of those that were asked for.

    Raises:
        MemoryError: it has not the memory that was asked for.
    """
    need, here = 0, sizing.roots_here  # "auto" asks for none
    if isinstance(cache, Cache):
        if request.rule.ownership is None:
            whole = source.engine.size() // len(schedule.teams)
        else:
            from lmdbio.reader.record_rows import record_rooms  # others begin sooner without it

            whole = int(record_rooms(source).sum())
        need = min(int(cache.memory), whole)
    available = available_bytes() // here
    if request.left is not None:  # that memory is this root's already
        available += request.left.present_bytes
    beside = copied_window_bytes(sizing, source.mode.block_iterations)
    who, path = f"{here} roots", source.index.path
    return memory_room(cache, available, need, who, path, beside), need


def memory_room(
    cache: Cache | str, available: int, need: int, who: str, path: str, window: int = 0
) -> int:
    """Return how many bytes of memory a root, or a process of a ``Loader``, caches at most.

    Args:
        cache: cache that it is to have; "auto": as much as there is.
        available: memory that it can get, bytes.
        need: bytes of memory that it takes at most, of those that were asked for.
        who: all that share the machine, in words.
        path: path of the data set, for the error.
        window: bytes of memory that it takes besides.

    Raises:
        MemoryError: it has not the memory that was asked for.
    """
    if not isinstance(cache, Cache):
        return auto_memory(available, window)
    if need + window > available:
        beside = f", and {window >> 20} MiB of window beside it," if window else ""
        raise MemoryError(
            f"{path}: cache: {need >> 20} MiB of memory{beside} are more than the "
            f"{available >> 20} MiB that each of the {who} of this machine can get"
        )
    return int(cache.memory)


def take_disk(
    cache: Cache | str, data: OpenDatabase, number: int, count: int, here: int
) -> tuple[CacheFile | None, int]:
    """Take a cache file for a part of a data set, on the disk that a cache names.

    For "auto" the environment names it.

    Args:
        cache: cache of a root, or of a process of a ``Loader``.
        data: data set that is open.
        number: number of this root or process in its job.
        count: number of those that may take one.
        here: number of these on this machine.

    Returns:
        The file, and how many bytes of the data set it caches at most; None and 0: no disk is
        named, or it has no room for a file.

    Raises:
        OSError: the folder is not there, or cannot be written to.
        Error: the data file was written to.
    """
    folder, asker, asked = os.environ.get(FOLDER_VARIABLE), FOLDER_VARIABLE, None
    if isinstance(cache, Cache):
        folder, asker, asked = cache.disk, "cache", cache.disk_bytes
    if not folder:
        return None, 0
    from lmdbio.cache import claim, room_on_disk, state_of  # others begin sooner without it

    file = claim(Path(folder), state_of(data), number, count, asker, is_alone=here == 1)
    if file is None:
        return None, 0
    try:
        return file, room_on_disk(file, None if asked is None else int(asked), here)
    except BaseException:
        file.close()
        raise


def where_cached(memory: int, disk: int, disks: str, *, is_left: bool) -> str:
    """Return in words where something is cached.

    Args:
        memory, disk: bytes that are in memory, and behind it.
        disks: words for what is behind it.
        is_left: whether an earlier job has left there what is to be there.
    """
    where = []
    if memory:
        where.append(f"{memory >> 20} in memory" if disk else "in memory")
    if disk:
        where.append(f"{disk >> 20} {disks}" if memory else disks)
    left = " (an earlier job has left them there)" if disk and is_left else ""
    return f"{', '.join(where) or 'for there is no room'}{left}"
