"""compact: a copy of an environment without its free pages, each database's pages in order.

    source -> LMDB's compacting copy, in a process of its own -> pipe -> draft
           -> every page checked, all databases compared -> published -> converted

Databases with duplicates of one size (dupfixed), of which LMDB's copy dies when one key has many,
are put record by record, into a new file.

Random insertions, updates and deletions scatter records over a file and leave free pages behind;
a copy in the order of the trees is smaller, and a few large reads fetch many neighbours.

py-lmdb copies, which keeps every kind of database and both data formats. It dies by a signal of
damage that it maps, and a call into it cannot be ended: hence the process of its own, whose pipe
tells how far it is, and ends it when nobody reads on.

Invariants:
  - the source is never written to, and no lock file is made for it;
  - the target appears whole and checked, under a name that was free, or not at all;
  - it holds one state: a reader slot protects that where the source has a lock file, elsewhere
    too many commits meanwhile are an error.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import inspect
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmdbio import _core, snapshot
from lmdbio import convert as conversion
from lmdbio._core import Database, Engine, Extents, Layout, Meta
from lmdbio.drafts import Draft
from lmdbio.errors import CorruptedError, Error, IncompatibleError
from lmdbio.items import Part, walk
from lmdbio.provenance import Name, data_file, find_sidecar, name_text
from lmdbio.staleness import DEPTH, Progress, Steps, tree_pages
from lmdbio.verify import verify

__all__ = ["CompactReport", "Sizes", "compact"]

DUPFIXED, REVERSEDUP = 0x10, 0x40  # MDB_DUPFIXED, MDB_REVERSEDUP
#: Read from the pipe at once; LMDB writes as much.
PIECE_BYTES = 1 << 20
#: From the end of its pipe to the end of the process that copies; then it is killed.
SECONDS_TO_END = 5.0
#: Of what a copying process tells.
NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an environment holds, and how much room it takes.

    Attributes:
        file_bytes: of the data file.
        used_bytes: of its pages that are not free.
        free_pages: pages that wait to be used again.
        records, record_bytes: of all databases; each value of a key with many is a record.
        runs: stretches of records that one jump describes, as ``convert`` counts them.
        sidecar_bytes: of the provenance file; 0: there is none.
    """

    file_bytes: int
    used_bytes: int
    free_pages: int
    records: int
    record_bytes: int
    runs: int
    sidecar_bytes: int


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What ``compact`` did.

    Attributes:
        source, target: the two data files.
        sidecar: the copy's provenance file; None: none was asked for.
        databases: names, None being the main database.
        txnid: the transaction of the source that was copied.
        before, after: source and copy.
        copy_seconds: copying, until it was on the disk.
        convert_seconds: writing the provenance file.
        seconds: all of it.
    """

    source: Path
    target: Path
    sidecar: Path | None
    databases: tuple[Name, ...]
    txnid: int
    before: Sizes
    after: Sizes
    copy_seconds: float
    convert_seconds: float
    seconds: float


def compact(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    convert: bool = True,
    output: str | os.PathLike[str] | None = None,
    subdir: bool | None = None,
    engine: str = "pread",
    depth: int = DEPTH,
    progress: Progress | None = None,
) -> CompactReport:
    """Copies an environment without its free pages, and writes the copy's provenance file.

    The copy is of the same kind, a folder or a single file, and keeps the data format, page size,
    map size and databases. It gets its name when all of it is on the disk, every page of
    it was checked, and every database has as many records as the source's, of the same lengths.
    A draft that a killed run left is removed by the next run for the same target.

    Args:
        source: an environment's folder or file. A lock file that exists is used (a reader slot
            keeps the state that is copied); none is made.
        target: a path that is free; for a folder it may also be an empty folder.
        convert: write a provenance file.
        output: the place of the provenance file, as in ``convert``.
        subdir: as in ``provenance.data_file``.
        engine, depth: how pages are read where they are checked.
        progress: called with (done, in all, stage): pages in the stages "look", "copy" and
            "check", then ``convert``'s stages.

    Raises:
        FileExistsError: the target.
        OSError: too little room (before anything is written), or the target can't be written.
        ValueError: the target lies inside of the source.
        IncompatibleError: LMDB cannot copy these databases.
        Error: commits came while it was copied without a reader slot.
        InvalidError, VersionMismatchError, CorruptedError, ShortReadError: the source.
    """
    began = time.monotonic()
    data, target = data_file(source, subdir), Path(target)
    folder = Path(source).is_dir()
    _check_target(target, Path(source), folder)
    with Engine(data, engine, depth) as reader:
        copy = _Copy(reader, target, folder, progress)
        with Draft(target, "the copy", inside="data.mdb" if folder else None) as draft:
            copy.run(draft)
            copy.check(draft, engine, depth)
            draft.publish()
    copied = time.monotonic()
    sidecar, size = None, 0
    if convert:
        try:
            made = conversion.convert(target, output=output, progress=progress)
            sidecar, size = made.sidecar, made.sidecar_bytes
        except (Error, OSError) as e:
            raise Error(f"{target} is whole, but has no provenance file: {e}") from e
    ended = time.monotonic()
    return CompactReport(
        source=data,
        target=target / "data.mdb" if folder else target,
        sidecar=sidecar,
        databases=tuple(one.name for one in copy.before.databases),
        txnid=copy.meta.txnid,
        before=copy.before.sizes(_sidecar_bytes(data)),
        after=copy.after.sizes(size),
        copy_seconds=copy.seconds,
        convert_seconds=ended - copied,
        seconds=ended - began,
    )


def _sidecar_bytes(data: Path) -> int:
    with contextlib.suppress(OSError):
        return find_sidecar(data).stat().st_size
    return 0


def _check_target(target: Path, source: Path, folder: bool) -> None:
    """Nothing is ever replaced but an empty folder."""
    if not target.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, "there is no such folder to put the copy into", str(target.parent)
        )
    if folder and target.parent.resolve().is_relative_to(source.resolve()):
        raise ValueError(f"{target}: lies inside of {source}, to which nothing is written")
    if not os.path.lexists(target):
        return
    if target.is_dir() and not folder:
        raise FileExistsError(
            errno.EEXIST,
            f"is a folder; a copy of {source} is a single file",
            str(target),
        )
    if not folder or target.is_symlink() or not target.is_dir() or any(target.iterdir()):
        raise FileExistsError(
            errno.EEXIST, "exists already: name a path that is free", str(target)
        )


def _check_room(target: Path, wanted: int) -> None:
    """Before hours of copying, not after them."""
    room = os.statvfs(target.parent)
    free = room.f_bavail * room.f_frsize
    if room.f_blocks and wanted > free:  # some file systems do not say
        raise OSError(
            errno.ENOSPC, f"the copy takes {wanted:,} bytes, {free:,} are free here", str(target)
        )


# --- what an environment holds -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Contents:
    """One database: what every copy of it has as well, and its runs.

    Attributes:
        lengths: digest of all values' lengths, in key order.
    """

    name: Name
    pad: int
    flags: int
    entries: int
    record_bytes: int
    lengths: bytes
    runs: int

    @property
    def same(self) -> tuple[Name, int, int, int, int, bytes]:
        """What copies have in common."""
        return self.name, self.pad, self.flags, self.entries, self.record_bytes, self.lengths


@dataclass(frozen=True, slots=True)
class _Census:
    """All databases of one state.

    Attributes:
        databases: by name, the main one, which is left out if it only holds the others, first.
        pages: up to the last one.
        free_pages: of those.
        list_pages: taken by the list of free pages.
    """

    databases: tuple[_Contents, ...]
    page_size: int
    file_bytes: int
    pages: int
    free_pages: int
    list_pages: int

    def copy_bytes(self) -> int:
        """How large LMDB's compacting copy will be: the list of free pages goes as well."""
        return (self.pages - self.free_pages - self.list_pages) * self.page_size

    def sizes(self, sidecar_bytes: int) -> Sizes:
        return Sizes(
            file_bytes=self.file_bytes,
            used_bytes=(self.pages - self.free_pages) * self.page_size,
            free_pages=self.free_pages,
            records=sum(one.entries for one in self.databases),
            record_bytes=sum(one.record_bytes for one in self.databases),
            runs=sum(one.runs for one in self.databases),
            sidecar_bytes=sidecar_bytes,
        )


