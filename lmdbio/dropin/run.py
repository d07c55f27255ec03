"""run: records that were read ahead in blocks, while an iterator hands them out.

C hands out the records of a block without Python; this keeps count, so that a cursor can be put
on the record that was handed out last, whenever the run is broken off.
"""

from __future__ import annotations

import os
import time

from lmdbio import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from lmdbio.reading.direct_path import DirectPath

    class Owner(Protocol):
        """The part of an iterator that a run uses."""

        def block(self, count: int) -> None: ...

        def left(self) -> int: ...

        def stop(self) -> None: ...


__all__ = ["Run"]

#: Blocks that grow, up to those that are large enough to pass by the page cache.
BLOCKS_BEFORE_BYPASS = 3


class Run:
    """Records that an iterator hands out from blocks read ahead.

    Attributes:
        owner: the iterator.
        values: whether values are read, besides keys.
    """

    __slots__ = ("_block", "_blocks", "_direct_path", "_dup", "_kept", "_past", "_pid", "_scan",
                 "_tail", "owner", "values")  # fmt: skip

    def __init__(
        self, owner: Owner, scan: _core.Scan, direct_path: DirectPath, *, values: bool, dup: bool
    ) -> None:
        self.owner, self.values = owner, values
        self._direct_path, self._past, self._blocks = direct_path, (0, 0.0), 0
        self._scan, self._dup, self._pid = scan, dup, os.getpid()
        #: Records before the block that is handed out, and in it.
        self._block = 0, 0
        self._kept = 0  # records of a block that was taken back
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
        if not self._kept:
            self._kept = self._scan.advance()
        count = self._kept
        self.owner.block(count)
        self._block, self._kept = (self._block[0], count), 0
        if count:
            self._pass_by()
        return count != 0

    def take_back(self) -> None:
        """Keep a new block back: the record before it stays the position."""
        left = self.owner.left()
        if left:
            self._block, self._kept = (self._block[0], 0), left
            self.owner.block(0)

    def _pass_by(self) -> None:
        """Choose the engine of the blocks to come, and report how fast the last one was."""
        self._blocks += 1
        if self._blocks < BLOCKS_BEFORE_BYPASS:
            return
        size, seconds = self._scan.past()
        if size > self._past[0]:
            now = time.monotonic()
            self._direct_path.record(size - self._past[0], (now - seconds + self._past[1], now))
            self._past = size, seconds
        self._scan.go_past(self._direct_path.engine())

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
        return _core.WANT_KEY | _core.WANT_VALUE if self._dup else _core.WANT_KEY

    def _at(self, handed_out: int, wanted: int) -> tuple[bytes, bytes] | None:
        return self._scan.record(handed_out - 1, wanted) if handed_out else self._tail

    def end(self) -> None:
        """Stop the iterator and end the reads ahead."""
        self.owner.stop()
        self._scan.close()
