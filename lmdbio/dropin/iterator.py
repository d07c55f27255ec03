"""iterator: a cursor's iterators, which read ahead once they have gone some steps forwards."""

from __future__ import annotations

from lmdbio import _core
from lmdbio._core import WANT_KEY, WANT_VALUE, Move
from lmdbio.dropin.position import WANT_ITEM, Position, Run
from lmdbio.machine.budget import cached_bytes_max

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["CursorIterator"]

#: An iterator reads ahead from its second record on, once it had to wait; after a run that was
#: broken off, so many steps later, twice as many after the next, up to the larger number.
STEPS_BEFORE_SCAN = 2
STEPS_BEFORE_SCAN_MAX = 1024
NEVER = 2**32 - 1


class CursorIterator(_core.Items):
    """py-lmdb's cursor iterator: it shares the cursor, and revives when that is moved.

    It goes step by step, in C, as long as nothing has to wait for the storage. Then it begins a
    run (``Run``), which any move of the cursor ends.
    """

    __slots__ = ()

    def __init__(self, cursor: Position, move: int, keys: bool, values: bool) -> None:
        wanted = WANT_KEY if not values else WANT_VALUE if not keys else WANT_ITEM
        # A run must leave a position that can be found again: of duplicates, by the value.
        runs = move in (Move.NEXT, Move.NEXT_NODUP) and (values or not cursor._dup)
        self._walk(cursor, move, wanted, 0 if runs else NEVER)

    def stop(self) -> None:
        """Go step by step again, and longer: a move of the cursor ended the run."""
        self.end()
        self._steps, self._has_waited = 0, False
        longer = max(STEPS_BEFORE_SCAN, self._scan_after * 2)
        self._scan_after = min(longer, STEPS_BEFORE_SCAN_MAX)

    def advance(self) -> Any:
        """Return the next item where no block has one.

        Raises:
            StopIteration: there is none.
            OSError, Error: it cannot be read.
        """
        with self._cursor._guard:
            self._is_advancing = True
            try:
                return self._advance()
            finally:
                self._is_advancing = False

    def _advance(self) -> Any:
        cursor = self._cursor
        if not cursor._is_placed() and not (cursor._failed and self._is_started):
            raise StopIteration
        if not self._is_started:
            item = cursor._item_here(self._wanted)
            self._is_started = True
            return item
        stalled, self._has_stalled = self._has_stalled, False
        waits = self._has_waited and self._steps >= self._scan_after
        if waits and not stalled and cursor._run is None and cursor._placed:
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
        self._is_started = False  # until it is handed out
        item = cursor._get(self._wanted)
        self._is_started = True
        return item

    def _begin(self) -> None:
        cursor = self._cursor
        opened, file = cursor._txn._opened, cursor._txn._file
        values = bool(self._wanted & WANT_VALUE)
        scan = _core.Scan(
            cursor._c,
            self._move,
            values=values,
            advised=file.advised,
            dense=file.dense,
            block_bytes_max=file.block_bytes_max,
            sweep_bytes_max=cached_bytes_max(),
        )
        self.begin(
            scan,
            opened.snapshot,
            buffers=opened.buffers,
            mapping=opened.mapping if values else None,
        )
        direct_path = file.open_direct_path()
        cursor._run = Run(self, scan, direct_path, values=values, dup=cursor._dup)
        if cursor._lookup is None:  # another thread has closed it, and found no run to end
            cursor._end_run()
            cursor._check()

    def _next_block(self, run: Run) -> bool:
        cursor = self._cursor
        if run.inherited:
            return False
        try:
            found = run.next_block()
            cursor._txn._verify()
        except BaseException:
            run.revoke()
            try:
                cursor._txn._verify()
            finally:
                cursor._settle()
            raise
        return found
