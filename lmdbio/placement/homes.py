"""homes: which root caches which part of the file, grain by grain, as it is. Pure.

    file    | grain 0 | grain 1 | grain 2 | grain 3 | ...     pieces of one size, read whole
    used        0         -         1         2               those that hold a part of a record
    root    |-- 0 ---------------|-- 1 --...                  each as many as it has room for

A record's home is the root of the grain in which it begins; where it ends in a grain of the next
root, both cache that one. In memory, a root's grains lie one behind the other, so that a record
lies there as it does in the file.

Source: DeepIO (each node caches a part in memory), LBANN's preloading, locality-aware loading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.deal import owner_in

__all__ = [
    "GRAIN_BYTES_MAX",
    "GRAIN_BYTES_MIN",
    "Grains",
    "Homes",
    "Room",
    "Tiers",
    "bounds",
    "grain_bytes",
    "order_by_left",
]

I64 = npt.NDArray[np.int64]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

#: A grain is worth a request of its own.
GRAIN_BYTES_MIN, GRAIN_BYTES_MAX = 64 << 10, 4 << 20
#: A root caches so many grains, where they may be smaller than requests.
HOME_GRAINS_MIN = 128
#: Of records whose extents are looked up at once.
PART = 2**18


def grain_bytes(request_bytes_max: int, room: int, share: int) -> int:
    """Return the size of grains, a power of two.

    Args:
        request_bytes_max: bytes of a request, at most.
        room: capacity of the root that has least, bytes; filled to a whole number of grains.
        share: size of an even share of the file, bytes; each root caches a whole number of grains.
    """
    wanted = min(request_bytes_max, min(room, share) // HOME_GRAINS_MIN, GRAIN_BYTES_MAX)
    wanted = max(wanted, GRAIN_BYTES_MIN)
    return 1 << (wanted.bit_length() - 1)


@dataclass(frozen=True)
class Grains:
    """The grains of a file in which records lie.

    Attributes:
        bits: binary logarithm of a grain's size in bytes.
        used: their numbers in the file, ascending.
        numbers: number of used grains before each grain of the file.
        span_max: grains that one record lies in, at most.
    """

    bits: int
    used: I64
    numbers: U32
    span_max: int

    @classmethod
    def of(cls, parts: Iterable[_core.Extents], size: int, grain: int) -> Grains:
        """The grains in which some records lie.

        Args:
            parts: extents of all records, some at a time.
            size: size of the file, bytes; no record ends behind it.
            grain: bytes, a power of two.
        """
        bits = grain.bit_length() - 1
        # By how many more records a grain is used than the one before it.
        steps, span_max = np.zeros((size >> bits) + 2, np.int64), 1
        for extents in parts:
            some = extents[extents["length"] > 0]
            if not len(some):
                continue
            first = (some["offset"] >> np.uint64(bits)).astype(np.int64)
            ends = some["offset"] + some["length"] - np.uint64(1)
            last = (ends >> np.uint64(bits)).astype(np.int64)
            span_max = max(span_max, int((last - first).max()) + 1)
            steps += np.bincount(first, minlength=len(steps))
            steps -= np.bincount(last + 1, minlength=len(steps))
        is_used = np.cumsum(steps)[:-1] > 0
        numbers: U32 = (np.cumsum(is_used) - is_used).astype(np.uint32)
        return cls(bits, np.flatnonzero(is_used), numbers, span_max)

    @property
    def size(self) -> int:
        """Bytes of a grain."""
        return 1 << self.bits

    @property
    def used_bytes(self) -> int:
        """Bytes of all grains in which records lie."""
        return len(self.used) << self.bits

    def first(self, extents: _core.Extents) -> I64:
        """Return the used grain in which each extent begins; some grain where it is empty."""
        grains = (extents["offset"] >> np.uint64(self.bits)).astype(np.int64)
        found = self.numbers[np.minimum(grains, len(self.numbers) - 1)].astype(np.int64)
        return np.asarray(np.minimum(found, max(0, len(self.used) - 1)), np.int64)

    def last(self, extents: _core.Extents) -> I64:
        """Return the used grain in which each extent ends; none of them is empty."""
        ends = extents["offset"] + extents["length"] - np.uint64(1)
        grains = (ends >> np.uint64(self.bits)).astype(np.int64)
        return np.asarray(self.numbers[grains], np.int64)

    def under(self, extents: _core.Extents) -> Flags:
        """Return which used grains lie under some records: shape (used,)."""
        some = extents[extents["length"] > 0]
        first, last = self.first(some), self.last(some)
        found = np.zeros(len(self.used), np.bool_)
        for step in range(int((last - first).max()) + 1 if len(some) else 0):
            found[np.minimum(first + step, last)] = True
        return found

    def touch(self, extents: _core.Extents, marked: Flags, begin: int) -> Flags:
        """Return which extents lie in a marked grain; none of them is empty.

        Args:
            marked: mask of the used grains from number ``begin`` on.
        """
        before = np.concatenate(([0], np.cumsum(marked)))
        first, last = self.first(extents) - begin, self.last(extents) - begin
        return np.asarray(before[last + 1] > before[first])


@dataclass(frozen=True)
class Homes:
    """The grains that each root caches, and the home of each record.

    Attributes:
        grains: grains of the file.
        ends: part p of the file is used grains ends[p] up to ends[p + 1].
        records: the home of each record, a root, or ``_core.NO_HOME``.
        stops: the root of part p caches used grains ends[p] up to stops[p]: its last records may
            end in those of the next part.
        limits: end of each part's last record, offset in the file in bytes.
        parts: number of each root's part.
    """

    grains: Grains
    ends: I64
    records: U16
    stops: I64
    limits: I64
    parts: tuple[int, ...]

    @classmethod
    def fitting(
        cls,
        run: Callable[[int, int], _core.Extents],
        count: int,
        rooms: Sequence[Room],
        request_bytes_max: int,
        left: Sequence[int | None] = (),
        *,
        are_owned: bool = True,
    ) -> Homes:
        """Return parts as large as the tiers of roots have room for.

        Args:
            run: returns the extents of records from one to another.
            count: number of records.
            rooms: room of each root.
            request_bytes_max: largest size of a request, bytes.
            left: end of the part that each root has left from an earlier job, bytes, or None.
            are_owned: whether roots cache any grains.

        Raises:
            ValueError: there are more roots than numbers for them.
        """
        starts = range(0, count, PART)
        ends = (run(first, min(count, first + PART)) for first in starts)
        end = max((int((part["offset"] + part["length"]).max()) for part in ends), default=0)
        least = min(sum(one) for one in rooms)
        grain = grain_bytes(request_bytes_max, least, end // len(rooms))
        parts = (run(first, min(count, first + PART)) for first in starts)
        grains = Grains.of(parts, end, grain)
        sizes = [one.total(grains) if are_owned else 0 for one in rooms]
        part_bytes = min(end, sum(sizes)) // len(rooms)
        order = order_by_left(left or [None] * len(rooms), part_bytes)
        return cls.of(grains, sizes, count, run, order)

    @classmethod
    def of(
        cls,
        grains: Grains,
        rooms: list[int],
        count: int,
        run: Callable[[int, int], _core.Extents],
        roots: Sequence[int] | None = None,
    ) -> Homes:
        """Give each root as many grains as it has room for, or as even a share.

        Args:
            grains: grains of the file.
            rooms: capacity of each root, bytes.
            count: records.
            run: returns the extents of records from one to another.
            roots: roots that get the parts, from the first part on; None: in their own order.

        Raises:
            ValueError: there are more roots than numbers for them.
        """
        if len(rooms) >= _core.NO_HOME:
            raise ValueError(f"{len(rooms)} roots are more than {_core.NO_HOME - 1}")
        roots = range(len(rooms)) if roots is None else roots
        units = np.array([rooms[root] >> grains.bits for root in roots], np.int64)
        # As many grains as roots have room for, less as many as their last records need besides:
        # with other bounds these are other ones, until no root needs more than was left for it.
        less = np.zeros(len(rooms), np.int64)
        while True:
            made = cls._split(grains, np.maximum(units - less, 0), count, run, roots)
            owned = made.stops - made.ends[:-1]
            if (owned <= np.maximum(units, 0)).all():
                return made
            less = np.maximum(less, made.stops - made.ends[1:])

    @classmethod
    def _split(
        cls,
        grains: Grains,
        units: I64,
        count: int,
        run: Callable[[int, int], _core.Extents],
        roots: Sequence[int],
    ) -> Homes:
        """Give each root so many grains, or as even a share, and what its records need besides."""
        root_of = np.array([*roots, _core.NO_HOME], np.uint16)
        parts = tuple(np.argsort(np.asarray(roots)).tolist())
        ends = bounds(len(grains.used), units.tolist())
        homes, stops = np.zeros(count, np.uint16), ends[1:].copy()
        limits = np.zeros(len(units), np.int64)
        if not len(grains.used):  # all records are empty: there is nothing to cache
            homes[:] = _core.NO_HOME
            return cls(grains, ends, homes, stops, limits, parts)
        for first in range(0, count, PART):
            last = min(count, first + PART)
            extents = run(first, last)
            part = np.searchsorted(ends, grains.first(extents), side="right") - 1
            homes[first:last] = root_of[np.minimum(part, len(units))]
            some = np.flatnonzero((part < len(units)) & (extents["length"] > 0))
            part, stop = part[some], grains.last(extents[some]) + 1
            over = np.flatnonzero(stop > ends[part + 1])
            np.maximum.at(stops, part[over], stop[over])
            ends_at = (extents["offset"] + extents["length"])[some].astype(np.int64)
            np.maximum.at(limits, part, ends_at)
        return cls(grains, ends, homes, stops, limits, parts)

    def owner_of(self, records: npt.NDArray[Any]) -> I64:
        """Return which root caches each record, in all epochs; ``NOBODY`` where none does.

        This is the answer to "which node caches record 7".
        """
        return owner_in(self.records)(records)

    def owned(self, root: int) -> range:
        """Return the used grains that a root caches."""
        part = self.parts[root]
        return range(int(self.ends[part]), int(self.stops[part]))

    def limit(self, root: int) -> int:
        """Return where the last record of a root ends in the file, bytes; it reads no further."""
        return int(self.limits[self.parts[root]])

    @property
    def first_records(self) -> int:
        """Records from the first one on that have a home."""
        beyond = self.records == _core.NO_HOME
        return int(beyond.argmax()) if beyond.any() else len(self.records)

    @property
    def held_bytes(self) -> int:
        """Bytes of the grains that have a home."""
        return int(self.ends[-1]) << self.grains.bits


def bounds(grains: int, capacities: Sequence[int]) -> I64:
    """Return where the parts of a file end that nodes hold as they are, grain for grain.

    Node n holds grains [bounds[n], bounds[n + 1]): each as many as its tiers have room for, or
    where all have more than enough, as large a share.

    Args:
        grains: number of grains that hold records.
        capacities: grains that each node has room for, in all its tiers together.
    """
    rooms = np.cumsum([0, *capacities]).tolist()
    held = [grains * end // rooms[-1] if rooms[-1] > grains else end for end in rooms]
    return np.array(held, np.int64)


def order_by_left(left: Sequence[int | None], part_bytes: int) -> list[int]:
    """Return the root of each part: one that has cached it before, where there is one.

    Args:
        left: end of the part that each root has left from an earlier job, bytes; None: it has
            none.
        part_bytes: size of a part, bytes, about.
    """
    taken: dict[int, int] = {}  # root of each part
    others: list[int] = []
    for root, end in enumerate(left):
        part = -1 if end is None else round(end / max(1, part_bytes)) - 1
        if 0 <= part < len(left) and part not in taken:
            taken[part] = root
        else:
            others.append(root)
    rest = iter(others)
    return [taken[part] if part in taken else next(rest) for part in range(len(left))]


class Room(NamedTuple):
    """Room of a root for its home, by tier.

    Attributes:
        memory, disk: bytes.
    """

    memory: int
    disk: int = 0

    def total(self, grains: Grains) -> int:
        """Return the room for grains, those aside that both tiers cache.

        The last records in memory may end in grains behind it; those that begin before these are
        read from the disk as a whole.
        """
        both = (
            grains.span_max - 1 if self.memory >> grains.bits and self.disk >> grains.bits else 0
        )
        units = (self.memory >> grains.bits) + (self.disk >> grains.bits) - both
        return max(units, self.memory >> grains.bits, self.disk >> grains.bits) << grains.bits


class Tiers(NamedTuple):
    """The grains of a home in each tier, by their places in it.

    A record that lies in ``memory`` whole is read there, each other one on the disk. Grains in
    memory are on the disk as well, as far as that has room: for the next job.

    Attributes:
        memory: the first ones.
        disk: the last ones.
    """

    memory: range
    disk: range

    @classmethod
    def of(cls, owned: int, room: Room, bits: int) -> Tiers:
        """Return the tiers of a home that caches so many grains."""
        in_memory = min(owned, room.memory >> bits)
        return cls(range(in_memory), range(max(0, owned - (room.disk >> bits)), owned))
