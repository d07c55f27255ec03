"""Locating: from record index to extent, whatever tells where the records lie.

    provenance   the sidecar: no page of the tree is read
    scan         one walk over the branch and leaf pages at open

A ``Source`` is one database of one file in one state. Its records are numbered from 0, in key
order or in the order in which they were put.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from lmdbio import _core, provenance as sidecars
from lmdbio.errors import (
    CorruptedError,
    Error,
    IncompatibleError,
    ProvenanceError,
    ShortReadError,
)
from lmdbio.locate.key_index import Groups, KeyTable, Single
from lmdbio.provenance import freshness, values
from lmdbio.provenance.freshness import Check
from lmdbio.provenance.keys import KeyPattern, describe
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.values import DUPSORT

__all__ = [
    "Check",
    "Counted",
    "Locate",
    "Opened",
    "Order",
    "Source",
    "Told",
    "count_keys",
    "open_source",
    "open_told",
    "opening",
]

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
AnyOpened = TypeVar("AnyOpened", bound="Opened")

REVERSEKEY = 0x02  # enum lio_db_flag (csrc/format.h)

Locate = Literal["auto", "provenance", "scan"]
Order = Literal["key", "insertion"]

#: Records whose extents are kept as one table (64 MiB) once many were asked for; beyond, blocks
#: of the sidecar are decoded as they are needed.
TABLE_RECORDS_MAX = 1 << 22
#: Who has asked for one in so many records gets the table.
TABLE_SHARE = 16
#: Finding one record alone in the sidecar takes as long (60 us) as so many of a table, and more.
SINGLE_RECORDS = 64
#: Of the mapping out of which guarding copies the meta pages: the first piece of the file, and
#: some for pages that are looked at in between (csrc/engine_mapped.h).
META_MAPPED_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class Opened:
    """One database of one file, in the state that it was opened in.

    Attributes:
        path: the data file.
        db: name of the database, None for the main one.
        meta: the state of the file.
        count: records.
    """

    path: str
    db: bytes | None
    meta: _core.Meta
    count: int
    _pages: _core.Engine
    _size: int  # of the file, when it was opened

    @property
    def pages(self) -> _core.Engine:
        """What reads the tree's pages."""
        return self._pages

    @property
    def used_bytes(self) -> int:
        """Bytes of the file that this state uses, free pages within included."""
        return (self.meta.last_pgno + 1) * self.meta.layout.page_size

    def guard(self) -> None:
        """Makes sure that what was read up to now belonged to the state this was opened in.

        Without a reader slot the pages of snapshot S may be rewritten from transaction S + 3
        on, so results are refused once the file has moved past S + 1; and when S is not there
        though it has not, for then another one was written over it.

        Raises:
            Error: it has.
        """
        _guard(self._pages, self.meta)

    def guard_mapped(self) -> None:
        """The same for what is lent from a mapping, where the rest of a page that the file was
        cut in shows zeros. (Engines ask for the size after reads.)

        Raises:
            Error: the file has moved on.
            ShortReadError: it is shorter than it was.
        """
        self.guard()
        size = self._pages.size()
        if size < self._size:
            raise ShortReadError(
                f"{self.path}: was cut while it was read: wanted {self._size} bytes at offset 0, "
                f"got {size}"
            )

    def map_metas(self) -> None:
        """Lets guarding copy the meta pages out of a mapping, where they are in the page cache."""
        self._pages.map_cached(META_MAPPED_BYTES)

    def tally(self) -> _core.Tally:
        """What locating and guarding have read; also after ``close``."""
        return self._pages.tally()

    def close(self) -> None:
        """Closes the file. May be called twice."""
        self._pages.close()

    def __enter__(self: AnyOpened) -> AnyOpened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True, eq=False)
