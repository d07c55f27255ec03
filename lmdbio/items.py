"""items: all records of a database in order, the values of keys that have many included.

    walk of the tree -> parts: pages, extents
              |
              +-- walk of each tree of duplicates, where its key stands

An item is a record with a number: a key's only value, or one of its many (DUPSORT, DUPFIXED), in
the order in which LMDB's cursor gives them.

Source: LMDB's trees of duplicates (MDB_DUPDATA, MDB_SUBDATA).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import Chunk, Database, Engine, Extents, Meta
from lmdbio.errors import CorruptedError

__all__ = ["DUPSORT", "Part", "walk"]

DUPSORT = 0x04  # enum lio_db_flag (csrc/format.h)
_NONE = np.empty(0, _core.EXTENT)
_NO_OVERFLOW, _NO_KEYS = np.empty(0, np.uint32), np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Part:
    """Pages of a database, and what comes next in it.

    Attributes:
        chunk: pages that no part before has; None: there are none. Levels of trees of duplicates
            are counted on below the leaves of the keys.
        keys: ``chunk`` is made of leaves with keys.
        extents: of the next items, dtype ``EXTENT``.
        overflow: overflow pages that each of these owns, uint32; 0: it lies in a leaf.
        each: items of the next keys, uint64; empty without duplicates, where each has one.
    """

    chunk: Chunk | None
    keys: bool
    extents: Extents
    overflow: npt.NDArray[np.uint32]
    each: npt.NDArray[np.uint64]


def walk(engine: Engine, meta: Meta, db: Database) -> Iterator[Part]:
    """Walks a database; pages are valid until the next part.

    Raises:
        CorruptedError, ShortReadError, OSError.
        IncompatibleError: duplicates in a database that is to have none.
    """
    layout, entries = meta.layout, 0
    with _core.Walk(engine, meta, db) as found:
        for chunk in found:
            if not chunk.leaf:
                yield Part(chunk, False, _NONE, _NO_OVERFLOW, _NO_KEYS)
            elif not db.flags & DUPSORT:
                extents, overflow = _core.leaf_extents(layout, chunk, engine.path)
                yield Part(chunk, True, extents, overflow, _NO_KEYS)
            else:
                for part in _duplicates(engine, meta, db, chunk):
                    entries += len(part.extents)
                    yield part
    if db.flags & DUPSORT and entries != db.entries:
        raise CorruptedError(
            f"{engine.path}: a database has {entries} items, its record says {db.entries}"
        )


def _duplicates(engine: Engine, meta: Meta, db: Database, chunk: Chunk) -> Iterator[Part]:
    """One chunk of leaves, and the trees beside it."""
    found = _core.leaf_items(meta.layout, chunk, engine.path)
    # Items before each tree, of those on the leaves.
    before = np.cumsum(found.each) - found.each
    elsewhere = np.cumsum([0, *(tree.entries for tree in found.databases)])
    at, each = 0, found.each
    pages: Chunk | None = chunk
    for number, tree in enumerate(found.databases):
        end = int(before[int(found.trees[number])]) - int(elsewhere[number])
        yield _inside(pages, found.extents[at:end], each)
        at, pages, each = end, None, _NO_KEYS
        yield from _tree(engine, meta, tree, db.depth)
    yield _inside(pages, found.extents[at:], each)


def _inside(chunk: Chunk | None, extents: Extents, each: npt.NDArray[np.uint64]) -> Part:
    """What has no overflow pages: duplicates are as short as keys."""
    return Part(chunk, chunk is not None, extents, np.zeros(len(extents), np.uint32), each)


def _tree(engine: Engine, meta: Meta, tree: Database, depth: int) -> Iterator[Part]:
    with _core.Walk(engine, meta, tree) as found:
        for chunk in found:
            below = Chunk(chunk.level + depth, chunk.leaf, chunk.pages, chunk.pgnos)
            extents = _core.tree_items(meta.layout, chunk, engine.path) if chunk.leaf else _NONE
            yield replace(_inside(below, extents, _NO_KEYS), keys=False)
