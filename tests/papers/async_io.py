"""Cases of asynchronous I/O (001)."""

from __future__ import annotations

import numpy as np

from lmdbio.planning.order import Epoch
from lmdbio.planning.randomness import epochs_without_repeat
from lmdbio.planning.schedule import Schedule
from lmdbio.planning.shuffle import Shuffle
from tests.papers.checks import Given, check, reading

#: Of a process whose groups are read ahead (``Reader(slots=2)``), each as large as a group.
SLOTS = 2


@check("001-cosmo")
def groups_of_cosmoflow(given: Given) -> Given:
    count, size, ranks, batch = given["N"], given["B"], given["P"], given["M"]
    teams = tuple((rank,) for rank in range(ranks))
    local = batch // ranks
    schedule = Schedule(count, batch, teams, "blocked", size // local, iterations=count // batch)
    found = Epoch(count, 1, 0, Shuffle.groups(size)).samples(np.arange(count)) // size
    groups = len(np.flatnonzero(np.diff(found))) + 1
    assert len(schedule.team_records(0, 0)) == size, "a buffer holds a group"
    last = epochs_without_repeat(count, groups)
    return {
        "groups": groups,
        "groups_per_process": groups // ranks,
        "local_batch": len(schedule.share(0)),
        "iters_per_buffer": schedule.block_iterations,
        "iters_per_epoch": schedule.iterations,
        "max_epochs": last + 1,
    }


@check("001-db")
def two_buffers(given: Given) -> list[float]:
    found = [reading(groups, 1.0, 1 / read, compute) for groups, read, compute in given["cases"]]
    return [one.seconds or 0.0 for one in found]


@check("001-bytes")
def bytes_of_samples(given: Given) -> Given:
    cosmo = np.broadcast_to(np.uint16(), (128, 128, 128, 12)).nbytes
    neuron = np.broadcast_to(np.float32(), (1600, 3)).nbytes
    return {
        "cosmo": cosmo,
        "neuron": neuron,
        "mib609": 609 * neuron / 2**20,
        "cosmo_total_GiB": 8192 * cosmo / 2**30,
    }


@check("001-mem")
def memory_of_two_buffers(given: Given) -> list[int]:
    return [processes * SLOTS for processes in given["procs"]]
