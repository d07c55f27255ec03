"""Program: simulated = executed. Arguments: a folder for data sets; shapes of each policy.

For every policy that a Reader runs, jobs of chance shapes (nodes, ranks, tiers, sizes of records
and batches, seeds, orders, modes) count as many records and bytes by source and epoch as
``lmdbio.simulate`` says: exactly, where no root was so late that another one read for itself.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from data import write
from mpi4py import MPI

from lmdbio import Cache
from lmdbio._core import Extents
from lmdbio.cache import clear, find
from lmdbio.locate.open import open_record_index
from lmdbio.placement import homes
from lmdbio.placement.forecast import Job
from lmdbio.placement.policy import READERS, Words
from lmdbio.planning.mode import Mode
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.shuffle import Shuffle
from lmdbio.reader import block_size
from lmdbio.reader.reader import Reader
from lmdbio.simulate import SCENARIOS, Outcome, Policy, Tier, run_readers

COMM = MPI.COMM_WORLD
REQUEST, SETS, NODES_MAX = 8192, 6, 4
#: Shapes of each policy, and those whose counts must have been compared.
SHAPES = int(sys.argv[2])
COMPARED_MIN = max(1, 3 * SHAPES // 4)
#: A small data set has many grains, and its windows are worth it.
homes.GRAIN_BYTES_MIN = 4096
block_size.WINDOW_BYTES_MIN = 1

#: Records and bytes, by epoch and source.
Counts = dict[int, dict[str, tuple[int, int]]]
SHUFFLES = (None, "global", "groups:16", "windows:5x4", "runs:7")
WINDOWS = ("windows:5x4", "windows:16x2", "groups:24", "windows:40x1")
MODES = (
    "auto",
    Mode(1, "scan", block_iterations=0),
    Mode(1, "scan", block_iterations=1),
    Mode(1, "scan", "direct", block_iterations=3),
)


def make_sets(folder: Path, chance: random.Random) -> list[tuple[str, Extents]]:
    """Write data sets whose records have sizes of many kinds; return where their records lie."""
    made = []
    for number in range(SETS):
        largest, count = chance.choice([60, 2000, 9000]), chance.randint(30, 160)
        sizes = [chance.randint(0, largest) for _ in range(count)]
        path = folder / str(number)
        if COMM.rank == 0:
            write(path, [bytes([i % 251]) * size for i, size in enumerate(sizes)])
        COMM.barrier()
        index = open_record_index(str(path), locate="auto", check="fast")
        made.append((str(path), np.array(index.run(0, index.count))))
        index.close()
    return made


def shape_of(chance: random.Random, extents: Extents, folder: Path) -> tuple[Job, int]:
    """Return a job, with the tiers that a policy chooses from, and the ranks of a node."""
    ranks = chance.choice([n for n in (2, 3, 4, 6, 8, 12, 16) if n <= COMM.size])
    per_node = chance.choice([n for n in (1, 2, 4) if ranks % n == 0 and ranks // n <= NODES_MAX])
    nodes = ranks // per_node
    share = int((extents["offset"] + extents["length"]).max()) // nodes
    memory, disk = int(chance.choice([0.3, 0.7, 1.5]) * share), chance.choice([0, 0, 0.4])
    job = Job(
        Cache(
            memory=max(1, memory),
            disk=str(folder) if disk else None,
            disk_bytes=int(disk * share) if disk else None,
        ),
        batch=chance.choice([ranks + 1, 16, 3, 40, len(extents) + 9]),
        nodes=nodes,
        ranks=ranks,
        epochs=chance.choice([2, 3]),
        shuffle=named(chance.choice(SHUFFLES)),
        ends=True,
        seed=chance.randint(0, 1 << 30),
    )
    return job, per_node


def named(shuffle: str | None) -> Shuffle | None:
    return None if shuffle is None else Shuffle.named(shuffle)


def simulated(policy: Policy, extents: Extents, job: Job, windows: Shuffle) -> Outcome:
    """Return what the simulator says of a policy."""
    environment, rate = SCENARIOS[1].environment, SCENARIOS[1].environment.staging.reads
    environment = replace(environment, tiers=(Tier(1, 1, rate), Tier(1, 1, rate)))
    options = PlanOptions(0, REQUEST)
    (found,) = run_readers(extents, [policy], job, environment, options, windows)
    return found


def counts_of(found: Outcome) -> Counts:
    """Return what was simulated, without zeros."""
    assert found.reads is not None and found.bytes is not None
    by_epoch = zip(found.reads, found.bytes, strict=True)
    return {
        epoch: {name: (count, sizes[name]) for name, count in records.items() if count}
        for epoch, (records, sizes) in enumerate(by_epoch)
    }


def executed(path: str, job: Job, words: Words, per_node: int, mode: Any) -> tuple[Counts, bool]:
    """Run the job; return what all ranks have counted, and whether no root was late."""
    team = COMM.Split(0 if COMM.rank < job.ranks else MPI.UNDEFINED, COMM.rank)
    told: Mapping[int, Mapping[str, tuple[int, int]]] = {}
    fallbacks = 0
    if team != MPI.COMM_NULL:
        with Reader(
            path, job.batch, comm=team, epochs=job.epochs, seed=job.seed, mode=mode,
            ranks_per_node=per_node, request_bytes_max=REQUEST, **words._asdict(),
        ) as rdr:  # fmt: skip
            for _ in rdr:
                pass
        assert job.schedule(rdr.count).teams == rdr.schedule.teams
        told, stats = rdr.sources(), rdr.stats()
        fallbacks = stats.late_records + stats.gone_records
        team.Free()
    counts: Counts = {}
    for each in COMM.allgather(told):
        for epoch, sources in each.items():
            for name, (records, size) in sources.items():
                where = counts.setdefault(epoch, {})
                before = where.get(name, (0, 0))
                where[name] = before[0] + records, before[1] + size
    return counts, COMM.allreduce(fallbacks) == 0


def compare(
    policy: Policy, sets: list[tuple[str, Extents]], folder: Path, chance: random.Random
) -> bool | None:
    """Compare a job of chance shape; None: the policy refuses it. False: a root was late."""
    path, extents = chance.choice(sets)
    job, per_node = shape_of(chance, extents, folder)
    windows, mode = Shuffle.named(chance.choice(WINDOWS)), chance.choice(MODES)
    found = simulated(policy, extents, job, windows)
    if found.reason is not None:
        assert policy.fits and "exceed" in found.reason, found
        return None
    assert job.cache is not None and found.seconds is not None
    words = policy.words(job.cache, job.shuffle, windows)
    assert words is not None
    counts, is_comparable = executed(path, job, words, per_node, mode)
    assert len(counts) == job.epochs
    if is_comparable:
        assert counts == counts_of(found), (policy.name, counts, counts_of(found), job, words)
    COMM.barrier()
    if COMM.rank == 0:  # the next job finds nothing
        assert all(clear(entry) for entry in find(folder))
    COMM.barrier()
    return is_comparable


def main() -> None:
    folder, chance = Path(sys.argv[1]), random.Random(COMM.size)
    sets = make_sets(folder, chance)
    disk = folder / "disk"
    if COMM.rank == 0:
        disk.mkdir()
    COMM.barrier()
    for name in READERS:
        compared = run = refused = 0
        while run < SHAPES:
            is_equal = compare(Policy.named(name), sets, disk, chance)
            if is_equal is None:
                refused += 1
                continue
            run, compared = run + 1, compared + is_equal
        assert compared >= COMPARED_MIN, (name, compared)
        if COMM.rank == 0:
            print(f"{name}: {compared} of {run} as simulated, {refused} refused")


main()
