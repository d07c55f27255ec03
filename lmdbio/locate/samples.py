"""Find which records of a database are samples: by its layout, and without the keys left out.

a few keys, looked up          -> whether there is such a layout    before the tree is walked
pattern of the keys, or all    -> records of the samples, in order  once keys are numbered
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import Move
from lmdbio.errors import IncompatibleError
from lmdbio.inside.keytext import show_key
from lmdbio.layouts.known import AUTO, find_layout
from lmdbio.layouts.layout import Selection
from lmdbio.layouts.wanted import Wanted, find_skipped, odd_keys
from lmdbio.locate.key_index import KeyIndex
from lmdbio.locate.open_database import OpenFile
from lmdbio.locate.tree import Tree, walk_tree
from lmdbio.provenance import name_text
from lmdbio.provenance.keys import KeyPattern
from lmdbio.provenance.values import DUPSORT, INTEGERKEY, REVERSEKEY
from lmdbio.system.log import log

__all__ = ["FoundSamples", "choose_samples", "count_samples", "find_samples"]

I64 = npt.NDArray[np.int64]

#: A path from the root for each key that is looked up.
CACHE_BYTES = 1 << 20
#: Of the first and of the last keys, those that layouts look at.
ENDS = 16


class CursorKeys:
    """The keys of a database (``layouts.Keys``), looked up one by one by a cursor.

    Attributes:
        numbered: the keys by their numbers, once there is more to know than a few of them.
    """

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self.path, self.count = file.pages.path, file.database.entries
        pages = _core.Pages(file.pages, file.meta.layout, CACHE_BYTES)
        self._cursor = _core.Cursor(pages, file.database)
        self.numbered: KeyIndex | None = None

    @property
    def first(self) -> bytes:
        return self._at(Move.FIRST)

    @property
    def last(self) -> bytes:
        return self._at(Move.LAST)

    def _at(self, move: int) -> bytes:
        return self._cursor.item(_core.WANT_KEY)[0] if self._cursor.move(move) else b""

    @property
    def ends(self) -> list[bytes]:
        head = self._some(Move.FIRST, Move.NEXT, min(self.count, ENDS))
        return head + self._some(Move.LAST, Move.PREV, min(self.count - len(head), ENDS))[::-1]

    def _some(self, move: int, further: int, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count and self._cursor.move(further if found else move):
            found.append(self._cursor.item(_core.WANT_KEY)[0])
        return found

    def has(self, key: bytes) -> bool:
        return self._cursor.move(Move.SET, key)

    def value(self, key: bytes) -> bytes | None:
        return self._cursor.find(key)

    @property
    def pattern(self) -> KeyPattern | None:
        return None if self.numbered is None else self.numbered.pattern

    def index(self, key: bytes) -> int | None:
        assert self.numbered is not None
        return self.numbered.record(key)

    def all(self) -> Iterator[list[bytes]]:
        pages, meta, database = self._file
        with _core.Walk(pages, meta, database) as walk:
            for chunk in walk:
                if chunk.leaf:
                    yield _core.leaf_keys(meta.layout, chunk, self.path)


class FoundSamples(NamedTuple):
    """The samples of a database, as far as a look at a few keys tells.

    Attributes:
        keys: keys of the database.
        selection: Selection of its layout; None: it has none, and each record is a sample.
        skip: keys that are left out, and patterns of such.
        odd_keys: keys that may belong to no sample, where no layout is known.
    """

    keys: CursorKeys
    selection: Selection | None
    skip: tuple[bytes, ...] = ()
    odd_keys: tuple[bytes, ...] = ()

    @property
    def layout(self) -> str | None:
        """The layout; None: it has none."""
        return None if self.selection is None else self.selection.layout

    @property
    def columns(self) -> int:
        """Records of a sample."""
        return 1 if self.selection is None else self.selection.columns

    @property
    def needs_keys(self) -> bool:
        """Whether more is wanted than a few keys."""
        return bool(self.skip) or (self.selection is not None and self.selection.order is not None)

    def records(self, numbered: KeyIndex, put_order: I64 | None) -> I64 | None:
        """Return the records of the samples, numbered in key order.

        Args:
            numbered: the keys of the database.
            put_order: records in the order in which they were put; None: in key order.

        Returns:
            int64, shape (samples * columns,), each sample's one after the other; None: all, in
            key order.

        Raises:
            IncompatibleError: the keys contradict the layout, or it gives no records.
            OSError, Error: the tree cannot be read.
        """
        self.keys.numbered = numbered
        order = put_order
        if self.selection is not None and self.selection.order is not None:
            order = self._checked(self.selection)
        if self.skip:
            skipped = find_skipped(self.keys, self.skip)
            order = np.arange(self.keys.count) if order is None else order
            is_out = np.isin(order, skipped)
            order = order[~(is_out if order.ndim == 1 else is_out.any(axis=1))]
        if order is None or np.array_equal(order, np.arange(self.keys.count)):
            return None
        return np.ascontiguousarray(order.reshape(-1))

    def _checked(self, selection: Selection) -> I64:
        """Return the records of a layout, each of which is there."""
        assert selection.order is not None
        order = np.asarray(selection.order(self.keys))
        columns = 1 if order.ndim == 1 else order.shape[-1]
        is_right = order.dtype.kind in "iu" and order.ndim in (1, 2)
        if order.size and is_right:
            is_right = columns == selection.columns and order.min() >= 0
            is_right = is_right and order.max() < self.keys.count
        if not is_right:
            raise IncompatibleError(
                f"{self.keys.path}: layout {selection.layout!r} gives {order.dtype} of shape "
                f"{order.shape}, which are no records of {self.keys.count:,}, "
                f"{selection.columns} a sample"
            )
        return order.astype(np.int64)


def find_samples(file: OpenFile, name: bytes | None, wanted: Wanted) -> FoundSamples:
    """Find the samples of an open database by a look at a few of its keys.

    Args:
        name: name of the database; None for the main one.
        wanted: records that are to be samples (``Wanted``).

    Raises:
        IncompatibleError: the database has another layout than the one that was asked for, or its
            keys are of a kind that has no layouts.
        OSError, Error: the tree cannot be read.
    """
    return choose_samples(CursorKeys(file), file.database.flags, name, wanted)


def choose_samples(
    keys: CursorKeys, flags: int, name: bytes | None, wanted: Wanted
) -> FoundSamples:
    """Choose the samples among some keys (``find_samples``).

    Args:
        keys: keys of the database, of whichever kind.
        flags: flags of the database.
        name, wanted: arguments of ``find_samples``.
    """
    layout, skip = wanted.layout, wanted.skip
    # Of these, keys are no text in the order of their bytes.
    odd = flags & (DUPSORT | REVERSEKEY | INTEGERKEY)
    if odd and (skip or layout not in (None, AUTO)):
        why = "may have many values" if flags & DUPSORT else "are in no order of text"
        raise IncompatibleError(
            f"{keys.path}: {name_text(name)}: its keys {why}: it has no layout, and skip= is not "
            "for it"
        )
    # A database that is empty, one of several files perhaps, has no samples in any layout.
    if odd or layout is None or not keys.count:
        return FoundSamples(keys, None, skip)
    found = find_layout(keys, layout)
    beside = odd_keys(keys) if found is None else ()
    if beside and not skip:
        log(
            f"{keys.path}: {name_text(name)}: no layout is known: each record is a sample, and so "
            f"are {', '.join(map(show_key, beside))}; skip= leaves out keys"
        )
    return FoundSamples(keys, found, skip, beside)


def count_samples(file: OpenFile, found: FoundSamples) -> int:
    """Count the samples that reading by the layout gives, by all keys of the database.

    Args:
        found: the samples, as a look at a few keys of ``file`` found them.

    Raises:
        IncompatibleError: the keys contradict the layout.
        OSError, Error: the tree cannot be read.
    """
    tree = Tree(file, walk_tree(*file, keys=True), is_demanded=False)
    chosen = found.records(tree.index_keys(), None)
    return (file.database.entries if chosen is None else len(chosen)) // found.columns
