"""Ask a provenance file about a tree; once it is found damaged, walk the tree instead.

    question  ->  section of the provenance file  ->  answer
                       | damaged, or cannot be read
                       +-> walk of the same state, once  ->  answer, now and from now on

Blocks of a provenance file are read when they are needed, so damage may be met at any time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import ProvenanceError
from lmdbio.locate.key_index import Groups, KeyIndex
from lmdbio.locate.open_database import OpenFile, guard_state, judged
from lmdbio.locate.walk import WalkedTree, find_leaves, walk_tree
from lmdbio.provenance import Section
from lmdbio.provenance.values import DUPSORT
from lmdbio.system.log import WARNING, log

__all__ = ["Told"]

Answer = TypeVar("Answer")


class Told:
    """Answers about the tree of one database. Threads may share it.

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
        #: One for a process, made when it is needed: a child's parent may hold its own for ever.
        self._locks: dict[int, threading.Lock] = {}

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
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            found, is_first = self.known, False
            if isinstance(found, Section):
                with judged(pages, meta):
                    found, is_first = walk_tree(pages, meta, database, keys=False), True
                    guard_state(pages, meta)
                self.known, self.reason = found, str(error)
        if is_first:
            log(f"{error}; the tree is walked instead", WARNING)
        return found

    # --- what is asked

    def extents(self) -> _core.Extents:
        """Return the extents of all records, in key order; raises as ``ask``."""
        return self.ask(lambda of: of.extents() if isinstance(of, Section) else of.extents)

    def leaves(self, groups: Groups | None) -> _core.Leaves:
        """Return all leaves, in key order (``find_leaves``).

        Args:
            groups: the records of each key, which ``each_key`` gave; None: each has one.

        Raises:
            ProvenanceError: the provenance file tells another number of keys than these hold.
            others: as ``ask``.
        """
        leaves = self.ask(lambda of: find_leaves(*self._file, of))
        if self._section is not None and groups is not None:
            keys = int(leaves["records"].sum())
            if len(groups) != keys:
                path = self._file.pages.path
                raise self._section.damaged(f"it counts {len(groups):,} keys, {path} has {keys:,}")
        return leaves

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
