"""Verify: read a whole database, and its provenance file, and prove them sound.

Invariants:
  - every page of every tree is read once and has one owner; every count is compared with the
    database's record, every overflow value's header is read;
  - every record of the provenance file is compared with where the tree says it lies, and every
    key that it computes with the one that is there;
  - damage is told apart from a writer's commits.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import Database, Engine, Extents, Meta
from lmdbio.errors import CorruptedError, ProvenanceError, ShortReadError, StaleError
from lmdbio.locate.open_database import guarded, settled
from lmdbio.locate.refusals import extents_end, refuse_cut, refuse_end
from lmdbio.planning.reads import PlanOptions, plan_reads
from lmdbio.provenance import (
    Name,
    Provenance,
    Section,
    find_data,
    find_sidecar,
    name_text,
)
from lmdbio.provenance.freshness import (
    DEPTH,
    Progress,
    Steps,
    TreeDigest,
    check_facts,
    compare_database,
    compare_digest,
    tree_pages,
)
from lmdbio.provenance.keys import KeyPattern
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.values import DUPSORT, walk
from lmdbio.remote import is_url, open_data
from lmdbio.remote.url import redacted

__all__ = ["VerifyReport", "verify"]

_P_OVERFLOW = 0x04  # enum lio_page_flag (csrc/format.h)
VERIFIED = "was committed to while it was verified ({}): verify it when its writer rests"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Counts of what ``verify`` read and found sound.

    Attributes:
        data: the data file, for people.
        sidecar: the provenance file, likewise; None: there is none.
        databases: names of the databases walked, None being the main one.
        duplicates: names of those databases whose keys may have many values.
        records, record_bytes: number of records in all of them, and their size.
        tree_pages, overflow_pages: pages of all trees, the free list's included.
        headers: overflow headers read.
        sidecar_records: records compared with the provenance file.
        sidecar_keys: keys compared with those that it computes.
        bytes_read, requests: size and number of the engine's reads.
        seconds: duration of the walk and its checks.
    """

    data: Path | str
    sidecar: Path | str | None
    databases: tuple[Name, ...]
    duplicates: tuple[Name, ...]
    records: int
    record_bytes: int
    tree_pages: int
    overflow_pages: int
    headers: int
    sidecar_records: int
    sidecar_keys: int
    bytes_read: int
    requests: int
    seconds: float


def verify(
    path: str | os.PathLike[str],
    provenance: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
    stage: str = "walk",
) -> VerifyReport:
    """Read a whole database, and its provenance file when there is one, for damage.

    Every page of every tree (the free list's too) is read and checked, counts are compared
    with the database records, every overflow value's header is read, no page may have two
    owners; every record of the provenance file is compared with the walk, and so are the keys
    that it computes, how many values each has, and its digest. The order in which records were
    put no page tells: that it has each once is all that is checked. Memory: one byte per page of
    the file, and eight for each key that may have many values.

    Args:
        provenance: a provenance file that must be there; None: the one at its usual places,
            if any (``provenance.find_sidecar``).
        progress: function of (tree pages done, in all, ``stage``).

    Raises:
        CorruptedError, ShortReadError, InvalidError, VersionMismatchError: the database.
        ProvenanceError, StaleError: the provenance file.
        Error: the database was committed to meanwhile.
    """
    began = time.monotonic()
    data = find_data(path)
    place = find_sidecar(data, provenance)

    def walk_all() -> VerifyReport:
        sidecar: Path | str | None = place
        with contextlib.ExitStack() as stack:
            reader = stack.enter_context(open_data(data, depth=DEPTH))
            meta = _core.read_meta(reader)
            opened = None
            with contextlib.suppress(*_absent(place, provenance)):
                opened = stack.enter_context(Provenance.open(place))
            if opened is None:
                sidecar = None
            else:
                opened.attach(LeafReader(reader, meta.layout))
                _check_facts(reader, meta, opened)
            steps = Steps(progress, tree_pages(meta.free_db), stage)
            verifier = _Verifier(reader, meta, opened, steps)
            with guarded(reader, meta):
                try:
                    verifier.run()
                except ShortReadError:
                    refuse_cut(reader, meta)
                    raise
            return verifier.report(data, sidecar, time.monotonic() - began)

    return settled(os.fspath(data), walk_all, VERIFIED)


def _absent(
    sidecar: Path | str, given: str | os.PathLike[str] | None
) -> tuple[type[Exception], ...]:
    """Return the errors that say that no provenance file is there, where none must be."""
    if given is not None:
        return ()
    # Some object stores refuse what is not there, to those who may not list what is.
    return (FileNotFoundError, PermissionError) if is_url(sidecar) else (FileNotFoundError,)


def _check_facts(engine: Engine, meta: Meta, provenance: Provenance) -> None:
    """Hold the provenance file against the meta page; that the data is cut is no fault of it.

    Raises:
        ShortReadError: the data ends before its records.
        StaleError: as ``check_facts``.
    """
    try:
        check_facts(engine, meta, provenance)
    except StaleError:
        if provenance.facts.txnid == meta.txnid:
            refuse_cut(engine, meta)
        raise


