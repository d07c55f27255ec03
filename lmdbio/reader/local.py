"""Local: a schedule by which ranks take what their root keeps, once roots have agreed on it.

homes, on all roots --the first one sends them--> the other ranks -> one schedule everywhere
"""

from __future__ import annotations

from dataclasses import replace

from lmdbio import share
from lmdbio.machine.choice import Reason
from lmdbio.planning.schedule import Schedule
from lmdbio.reader.caching import Caching
from lmdbio.reader.options import LOCAL

__all__ = ["assign"]


def assign(
    job: share.Job, asked: str, schedule: Schedule, caching: Caching
) -> tuple[Schedule, Reason]:
    """Return the schedule with the assignment that was asked for. Collective over the job.

    The same on all ranks. "local" is "strided" where roots keep nothing, or one alone keeps parts:
    they have the same records then.

    Args:
        asked: assignment.
        schedule: strided where "local" was asked for.
        caching: parts of the file that roots keep.

    Returns:
        The schedule; and why roots keep what they keep, and what that is for "local".
    """
    if asked != LOCAL:
        return schedule, caching.reason
    if not caching.are_kept or len(schedule.teams) == 1:
        text = f'{caching.reason.text}; assignment "local" is "strided" here'
        return schedule, Reason(caching.reason.origin, text)
    from lmdbio.planning.dealt import home_holder  # others begin sooner without these
    from lmdbio.reader.shard_store import ShardStore

    roots = {team[0] for team in schedule.teams}
    kept = caching.kept
    own = kept.sources.homes.records if isinstance(kept, ShardStore) else None
    sent = job.share_array(own, [rank not in roots for rank in range(job.size)])
    holder = home_holder(sent if own is None else own)
    return replace(schedule, assignment=LOCAL, holder=holder), caching.reason