class _Tally:
    """Adds up the records of one database.

    Args:
        layout: of its file.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout, self._pending = layout, np.empty(0, _core.EXTENT)
        self._digest = hashlib.blake2b(digest_size=16)
        self._runs = self._record_bytes = 0

    def add(self, extents: Extents) -> None:
        self._digest.update(extents["length"].tobytes())
        self._record_bytes += int(extents["length"].sum(dtype=np.uint64))
        self._pending = np.concatenate([self._pending, extents])
        while len(self._pending) >= _core.BLOCK_RECORDS_MAX:
            self._block()

    def _block(self) -> None:
        """Runs end with blocks, as they do in provenance files."""
        block = _core.encode_block(self._layout, self._pending)
        self._runs += block.runs
        self._pending = self._pending[block.records :]

    def end(self, name: Name, db: Database) -> _Contents:
        while len(self._pending):
            self._block()
        return _Contents(
            name,
            db.pad,
            db.flags,
            db.entries,
            self._record_bytes,
            self._digest.digest(),
            self._runs,
        )


def _count(engine: Engine, meta: Meta, progress: Progress | None, stage: str) -> _Census:
    """Walks all databases. Only branch and leaf pages are read."""
    steps, layout = Steps(progress, 0, stage), meta.layout

    def parts(db: Database) -> Iterator[Part]:
        steps.total += tree_pages(db)
        for part in walk(engine, meta, db):
            if part.chunk is not None:
                steps.add(len(part.chunk.pgnos))
            yield part

    def contents(name: Name, db: Database) -> _Contents:
        tally = _Tally(layout)
        for part in parts(db):
            tally.add(part.extents)
        return tally.end(name, db)

    main, tally = meta.main_db, _Tally(layout)
    named: list[tuple[bytes, Database]] = []
    for part in parts(main):
        if part.chunk is not None and part.keys:
            named += _core.leaf_databases(layout, part.chunk, engine.path)
        tally.add(part.extents)
    every = [contents(name, db) for name, db in named]
    if not named or main.entries > len(named):
        every.insert(0, tally.end(None, main))
    firsts = [part.extents for part in parts(meta.free_db)]
    return _Census(
        databases=tuple(every),
        page_size=layout.page_size,
        file_bytes=engine.size(),
        pages=meta.last_pgno + 1,
        free_pages=_free_pages(engine, meta, firsts),
        list_pages=tree_pages(meta.free_db) + meta.free_db.overflow_pages,
    )


def _free_pages(engine: Engine, meta: Meta, lists: list[Extents]) -> int:
    """Adds up the lists of free pages (MDB_IDL), each of which begins with its count."""
    total = 0
    for extents in lists:
        wanted = np.empty(len(extents), _core.EXTENT)
        wanted["offset"], wanted["length"] = extents["offset"], 8
        plan = _core.make_plan(
            wanted,
            gap_bytes_max=meta.layout.page_size,
            request_bytes_max=PIECE_BYTES,
            alignment=engine.alignment,
        )
        memory = _core.Memory(plan.totals.buffer_bytes)
        engine.read_plan(plan, memory.address, memory)
        content = np.frombuffer(_core.lend(memory.address, memory.size, memory), np.uint8)
        places = plan.slices.astype(np.int64)[:, None] + np.arange(8)
        counts = content[places].reshape(-1).view("<u8")
        room = extents["length"] // 8  # the count itself included
        if (counts >= room).any() or int(counts.sum()) > meta.last_pgno:
            raise CorruptedError(f"{engine.path}: the list of free pages is damaged")
        total += int(counts.sum())
    if total > meta.last_pgno:
        raise CorruptedError(f"{engine.path}: the list of free pages is damaged")
    return total


# --- copying -----------------------------------------------------------------------------


class _Copy:
    """From one state of a source to a draft.

    Args:
        source: its data file.
        target: names the copy in messages.
        folder: the source is a folder.

    Attributes:
        meta: the state that is copied.
        before, after: the source, and the copy.
        seconds: taken by copying.
    """

    meta: Meta
    before: _Census
    after: _Census
    seconds: float

    def __init__(
        self, source: Engine, target: Path, folder: bool, progress: Progress | None
    ) -> None:
        self._source, self._target, self._progress = source, target, progress
        self._data = Path(source.path)
        # A file that a folder's environment wrote is protected by the folder's lock file.
        inside = self._data.name == "data.mdb" and (self._data.parent / "lock.mdb").exists()
        self._subdir = folder or inside
        self._home = self._data.parent if self._subdir else self._data

    def run(self, draft: Draft) -> None:
        """Copies the newest state."""
        self.meta = _core.read_meta(self._source)  # py-lmdb would die of a cut file
        with self._protected() as held:
            try:
                self._look(None)
                with self._copier(draft) as copier:
                    self._begin(copier)
                    _check_room(self._target, self.before.copy_bytes())
                    self._fill(draft, copier)
            except (Error, LookupError) as e:
                # Pages of this state may have been overwritten: then it is not damage.
                if held or self._newest() <= self.meta.txnid + 1:
                    raise
                raise self._moved() from e
            if not held and self._newest() > self.meta.txnid + 1:
                raise self._moved()

    def _look(self, txnid: int | None) -> None:
        self.meta = _core.read_meta(self._source, txnid)
        self.before = _count(self._source, self.meta, self._progress, "look")

    def _copier(self, draft: Draft) -> _Copier:
        """LMDB's own copy, unless it is known to fail."""
        layout = self.meta.layout
        where = [str(self._home), str(int(self._subdir)), str(self.meta.map_size)]
        flags = [one.flags for one in self.before.databases]
        # py-lmdb writes pages of the system's size alone, and knows no reversed duplicates.
        able = layout.page_size == mmap.PAGESIZE and not any(f & REVERSEDUP for f in flags)
        self._put = able and any(f & DUPFIXED for f in flags)
        if not self._put:
            return _Copier(_copy_pages, where)
        names = [one.name.hex() for one in self.before.databases if one.name is not None]
        return _Copier(_put_records, [*where, str(draft.path), str(layout.version), *names])

    @contextlib.contextmanager
    def _protected(self) -> Iterator[bool]:
        """Holds a reader slot, if the source has a lock file; says whether."""
        lock = self._home / "lock.mdb" if self._subdir else Path(f"{self._data}-lock")
        status = os.fstat(self._source.fd)
        slots = None
        if os.access(lock, os.W_OK):  # where it can't be written to, nothing would be held
            key = (status.st_dev, status.st_ino)
            slots = snapshot.acquire(str(self._home), key, subdir=self._subdir)
        if slots is None:
            yield False
            return
        try:
            slot = slots.begin()
            try:
                yield True
            finally:
                slot.release()
        finally:
            slots.release()

    def _newest(self) -> int:
        return _core.newest_txnid(self._source, _core.read_meta(self._source).layout)

    def _moved(self) -> Error:
        return Error(
            f"{self._data}: was committed to while it was copied, and has no lock file that can "
            "be used, by which its writer would have waited: compact it when its writer rests"
        )

    def _begin(self, copier: _Copier) -> None:
        """Looks at the state that the copier holds, which waits meanwhile."""
        txnid = copier.number()
        if txnid is None:
            copier.finish("")
            raise Error(f"{self._home}: LMDB's copy ended before it began")
        if not os.path.samestat(self._data.stat(), os.fstat(self._source.fd)):
            raise Error(f"{self._data}: was replaced by another file: compact it again")
        if txnid != self.meta.txnid:
            self._look(txnid)

    def _fill(self, draft: Draft, copier: _Copier) -> None:
        began = time.monotonic()
        step = self._progress or (lambda *_: None)
        if self._put:
            every = self.before.databases
            # Beside its records the main database has the others' names.
            named = len(every) - 1 if every[0].name is None else 0
            total = sum(one.entries for one in every) - named
            while (put := copier.number()) is not None:
                step(put, total, "copy")
        else:
            page_size, done = self.before.page_size, 0
            total = self.before.copy_bytes() // page_size
            for piece in copier.pieces():
                draft.write(piece, done)
                done += len(piece)
                step(done // page_size, max(total, done // page_size), "copy")
        copier.finish(self._explain())
        draft.sync()
        self.seconds = time.monotonic() - began

    def _explain(self) -> str:
        """What is known to stop LMDB's copy."""
        fixed = [name_text(one.name) for one in self.before.databases if one.flags & DUPFIXED]
        if not fixed:
            return "; lmdbio verify may tell what is damaged"
        return (
            f"; it is known to fail on databases of duplicates of one size (dupfixed) that have "
            f"many values of one key, as may {', '.join(fixed)}"
        )

    def check(self, draft: Draft, engine: str, depth: int) -> None:
        """Makes sure that the draft is sound, and has what the source has."""
        step = self._progress
        try:
            verify(
                draft.path,
                engine=engine,
                depth=depth,
                progress=None if step is None else lambda a, b, _: step(a, b, "check"),
            )
            with Engine(draft.path, engine, depth) as copy:
                meta = _core.read_meta(copy)
                self.after = _count(copy, meta, None, "check")
        except CorruptedError as e:
            raise CorruptedError(f"{self._target}: the copy is unsound, and removed: {e}") from e
        was, now = self.meta.layout, meta.layout
        if (was.version, was.page_size) != (now.version, now.page_size):
            raise CorruptedError(f"{self._target}: the copy has another format, and is removed")
        then = [one.same for one in self.before.databases]
        if then != [one.same for one in self.after.databases]:
            raise CorruptedError(
                f"{self._target}: the copy has other records than {self._data}, and is removed"
            )


class _Copier:
    """The process in which LMDB works; it ends with its pipe, also when we are killed.

    Args:
        program: a function that needs nothing around it, so that the process is soon ready.
        arguments: of the program; the first is the environment that is copied.
    """

    def __init__(self, program: Callable[[], None], arguments: list[str]) -> None:
        self._home = arguments[0]
        code = f"{inspect.getsource(program)}\n{program.__name__}()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            start_new_session=True,  # Ctrl-C is ours to handle
        )

    def _pipe(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def number(self) -> int | None:
        """The next eight bytes; None at the end."""
        head = b""
        while len(head) < NUMBER_BYTES:
            more = os.read(self._pipe(), NUMBER_BYTES - len(head))
            if not more:
                return None
            head += more
        return int.from_bytes(head, "little")

    def pieces(self) -> Iterator[memoryview]:
        """All that follows; each piece is good until the next one is asked for."""
        with contextlib.suppress(OSError):  # fewer turns; the kernel may have its limits
            fcntl.fcntl(self._pipe(), fcntl.F_SETPIPE_SZ, PIECE_BYTES)
        memory = memoryview(bytearray(PIECE_BYTES))
        while taken := os.readv(self._pipe(), [memory]):
            yield memory[:taken]

    def finish(self, hint: str) -> None:
        """Waits for the end of the process.

        Raises:
            IncompatibleError: it died. ``hint`` says what that may come from.
            Error: LMDB refused, and why.
        """
        assert self._process.stderr is not None
        words = self._process.stderr.read().decode(errors="replace").split("\n")
        status = self._process.wait()
        if status < 0:
            name = signal.Signals(-status).name
            raise IncompatibleError(f"{self._home}: LMDB's compacting copy died of {name}{hint}")
        if status:
            last = next((line for line in reversed(words) if line.strip()), f"status {status}")
            raise Error(f"{self._home}: LMDB's compacting copy failed: {last.strip()}{hint}")

    def __enter__(self) -> _Copier:
        return self

    def __exit__(self, *_: object) -> None:
        # Its next write fails, and LMDB ends in order.
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _copy_pages() -> None:
    """A program: its transaction and then all pages, to standard output."""
    import os
    import sys

    import lmdb

    home, subdir, map_size = sys.argv[1:]
    folder, map_bytes = subdir == "1", int(map_size)
    try:
        with lmdb.open(home, map_bytes, folder, readonly=True, lock=False) as env:
            with env.begin() as txn:
                os.write(1, int(txn.id()).to_bytes(8, "little"))
                env.copyfd(1, compact=True, txn=txn)
    except (lmdb.Error, OSError, MemoryError) as error:
        sys.exit(str(error) or type(error).__name__)


def _put_records() -> None:
    """A program: puts every record, in order and in one transaction, into a new file.

    Tells its transaction, and from time to time how many items were put, on standard output.
    """
    import itertools
    import os
    import sys

    import lmdb

    home, subdir, map_size, target, version, *names = sys.argv[1:]
    folder, map_bytes, count = subdir == "1", int(map_size), 0
    named = [bytes.fromhex(name) for name in names]
    keys = {name + (b"" if version == "1" else b"\0") for name in named}

    def tell(number: int) -> None:
        os.write(1, number.to_bytes(8, "little"))

    try:
        old = lmdb.open(home, map_bytes, folder, True, lock=False, max_dbs=len(named))
        fresh = {"subdir": False, "lock": False, "sync": False}
        new = lmdb.open(
            target, map_bytes, max_dbs=len(named), lib_version=int(version != "1"), **fresh
        )
        with old, new, old.begin(buffers=True) as source, new.begin(write=True) as made:
            tell(source.id())
            for name in [None, *named]:
                db = old.open_db(name, source, create=False)
                items = source.cursor(db).iternext()
                if name is None:
                    items = (item for item in items if bytes(item[0]) not in keys)
                copy = made.cursor(new.open_db(name, made, **db.flags()))
                while some := list(itertools.islice(items, 1000)):
                    copy.putmulti(some, dupdata=True, append=True)
                    count += len(some)
                    tell(count)
    except (lmdb.Error, OSError, MemoryError) as error:
        sys.exit(str(error) or type(error).__name__)