class Source(Opened):
    """Where the records of one database lie.

    Attributes:
        locate: "provenance" or "scan".
        reason: why not by provenance, "" when it is.
    """

    locate: Literal["provenance", "scan"]
    reason: str
    _keys: KeyTable
    _order: I64 | None  # the records as they were put; None: in key order
    _table: _core.Extents | None
    _sidecar: sidecars.Provenance | None
    _section: sidecars.Section | None
    _asked: int = 0
    _is_damaged: bool = False  # a block of the sidecar
    _places: I64 | None = None  # where each record is in the order
    _vouching: _core.Snapshot | None = None

    def extents(self, indices: npt.NDArray[np.uint64]) -> _core.Extents:
        """Extents (dtype ``EXTENT``) of records, in the order asked.

        Raises:
            IndexError: an index is not below ``count``.
            ProvenanceError, CorruptedError: a block of the sidecar, or a leaf, is damaged.
            Error: the file has moved on.
        """
        if not len(indices):
            return np.empty(0, _core.EXTENT)
        last = int(indices.max())
        if last >= self.count:
            raise IndexError(f"{self.path}: record {last} of {self.count}")
        records = indices if self._order is None else self._order[indices]
        if self._table is None and self._is_table_due(records):
            self._make_table()
        if self._table is not None:
            return self._table[indices]
        assert self._section is not None
        try:
            return self._section.locate(records)
        except CorruptedError:
            self.guard()  # a page of another state is no damage
            raise

    def _is_table_due(self, indices: npt.NDArray[Any]) -> bool:
        """Whether finding these records alone would cost as much as a table of all, or has."""
        assert self._section is not None
        self._asked += len(indices)
        if self.count > TABLE_RECORDS_MAX or self._is_damaged:
            return False
        if self._section.history is not None:
            return True  # a replay gives nothing less
        if self._section.forms["leaves"]:
            # A record alone costs its leaf, and the table all of them, but these in large reads.
            return TABLE_SHARE * self._asked >= self._section.database.leaf_pages
        if TABLE_SHARE * self._asked >= self.count:
            return True
        # Blocks are decoded whole: those at random all over the file need about all of them.
        spanned = self._section.blocks_between(int(indices.min()), int(indices.max()))
        return len(indices) >= self._section.blocks and 2 * spanned > self._section.blocks

    def _make_table(self) -> None:
        """Unless a block of the sidecar or a leaf is damaged: then who needs it is told."""
        assert self._section is not None and self._sidecar is not None
        try:
            table = self._section.extents(0, self.count)
        except (ProvenanceError, CorruptedError):
            self._is_damaged = True
        else:
            self._table = table if self._order is None else table[self._order]
            self._sidecar.forget_blocks()

    @property
    def digest(self) -> bytes | None:
        """Of all branch and leaf pages, as the sidecar has it; None: there is no sidecar."""
        return None if self._sidecar is None else self._sidecar.facts.digest

    @property
    def table_bytes(self) -> int:
        """Memory that the table takes, once there is one, and the order."""
        order = self._order.nbytes if self._order is not None else 0
        if self._table is not None:
            return order + self._table.nbytes
        return order + (
            self.count * _core.EXTENT.itemsize if self.count <= TABLE_RECORDS_MAX else 0
        )

    def run(self, start: int, stop: int) -> _core.Extents:
        """Extents of records ``start`` to ``stop`` (exclusive); not to be written to."""
        if self._table is not None:
            return self._table[start:stop]
        return self.extents(np.arange(start, stop, dtype=np.uint64))

    def find(self, indices: npt.NDArray[np.int64]) -> tuple[U64, _core.Extents] | None:
        """A quick ``extents``, of indices that may count from the end.

        Returns:
            The indices from the beginning and their extents; None where ``extents`` has to do it,
            or one is out of range.
        """
        return None if self._table is None else _core.find_extents(self._table, indices)

    def extent(self, index: int) -> tuple[int, int]:
        """Offset and length of one record; ``index`` is below ``count``."""
        table = self._table
        if table is None:
            self._asked += SINGLE_RECORDS
            table = self.extents(np.array([index], np.uint64))
            index = 0
        offset, length = table.item(index)
        return offset, length

    def key(self, index: int) -> bytes:
        """The key of one record, ``index`` being below ``count`` (``KeyTable.key``)."""
        return self._keys.key(index if self._order is None else int(self._order[index]))

    def index(self, key: bytes) -> int | None:
        """The (first) record of a key; None: there is none (``KeyTable.record``)."""
        found = self._keys.record(key)
        if found is None or self._order is None:
            return found
        return int(self._placed(self._order)[found])

    def _placed(self, order: I64) -> I64:
        """Where each record, in key order, is in this order."""
        if self._places is None:
            places = np.empty_like(order)
            places[order] = np.arange(self.count)
            self._places = places
        return self._places

    @property
    def insertion(self) -> I64:
        """The records as they were put, by their numbers in key order; int64."""
        return np.arange(self.count) if self._order is None else self._order

    @property
    def groups(self) -> Sequence[range]:
        """The records of each key, in key order."""
        if self._keys.groups is not None:
            return self._keys.groups
        return Single(self.count, None if self._order is None else self._placed(self._order))

    def _snapshot(self) -> _core.Snapshot:
        """The state this was opened in, for who reads in C; all ask it with the GIL in hand."""
        if self._vouching is None:
            pages = _core.Pages(self._pages, self.meta.layout, 0)
            self._vouching = _core.Snapshot(pages, self.meta, held=False)
        return self._vouching

    def fetcher(self, engine: _core.Engine) -> Callable[[int, int], bytes] | None:
        """A quick call for the bytes of one extent, guarded (``_core.fetcher``)."""
        return _core.fetcher(engine, self._snapshot(), self.guard)

    def gatherer(self, engine: _core.Engine) -> _core.Gatherer | None:
        """Quick copies of what the page cache holds, guarded; None as for ``fetcher``."""
        if engine.alignment > 1:
            return None
        return _core.Gatherer(engine, self._snapshot())

    def values(
        self, engine: _core.Engine, extents: _core.Extents, *, waits: bool = True
    ) -> _core.Values:
        """What lies at some extents of the file, guarded (``_core.Values``)."""
        return _core.Values.of_file(
            engine, extents, self._snapshot(), verify=self.guard, waits=waits
        )

    def value_holder(
        self, engine: _core.Engine
    ) -> Callable[[list[int]], _core.Values | None] | None:
        """A quick call for values that nobody need wait for (``_core.value_holder``); None: where
        records lie is not known all at once, or as for ``fetcher``.
        """
        if self._table is None or engine.alignment > 1:
            return None
        return _core.value_holder(engine, self._table, self._snapshot(), self.guard)

    def close(self) -> None:
        """Closes the file and the sidecar. May be called twice."""
        self._vouching = None  # it keeps the file open
        self._pages.close()
        if self._sidecar is not None:
            self._sidecar.close()


