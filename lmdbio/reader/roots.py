"""Roots open the data set, and make sure that all of them see the same one.

    first root    opens it: checks the provenance file, or walks the tree (scan)
        | tells what it sees; after a scan it sends all extents to roots that see the same file
    other roots   open the file under their own names for it

Two names stand for one file where its inode, size, time of change and both meta pages are equal,
whatever the mount; then the first root's check and its walk count for all. Else the data set was
copied: each root checks, or walks, its own copy, and all copies must be alike.

RecordIndex: LMDBIO (ACM TOPC 2019), one process seeks for all (LMM-DIO).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lmdbio import _core
from lmdbio.errors import Error, IncompatibleError
from lmdbio.locate.cursor_walk import CursorWalk, open_cursor_walk
from lmdbio.locate.open import Locate, open_record_index
from lmdbio.locate.open_database import OpenDatabase
from lmdbio.locate.open_files import SharedExtents, open_database, open_shared_extents
from lmdbio.locate.record_index import RecordIndex
from lmdbio.machine import storage
from lmdbio.machine.calibration import Staggering
from lmdbio.machine.choice import Choice
from lmdbio.machine.overrides import Overrides
from lmdbio.observe.stats import Stats
from lmdbio.planning.mode import Mode
from lmdbio.planning.reads import PAGE_BYTES
from lmdbio.reader.options import ReaderOptions
from lmdbio.reading.direct_path import DirectPath
from lmdbio.reading.engines import choose_reading, find_calibration, open_engine
from lmdbio.share import Job
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.log import WARNING, log

if TYPE_CHECKING:
    from lmdbio.cache import CacheFile  # others begin sooner without it

__all__ = ["DataSetFacts", "RootSource", "open_roots"]

#: Extents that are asked of an index at once.
EXTENTS_CHUNK = 2**18
#: Records whose bytes roots compare where they read copies.
SAMPLES = 8
#: Bytes of each that are compared.
SAMPLE_BYTES = 4096


#: Knows where records lie; a ``CursorWalk`` finds it out while the root reads.
Index = RecordIndex | SharedExtents | CursorWalk


@dataclass(slots=True)
class RootSource:
    """The data set as one root has opened it, and the engines that read it.

    Attributes:
        index: knows where records lie.
        engine: reads through the page cache, or as the mode says.
        direct_path: reads past the page cache, while that pays.
        mode: mode of this root, every choice made.
        choice: engine, depth and sizes.
        cache_file: cache file on a disk of this node; None: it has none.
    """

    index: Index
    engine: _core.Engine
    direct_path: DirectPath
    mode: Mode
    choice: Choice
    cache_file: CacheFile | None = None

    def stats(self) -> Stats:
        """Return the engines' counts; also after ``close``."""
        pages = self.index.counts()
        return replace(
            Stats.of(self.engine.counts() + self.direct_path.counts()),
            page_requests=pages.requests,
            page_bytes=pages.bytes,
        )

    @property
    def read_alignment(self) -> int:
        """Bytes to which reads are aligned: whole pages, also where the engine asks for less.

        The page cache reads nothing less, and values in pages of their own lie next to each other
        only if the rest of their last page is read as well.
        """
        return max(PAGE_BYTES, self.engine.alignment)

    def all_extents(self) -> Iterator[_core.Extents]:
        """Yield the extents of all records, some at a time."""
        assert not isinstance(self.index, CursorWalk)  # which finds them while the root reads
        for first in range(0, self.index.count, EXTENTS_CHUNK):
            yield self.index.run(first, min(self.index.count, first + EXTENTS_CHUNK))

    def stage_bytes(self) -> int:
        """Return the memory that reads past the page cache need beside the window, bytes."""
        engine = self.direct_path.engine()
        return 0 if engine is None else engine.depth * _core.Memory.HUGE_PAGE

    def end_direct_path(self, why: str) -> None:
        """Read through the page cache from now on, and tell why."""
        if self.direct_path.engine() is not None:
            log(f"{self.index.path}: blocks are read through the page cache: {why}")
        self.direct_path.close()
        self.mode = replace(self.mode, engine=self.engine.kind)

    def close(self) -> None:
        """Close the engines and the files."""
        if self.cache_file is not None:
            self.cache_file.close()
        self.direct_path.close()
        self.engine.close()
        self.index.close()


