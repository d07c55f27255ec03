"""supply: from which source each record of an epoch comes, before anything runs. Pure.

    place --order--> record --placement--> root that holds it
      └──────── schedule ────────> root that uses it         same: own    other: peer    none: file

A record counts where its bytes come from in that epoch: what is read from the file for the first
time, or for a round alone, comes from the file, though another root may have read it and sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.placement.sources import seats
from lmdbio.planning.order import Epoch
from lmdbio.planning.schedule import Schedule

__all__ = [
    "DISK",
    "FILE",
    "OWN",
    "PEER",
    "ROW_SOURCES",
    "Holder",
    "Placed",
    "Rows",
    "Supplied",
    "sourced",
    "supply",
    "users",
]

I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Sources of a Reader's rows, in the order of all counts; the first one is a root's own memory.
ROW_SOURCES = (*_core.SOURCES, "disk")
OWN, PEER, FILE, DISK = range(len(ROW_SOURCES))
#: Root that has each of some records in memory when it is used, ``NOBODY`` where none has; and
#: whether it was there before the epoch began.
Holder = Callable[[Epoch, I64], tuple[I64, Flags]]
#: Places that are counted at a time.
PART = 1 << 20


class Placed(NamedTuple):
    """Say where records are when they are used.

    Attributes:
        holder: function from an epoch and records to the root that has each.
        on_disk: mask of all records: whether their root has them on its disk; None: none are.
    """

    holder: Holder
    on_disk: Flags | None = None


class Rows(NamedTuple):
    """Some rows of an epoch, one after the other.

    Attributes:
        places: places in the epoch, ascending.
        records: records at these places.
        users: the root that uses each.
        holders: the root that has each when it is used, ``NOBODY`` where none has.
        sources: ``OWN``, ``PEER``, ``FILE`` or ``DISK``.
    """

    places: I64
    records: I64
    users: I64
    holders: I64
    sources: I64


@dataclass(frozen=True, slots=True)
class Supplied:
    """Records and bytes of an epoch.

    Attributes:
        records, bytes: records and bytes by source, in the order of ``ROW_SOURCES``.
        sent_bytes: number of bytes that roots send to each other.
    """

    records: tuple[int, ...]
    bytes: tuple[int, ...]
    sent_bytes: int


def users(schedule: Schedule, places: I64) -> I64:
    """Return the root (team) that uses each place of a sequence.

    Args:
        schedule: strided or local, and begins with the sequence.
        places: ascending.
    """
    if schedule.assignment == "local":
        return _takers(schedule, places)
    return _core.find_teams(seats(schedule), places).astype(np.int64)


def _takers(schedule: Schedule, places: I64) -> I64:
    """Return the team that takes each place of a local schedule."""
    if not len(places):
        return np.empty(0, np.int64)
    size = schedule.block_iterations * schedule.batch_size
    blocks = range(int(places[0]) // size, int(places[-1]) // size + 1)
    teams = np.concatenate([schedule.dealt(block).teams for block in blocks])
    return teams[places - blocks.start * size].astype(np.int64)


def sourced(epoch: Epoch, schedule: Schedule, placed: Placed) -> Iterator[Rows]:
    """Yield all rows of an epoch, some at a time.

    Args:
        epoch: order of the epoch.
        schedule: schedule of the job, over all epochs one after the other; kinds as in ``users``.
        placed: places where records are.
    """
    for begin in range(0, epoch.count, PART):
        places = np.arange(begin, min(begin + PART, epoch.count), dtype=np.int64)
        records = epoch.samples(places)
        user = users(schedule, epoch.number * epoch.count + places)
        held, before = placed.holder(epoch, records)
        own = np.full(len(records), OWN)
        if placed.on_disk is not None:
            own[placed.on_disk[records]] = DISK
        source = np.where(~before | (held < 0), FILE, np.where(held == user, own, PEER))
        yield Rows(places, records, user, held, source)


def supply(epoch: Epoch, schedule: Schedule, placed: Placed, lengths: I64) -> Supplied:
    """Return what comes from each source in an epoch.

    Args:
        epoch, schedule, placed: order, schedule and places, as of ``sourced``.
        lengths: length of each record, bytes.
    """
    kinds, sent = range(len(ROW_SOURCES)), 0
    records, sizes = np.zeros(len(kinds), np.int64), np.zeros(len(kinds), np.int64)
    for some in sourced(epoch, schedule, placed):
        for kind in kinds:
            of_kind = some.sources == kind
            records[kind] += np.count_nonzero(of_kind)
            sizes[kind] += lengths[some.records[of_kind]].sum()
        is_sent = (some.holders >= 0) & (some.holders != some.users)
        sent += int(lengths[some.records[is_sent]].sum())
    return Supplied(tuple(records.tolist()), tuple(sizes.tolist()), sent)
