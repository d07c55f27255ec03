"""position: where a cursor stands in one database, and how it is moved and read there.

The C cursor (``_core.Cursor``) makes the moves. While an iterator hands out records of a run
(``Run``), which are read ahead in blocks, the position is that of the record handed out last; any
move puts the C cursor there first (``_settle``). Both py-lmdb's surface (``Cursor``) and the
iterators stand on this. C hands out the records of a block without Python; a run keeps count.
"""

from __future__ import annotations

import errno
import os
import time

from lmdbio import _core
from lmdbio._core import WANT_KEY, WANT_VALUE, Move
from lmdbio.dropin.arguments import as_bytes
from lmdbio.errors import (
    MDB_BAD_VALSIZE,
    MDB_INCOMPATIBLE,
    CorruptedError,
    Error,
    closed_error,
    lmdb_error,
)
from lmdbio.system.slim import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from lmdbio.dropin.data_file import DataFile
    from lmdbio.dropin.open_snapshot import OpenSnapshot
    from lmdbio.locate.key_index import KeyIndex
    from lmdbio.reading.direct_path import DirectPath

    class RunOwner(Protocol):
        """The part of an iterator that a run uses."""

        def block(self, count: int) -> None: ...

        def left(self) -> int: ...

        def stop(self) -> None: ...

    class Snapshotted(Protocol):
        """The part of a transaction that its cursors use."""

        @property
        def _file(self) -> DataFile: ...

        @property
        def _opened(self) -> OpenSnapshot: ...

        def _record_of(self, db: Any) -> _core.Database: ...

        def _keys(self, db: Any) -> KeyIndex: ...

        def _verify(self) -> None: ...

        def _refuse(self, what: str) -> Error: ...

        def cursor(self, db: Any = None) -> Any: ...


__all__ = ["WANT_ITEM", "Position", "Run"]

WANT_ITEM = WANT_KEY | WANT_VALUE
#: Blocks that grow, up to those that are large enough to pass by the page cache.
BLOCKS_BEFORE_BYPASS = 3
_DUP_EDGES = (Move.FIRST_DUP, Move.LAST_DUP)


