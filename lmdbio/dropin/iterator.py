"""iterator: a cursor's iterators, which read ahead once they have gone some steps forwards."""

from __future__ import annotations

from typing import Any

from lmdbio import _core
from lmdbio._core import WANT_KEY, WANT_VALUE, Move
from lmdbio.dropin.position import WANT_ITEM, Position
from lmdbio.dropin.run import Run

__all__ = ["CursorIterator"]

#: Single steps of an iterator before it reads ahead: twice as many after each run that was broken
#: off, up to the larger number.
STEPS_BEFORE_SCAN = 2
STEPS_BEFORE_SCAN_MAX = 1024


class CursorIterator(_core.Items):
    """py-lmdb's cursor iterator: it shares the cursor, and revives when that is moved.

    It goes step by step at first, then begins a run (``Run``), which any move of the cursor ends.
    """

    __slots__ = ("_cursor", "_move", "_started", "_steps", "_wait", "_wanted")

    def __init__(self, cursor: Position, move: Move, keys: bool, values: bool) -> None:
        self._cursor, self._move = cursor, move
        self._wanted = WANT_KEY if not values else WANT_VALUE if not keys else WANT_ITEM
        self._started = False
        self._steps, self._wait = 0, STEPS_BEFORE_SCAN

    def stop(self) -> None:
        """Go step by step again, and longer: a move of the cursor ended the run."""
        self.end()
        self._steps = 0
        self._wait = min(self._wait * 2, STEPS_BEFORE_SCAN_MAX)

    def advance(self) -> Any:
        """Return the next item where no block has one.

        Raises:
            StopIteration: there is none.
            OSError, Error: it cannot be read.
        """
        with self._cursor._guard:
            return self._advance()

    def _advance(self) -> Any:
        cursor = self._cursor
        if not cursor._is_placed() and not (cursor._failed and self._started):
            raise StopIteration
        if not self._started:
            item = cursor._peek(self._wanted)
            self._started = True
            return item
        if cursor._run is None and self._steps >= self._wait and self._scans():
            self._begin()
        run = cursor._run
        if run is not None and run.owner is self:
            # Another thread may have had the next block meanwhile.
            if self.left() or self._next_block(run):
                return next(self)
            cursor._settle()
        if not cursor._move(self._move):
            self._steps = 0
            raise StopIteration
        self._steps += 1
        self._started = False  # until it is handed out
        item = cursor._get(self._wanted)
        self._started = True
        return item

    def _scans(self) -> bool:
        """Return whether reading ahead pays, and leaves a position that can be found again."""
        cursor = self._cursor
        if not cursor._placed or self._move not in (Move.NEXT, Move.NEXT_NODUP):
            return False
        return not cursor._dup or bool(self._wanted & WANT_VALUE)

    def _begin(self) -> None:
        cursor = self._cursor
        txn, file = cursor._txn, cursor._txn._file
        values = bool(self._wanted & WANT_VALUE)
        scan = _core.Scan(
            cursor._c,
            self._move,
            values=values,
            advised=file.advised,
            dense=file.dense,
            block_bytes_max=file.block_bytes_max,
        )
        self.begin(
            scan,
            txn._snapshot,
            wanted=self._wanted,
            buffers=txn._buffers,
            mapping=txn._mapping if values else None,
        )
        cursor._run = Run(self, scan, txn._direct_path, values=values, dup=cursor._dup)

    def _next_block(self, run: Run) -> bool:
        cursor = self._cursor
        if run.inherited:
            return False
        try:
            found = run.next_block()
            cursor._txn._verify()
        except BaseException:
            run.take_back()
            try:
                cursor._txn._verify()
            finally:
                cursor._settle()
            raise
        return found
