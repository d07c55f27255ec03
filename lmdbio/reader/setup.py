"""The steps by which all ranks of a job make a Reader together.

Every rank takes these steps in this order. MEETING stands for ``Job.together``: all ranks of the
job wait for each other after the step and learn its results, and all raise the failure of one.

    step                     collective over what
    connect                  the job: Ibarrier, Split_type, ``Job.together``
    agree_options            the job: 1 MEETING; the ranks that share memory: a Split after it,
                             where ranks_per_node splits them
    divide                   nothing
    open_roots               the job: 2 MEETINGs, a 3rd where roots read copies; between the first
                             and the second a Split, where the first root sends extents to others
    plan                     nothing
    agree_cache              the job: 2 MEETINGs, where roots are to cache something; a Split after
                             them where ranks are to take what their root caches
    agree_windows            the job: 1 MEETING, where roots are to read whole windows in slices
    agree_block              the job: 2 MEETINGs
    open_root_mail           the job: 1 MEETING; a Dup after it, the first time on a communicator
    attach_window            the job: 3 MEETINGs; in the second, the ranks of each node allocate
    launch                   the job: 1 MEETING
    wait_warm                the job: 1 MEETING, where roots read what they cache beforehand

So a step that fails does so on all ranks, and no rank takes the next one. Each closes the results
of the steps before it; the ranks of a node free their window together.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lmdbio import _core, share
from lmdbio.machine.cache_choice import choose_cache
from lmdbio.machine.choice import Reason
from lmdbio.observe import tracing
from lmdbio.observe.stats import StageCounter
from lmdbio.placement.sources import WindowSources
from lmdbio.planning.mode import USUAL_TOKENS, Mode
from lmdbio.planning.randomness import epochs_without_repeat
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.block_size import Sizing, spare_bytes
from lmdbio.reader.caching import CacheRequest
from lmdbio.reader.options import ReaderOptions
from lmdbio.reader.phases import Sliced, choose_phases, count_tokens
from lmdbio.reader.root_mail import RootMail, open_root_mail
from lmdbio.reader.root_thread import RootThread, launch
from lmdbio.reader.roots import DataSetFacts, RootSource, open_roots
from lmdbio.reader.row_sources import RowSources, agree_row_sources
from lmdbio.reader.supply import FileSupply, Supply
from lmdbio.reading.direct_path import BATCH_BYTES_MIN
from lmdbio.system.log import WARNING, log

if TYPE_CHECKING:
    from lmdbio.cache import LeftGrains
    from lmdbio.reader.round_cache import RoundCache

from lmdbio.system.frozen import dataclass

__all__ = ["Setup", "set_up"]


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of a Reader, as all ranks have agreed on them.

    Attributes:
        options: arguments of this rank.
        rank, size: rank of this process, and number of ranks in the job.
        mode: mode of this rank's root, every choice made.
        turns: reason for its number of tokens.
        windows: whether roots read whole windows of the order in slices, and why.
        caching: whether roots cache parts of the file, and why.
        facts: facts of the data set, as the first root sees it.
        schedule: says which rank uses which records in which iteration.
        thread: reads for this rank's team; None where another rank does.
        window: view that this rank has of its node's window.
        left: grains in the memory of this rank; None where another rank has them, or nobody.
        end: raises what interrupted this rank when all others had what they read with.
    """

    options: ReaderOptions
    rank: int
    size: int
    mode: Mode
    turns: Reason
    windows: Reason
    caching: Reason
    facts: DataSetFacts
    schedule: Schedule
    thread: RootThread | None
    window: share.NodeWindow
    left: LeftGrains | None
    end: Callable[[], None]


def set_up(
    comm: object,
    check: Callable[[], ReaderOptions],
    counter: StageCounter,
    left: LeftGrains | None,
) -> Setup:
    """Make what this rank reads with. Collective over ``comm``.

    Args:
        comm: an mpi4py intracommunicator; None: this process alone.
        check: returns this rank's arguments, or raises what is wrong with them.
        counter: counter of this rank's Reader.
        left: grains that an earlier Reader of this process has left in memory; None: there are
            none.

    Raises:
        As ``Reader``; ``PeerError`` where another rank failed.
    """
    _core.need("lmdbio.Reader")
    job = share.connect(comm)  # over the job, and over the ranks that share memory
    try:
        options, budgets = _agree_options(job, check)  # over the job, 1 MEETING
        teams = _divide(job, options, budgets)
        return _make(job, options, teams, counter, left)
    except BaseException as error:
        job.fail(error)
        job.free()  # all ranks are here: each was told what failed
        raise