@dataclass(frozen=True, slots=True)
class DataSetFacts:
    """The facts by which roots compare the data sets that they see.

    Attributes:
        path: path by which the root has opened it.
        identity: identity of the file.
        meta: crc32 of both meta pages.
        txnid, count: transaction number that the root sees, and number of records.
        used_bytes: size of what is in use of the file, bytes.
        is_far: whether the file lies neither on a disk of this machine nor in its memory.
        digest: digest of the provenance file; None: there is none.
        staggerings: measurements of jobs on its storage; only the first root's count.
    """

    path: str
    identity: FileIdentity
    meta: int
    txnid: int
    count: int
    used_bytes: int = 0
    is_far: bool = False
    digest: bytes | None = None
    staggerings: tuple[Staggering, ...] = ()

    @property
    def state(self) -> tuple[int, int, int]:
        """The state of the database, by which another one is told: equal on all ranks."""
        return self.meta, self.txnid, self.count

    def is_same_file(self, other: DataSetFacts) -> bool:
        """Return whether both names stand for one file."""
        return self.meta == other.meta and self.identity.is_same_file(other.identity)


def open_roots(
    job: Job, options: ReaderOptions, *, is_root: bool, roots: int
) -> tuple[RootSource | None, DataSetFacts, bool]:
    """Open the data set on all roots. Collective over the job.

    All ranks meet twice, and once more where roots read copies; between the two meetings roots
    that take the first one's extents receive them.

    Args:
        options: the same on all ranks, but for ``path`` and ``provenance``.
        is_root: whether this rank is a root.
        roots: number of ranks that are roots.

    Returns:
        What this root reads with, None where this rank is none; what the first root sees; and
        whether all roots read one and the same file on storage that nodes share.

    Raises:
        ValueError, Error: roots see different data sets.
        OSError, Error: this root cannot read it.
        PeerError: another root cannot.
    """
    opened: list[RootSource] = []  # on this rank: one, or none
    try:
        is_first = job.rank == 0  # the lowest rank is always the first of its team
        inspected = job.together(
            lambda: (
                _open_first(options, roots, opened)
                if is_first
                else _inspect(options)
                if is_root
                else None
            )
        )
        first, own = inspected[0], inspected[job.rank]
        assert first is not None
        # None takes the extents where there is a provenance file, or each root walks.
        takes_none = first.digest is not None or options.seeks
        takes = [
            not (takes_none or rank == 0 or one is None) and one.is_same_file(first)
            for rank, one in enumerate(inspected)
        ]
        table = None
        if opened and any(takes) and not isinstance(opened[0].index, CursorWalk):
            table = opened[0].index.run(0, first.count)
        table = job.share_array(table, takes)
        seen = job.together(
            lambda: (
                own
                if is_first or own is None
                else _open_other(options, roots, own, first, table, opened)
            )
        )
        is_one_file = _agree(job, seen, opened)
    except BaseException:
        for each in opened:
            each.close()
        raise
    return (opened[0] if opened else None), first, is_one_file and first.is_far


# --- opening -----------------------------------------------------------------------------


def _open_first(options: ReaderOptions, roots: int, opened: list[RootSource]) -> DataSetFacts:
    """Open the data set on the first root; put what it reads with into ``opened``."""
    if options.seeks:
        index: Index = open_cursor_walk(options.path, db=options.db)
    else:
        index = _open_index(options, None)
    opened.append(_root_source(options, roots, index))
    owned = find_calibration(opened[0].engine)
    measured = owned.calibration if owned is not None else None
    jobs = measured.staggerings if measured is not None else ()
    return replace(_facts(opened[0]), staggerings=jobs)