class Position(_core.Stands):
    """A position in one database of a snapshot.

    Threads may share it as py-lmdb's cursors are shared: the run is guarded, moves are not.
    """

    # The last move could not be made (_failed); or it was, but could not be proved to have stayed
    # in the snapshot (_unproved). A step may be made again, and passes over nothing.
    if TYPE_CHECKING:
        _run: Run | None
        _txn: Snapshotted
    __slots__ = ("__weakref__",)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Cursor' object")

    def _after_fork(self) -> None:
        self._guard_lock = None

    def _check(self) -> None:
        if self._lookup is None:
            raise closed_error()

    @property
    def _c(self) -> _core.Cursor:
        """The C cursor.

        Raises:
            lmdb.Error: this cursor is closed.
        """
        lookup = self._lookup
        made: _core.Cursor | None = self._made
        if lookup is None:
            raise closed_error()
        if made is None:
            made = self._made = _core.Cursor.of(self._txn._opened.pages, lookup)
        return made

    @property
    def _guard(self) -> Any:
        """A lock of the run."""
        return self._guard_lock or self._set_guard_lock(RLock())

    @property
    def _empty(self) -> Any:
        return memoryview(b"") if self._txn._opened.buffers else b""

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.end()

    def _settle(self) -> None:
        """End a run, if there is one, and put the C cursor on the record it last handed out."""
        with self._guard:
            self._settle_guarded()

    def _settle_guarded(self) -> None:
        run = self._run
        if run is None:
            return
        # Should this fail, the run stays: it alone knows the position.
        try:
            run.settle(self._c)
        except CorruptedError:
            self._txn._verify()
            raise
        self._run = None
        run.end()

    def _move(self, move: int, key: bytes = b"", value: bytes = b"") -> bool:
        """Move the C cursor; return whether it stands on a record then.

        Raises:
            lmdb.Error: LMDB refuses the move, or a writer may have overwritten the snapshot.
            OSError: a page cannot be read.
        """
        if self._run is not None:
            self._settle()
        cursor = self._c
        # LMDB's first_dup and last_dup tell no key: py-lmdb shows the one it had.
        # A move that fails leaves that as it was, for when it is made again.
        had_key = not self._keyless and (self._placed or self._failed)
        keyless = move in _DUP_EDGES and not had_key
        again, self._unproved = self._unproved == move, None
        self._failed, self._keyless = True, keyless
        self._placed = self._is_stale = False
        try:
            placed = again or cursor.move(move, key, value)
        except _core.UnplacedError:
            self._failed = False
            if move == Move.CURRENT:
                return False
            raise lmdb_error("mdb_cursor_get", errno.EINVAL) from None
        except _core.NoDuplicatesError:
            self._txn._verify()
            self._failed = False
            raise lmdb_error("mdb_cursor_get", MDB_INCOMPATIBLE) from None
        except _core.EmptyKeyError:
            self._failed = False
            raise lmdb_error("mdb_cursor_get", MDB_BAD_VALSIZE) from None
        except CorruptedError:
            self._txn._verify()
            raise
        if placed and not key:
            self._unproved = move
        self._txn._verify()
        self._placed, self._failed, self._unproved = placed, False, None
        self._keyless = keyless and placed and cursor.holds_duplicates()
        return placed

    def _seek_key(self, key: Any) -> bool:
        """Move to exactly ``key``; return whether it is there.

        Raises:
            BadValsizeError: ``key`` is empty.
            TypeError: it is no key; the position stays as it was then.
            lmdb.Error, OSError: as for ``_move``.
        """
        self._check()
        key = as_bytes(key)
        if self._run is not None:
            self._settle()
        self._placed = self._keyless = self._is_stale = False
        self._failed, self._unproved = bool(key), None
        if not key:
            raise lmdb_error("mdb_cursor_get", MDB_BAD_VALSIZE)
        self._placed = placed = self._seek(key)
        self._failed = False
        return placed

    def _seek_range(self, key: Any) -> bool:
        key = as_bytes(key)
        return self._move(Move.SET_RANGE, key) if key else self._move(Move.FIRST)

    def _get_key(self, key: Any, default: Any = None) -> Any:
        return self._read(WANT_VALUE) if self._seek_key(key) else default

    def _get(self, wanted: int) -> Any:
        """Return the key, value or item on which the last move ended."""
        found = self._read(wanted)
        if not self._keyless or wanted == WANT_VALUE:
            return found
        return (self._empty, found[1]) if wanted == WANT_ITEM else self._empty

    def _shape(self, key: Any, value: Any, wanted: int) -> Any:
        """Return key, value or both as the transaction hands them out."""
        if self._keyless:
            key = b""
        if self._txn._opened.buffers:
            key, value = memoryview(key), memoryview(value)
        if wanted == WANT_ITEM:
            return key, value
        return key if wanted == WANT_KEY else value

    def _item_here(self, wanted: int) -> Any:
        """Return the current key, value or item, empty where the cursor stands nowhere."""
        self._check()
        if self._is_stale:
            self._resume()
        if not self._placed:
            return (self._empty, self._empty) if wanted == WANT_ITEM else self._empty
        if self._run is not None:
            with self._guard:  # no other thread ends the run meanwhile
                run = self._run
                if run is not None and (wanted == WANT_KEY or run.values):
                    place = run.last(wanted)
                    if place is not None:
                        self._check()
                        return self._shape(*place, wanted)
                self._settle()
            self._move(Move.CURRENT)
        return self._get(wanted)

    def _resume(self) -> None:
        """Take the place of the C cursor as ours, also after a move that failed."""
        self._is_stale = False
        if self._lookup is not None and (self._keyless or not self._placed):
            self._move(Move.CURRENT)

    def _is_placed(self) -> bool:
        """Return whether the cursor stands on a record.

        Raises:
            lmdb.Error: it is closed.
        """
        self._check()
        return self._placed