def _make(
    job: share.Job,
    options: ReaderOptions,
    teams: _Teams,
    counter: StageCounter,
    left: LeftGrains | None,
) -> Setup:
    """Take the steps from ``open_roots`` on. Collective over the job."""
    source: RootSource | None = None
    mail: RootMail | None = None
    thread: RootThread | None = None
    try:
        # Over the job, 2 or 3 MEETINGs.
        source, facts, is_shared = open_roots(
            job, options, is_root=teams.is_root, roots=len(teams.all)
        )
        request = CacheRequest(
            *choose_cache(options.cache, nodes=len(job.nodes), is_shared=is_shared), left
        )
        plain, tokens, turns, sliced = _plan(
            job, options, teams, facts, is_shared=is_shared, request=request
        )
        team = plain.team_of(job.rank)
        memory = teams.budget_bytes, teams.apart_bytes, teams.machine_roots
        takes = {"takes_turns": tokens > 0, "takes_copies": bool(request.cache or sliced.epochs)}
        sizing = Sizing(plain, team, options.slots, *memory, **takes, sliced=sliced.epochs)
        # Over the job, 1 or 2 MEETINGs where roots cache something, and 1 where they read windows.
        rows = agree_row_sources(job, request, sliced, sizing, plain, source, options.sharing)
        if rows.windows.are_read and tokens:
            tokens, turns = 0, Reason("facts", "roots read whole windows of the order")
        # Over the job, 2 MEETINGs.
        k, modes = _agree_block(job, sizing, source)
        schedule = replace(rows.schedule, block_iterations=k)
        job.hold()  # from now on others wait for this rank, or use a window with it
        # Over the job, 1 MEETING, and a Dup.
        mail = open_root_mail(job, schedule, modes[0], tokens, source, exchanges=rows.are_sent)
        mode = _settled(modes[teams.root], k, teams, tokens, rows)
        layout = None if source is None else sizing.layout(k)
        # Over the job, 3 MEETINGs; over each node, the allocation.
        window = share.attach_window(job, teams.here, layout)
        rest = window, rows.caching.left, job.end  # before the thread begins, whose end lets it go
        make: Callable[[], Supply] | None = None
        if source is not None:
            parts = schedule, team, window, mail, rows, sizing, counter
            make = partial(_supply, source, *parts)
        thread = _launch(job, window, schedule, mail, counter, make)  # over the job, 1 MEETING
    finally:
        if thread is None and source is not None:
            source.close()
        if thread is None and mail is not None:
            mail.close()
    if request.is_warm:
        _wait_warm(job, thread, window)  # over the job, 1 MEETING
    reasons = turns, rows.windows.reason, rows.caching.reason
    return Setup(options, job.rank, job.size, mode, *reasons, facts, schedule, thread, *rest)


def _settled(
    served: Mode | None, block_iterations: int, teams: _Teams, tokens: int, rows: RowSources
) -> Mode:
    """Return the mode of a root with every choice made."""
    assert served is not None  # it is a root's
    return replace(
        served,
        block_iterations=block_iterations,
        roots_per_node=len(teams.here),
        tokens=tokens,
        phases=1 + (rows.windows.are_read and rows.are_sent),
    )


def _supply(
    source: RootSource,
    schedule: Schedule,
    team: int,
    window: share.NodeWindow,
    mail: RootMail,
    rows: RowSources,
    sizing: Sizing,
    counter: StageCounter,
) -> Supply:
    """Return what brings this root's blocks: with the other roots, or block by block."""
    size, buffers, store = sizing.request_bytes_max, sizing.window_buffers, rows.caching.store
    if store is None and not (buffers.count and sizing.sliced is not None):
        mapped_bytes_max = 0 if source.choice.demanded else spare_bytes(sizing, window.layout)
        return FileSupply(source, schedule, team, window, mail, size, mapped_bytes_max, counter)
    from lmdbio.reader.joint_supply import AnySources, JointSupply  # others begin sooner without
    from lmdbio.reader.round_cache import RootContext
    from lmdbio.reader.windows import Windows

    exchange: share.Exchange | None = None
    if rows.are_sent and rows.mpi is not None and mail.mail is not None:
        roots = [ranks[0] for ranks in schedule.teams]
        exchange = share.Exchange(rows.mpi, mail.mail, roots, team, sizing.messages)
    # Beside what is cached, no byte is read that is not needed.
    options = PlanOptions(source.choice.gap_bytes_max if store is None else 0, size)
    stage_bytes_max = sizing.stage_bytes(schedule.block_iterations)
    context = RootContext(
        source, schedule, team, options, buffers, stage_bytes_max, exchange, counter
    )
    sources: AnySources
    rounds: RoundCache[Any]
    try:
        if store is None:
            assert sizing.sliced is not None
            sources = WindowSources(schedule, sizing.sliced)
            rounds = Windows(context, sources)
        else:
            sources, rounds = store.open(context)
    except BaseException:
        if exchange is not None:
            exchange.close()
        raise
    return JointSupply(context, sources, rounds, window)


