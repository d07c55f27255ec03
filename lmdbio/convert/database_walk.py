"""Walk the databases of one state once, and write what was found into a draft.

walk -> parts -> digest of every page
-> clues (history? leaves? order?) -> blocks, or a history alone -> draft
"""

from __future__ import annotations

import _thread
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import Database, Engine, Extents, History, KeyFinder, Leaves, Meta
from lmdbio.convert.put_order import GivenOrders, KnownOrder, PutOrder
from lmdbio.errors import IncompatibleError
from lmdbio.locate.refusals import extents_end
from lmdbio.provenance import Name, name_bytes, name_text
from lmdbio.provenance.freshness import Progress, Steps, TreeDigest, join_digests, tree_pages
from lmdbio.provenance.values import DUPSORT, Part, walk
from lmdbio.provenance.writer import Form, Writer
from lmdbio.provenance.writer_model import RECORDS_MAX, Evidence, find_history
from lmdbio.system.log import log
from lmdbio.system.publish import Draft

__all__ = ["Background", "DatabaseWalk"]

#: Seconds that a thread needs to get going.
START_SECONDS = 1e-4


class DatabaseWalk:
    """One walk of the newest state's databases into the draft.

    Args:
        draft: Draft of the provenance file.
        form: argument of ``convert``.
        given: the order of the records, as far as it is known.
        progress: function of (pages done, in all, "walk").

    Attributes:
        writer: writer of the draft.
        trees: the digest of each database written.
        steps: pages walked.
        end: offset of the end of the last record that was met, bytes.
    """

    def __init__(
        self,
        engine: Engine,
        draft: Draft,
        form: Form,
        given: GivenOrders,
        progress: Progress | None,
    ) -> None:
        self._engine, self._form = engine, form
        self._given, self._is_ordered = given, False
        self._hints = engine.identity()
        self._meta = _core.read_meta(engine)
        self.writer = Writer(draft, self._meta.layout, form, engine.path)
        self.trees: list[bytes] = []
        self.end = 0
        self.steps = Steps(progress, 0, "walk")

    def run(self, databases: Sequence[str | bytes | None] | Literal["all"] | None) -> None:
        """Walk the databases of these names, as ``convert`` takes them, and write them."""
        if databases is None or databases == "all":
            named = self._main(always=False)
            for found, db in [] if databases is None and self.writer.made else named:
                self._tree(found, db)
            return
        if isinstance(databases, (str, bytes)):
            raise TypeError("databases must be a sequence of names, 'all' or None")
        for name in dict.fromkeys(map(name_bytes, databases)):
            if name is None:
                self._main(always=True)
            else:
                self._tree(name, _core.find_database(self._engine, self._meta, name))

    def moved(self) -> bool:
        """Return whether something was committed since this walk began.

        Stricter than safety asks for (pages of a state last until the second commit after
        it), because what describes an older state would be refused by ``check`` at once.
        """
        newest = _core.newest_txnid(self._engine, self._meta.layout)
        return newest != self._meta.txnid or self._engine.identity() != self._hints

    def finish(self) -> int:
        """Write the directory; returns the file's size."""
        return self.writer.finish(self._meta, self._hints, join_digests(self.trees))

    def _parts(self, db: Database, digest: TreeDigest) -> Iterator[Part]:
        """Yield the parts of a database; every page goes through the digest."""
        self.steps.total += tree_pages(db)
        with Background() as beside:
            for part in walk(self._engine, self._meta, db):
                if part.chunk is not None:
                    # To hash a page takes as long as all the rest that is done with it.
                    beside.begin(partial(digest.add, part.chunk))
                    self.steps.add(len(part.chunk.pgnos))
                try:
                    yield part
                finally:
                    beside.end()

    def _tree(self, name: Name, db: Database) -> None:
        digest, clues = TreeDigest(), self._clues(name, db)
        self.writer.begin(name, db)
        for part in self._parts(db, digest):
            self._note(clues, part)
            for extents in clues.take():
                self.writer.add(extents)
        self._end(name, clues)
        self.trees.append(digest.finish(name, db))

    def _main(self, always: bool) -> list[tuple[bytes, Database]]:
        """Walk the main database, and write it unless it holds named databases alone.

        Returns:
            The named databases.
        """
        db = self._meta.main_db
        digest, clues = TreeDigest(), self._clues(None, db)
        named: list[tuple[bytes, Database]] = []
        held: list[Extents] = []  # while all of them are named databases
        seen = 0
        wanted = always or not db.entries
        if wanted:
            self.writer.begin(None, db)
        for part in self._parts(db, digest):
            if part.chunk is not None and part.keys:
                named += _core.leaf_databases(self._meta.layout, part.chunk, self._engine.path)
            seen += self._note(clues, part)
            held += clues.take()
            if not wanted and seen > len(named):
                wanted = True
                self.writer.begin(None, db)
            if wanted:
                for extents in held:
                    self.writer.add(extents)
                held.clear()
        if wanted:
            self._end(None, clues)
            self.trees.append(digest.finish(None, db))
        return named

    def _end(self, name: Name, clues: Clues) -> None:
        """End a database in the form that was asked for.

        Raises:
            IncompatibleError: it cannot be described so, or in the order that was given.
        """
        history, reason = None, ""
        if self._form in ("auto", "replay"):
            history, reason = clues.history(self._meta, named=name is not None)
        leaves = clues.leaves()
        if self._form == "leaves" and leaves is None:
            reason = "its leaves alone do not tell where records lie"
        if reason and self._form in ("replay", "leaves"):
            raise IncompatibleError(
                f"{self._engine.path}: {name_text(name)} cannot be described by "
                f'form="{self._form}": {reason}'
            )
        self.writer.know_keys(clues.keys.end())
        if history is not None:
            self.writer.replay(history, clues.take(all_of_them=True))
        else:
            for extents in clues.take(all_of_them=True):
                self.writer.add(extents)
            self.writer.end(leaves)
        each = clues.each()
        if each is not None:
            self.writer.group(each)
            if clues.order is not None:
                raise IncompatibleError(
                    f"{self._engine.path}: {name_text(name)} has keys with many values, of whose "
                    "order nothing can be said"
                )
        elif clues.order is not None:
            if self._is_ordered and self._given.log is not None:
                raise IncompatibleError(
                    f"{self._engine.path}: an order is that of one database; name the one that "
                    "it is of"
                )
            self._is_ordered = True
            self.writer.order(clues.order.end())

    def _clues(self, name: Name, db: Database) -> Clues:
        hopeful = self._form in ("auto", "replay")
        order = self._given.of(name, db, f"{self._engine.path}: {name_text(name)}")
        return Clues(KeyFinder(db.flags), order, hopeful=hopeful, many=bool(db.flags & DUPSORT))

    def _note(self, clues: Clues, part: Part) -> int:
        """Add a part to the clues; returns how many records it has."""
        if part.chunk is not None and part.keys:
            layout = self._meta.layout
            clues.keys.add(layout, part.chunk, self._engine.path)
            if clues.order is not None:
                clues.order.add(layout, part.chunk, self._engine.path)
            clues.add_leaves(_core.leaves_of(layout, part.chunk), part.each)
        clues.add(part.extents)
        self.end = max(self.end, extents_end(part.extents))
        return len(part.extents)


