"""Look at a few records of one database, by a few reads, however large it is.

    first records     a cursor, from the first key or from a prefix
    spread records    on leaves all over the tree, found down its branch pages
    one record        by its key, or by its number, over the leaves before it

Nothing is walked as a whole, no provenance file is needed, and of a value no more is read than is
asked for. Each read is followed by a look whether the file still has the state that was opened
(``open_database``): the caller gets bytes of one state, or an error.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from typing import NamedTuple

import numpy as np

from lmdbio import _core
from lmdbio._core import Database, Meta, Move
from lmdbio.errors import CorruptedError
from lmdbio.inside.excerpt import HEAD_BYTES, TAIL_BYTES, Excerpt
from lmdbio.locate.open_database import guard_state, guarded, opening, settled
from lmdbio.provenance import find_data, name_bytes
from lmdbio.provenance.values import DUPSORT, INTEGERKEY, REVERSEKEY

__all__ = ["DiskOrder", "DatabaseView", "Seen", "viewing", "sample_order"]

#: Pages of the tree that are kept, and bytes of a value that are read at a time.
CACHE_BYTES, PIECE_BYTES = 16 << 20, 1 << 20
#: Leaves of a tree that are all counted, in large reads; of a larger one, so many are looked at.
COUNTED_LEAVES_MAX, SOME_LEAVES = 1024, 256
#: Leaves of a main database that are walked to name the databases in it.
NAMING_LEAVES_MAX = 64
#: Places of the file that are looked at, and records from each on.
PLACES, RUN = 32, 16
#: A record lies right behind another one where pages of the tree at most lie between them.
NEAR_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that was come by.

    Attributes:
        key, length: key of the record; length of its value, bytes.
        database: the named database that it describes; None: it is a plain record.
    """

    key: bytes
    length: int
    database: Database | None
    _record: _core.Peeked


