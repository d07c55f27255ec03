"""Walk all values of a database in order, those of keys that have many included.

    walk of the tree -> parts: pages, extents
              |
              +-- the trees of duplicates that a chunk of leaves names, all in one walk

An item is a record with a number: a key's only value, or one of its many (DUPSORT, DUPFIXED), in
the order in which LMDB's cursor gives them.

Source: LMDB's trees of duplicates (MDB_DUPDATA, MDB_SUBDATA).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import DEPTH_MAX, Chunk, Database, Engine, Extents, LeafItems, Meta, Walk
from lmdbio.errors import CorruptedError
from lmdbio.system.frozen import dataclass

__all__ = ["DUPSORT", "INTEGERKEY", "Part", "REVERSEKEY", "walk"]

#: Flags of a database (enum lio_db_flag, csrc/format.h).
REVERSEKEY, DUPSORT, INTEGERKEY = 0x02, 0x04, 0x08
_NONE = np.empty(0, _core.EXTENT)
_NO_OVERFLOW, _NO_KEYS = np.empty(0, np.uint32), np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Part:
    """Pages of a database, and what comes next in it.

    Attributes:
        chunk: pages that no part before has; None: there are none. Levels of trees of duplicates
            come after those of the keys, the highest above the leaves first.
        keys: ``chunk`` is made of leaves with keys.
        extents: extents of the next items, dtype ``EXTENT``.
        overflow: overflow pages that each of these owns, uint32; 0: it lies in a leaf.
        each: items of the next keys, uint64; empty without duplicates, where each has one.
    """

    chunk: Chunk | None
    keys: bool
    extents: Extents
    overflow: npt.NDArray[np.uint32]
    each: npt.NDArray[np.uint64]


def walk(engine: Engine, meta: Meta, db: Database) -> Iterator[Part]:
    """Walk a database; pages are valid until the next part.

    Raises:
        CorruptedError, ShortReadError, OSError.
        IncompatibleError: duplicates in a database that is to have none.
    """
    layout, entries = meta.layout, 0
    with Walk(engine, meta, db) as found:
        for chunk in found:
            if not chunk.leaf:
                yield Part(chunk, False, _NONE, _NO_OVERFLOW, _NO_KEYS)
            elif not db.flags & DUPSORT:
                extents, overflow = _core.leaf_extents(layout, chunk, engine.path)
                yield Part(chunk, True, extents, overflow, _NO_KEYS)
            else:
                for part in _Duplicates(engine, meta, db, found).parts(chunk):
                    entries += len(part.extents)
                    yield part
    if db.flags & DUPSORT and entries != db.entries:
        raise CorruptedError(
            f"{engine.path}: a database has {entries} items, its record says {db.entries}"
        )


class _Duplicates(NamedTuple):
    """Yield the items that chunks of leaves name, on them and in trees beside.

    Attributes:
        walk: Walk of the keys.
    """

    engine: Engine
    meta: Meta
    db: Database
    walk: Walk

    def parts(self, chunk: Chunk) -> Iterator[Part]:
        """Add those of one chunk of leaves."""
        found = _core.leaf_items(self.meta.layout, chunk, self.engine.path)
        if float(found.each.sum(dtype=np.float64)) > self.db.entries:
            raise CorruptedError(
                f"{self.engine.path}: keys with more values than the {self.db.entries} items "
                "of their database"
            )
        if not len(found.trees):
            yield _part(chunk, True, found.extents, found.each)
            return
        yield _part(chunk, True, _NONE, found.each)
        yield from self._merged(found)

    def _merged(self, found: LeafItems) -> Iterator[Part]:
        """Yield items of leaves and of trees by their places, which give their order."""
        each, keys = found.each.astype(np.int64), found.keys.astype(np.int64)
        begins = np.cumsum(each) - each
        here = np.ones(len(each), bool)
        here[keys] = False
        # Of the items on leaves, and of the first in each tree.
        inside = np.repeat(begins[here], each[here]) + _counted(each[here])
        # A tree's items are numbered on through all trees.
        moved = begins[keys] - (np.cumsum(each[keys]) - each[keys])
        done = number = 0  # items on leaves; in trees
        with Walk(self.engine, self.meta, found.trees, beside=self.walk) as trees:
            for chunk in trees:
                below = replace(chunk, level=self.db.depth + DEPTH_MAX - 1 - chunk.height)
                if not chunk.leaf:
                    yield _part(below, False, _NONE, _NO_KEYS)
                    continue
                items = _core.tree_items(self.meta.layout, chunk, self.engine.path)
                records = _core.leaves_of(self.meta.layout, chunk)["records"]
                places = (
                    np.arange(number, number + len(items))
                    + moved[np.repeat(chunk.trees, records.astype(np.int64))]
                )
                until = int(np.searchsorted(inside, places[-1])) if len(items) else done
                merged = np.empty(len(items) + until - done, _core.EXTENT)
                merged[places - (done + number)] = items
                merged[inside[done:until] - (done + number)] = found.extents[done:until]
                yield _part(below, False, merged, _NO_KEYS)
                done, number = until, number + len(items)
        yield _part(None, False, found.extents[done:], _NO_KEYS)


def _counted(each: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return 0, 1, ... for each key anew."""
    return np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)


def _part(chunk: Chunk | None, keys: bool, extents: Extents, each: npt.NDArray[np.uint64]) -> Part:
    """Make a part of a database with duplicates.

    They have no overflow pages, being as short as keys.
    """
    return Part(chunk, keys, extents, np.zeros(len(extents), np.uint32), each)
