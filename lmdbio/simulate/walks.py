"""walks: how long readers take that walk over all records through a mapping. Pure.

In LMDB and LMM each reader goes through the file from its first record, over those of others, as
a cursor does. In an iteration of R readers with B bytes each:

    first       reader r walks (r + 1) * B bytes: to its own place, and over its own records
    later ones  each walks R * B: from its last record to its next one

All readers of a node share a page cache, so a node asks for what its furthest reader walks. All
nodes stream the same bytes meanwhile: a server with memory reads them from its disks once.

Of each iteration the slowest of these counts, as rates of a fluid (a job of 256 nodes would be
75 million events):

    disks      what all nodes ask for, once; without memory, for each node, out of order
    memory     what all nodes ask for, at the servers' memory rate
    link       what a node asks for
    windows    few windows are in flight, and come from as many servers as they have stripes of
    processor  a process maps each page; the scheduler wakes all that wait, each time one has come

Source: LMDBIO (ACM TOPC 2019), sections 3.3.1 to 3.3.3 and 5.1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmdbio.planning.reads import PAGE_BYTES
from lmdbio.simulate.store import Store
from lmdbio.simulate.workload import RecordOffsets, Workload

__all__ = ["Walk", "walk"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Walk:
    """How long a walk takes, and why.

    Attributes:
        seconds: duration of all iterations.
        bytes: size of what all nodes ask for.
        requests: windows that they are asked for in.
        walked_bytes: size of what all readers walk over, counted for each of them.
        furthest_bytes: size of what the last reader walks over.
        bound: largest part of the time (one of the names above).
    """

    seconds: float
    bytes: int
    requests: int
    walked_bytes: int
    furthest_bytes: int
    bound: str


def walk(workload: Workload, offsets: RecordOffsets, store: Store, roots: int) -> Walk:
    """Return how long it takes ``roots`` readers on each node to walk over all records.

    Args:
        workload: Workload of the readers.
        offsets: offsets of its records.
        store: Store that they lie in.
        roots: readers of a full node.
    """
    teams = [
        team for team in workload.teams(roots) if _end(workload, team) > _begin(workload, team)
    ]
    asked = _asked_bytes(workload, offsets, teams)
    times = _times(asked, store, roots)
    table = np.stack(list(times.values()))
    if workload.barrier:
        seconds = float(table.max(axis=0).sum())
    else:
        seconds = float(table.sum(axis=1).max())
    last = (workload.iterations - 1) * workload.batch
    # A reader's last record is the last one of its team.
    walked = offsets.at(last + np.array([_end(workload, team) for team in teams]))
    return Walk(
        seconds,
        int(asked.sum()),
        int(np.ceil(asked / store.readahead_bytes).sum()),
        int(walked.sum()),
        int(walked.max()),
        list(times)[int(table.sum(axis=1).argmax())],
    )


def _begin(workload: Workload, team: tuple[int, ...]) -> int:
    """Return the position in a batch of a team's first record."""
    return team[0] * workload.batch // workload.ranks


def _end(workload: Workload, team: tuple[int, ...]) -> int:
    """Return the position in a batch after a team's last record."""
    return (team[-1] + 1) * workload.batch // workload.ranks


def _asked_bytes(
    workload: Workload, offsets: RecordOffsets, teams: Sequence[tuple[int, ...]]
) -> I64:
    """Return what each node with records asks for in each iteration: shape (iterations, nodes).

    A node's furthest reader is the one of its last rank, whether it reads for that rank alone or
    for the whole node.
    """
    last_of = {team[-1] // workload.ranks_per_node: team for team in teams}
    ends = np.array([_end(workload, team) for team in last_of.values()])
    first = np.arange(workload.iterations)[:, np.newaxis] * workload.batch
    return np.diff(offsets.at(first + ends), axis=0, prepend=0)


def _times(asked: I64, store: Store, readers: int) -> dict[str, F64]:
    """Return the seconds of each iteration by what may hold it back."""
    window, nodes = store.readahead_bytes, asked.shape[1]
    furthest, total = asked.max(axis=1).astype(np.float64), asked.sum(axis=1).astype(np.float64)
    # All are about the same place in the file: so many servers have stripes of it.
    servers = np.clip(furthest / store.stripe_bytes, 1, store.servers)
    # One of the nodes is the first to ask for a window, and waits for the disk.
    served, moving, read = store.server_rate, 0.0, furthest
    memory = np.zeros_like(total)
    if store.memory_rate and nodes > 1:
        served = min(store.memory_rate, store.server_rate)
        memory = total / (servers * store.memory_rate)
    else:
        # Nodes take turns at a server, each with a place of its own in the file.
        moving = store.out_of_order_seconds if nodes > 1 else 0.0
        read = total
    flying = store.readahead_windows
    width = min(store.servers, max(1.0, window / store.stripe_bytes))
    widths = min(store.servers, max(1.0, flying * window / store.stripe_bytes))
    one = window / (width * served) + moving
    each = max(
        window / (widths * served) + moving / widths, (store.request_seconds + one) / flying
    )
    pages = furthest / PAGE_BYTES
    return {
        "disks": read / servers * (1 / store.server_rate + moving / window),
        "memory": memory,
        "link": furthest / store.link_rate,
        "windows": store.request_seconds + furthest / window * each,
        "processor": pages * (store.fault_seconds + (readers - 1) * store.wake_seconds),
    }