class Background:
    """One thing at a time, done in a thread, or where it did not start, when it is waited for.

    Python's own threads wait for ever for one whose start failed for want of memory; here whoever
    takes the lock first does the work.
    """

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None
        self._taken, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._error: BaseException | None = None

    def begin(self, work: Callable[[], None]) -> None:
        """Start it. Until ``end`` nothing else may be started."""
        self._taken, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._done.acquire()
        self._work = work
        try:
            _thread.start_new_thread(self._run, (work, self._taken, self._done))
            time.sleep(START_SECONDS)
        except (RuntimeError, MemoryError) as error:
            log(f"work is not done in a thread beside, but when it is waited for: {error}")

    def _run(
        self, work: Callable[[], None], taken: _thread.LockType, done: _thread.LockType
    ) -> None:
        if not taken.acquire(blocking=False):  # it came too late
            return
        try:
            work()
        except BaseException as error:
            self._error = error
        finally:
            done.release()

    def end(self) -> None:
        """Wait for what was begun, or do it; raise what it raised."""
        work = self._work
        if work is None:
            return
        if self._taken.acquire(blocking=False):
            self._work = None
            work()
            return
        self._done.acquire()
        self._work = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        # The thread's work is about to go: an interrupt of the waiting is under way already.
        while self._work is not None:
            with contextlib.suppress(BaseException):
                self.end()


class Clues:
    """Gathers on a walk over a database what says how it was made.

    While there is hope for a history extents are held back: with one no table is made.

    Args:
        keys: KeyFinder, which follows all keys.
        order: order of the keys, where the caller gave it.
        hopeful: a history is wanted.
        many: keys may have many values.
    """

    def __init__(
        self, keys: KeyFinder, order: PutOrder | KnownOrder | None, *, hopeful: bool, many: bool
    ) -> None:
        self.keys, self.order = keys, order
        self._many, self._each = many, [np.empty(0, np.uint64)]
        self._hopeful = hopeful and not many
        self._extents: list[Extents] = []
        self._leaves: list[Leaves] = []
        self._count, self._length = 0, 0
        self._reason = "keys may have many values" if many else ""  # why there is no hope

    def add_leaves(self, leaves: Leaves, each: npt.NDArray[np.uint64]) -> None:
        """Add the next leaves of keys, and the values of each (empty: one)."""
        self._leaves.append(leaves)
        self._each.append(each)

    def each(self) -> npt.NDArray[np.uint64] | None:
        """Return how many values each key has; None: they have one each."""
        return np.concatenate(self._each) if self._many else None

    def add(self, extents: Extents) -> None:
        """Add the next records."""
        if not len(extents):
            return
        if not self._count:
            self._length = int(extents["length"][0])
        self._count += len(extents)
        self._extents.append(extents)
        shortest, longest = self.keys.sizes
        if self._count > RECORDS_MAX:
            self._reason = self._reason or f"more than {RECORDS_MAX:,} records"
        elif shortest != longest and not self.keys.may_count:
            self._reason = self._reason or "keys of different lengths"
        elif (extents["length"] != self._length).any():
            self._reason = self._reason or "values of different lengths"
        self._hopeful = self._hopeful and not self._reason

    def take(self, *, all_of_them: bool = False) -> list[Extents]:
        """Hand over the extents held back, once there is no hope any more; none are kept."""
        if self._hopeful and not all_of_them:
            return []
        taken, self._extents = self._extents, []
        return taken

    def leaves(self) -> Leaves | None:
        """Return all leaves; None: they do not tell where the records lie, or one is empty."""
        if self._many:
            return None
        every = np.concatenate(self._leaves) if self._leaves else np.empty(0, _core.LEAF)
        return every if every["records"].all() else None

    def history(self, meta: Meta, *, named: bool) -> tuple[History | None, str]:
        """Find how these records came to be where they are; or None, and why that is not known."""
        if named and meta.main_db.entries != 1:
            return None, "it is not the only database"
        if not self._hopeful or not self._count:
            return None, self._reason or "no records"
        extents = np.concatenate(self._extents)
        shortest, longest = self.keys.sizes
        size = shortest if shortest == longest else None
        return find_history(Evidence(meta, extents, size, named, self.keys.end()))
