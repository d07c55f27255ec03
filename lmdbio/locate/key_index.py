"""Go from key to record and back: by arithmetic where keys count, else by the tree.

    pattern                     keys -> index, no page is read  (lmdbio/provenance/keys.py)
    leaves, in key order        index -> leaf and place on it -> key
    branch pages, cached        key -> leaf and place on it -> index

LMDB's tree does not count what is below a branch, so the leaves are counted once: by the
provenance file, where it names them, else by a walk over them, when the first key is asked for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import Database, Engine, Leaves, Meta, Move
from lmdbio.errors import CorruptedError
from lmdbio.provenance.keys import KeyPattern
from lmdbio.system.frozen import dataclass

__all__ = ["Groups", "KeyIndex", "Keys", "Ranges", "Single"]

T = TypeVar("T")

#: Branch pages, and the leaves last used.
CACHE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Leaves:
    """Attributes:
    pgnos, firsts: of each leaf in key order, its page and first record.
    sorted, sorted_firsts: the same in the order of the pages.
    """

    pgnos: npt.NDArray[np.uint64]
    firsts: npt.NDArray[np.int64]
    sorted: npt.NDArray[np.uint64]
    sorted_firsts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, leaves: Leaves) -> _Leaves:
        pgnos = np.ascontiguousarray(leaves["pgno"])
        records = leaves["records"].astype(np.int64)
        firsts = np.cumsum(records) - records
        order = np.argsort(pgnos)
        return cls(pgnos, firsts, pgnos[order], firsts[order])


class Ranges(Sequence[range]):
    """The records of each key, in key order."""

    @abstractmethod
    def _of(self, key: int) -> range:
        """Those of a key by its number."""

    @overload
    def __getitem__(self, number: SupportsIndex) -> range: ...
    @overload
    def __getitem__(self, number: slice) -> list[range]: ...
    def __getitem__(self, number: SupportsIndex | slice) -> range | list[range]:
        keys = range(len(self))[number]
        return self._of(keys) if isinstance(keys, int) else [self._of(key) for key in keys]


class Groups(Ranges):
    """Where keys may have many.

    Args:
        each: function that gives the count of each, uint64; called once, unless threads meet.
    """

    def __init__(self, each: Callable[[], npt.NDArray[np.uint64]]) -> None:
        self._make = each
        self._ends: npt.NDArray[np.int64] | None = None

    def _found(self) -> npt.NDArray[np.int64]:
        """Where the records of each key end."""
        if self._ends is None:
            self._ends = np.cumsum(self._make(), dtype=np.int64)
        return self._ends

    def __len__(self) -> int:
        return len(self._found())

    def _of(self, key: int) -> range:
        ends = self._found()
        return range(int(ends[key - 1]) if key else 0, int(ends[key]))

    def key_of(self, record: int) -> int:
        """The key, by its number, of a record."""
        return int(np.searchsorted(self._found(), record, side="right"))


class Single(Ranges):
    """Where each key has one.

    Args:
        count: keys.
        places: index of each key's record, shape (count,); None: in key order.
    """

    def __init__(self, count: int, places: npt.NDArray[np.int64] | None) -> None:
        self._count, self._places = count, places

    def __len__(self) -> int:
        return self._count

    def _of(self, key: int) -> range:
        at = key if self._places is None else int(self._places[key])
        return range(at, at + 1)


class Keys(Protocol):
    """The keys of one database, or of several, by the numbers of their records."""

    @property
    def groups(self) -> Sequence[range] | None:
        """The records of each key; None: each has one, in key order."""

    def key(self, record: int) -> bytes:
        """Return the key of a record."""

    def record(self, key: bytes) -> int | None:
        """Return the (first) record of a key; None: there is none."""

    def close(self) -> None:
        """Close the files that were opened for them alone. May be called twice."""


class KeyIndex:
    """The keys of one database in one state, by their numbers. Threads may share one.

    Args:
        engine: Engine of the data file, one that reads at any offset; it stays open.
        meta, db: the state, and the database in it.
        pattern: pattern of its keys; None: they follow no pattern.
        leaves: function that gives the leaves, with their keys counted (dtype ``LEAF``), in key
            order; called once at most, unless threads meet.
        groups: the records of each key; None: each has one.
        guard: function that raises when what was read may be of another state.
        pages: Pages of the tree, to share; None: it makes its own.
    """

    def __init__(
        self,
        engine: Engine,
        meta: Meta,
        db: Database,
        *,
        pattern: KeyPattern | None,
        leaves: Callable[[], Leaves],
        groups: Groups | None,
        guard: Callable[[], None],
        pages: _core.Pages | None = None,
    ) -> None:
        self._engine, self._meta, self._db, self._guard = engine, meta, db, guard
        self.pattern, self._make_leaves, self.groups = pattern, leaves, groups
        self._pages, self._shares_pages = pages, pages is not None
        self._snapshot: _core.Snapshot | None = None
        #: Cursors that no thread uses now.
        self._cursors: list[_core.Cursor] = []
        self._leaves: _Leaves | None = None

    def key(self, record: int) -> bytes:
        """The key of a record, which is there.

        Raises:
            OSError, Error: the tree cannot be read, or the file has moved on.
        """
        return self._key(record if self.groups is None else self.groups.key_of(record))

    def record(self, key: bytes) -> int | None:
        """The (first) record of a key; None: there is none.

        Raises: as ``key``.
        """
        found = self._index(key)
        return found if found is None or self.groups is None else self.groups[found].start

    def close(self) -> None:
        """Let go of the engine, which is its owner's. May be called twice."""
        self._snapshot = None
        self._cursors.clear()
        if not self._shares_pages:
            self._pages = None

    def _key(self, index: int) -> bytes:
        """A key, by its number."""
        if self.pattern is not None:
            return self.pattern.key(index)
        leaves = self._found()
        leaf = int(leaves.firsts.searchsorted(index, side="right")) - 1
        page, place = leaves.pgnos.item(leaf), index - leaves.firsts.item(leaf)
        return self._guarded(lambda: self._tree().key_at(page, place))

    def _index(self, key: bytes) -> int | None:
        """The number of a key; None: there is none."""
        if self.pattern is not None:
            return self.pattern.index(key)
        found = self._guarded(lambda: self._place(key) if key else None)
        if found is None:
            return None
        (pgno, place), leaves = found, self._found()
        at = int(leaves.sorted.searchsorted(np.uint64(pgno)))
        if at == len(leaves.sorted) or leaves.sorted.item(at) != pgno:
            raise CorruptedError(
                f"{self._engine.path}: page {pgno} is a leaf that was not counted"
            )
        return leaves.sorted_firsts.item(at) + place

    def _place(self, key: bytes) -> tuple[int, int] | None:
        """The page of the leaf that has a key, and its number there; None: there is none."""
        try:
            cursor = self._cursors.pop()
        except IndexError:
            cursor = _core.Cursor(self._tree(), self._db)
        found = cursor.place() if cursor.move(Move.SET, key) else None
        self._cursors.append(cursor)
        return found

    def _guarded(self, read: Callable[[], T]) -> T:
        """Read, and ask whether it was of this state: another's page is no damage."""
        try:
            found = read()
        except Exception:
            self._guard()
            raise
        snapshot = self._snapshot
        if snapshot is None:
            snapshot = self._snapshot = _core.Snapshot(self._tree(), self._meta, held=False)
        if not (self._engine.is_open and snapshot.is_intact_now()):
            self._guard()
        return found

    def _tree(self) -> _core.Pages:
        pages = self._pages  # once: another thread may close it meanwhile
        if pages is None:
            pages = self._pages = _core.Pages(self._engine, self._meta.layout, CACHE_BYTES)
        return pages

    def _found(self) -> _Leaves:
        if self._leaves is None:
            self._leaves = self._guarded(lambda: _Leaves.of(self._make_leaves()))
        return self._leaves
