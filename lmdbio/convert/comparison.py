"""comparison: a copy holds what its source holds.

    walk of the source -> keys, values of each, lengths, extents --+
                                                                    +-- side by side
    walk of the copy   -> the same --------------------------------+        |
                                                                     values, by blocks

Keys, how many values each has, and the lengths of all values stand on branch and leaf pages; the
values themselves are read where they are wanted. Nothing is hashed: bytes are held against bytes,
so that a difference has a place. Memory: some parts of each walk, and two blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import Database, Engine, Extents
from lmdbio.convert.census import Census
from lmdbio.planning.reads import PAGE_BYTES, PlanOptions, plan_reads, spread
from lmdbio.provenance import Name, name_text
from lmdbio.provenance.freshness import Progress, Steps
from lmdbio.provenance.values import Part, walk

__all__ = ["Side", "difference"]

#: Read at once, of both sides together; two such blocks are in memory.
BLOCK_BYTES = 8 << 20
#: Larger values are read and compared in pieces.
PIECE_BYTES = 256 << 10
#: The page cache holds most of it, so that gaps cost more than requests.
OPTIONS = PlanOptions(gap_bytes_max=16 << 10)
_NO_BYTES, _NO_PLACES = np.empty(0, np.uint8), np.empty(0, _core.EXTENT)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two.

    Attributes:
        engine: reads it.
        census: census of the state that is compared.
    """

    engine: Engine
    census: Census


def difference(
    source: Side, copy: Side, *, values: bool, progress: Progress | None, stage: str
) -> str | None:
    """The first thing in which two environments differ, in words; None: there is none.

    Compared are the data format, the page size, which databases there are, their flags, all keys,
    how many values each has, and the lengths of all values.

    Args:
        values: whether values are compared as well.
        progress: function called with (records done, in all, stage).

    Raises:
        CorruptedError, ShortReadError, OSError: one of them cannot be read.
    """
    one, other = (side.census.meta.layout for side in (source, copy))
    if (one.version, one.page_size) != (other.version, other.page_size):
        return "data format or page size"
    if source.census.names() != copy.census.names():
        return "the names of databases"
    if len(source.census.databases) != len(copy.census.databases):
        return "whether the main database has records"
    steps = Steps(progress, sum(each.database.entries for each in source.census.databases), stage)
    for was, now in zip(source.census.databases, copy.census.databases, strict=True):
        facts = [(db.flags, db.pad) for db in (was.database, now.database)]
        if facts[0] != facts[1]:
            return f"flags of {name_text(was.name)}"
        sides = _Walked(source, was.name, was.database), _Walked(copy, now.name, now.database)
        found = _in_database(sides, steps, values=values)
        if found is not None:
            return f"{found} of {name_text(was.name)}"
    return None


class _Walked:
    """The walk over one database of one side, and how far it has come.

    Attributes:
        engine: engine of the side.
        items: number of items that have come.
        ended: whether it has come to its end.
    """

    def __init__(self, side: Side, name: Name, database: Database) -> None:
        self.engine, self._layout = side.engine, side.census.meta.layout
        self._parts: Iterator[Part] = walk(side.engine, side.census.meta, database)
        # Their values are the others' roots, which move.
        self._others = set[bytes]()
        if name is None:
            self._others = {_core.database_key(self._layout, one) for one in side.census.names()}
        self.items, self.ended = 0, False

    def next(self) -> _Columns | None:
        """Return the next item; None at the end."""
        part = next(self._parts, None)
        if part is None:
            self.ended = True
            return None
        self.items += len(part.extents)
        compared = np.ones(len(part.extents), bool)
        pages, keys = _NO_BYTES, _NO_PLACES
        if part.chunk is not None and part.keys:
            where = self._layout, part.chunk, self.engine.path
            # The pages are those of the walk, which goes on.
            pages, keys = part.chunk.pages.reshape(-1).copy(), _core.key_places(*where)
            if self._others:
                compared[:] = [key not in self._others for key in _core.leaf_keys(*where)]
        return _Columns(pages, keys, part.each, part.extents, compared)