def _inspect(options: ReaderOptions) -> DataSetFacts:
    """Return what this root sees of the data set before it knows how to open it.

    By reads, for the first touch of a mapping has the kernel read ahead, 8 MiB say.
    """
    with open_database(options.path, db=options.db) as found:
        return _database_facts(found)


def _open_other(
    options: ReaderOptions,
    roots: int,
    own: DataSetFacts,
    first: DataSetFacts,
    table: _core.Extents | None,
    opened: list[RootSource],
) -> DataSetFacts:
    """Open the data set on another root.

    Args:
        own, first: facts that this root, and the first one, saw in the meeting before.
        table: extents of all records, if this root takes the first one's.
        opened: receives what this root reads with.

    Raises:
        Error: another file has taken the place of the one that this root saw.
    """
    if options.seeks:
        index: Index = open_cursor_walk(options.path, db=options.db)
    elif table is not None:
        some = options.samples is not None
        index = open_shared_extents(options.path, table, db=options.db, some=some)
    else:
        index = _open_index(options, first.digest if own.is_same_file(first) else None)
    opened.append(_root_source(options, roots, index))
    facts = _facts(opened[0])
    if not facts.is_same_file(own):
        raise Error(f"{facts.path}: was written to, or replaced, while the Reader was made")
    return facts


def _open_index(options: ReaderOptions, vouched: bytes | None) -> RecordIndex:
    """Open the data set by its provenance file, or by a scan.

    Args:
        vouched: digest of a provenance file that the first root has checked against this file.
    """
    auto = Mode.is_auto(options.mode)
    locate = "auto" if auto else options.resolved_mode.locate
    index = open_record_index(
        options.path,
        db=options.db,
        locate=cast(Locate, locate),
        provenance=options.provenance,
        check=options.check,
        order=options.order,
        samples=options.samples,
        vouched=vouched,
    )
    if options.samples is not None and index.columns > 1:
        index.close()
        raise IncompatibleError(
            f"{index.path}: its samples are {index.columns} records each, and a Reader's batches "
            "have one: read it by Records or torch.Loader, or without layout="
        )
    return index


def _choose(pages: _core.Engine, options: ReaderOptions, overrides: Overrides) -> Choice:
    """Choose how a root reads.

    Roots that cache read large pieces, as a stream. Records that have no room in a cache lie
    anywhere, so as many reads are in flight as these want.
    """
    if not options.is_scattered:
        return choose_reading(pages, "stream", overrides)
    rest = choose_reading(pages, "batch", overrides)
    if options.cache is None:
        return rest
    choice = choose_reading(pages, "stream", overrides)
    reasons = {**choice.reasons, "depth": rest.reasons["depth"]}
    return replace(choice, depth=max(choice.depth, rest.depth), reasons=reasons)


def _root_source(options: ReaderOptions, roots: int, index: Index) -> RootSource:
    """Choose how to read an open data set, and open the engines. Owns ``index`` from now on."""
    auto = Mode.is_auto(options.mode)
    try:
        has_provenance = isinstance(index, RecordIndex) and index.locate == "provenance"
        mode = Mode.resolve(options.mode, provenance=has_provenance)
        is_left = auto or mode.engine == "auto"
        overrides = options.overrides
        if not is_left:
            overrides = replace(overrides, engine=mode.engine)
        choice = _choose(index.pages, options, overrides)
        if choice.engine == "mmap" and not auto and mode.engine == "auto":
            log(
                f"{index.path}: is read by pread, not LMDBIO_ENGINE=mmap: the mode asks for "
                "explicit reads",
                WARNING,
            )
            overrides = replace(overrides, engine="pread")
            choice = _choose(index.pages, options, overrides)
        engine = open_engine(index.pages, choice)
        direct_path = DirectPath(
            engine,
            index.used_bytes,
            depth=choice.depth,
            wanted=choice.may_bypass_cache,
            kind="staged",
            readers=roots,
        )
        mode = replace(mode, engine=(direct_path.engine() or engine).kind)
    except BaseException:
        index.close()
        raise
    return RootSource(index, engine, direct_path, mode, choice)


# --- agreeing ----------------------------------------------------------------------------


