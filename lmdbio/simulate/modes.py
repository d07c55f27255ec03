"""modes: how long each mode takes to read a data set from a store, and what reaches it. Pure.

    mode, workload -> Schedule, teams, blocks -> walks (seek) | events (all others) -> ModeOutcome

``seek``        LMDB, LMM: closed forms of readers that walk
``speculate``   LMM-DM: each root reads the windows that it guesses, then one cursor goes round
``scan``        LMM-DIO: one process asks for the leaf pages of all records, then as below
``provenance``  PROV, COAL, STAG: explicit reads of what each root's blocks take up

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

Source: LMDBIO (ACM TOPC 2019), sections 3.3.1 to 3.3.3, 4 and 5.1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from lmdbio.planning.mode import AUTO, USUAL_TOKENS, Mode
from lmdbio.planning.order import split_share
from lmdbio.planning.reads import PAGE_BYTES
from lmdbio.planning.schedule import Schedule
from lmdbio.simulate.roots import Roots
from lmdbio.simulate.servers import Servers
from lmdbio.simulate.store import Store
from lmdbio.simulate.workload import Workload

__all__ = ["ModeOutcome", "run_modes"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

#: Simulated at most: they take about 5 us each.
REQUESTS_MAX = 20_000_000


@dataclass(frozen=True, slots=True)
class ModeOutcome:
    """The result of a mode.

    Attributes:
        mode: name of the mode.
        seconds: duration of the whole reading; None: the mode cannot read so.
        needed_bytes: size of the records, bytes.
        bytes: size of what all nodes ask the store for.
        requests: number of requests in which they ask for it.
        roots: number of roots on all nodes.
        block_iterations: number of iterations in a block (k).
        tokens: roots that read at a time; 0: whoever can, reads.
        seek_seconds: part of ``seconds`` in which records are found, before they are read.
        walked_bytes: size of what all readers walk over to seek, bytes, counted for each of them.
        out_of_order: share of the pieces for which a server moved; 0 for closed forms.
        bound: largest part of the time: a name above, or of events "moves", "bytes", "link"
            or "waits": for answers, turns, or the slowest root.
        reason: reason why it cannot; None: it can.
    """

    mode: str
    seconds: float | None = None
    needed_bytes: int = 0
    bytes: int = 0
    requests: int = 0
    roots: int = 0
    block_iterations: int = 1
    tokens: int = 0
    seek_seconds: float = 0.0
    walked_bytes: int = 0
    out_of_order: float = 0.0
    bound: str = ""
    reason: str | None = None


def run_modes(
    workload: Workload, modes: Iterable[Mode | str], store: Store
) -> Iterator[ModeOutcome]:
    """Return how each mode reads, one after the other.

    Args:
        workload: Workload of the job: what is read, and by whom.
        modes: modes or their names.
        store: Store that the records lie in.

    Raises:
        ValueError: no mode has such a name.
    """
    for given in modes:
        mode = Mode.named(given) if isinstance(given, str) else given
        yield _run_one(workload, mode, store)


def _run_one(workload: Workload, mode: Mode, store: Store) -> ModeOutcome:
    name, roots = str(mode), workload.roots(mode)
    if mode.locate == "seek":
        return _walk(name, workload, store, roots)
    k = _coalesced(workload, mode, store)
    if isinstance(k, str):
        return ModeOutcome(name, reason=k)
    requests = _expected_requests(workload, mode, store, k)
    if requests > REQUESTS_MAX:
        return ModeOutcome(name, reason=f"{requests:,} requests are more than can be simulated")
    schedule = workload.schedule(roots, k)
    run = partial(_run_roots, workload, mode, store, schedule)
    return run(mode.tokens) if mode.tokens != USUAL_TOKENS else _fastest(run, len(schedule.teams))


def _coalesced(workload: Workload, mode: Mode, store: Store) -> int | str:
    """Return how many iterations a root coalesces, or why it can read none.

    As many as its buffer holds, and no more than all records, or all iterations, are.

    Source: LMDBIO, section 4.5.
    """
    schedule = workload.schedule(workload.roots(mode), 1)
    rows = max(schedule.team_rows(team) for team in range(len(schedule.teams)))
    each = max(1, rows * workload.total_bytes // workload.count)
    k = mode.block_iterations
    if k == AUTO:
        fit = min(store.block_bytes, store.buffer_bytes) // each
        k = max(1, min(fit, workload.count // workload.batch, workload.iterations))
    if k * each > store.buffer_bytes:
        return (
            f"a block of k={k} takes about {k * each:,} bytes of a root, and its buffer has "
            f"{store.buffer_bytes:,}"
        )
    return min(k, workload.iterations)


def _expected_requests(workload: Workload, mode: Mode, store: Store, k: int) -> int:
    """Return about how many requests reach the store: by size, and at least one for a block."""
    whole = workload.needed_bytes
    size = store.readahead_bytes if mode.locate == "speculate" else store.request_bytes
    roots = workload.nodes * workload.roots(mode)
    return whole // min(size, store.stripe_bytes) + -(-workload.iterations // k) * roots


def _fastest(run: Callable[[int], ModeOutcome], roots: int) -> ModeOutcome:
    """Return the run with the number of tokens that is fastest: 1, 2, 4..., or one a root.

    Source: LMDBIO, section 4.6: the best sizes of groups were measured.
    """
    counts = (*(1 << i for i in range((roots - 1).bit_length())), 0)
    return min(map(run, counts), key=lambda one: one.seconds or 0.0)


def _run_roots(
    workload: Workload,
    mode: Mode,
    store: Store,
    schedule: Schedule,
    tokens: int,
) -> ModeOutcome:
    """Return how long all blocks take, event by event."""
    roots = Roots(workload, mode, store, schedule, tokens)
    if mode.locate == "scan":
        roots.scan()
    located = roots.now
    blocks = range(schedule.blocks or 0)
    # After each block the cursor goes through pages that are in memory, root by root.
    hops = len(schedule.teams) * store.hop_seconds if mode.locate == "speculate" else 0.0
    for phase in [[block] for block in blocks] if workload.barrier else [blocks]:
        roots.read(phase)
        roots.now += hops * len(phase)
    servers = roots.servers
    return ModeOutcome(
        str(mode),
        roots.now,
        workload.needed_bytes,
        servers.bytes,
        servers.reads,
        len(schedule.teams),
        schedule.block_iterations,
        roots.tokens,
        located + hops * len(blocks),
        out_of_order=servers.moves / max(1, servers.pieces),
        bound=_bound(servers, store, roots.now),
    )


def _bound(servers: Servers, store: Store, seconds: float) -> str:
    """Return what most of the time goes to: what servers or a link do, or waiting for them."""
    moves = servers.moves * store.out_of_order_seconds
    serving = moves + servers.bytes / store.server_rate
    link = max(servers.link_bytes.values(), default=0) / store.link_rate
    if link > seconds / 2 and link > serving / store.servers:
        return "link"
    if serving < seconds / 2:  # one server alone would have been done
        return "waits"
    return "moves" if moves > serving / 2 else "bytes"


def _walk(name: str, workload: Workload, store: Store, roots: int) -> ModeOutcome:
    """Return how long it takes ``roots`` readers on each node to walk over all records."""
    teams = [team for team in workload.teams(roots) if _part(workload, team)]
    asked = _asked_bytes(workload, teams)
    times = _times(asked, store, roots)
    table = np.stack(list(times.values()))
    if workload.barrier:
        seconds = float(table.max(axis=0).sum())
    else:
        seconds = float(table.sum(axis=1).max())
    last = (workload.iterations - 1) * workload.batch
    # A reader's last record is the last one of its team.
    walked = workload.offsets(last + np.array([_part(workload, team).stop for team in teams]))
    return ModeOutcome(
        name,
        seconds,
        workload.needed_bytes,
        int(asked.sum()),
        int(np.ceil(asked / store.readahead_bytes).sum()),
        len(workload.teams(roots)),
        walked_bytes=int(walked.sum()),
        bound=list(times)[int(table.sum(axis=1).argmax())],
    )


def _part(workload: Workload, team: tuple[int, ...]) -> range:
    """Return the positions in a batch of a team's records."""
    batch, ranks = workload.batch, workload.ranks
    first, last = (split_share(batch, ranks, rank) for rank in (team[0], team[-1]))
    return range(first.start, last.stop)


def _asked_bytes(workload: Workload, teams: Sequence[tuple[int, ...]]) -> I64:
    """Return what each node with records asks for in each iteration: shape (iterations, nodes).

    A node's furthest reader is the one of its last rank, whether it reads for that rank alone or
    for the whole node.
    """
    last_of = {team[-1] // workload.ranks_per_node: team for team in teams}
    ends = np.array([_part(workload, team).stop for team in last_of.values()])
    first = np.arange(workload.iterations)[:, np.newaxis] * workload.batch
    return np.diff(workload.offsets(first + ends), axis=0, prepend=0)


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
