"""census: what an environment holds. Only branch and leaf pages are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lmdbio import _core
from lmdbio._core import Database, Engine, Extents, Layout, Meta
from lmdbio.errors import CorruptedError
from lmdbio.provenance import Name
from lmdbio.provenance.freshness import Progress, Steps, tree_pages
from lmdbio.provenance.values import Part, walk

__all__ = ["Census", "Contents", "Sizes", "count"]

#: Read at once where the lists of free pages are.
REQUEST_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """The contents of an environment, and the room that they take.

    Attributes:
        file_bytes: size of the data file.
        used_bytes: size of its pages that are not free.
        free_pages: pages that wait to be used again.
        records, record_bytes: number and bytes of all databases' records; each value of a key with
            many is one.
        runs: stretches of records that one jump describes, as ``convert`` counts them.
        sidecar_bytes: size of the provenance file; 0: there is none.
    """

    file_bytes: int
    used_bytes: int
    free_pages: int
    records: int
    record_bytes: int
    runs: int
    sidecar_bytes: int


@dataclass(frozen=True, slots=True)
class Contents:
    """One database.

    Attributes:
        database: LMDB's record of the database.
        record_bytes: size of all values, bytes.
        runs: stretches of records that one jump describes.
    """

    name: Name
    database: Database
    record_bytes: int
    runs: int


@dataclass(frozen=True, slots=True)
class Census:
    """All databases of one state.

    Attributes:
        meta: the state.
        databases: the main one, which is left out if it only holds the others, first; then the
            others, by name.
        file_bytes: size of the data file.
        free_pages: number of free pages, of all up to the last one.
    """

    meta: Meta
    databases: tuple[Contents, ...]
    file_bytes: int
    free_pages: int

    @property
    def used_bytes(self) -> int:
        """Of the pages that are not free."""
        return (self.meta.last_pgno + 1 - self.free_pages) * self.meta.layout.page_size

    def copy_bytes(self) -> int:
        """How large LMDB's compacting copy will be: the list of free pages goes as well."""
        lists = tree_pages(self.meta.free_db) + self.meta.free_db.overflow_pages
        return self.used_bytes - lists * self.meta.layout.page_size

    def names(self) -> list[bytes]:
        """Of all databases but the main one."""
        return [one.name for one in self.databases if one.name is not None]

    def records(self) -> int:
        """Of all databases, without those of the main one that are others' names."""
        names = len(self.names()) if self.databases[0].name is None else 0
        return sum(one.database.entries for one in self.databases) - names

    def sizes(self, sidecar_bytes: int) -> Sizes:
        """Return the sizes of the environment, with those of its provenance file."""
        return Sizes(
            file_bytes=self.file_bytes,
            used_bytes=self.used_bytes,
            free_pages=self.free_pages,
            records=sum(one.database.entries for one in self.databases),
            record_bytes=sum(one.record_bytes for one in self.databases),
            runs=sum(one.runs for one in self.databases),
            sidecar_bytes=sidecar_bytes,
        )


class CensusCounts:
    """Adds up the records of one database.

    Args:
        layout: layout of its file.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout, self._pending = layout, np.empty(0, _core.EXTENT)
        self._runs = self._record_bytes = 0

    def add(self, extents: Extents) -> None:
        self._record_bytes += int(extents["length"].sum(dtype=np.uint64))
        self._pending = np.concatenate([self._pending, extents])
        while len(self._pending) >= _core.BLOCK_RECORDS_MAX:
            self._block()

    def _block(self) -> None:
        """Runs end with blocks, as they do in provenance files."""
        block = _core.encode_block(self._layout, self._pending)
        self._runs += block.runs
        self._pending = self._pending[block.records :]

    def end(self, name: Name, db: Database) -> Contents:
        while len(self._pending):
            self._block()
        return Contents(name, db, self._record_bytes, self._runs)


def count(engine: Engine, meta: Meta, progress: Progress | None, stage: str) -> Census:
    """Walks all databases. Only branch and leaf pages are read."""
    steps, layout = Steps(progress, 0, stage), meta.layout

    def parts(db: Database) -> Iterator[Part]:
        steps.total += tree_pages(db)
        for part in walk(engine, meta, db):
            if part.chunk is not None:
                steps.add(len(part.chunk.pgnos))
            yield part

    def contents(name: Name, db: Database) -> Contents:
        counts = CensusCounts(layout)
        for part in parts(db):
            counts.add(part.extents)
        return counts.end(name, db)

    main, counts = meta.main_db, CensusCounts(layout)
    named: list[tuple[bytes, Database]] = []
    for part in parts(main):
        if part.chunk is not None and part.keys:
            named += _core.leaf_databases(layout, part.chunk, engine.path)
        counts.add(part.extents)
    every = [contents(name, db) for name, db in named]
    if not named or main.entries > len(named):
        every.insert(0, counts.end(None, main))
    firsts = [part.extents for part in parts(meta.free_db)]
    return Census(
        meta=meta,
        databases=tuple(every),
        file_bytes=engine.size(),
        free_pages=_free_pages(engine, meta, firsts),
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
            request_bytes_max=REQUEST_BYTES_MAX,
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
