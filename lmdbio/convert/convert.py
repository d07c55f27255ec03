"""convert: one walk over a database becomes its provenance file.

    walk -> extents -> blocks -> draft -> read back and compared -> published

Only branch and leaf pages are read: they alone tell where every value lies.

Invariants:
  - a sidecar appears under its name whole, compared with what was walked, or not at all;
  - it describes one state: a commit during the walk starts the walk again;
  - nothing but a provenance file is ever replaced.
"""

from __future__ import annotations

import errno
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import (
    BlockForm,
    Database,
    Engine,
    Extents,
    History,
    KeyFinder,
    Leaves,
    Meta,
)
from lmdbio.errors import CorruptedError, Error, IncompatibleError, ProvenanceError
from lmdbio.provenance import (
    MAGIC,
    PROVENANCE_DIR,
    Name,
    Provenance,
    data_file,
    name_text,
    sidecar_file,
)
from lmdbio.provenance.freshness import (
    DEPTH,
    Progress,
    Steps,
    TreeDigest,
    join_digests,
    tree_pages,
)
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.put_order import KeyLog, KnownOrder, PutOrder, Settled
from lmdbio.provenance.values import DUPSORT, Part, walk
from lmdbio.provenance.writer import Form, Made, Writer
from lmdbio.provenance.writer_model import RECORDS_MAX, Evidence, find_history
from lmdbio.system.background import Beside
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.publish import Draft, unwritable

__all__ = ["ConvertReport", "Form", "convert"]

I64 = npt.NDArray[np.int64]

