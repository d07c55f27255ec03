"""Program: roots exchange rows while ranks leave, lag, run ahead and keep Python busy.

Arguments: a set of data.fixed_value, and the sizes of nodes to try. All ranks but the one that
acts get every record of theirs, with the right bytes, and nobody waits for ever.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from data import FIXED, fixed_value
from mpi4py import MPI

from lmdbio import _core
from lmdbio.observe.stats import Stats
from lmdbio.placement import homes
from lmdbio.planning.mode import Mode
from lmdbio.reader import (
    block_size,
    joint_supply,
    phases,
    root_thread,
    roots,
    round_cache,
    shard_rows,
)
from lmdbio.reader.reader import Reader
from tests.support.in_memory import memory_engine

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
PATH = sys.argv[1]
EPOCHS, BATCH = 2, 2 * SIZE
#: The batch after which it happens: windows are under way, and most are left.
AT = 5
#: A root of this job waits so long for another one's rows, seconds.
PATIENCE = 0.3
#: A read of slow storage, microseconds.
SLOW_US = 15_000
#: The grains of a home that is read slowly: a score of them, each of which takes a part of that
#: time.
SLOW_GRAIN_BYTES = 16 << 10
#: A rank makes a child with every so many batches.
FORKS_EVERY = 4
#: No case takes longer, seconds.
CASE_SECONDS_MAX = 30

#: Windows of this small data set are read whole, and no more of them at a time than of large ones.
block_size.WINDOW_BYTES_MIN = block_size.BLOCK_BYTES_TARGET = 1
block_size.TURN_BLOCK_BYTES_TARGET = 1
joint_supply.TIMEOUT_SECONDS_MIN = PATIENCE
phases.SLICE_BYTES = 32 << 10


class Left(Exception):
    """The rank has left its loop."""


def goes_on(t: int) -> None:
    pass


def leaves(t: int) -> None:
    if t == AT:
        raise Left


def sleeps(t: int) -> None:
    if t == AT:
        time.sleep(6 * PATIENCE)


def dawdles(t: int) -> None:
    time.sleep(0.002)


def computes(t: int) -> None:
    """Keep Python's lock, but for what the interpreter takes by itself."""
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        pass


def forks(t: int) -> None:
    """Make a child, which counts anew, whatever the parent's threads are at."""
    if t % FORKS_EVERY:
        return
    child = os.fork()
    if child == 0:
        os._exit(0)
    end = time.monotonic() + CASE_SECONDS_MAX
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        assert time.monotonic() < end, "the child hangs"
        time.sleep(0.0005)


def read(
    acts: Callable[[int], None],
    shuffle: str | None,
    per_node: int,
    assignment: str,
    cache: str | None,
) -> Stats:
    """Read two epochs, or as far as ``acts`` lets; compare every record."""
    with Reader(
        PATH, BATCH, comm=COMM, shuffle=shuffle, seed=3, epochs=EPOCHS, assignment=assignment,
        ranks_per_node=per_node, slots=2, mode=Mode(block_iterations=2, phases=2), cache=cache,
    ) as rdr:  # fmt: skip
        are_windows = (cache is None or "mixed" in cache) and len(rdr.schedule.teams) > 1
        assert rdr.mode.phases == 1 + are_windows, rdr.windows
        schedule, t = rdr.schedule, 0
        try:
            for t, batch in enumerate(rdr):
                indices = batch.indices.tolist()
                assert indices == schedule.records(t, RANK).tolist(), (RANK, t)
                for i, index in enumerate(indices):
                    assert bytes(batch[i]) == fixed_value(index), (RANK, t, index)
                del batch
                acts(t)
        except Left:
            return rdr.stats()
        assert t == schedule.iterations - 1
    return rdr.stats()


ORDERS = itertools.cycle(
    [("groups:64", "strided"), (None, "strided"), ("windows:9x8", "blocked"), (None, "blocked")]
)
#: The same for roots that keep parts of the file; the second of them less than all of it.
KEPT = itertools.cycle(
    [("global", "strided", "memory=1G"), (None, "blocked", "memory=500K"),
     ("global", "blocked", "memory=1G,warm=preload"), ("global", "local", "memory=1G"),
     ("windows:9x8", "strided", "memory=200K,placement=mixed"),
     ("groups:64", "blocked", "memory=90K,placement=mixed,warm=preload")]
)  # fmt: skip
ACTS = [(goes_on, dawdles), (dawdles, goes_on), (leaves, goes_on), (leaves, leaves),
        (leaves, dawdles), (sleeps, goes_on), (computes, computes), (computes, dawdles),
        (forks, forks)]  # fmt: skip
KEPT_ACTS = [(dawdles, goes_on), (leaves, goes_on), (leaves, dawdles), (sleeps, goes_on),
             (computes, computes)]  # fmt: skip


def case(
    one: Callable[[int], None], others: Callable[[int], None], per_node: int, *, keeps: bool
) -> Stats:
    """One rank does one thing, all others another; what all roots did."""
    begun = time.monotonic()
    acts = one if sum(map(ord, one.__name__)) % SIZE == RANK else others
    shuffle, assignment, cache = next(KEPT) if keeps else (*next(ORDERS), None)
    stats = COMM.allreduce(read(acts, shuffle, per_node, assignment, cache))
    assert time.monotonic() - begun < CASE_SECONDS_MAX, (one, others)
    return stats