class _File(NamedTuple):
    """A file whose pages can be read, its state, and one database of it."""

    pages: _core.Engine
    meta: _core.Meta
    database: _core.Database


@contextlib.contextmanager
def opening(data: str, name: bytes | None, engine: str) -> Iterator[_File]:
    """A data file, opened; closed if what is done with it fails, and the reason told."""
    pages = _core.Engine(data, engine, depth=32)
    meta: _core.Meta | None = None
    try:
        meta = _core.read_meta(pages)
        found = meta.main_db if name is None else _core.find_database(pages, meta, name)
        yield _File(pages, meta, found)
    except CorruptedError as e:
        newest = 0 if meta is None else _newest_or_zero(pages, meta)
        pages.close()
        if meta is None or newest <= meta.txnid + 1:
            raise
        raise Error(
            f"{data}: was committed to while its tree was walked (transaction {meta.txnid} "
            f"became {newest}); open it again"
        ) from e
    except BaseException:
        pages.close()
        raise


@dataclass(slots=True, eq=False)
class Told(Opened):
    """A database whose extents another process has found in the same file."""

    _table: _core.Extents

    def extents(self, indices: npt.NDArray[np.uint64]) -> _core.Extents:
        """Extents (dtype ``EXTENT``) of records, in the order asked."""
        return self._table[indices]

    def run(self, start: int, stop: int) -> _core.Extents:
        """Extents of records ``start`` to ``stop`` (exclusive); not to be written to."""
        return self._table[start:stop]


