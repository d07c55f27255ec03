"""Find records one by one, as LMDB's own readers find them: by a cursor that moves.

A ``CursorWalk`` is a database whose records are counted while a cursor comes by them. It goes
round and round, as Caffe's readers do, and never back.

With many roots, one cursor goes through all records instead of one for each root, and is handed
from root to root (``Relay``):

    iteration 0   root 0's records | root 1's | root 2's
    iteration 1   root 0's records | ...

Each seeks its own and hands the cursor on. It is not sent further than somebody asks for, so that
it waits where nothing is needed yet; and not held up by a root whose own ranks are slow: that one
seeks what the others ask for, and keeps it. A root that has left is passed over: the
root that has the cursor then goes over its records, too.

Source: LMDBIO (ACM TOPC 2019), sequential seek (LMDB, LMM) and cursor handoff (LMM-DM).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import CorruptedError, IncompatibleError
from lmdbio.locate.open_database import OpenDatabase, judge, opening, settled
from lmdbio.locate.refusals import refuse_headers
from lmdbio.planning.schedule import Run, Schedule
from lmdbio.provenance import Paths, data_files, in_words, name_bytes

__all__ = ["Handover", "Relay", "CursorWalk", "open_cursor_walk"]

U64 = npt.NDArray[np.uint64]

#: Pages that a walk keeps: a path from the root, and a leaf to come back to.
PAGES_BYTES = 1 << 20
#: Records that a cursor comes by per call, so that signals and other ranks are heard between.
STEP_RECORDS = 256


@dataclass(slots=True, eq=False)
class CursorWalk(OpenDatabase):
    """A database whose records are found by walking past them.

    Attributes:
        position: the record that the cursor comes to next, counted on beyond the end: round r of
            N records has r*N to (r+1)*N.
    """

    database: _core.Database
    _cursor: _core.Cursor
    position: int = 0

    def again(self) -> CursorWalk:
        """Return another walk through the same open file, from the first record on."""
        return replace(self, _cursor=self._anew(), position=0)

    def extents(self, indices: U64, alive: Callable[[], None] = lambda: None) -> _core.Extents:
        """Find the extents (dtype ``EXTENT``) of records that lie ahead, each at most a round.

        Args:
            indices: indices of the records, below ``count``, in the order of the walk.
            alive: function that is called now and then; may raise to give up.

        Raises:
            CorruptedError, OSError, ShortReadError: a page is damaged or cannot be read.
            Error: the file has moved on.
        """
        found = np.empty(len(indices), _core.EXTENT)
        done = 0
        while done < len(indices):
            # Neighbours are walked in one go; a record asked for again is one round further.
            run = 1
            while done + run < len(indices) and indices[done + run] == indices[done] + run:
                run += 1
            self.skip((int(indices[done]) - self.position) % self.count, alive)
            self._walk(found[done : done + run], alive)
            done += run
        return found

    def first(self, count: int) -> _core.Extents:
        """Find the extents of the next ``count`` records; raises as ``extents``."""
        found = np.empty(count, _core.EXTENT)
        self._walk(found, lambda: None)
        return found

    def skip(self, count: int, alive: Callable[[], None] = lambda: None) -> None:
        """Walk past records without telling where they lie; arguments as for ``extents``."""
        while count:
            step = self._step(count)
            try:
                made = _core.skip_records(self._cursor, step)
            except Exception as error:
                judge(self._pages, self.meta, error)
                raise
            self._came(step, made)
            count -= step
            alive()

    def _walk(self, into: _core.Extents, alive: Callable[[], None]) -> None:
        done = 0
        while done < len(into):
            step = self._step(len(into) - done)
            try:
                found = _core.walk_records(self._cursor, step)
            except Exception as error:
                judge(self._pages, self.meta, error)
                raise
            self._came(step, len(found))
            into[done : done + step] = found
            done += step
            alive()

    def _step(self, wanted: int) -> int:
        """Return how many records to walk in one call; goes back to the first after the last."""
        at = self.position % self.count
        if at == 0:
            self._cursor = self._anew()
        return min(wanted, self.count - at, STEP_RECORDS)

    def _came(self, wanted: int, made: int) -> None:
        self.position += made
        if made < wanted:
            self.guard()
            raise CorruptedError(
                f"{self.path}: the tree ends after {self.position % self.count} records, and "
                f"{self.count} are counted"
            )

    def _anew(self) -> _core.Cursor:
        pages = _core.Pages(self._pages, self.meta.layout, PAGES_BYTES)
        return _core.Cursor(pages, self.database)

    def bookmark(self) -> bytes:
        """Return where the cursor stands; empty: before the first record."""
        return b"" if self.position % self.count == 0 else _core.bookmark_of(self._cursor)

    def go(self, position: int, bookmark: bytes) -> None:
        """Go on where another process's cursor stands.

        Raises:
            CorruptedError: there is no such bookmark.
        """
        if (position % self.count == 0) != (not bookmark):
            size = len(bookmark)
            raise CorruptedError(f"{self.path}: {size} bytes are no bookmark of {position}")
        if bookmark:
            _core.go_to(self._cursor, bookmark)
        self.position = position


def open_cursor_walk(path: Paths, *, db: bytes | str | None = None) -> CursorWalk:
    """Open a database for walking, through a mapping of the file as LMDB has it.

    Raises:
        OSError, Error: the file or its metas cannot be read.
        LookupError: no such named database; or ``db`` is None, and the main database holds nothing
            but named ones.
        IncompatibleError: these are several files.
    """
    files = data_files(path)
    if len(files) > 1:
        raise IncompatibleError(
            f"{in_words(files)}: a cursor walks one file; several as one need a mode with "
            'locate="scan" or "provenance", as mode="auto" has'
        )
    data = files[0]
    name = name_bytes(db)

    def begin() -> CursorWalk:
        with opening(data, name, "mmap") as (pages, meta, found):
            refuse_headers(pages, meta, name, found)
            cursor = _core.Cursor(_core.Pages(pages, meta.layout, PAGES_BYTES), found)
            return CursorWalk(
                pages.path, name, meta, found.entries, pages, pages.size(), found, cursor
            )

    return settled(data, begin)


# --- one cursor for many roots -----------------------------------------------------------


class Handover(NamedTuple):
    """A cursor on its way.

    Attributes:
        to: the team whose root takes it.
        body: message to send, bytes.
    """

    to: int
    body: bytes


@dataclass(slots=True)
class _Sought:
    """A run of this root's, which the cursor has come by."""

    block: int
    length: int
    begins: tuple[int, bytes]  # where its records begin
    extents: _core.Extents | None  # None: forgotten, and to be walked anew