class DatabaseView:
    """One database of one file, in the state that it was opened in. For one thread.

    Args:
        engine: Engine that reads the data file; it stays open.
        meta, db: the state, and the database in it.
        name: name of the database; None: the main one.

    Attributes:
        path: the data file.
        engine, name, meta, db: arguments of the same names.
    """

    def __init__(self, engine: _core.Engine, meta: Meta, db: Database, name: bytes | None) -> None:
        self.path, self.name, self.meta, self.db = engine.path, name, meta, db
        self.engine = engine
        self._pages = _core.Pages(engine, meta.layout, CACHE_BYTES)
        #: Around each read: a page of another state is no damage.
        self._guarded = partial(guarded, engine, meta)

    @property
    def has_integer_keys(self) -> bool:
        """Keys are numbers in the machine's own order."""
        return bool(self.db.flags & INTEGERKEY)

    @property
    def has_duplicates(self) -> bool:
        """A key may have many values, each of which is a record."""
        return bool(self.db.flags & DUPSORT)

    @property
    def sorts_by_prefix(self) -> bool:
        """Keys that begin alike stand beside one another."""
        return not self.db.flags & (INTEGERKEY | REVERSEKEY)

    # --- records

    def records(self, prefix: bytes = b"") -> Iterator[Seen]:
        """Yield records in the order of their keys, those that begin with a prefix.

        Raises:
            OSError, Error: pages cannot be read, are damaged, or the file has moved on.
        """
        with self._cursor() as cursor:
            move, key = (Move.SET_RANGE, prefix) if prefix else (Move.FIRST, b"")
            while self._move(cursor, move, key):
                seen = self._seen(cursor)
                if not seen.key.startswith(prefix):
                    return
                yield seen
                move, key = Move.NEXT, b""

    def find(self, key: bytes) -> Iterator[Seen]:
        """Yield the records of one key: one, or several where it has several values."""
        if not key:
            return
        with self._cursor() as cursor:
            move = Move.SET
            while self._move(cursor, move, key):
                yield self._seen(cursor)
                if not self.has_duplicates:
                    return
                move = Move.NEXT_DUP

    def at(self, number: int) -> Seen:
        """Return a record by its number, from 0 in the order of the keys.

        The leaves before it are read.

        Raises:
            IndexError: there are not so many.
        """
        with self._cursor() as cursor:
            wanted = min(number, self.db.entries)  # which C can count
            with self._guarded():
                skipped = _core.skip_records(cursor, wanted) if number else 0
            if skipped < number or not self._move(cursor, Move.NEXT if number else Move.FIRST):
                raise IndexError(f"{self.path}: record {number} of {self.db.entries}")
            return self._seen(cursor)

    def near(self, key: bytes) -> list[bytes]:
        """Return the keys before and after a place where none is."""
        found: list[bytes] = []
        if not key:
            return [seen.key for seen in islice(self.records(), 1)]
        with self._cursor() as cursor:
            if not self._move(cursor, Move.SET_RANGE, key):
                return [self._seen(cursor).key] if self._move(cursor, Move.LAST) else []
            found.append(self._seen(cursor).key)
            if self._move(cursor, Move.PREV_NODUP):
                found.insert(0, self._seen(cursor).key)
        return found

    def spread(self, fractions: Iterable[float]) -> Iterator[Seen]:
        """Yield records at fractions of all, 0 to below 1 and ascending, none of them twice.

        Leaves hold few large records or many small ones, so the keys on leaves all over the tree
        are counted first: on all of them where they are few, else on some. Of a key with several
        values, the first one comes.
        """
        leaves = self._counted() if self.db.entries else []
        ends = list(accumulate(count for _, count in leaves))
        last = -1
        with self._cursor() as cursor:
            for fraction in fractions if ends else ():
                place = min(int(fraction * ends[-1]), ends[-1] - 1)
                if place == last:
                    continue
                last = place
                leaf = bisect_right(ends, place)
                pgno, count = leaves[leaf]
                with self._guarded():
                    key = self._pages.key_at(pgno, place - (ends[leaf] - count))
                if not self._move(cursor, Move.SET, key):
                    raise CorruptedError(
                        f"{self.path}: a key on page {pgno} is not found from the root"
                    )
                yield self._seen(cursor)

    def _counted(self) -> list[tuple[int, int]]:
        """Return leaves in the order of their keys, and how many keys each has."""
        if self.db.leaf_pages <= COUNTED_LEAVES_MAX:
            found: list[tuple[int, int]] = []
            with self._guarded(), _core.Walk(self.engine, self.meta, self.db) as walk:
                for chunk in (chunk for chunk in walk if chunk.leaf):
                    found += _core.leaves_of(self.meta.layout, chunk).tolist()
                    if len(found) > 4 * COUNTED_LEAVES_MAX:  # more than the database says
                        break
            return found
        with self._guarded():
            return self._some_leaves()

    def _some_leaves(self) -> list[tuple[int, int]]:
        """Return some leaves at even fractions of the branch pages, with their keys counted."""
        branches: dict[int, _core.Branch] = {}
        leaves: dict[int, int] = {}
        for number in range(SOME_LEAVES):
            pgno, fraction = self.db.root, (number + 0.5) / SOME_LEAVES
            for _ in range(_core.DEPTH_MAX + 1):
                if (page := branches.get(pgno)) is None:
                    page = branches[pgno] = _core.read_branch(self.engine, self.meta.layout, pgno)
                if not page.children:
                    break
                place = fraction * len(page.children)
                pgno, fraction = page.children[int(place)], place - int(place)
            else:
                raise CorruptedError(f"{self.path}: the tree is too deep to be one")
            leaves[pgno] = page.nodes
        return list(leaves.items())

    def extents(self, key: bytes, count: int) -> _core.Extents:
        """Return where the values of records lie (dtype ``EXTENT``), from a key on.

        Args:
            key: key of the first record, which is there.
            count: number of records; fewer come at the end of the database.
        """
        with self._cursor() as cursor:
            if not self._move(cursor, Move.SET, key):
                return np.empty(0, _core.EXTENT)
            # The cursor goes back by one, for it walks over the next ones.
            if self._move(cursor, Move.PREV):
                with self._guarded():
                    return _core.walk_records(cursor, count)
        with self._cursor() as cursor, self._guarded():
            return _core.walk_records(cursor, count)

    def free_pages(self, records_max: int) -> int | None:
        """Return how many pages of the file nothing uses; None: the list of them is longer.

        Args:
            records_max: largest number of the list's records to read; each is of one transaction.
        """
        free = DatabaseView(self.engine, self.meta, self.meta.free_db, None)
        if free.db.entries > records_max:
            return None
        found = 0
        for seen in free.records():
            # A list of page numbers behind its length.
            count = int.from_bytes(free.excerpt(seen, 8, 0).head, "little")
            if seen.length < 8 or count > (seen.length - 8) // 8:
                raise CorruptedError(f"{self.path}: a list of free pages is shorter than it says")
            found += count
        return found

    def databases(self) -> list[tuple[bytes, Database]]:
        """Return the named databases of a main one, if that means reading few leaves."""
        if self.name is not None or not 0 < self.db.leaf_pages <= NAMING_LEAVES_MAX:
            return []
        found: list[tuple[bytes, Database]] = []
        with self._guarded(), _core.Walk(self.engine, self.meta, self.db) as walk:
            for chunk in (chunk for chunk in walk if chunk.leaf):
                found += _core.leaf_databases(self.meta.layout, chunk, self.path)
        return found

    # --- values

    def excerpt(
        self, seen: Seen, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES
    ) -> Excerpt:
        """Return the first and the last bytes of a value."""
        head = self._part(seen, 0, head_bytes)
        begun = max(len(head), seen.length - tail_bytes)
        tail = self._part(seen, begun, seen.length) if begun < seen.length else b""
        return Excerpt(head, seen.length, tail)

    def value(self, seen: Seen) -> bytes:
        """Return all of a value."""
        return b"".join(self.pieces(seen))

    def pieces(self, seen: Seen) -> Iterator[bytes]:
        """Yield a value piece by piece."""
        for start in range(0, seen.length, PIECE_BYTES):
            yield self._part(seen, start, start + PIECE_BYTES)

    def _part(self, seen: Seen, start: int, stop: int) -> bytes:
        with self._guarded():
            return _core.read_part(self.engine, self.meta.layout, seen._record, start, stop)

    # --- each read, guarded

    @contextlib.contextmanager
    def _cursor(self) -> Iterator[_core.Cursor]:
        cursor = _core.Cursor(self._pages, self.db)
        try:
            yield cursor
        finally:
            cursor.close()

    def _move(self, cursor: _core.Cursor, move: int, key: bytes = b"") -> bool:
        with self._guarded():
            return cursor.move(move, key)

    def _seen(self, cursor: _core.Cursor) -> Seen:
        record = _core.read_head(cursor)
        database = None
        if record.data is not None and cursor.holds_database():
            with self._guarded():
                database = self._pages.parse_database(record.data)
        return Seen(record.key, record.length, database, record)

    def guard(self) -> None:
        """Make sure that what was read up to now belonged to the state that was opened.

        Raises:
            MovedError: the file has moved on.
        """
        guard_state(self.engine, self.meta)