def open_told(
    path: str | os.PathLike[str], table: _core.Extents, *, db: bytes | str | None = None
) -> Told:
    """Opens a database of which all extents are known.

    Raises:
        OSError, Error, LookupError: as for ``open_source``.
        ValueError: the database has another number of records.
    """
    data = os.fspath(sidecars.data_file(path, None))
    name = db.encode() if isinstance(db, str) else db
    with opening(data, name, "pread") as (pages, meta, found):
        if found.entries != len(table):
            raise ValueError(f"{data}: {found.entries} records, and {len(table)} extents")
        return Told(data, name, meta, found.entries, pages, pages.size(), table)


def open_source(
    path: str | os.PathLike[str],
    *,
    db: bytes | str | None = None,
    locate: Locate = "auto",
    provenance: str | os.PathLike[str] | None = None,
    check: Check = "fast",
    order: Order = "key",
    subdir: bool | None = None,
    vouched: bytes | None = None,
) -> Source:
    """Opens a database for reading records by index.

    Args:
        path: an environment's folder or its one file.
        db: a named database, None for the main one.
        locate: "provenance" demands the sidecar, "scan" walks the tree, "auto" takes the
            sidecar when there is one that holds, says so in a warning when it does not.
        provenance: the sidecar, or the folder it is in; None for the usual places
            (``provenance.find_sidecar``).
        check: how the sidecar is checked against the data (``staleness.check``).
        order: how records are numbered: "key", or "insertion": as they were put, where that is
            known: ``lmdbio convert --order`` was told, or their keys are numbers that count
            (``keys.KeyPattern.by_number``).
        subdir: as in ``lmdb.open``; None takes either.
        vouched: digest (``Source.digest``) of a sidecar that another process has checked against
            this very file just now: one of that digest is taken at its word.

    Raises:
        OSError, Error: the file, its metas or its tree cannot be read.
        ProvenanceError, StaleError: the sidecar is damaged or not this database's, and
            ``locate="provenance"``.
        IncompatibleError: the order asked for is not known.
        LookupError: no such named database.
        ValueError: an argument makes no sense.
    """
    given = (("locate", locate, Locate), ("check", check, Check), ("order", order, Order))
    for what, value, kind in given:
        if value not in get_args(kind):
            choices = ", ".join(map(repr, get_args(kind)))
            raise ValueError(f"{what} must be one of {choices}, not {value!r}")
    data = os.fspath(sidecars.data_file(path, subdir))
    name = db.encode() if isinstance(db, str) else db
    with opening(data, name, "pread") as file:
        pages, meta, found = file
        size = pages.size()
        sidecar, reason = None, "scan was asked for"
        if locate != "scan":
            sidecar, reason = _open_sidecar(
                data,
                name,
                found,
                pages,
                meta,
                provenance,
                check,
                demanded=locate == "provenance",
                vouched=vouched,
            )
        section = sidecar.section(name) if sidecar is not None else None
        if sidecar is not None:
            sidecar.attach(LeafReader(pages, meta.layout))
        insertion = order == "insertion"
        if insertion and section is None:
            _refuse_lost_order(data, name, provenance)
        scanned = _scan(pages, meta, found, keys=insertion) if section is None else None
        known = section if scanned is None else scanned
        assert known is not None
        permuted = _insertion(data, name, found, known) if insertion else None
        table = None if scanned is None else scanned.extents
        if table is not None and permuted is not None:
            table = table[permuted]
    groups = Groups(known.each_key) if found.flags & DUPSORT else None
    return Source(
        path=data,
        db=name,
        meta=meta,
        count=found.entries,
        locate="scan" if section is None else "provenance",
        reason=reason,
        _pages=pages,
        _keys=KeyTable(
            pages,
            meta,
            found,
            pattern=known.keys,
            leaves=partial(_leaves, pages, meta, found, section, scanned, groups),
            groups=groups,
            guard=partial(_guard, pages, meta),
        ),
        _order=permuted,
        _table=table,
        _sidecar=sidecar,
        _section=section,
        _size=size,
    )


