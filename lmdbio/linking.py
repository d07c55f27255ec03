"""Linking: what ties each root to the others, by the job's mode and nodes.

    nodes > 1                 letters between one root of each node: a rank has failed
    tokens, roots > 1         letters along chains: turns to read
    speculate, roots > 1      letters from team to team: the cursor

A job of one node whose roots read on their own has no letters.
"""

from __future__ import annotations

from lmdbio import _core, share
from lmdbio.assignment import Schedule
from lmdbio.errors import IncompatibleError
from lmdbio.filling import Links
from lmdbio.mode import USUAL_TOKENS, Mode
from lmdbio.roots import Work
from lmdbio.seeking import Relay, Walked
from lmdbio.speculation import Speculation

__all__ = ["count_tokens", "link"]

#: Records looked up for all roots, before the first guess, at most.
SAMPLE_RECORDS_MAX = 4096
#: Tokens where nobody has measured.
ROOTS_PER_TOKEN = 8


def usual_tokens(roots: int) -> int:
    """Tokens where nobody has measured: one for eight roots.

    One token brings a block for each hop: 8 MiB in 1.5 ms are 5 GB/s, which is more than the
    links of a few nodes carry together. The fewer, the more nearly the file is read in order.
    """
    return max(1, roots // ROOTS_PER_TOKEN)


def count_tokens(job: share.Job, schedule: Schedule, mode: Mode, *, suggested: bool) -> int:
    """How many tokens there are; 0: whoever can, reads. The same on all ranks.

    Args:
        schedule: says which roots have records at all.
        mode: that was asked for.
        suggested: nobody asked for them by name: there are none where MPI cannot hand them on.
    """
    readers = sum(schedule.team_rows(i) > 0 for i in range(len(schedule.teams)))
    tokens = usual_tokens(readers) if mode.tokens == USUAL_TOKENS else mode.tokens
    if tokens >= readers or (suggested and not job.is_threaded):
        return 0  # everybody would have one
    return tokens


def link(
    job: share.Job, schedule: Schedule, mode: Mode | None, tokens: int, work: Work | None
) -> Links:
    """Links this rank's root to the others. Collective over the job.

    Args:
        mode: of the first root, whose choices of what spans nodes count for all.
        tokens: ``count_tokens``.
        work: of this root; None where this rank is none.

    Raises:
        IncompatibleError: they need letters, and this MPI serves one thread alone.
    """
    assert mode is not None
    roots = tuple(team[0] for team in schedule.teams)
    readers = [rank for i, rank in enumerate(roots) if schedule.team_rows(i)]
    takes_turns = tokens > 0
    relays = mode.locate == "speculate"
    sample = job.together(lambda: _sample(schedule, work) if relays and job.rank == 0 else None)[0]
    needs_mail = takes_turns or (relays and len(readers) > 1)
    mail = None
    if needs_mail or len(job.nodes) > 1:
        mail = share.open_mail(job)
        if mail is None and needs_mail:
            raise IncompatibleError(
                f"mode {mode} hands {'turns' if takes_turns else 'a cursor'} from root to root "
                "by a thread of its own, and this MPI was initialised for one thread alone: "
                "initialise it with MPI_THREAD_MULTIPLE (mpi4py does so by itself)"
            )
    if work is None:
        if mail is not None:
            mail.close()
        return Links()
    links = Links(mail=mail, roots=roots)
    if job.node_rank == 0:
        links.heralds = tuple(node[0] for node in job.nodes if node != job.node)
    if takes_turns and job.rank in readers:
        links.turns = share.Turns(share.chain_of(readers, job.rank, tokens), job.rank)
    if relays:
        assert isinstance(work.source, Walked) and sample is not None
        links.relay = Relay(work.source, schedule, schedule.team_of(job.rank))
        links.speculation = Speculation(schedule.count, work.source.pages.size(), sample)
    return links


def _sample(schedule: Schedule, work: Work | None) -> _core.Extents:
    """Extents of the first records."""
    assert work is not None and isinstance(work.source, Walked)
    wanted = min(schedule.count, max(2, schedule.batch_size), SAMPLE_RECORDS_MAX)
    return work.source.again().first(wanted)
