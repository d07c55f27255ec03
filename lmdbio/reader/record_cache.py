"""Record cache: whether roots have the memory in which they are to keep records one by one.

cache, lengths of all records -> room of each root -> memory
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lmdbio import _core, share
from lmdbio.machine.choice import Reason
from lmdbio.placement.cache import Cache
from lmdbio.placement.keepers import refuse_counting, room_of
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.caching import Caching, Measured, refuse_memory
from lmdbio.reader.record_store import RecordStore, record_lengths
from lmdbio.reader.roots import RootSource
from lmdbio.system.log import tell

__all__ = ["agree_records"]

KEPT = {
    "first": "records that their ranks use first",
    "frequency": "records that their ranks use most often",
}


class _Offer(NamedTuple):
    """The memory that a root has taken.

    Attributes:
        room: size of that memory, bytes.
        silence: reason why it cannot send rows; empty: it can.
    """

    room: int
    silence: str


def agree_records(
    job: share.Job,
    cache: Cache,
    schedule: Schedule,
    source: RootSource | None,
    measure: Callable[[RootSource], Measured],
    *,
    roots_here: int,
) -> Caching:
    """Settle how much each root keeps, and take the memory for it. Collective over the job.

    Args:
        cache: cache of each root; its placement keeps records.
        schedule: schedule of all ranks.
        source: data set of this root; None where this rank is no root.
        measure: goes through the extents of all records.
        roots_here: number of roots on this machine.

    Raises:
        MemoryError: a root has not the memory that was asked for.
        ValueError: it would take too long to say what roots keep.
    """
    roots = len(schedule.teams)
    library: _core.MpiLibrary | None = None
    taken: list[_core.Memory] = []  # on this rank: one, or none

    def take() -> _Offer | None:
        nonlocal library
        if cache.placement == "frequency":
            refuse_counting(schedule.count, roots, schedule.end)
        if source is None:
            return None
        library, silence = share.find_library(job) if roots > 1 else (None, "")
        beside = measure(source).window_bytes
        taken.append(_take(cache, source, schedule.count, roots_here, beside))
        return _Offer(int(cache.memory), silence)

    offers = [one for one in job.together(take) if one is not None]
    silence = next((one.silence for one in offers if one.silence), "")
    text = _told(cache, roots, silence)
    if silence:
        library = None
        tell(f"cache: {text}")
    kept: RecordStore | None = None
    if taken:
        rooms = tuple(one.room for one in offers)
        team = schedule.team_of(job.rank)
        warm = cache.warm == "preload"
        kept = RecordStore(cache.placement, team, rooms, taken[0], is_warm=warm)
    are_sent = roots > 1 and not silence
    return Caching(kept, True, False, 0, 0, 0, are_sent, library, Reason("keyword", text))


def _take(
    cache: Cache, source: RootSource, count: int, roots_here: int, window_bytes: int
) -> _core.Memory:
    """Take a root's memory; the system gives it page by page, when it is used.

    Raises:
        MemoryError: there is less.
    """
    size = min(int(cache.memory), int(room_of(record_lengths(source, count)).sum()))
    refuse_memory(source, size, window_bytes, roots_here)
    return _core.MappedMemory(max(1, size))


def _told(cache: Cache, roots: int, silence: str) -> str:
    who = "1 root keeps" if roots == 1 else f"{roots} roots keep"
    text = f"{who} {KEPT[cache.placement]}: {int(cache.memory) >> 20} MiB each at most, in memory"
    return text + f", but send each other nothing: {silence}" if silence else text