# --- the steps ---------------------------------------------------------------------------


def _agree_options(
    job: share.Job, check: Callable[[], ReaderOptions]
) -> tuple[ReaderOptions, list[int]]:
    """Check that all ranks gave the same arguments, and form the nodes. Collective.

    Returns:
        This rank's arguments, and the memory budget of each rank's machine, bytes.
    """
    every = job.together(check)
    options = every[job.rank]
    compared = [other.compared() for other in every]
    # Arguments of which each node has its own are compared where the nodes are known.
    job.compare([{"ranks_per_node": one["ranks_per_node"]} for one in compared])
    job.settle_nodes(options.ranks_per_node)
    job.compare(compared, per_node=ReaderOptions.PER_NODE)
    return options, [other.budget for other in every]


@dataclass(frozen=True, slots=True)
class _Teams:
    """The ranks that one root reads for, and the memory that a root may take for it.

    Attributes:
        all: job ranks of each team, by its root, which is the first; the same on all ranks.
        here: node ranks of each team of this node.
        root: job rank of this rank's root.
        is_root: whether this rank is its root.
        machine_roots: roots on this machine, among which its budget is shared.
        budget_bytes: budget of each of these roots, bytes.
        apart_bytes: part of the budget for the control area and the alignment of the slots, bytes.
    """

    all: tuple[tuple[int, ...], ...]
    here: list[range]
    root: int
    is_root: bool
    machine_roots: int
    budget_bytes: int
    apart_bytes: int


def _divide(job: share.Job, options: ReaderOptions, budgets: list[int]) -> _Teams:
    """Divide the ranks of each node into teams. No rank waits."""
    if job.size > 1:
        tracing.name_rank(job.rank)
    roots = options.resolved_mode.roots
    split = [share.teams(node, roots(len(node))) for node in job.nodes]
    here = split[job.nodes.index(job.node)]
    own = next(team for team in here if job.node_rank in team)
    teams = sorted(
        tuple(sorted(node[i] for i in team))
        for node, node_teams in zip(job.nodes, split, strict=True)
        for team in node_teams
    )
    machine = job.same_machine()
    machine_roots = sum(
        node[team.start] in machine
        for node, node_teams in zip(job.nodes, split, strict=True)
        for team in node_teams
    )
    alignment = max(share.SLOT_ALIGNMENT, os.sysconf("SC_PAGE_SIZE"))
    return _Teams(
        all=tuple(teams),
        here=here,
        root=job.node[own.start],
        is_root=own.start == job.node_rank,
        machine_roots=machine_roots,
        budget_bytes=min(budgets[rank] for rank in machine) // machine_roots,
        apart_bytes=share.control_bytes(len(job.node), len(here), alignment) + alignment,
    )


