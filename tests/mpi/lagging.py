"""Program: roots keep records one by one while ranks leave, lag, compute, fork, and fail.

Arguments: a set of data.fixed_value, and the sizes of nodes to try. All ranks but the one that
acts get every record of theirs, with the right bytes, and nobody waits for ever; where one fails,
all others are told.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from data import FIXED, fixed_value
from exchanging import (
    AT,
    BATCH,
    CASE_SECONDS_MAX,
    COMM,
    EPOCHS,
    PATH,
    RANK,
    SIZE,
    computes,
    dawdles,
    forks,
    goes_on,
    leaves,
    read,
    sleeps,
)

from lmdbio.errors import PeerError
from lmdbio.observe.stats import Stats
from lmdbio.reader import root_thread
from lmdbio.reader.reader import Reader

#: Order, assignment, cache; only the first one has memory for all records.
KEPT = (
    ("global", "strided", "memory=1G,placement=first"),
    ("global", "blocked", "memory=400K,placement=frequency"),
    ("windows:9x8", "strided", "memory=300K,placement=first,warm=preload"),
    ("global", "strided", "memory=300K,placement=frequency,warm=preload"),
)
ACTS = (
    (dawdles, goes_on),
    (leaves, goes_on),
    (leaves, dawdles),
    (sleeps, goes_on),
    (computes, computes),
    (forks, forks),
)


class Fire(Exception):
    pass


def case(
    one: Callable[[int], None],
    others: Callable[[int], None],
    per_node: int,
    kept: tuple[str, str, str],
) -> Stats:
    """One rank does one thing, all others another; what all roots did."""
    begun = time.monotonic()
    acts = one if sum(map(ord, one.__name__)) % SIZE == RANK else others
    shuffle, assignment, cache = kept
    stats = COMM.allreduce(read(acts, shuffle, per_node, assignment, cache))
    assert time.monotonic() - begun < CASE_SECONDS_MAX, (one, others, kept)
    return stats


def fails(per_node: int, cache: str) -> None:
    """The last rank fails in mid-epoch: all others are told, by its number and its reason."""
    told, begun = "", time.monotonic()
    try:
        with Reader(
            PATH, BATCH, comm=COMM, shuffle="global", epochs=10**6, ranks_per_node=per_node,
            cache=cache, slots=2,
        ) as rdr:  # fmt: skip
            for t, batch in enumerate(rdr):
                assert [bytes(one) for one in batch] == [
                    fixed_value(index) for index in batch.indices.tolist()
                ]
                if t == AT and RANK == SIZE - 1:
                    raise Fire("the rank is on fire")
                assert time.monotonic() - begun < CASE_SECONDS_MAX
    except PeerError as error:
        told = str(error)
    except Fire:
        pass
    assert RANK == SIZE - 1 or told.startswith(
        f"rank {SIZE - 1} failed: Fire: the rank is on fire"
    )
    COMM.barrier()


def main() -> None:
    cases = 0
    for per_node in map(int, sys.argv[2:]):
        for number, (one, others) in enumerate(ACTS):
            for kept in (KEPT[number % 4], KEPT[(number + 2) % 4]):
                # A root that is left behind serves others on, or here in one case not at all.
                is_abrupt = (one, others) == (leaves, dawdles) and per_node == 1
                root_thread.GOODBYE_SECONDS_MAX = 0.0 if is_abrupt else 10.0
                stats = case(one, others, per_node, kept)
                what = one.__name__, others.__name__, per_node, kept, str(stats)
                if "first" in kept[2]:  # by the other roots send each other little
                    assert stats.peer_bytes > 0, what
                    assert (stats.gone_records > 0) == is_abrupt, what
                if one is not leaves:
                    assert stats.records == EPOCHS * FIXED, what
                cases += 1
        fails(per_node, "memory=300K,placement=first")
        cases += 1
    if RANK == 0:
        print(f"{cases} cases")


main()