class _Verifier:
    """Walks everything, each page once."""

    # 2,048 headers with gaps of 16 KiB need at most 40 MiB of buffer.
    _HEADERS_AT_ONCE = 2048
    _HEADER_READS = PlanOptions(gap_bytes_max=16384, request_bytes_max=4 << 20)

    def __init__(
        self,
        engine: Engine,
        meta: Meta,
        provenance: Provenance | None,
        steps: Steps,
    ) -> None:
        self._engine, self._meta, self._layout = engine, meta, meta.layout
        self._provenance = provenance
        self._trees: dict[Name, bytes] = {}
        self._size = engine.size()
        pages_there = -(-self._size // meta.layout.page_size)
        self._owned = np.zeros(min(meta.layout.page_limit, pages_there), np.uint8)
        self._owned[:2] = 1
        self.steps = steps
        self.names: list[Name] = []
        self.duplicates: list[Name] = []
        self.records = self.record_bytes = 0
        self.overflow_pages = self.headers = self.sidecar_records = self.sidecar_keys = 0

    def run(self) -> None:
        self._tree(None, self._meta.free_db, "the free list")
        named = self._database(None, self._meta.main_db)
        for name, db in named:
            self._database(name, db)
        self._finish_sidecar()

    def report(self, data: Path | str, sidecar: Path | str | None, seconds: float) -> VerifyReport:
        """Sum up what was read and found sound."""
        counters = self._engine.counts()
        return VerifyReport(
            data=redacted(data) if isinstance(data, str) else data,
            sidecar=redacted(sidecar) if isinstance(sidecar, str) else sidecar,
            databases=tuple(self.names),
            duplicates=tuple(self.duplicates),
            records=self.records,
            record_bytes=self.record_bytes,
            tree_pages=self.steps.done,
            overflow_pages=self.overflow_pages,
            headers=self.headers,
            sidecar_records=self.sidecar_records,
            sidecar_keys=self.sidecar_keys,
            bytes_read=counters.bytes,
            requests=counters.requests,
            seconds=seconds,
        )

    def _database(self, name: Name, db: Database) -> list[tuple[bytes, Database]]:
        self.names.append(name)
        self.steps.total += tree_pages(db)
        section = None
        if self._provenance is not None and name in self._provenance.databases:
            section = self._provenance.section(name)
            compare_database(
                self._provenance, self._engine.path, name_text(name), db, section.database
            )
        if db.flags & DUPSORT:
            self.duplicates.append(name)
        records, size, named = self._tree(name, db, name_text(name), section)
        self.records += records
        self.record_bytes += size
        return named

    def _tree(
        self, name: Name, db: Database, label: str, section: Section | None = None
    ) -> tuple[int, int, list[tuple[bytes, Database]]]:
        """Walk one tree; returns its records, their bytes, and the named databases among them."""
        digest = TreeDigest()
        named: list[tuple[bytes, Database]] = []
        records = size = pages = 0
        each = [np.empty(0, np.uint64)]
        pattern = section.keys if section is not None else None
        finder = _core.KeyFinder(db.flags)
        for part in walk(self._engine, self._meta, db):
            if part.chunk is not None:
                digest.add(part.chunk)
                self.steps.add(len(part.chunk.pgnos))
                self._own(part.chunk.pgnos.astype(np.int64), label)
                if part.keys and db is self._meta.main_db:
                    named += _core.leaf_databases(self._layout, part.chunk, self._engine.path)
                if part.keys and pattern is not None:
                    finder.add(self._layout, part.chunk, self._engine.path)
            if section is not None:
                self._compare(section, records, part.extents)
                each.append(part.each)
            records += len(part.extents)
            size += int(part.extents["length"].sum(dtype=np.uint64))
            refuse_end(self._engine.path, self._size, extents_end(part.extents))
            large = part.overflow > 0
            pages += self._overflow(part.extents[large], part.overflow[large], label)
        self._count(label, "records", records, db.entries)
        self._count(label, "overflow pages", pages, db.overflow_pages)
        self.overflow_pages += pages
        if section is not None and db.flags & DUPSORT:
            self._compare_each(section, np.concatenate(each))
        if section is not None and pattern is not None:
            # Runs that convert wrote are found again; where others were, each key is computed.
            if finder.end() != pattern.runs:
                self._compare_keys(section, db, pattern)
            self.sidecar_keys += pattern.count
        if section is not None:
            section.order()
            self._trees[name] = digest.finish(name, db)
        return records, size, named

    def _count(self, label: str, what: str, found: int, recorded: int) -> None:
        if found != recorded:
            raise CorruptedError(
                f"{self._engine.path}: {label} has {found} {what}, its record says {recorded}"
            )

    def _own(self, pages: npt.NDArray[np.int64], label: str) -> None:
        if len(pages) and int(pages.max()) >= len(self._owned):
            raise CorruptedError(
                f"{self._engine.path}: page {int(pages.max())} of {label} lies outside the file"
            )
        twice = pages[self._owned[pages] != 0]
        if not len(twice):
            self._owned[pages] = 1
            if int(self._owned[pages].sum()) == len(np.unique(pages)) == len(pages):
                return
            twice = pages
        raise CorruptedError(
            f"{self._engine.path}: page {int(twice[0])} has two owners, one is {label}"
        )

    def _overflow(self, extents: Extents, needed: npt.NDArray[np.uint32], label: str) -> int:
        """Check the headers of values with overflow pages; returns how many pages they own.

        A value may own more pages than it needs: LMDB writes a shorter one in its place.
        """
        total = 0
        for start in range(0, len(extents), self._HEADERS_AT_ONCE):
            some = slice(start, start + self._HEADERS_AT_ONCE)
            first = extents["offset"][some].astype(np.int64) // self._layout.page_size
            each = self._headers(first, needed[some].astype(np.int64), label)
            if int(each.sum()) > len(self._owned):  # before memory is taken for them
                raise CorruptedError(f"{self._engine.path}: {label}: pages have two owners")
            within = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
            self._own(np.repeat(first, each) + within, label)
            total += len(within)
        return total

    def _headers(
        self, first: npt.NDArray[np.int64], needed: npt.NDArray[np.int64], label: str
    ) -> npt.NDArray[np.int64]:
        """Read and check overflow headers; returns the pages that each says it owns."""
        wanted = np.empty(len(first), _core.EXTENT)
        wanted["offset"] = first * self._layout.page_size
        wanted["length"] = header_size = self._layout.header_size
        plan = plan_reads(wanted, self._HEADER_READS, alignment=self._engine.alignment)
        memory = _core.Memory(plan.totals.buffer_bytes)
        self._engine.read_plan(plan, memory.address, memory)
        content = np.frombuffer(_core.lend(memory.address, memory.size, memory), np.uint8)
        heads = content[plan.slices.astype(np.int64)[:, None] + np.arange(header_size)]
        pgno = heads[:, :8].copy().view("<u8")[:, 0]
        flags = heads[:, header_size - 6 : header_size - 4].copy().view("<u2")[:, 0]
        pages: npt.NDArray[np.int64] = (
            heads[:, header_size - 4 :].copy().view("<u4")[:, 0].astype(np.int64)
        )
        # Overflow pages are flagged so and nothing else, but for a writer's dirty bit.
        bad = (
            (pgno != first.astype(np.uint64))
            | ((flags & ~np.uint16(0x10)) != _P_OVERFLOW)
            | (pages < needed)
            | (pages > len(self._owned) - first)
        )
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise CorruptedError(
                f"{self._engine.path}: {label}: page {int(first[i])} should begin "
                f"{int(needed[i])} overflow pages, but its header says page {int(pgno[i])}, "
                f"flags {int(flags[i]):#x}, {int(pages[i])} pages"
            )
        self.headers += len(first)
        return pages

    def _compare(self, section: Section, start: int, extents: Extents) -> None:
        stop = start + len(extents)
        assert self._provenance is not None
        try:
            same = stop <= section.count and (
                section.extents(start, stop).tobytes() == extents.tobytes()
            )
        except CorruptedError as e:  # by a walk these leaves are sound
            raise ProvenanceError(f"{self._provenance.path}: leads elsewhere: {e}") from e
        if not same:
            raise StaleError(
                f"{self._provenance.path}: records {start} to {stop} of "
                f"{name_text(section.name)} lie elsewhere in {self._engine.path}"
            )
        self.sidecar_records += len(extents)

    def _compare_keys(self, section: Section, db: Database, pattern: KeyPattern) -> None:
        """Read the keys, which are as many as the pattern has, once more, one after the other."""
        number = 0
        for part in walk(self._engine, self._meta, db):
            if part.chunk is None or not part.keys:
                continue
            for key in _core.leaf_keys(self._layout, part.chunk, self._engine.path):
                computed = pattern.key(number)
                if key != computed:
                    assert self._provenance is not None
                    raise StaleError(
                        f"{self._provenance.path}: key {number} of {name_text(section.name)} is "
                        f"{key!r} in {self._engine.path}, not {computed!r}"
                    )
                number += 1

    def _compare_each(self, section: Section, each: npt.NDArray[np.uint64]) -> None:
        if not np.array_equal(section.each_key(), each):
            assert self._provenance is not None
            raise StaleError(
                f"{self._provenance.path}: keys of {name_text(section.name)} have other "
                f"numbers of values in {self._engine.path}"
            )

    def _finish_sidecar(self) -> None:
        if self._provenance is None:
            return
        for section in self._provenance.sections:
            if section.name not in self._trees:
                raise StaleError(
                    f"{self._provenance.path}: describes {name_text(section.name)}, "
                    f"which {self._engine.path} does not have"
                )
            lengths = (int(part["length"].sum()) for part in section.parts())
            if sum(lengths) != section.record_bytes:
                raise ProvenanceError(f"{self._provenance.path}: records a false sum of lengths")
        trees = [self._trees[section.name] for section in self._provenance.sections]
        compare_digest(self._provenance, self._engine.path, trees)
