"""copying: from one state of a source to a draft that holds the same."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path

from lmdbio import _core
from lmdbio._core import Engine, Meta
from lmdbio.convert.census import Census, count
from lmdbio.convert.comparison import Side, difference
from lmdbio.convert.copier import Copier, copy_pages, put_records
from lmdbio.convert.verify import verify
from lmdbio.errors import CorruptedError, Error
from lmdbio.locate.refusals import refuse_cut
from lmdbio.provenance import name_text
from lmdbio.provenance.freshness import DEPTH, Progress
from lmdbio.system import reader_slots
from lmdbio.system.publish import Draft

__all__ = ["Copy"]

DUPFIXED, REVERSEDUP = 0x10, 0x40  # MDB_DUPFIXED, MDB_REVERSEDUP


class Copy:
    """From one state of a source to a draft.

    Args:
        source: engine of the source's data file.
        target: names the copy in messages.
        folder: whether the source is a folder.
        values: whether values are compared, too.

    Attributes:
        meta: the state that is copied.
        before, after: the source, and the copy.
        copy_seconds, check_seconds: time for copying, and for checking and comparing.
    """

    meta: Meta
    before: Census
    after: Census
    copy_seconds: float
    check_seconds: float

    def __init__(
        self,
        source: Engine,
        target: Path,
        folder: bool,
        progress: Progress | None,
        *,
        values: bool,
    ) -> None:
        self._source, self._target, self._progress = source, target, progress
        self._values = values
        self._data = Path(source.path)
        # A file that a folder's environment wrote is protected by the folder's lock file.
        inside = self._data.name == "data.mdb" and (self._data.parent / "lock.mdb").exists()
        self._subdir = folder or inside
        self._home = self._data.parent if self._subdir else self._data

    def run(self, draft: Draft) -> None:
        """Copies the newest state, and compares."""
        self.meta = _core.read_meta(self._source)
        refuse_cut(self._source, self.meta)  # py-lmdb would die of it
        with self._protected() as is_protected:
            try:
                self._read_state(None)
                with self._copier(draft) as copier:
                    self._begin(copier)
                    _check_room(self._target, self.before.copy_bytes())
                    self._fill(draft, copier)
                self._check(draft)
            except (Error, LookupError) as e:
                # Pages of this state may have been overwritten: then it is not damage.
                if is_protected or self._newest() <= self.meta.txnid + 1:
                    raise
                raise self._moved() from e
            if not is_protected and self._newest() > self.meta.txnid + 1:
                raise self._moved()

    def _read_state(self, txnid: int | None) -> None:
        self.meta = _core.read_meta(self._source, txnid)
        self.before = count(self._source, self.meta, self._progress, "look")

    def _copier(self, draft: Draft) -> Copier:
        """LMDB's own copy, unless it is known to fail."""
        layout = self.meta.layout
        where = [str(self._home), str(int(self._subdir)), str(self.meta.map_size)]
        flags = [one.database.flags for one in self.before.databases]
        # py-lmdb writes pages of the system's size alone, and knows no reversed duplicates.
        able = layout.page_size == mmap.PAGESIZE and not any(f & REVERSEDUP for f in flags)
        self._put = able and any(f & DUPFIXED for f in flags)
        if not self._put:
            return Copier(copy_pages, where)
        names = [name.hex() for name in self.before.names()]
        return Copier(put_records, [*where, str(draft.path), str(layout.version), *names])

    @contextlib.contextmanager
    def _protected(self) -> Iterator[bool]:
        """Holds a reader slot, if the source has a lock file; says whether."""
        lock = self._home / "lock.mdb" if self._subdir else Path(f"{self._data}-lock")
        status = os.fstat(self._source.fd)
        slots = None
        if os.access(lock, os.W_OK):  # where it can't be written to, nothing would be held
            key = (status.st_dev, status.st_ino)
            slots, _ = reader_slots.acquire(str(self._home), key, subdir=self._subdir)
        if slots is None:
            yield False
            return
        with slots.begin():
            yield True

    def _newest(self) -> int:
        return _core.newest_txnid(self._source, _core.read_meta(self._source).layout)

    def _moved(self) -> Error:
        return Error(
            f"{self._data}: was committed to while it was copied, and has no lock file that can "
            "be used, by which its writer would have waited: compact it when its writer rests"
        )

    def _begin(self, copier: Copier) -> None:
        """Looks at the state that the copier holds, which waits meanwhile."""
        txnid = copier.number()
        if txnid is None:
            copier.finish("")
            raise Error(f"{self._home}: LMDB's copy ended before it began")
        if not os.path.samestat(self._data.stat(), os.fstat(self._source.fd)):
            raise Error(f"{self._data}: was replaced by another file: compact it again")
        if txnid != self.meta.txnid:
            self._read_state(txnid)

    def _fill(self, draft: Draft, copier: Copier) -> None:
        began = time.monotonic()
        step = self._progress or (lambda *_: None)
        if self._put:
            total = self.before.records()
            while (put := copier.number()) is not None:
                step(put, total, "copy")
        else:
            page_size, done = self.meta.layout.page_size, 0
            total = self.before.copy_bytes() // page_size
            for piece in copier.pieces():
                draft.write(piece, done)
                done += len(piece)
                step(done // page_size, max(total, done // page_size), "copy")
        copier.finish(self._explain())
        draft.sync()
        self.copy_seconds = time.monotonic() - began

    def _explain(self) -> str:
        """Return the known obstacle to LMDB's copy, if there is one."""
        every = self.before.databases
        fixed = [name_text(one.name) for one in every if one.database.flags & DUPFIXED]
        if not fixed:
            return "; lmdbio verify may tell what is damaged"
        return (
            f"; it is known to fail on databases of duplicates of one size (dupfixed) that have "
            f"many values of one key, as may {', '.join(fixed)}"
        )

    def _check(self, draft: Draft) -> None:
        """Makes sure that the draft is sound, and has what the source has."""
        began, step = time.monotonic(), self._progress
        with Engine(draft.path, depth=DEPTH) as copy:
            try:
                verify(draft.path, progress=step, stage="check")
                self.after = count(copy, _core.read_meta(copy), None, "check")
            except CorruptedError as e:
                text = f"{self._target}: the copy is unsound, and removed: {e}"
                raise CorruptedError(text) from e
            differs = difference(
                Side(self._source, self.before),
                Side(copy, self.after),
                values=self._values,
                progress=step,
                stage="contents",
            )
        if differs is not None:
            raise CorruptedError(
                f"{self._target}: the copy differs from {self._data} in {differs}, and is removed"
            )
        self.check_seconds = time.monotonic() - began


def _check_room(target: Path, wanted: int) -> None:
    """Before hours of copying, not after them."""
    room = os.statvfs(target.parent)
    free = room.f_bavail * room.f_frsize
    if room.f_blocks and wanted > free:  # some file systems do not say
        raise OSError(
            errno.ENOSPC, f"the copy takes {wanted:,} bytes, {free:,} are free here", str(target)
        )