class Counted(NamedTuple):
    """What numbers the keys of one database in one state.

    Attributes:
        pattern: what its keys look like; None: they follow no pattern.
        leaves: with their keys counted, in key order; empty where there is a pattern.
        groups: the records of each key; None: each has one.
    """

    pattern: KeyPattern | None
    leaves: _core.Leaves
    groups: Groups | None


def count_keys(
    engine: _core.Engine, meta: _core.Meta, db: _core.Database, name: bytes | None
) -> Counted:
    """By the sidecar at its usual place, or by a walk where there is none that holds.

    Args:
        engine: of the data file.
        meta, db: the state, and the database ``name`` in it.

    Raises:
        OSError, Error: the tree cannot be read.
    """
    many = bool(db.flags & DUPSORT)
    with engine.again("pread", depth=32) as pages:
        sidecar, _ = _open_sidecar(
            engine.path, name, db, pages, meta, None, "fast", demanded=False
        )
        if sidecar is None:
            scanned = _scan(pages, meta, db, keys=True)
            groups = Groups(scanned.each_key) if many else None
            return Counted(scanned.keys, scanned.leaves, groups)
        with sidecar:
            section = sidecar.section(name)
            each = section.each_key() if many else None
            groups = None if each is None else Groups(lambda: each)
            leaves = np.empty(0, _core.LEAF)
            if section.keys is None:
                leaves = _leaves(pages, meta, db, section, None, groups)
            return Counted(section.keys, leaves, groups)


def _guard(pages: _core.Engine, meta: _core.Meta) -> None:
    now, is_there = _core.look(pages, meta)
    if not (is_there and meta.txnid <= now <= meta.txnid + 1):
        raise Error(
            f"{pages.path}: changed while it was read (transaction {meta.txnid} when opened, "
            f"{now} now); open it again, and run lmdbio convert again"
        )


def _insertion(
    data: str, name: bytes | None, db: _core.Database, known: sidecars.Section | _Scanned
) -> I64:
    """The records in the order in which they were put."""
    order, pattern = known.order(), known.keys
    if order is not None or not db.entries:
        return np.empty(0, np.int64) if order is None else order
    if db.flags & DUPSORT:
        why = "keys may have many"
    elif pattern is None:
        why = "its keys follow no pattern, and lmdbio convert was not told (--order)"
    else:
        # Text whose last digits are sorted first looks as if it counted.
        order = None if db.flags & REVERSEKEY else pattern.by_number()
        why = f"its keys ({describe(pattern.runs)}) do not count in one way"
    if order is None:
        raise IncompatibleError(
            f"{data}: {sidecars.name_text(name)}: the order in which its records were put is not "
            f"known: {why}"
        )
    return order


def _refuse_lost_order(
    data: str, name: bytes | None, provenance: str | os.PathLike[str] | None
) -> None:
    """Where the order was told once, and holds no more, numbers in keys are no better."""
    sidecar = sidecars.find_sidecar(data, provenance)
    if name in sidecars.orders_told(sidecar):
        raise IncompatibleError(
            f"{data}: {sidecars.name_text(name)}: the order in which its records were put is told "
            f"by {sidecar}, which does not describe this state: convert it again, with --order"
        )


def _newest_or_zero(pages: _core.Engine, meta: _core.Meta) -> int:
    try:
        return _core.newest_txnid(pages, meta.layout)
    except (OSError, Error):
        return 0


