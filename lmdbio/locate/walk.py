"""Walk a database's tree once, level by level, and keep where its records and leaves lie.

    branch and leaf pages  ->  extents, leaves, items of each key, pattern of the keys

This is ``scan``: what a reader does where no provenance file describes the database. A cursor
that comes by the records one after the other is in ``cursor_walk``.

Source: LMDBIO (ACM TOPC 2019), one process seeks for all (LMM-DIO).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.provenance import Section, values
from lmdbio.provenance.keys import KeyPattern

__all__ = ["WalkedTree", "find_leaves", "walk_tree"]


class WalkedTree(NamedTuple):
    """The findings of one walk over a tree (16 bytes a record stay in memory).

    Attributes:
        extents, leaves: extents and leaves in key order, dtype ``EXTENT`` and ``LEAF``.
        each: items of each key, uint64; empty without duplicates.
        keys: pattern of the keys; None: they follow none, or were not followed.
    """

    extents: _core.Extents
    leaves: _core.Leaves
    each: npt.NDArray[np.uint64]
    keys: KeyPattern | None

    def each_key(self) -> npt.NDArray[np.uint64]:
        """Return how many records each key has, in key order."""
        return self.each

    def order(self) -> npt.NDArray[np.int64] | None:
        """Return None: no page tells in which order records were put."""
        return None


def walk_tree(
    pages: _core.Engine, meta: _core.Meta, db: _core.Database, *, keys: bool
) -> WalkedTree:
    """Walk a database, all pages of a chunk in flight together.

    Args:
        pages: Engine of the data file.
        meta, db: the state, and the database in it.
        keys: whether to follow the keys, too, which takes as long as the rest.

    Raises:
        OSError, Error: the tree cannot be read.
    """
    extents, leaves = [np.empty(0, _core.EXTENT)], [np.empty(0, _core.LEAF)]
    each, finder = [np.empty(0, np.uint64)], _core.KeyFinder(db.flags)
    for part in values.walk(pages, meta, db):
        # Chunks of branch pages, and of trees of duplicates, hold no keys of the database.
        if part.chunk is not None and part.keys:
            if keys:
                finder.add(meta.layout, part.chunk, pages.path)
            leaves.append(_core.leaves_of(meta.layout, part.chunk))
        extents.append(part.extents)
        each.append(part.each)
    runs = finder.end()
    return WalkedTree(
        np.concatenate(extents),
        np.concatenate(leaves),
        np.concatenate(each),
        KeyPattern(runs) if runs else None,
    )


def find_leaves(
    pages: _core.Engine,
    meta: _core.Meta,
    db: _core.Database,
    known: Section | WalkedTree,
) -> _core.Leaves:
    """Find all leaves of a database in key order (dtype ``LEAF``), their keys counted.

    By the walk that was done, else by the provenance file where it names them, else by a walk.

    Args:
        known: section of the provenance file on the database, or the walk.

    Raises:
        ProvenanceError: the provenance file is damaged.
        OSError, Error: the tree cannot be read.
    """
    if isinstance(known, WalkedTree):
        return known.leaves
    named = known.leaves()
    if named is not None:
        return named
    found = [np.empty(0, _core.LEAF)]
    with _core.Walk(pages, meta, db) as walk:
        found += [_core.leaves_of(meta.layout, chunk) for chunk in walk if chunk.leaf]
    return np.concatenate(found)