@dataclass(frozen=True, slots=True)
class _Columns:
    """A part of a database.

    Attributes:
        pages: leaves, uint8.
        keys: extents of the keys on the leaves, dtype ``EXTENT``.
        each: values of each key; empty where each has one.
        extents: extents of the next values, dtype ``EXTENT``.
        compared: mask of the values that are a record's and no database's.
    """

    pages: npt.NDArray[np.uint8]
    keys: Extents
    each: npt.NDArray[np.uint64]
    extents: Extents
    compared: npt.NDArray[np.bool_]


class _Keys:
    """Keys that come in parts, compared as far as both sides have come."""

    def __init__(self) -> None:
        self._pages, self._keys = [_NO_BYTES, _NO_BYTES], [_NO_PLACES, _NO_PLACES]
        self._done = 0

    def add(self, side: int, pages: npt.NDArray[np.uint8], keys: Extents) -> int | None:
        """The next ones of a side, on its next leaves; the number of one that differs."""
        if len(self._keys[side]):
            keys["offset"] += np.uint64(len(self._pages[side]))
            pages = np.concatenate([self._pages[side], pages])
            keys = np.concatenate([self._keys[side], keys])
        self._pages[side], self._keys[side] = pages, keys
        count = min(map(len, self._keys))
        one, other = (keys[:count] for keys in self._keys)
        same = _core.count_same(self._pages[0], one, self._pages[1], other)
        self._done += same
        if same < count:
            return self._done
        for each in (0, 1):
            self._drop(each, count)
        return None

    def _drop(self, side: int, count: int) -> None:
        """Lets go of keys, and of the pages before those of the next one."""
        keys = self._keys[side][count:]
        first = int(keys["offset"].min()) if len(keys) else len(self._pages[side])
        keys["offset"] -= np.uint64(first)
        self._pages[side], self._keys[side] = self._pages[side][first:], keys


