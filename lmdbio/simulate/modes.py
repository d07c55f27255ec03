"""modes: how long each mode takes to read a data set from a store, and what reaches it. Pure.

    mode, workload -> Schedule, teams, blocks -> walks (seek) | events (all others) -> ModeOutcome

``seek``        LMDB, LMM: closed forms (``walks``)
``speculate``   LMM-DM: each root reads the windows that it guesses, then one cursor goes round
``scan``        LMM-DIO: one process asks for the leaf pages of all records, then as below
``provenance``  PROV, COAL, STAG: explicit reads of what each root's blocks take up

Source: LMDBIO (ACM TOPC 2019), section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from lmdbio.planning.mode import AUTO, USUAL_TOKENS, Mode
from lmdbio.planning.schedule import Schedule
from lmdbio.simulate.roots import Roots
from lmdbio.simulate.servers import Servers
from lmdbio.simulate.store import Store
from lmdbio.simulate.walks import walk
from lmdbio.simulate.workload import RecordOffsets, Workload

__all__ = ["ModeOutcome", "run_modes"]

#: Simulated at most: they take about 5 us each.
REQUESTS_MAX = 20_000_000

#: Called with (blocks done, blocks, mode) while one runs.
Progress = Callable[[int, int, str], None]


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
        bound: largest part of the time: a name of ``walks``, or of events "moves", "bytes", "link"
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
    workload: Workload,
    modes: Iterable[Mode | str],
    store: Store,
    progress: Progress | None = None,
) -> Iterator[ModeOutcome]:
    """Return how each mode reads, one after the other.

    Args:
        workload: Workload of the job: what is read, and by whom.
        modes: modes or their names.
        store: Store that the records lie in.
        progress: function of (blocks done, blocks, mode), called while one runs.

    Raises:
        ValueError: no mode has such a name.
    """
    offsets = RecordOffsets(workload)
    for given in modes:
        mode = Mode.named(given) if isinstance(given, str) else given
        yield _run_one(workload, offsets, mode, store, progress)


def _run_one(
    workload: Workload,
    offsets: RecordOffsets,
    mode: Mode,
    store: Store,
    progress: Progress | None,
) -> ModeOutcome:
    name, roots = str(mode), workload.roots(mode)
    if mode.locate == "seek":
        found = walk(workload, offsets, store, roots)
        return ModeOutcome(
            name,
            found.seconds,
            offsets.needed(workload),
            found.bytes,
            found.requests,
            len(workload.teams(roots)),
            walked_bytes=found.walked_bytes,
            bound=found.bound,
        )
    k = _coalesced(workload, offsets, mode, store)
    if isinstance(k, str):
        return ModeOutcome(name, reason=k)
    requests = _expected_requests(workload, offsets, mode, store, k)
    if requests > REQUESTS_MAX:
        return ModeOutcome(name, reason=f"{requests:,} requests are more than can be simulated")
    schedule = workload.schedule(roots, k)
    tell = None if progress is None else partial(_tell, progress, name)
    run = partial(_run_roots, workload, offsets, mode, store, schedule, tell)
    return run(mode.tokens) if mode.tokens != USUAL_TOKENS else _fastest(run, len(schedule.teams))


def _tell(progress: Progress, mode: str, done: int, total: int) -> None:
    progress(done, total, mode)


def _coalesced(workload: Workload, offsets: RecordOffsets, mode: Mode, store: Store) -> int | str:
    """Return how many iterations a root coalesces, or why it can read none.

    As many as its buffer holds, and no more than all records, or all iterations, are.

    Source: LMDBIO, section 4.5.
    """
    schedule = workload.schedule(workload.roots(mode), 1)
    rows = max(schedule.team_rows(team) for team in range(len(schedule.teams)))
    each = max(1, rows * offsets.total // workload.count)
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


def _expected_requests(
    workload: Workload, offsets: RecordOffsets, mode: Mode, store: Store, k: int
) -> int:
    """Return about how many requests reach the store: by size, and at least one for a block."""
    whole = offsets.needed(workload)
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
    offsets: RecordOffsets,
    mode: Mode,
    store: Store,
    schedule: Schedule,
    tell: Callable[[int, int], None] | None,
    tokens: int,
) -> ModeOutcome:
    """Return how long all blocks take, event by event."""
    roots = Roots(workload, offsets, mode, store, schedule, tokens)
    if mode.locate == "scan":
        roots.scan()
    located = roots.now
    blocks = range(schedule.blocks or 0)
    # After each block the cursor goes through pages that are in memory, root by root.
    hops = len(schedule.teams) * store.hop_seconds if mode.locate == "speculate" else 0.0
    for phase in [[block] for block in blocks] if workload.barrier else [blocks]:
        roots.read(phase)
        roots.now += hops * len(phase)
        if tell is not None:
            tell(phase[-1] + 1, len(blocks))
    servers = roots.servers
    return ModeOutcome(
        str(mode),
        roots.now,
        offsets.needed(workload),
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