#: Runs sought ahead whose extents are kept; of further ones, the place where they begin.
SOUGHT_MAX = 64
_CURSOR = struct.Struct("<QQ")  # number of the run, position
_DEMAND = struct.Struct("<Q")  # a block


class Relay:
    """One root's part in seeking all records with one cursor.

    Pure but for the walk: what is to be sent is returned, what came is handed in.

    Args:
        walked: CursorWalk of this root, its own view of the file.
        schedule: Schedule with blocks of one iteration.
        team: team whose root this is.
    """

    def __init__(self, walked: CursorWalk, schedule: Schedule, team: int) -> None:
        self._walked, self._schedule, self._team = walked, schedule, team
        self._course = schedule.course(0)
        mine = [at for at, run in enumerate(self._course) if run.team == team]
        self._each, self._last_at = len(mine), max(mine, default=0)
        self._run = 0  # the next to be sought, if the cursor is here
        #: A bit for each team that has records at all; for each that wants nothing more.
        self._everybody = sum(1 << one for one in {run.team for run in self._course})
        self._left = 0
        self._demand = 0  # the cursor goes on to this block at least
        self._sought: deque[_Sought] = deque()
        self._own = 0  # runs of this root that were sought
        self._after: tuple[int, bytes] | None = None  # the bookmark behind the last of them
        self._start = schedule.start % walked.count
        #: This root has no part in it any more.
        self.is_out = not self._each or schedule.blocks == 0
        self.holds = not self.is_out and self._course[0].team == team

    # --- what comes

    def come(self, body: bytes) -> None:
        """Take the cursor that another root has sent.

        Raises:
            RuntimeError, CorruptedError: it is none.
        """
        size = _CURSOR.size + self._mask_bytes()
        if self.holds or self.is_out or len(body) < size:
            raise RuntimeError(f"a cursor of {len(body)} bytes that cannot be")
        self._run, position = _CURSOR.unpack_from(body)
        self._left |= int.from_bytes(body[_CURSOR.size : size], "little")
        self._walked.go(position, body[size:])
        self.holds = True

    def hear(self, body: bytes) -> None:
        """Take note that a root asks for the cursor to go on."""
        if len(body) == _DEMAND.size:
            self._demand = max(self._demand, _DEMAND.unpack(body)[0])

    @staticmethod
    def demand(block: int) -> bytes:
        """Return the letter that asks for the cursor to go on to a block."""
        return _DEMAND.pack(block)

    def _mask_bytes(self) -> int:
        return -(-len(self._schedule.teams) // 8)

    # --- seeking

    def seek(self, block: int, alive: Callable[[], None] = lambda: None) -> Handover | None:
        """Seek as far as needed: this root's records up to ``block``, and what others ask for.

        Args:
            block: number of the block that this root reads next.
            alive: function that is called now and then; may raise to give up.

        Returns:
            Which team the cursor goes on to; None: it stays, or is not here.
        """
        until = max(block, self._demand)
        while self.holds:
            number, at = divmod(self._run, len(self._course))
            blocks = self._schedule.blocks
            if self._left == self._everybody or (blocks is not None and number >= blocks):
                self.holds, self.is_out = False, True
                return None
            self._begin(alive)
            run = self._course[at]
            is_out = bool(self._left >> run.team & 1)
            if run.team != self._team and not is_out:
                return self._hand_over(run.team)
            if is_out or self._is_known(number, at):
                self._walked.skip(run.length, alive)
            elif number > until:
                return None
            else:
                own = self._schedule.course(number)[at]
                self._seek_own(self._walked, own, number, alive)
            self._run += 1
        return None

    def seek_alone(self, block: int, alive: Callable[[], None] = lambda: None) -> None:
        """Seek this root's records of ``block`` without the cursor, from where it last was.

        By a walk of its own: the cursor may come meanwhile.
        """
        walk = self._walked.again()
        if self._after is not None:
            walk.go(*self._after)
        mine = [at for at, run in enumerate(self._course) if run.team == self._team]
        while not self.has(block):
            number, at = divmod(self._own, self._each)
            run = self._schedule.course(number)[mine[at]]
            walk.skip(self._start + run.first - walk.position, alive)
            self._seek_own(walk, run, number, alive)

    def _is_known(self, block: int, at: int) -> bool:
        """Return whether a run of this root's was sought before the cursor came by it."""
        before = sum(run.team == self._team for run in self._course[:at])
        return self._course[at].team == self._team and block * self._each + before < self._own

    def leave(self) -> None:
        """Note that this root wants nothing more. It is out once the cursor has told others."""
        self._left |= 1 << self._team

    def _begin(self, alive: Callable[[], None]) -> None:
        """Go to where the sequence starts, if no root has."""
        if self._run == 0 and self._walked.position < self._start:
            self._walked.skip(self._start - self._walked.position, alive)

    def _seek_own(self, walk: CursorWalk, run: Run, block: int, alive: Callable[[], None]) -> None:
        if walk.position != self._start + run.first:
            raise RuntimeError(
                f"{walk.path}: a cursor is at {walk.position}, and not where a run begins, "
                f"{self._start + run.first}"
            )
        bookmark = walk.position, walk.bookmark()
        found = walk.extents(_indices(walk.position, run.length, walk.count), alive)
        stored = found if len(self._sought) < SOUGHT_MAX else None
        self._sought.append(_Sought(block, run.length, bookmark, stored))
        self._own += 1
        self._after = walk.position, walk.bookmark()

    def _hand_over(self, team: int) -> Handover:
        walked, blocks = self._walked, self._schedule.blocks
        self.holds = False
        last = len(self._course) * ((blocks or 0) - 1) + self._last_at
        is_done = blocks is not None and self._run > last
        self.is_out = is_done or bool(self._left >> self._team & 1)
        mask = self._left.to_bytes(self._mask_bytes(), "little")
        body = _CURSOR.pack(self._run, walked.position) + mask + walked.bookmark()
        return Handover(team, body)

    @property
    def sought(self) -> int:
        """Number of this root's runs that the cursor has come by."""
        return self._own

    def has(self, block: int) -> bool:
        """Return whether all of this root's records of a block are found."""
        return sum(one.block == block for one in self._sought) == self._each

    def upcoming(self, block: int) -> Iterator[tuple[int, _core.Extents]]:
        """Yield (number of the first record, extents) of each run of a block that is kept."""
        for one in self._sought:
            if one.block == block and one.extents is not None:
                yield one.begins[0] % self._walked.count, one.extents

    def found(self, block: int, alive: Callable[[], None] = lambda: None) -> _core.Extents | None:
        """Return the extents of this root's records of a block, once; None: not yet sought."""
        if not self.has(block):
            return None
        parts = []
        for one in [self._sought.popleft() for _ in range(self._each)]:
            parts.append(self._recall(one, alive) if one.extents is None else one.extents)
        return np.concatenate(parts) if parts else np.empty(0, _core.EXTENT)

    def _recall(self, one: _Sought, alive: Callable[[], None]) -> _core.Extents:
        """Walk a run once more."""
        walked = self._walked.again()
        walked.go(*one.begins)
        return walked.extents(_indices(one.begins[0], one.length, walked.count), alive)


def _indices(position: int, length: int, count: int) -> U64:
    """Return the records that a walk comes by from a position on."""
    return (np.arange(position, position + length) % count).astype(np.uint64)
