"""storage_rules: findings about the storage under a file, and the lock file beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lmdbio.doctor.facts import Facts
from lmdbio.doctor.finding import Finding, count_text, size_text

__all__ = ["judge_storage", "judge_cache", "judge_ways", "judge_locks", "judge_tuned", "is_cached"]

#: From this share on the page cache counts as having the whole file.
CACHED_SHARE = 0.99
#: Snapshots this old keep a writer from reusing pages, so that the file grows.
BEHIND_MANY = 100


def judge_storage(facts: Facts) -> Iterator[Finding]:
    """Judge the file system."""
    under = facts.storage
    name = under.file_system or "an unknown file system"
    source = f" on {under.source}" if under.source else ""
    if under.in_memory:
        yield Finding("storage", "good", f"{name}: the file is in memory already.")
    elif under.disk:
        turning = " The kernel takes it for a turning one." if under.rotational else ""
        yield Finding("storage", "good", f"{name}{source}, a disk of this machine.{turning}")
    else:
        yield Finding(
            "storage",
            "note",
            f"{name}{source}, no disk of this machine: each request takes a while, so many have "
            "to be in flight, as Records.read and Reader do.",
        )
    if under.file_system == "overlay":
        yield Finding(
            "storage", "note", "A layer of a container: a volume of its own would be quicker."
        )
    if under.readahead_bytes is not None and not under.in_memory:
        yield Finding(
            "readahead",
            "good",
            f"The kernel reads {size_text(under.readahead_bytes)} ahead of an ordered stream.",
        )


def judge_cache(facts: Facts) -> Iterator[Finding]:
    """Judge how much of the file is in memory."""
    share, under = facts.storage.cached_share, facts.storage
    if share is None or under.in_memory:
        return
    has = f"The page cache has {size_text(under.cached_bytes or 0)}, {share:.0%} of the file"
    if is_cached(facts):
        yield Finding("page cache", "good", f"{has}: it is read out of memory.")
    elif facts.data.used_bytes > facts.memory.available_bytes:
        yield Finding(
            "page cache",
            "note",
            f"{has}, which is larger than the memory that is left "
            f"({size_text(facts.memory.available_bytes)}): every epoch reads the storage.",
        )
    else:
        yield Finding("page cache", "good", f"{has}, and there is memory for the rest.")


def judge_ways(facts: Facts) -> Iterator[Finding]:
    """Judge the ways past the page cache."""
    if facts.storage.in_memory:
        return
    if facts.storage.direct is False:
        yield Finding("O_DIRECT", "note", "The file system has none: all goes by the page cache.")
    elif facts.storage.direct:
        yield Finding("O_DIRECT", "good", "Reads past the page cache are possible.")
    if facts.uring is False:
        yield Finding(
            "io_uring",
            "note",
            'It cannot be had here (engine="uring" would fail): threads read instead.',
        )
    elif facts.uring:
        yield Finding("io_uring", "good", 'It can be had (engine="uring").')


def judge_locks(facts: Facts) -> Iterator[Finding]:
    """Judge the lock file."""
    locks = facts.locks
    if locks.is_writable is False:
        yield Finding(
            "locks",
            "note",
            "No reader slot can be had (the lock file, or its folder, cannot be written): lmdbio "
            "reads all the same; py-lmdb wants lock=False.",
        )
    elif locks.unseen:
        yield Finding("locks", "note", f"Reader slots were not looked at: {locks.unseen}.")
    elif locks.stale:
        yield Finding(
            "locks",
            "problem",
            f"{count_text(locks.stale, 'reader slot')} of {locks.readers} "
            f"{'belongs' if locks.stale == 1 else 'belong'} to processes that have ended: a "
            "writer cannot reuse their pages, and the file grows; env.reader_check() frees them.",
        )
    else:
        count = locks.readers or 0
        held = (
            f"{count_text(count, 'reader')} at this moment"
            if count
            else "no reader at this moment"
        )
        yield Finding("locks", "good", f"Reader slots can be had; {held}.")
    if locks.behind is not None and locks.behind >= BEHIND_MANY and not locks.stale:
        yield Finding(
            "locks",
            "note",
            f"A reader holds a snapshot that is {locks.behind:,} transactions old: until it ends, "
            "no page freed since is used again.",
        )


def judge_tuned(facts: Facts) -> Iterator[Finding]:
    """Judge whether the storage was measured."""
    tuned = facts.tuned
    if not tuned.when:
        if not facts.storage.in_memory:
            yield Finding(
                "tuned",
                "note",
                "Nobody has measured this file system: engine, depth and request sizes are those "
                "that suit most.",
            )
        return
    rates = [
        f"{size_text(rate)}/s {how}"
        for rate, how in ((tuned.stream_rate, "in order"), (tuned.random_rate, "at random"))
        if rate is not None
    ]
    told = f": {' and '.join(rates)}" if rates else ""
    yield Finding("tuned", "good", f"This file system was measured on {tuned.when}{told}.")


def is_cached(facts: Facts) -> bool:
    """Say whether the page cache has the whole file."""
    share = facts.storage.cached_share
    return share is not None and share >= CACHED_SHARE