class _Together:
    """Two sequences that come in parts, as far as both have come.

    Attributes:
        done: number of items given so far.
    """

    def __init__(self, dtype: Any) -> None:
        self._waiting = [np.empty(0, dtype), np.empty(0, dtype)]
        self.done = 0

    def add(self, side: int, more: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Return the items that have come on both sides since the last call."""
        old = self._waiting[side]
        self._waiting[side] = np.concatenate([old, more]) if len(old) else more
        count = min(map(len, self._waiting))
        given = tuple(one[:count] for one in self._waiting)
        self._waiting = [one[count:] for one in self._waiting]
        self.done += count
        return given

    @property
    def left(self) -> bool:
        """One has more than the other, as far as they have come."""
        return any(map(len, self._waiting))


def _in_database(sides: tuple[_Walked, _Walked], steps: Steps, *, values: bool) -> str | None:
    """The first difference between two databases of one name."""
    keys, each = _Keys(), _Together(np.uint64)
    extents, compared = _Together(_core.EXTENT), _Together(bool)
    with _Values(sides[0].engine, sides[1].engine) as read:
        while not (sides[0].ended and sides[1].ended):
            # The one that is behind goes on, so that little waits for the other.
            ahead = sides[1].ended or sides[0].items <= sides[1].items
            behind = 0 if ahead and not sides[0].ended else 1
            part = sides[behind].next()
            if part is None:
                continue
            wrong = keys.add(behind, part.pages, part.keys)
            if wrong is not None:
                return f"key {wrong:,} (from 0)"
            before = each.done
            wrong = _first(*each.add(behind, part.each))
            if wrong is not None:
                return f"the number of values of key {before + wrong:,} (from 0)"
            before = extents.done
            pair = extents.add(behind, part.extents)
            wrong = _first(*(one["length"] for one in pair))
            if wrong is not None:
                return f"the length of value {before + wrong:,} (from 0)"
            plain, _ = compared.add(behind, part.compared)
            steps.add(len(plain))
            if values:
                numbers = before + np.flatnonzero(plain)
                wrong = read.add(numbers, *(one[plain] for one in pair))
                if wrong is not None:
                    return f"value {wrong:,} (from 0)"
        if extents.left:  # of keys, too, since each has a value
            return "the number of records"
        wrong = read.end()
    return None if wrong is None else f"value {wrong:,} (from 0)"


def _first(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> int | None:
    """The first place in which two columns differ."""
    differs = one != other
    return int(np.argmax(differs)) if differs.any() else None


class _Values:
    """Values of both sides, read and compared by blocks, the next one being read meanwhile."""

    def __init__(self, *engines: Engine) -> None:
        self._engines = engines
        self._pools = [_core.MemoryPool() for _ in engines]
        self._under_way: deque[_Block] = deque()

    def add(self, numbers: npt.NDArray[np.int64], *extents: Extents) -> int | None:
        """Begins with the next values, and ends with those before.

        Args:
            numbers: numbers of the values, to tell a difference by.
            extents: extents of both sides; their lengths are the same.

        Returns:
            The number of a value that differs.
        """
        if not len(numbers):
            return None
        which, sides = _pieces(extents)
        # Bytes of memory, at most.
        taken = np.cumsum(sum(spread(side, OPTIONS.gap_bytes_max) for side in sides))
        cuts = np.flatnonzero(np.diff(taken // BLOCK_BYTES)) + 1
        for begin, end in pairwise([0, *cuts.tolist(), len(which)]):
            some = slice(begin, end)
            self._begin(numbers[which[some]], [side[some] for side in sides])
            if len(self._under_way) > 1:
                wrong = self._finish()
                if wrong is not None:
                    return wrong
        return None

    def end(self) -> int | None:
        """Ends with all that is under way."""
        while self._under_way:
            wrong = self._finish()
            if wrong is not None:
                return wrong
        return None

    def _begin(self, numbers: npt.NDArray[np.int64], sides: list[Extents]) -> None:
        block = _Block(numbers, [])
        self._under_way.append(block)
        for engine, pool, extents in zip(self._engines, self._pools, sides, strict=True):
            plan = plan_reads(extents, OPTIONS, alignment=max(PAGE_BYTES, engine.alignment))
            memory = pool.take(plan.totals.buffer_bytes)
            places = np.empty(len(extents), _core.EXTENT)
            places["offset"], places["length"] = plan.slices, extents["length"]
            ticket = engine.submit_plan(plan, memory.address, memory)
            content = _core.lend(memory.address, memory.size, memory)
            block.halves.append(_Half(ticket, np.frombuffer(content, np.uint8), places))

    def _finish(self) -> int | None:
        block = self._under_way[0]
        for half in block.halves:
            half.ticket.wait()
        one, other = block.halves
        same = _core.count_same(one.content, one.places, other.content, other.places)
        self._under_way.popleft().close()
        return None if same == len(block.numbers) else int(block.numbers[same])

    def __enter__(self) -> _Values:
        return self

    def __exit__(self, *_: object) -> None:
        while self._under_way:
            self._under_way.popleft().close()


@dataclass(frozen=True, slots=True)
class _Half:
    """One side of a block.

    Attributes:
        content: memory that is filled, uint8.
        places: extents of the values in it, dtype ``EXTENT``.
    """

    ticket: _core.Ticket
    content: npt.NDArray[np.uint8]
    places: Extents


@dataclass(frozen=True, slots=True)
class _Block:
    """Values under way; ``numbers`` are theirs."""

    numbers: npt.NDArray[np.int64]
    halves: list[_Half]

    def close(self) -> None:
        for half in self.halves:
            half.ticket.close()


def _pieces(sides: Sequence[Extents]) -> tuple[npt.NDArray[np.int64], list[Extents]]:
    """Cuts extents of the same lengths into ones of at most ``PIECE_BYTES``.

    Returns:
        Which of those given each piece belongs to; the pieces.
    """
    lengths = sides[0]["length"].astype(np.int64)
    each = np.maximum(1, -(-lengths // PIECE_BYTES))
    which = np.repeat(np.arange(len(lengths)), each)
    before = (np.arange(len(which)) - np.repeat(np.cumsum(each) - each, each)) * PIECE_BYTES
    cut = []
    for side in sides:
        pieces = side[which]
        pieces["offset"] += before.astype(np.uint64)
        pieces["length"] = np.minimum(lengths[which] - before, PIECE_BYTES)
        cut.append(pieces)
    return which, cut
