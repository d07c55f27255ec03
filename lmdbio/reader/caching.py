"""Caching: whether roots keep parts of the file in memory, and which.

Cache, nodes, file -> memory of each root -> grains -> homes -> the memory is taken
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from lmdbio import _core, share
from lmdbio.locate.cursor_walk import CursorWalk
from lmdbio.locate.record_index import RecordIndex
from lmdbio.locate.shared_extents import SharedExtents
from lmdbio.machine.budget import available_bytes
from lmdbio.machine.choice import Reason
from lmdbio.planning.cache import Cache
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.roots import RootSource
from lmdbio.system.log import tell

if TYPE_CHECKING:
    from lmdbio.planning.homes import Homes
    from lmdbio.reader.home import HomeMemory

__all__ = ["Caching", "Wish", "agree_cache", "choose_cache"]

#: "auto" takes a part of the memory that a node has left, at most: a half.
AUTO_PART = 2
#: Records whose extents are looked up at once.
PART = 2**18


class Wish(NamedTuple):
    """Whether roots are to keep parts of the file, and why.

    Attributes:
        cache: of each root; "auto": as much as there is; None: none.
    """

    cache: Cache | str | None
    reason: Reason

    @property
    def is_warm(self) -> bool:
        """Whether they are to do so before the first batch."""
        return isinstance(self.cache, Cache) and self.cache.warm == "preload"


def choose_cache(asked: Cache | str | None, *, nodes: int, is_shared: bool) -> Wish:
    """Return which cache roots are to have.

    Args:
        asked: by the caller; "auto": where several nodes read one file.
        nodes: of the job.
        is_shared: all roots read one file on storage that nodes share.
    """
    if asked is None:
        return Wish(None, Reason("keyword", "no root keeps what it has read"))
    if isinstance(asked, Cache) or (nodes > 1 and is_shared):
        return Wish(asked, Reason("keyword", ""))
    what = "there is one node" if nodes == 1 else "nodes share no storage that is far"
    return Wish(None, Reason("facts", f"{what}: the page cache keeps what is read"))


class Caching(NamedTuple):
    """The parts that roots keep, as all ranks have agreed on it.

    Attributes:
        kept: by this root; None where this rank is none, or roots keep nothing.
        are_kept: roots keep parts of the file.
        is_whole: all records have a home.
        are_sent: roots send each other rows.
        mpi: on roots, the library that carries them.
        reason: for it.
    """

    kept: HomeMemory | None
    are_kept: bool
    is_whole: bool
    are_sent: bool
    mpi: _core.MpiLibrary | None
    reason: Reason


class _Offer(NamedTuple):
    """Bytes that a root can keep at most; of a request; and why it cannot send rows, if so."""

    room: int
    request_bytes_max: int
    silence: str


def agree_cache(
    job: share.Job,
    wish: Wish,
    schedule: Schedule,
    source: RootSource | None,
    measure: Callable[[RootSource], int],
    *,
    roots_here: int,
) -> Caching:
    """Settle what each root keeps, and take the memory for it. Collective over the job.

    Args:
        wish: which cache there is to be.
        schedule: of all ranks.
        source: of this root; None where this rank is none.
        measure: goes through the extents of all records; returns the bytes of a request.
        roots_here: on this machine.

    Raises:
        MemoryError: a root has not the memory that was asked for.
    """
    if wish.cache is None:
        return Caching(None, False, False, False, None, wish.reason)
    from lmdbio.planning.homes import HomeSources  # others begin sooner without them
    from lmdbio.reader.home import HomeMemory

    library: _core.MpiLibrary | None = None

    def offer() -> _Offer | None:
        nonlocal library
        if source is None:
            return None
        request_bytes_max, silence = measure(source), ""
        if len(schedule.teams) > 1:
            library, silence = share.find_library(job)
        room = _room(wish.cache, source, len(schedule.teams), roots_here)
        return _Offer(room, request_bytes_max, silence)

    # One for each team, in the order of their first ranks, which are the roots.
    offers = [one for one in job.together(offer) if one is not None]
    silence = next((one.silence for one in offers if one.silence), "")
    kept: list[HomeMemory] = []  # on this rank: one, or none

    def take() -> tuple[int, int] | None:
        if source is None:
            return None
        sources = HomeSources(
            schedule, _homes(source, schedule.count, offers), is_warm=wish.is_warm
        )
        kept.append(HomeMemory.of(sources, schedule.team_of(job.rank)))
        return sources.homes.held_bytes, sources.homes.grains.used_bytes

    held, whole = next(one for one in job.together(take) if one is not None)
    text = _told(len(offers), held, whole)
    if silence:
        library = None
        text += f", but send each other nothing: {silence}"
        tell(f"cache: {text}")
    reason, are_sent = Reason("keyword", text), not silence and len(offers) > 1
    return Caching(kept[0] if kept else None, True, held >= whole, are_sent, library, reason)


def _told(roots: int, held: int, whole: int) -> str:
    who = "1 root keeps" if roots == 1 else f"{roots} roots keep"
    return f"{who} {held >> 20} of {whole >> 20} MiB in memory"


def _room(cache: Cache | str | None, source: RootSource, roots: int, roots_here: int) -> int:
    """Return how many bytes a root keeps at most.

    Raises:
        MemoryError: it has not the memory that was asked for.
    """
    available = available_bytes() // roots_here
    if not isinstance(cache, Cache):
        return available // AUTO_PART
    room = int(cache.memory)
    need = min(room, source.engine.size() // roots)
    if need > available:
        raise MemoryError(
            f"{source.index.path}: cache: {need >> 20} MiB of memory are more than the "
            f"{available >> 20} MiB that each of the {roots_here} roots of this machine can get"
        )
    return room


def _homes(source: RootSource, count: int, offers: list[_Offer]) -> Homes:
    """Return the homes of all records; the same on all roots."""
    from lmdbio.planning.homes import Grains, Homes, grain_bytes

    index = source.index
    assert not isinstance(index, CursorWalk)  # refused with the arguments
    request_bytes_max = min(one.request_bytes_max for one in offers)
    end = max(int((part["offset"] + part["length"]).max()) for part in _parts(index, count))
    grain = grain_bytes(request_bytes_max, min(one.room for one in offers), end // len(offers))
    grains = Grains.of(_parts(index, count), end, grain)
    return Homes.of(grains, [one.room for one in offers], count, index.run)


def _parts(index: RecordIndex | SharedExtents, count: int) -> Iterator[_core.Extents]:
    """Yield the extents of all records, some at a time."""
    for first in range(0, count, PART):
        yield index.run(first, min(count, first + PART))
