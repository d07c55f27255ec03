"""Describe the tree of one database: by its provenance file, or by a walk.

    question  ->  section of the provenance file  ->  answer
                       | damaged, or cannot be read
                       +-> walk of the same state, once  ->  answer, now and from now on

Blocks of a provenance file are read when they are needed, so damage may be met at any time. The
walk (``scan``) goes level by level, and finds where records and leaves lie; a cursor that comes by
the records one after the other is in ``cursor_walk``.

Source: LMDBIO (ACM TOPC 2019), one process seeks for all (LMM-DIO).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import ProvenanceError
from lmdbio.locate.key_index import Groups, KeyIndex
from lmdbio.locate.open_database import OpenFile, guard_state, guarded
from lmdbio.provenance import Section, values
from lmdbio.provenance.keys import KeyPattern
from lmdbio.provenance.values import DUPSORT
from lmdbio.system import fork
from lmdbio.system.log import WARNING, log

__all__ = ["Tree", "WalkedTree", "walk_tree"]

Answer = TypeVar("Answer")


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


class Tree:
    """The tree of one database, as its provenance file or a walk describes it.

    Threads may share one.

    Args:
        file: file whose tree it is; it stays open.
        known: the section of its provenance file, or a walk.
        is_demanded: whether the provenance file alone may answer: then damage stays an error.

    Attributes:
        known: section or walk; a walk, once there was one.
        reason: reason why the section was left; "": it was not.
    """

    def __init__(self, file: OpenFile, known: Section | WalkedTree, *, is_demanded: bool) -> None:
        self.known, self._file, self._is_demanded = known, file, is_demanded
        self.reason = ""
        self._section = known if isinstance(known, Section) else None
        self._lock = threading.Lock()
        fork.register(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def ask(self, question: Callable[[Section | WalkedTree], Answer]) -> Answer:
        """Return an answer.

        Raises:
            ProvenanceError: the provenance file is damaged, and demanded.
            OSError, Error: the tree cannot be read, or the file has moved on.
        """
        known = self.known
        try:
            return question(known)
        except ProvenanceError as error:
            return question(self.walk(error))

    def walk(self, error: ProvenanceError) -> WalkedTree:
        """Return the walk of the tree that takes the place of a section.

        Args:
            error: damage that was met; raised where the provenance file is demanded.

        Raises: as ``ask``.
        """
        if self._is_demanded:
            raise error
        pages, meta, database = self._file
        with self._lock:
            found, is_first = self.known, False
            if isinstance(found, Section):
                with guarded(pages, meta):
                    found, is_first = walk_tree(pages, meta, database, keys=False), True
                self.known, self.reason = found, str(error)
        if is_first:
            log(f"{error}; the tree is walked instead", WARNING)
        return found

    def extents(self) -> _core.Extents:
        """Return the extents of all records, in key order; raises as ``ask``."""
        return self.ask(lambda of: of.extents() if isinstance(of, Section) else of.extents)

    def leaves(self, groups: Groups | None) -> _core.Leaves:
        """Return all leaves in key order (dtype ``LEAF``), their keys counted.

        Args:
            groups: the records of each key, which ``each_key`` gave; None: each has one.

        Raises:
            ProvenanceError: the provenance file tells another number of keys than these hold.
            others: as ``ask``.
        """
        leaves = self.ask(self._leaves)
        if self._section is not None and groups is not None:
            keys = int(leaves["records"].sum())
            if len(groups) != keys:
                path = self._file.pages.path
                raise self._section.damaged(f"it counts {len(groups):,} keys, {path} has {keys:,}")
        return leaves

    def _leaves(self, known: Section | WalkedTree) -> _core.Leaves:
        """Return all leaves: by the walk, as the provenance file names them, or by a walk."""
        if isinstance(known, WalkedTree):
            return known.leaves
        named = known.leaves()
        if named is not None:
            return named
        pages, meta, database = self._file
        found = [np.empty(0, _core.LEAF)]
        with _core.Walk(pages, meta, database) as walk:
            found += [_core.leaves_of(meta.layout, chunk) for chunk in walk if chunk.leaf]
        return np.concatenate(found)

    def index_keys(self) -> KeyIndex:
        """Return the keys by their numbers; leaves and counts are asked for when they are needed.

        That may be never: where keys follow a pattern, for one.
        """
        pages, meta, database = self._file
        groups = Groups(self.each_key) if database.flags & DUPSORT else None
        return KeyIndex(
            pages,
            meta,
            database,
            pattern=self.known.keys,
            leaves=partial(self.leaves, groups),
            groups=groups,
            guard=partial(guard_state, pages, meta),
        )

    def each_key(self) -> npt.NDArray[np.uint64]:
        """Return how many records each key has, in key order; raises as ``ask``."""
        return self.ask(lambda of: of.each_key())