class Run:
    """Records that an iterator hands out from blocks read ahead.

    Attributes:
        owner: the iterator.
        values: whether values are read, besides keys.
    """

    __slots__ = ("_block", "_blocks", "_direct", "_direct_path", "_dup", "_pid", "_revoked",
                 "_scan", "_tail", "owner", "values")  # fmt: skip

    def __init__(
        self,
        owner: RunOwner,
        scan: _core.Scan,
        direct_path: DirectPath,
        *,
        values: bool,
        dup: bool,
    ) -> None:
        self.owner, self.values = owner, values
        self._direct_path, self._direct, self._blocks = direct_path, (0, 0.0), 0
        self._scan, self._dup, self._pid = scan, dup, os.getpid()
        #: Records before the block that is handed out, and in it.
        self._block = 0, 0
        self._revoked = 0  # records of a block that was taken back
        #: Key and value (of duplicates) of the last record of the block before.
        self._tail: tuple[bytes, bytes] | None = None

    @property
    def inherited(self) -> bool:
        """Whether the parent of this process began the reads ahead."""
        return self._pid != os.getpid()

    def next_block(self) -> bool:
        """Give the iterator a block to hand out; return False at the end.

        Raises:
            OSError, Error: the block cannot be read.
        """
        # Ctrl-C may come between any two of these; ``last`` tells the same place all the while.
        handed_out = self._handed_out()
        self._tail = self._at(handed_out, self._wanted)
        self._block = self._block[0] + handed_out, 0
        self.owner.block(0)
        if not self._revoked:
            self._revoked = self._scan.advance()
        count = self._revoked
        self.owner.block(count)
        self._block, self._revoked = (self._block[0], count), 0
        if count:
            self._choose_engine()
        return count != 0

    def revoke(self) -> None:
        """Take a new block back: the record before it stays the position."""
        left = self.owner.left()
        if left:
            self._block, self._revoked = (self._block[0], 0), left
            self.owner.block(0)

    def _choose_engine(self) -> None:
        """Choose the engine of the blocks to come, and report how fast the last one was."""
        self._blocks += 1
        if self._blocks < BLOCKS_BEFORE_BYPASS:
            return
        size, seconds = self._scan.direct_reads()
        if size > self._direct[0]:
            now = time.monotonic()
            times = now - seconds + self._direct[1], now
            self._direct_path.record(size - self._direct[0], times)
            self._direct = size, seconds
        self._scan.bypass(self._direct_path.engine())

    def last(self, wanted: int) -> tuple[bytes, bytes] | None:
        """Return key and value of the record last handed out; None: there was none."""
        return self._at(self._handed_out(), wanted)

    def settle(self, cursor: _core.Cursor) -> None:
        """Put the cursor from which the run began on the record last handed out, if any was.

        Raises:
            OSError, Error: as ``Scan.settle``.
        """
        handed_out = self._handed_out()
        place = self._at(handed_out, self._wanted)
        if place is not None:
            self._scan.settle(cursor, self._block[0] + handed_out, *place, both=self._dup)

    def _handed_out(self) -> int:
        """Return how many records of the block were handed out; 0: the one before it counts."""
        return max(0, self._block[1] - self.owner.left())

    @property
    def _wanted(self) -> int:
        """The parts of a record that tell its place."""
        return WANT_ITEM if self._dup else WANT_KEY

    def _at(self, handed_out: int, wanted: int) -> tuple[bytes, bytes] | None:
        return self._scan.record(handed_out - 1, wanted) if handed_out else self._tail

    def end(self) -> None:
        """Stop the iterator and end the reads ahead."""
        self.owner.stop()
        self._scan.close()