ATTEMPTS = 3
#: Where it can't be written.
WHAT = "the provenance file"
HINT = f"; name another place with --output or {PROVENANCE_DIR}"


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What ``convert`` did.

    Attributes:
        data, sidecar: the two files.
        databases: names, None being the main database.
        records, record_bytes: over all of them.
        runs: stretches of records that one jump describes.
        replayed: databases whose records are found by replaying how they were made.
        blocks_runs, blocks_explicit, blocks_leaves: blocks of each form, of the others.
        pages_read: branch and leaf pages read.
        bytes_read, requests: what the engine read.
        sidecar_bytes: size of the provenance file.
        attempts: above 1 when the database was committed to meanwhile.
        seconds: taken.
    """

    data: Path
    sidecar: Path
    databases: tuple[Name, ...]
    records: int
    record_bytes: int
    runs: int
    replayed: int
    blocks_runs: int
    blocks_explicit: int
    blocks_leaves: int
    pages_read: int
    bytes_read: int
    requests: int
    sidecar_bytes: int
    attempts: int
    seconds: float


def convert(
    path: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    databases: Sequence[str | bytes | None] | Literal["all"] | None = None,
    overwrite: bool = True,
    form: Form = "auto",
    order: Iterable[bytes] | Mapping[Name, KeyLog | I64] | None = None,
    subdir: bool | None = None,
    engine: str = "pread",
    depth: int = DEPTH,
    progress: Progress | None = None,
) -> ConvertReport:
    """Writes the provenance file of a database. Only branch and leaf pages are read.

    The file appears whole: it is written under another name, read back, every record decoded
    and compared with what was walked, and then renamed. A commit during the walk starts it
    again.

    Args:
        path: the environment's folder or file.
        output: a file, or a folder; None: as ``provenance.sidecar_file`` says.
        databases: names, None in the list being the main database; "all"; or None: the main
            database, or all named ones when it holds nothing else.
        overwrite: replace an existing provenance file.
        form: "replay": how the database was made; "runs": stretches of pages; "leaves": the leaf
            pages, from which the rest is read; "explicit": each offset; "auto": the smallest that
            is exact, where leaves have to save a block of the storage (4 KiB).
        order: all keys of the one database that is described, as they were put, for
            ``order="insertion"`` of readers; or of each database what was put and deleted (where
            keys may have many values it is passed over), or its records as they were put; None:
            what the keys tell by themselves.
        subdir: as in ``provenance.data_file``.
        engine, depth: how pages are read, and how many reads are in flight.
        progress: called with (done, in all, stage); stage "walk" counts pages, "compare"
            records.

    Raises:
        IncompatibleError: ``form`` cannot say where the records of a database lie; ``order`` is
            that of several, or of one whose keys have many values, or names other keys.
        FileExistsError: with ``overwrite=False``; or the target is no provenance file.
        PermissionError, OSError: the target's folder can't be written to; the message says
            what to do.
        LookupError: no database of a name given.
        Error: commits came faster than the database could be walked.
        InvalidError, VersionMismatchError, CorruptedError, ShortReadError: the data.
    """
    began = time.monotonic()
    if form not in get_args(Form):
        known = ", ".join(map(repr, get_args(Form)))
        raise ValueError(f"form must be one of {known}, not {form!r}")
    data = data_file(path, subdir)
    with Engine(data, engine, depth) as reader:
        target = sidecar_file(data, output)
        if _is_collected(output):
            _make_folder(target)
        _check_target(target, data, overwrite)
        with Draft(target, WHAT, hint=HINT) as draft:
            told = _Told(order)
            attempts, converter, size = _settle(reader, draft, databases, form, told, progress)
            made = converter.writer.made
            draft.publish(overwrite)
        counters = reader.counters()
    forms = [row[4] for one in made for row in one.rows]
    return ConvertReport(
        data=data,
        sidecar=target,
        databases=tuple(one.name for one in made),
        records=sum(one.records for one in made),
        record_bytes=sum(one.record_bytes for one in made),
        runs=sum(one.runs for one in made),
        replayed=sum(one.history is not None for one in made),
        blocks_runs=forms.count(BlockForm.RUNS),
        blocks_explicit=forms.count(BlockForm.EXPLICIT),
        blocks_leaves=forms.count(BlockForm.LEAVES),
        pages_read=converter.steps.done,
        bytes_read=counters.bytes,
        requests=counters.requests,
        sidecar_bytes=size,
        attempts=attempts,
        seconds=time.monotonic() - began,
    )


def try_place(data: Path, output: str | os.PathLike[str] | None = None) -> None:
    """Raises what ``convert`` would, if it could not write its file; leaves nothing there.

    Args:
        data: that is to be converted; it need not be there yet, but its folder.
        output: as in ``convert``.
    """
    target = sidecar_file(data, output)
    _check_target(target, data, True)
    if _is_collected(output):
        folder = next(folder for folder in target.parents if os.path.lexists(folder))
        target = folder / target.name
    with Draft(target, WHAT, hint=HINT):
        pass


def _is_collected(output: str | os.PathLike[str] | None) -> bool:
    """Whether it goes to the folder of all provenance files, which is made."""
    return output is None and bool(os.environ.get(PROVENANCE_DIR))


def _make_folder(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise unwritable(e, target, WHAT, HINT) from e


def _check_target(target: Path, data: Path, overwrite: bool) -> None:
    """A provenance file may be replaced; nothing else may."""
    if os.path.realpath(target) == os.path.realpath(data):
        raise FileExistsError(errno.EEXIST, "this is the database itself", str(target))
    try:
        if not target.exists():
            return
    except OSError as e:  # a folder that may not be searched
        raise unwritable(e, target, WHAT, HINT) from e
    if data.exists() and target.samefile(data):
        raise FileExistsError(errno.EEXIST, "this is the database itself", str(target))
    if not overwrite:
        raise FileExistsError(errno.EEXIST, "there is a provenance file already", str(target))
    if not target.is_file():
        raise FileExistsError(errno.EEXIST, "exists, and is no provenance file", str(target))
    with target.open("rb") as file:
        head = file.read(len(MAGIC))
    if head and head != MAGIC:
        raise FileExistsError(errno.EEXIST, "exists, and is no provenance file", str(target))


def _settle(
    engine: Engine,
    draft: Draft,
    databases: Sequence[str | bytes | None] | Literal["all"] | None,
    form: Form,
    told: _Told,
    progress: Progress | None,
) -> tuple[int, _Converter, int]:
    """Walks, writes and compares until nothing was committed during a walk.

    Returns:
        The number of walks, the last, and the size of what was written.
    """
    for attempt in range(1, ATTEMPTS + 1):
        converter = _Converter(engine, draft, form, told, progress)
        try:
            converter.run(databases)
            if converter.moved():
                continue
            size = converter.finish()
            _compare(draft, converter.writer.made, engine, progress)
        except (CorruptedError, IncompatibleError, LookupError, ProvenanceError):
            # Pages of this state may have been overwritten: then it is not damage.
            if not converter.moved():
                raise
        else:
            return attempt, converter, size
    raise Error(
        f"{engine.path}: was committed to during each of {ATTEMPTS} walks (now transaction "
        f"{_core.read_meta(engine).txnid}): convert it when its writer rests"
    )


class _Told:
    """What is known of the order in which records were put.

    Args:
        order: as ``convert`` takes it.
    """

    def __init__(self, order: Iterable[bytes] | Mapping[Name, KeyLog | I64] | None) -> None:
        self._logs = order if isinstance(order, Mapping) else {}
        #: That of whichever database there is.
        self.log = None if order is None or isinstance(order, Mapping) else KeyLog(order)
        self._settled: dict[int, Settled] = {}

    def insertion(self, name: Name, db: Database, where: str) -> PutOrder | KnownOrder | None:
        """Of one database; None: nothing."""
        if self.log is None:
            # Of keys with many values nothing is claimed.
            log = None if db.flags & DUPSORT else self._logs.get(name)
            if log is None or isinstance(log, KeyLog):
                return None if log is None else PutOrder(log.settle(db.flags), db.flags, where)
            return KnownOrder(log, where)
        if db.flags not in self._settled:  # the main database's, and that of the one in it
            self._settled[db.flags] = self.log.settle(db.flags)
        settled = self._settled[db.flags]
        if settled.repeated is not None:
            raise IncompatibleError(f"{where}: the order names key {settled.repeated!r} twice")
        return PutOrder(settled, db.flags, where)


class _Converter:
    """One walk of the newest state's databases into the draft."""

    def __init__(
        self,
        engine: Engine,
        draft: Draft,
        form: Form,
        told: _Told,
        progress: Progress | None,
    ) -> None:
        self._engine, self._form = engine, form
        self._told, self._ordered = told, False
        self._hints = FileIdentity.of(os.fstat(engine.fd))
        self._meta = _core.read_meta(engine)
        self.writer = Writer(draft, self._meta.layout, form, engine.path)
        self.trees: list[bytes] = []
        self.steps = Steps(progress, 0, "walk")

    def run(self, databases: Sequence[str | bytes | None] | Literal["all"] | None) -> None:
        if databases is None or databases == "all":
            named = self._main(always=False)
            for found, db in [] if databases is None and self.writer.made else named:
                self._tree(found, db)
            return
        if isinstance(databases, (str, bytes)):
            raise TypeError("databases must be a sequence of names, 'all' or None")
        names = [name.encode() if isinstance(name, str) else name for name in databases]
        for name in dict.fromkeys(names):
            if name is None:
                self._main(always=True)
            else:
                self._tree(name, _core.find_database(self._engine, self._meta, name))

    def moved(self) -> bool:
        """True when something was committed since this walk began.

        Stricter than safety asks for (pages of a state last until the second commit after
        it), because what describes an older state would be refused by ``check`` at once.
        """
        newest = _core.newest_txnid(self._engine, self._meta.layout)
        now = FileIdentity.of(os.fstat(self._engine.fd))
        return newest != self._meta.txnid or now != self._hints

    def finish(self) -> int:
        return self.writer.finish(self._meta, self._hints, join_digests(self.trees))

    def _parts(self, db: Database, digest: TreeDigest) -> Iterator[Part]:
        """The parts of a database; every page goes through the digest."""
        self.steps.total += tree_pages(db)
        with Beside() as beside:
            for part in walk(self._engine, self._meta, db):
                if part.chunk is not None:
                    # Which takes as long as all the rest.
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
        """Walks the main database, written unless it holds named databases alone."""
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

    def _end(self, name: Name, clues: _Clues) -> None:
        """Ends a database in the form that was asked for."""
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
            if self._ordered and self._told.log is not None:
                raise IncompatibleError(
                    f"{self._engine.path}: an order is that of one database; name the one that "
                    "it is of"
                )
            self._ordered = True
            self.writer.order(clues.order.end())

    def _clues(self, name: Name, db: Database) -> _Clues:
        hopeful = self._form in ("auto", "replay")
        order = self._told.insertion(name, db, f"{self._engine.path}: {name_text(name)}")
        return _Clues(KeyFinder(db.flags), order, hopeful=hopeful, many=bool(db.flags & DUPSORT))

    def _note(self, clues: _Clues, part: Part) -> int:
        """Adds a part to the clues; how many records it has."""
        if part.chunk is not None and part.keys:
            layout = self._meta.layout
            clues.keys.add(layout, part.chunk, self._engine.path)
            if clues.order is not None:
                clues.order.add(layout, part.chunk, self._engine.path)
            clues.add_leaves(_core.leaves_of(layout, part.chunk), part.each)
        clues.add(part.extents)
        return len(part.extents)


