"""The steps by which all ranks of a job make a Reader together.

Every rank takes these steps in this order. MEETING stands for ``Job.together``: all ranks of the
job wait for each other after the step and learn its results, and all raise the failure of one.

    step                 collective over what
    share.connect        the job: Ibarrier, Split_type, Allgather; the ranks that share memory: one
                         Allgather
    agree_options        the job: MEETING; the ranks that share memory: Split, where
                         ranks_per_node splits them
    divide               nothing
    open_roots           the job: 3 MEETINGs, a 4th where roots read copies; between the second and
                         the third the first root's extents go to the roots that take them
    choose_tokens        nothing
    agree_block          the job: 2 MEETINGs
    open_root_mail       the job: MEETING; Dup, the first time on a communicator
    attach_window        the job: 4 MEETINGs; in the second, the ranks of each node allocate
    launch               the job: MEETING

So a step that fails does so on all ranks, and no rank takes the next one. Each closes the results
of the steps before it; the ranks of a node free their window together.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from lmdbio import share
from lmdbio.machine.choice import Reason
from lmdbio.observe import tracing
from lmdbio.observe.stats import Tally
from lmdbio.planning.mode import USUAL_TOKENS, Mode
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.block_size import Sizing
from lmdbio.reader.options import ReaderOptions
from lmdbio.reader.root_mail import RootMail, open_root_mail
from lmdbio.reader.root_thread import RootThread
from lmdbio.reader.roots import RootSource, open_roots
from lmdbio.reader.supply import FileSupply
from lmdbio.reader.tokens import count_tokens
from lmdbio.reading.direct_path import BATCH_BYTES_MIN

__all__ = ["Setup", "set_up"]


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of a Reader, as all ranks have agreed on them.

    Attributes:
        options: this rank's arguments.
        rank, size: of the job.
        mode: of this rank's root, every choice made.
        turns: why it has so many tokens.
        count: records of the data set.
        schedule: says which rank uses which records in which iteration.
        window: this rank's view of its node's.
        thread: reads for this rank's team; None where another rank does.
    """

    options: ReaderOptions
    rank: int
    size: int
    mode: Mode
    turns: Reason
    count: int
    schedule: Schedule
    window: share.NodeWindow
    thread: RootThread | None


def set_up(comm: object, check: Callable[[], ReaderOptions], tally: Tally) -> Setup:
    """Make what this rank reads with. Collective over ``comm``.

    Args:
        comm: an mpi4py intracommunicator; None: this process alone.
        check: returns this rank's arguments, or raises what is wrong with them.
        tally: of this rank's Reader.

    Raises:
        As ``Reader``; ``PeerError`` where another rank failed.
    """
    job = share.connect(comm)
    try:
        options, budget_bytes = _agree_options(job, check)
        return _make(job, options, _divide(job, options, budget_bytes), tally)
    except BaseException as error:
        job.fail(error)
        job.free()  # all ranks are here: each was told what failed
        raise


def _make(job: share.Job, options: ReaderOptions, teams: _Teams, tally: Tally) -> Setup:
    """Take all steps after the division of ranks."""
    source: RootSource | None = None
    mail: RootMail | None = None
    thread: RootThread | None = None
    try:
        source, facts, is_shared = open_roots(
            job, options.data_set(), is_root=teams.is_root, roots=len(teams.all)
        )
        plain = Schedule(
            count=facts.count,
            batch_size=options.batch_size,
            teams=teams.all,
            assignment=options.assignment,
            start=options.start,
            iterations=options.iterations,
        )
        asked, is_auto = Mode.resolve(options.mode, provenance=False), Mode.is_auto(options.mode)
        if is_auto and is_shared and len(job.nodes) > 1:
            # Storage that is far likes to be read in order; a disk here needs no turns.
            asked = replace(asked, tokens=USUAL_TOKENS)
        tokens, turns = count_tokens(job, plain, asked, facts.staggerings, suggested=is_auto)
        sizing = Sizing(
            plain,
            plain.team_of(job.rank),
            options.slots,
            teams.budget_bytes,
            teams.apart_bytes,
            takes_turns=tokens > 0,
        )
        k, modes = _agree_block(job, sizing, source, roots_here=teams.machine_roots)
        schedule = replace(plain, block_iterations=k)
        mail = open_root_mail(job, schedule, modes[0], tokens, source)
        served = modes[teams.root]
        assert served is not None
        mode = replace(served, block_iterations=k, roots_per_node=len(teams.here), tokens=tokens)
        layout = None if source is None else sizing.layout(k)
        window = share.attach_window(job, teams.here, layout)
        if source is not None:
            team = schedule.team_of(job.rank)
            supply = FileSupply(
                source, schedule, team, window, mail, sizing.request_bytes_max, tally
            )
            thread = RootThread(window, schedule, supply, mail, tally)
            source = None  # the supply owns it
    finally:
        if source is not None:
            source.close()
        if thread is None and mail is not None:
            mail.close()
    _launch(job, thread, window)
    return Setup(options, job.rank, job.size, mode, turns, facts.count, schedule, window, thread)


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
    return options, [other.memory_bytes_max for other in every]


@dataclass(frozen=True, slots=True)
class _Teams:
    """The ranks that one root reads for, and the memory that a root may take for it.

    Attributes:
        all: job ranks of each team, by its root, which is the first; the same on all ranks.
        here: node ranks of each team of this node.
        root: job rank of this rank's root.
        is_root: this rank is it.
        machine_roots: roots on this machine, among which its budget is shared.
        budget_bytes: of each of them.
        apart_bytes: of these, for the control area and the alignment of the slots.
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
    asked = Mode.resolve(options.mode, provenance=False)
    split = [share.teams(node, asked.roots(len(node))) for node in job.nodes]
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


def _agree_block(
    job: share.Job, sizing: Sizing, source: RootSource | None, *, roots_here: int
) -> tuple[int, list[Mode | None]]:
    """Settle how many iterations a block has. Collective over the job.

    Args:
        source: of this root; None where this rank is none.
        roots_here: on this machine.

    Returns:
        The least number that a root proposes, and the mode of each rank that is a root.
    """

    def propose() -> int | None:
        if source is None:
            return None
        free = None if job.alone else share.shm_free()
        sizing.measure(source, None if free is None else free // roots_here)
        return sizing.propose(source.mode.block_iterations)

    k = min(proposed for proposed in job.together(propose) if proposed is not None)

    def settle() -> Mode | None:
        if source is None:
            return None
        if sizing.block_bytes(k) < BATCH_BYTES_MIN:
            source.end_bypass()  # no block is large enough to pass by the page cache
        return source.mode

    return k, job.together(settle)


def _launch(job: share.Job, thread: RootThread | None, window: share.NodeWindow) -> None:
    """Start this rank's thread, if it is a root. Collective over the job."""
    try:
        job.together_local(lambda: None if thread is None else thread.launch())
    except BaseException:
        if thread is not None:
            thread.stop()
            thread.finish()
        window.abandon()  # all ranks are here
        raise
