"""Row sources: where roots get rows from, as all ranks have agreed: what they keep, or windows.

caches that were asked for -> parts that roots keep -> which rank takes which records
order that may be sliced   -> whole windows, where all roots have room
both                       -> an order in which records that are kept come among those of windows
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from lmdbio import _core, share
from lmdbio.machine.choice import Reason
from lmdbio.placement.base import Placement
from lmdbio.planning.schedule import Assignment, Schedule
from lmdbio.reader.block_size import Sizing, copied_window_bytes
from lmdbio.reader.caching import Caching, Measured, Wish, agree_cache
from lmdbio.reader.phases import Sliced
from lmdbio.reader.roots import RootSource
from lmdbio.system.log import WARNING, log

__all__ = ["RowSources", "agree_row_sources", "measure_extents"]


class WindowReading(NamedTuple):
    """Whether roots read whole windows of the order in slices, and why."""

    are_read: bool
    reason: Reason


def _agree_windows(
    job: share.Job,
    sliced: Sliced,
    sizing: Sizing,
    source: RootSource | None,
    *,
    roots_here: int,
) -> tuple[_core.MpiLibrary | None, WindowReading]:
    """Settle whether roots read whole windows, and exchange rows. Collective over the job.

    All do, or none.

    Args:
        sliced: order that roots are to read in slices.
        source: data set of this root; None where this rank is no root.
        roots_here: number of roots on this machine.

    Returns:
        On roots the MPI library that carries rows; None: no row goes from root to root.
    """
    if sliced.epochs is None:
        return None, WindowReading(False, sliced.reason)
    library: _core.MpiLibrary | None = None

    def settle() -> str:
        nonlocal library
        if source is None:
            return ""
        if not sizing.request_bytes_max:
            measure_extents(job, sizing, source, roots_here)
        if not sizing.window_buffers.count:
            return sizing.why_no_windows
        if not sizing.messages:
            return ""
        library, why = share.find_library(job)
        return why

    reasons = {rank: why for rank, why in enumerate(job.together(settle)) if why}
    if not reasons:
        return library, WindowReading(True, sliced.reason)
    sizing.drop_windows()
    rank, why = next(iter(reasons.items()))
    return None, WindowReading(False, Reason("facts", f"{why} (rank {rank})"))


class RowSources(NamedTuple):
    """Where roots get rows from, but for the file.

    Attributes:
        schedule: schedule with the assignment that was asked for.
        windows: whether they read whole windows of the order.
        caching: parts of the file that roots keep.
        are_sent: whether roots send each other rows.
        mpi: the MPI library that carries rows, on roots; else None.
    """

    schedule: Schedule
    windows: WindowReading
    caching: Caching
    are_sent: bool
    mpi: _core.MpiLibrary | None


def agree_row_sources(
    job: share.Job,
    wish: Wish,
    sliced: Sliced,
    sizing: Sizing,
    schedule: Schedule,
    source: RootSource | None,
    assignment: Assignment,
    *,
    roots_here: int,
) -> RowSources:
    """Settle whether roots keep parts of the file, or read windows. Collective over the job.

    Args:
        assignment: assignment that was asked for.
        schedule: schedule by which sizes are settled: strided where it is to be local.
    """

    def measure(source: RootSource) -> Measured:
        measure_extents(job, sizing, source, roots_here)
        window_bytes = copied_window_bytes(sizing, source.mode.block_iterations)
        return Measured(sizing.request_bytes_max, window_bytes)

    caching = agree_cache(job, wish, schedule, source, measure, roots_here=roots_here)
    if wish.rule.streams:
        schedule, caching, sliced = _mix(wish.rule, schedule, caching, sliced)
        if sliced.epochs is None:
            sizing.drop_windows()
    library, windows = _agree_windows(job, sliced, sizing, source, roots_here=roots_here)
    if caching.are_kept:
        is_whole = caching.is_whole and (caching.are_sent or len(schedule.teams) == 1)
        is_whole |= windows.are_read
        sizing.keep(is_whole=is_whole, buffer_bytes=caching.buffer_bytes)
    are_sent = caching.are_sent or (windows.are_read and len(schedule.teams) > 1)
    if assignment.is_dealt:
        schedule, reason = _deal(job, schedule, caching)
        caching = caching._replace(reason=reason)
    return RowSources(schedule, windows, caching, are_sent, caching.mpi or library)


def _deal(job: share.Job, schedule: Schedule, caching: Caching) -> tuple[Schedule, Reason]:
    """Return a schedule by which ranks take what their root keeps. Collective over the job.

    The same on all ranks. The first root sends the homes to ranks that are no roots. "local" is
    "strided" where roots keep nothing, or one alone keeps parts: they have the same records then.

    Args:
        schedule: strided schedule.
        caching: parts of the file that roots keep.

    Returns:
        The schedule; and why roots keep what they keep, and what that is for "local".
    """
    if not caching.are_kept or len(schedule.teams) == 1:
        text = f'{caching.reason.text}; assignment "local" is "strided" here'
        return schedule, Reason(caching.reason.origin, text)
    from lmdbio.planning.dealt import home_holder  # others begin sooner without these
    from lmdbio.reader.shard_store import ShardStore

    roots, kept = {team[0] for team in schedule.teams}, caching.kept
    own = kept.sources.homes.records if isinstance(kept, ShardStore) else None
    sent = job.share_array(own, [rank not in roots for rank in range(job.size)])
    holder = home_holder(sent if own is None else own)
    return replace(schedule, assignment=Assignment.LOCAL, holder=holder), caching.reason


def _mix(
    rule: Placement, schedule: Schedule, caching: Caching, sliced: Sliced
) -> tuple[Schedule, Caching, Sliced]:
    """Return the order in which kept records come among those of windows; the same on all ranks.

    Args:
        rule: placement by which roots keep records.
        schedule: schedule in an order of windows, or in one that is mixed already.
        caching: the records that have a home.
        sliced: the order of windows.

    Returns:
        The schedule in that order; what roots keep, and read in slices, for it.
    """
    epochs, held = schedule.epochs, caching.held
    assert epochs is not None  # another order was refused
    given = epochs.shuffle.held
    shuffle = rule.order(epochs.shuffle, held)
    schedule = replace(schedule, epochs=replace(epochs, shuffle=shuffle))
    text = f"{caching.reason.text}; of {epochs.count:,} records the first {held:,} come anywhere"
    if not given and 2 * held < caching.homed:
        text = (
            f"{text}, though {caching.homed:,} have a home: records do not lie in the file in "
            "their order (order='insertion' may be that of the file)"
        )
        log(f"cache: {text}", WARNING)
    if held < given:
        text = f"{caching.reason.text}, {held:,} records of {given:,} that the order holds"
        sliced = Sliced(None, Reason("facts", "roots have no room for all that the order holds"))
    elif shuffle.held >= epochs.count:
        sliced = Sliced(None, Reason("facts", "roots keep all records"))
    return schedule, caching._replace(reason=Reason(caching.reason.origin, text)), sliced


def measure_extents(job: share.Job, sizing: Sizing, source: RootSource, roots_here: int) -> None:
    """Let a root bound the bytes of its blocks, in shared memory that is there."""
    free = None if job.alone else share.shm_free()
    sizing.measure(source, None if free is None else free // roots_here)
