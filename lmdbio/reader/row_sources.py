"""Row sources: where roots get rows from, as all ranks have agreed: what they cache, or windows.

caches that were asked for -> parts that roots cache -> which rank takes which records
order that may be sliced   -> whole windows, where all roots have room
both                       -> an order in which cached records come among those of windows
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from lmdbio import _core, share
from lmdbio.machine.choice import Reason
from lmdbio.placement.base import Placement
from lmdbio.planning.schedule import Assignment, Schedule
from lmdbio.reader.block_size import Sizing
from lmdbio.reader.caching import CachedParts, CacheRequest, agree_cache
from lmdbio.reader.phases import Sliced
from lmdbio.reader.roots import RootSource
from lmdbio.system.log import WARNING, log

__all__ = ["RowSources", "agree_row_sources"]


def _agree_windows(
    job: share.Job, sliced: Sliced, sizing: Sizing, source: RootSource | None
) -> tuple[_core.MpiLibrary | None, Sliced]:
    """Settle whether roots read whole windows, and exchange rows. Collective over the job.

    All do, or none.

    Args:
        sliced: order that roots are to read in slices.
        source: data set of this root; None where this rank is no root.

    Returns:
        On roots the MPI library that carries rows, None: no row goes from root to root; and the
        order that they read in slices.
    """
    if sliced.epochs is None:
        return None, sliced
    library: _core.MpiLibrary | None = None

    def settle() -> str:
        nonlocal library
        if source is None:
            return ""
        sizing.measure(job, source)
        if not sizing.window_buffers.count:
            return sizing.why_no_windows
        if not sizing.messages:
            return ""
        library, why = share.find_library(job)
        return why

    reasons = {rank: why for rank, why in enumerate(job.together(settle)) if why}
    if not reasons:
        return library, sliced
    sizing.drop_windows()
    rank, why = next(iter(reasons.items()))
    return None, Sliced(None, Reason("facts", f"{why} (rank {rank})"))


class RowSources(NamedTuple):
    """Where roots get rows from, but for the file.

    Attributes:
        schedule: schedule with the assignment that was asked for.
        windows: order whose windows they read in slices, and why.
        caching: parts of the file that roots cache.
        are_sent: whether roots send each other rows.
        mpi: the MPI library that carries rows, on roots; else None.
    """

    schedule: Schedule
    windows: Sliced
    caching: CachedParts
    are_sent: bool
    mpi: _core.MpiLibrary | None


def agree_row_sources(
    job: share.Job,
    request: CacheRequest,
    sliced: Sliced,
    sizing: Sizing,
    schedule: Schedule,
    source: RootSource | None,
    assignment: Assignment,
) -> RowSources:
    """Settle whether roots cache parts of the file, or read windows. Collective over the job.

    Args:
        assignment: assignment that was asked for.
        schedule: schedule by which sizes are settled: strided where it is to be local.
    """
    caching = agree_cache(job, request, schedule, source, sizing)
    if request.rule.streams:
        schedule, caching, sliced = _mix(request.rule, schedule, caching, sliced)
        if sliced.epochs is None:
            sizing.drop_windows()
    library, windows = _agree_windows(job, sliced, sizing, source)
    if caching.are_cached:
        is_whole = caching.is_whole and (caching.are_sent or len(schedule.teams) == 1)
        is_whole |= windows.are_read
        sizing.reserve_cache(is_whole=is_whole, buffer_bytes=caching.buffer_bytes)
    are_sent = caching.are_sent or (windows.are_read and len(schedule.teams) > 1)
    if assignment.is_dealt:
        schedule, reason = _deal(job, schedule, caching)
        caching = caching._replace(reason=reason)
    return RowSources(schedule, windows, caching, are_sent, caching.mpi or library)


def _deal(job: share.Job, schedule: Schedule, caching: CachedParts) -> tuple[Schedule, Reason]:
    """Return a schedule by which ranks take what their root caches. Collective over the job.

    The same on all ranks. The first root sends the owners to ranks that are no roots. "local" is
    "strided" where roots cache nothing, or one alone caches: they have the same records then.

    Args:
        schedule: strided schedule.
        caching: parts of the file that roots cache.

    Returns:
        The schedule; and why roots cache what they cache, and what that is for "local".
    """
    if not caching.are_cached or len(schedule.teams) == 1:
        text = f'{caching.reason.text}; assignment "local" is "strided" here'
        return schedule, Reason(caching.reason.origin, text)
    from lmdbio.planning.deal import owner_in  # others begin sooner without these
    from lmdbio.reader.shard_rows import ShardStore

    roots, store = {team[0] for team in schedule.teams}, caching.store
    own = store.sources.homes.records if isinstance(store, ShardStore) else None
    sent = job.share_array(own, [rank not in roots for rank in range(job.size)])
    owner = owner_in(sent if own is None else own)
    return replace(schedule, assignment=Assignment.LOCAL, owner=owner), caching.reason


def _mix(
    rule: Placement, schedule: Schedule, caching: CachedParts, sliced: Sliced
) -> tuple[Schedule, CachedParts, Sliced]:
    """Return the order in which cached records come among those of windows; the same on all ranks.

    Args:
        rule: placement by which roots cache records.
        schedule: schedule in an order of windows, or in one that is mixed already.
        caching: the records that have an owner.
        sliced: the order of windows.

    Returns:
        The schedule in that order; what roots cache, and read in slices, for it.
    """
    epochs, first = schedule.epochs, caching.first_records
    assert epochs is not None  # another order was refused
    given = epochs.shuffle.held
    shuffle = rule.order(epochs.shuffle, first)
    schedule = replace(schedule, epochs=replace(epochs, shuffle=shuffle))
    text = f"{caching.reason.text}; of {epochs.count:,} records the first {first:,} come anywhere"
    if not given and 2 * first < caching.owned_records:
        text = (
            f"{text}, though {caching.owned_records:,} have a home: records do not lie in the "
            "file in their order (order='insertion' may be that of the file)"
        )
        log(f"cache: {text}", WARNING)
    if first < given:
        text = f"{caching.reason.text}, {first:,} records of {given:,} that the order holds"
        sliced = Sliced(None, Reason("facts", "roots have no room for all that the order holds"))
    elif shuffle.held >= epochs.count:
        sliced = Sliced(None, Reason("facts", "roots keep all records"))
    return schedule, caching._replace(reason=Reason(caching.reason.origin, text)), sliced
