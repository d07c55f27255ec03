"""keeping: the part of a data set that each process of a Loader keeps, without asking others.

    Cache, processes of this machine -> room -> even part of each file -> kept by its batches
    the same parts, of all processes -> who holds which record -> ``assignment="local"``

The parts depend on the files and the number of processes alone, and not on anybody's room: so all
processes deal each step alike.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lmdbio.machine.budget import available_bytes
from lmdbio.machine.choice import Reason
from lmdbio.planning.cache import Cache
from lmdbio.planning.dealt import Holder, home_holder
from lmdbio.reader.caching import AUTO_PART, choose_cache
from lmdbio.records.joined import JoinedRecords
from lmdbio.records.kept_grains import even_homes, is_far, keep
from lmdbio.records.records import Records

__all__ = ["ASSIGNMENTS", "Keeping", "as_cache", "keep_part", "refuse_words"]

ASSIGNMENTS = ("strided", "local")
#: torchrun's word for the processes of this machine.
LOCAL_VARIABLE = "LOCAL_WORLD_SIZE"


class Keeping(NamedTuple):
    """The part of a data set that this process keeps.

    Attributes:
        reason: for it.
        holder: which rank holds each of some records; None: ranks take what is theirs strided.
    """

    reason: Reason
    holder: Holder | None


def as_cache(
    given: Cache | str | None, assignment: str, *, is_joint: bool = False
) -> Cache | str | None:
    """Return a cache that a Loader can have, "auto", or None.

    Args:
        is_joint: ranks keep the file together, in a Reader.

    Raises:
        TypeError: it is something else.
        ValueError: it is none that a Loader can have, or there has to be one.
    """
    if assignment not in ASSIGNMENTS:
        raise ValueError(f"assignment must be one of {', '.join(ASSIGNMENTS)}, not {assignment!r}")
    if isinstance(given, str) and given.strip().casefold() == "auto":
        return "auto"
    if isinstance(given, str):
        try:
            given = Cache.parse(given)
        except ValueError as error:
            raise ValueError(f'{error}; or cache is "auto", or "memory=8G"') from None
    if given is None:
        if assignment == "local":
            raise ValueError(
                'assignment="local" gives processes what they keep, and none keeps anything '
                'without a cache: write cache="memory=8G", say'
            )
        return None
    if not isinstance(given, Cache):
        raise TypeError(f'cache must be a Cache, "auto" or None, not {type(given).__name__}')
    if given.placement != "home" or given.warm == "window":
        raise ValueError("a Loader's cache has placement='home', and warm='demand' or 'preload'")
    if given.disk is not None and not is_joint:
        raise ValueError(
            'a Loader keeps its part in memory alone: write cache="memory=8G"; disk= is for '
            "ranks that have MPI: write comm= as well"
        )
    return given


def refuse_words(source: object, options: Mapping[str, Any]) -> None:
    """Raise ValueError for words of a Loader that a cache does not go with.

    Args:
        options: of ``Records``.
    """
    if isinstance(source, (Records, JoinedRecords)):
        raise ValueError("cache: of Records that are not open yet; others may read these")
    if options.get("readahead"):
        raise ValueError("readahead=True keeps the whole file: a cache does not go with it")


def keep_part(
    records: Records | JoinedRecords,
    cache: Cache | str | None,
    assignment: str,
    rank: tuple[int, int],
) -> Keeping:
    """Have a process keep its part of a data set.

    Args:
        records: just opened.
        cache: as ``as_cache`` returns it.
        assignment: "strided" or "local".
        rank: of this process, and how many there are.

    Raises:
        MemoryError: it has not the memory that was asked for.
        OSError, Error: a file cannot be read.
        ValueError: there is no such rank.
    """
    if cache is None:
        return Keeping(Reason("keyword", "no process keeps what it has read"), None)
    number, ranks = rank
    if not 0 <= number < ranks:
        raise ValueError(f"there is no rank {number} of {ranks}")
    here = _processes_here(ranks)
    files = records.parts if isinstance(records, JoinedRecords) else [records]
    wish = choose_cache(cache, nodes=-(-ranks // here), is_shared=all(map(is_far, files)))
    is_dealt = assignment == "local" and ranks > 1
    if wish.cache is None and not is_dealt:
        return Keeping(wish.reason, None)
    homes = [even_homes(file, ranks) for file in files]
    all_homes = np.concatenate([one.records for one in homes])
    holder = home_holder(all_homes) if is_dealt else None
    if wish.cache is None:
        return Keeping(wish.reason, holder)
    needs = [len(one.kept(number)) << one.grains.bits for one in homes]
    room = min(_room(cache, min(sum(needs), _asked(cache)), here, records.path), sum(needs))
    kept = []
    for file, one, need in zip(files, homes, needs, strict=True):
        kept.append(keep(file, one, number, room * need // max(1, sum(needs))))
    if isinstance(cache, Cache) and cache.warm == "preload":
        for part in kept:
            part.preload()
    held, whole = sum(one.kept_bytes for one in kept), sum(h.grains.used_bytes for h in homes)
    text = f"this process keeps {held >> 20} of {whole >> 20} MiB, in memory"
    return Keeping(Reason("keyword", text), holder)


def _processes_here(ranks: int) -> int:
    """Return how many processes of the job are on this machine: all, unless torchrun says."""
    text = os.environ.get(LOCAL_VARIABLE, "")
    return max(1, min(int(text), ranks)) if text.isdigit() else ranks


def _asked(cache: Cache | str) -> int:
    return int(cache.memory) if isinstance(cache, Cache) else 2**63


def _room(cache: Cache | str, need: int, here: int, path: str) -> int:
    """Return the bytes that this process keeps at most.

    Args:
        need: bytes that it would take, at most.

    Raises:
        MemoryError: it has not the memory that was asked for.
    """
    available = available_bytes() // here
    if not isinstance(cache, Cache):
        return available // AUTO_PART
    if need > available:
        raise MemoryError(
            f"{path}: cache: {need >> 20} MiB of memory are more than the {available >> 20} MiB "
            f"that each of the {here} processes of this machine can get"
        )
    return int(cache.memory)
