"""keeping: the part of a data set that each process of a Loader keeps, without asking others.

    Cache, processes of this machine -> room -> even part of each file -> kept by its batches,
                                                in memory, and the rest on a disk
    the same parts, of all processes -> who holds which record -> ``assignment="local"``

The parts depend on the files and the number of processes alone, and not on anybody's room: so all
processes deal each step alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmdbio import _core
from lmdbio.cache import CacheShard
from lmdbio.machine.budget import available_bytes
from lmdbio.machine.cache_choice import choose_cache
from lmdbio.machine.choice import Reason
from lmdbio.placement.cache import Cache, parse_cache
from lmdbio.planning.deal import Owner, owner_in
from lmdbio.planning.schedule import Assignment
from lmdbio.reader.caching import memory_room, take_disk, where_cached
from lmdbio.records.records import Records
from lmdbio.records.samples import Samples
from lmdbio.records.shard import cache_part, even_homes, is_far
from lmdbio.torch.ranks import ranks_on_machine

__all__ = ["ASSIGNMENTS", "as_cache", "refuse_words", "split_cache"]

ASSIGNMENTS = ("strided", "local")


def as_cache(given: Cache | str | None, assignment: str) -> Cache | str | None:
    """Return a cache that a Loader can have, "auto", or None.

    Raises:
        TypeError: it is something else.
        ValueError: it is none that a Loader can have, or there has to be one.
    """
    is_dealt = Assignment.named(assignment, ASSIGNMENTS).is_dealt
    cache = parse_cache(given)
    if cache is not None:
        _core.need("cache= of a Loader")
    if cache is None and is_dealt:
        raise ValueError(
            'assignment="local" gives processes what they keep, and none keeps anything '
            'without a cache: write cache="memory=8G", say'
        )
    if isinstance(cache, Cache) and not (cache.rule.is_static and not cache.warming.is_ordered):
        raise ValueError("a Loader's cache has placement='home', and warm='demand' or 'preload'")
    if isinstance(cache, Cache) and cache.disk is not None:
        # A jump opens it again, whatever folder the process is in then.
        cache = replace(cache, disk=str(Path(cache.disk).absolute()))
    return cache


def refuse_words(cache: Cache | str | None, source: object, options: Mapping[str, Any]) -> None:
    """Raise ValueError for words of a Loader that a cache, if there is one, does not go with.

    Args:
        cache: result of ``as_cache``.
        source: argument of ``Loader``.
        options: options of ``Records``.
    """
    if cache is None:
        return
    if isinstance(source, Samples):
        raise ValueError("cache: of Records that are not open yet; others may read these")
    if options.get("readahead"):
        raise ValueError("readahead=True keeps the whole file: a cache does not go with it")


def split_cache(
    records: Samples[Any, Any],
    cache: Cache | str | None,
    assignment: str,
    rank: tuple[int, int],
) -> tuple[Reason, Owner | None]:
    """Have a process keep its part of a data set.

    Args:
        records: records that were just opened.
        cache: result of ``as_cache``.
        assignment: "strided" or "local".
        rank: number of this process, and the number of processes.

    Returns:
        Why it keeps what it keeps; and a function from records to the rank of each, None: ranks
        take their records strided.

    Raises:
        MemoryError: it has not the memory that was asked for.
        OSError, Error: a file cannot be read, or the folder of a disk cannot be written to.
    """
    if cache is None:
        return Reason("keyword", "no process keeps what it has read"), None
    assert isinstance(records, Records)  # refuse_words
    number, ranks = rank
    here = ranks_on_machine(ranks)
    wanted, reason = choose_cache(cache, nodes=-(-ranks // here), is_shared=is_far(records))
    is_dealt = Assignment(assignment).is_dealt and ranks > 1
    if wanted is None and not is_dealt:
        return reason, None
    homes = even_homes(records, ranks)
    # A sample of several records is where its first one is.
    owner = owner_in(homes.records[:: records._source.columns]) if is_dealt else None
    if wanted is None:
        return reason, owner
    need = len(homes.owned(number)) << homes.grains.bits
    asked = min(need, int(cache.memory)) if isinstance(cache, Cache) else 0
    available, who = available_bytes() // here, f"{here} processes"
    room = min(memory_room(cache, available, asked, who, records.path), need)
    cache_file, disk_room = take_disk(cache, records._source, number, ranks, here)
    cached = cache_part(records, homes, number, room, cache_file, disk_room)
    if isinstance(cache, Cache) and cache.warming.is_before:
        cached.preload()
    return Reason("keyword", _reported(cached, homes.grains.used_bytes)), owner


def _reported(cached: CacheShard, whole: int) -> str:
    """Return what a process keeps of so many bytes, in words."""
    places = where_cached(*cached.tier_bytes, "on a disk", is_left=cached.is_behind)
    return f"this process keeps {cached.kept_bytes >> 20} of {whole >> 20} MiB, {places}"