def main() -> None:
    cases = 0
    homes.GRAIN_BYTES_MIN = 4096
    sizes = [int(word) for word in sys.argv[2:]]
    every = [
        *((False, size, acts) for size in sizes for acts in ACTS),
        *((True, size, acts) for size in sizes for acts in KEPT_ACTS),
    ]
    for keeps, per_node, (one, others) in every:
        # A root that is left behind serves others on, or here in one case not at all. Where a node
        # has other ranks, its root stays as long as these do.
        is_abrupt = (one, others) == (leaves, dawdles) and per_node == 1
        root_thread.GOODBYE_SECONDS_MAX = 0.0 if is_abrupt else 10.0
        stats = case(one, others, per_node, keeps=keeps)
        what = one.__name__, others.__name__, per_node, keeps, str(stats)
        assert (stats.gone_records > 0) == is_abrupt, what
        if one is sleeps and not keeps:  # a home is looked at far ahead of its own ranks
            assert stats.late_records > 0, stats
        if others is not leaves and one is not leaves:
            assert stats.records == EPOCHS * FIXED
        assert stats.peer_bytes > 0, what
        cases += 1
    if RANK == 0:
        print(f"{cases} cases")
    if 1 in sizes:  # their nodes are of one rank
        long_blocks()
        slow_home()
    end_of_mpi()


def long_blocks() -> None:
    """A block has rows of many windows, and storage is slow: nobody takes rows back for that."""
    content = (Path(PATH) / "data.mdb").read_bytes()

    def slow(_pages: object, _choice: object) -> _core.Engine:
        # It passes as what a mode can be told to read with.
        return memory_engine(content, delay_us=SLOW_US, kind="pread")[0]

    told: list[str] = []
    listening = logging.Handler()
    listening.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("lmdbio")
    logger.addHandler(listening)
    logger.setLevel(logging.INFO)
    kept, slices = roots.open_engine, phases.SLICE_BYTES
    roots.open_engine, phases.SLICE_BYTES = slow, 2 << 10  # type: ignore[assignment]
    with Reader(
        PATH, FIXED, comm=COMM, assignment="blocked", mode=Mode(phases=2), iterations=2,
        ranks_per_node=1,
    ) as rdr:  # fmt: skip
        for batch in rdr:
            for i, index in enumerate(batch.indices.tolist()):
                assert bytes(batch[i]) == fixed_value(index), (RANK, index)
    roots.open_engine, phases.SLICE_BYTES = kept, slices
    logger.removeHandler(listening)
    stats = COMM.allreduce(rdr.stats())
    assert stats.fill_seconds / SIZE > 3 * PATIENCE, stats
    assert stats.peer_records and not stats.gone_records, stats
    assert not any("taken back" in text for text in told), told


def slow_home() -> None:
    """One root's storage is slow while it reads its part: it tells the others, which wait."""
    content = (Path(PATH) / "data.mdb").read_bytes()

    def slow(_pages: object, _choice: object) -> _core.Engine:
        delay_us = int(1e6 * PATIENCE / 4) if RANK == 1 else 0
        return memory_engine(content, 1, delay_us=delay_us, kind="pread")[0]

    kept, roots.open_engine = roots.open_engine, slow  # type: ignore[assignment]
    homes.GRAIN_BYTES_MIN = SLOW_GRAIN_BYTES
    limits, round_cache.SIGN_SECONDS = shard_rows.LIMITS, PATIENCE / 20
    shard_rows.LIMITS = replace(limits, load_bytes=1)
    begun = time.monotonic()
    with Reader(
        PATH, FIXED, comm=COMM, shuffle="global", epochs=2, ranks_per_node=1, cache="memory=1G",
        mode=Mode(1, "scan"),
    ) as rdr:  # fmt: skip
        for batch in rdr:
            for i, index in enumerate(batch.indices.tolist()):
                assert bytes(batch[i]) == fixed_value(index), (RANK, index)
    stats = COMM.allreduce(rdr.stats())
    assert time.monotonic() - begun > 3 * PATIENCE
    # All blocks are there, of which the slow root has no row, before it has read its part.
    with Reader(
        PATH, 1, comm=COMM, iterations=1, ranks_per_node=1, cache="memory=1G,warm=preload",
        mode=Mode(1, "scan"),
    ) as other:  # fmt: skip
        assert [bytes(one) for batch in other for one in batch] == [fixed_value(0)] * (
            RANK == SIZE - 1
        )
    roots.open_engine, shard_rows.LIMITS = kept, limits
    assert not stats.late_records and not stats.gone_records, stats


def end_of_mpi() -> None:
    """MPI ends in mid-epoch, on each rank at another time, while roots exchange rows."""
    rdr = Reader(PATH, BATCH, comm=COMM, shuffle="groups:64", epochs=EPOCHS, ranks_per_node=1)
    for _ in range(AT + 3 * RANK):
        next(rdr)
    MPI.Finalize()
    assert MPI.Is_finalized()
    names = [thread.name for thread in threading.enumerate() if thread.name == "lmdbio-root"]
    begun = time.monotonic()
    while names and time.monotonic() < begun + CASE_SECONDS_MAX:
        time.sleep(0.01)
        names = [one.name for one in threading.enumerate() if one.name == "lmdbio-root"]
    assert not names, "a root's thread outlives MPI"


if __name__ == "__main__":
    main()