def _open_sidecar(
    data: str,
    name: bytes | None,
    db: _core.Database,
    pages: _core.Engine,
    meta: _core.Meta,
    provenance: str | os.PathLike[str] | None,
    check: Check,
    *,
    demanded: bool,
    vouched: bytes | None = None,
) -> tuple[sidecars.Provenance | None, str]:
    """The sidecar, checked and with a section for the database, or None and why not."""
    path = sidecars.find_sidecar(data, provenance)
    sidecar = None
    try:
        sidecar = sidecars.Provenance.open(path)
        if vouched is not None and vouched == sidecar.facts.digest:
            freshness.check_facts(pages, meta, sidecar)
        else:
            freshness.check(pages, meta, sidecar, check)
        section = sidecar.section(name)
        label = sidecars.name_text(name)
        freshness.compare_database(sidecar, pages.path, label, db, section.database)
    except BaseException as e:
        if sidecar is not None:
            sidecar.close()
        if not isinstance(e, ProvenanceError | FileNotFoundError | PermissionError | KeyError):
            raise
        missing = isinstance(e, FileNotFoundError)
        reason = f"{data}: has no provenance file ({path})" if missing else _text(e)
        if demanded:
            if isinstance(e, ProvenanceError | PermissionError):
                raise
            raise ProvenanceError(f"{reason}; lmdbio convert makes one") from e
        if not missing or provenance is not None:
            warnings.warn(f"{reason}; the tree is walked instead", stacklevel=4)
        return None, reason
    return sidecar, ""


def _text(error: BaseException) -> str:
    """What an error says; str() of a KeyError would quote it."""
    return str(error.args[0] if isinstance(error, KeyError) else error)


class _Scanned(NamedTuple):
    """What one walk over a tree tells (16 bytes a record stay in memory).

    Attributes:
        extents, leaves: in key order, dtype ``EXTENT`` and ``LEAF``.
        each: items of each key, uint64; empty without duplicates.
        keys: what they look like; None: they follow no pattern, or were not followed.
    """

    extents: _core.Extents
    leaves: _core.Leaves
    each: U64
    keys: KeyPattern | None

    def each_key(self) -> U64:
        return self.each

    def order(self) -> I64 | None:
        """What nobody has told."""
        return None


def _scan(pages: _core.Engine, meta: _core.Meta, db: _core.Database, *, keys: bool) -> _Scanned:
    """Walks a database; ``keys``: follows them, too, which takes as long as the rest."""
    extents, leaves = [np.empty(0, _core.EXTENT)], [np.empty(0, _core.LEAF)]
    each, finder = [np.empty(0, np.uint64)], _core.KeyFinder(db.flags)
    for part in values.walk(pages, meta, db):
        if part.chunk is not None and part.keys:
            if keys:
                finder.add(meta.layout, part.chunk, pages.path)
            leaves.append(_core.leaves_of(meta.layout, part.chunk))
        extents.append(part.extents)
        each.append(part.each)
    runs = finder.end()
    return _Scanned(
        np.concatenate(extents),
        np.concatenate(leaves),
        np.concatenate(each),
        KeyPattern(runs) if runs else None,
    )


def _leaves(
    pages: _core.Engine,
    meta: _core.Meta,
    db: _core.Database,
    section: sidecars.Section | None,
    scanned: _Scanned | None,
    groups: Groups | None,
) -> _core.Leaves:
    """All leaves of a database in key order (dtype ``LEAF``).

    Raises:
        ProvenanceError: the sidecar tells another number of keys than these hold.
    """
    if scanned is not None:
        return scanned.leaves
    named = section.leaves() if section is not None else None
    if named is not None:
        return named
    found = [np.empty(0, _core.LEAF)]
    with _core.Walk(pages, meta, db) as walk:
        found += [_core.leaves_of(meta.layout, chunk) for chunk in walk if chunk.leaf]
    leaves = np.concatenate(found)
    keys = int(leaves["records"].sum())
    if section is not None and groups is not None and len(groups) != keys:
        raise section.damaged(f"it counts {len(groups):,} keys, {pages.path} has {keys:,}")
    return leaves
