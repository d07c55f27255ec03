"""What each root opens, and how all make sure that it is the same data set.

    first root    opens all: checks the sidecar, or walks the tree (scan)
        | what it sees; by a scan: all extents, sent to the roots that see the same file
    other roots   open what they see at their place of it

Two names stand for one file where its inode, size, time of change and both meta pages are equal,
whatever the mount; then the first root's check and its walk count for all. Else the data set was
copied: each copy is checked, or walked, by itself, and all must be alike.

Source: LMDBIO (ACM TOPC 2019), one process seeks for all (LMM-DIO).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.locate.cursor_walk import Walked, open_walked
from lmdbio.locate.source import Check, Locate, Order, Source, Told, open_source, open_told
from lmdbio.machine import calibration, storage
from lmdbio.machine.calibration import Staggering
from lmdbio.machine.choice import Choice
from lmdbio.machine.overrides import Overrides
from lmdbio.observe.stats import Stats
from lmdbio.planning.mode import Mode
from lmdbio.reading.direct_path import Bypass
from lmdbio.reading.engines import choose_reading, open_engine
from lmdbio.share import Job

__all__ = ["DataSet", "Seen", "Work", "open_roots"]

#: Records whose bytes roots compare where they read copies.
SAMPLES = 8
#: Bytes of each that are compared.
SAMPLE_BYTES = 4096


@dataclass(slots=True)
class Work:
    """What a root reads with, and from.

    Attributes:
        source: ``Walked``: where records lie is found out while they are read.
    """

    source: Source | Told | Walked
    engine: _core.Engine
    bypass: Bypass
    mode: Mode
    choice: Choice

    def stats(self) -> Stats:
        """What the engines counted; also after ``close``."""
        pages = self.source.tally()
        return replace(
            Stats.of(self.engine.tally() + self.bypass.tally()),
            page_requests=pages.requests,
            page_bytes=pages.bytes,
        )

    def stage_bytes(self) -> int:
        """What reads that pass by the page cache need of memory, beside the window."""
        engine = self.bypass.engine()
        return 0 if engine is None else engine.depth * _core.Memory.HUGE_PAGE

    def end_bypass(self) -> None:
        self.bypass.close()
        self.mode = replace(self.mode, engine=self.engine.kind)

    def close(self) -> None:
        self.bypass.close()
        self.engine.close()
        self.source.close()


@dataclass(frozen=True, slots=True)
class DataSet:
    """What is to be opened; arguments of ``Reader``."""

    path: str
    db: bytes | None
    mode: Mode | str
    provenance: str | None
    check: Check
    order: Order
    wish: Overrides


@dataclass(frozen=True, slots=True)
class Seen:
    """What a root sees of the data set.

    Attributes:
        path: by which it is opened.
        inode, size, changed_ns: of the file.
        device: which holds it, as this node numbers them.
        meta: of both meta pages, crc32.
        txnid, count: of the state, and its records.
        is_far: it lies neither on a disk of this machine nor in its memory.
        digest: of the sidecar's; None: there is none.
        staggerings: what jobs have measured there; of the first root, whose word counts for all.
    """

    path: str
    inode: int
    size: int
    changed_ns: int
    device: int
    meta: int
    txnid: int
    count: int
    is_far: bool = False
    digest: bytes | None = None
    staggerings: tuple[Staggering, ...] = ()

    def is_same_file(self, other: Seen) -> bool:
        """Whether both names stand for one file."""
        return (self.inode, self.size, self.changed_ns, self.meta) == (
            other.inode,
            other.size,
            other.changed_ns,
            other.meta,
        )


def open_roots(
    job: Job, data: DataSet, *, is_root: bool, roots: int
) -> tuple[Work | None, Seen, bool]:
    """Opens the data set on all roots. Collective over the job.

    Args:
        data: the same on all ranks, but for ``path`` and ``provenance``.
        is_root: this rank reads.
        roots: how many do.

    Returns:
        What this root reads with, None where it is none; what the first root sees; and whether
        all roots read one and the same file on storage that nodes share.

    Raises:
        ValueError, Error: what roots see differs.
        OSError, Error: it cannot be read here.
        PeerError: it cannot be read by another root.
    """
    opened: list[Work] = []  # by this rank
    try:
        is_first = job.rank == 0  # the lowest rank is always the first of its team
        first = job.together(lambda: _open_first(data, roots, opened) if is_first else None)[0]
        assert first is not None
        table = None
        if opened and isinstance(opened[0].source, Source) and first.digest is None:
            table = opened[0].source.run(0, first.count)
        takes = job.together(lambda: is_root and not is_first and _takes(data, first))
        table = job.share_array(table, takes)
        seen = job.together(
            lambda: (
                _open_other(data, roots, first, table, opened)
                if is_root and not is_first
                else first
                if is_first
                else None
            )
        )
        is_one_file = _agree(job, seen, opened)
    except BaseException:
        for work in opened:
            work.close()
        raise
    return (opened[0] if opened else None), first, is_one_file and first.is_far


# --- opening -----------------------------------------------------------------------------


def _is_walked(data: DataSet) -> bool:
    return Mode.resolve(data.mode, provenance=False).locate in ("seek", "speculate")


def _open_first(data: DataSet, roots: int, opened: list[Work]) -> Seen:
    if _is_walked(data):
        source: Source | Walked = open_walked(data.path, db=data.db)
    else:
        source = _open_source(data, None)
    opened.append(_work(data, roots, source))
    kept = calibration.find(opened[0].engine)
    measured = kept.calibration if kept is not None else None
    jobs = measured.staggerings if measured is not None else ()
    return replace(_seen(opened[0]), staggerings=jobs)


def _takes(data: DataSet, first: Seen) -> bool:
    """Whether this root takes what the first one has found by a walk."""
    if first.digest is not None or _is_walked(data):
        return False
    with open_walked(data.path, db=data.db) as source:
        return _look(source.path, source).is_same_file(first)


def _open_other(
    data: DataSet, roots: int, first: Seen, table: _core.Extents | None, opened: list[Work]
) -> Seen:
    if _is_walked(data):
        source: Source | Told | Walked = open_walked(data.path, db=data.db)
    elif table is not None:
        source = open_told(data.path, table, db=data.db)
    else:
        with open_walked(data.path, db=data.db) as found:
            is_same = _look(found.path, found).is_same_file(first)
        source = _open_source(data, first.digest if is_same else None)
    opened.append(_work(data, roots, source))
    return _seen(opened[0])


def _open_source(data: DataSet, vouched: bytes | None) -> Source:
    auto = Mode.is_auto(data.mode)
    locate = "auto" if auto else Mode.resolve(data.mode, provenance=False).locate
    return open_source(
        data.path,
        db=data.db,
        locate=cast(Locate, locate),
        provenance=data.provenance,
        check=data.check,
        order=data.order,
        vouched=vouched,
    )


def _work(data: DataSet, roots: int, source: Source | Told | Walked) -> Work:
    auto = Mode.is_auto(data.mode)
    try:
        has_sidecar = isinstance(source, Source) and source.locate == "provenance"
        mode = Mode.resolve(data.mode, provenance=has_sidecar)
        wish = data.wish if auto else replace(data.wish, engine=mode.engine)
        choice = choose_reading(source.pages, "stream", wish)
        engine = open_engine(source.pages, choice)
        bypass = Bypass(
            engine,
            source.used_bytes,
            depth=choice.depth,
            wanted=choice.past_cache,
            kind="staged",
            readers=roots,
        )
        mode = replace(mode, engine=(bypass.engine() or engine).kind)
    except BaseException:
        source.close()
        raise
    return Work(source, engine, bypass, mode, choice)


# --- agreeing ----------------------------------------------------------------------------


def _look(path: str, source: Source | Told | Walked) -> Seen:
    status = os.fstat(source.pages.fd)
    metas = _core.meta_bytes(source.pages, source.meta.layout)
    found = storage.look(source.pages, cached=False)
    return Seen(
        path=path,
        inode=status.st_ino,
        size=status.st_size,
        changed_ns=status.st_mtime_ns,
        device=status.st_dev,
        meta=zlib.crc32(metas),
        txnid=source.meta.txnid,
        count=source.count,
        is_far=not (found.disk or found.in_memory),
    )


def _seen(work: Work) -> Seen:
    source = work.source
    digest = source.digest if isinstance(source, Source) else None
    return replace(_look(source.path, source), digest=digest)


def _sampled(source: Source | Told | Walked, *, whole: bool) -> int:
    """crc32 over where records lie, where that is known, and how some of them begin."""
    crc = 0
    if isinstance(source, Walked):  # copies are rare, and one walk by levels is quick
        with open_source(source.path, db=source.db, locate="scan") as scanned:
            return _sampled(scanned, whole=True)
    if whole:
        crc = zlib.crc32(np.ascontiguousarray(source.run(0, source.count)).tobytes())
    spread = np.linspace(0, source.count - 1, SAMPLES) if source.count else np.empty(0)
    extents = source.extents(np.unique(spread.astype(np.uint64)))
    for offset, length in extents.tolist():
        crc = zlib.crc32(f"{offset} {length}".encode(), crc)
        crc = zlib.crc32(source.pages.read(offset, min(length, SAMPLE_BYTES)), crc)
    source.guard()
    return crc


def _agree(job: Job, seen: Sequence[Seen | None], opened: Sequence[Work]) -> bool:
    """Makes sure that all roots see the same. Collective over the job.

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
    marks = job.together(lambda: _sampled(opened[0].source, whole=whole) if opened else None)
    for rank, one in known.items():
        if marks[rank] != marks[0]:
            raise ValueError(
                "the data set differs between roots, though it has as many records and the same "
                f"transaction: where some of its records lie, or what they hold, is another in "
                f"{first.path} by rank 0 (crc32 {marks[0]:08x}) than in {one.path} by rank "
                f"{rank} ({marks[rank]:08x})"
            )
    return False


def _compare(first: Seen, rank: int, one: Seen) -> None:
    if one.count != first.count:
        raise ValueError(
            "the data set's number of records differs between roots: "
            f"{first.count} in {first.path} by rank 0, {one.count} in {one.path} by rank {rank}"
        )
    if one.txnid != first.txnid and (one.device, one.inode) == (first.device, first.inode):
        raise Error(
            f"{one.path}: was written to while the Reader was made: rank 0 saw transaction "
            f"{first.txnid}, rank {rank} saw {one.txnid}"
        )
    both = one.digest is not None and first.digest is not None
    for what, mine, theirs in (
        ("transaction", first.txnid, one.txnid),
        ("digest", first.digest, one.digest) if both else ("", None, None),
    ):
        if mine != theirs:
            raise ValueError(
                f"the data set differs between roots: {what} {_told(mine)} in {first.path} by "
                f"rank 0, {_told(theirs)} in {one.path} by rank {rank}"
            )


def _told(value: Any) -> str:
    return str(value.hex() if isinstance(value, bytes) else value)