def _plan(
    job: share.Job,
    options: ReaderOptions,
    teams: _Teams,
    facts: DataSetFacts,
    *,
    is_shared: bool,
    request: CacheRequest,
) -> tuple[Schedule, int, Reason, Sliced]:
    """Plan which rank uses which records. The same on all ranks; no rank waits.

    Args:
        facts: facts of the data set, as the first root sees it.
        is_shared: whether all roots read one file on storage that nodes share.
        request: cache that roots are to have.

    Returns:
        The schedule, with blocks of one iteration, and strided where it is to be local, for no
        root caches anything yet; how many tokens there are, and why; what roots
        are to read in slices.
    """
    length = options.length(facts.count)
    start, epochs = options.begun(facts.count, facts.used_bytes, job.size)
    schedule = Schedule(
        count=facts.count,
        batch_size=options.batch_size,
        teams=teams.all,
        assignment=options.sharing.undealt,
        start=start,
        iterations=options.iterations if length is None else None,
        epochs=epochs,
        length=length,
    )
    if job.rank == 0:
        _warn_of_repeats(options, schedule)
    mode, is_auto = options.resolved_mode, Mode.is_auto(options.mode)
    if request.cache is not None:
        why = Reason("facts", "roots keep what they read")
        sliced = Sliced(None, why)
        if request.rule.streams and schedule.epochs is not None:
            windows = replace(schedule.epochs, shuffle=schedule.epochs.shuffle.streamed)
            plain = replace(schedule, epochs=windows)
            sliced = choose_phases(mode, plain, facts.used_bytes, suggested=False)
        return schedule, 0, why, sliced
    is_far = is_auto and is_shared and len(job.nodes) > 1 and schedule.epochs is None
    if is_far:
        # Storage that is far likes to be read in order; a disk here needs no turns.
        mode = replace(mode, tokens=USUAL_TOKENS)
    turns = count_tokens(job, schedule, mode, facts.staggerings, suggested=is_auto)
    return schedule, *turns, choose_phases(mode, schedule, facts.used_bytes, suggested=is_far)


def _warn_of_repeats(options: ReaderOptions, schedule: Schedule) -> None:
    """Say that groups are dealt more often than they can be shuffled anew.

    Source: Lee et al., Asynchronous I/O Strategy, equation 1.
    """
    epochs, whole = schedule.epochs, options.epochs
    if epochs is None or whole is None or not epochs.shuffle.is_grouped:
        return
    groups = -(-schedule.count // epochs.shuffle.chunk)
    if whole > epochs_without_repeat(schedule.count, groups):
        log(
            f"{options.name}: S < N/G does not hold: S = {whole} epochs of N = {schedule.count} "
            f"records in G = {groups} groups; groups of more than S records hold it",
            WARNING,
        )


def _agree_block(
    job: share.Job, sizing: Sizing, source: RootSource | None
) -> tuple[int, list[Mode | None]]:
    """Settle how many iterations a block has. Collective over the job.

    Args:
        source: data set of this root; None where this rank is no root.

    Returns:
        The least number that a root proposes, and the mode of each rank that is a root.
    """

    def propose() -> int | None:
        if source is None:
            return None
        sizing.measure(job, source)
        return sizing.propose(source.mode.block_iterations)

    k = min(proposed for proposed in job.together(propose) if proposed is not None)

    def settle() -> Mode | None:
        if source is None:
            return None
        if sizing.block_bytes(k) < BATCH_BYTES_MIN:
            source.end_direct_path(f"none of them has {BATCH_BYTES_MIN} bytes")
        return source.mode

    return k, job.together(settle)


def _launch(
    job: share.Job,
    window: share.NodeWindow,
    schedule: Schedule,
    mail: RootMail,
    counter: StageCounter,
    make: Callable[[], Supply] | None,
) -> RootThread | None:
    """Make and start this rank's thread, if it is a root. Collective over the job.

    Args:
        make: makes the supply of its blocks; None: this rank is no root.
    """
    threads: list[RootThread] = []

    def step() -> None:
        if make is not None:
            threads.append(RootThread(window, schedule, make(), mail, counter))
            launch(threads[0], is_alone=job.alone)

    _on_threads(job, threads, window, step)
    return threads[0] if threads else None


def _wait_warm(job: share.Job, thread: RootThread | None, window: share.NodeWindow) -> None:
    """Wait until all roots have read what they cache. Collective over the job."""
    from lmdbio.reader.warm_up import wait_warm  # others begin sooner without it

    threads = [] if thread is None else [thread]

    def step() -> None:
        job.end()  # it may take long
        for each in threads:
            wait_warm(each, is_displayed=job.rank == 0)
        job.hold()

    _on_threads(job, threads, window, step)


def _on_threads(
    job: share.Job, threads: list[RootThread], window: share.NodeWindow, step: Callable[[], None]
) -> None:
    """Take a step with this rank's thread, if it has one; end it where a rank fails."""
    try:
        job.together_local(step)
    except BaseException:
        for thread in threads:
            thread.stop()
            thread.finish()
        window.abandon()  # all ranks are here
        raise
