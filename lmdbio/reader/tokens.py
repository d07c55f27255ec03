"""How many roots read at a time: the number of tokens, and why."""

from __future__ import annotations

from collections.abc import Sequence

from lmdbio import share
from lmdbio.machine.calibration import Staggering
from lmdbio.machine.choice import Reason
from lmdbio.machine.measured import choose_tokens
from lmdbio.planning.mode import USUAL_TOKENS, Mode
from lmdbio.planning.schedule import Schedule
from lmdbio.system.log import tell

__all__ = ["ROOTS_PER_TOKEN", "count_tokens", "usual_tokens"]

#: One token for so many roots, where no job has measured.
ROOTS_PER_TOKEN = 8


def usual_tokens(roots: int) -> int:
    """Return the number of tokens where no job has measured: one for eight roots.

    One token brings a block for each hop: 8 MiB in 1.5 ms are 5 GB/s, which is more than the
    links of a few nodes carry together. The fewer, the more nearly roots read the file in order.
    """
    return max(1, roots // ROOTS_PER_TOKEN)


def count_tokens(
    job: share.Job,
    schedule: Schedule,
    mode: Mode,
    measured: Sequence[Staggering] = (),
    *,
    suggested: bool,
) -> tuple[int, Reason]:
    """Return how many tokens there are, and why; the same on all ranks. Not collective.

    Args:
        schedule: says which roots have records at all.
        mode: mode that the caller asked for.
        measured: measurements of jobs on the first root's storage; the same on all ranks.
        suggested: whether no caller asked for tokens by name: there are none where MPI cannot hand
            them on, or where jobs measured that they gain nothing.

    Returns:
        0 tokens where every root reads whenever it can.

    Source: LMDBIO (ACM TOPC 2019), I/O staggering.
    """
    readers = sum(schedule.team_rows(i) > 0 for i in range(len(schedule.teams)))
    tokens, reason = mode.tokens, Reason("keyword", "as the mode says")
    if mode.tokens == USUAL_TOKENS:
        reason = Reason("facts", f"one for {ROOTS_PER_TOKEN} roots, for no job has measured")
        tokens, reason = choose_tokens(
            measured,
            nodes=len(job.nodes),
            roots=readers,
            assignment=schedule.assignment,
            may_be_none=suggested,
        ) or (usual_tokens(readers), reason)
    elif suggested:
        reason = Reason("facts", "turns are for several nodes that read one file far away")
    if tokens >= readers:
        return 0, Reason("facts", "every root would have a turn of its own")
    if tokens and suggested and not job.is_threaded:
        reason = Reason("facts", "this MPI was initialised for one thread alone")
        tell(f"roots read whenever they can, instead of in turn: {reason.text}")
        return 0, reason
    return tokens, reason