def _database_facts(opened: OpenDatabase) -> DataSetFacts:
    """Return what a root sees of an open data set, without its provenance file."""
    found = storage.inspect(opened.pages, cached=False)
    return DataSetFacts(
        path=opened.path,
        identity=opened.identity,
        meta=zlib.crc32(opened.metas()),
        txnid=opened.txnid,
        count=opened.count,
        used_bytes=opened.used_bytes,
        is_far=not (found.disk or found.in_memory),
    )


def _facts(opened: RootSource) -> DataSetFacts:
    """Return what a root sees of the data set that it has opened."""
    index = opened.index
    digest = index.digest if isinstance(index, RecordIndex) else None
    return replace(_database_facts(index), digest=digest)


def _sampled(index: Index, *, whole: bool) -> int:
    """Return a crc32 over where records lie, where that is known, and how some of them begin."""
    crc = 0
    if isinstance(index, CursorWalk):  # copies are rare, and one walk by levels is quick
        with open_record_index(index.pages.location, db=index.db, locate="scan") as scanned:
            return _sampled(scanned, whole=True)
    if whole:
        crc = zlib.crc32(np.ascontiguousarray(index.run(0, index.count)).tobytes())
    spread = np.linspace(0, index.count - 1, SAMPLES) if index.count else np.empty(0)
    extents = index.extents(np.unique(spread.astype(np.uint64)))
    for offset, length in extents.tolist():
        crc = zlib.crc32(f"{offset} {length}".encode(), crc)
        crc = zlib.crc32(index.pages.read(offset, min(length, SAMPLE_BYTES)), crc)
    index.guard()
    return crc


def _agree(job: Job, seen: Sequence[DataSetFacts | None], opened: Sequence[RootSource]) -> bool:
    """Make sure that all roots see the same. Collective over the job where roots read copies.

    Args:
        seen: facts that each rank has seen; None where it is no root. The same list on all ranks.
        opened: data sets that this rank has opened.

    Returns:
        Whether they read one and the same file.

    Raises:
        ValueError, Error: naming what differs, where, and both values.
    """
    known = {rank: one for rank, one in enumerate(seen) if one is not None}
    first = known[0]
    for rank, one in known.items():
        _compare(first, rank, one)
    if all(one.is_same_file(first) for one in known.values()):
        return True
    # A digest, which was compared, covers where all records lie.
    whole = all(one.digest is None for one in known.values())
    marks = job.together(lambda: _sampled(opened[0].index, whole=whole) if opened else None)
    for rank, one in known.items():
        if marks[rank] != marks[0]:
            raise ValueError(
                "the data set differs between roots, though it has as many records and the same "
                f"transaction: where some of its records lie, or what they hold, is another in "
                f"{first.path} by rank 0 (crc32 {marks[0]:08x}) than in {one.path} by rank "
                f"{rank} ({marks[rank]:08x})"
            )
    return False


def _compare(first: DataSetFacts, rank: int, one: DataSetFacts) -> None:
    """Raise ValueError or Error where a root sees another data set than the first one."""
    if one.txnid != first.txnid and one.identity.is_same_inode(first.identity):
        raise Error(
            f"{one.path}: was written to while the Reader was made: rank 0 saw transaction "
            f"{first.txnid}, rank {rank} saw {one.txnid}"
        )
    if one.count != first.count:
        raise ValueError(
            "the data set's number of records differs between roots: "
            f"{first.count} in {first.path} by rank 0, {one.count} in {one.path} by rank {rank}"
        )
    both = one.digest is not None and first.digest is not None
    for what, mine, theirs in (
        ("transaction", first.txnid, one.txnid),
        ("digest", first.digest, one.digest) if both else ("", None, None),
    ):
        if mine != theirs:
            raise ValueError(
                f"the data set differs between roots: {what} {_text(mine)} in {first.path} by "
                f"rank 0, {_text(theirs)} in {one.path} by rank {rank}"
            )


def _text(value: Any) -> str:
    return str(value.hex() if isinstance(value, bytes) else value)