class _Clues:
    """What tells how a database was made, gathered on a walk over it.

    While there is hope for a history extents are held back: with one no table is made.

    Args:
        keys: follows all keys.
        order: of the keys, where it was told.
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
        """The next leaves of keys, and the values of each (empty: one)."""
        self._leaves.append(leaves)
        self._each.append(each)

    def each(self) -> npt.NDArray[np.uint64] | None:
        """Values of each key; None: they have one each."""
        return np.concatenate(self._each) if self._many else None

    def add(self, extents: Extents) -> None:
        """The next records."""
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
        """The extents held back, once there is no hope any more; they are let go of."""
        if self._hopeful and not all_of_them:
            return []
        taken, self._extents = self._extents, []
        return taken

    def leaves(self) -> Leaves | None:
        """All leaves; None: they do not tell where the records lie, or one is empty."""
        if self._many:
            return None
        every = np.concatenate(self._leaves) if self._leaves else np.empty(0, _core.LEAF)
        return every if every["records"].all() else None

    def history(self, meta: Meta, *, named: bool) -> tuple[History | None, str]:
        """How these records came to be where they are; or None, and why that is not known."""
        if named and meta.main_db.entries != 1:
            return None, "it is not the only database"
        if not self._hopeful or not self._count:
            return None, self._reason or "no records"
        extents = np.concatenate(self._extents)
        shortest, longest = self.keys.sizes
        size = shortest if shortest == longest else None
        return find_history(Evidence(meta, extents, size, named, self.keys.end()))


def _compare(draft: Draft, made: list[Made], engine: Engine, progress: Progress | None) -> None:
    """Reads the draft back as a reader would, and compares every record with the walk's."""
    with Provenance.open(draft.path, cache_bytes_max=0) as written:
        written.attach(LeafReader(engine, written.facts.layout))
        steps = Steps(progress, sum(section.count for section in written.sections), "compare")
        same = [section.name for section in written.sections] == [m.name for m in made]
        for section, walked in zip(written.sections, made, strict=False):
            if walked.history is not None:  # which was proved when it was found
                same = same and section.history == walked.history
                steps.add(section.count)
                continue
            mark = 0
            for extents in section.parts():
                mark = _core.mark_extents(np.ascontiguousarray(extents), mark)
                steps.add(len(extents))
            same = same and mark == walked.mark
            if walked.groups:
                same = same and zlib.crc32(section.each_key().tobytes()) == walked.each_crc
        for section, walked in zip(written.sections, made, strict=False):
            order = section.order()
            if order is not None:
                same = same and zlib.crc32(order.tobytes()) == walked.order_crc
    if not same:
        raise ProvenanceError(f"{draft.target}: what was written does not read back as walked")