@contextlib.contextmanager
def viewing(path: str | os.PathLike[str], db: bytes | str | None = None) -> Iterator[DatabaseView]:
    """Open a database to look at some of its records.

    Args:
        path: an environment's folder or its one file, or its URL.
        db: a named database; None: the main one.

    Raises:
        OSError, Error: the file or its metas cannot be read.
        LookupError: no such named database.
    """
    name, data = name_bytes(db), os.fspath(find_data(path))

    def begin() -> DatabaseView:
        with opening(data, name, "pread") as file:
            return DatabaseView(file.pages, file.meta, file.database, name)

    view = settled(data, begin)
    with view.engine:
        yield view


# --- how far the order of keys is that of the disk ----------------------------------------


class DiskOrder(NamedTuple):
    """How far the order of keys is that of the disk.

    Attributes:
        ascending: share of neighbours, of the places looked at, that lie in the order of their
            keys; by chance half of them do. None: there were too few.
        adjacent: share of records that lie right behind the one before them. None: there were
            none.
    """

    ascending: float | None
    adjacent: float | None


def sample_order(view: DatabaseView, keys: Iterable[bytes] | None = None) -> DiskOrder:
    """Look over the file, and from one record to the next.

    Args:
        view: the database that is looked at.
        keys: keys of records spread over it, in order; None: it finds some.

    Raises:
        OSError, Error: it cannot be read, or has moved on.
    """
    firsts: list[int] = []
    near = steps = 0
    if keys is None:
        fractions = ((number + 0.5) / PLACES for number in range(PLACES))
        keys = (seen.key for seen in view.spread(fractions))
    spread = list(keys)
    for key in spread[:: max(1, len(spread) // PLACES)]:
        run = view.extents(key, RUN)
        offsets = run["offset"].astype(np.int64)
        if not len(offsets):
            continue
        firsts.append(int(offsets[0]))
        gaps = np.diff(offsets) - run["length"][:-1].astype(np.int64)
        # Within a leaf, nodes lie from its end to its beginning.
        near += int((np.abs(gaps) <= NEAR_BYTES).sum())
        steps += len(gaps)
    adjacent = near / steps if steps else None
    if len(firsts) < 3:
        return DiskOrder(None, adjacent)
    ascending = np.diff(np.array(firsts) // NEAR_BYTES) >= 0
    return DiskOrder(float(ascending.mean()), adjacent)
