"""base: placements, as values: what decides which root caches which records of a job. Pure.

| name | who caches what |
|---|---|
| home | each root a part of the file, grain by grain, in memory and on a disk |
| mixed | as home, in memory alone; the rest streams through windows (hybrid) |
| first | each record the root whose ranks use it first, as far as that has room |
| frequency | each root what its own ranks use most often over all epochs |
| slices | nothing is cached: each root reads a slice of each window, and hands it on |
| none | nothing is cached: each root reads what its own ranks use |

"Which node caches record 7" is one question to one value: ``owner_of`` of the ``Homes``, or of the
``RecordOwners``, that a placement gives. Readers, forecasts and simulators call the same
functions, and nobody compares words: a new placement is one more value.

Source: DeepIO (home, mixed, slices), LBANN's data store (first), the HDMLP thesis (frequency).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmdbio.placement import owners
from lmdbio.planning.schedule import Assignment, Schedule
from lmdbio.planning.shuffle import Shuffle

__all__ = ["FIRST", "FREQUENCY", "HOME", "MIXED", "NONE", "SLICES", "STEPS_MAX", "Placement"]

I64 = npt.NDArray[np.int64]

#: Uses that are counted, and records that are looked at for all roots, at most: about a minute.
STEPS_MAX = 2**29


@dataclass(frozen=True, slots=True, repr=False)
class Placement:
    """A placement, and what others ask of it.

    Attributes:
        name: word by which it is asked for, and printed.
        ownership: rule by which roots cache records one by one, in memory alone; None: they
            do not.
        owns_grains: whether roots cache grains of the file.
        streams: whether records without an owner come in windows, of which each root reads a
            slice.
        needs_end: whether it counts the uses of all epochs, so that the job must end.
        text: noun phrase for the records that roots cache one by one.
        by_node: rule over the nodes of a simulated cluster; None: these hold nothing.
    """

    name: str
    ownership: owners.OwnerRule | None = None
    owns_grains: bool = False
    streams: bool = False
    needs_end: bool = False
    text: str = ""
    by_node: owners.NodesRule | None = None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return repr(self.name)

    @property
    def is_static(self) -> bool:
        """Whether each record has one owner for good, so that disks and local ranks gain by it."""
        return self.owns_grains and not self.streams

    @property
    def must_hold(self) -> bool:
        """Whether a node that has no room gains nothing: each record is to have one owner."""
        return self.owns_grains or (self.ownership is not None and not self.needs_end)

    @property
    def hands_on(self) -> bool:
        """Whether nothing is cached, and rows count by the root that has read them for all."""
        return self.streams and not self.owns_grains

    def owners(
        self, schedule: Schedule, sizes: I64, rooms: Sequence[int], *, is_warm: bool
    ) -> owners.RecordOwners:
        """Return the owners of records that roots cache one by one.

        Args:
            schedule: strided or blocked schedule of the job.
            sizes: size of each record in memory, bytes (``owners.room_of``).
            rooms: capacity of each root, bytes.
            is_warm: whether all is there before the first epoch.
        """
        assert self.ownership is not None
        owned = self.ownership(schedule, sizes, rooms)
        return owners.RecordOwners.of(owned, schedule, is_warm=is_warm)

    def order(self, shuffle: Shuffle, held: int) -> Shuffle:
        """Return the order of a job of whose records the first ones, so many, have a home."""
        if not (self.owns_grains and self.streams):
            return shuffle
        return Shuffle.mixed(shuffle.held or held, shuffle.chunk, shuffle.window)

    def refuse(
        self, shuffle: Shuffle | None, assignment: Assignment, *, has_end: bool = True
    ) -> None:
        """Raise ValueError for a job that it does not suit.

        Args:
            shuffle: shuffle of each epoch; None: records come in their own order.
            assignment: rule by which ranks get records.
            has_end: whether the job ends.
        """
        if assignment.is_dealt and not self.is_static:
            raise ValueError(
                f'assignment="local" needs placement=home: with {self} records have other roots '
                "from time to time, or several"
            )
        if not has_end:
            self.refuse_size(1, 1, None)
        if self.streams and (shuffle is None or not shuffle.streamed.has_windows):
            is_single = shuffle is not None and shuffle.order is None and shuffle.chunk == 1
            why = ", and a record by itself is none" if is_single else ""
            raise ValueError(
                f"Cache: placement={self!r} needs records that come in windows{why}: write "
                "shuffle='window', or 'windows:CHUNKxCOUNT' or 'groups:SIZE' of 2 records or more"
            )

    def refuse_size(self, count: int, roots: int, places: int | None) -> None:
        """Raise ValueError where it would take too long to say what roots cache.

        Args:
            count: number of records.
            roots: number of roots.
            places: number of places in all epochs; None: the job has no end.
        """
        if not self.needs_end:
            return
        if places is None:
            raise ValueError(
                f"Cache: placement={self} counts the uses of all epochs: it needs epochs="
            )
        steps = places + roots * count
        if steps > STEPS_MAX:
            raise ValueError(
                f"Cache: placement={self} would count {places:,} uses, and look at {count:,} "
                f"records for each of {roots:,} roots: {steps:,} steps are more than "
                f"{STEPS_MAX:,}; placement=home needs none"
            )


HOME = Placement("home", owns_grains=True, by_node=owners.home_by_node)
MIXED = Placement("mixed", owns_grains=True, streams=True)
FIRST = Placement(
    "first",
    owners.own_first,
    text="records that their ranks use first",
    by_node=owners.first_by_node,
)
FREQUENCY = Placement(
    "frequency",
    owners.own_most_used,
    needs_end=True,
    text="records that their ranks use most often",
    by_node=owners.frequency_by_node,
)
SLICES = Placement("slices", streams=True)
NONE = Placement("none")
