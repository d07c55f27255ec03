"""Tell where the records of one database lie, by their numbers.

    record index  ->  extent   a table of all, or blocks of the provenance file
    record index <->  key      ``KeyIndex``

Records are numbered from 0, in key order or in the order in which they were put; or those alone
that are samples, in the order of their layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import CorruptedError, ProvenanceError
from lmdbio.locate.key_index import Keys, Single
from lmdbio.locate.open_database import OpenDatabase
from lmdbio.locate.tree import Tree
from lmdbio.provenance import Provenance, Section
from lmdbio.system.log import WARNING, log

__all__ = ["RecordIndex"]

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

#: Records whose extents are kept as one table (64 MiB) once many were asked for; beyond, blocks
#: of the provenance file are decoded as they are needed.
TABLE_RECORDS_MAX = 1 << 22
#: Once one in so many records was asked for, all of them get a table.
TABLE_SHARE = 16
#: Finding one record alone in a provenance file takes as long (60 us) as so many of a table, and
#: more.
SINGLE_RECORDS = 64


@dataclass(slots=True, eq=False)
class RecordIndex(OpenDatabase):
    """Tells where the records of one database lie. Threads may share one.

    A table of all extents answers at once. Where there is none yet, a provenance file decodes the
    blocks that are needed, until so many were asked for that a table costs no more. Where a block
    is damaged, the tree is walked, and that is the table.

    Attributes:
        locate: "provenance" or "scan"; the latter, too, once the provenance file is found damaged.
        reason: reason why it is not located by provenance; "": it is.
        entries: records of the database, samples or not.
        columns: records of a sample, which follow one another; ``count`` is of records.
        layout: layout of the samples; None: there is none, or nobody has asked.
    """

    locate: Literal["provenance", "scan"]
    reason: str
    _keys: Keys
    _order: I64 | None  # the records as they are numbered here; None: in key order
    _table: _core.Extents | None
    _provenance: Provenance | None
    _tree: Tree | None
    entries: int
    columns: int = 1
    layout: str | None = None
    _asked: int = 0
    _is_damaged: bool = False  # a block of the provenance file
    _inverse: I64 | None = None  # where each record, in key order, is in the order; -1: nowhere
    _vouching: _core.Snapshot | None = None

    def extents(self, indices: npt.NDArray[np.uint64]) -> _core.Extents:
        """Return the extents (dtype ``EXTENT``) of records, in the order asked.

        Args:
            indices: uint64, shape (n,), any order, repeats allowed.

        Raises:
            IndexError: an index is not below ``count``.
            CorruptedError: a leaf is damaged.
            ProvenanceError: so is a block of the provenance file, which was demanded.
            Error: the file has moved on.
        """
        if self._table is None and len(indices):
            last = int(indices.max())
            if last >= self.count:
                raise IndexError(f"{self.path}: record {last} of {self.count}")
            records = indices if self._order is None else self._order[indices]
            if self._is_table_due(records):
                self._make_table()
        if self._table is not None:
            return _core.take_extents(self._table, indices, self.path)
        if not len(indices):
            return np.empty(0, _core.EXTENT)
        assert self._tree is not None
        section = self._section
        try:
            if section is not None:
                return section.locate(records)
        except ProvenanceError as error:
            self._tree.walk(error)
        except CorruptedError:
            self.guard()  # a page of another state is no damage
            raise
        self.take_walk()  # this thread's, or another one's
        return self.extents(indices)

    @property
    def _section(self) -> Section | None:
        """The provenance file's; None: there is none, or the tree was walked."""
        known = None if self._tree is None else self._tree.known
        return known if isinstance(known, Section) else None

    def take_walk(self) -> None:
        """Take the table from the walk, if there was one."""
        if self._tree is None or self._section is not None:
            return
        table = self._tree.extents()
        self._table = table if self._order is None else table[self._order]
        self.locate, self.reason = "scan", self.reason or self._tree.reason

    def _is_table_due(self, indices: npt.NDArray[Any]) -> bool:
        """Return whether finding these records alone costs as much as a table of all, or has."""
        section = self._section
        if section is None:
            return True  # the tree was walked for the sake of a key
        self._asked += len(indices)
        if self.count > TABLE_RECORDS_MAX or self._is_damaged:
            return False
        if section.history is not None:
            return True  # a replay gives nothing less
        if section.forms["leaves"]:
            # A record alone costs its leaf, and the table all of them, but these in large reads.
            return TABLE_SHARE * self._asked >= section.database.leaf_pages
        if TABLE_SHARE * self._asked >= self.count:
            return True
        # Blocks are decoded whole: those at random all over the file need about all of them.
        spanned = section.blocks_between(int(indices.min()), int(indices.max()))
        return len(indices) >= section.blocks and 2 * spanned > section.blocks

    def _make_table(self) -> None:
        """Make the table, unless a leaf is damaged, or a block of a provenance file on demand.

        Then records are found by themselves, and those of the damaged part raise.
        """
        assert self._tree is not None and self._provenance is not None
        try:
            table = self._tree.extents()
        except (ProvenanceError, CorruptedError) as error:
            self.guard()  # a page of another state is no damage
            self._is_damaged = True
            log(f"{error}; records are found block by block, those of this one not", WARNING)
        else:
            self._table = table if self._order is None else table[self._order]
            self.take_walk()
            self._provenance.forget_blocks()

    @property
    def digest(self) -> bytes | None:
        """Digest of all branch and leaf pages, by the provenance file; None: there is none."""
        return None if self._provenance is None else self._provenance.facts.digest

    @property
    def table_bytes(self) -> int:
        """Memory that the table takes, once there is one, and the order, bytes."""
        order = self._order.nbytes if self._order is not None else 0
        if self._table is not None:
            return order + self._table.nbytes
        return order + (
            self.count * _core.EXTENT.itemsize if self.count <= TABLE_RECORDS_MAX else 0
        )

    def run(self, start: int, stop: int) -> _core.Extents:
        """Return the extents of records ``start`` to ``stop`` (exclusive); never write to them."""
        if self._table is not None:
            return self._table[start:stop]
        return self.extents(np.arange(start, stop, dtype=np.uint64))

    def find(self, indices: npt.NDArray[np.int64]) -> tuple[U64, _core.Extents] | None:
        """Find extents quickly, of indices that may count from the end.

        Returns:
            The indices from the beginning and their extents; None where ``extents`` has to do it,
            or one is out of range.
        """
        return None if self._table is None else _core.find_extents(self._table, indices)

    def extent(self, index: int) -> tuple[int, int]:
        """Return offset and length of one record; ``index`` is below ``count``."""
        table = self._table
        if table is None:
            self._asked += SINGLE_RECORDS
            table = self.extents(np.array([index], np.uint64))
            index = 0
        offset, length = table.item(index)
        return offset, length

    def key(self, index: int) -> bytes:
        """Return the key of one record, ``index`` being below ``count`` (``KeyIndex.key``)."""
        return self._keys.key(index if self._order is None else int(self._order[index]))

    def index(self, key: bytes) -> int | None:
        """Return the (first) record of a key; None: there is none (``KeyIndex.record``)."""
        found = self._keys.record(key)
        if found is None or self._order is None:
            return found
        place = int(self._inverted(self._order)[found])
        return None if place < 0 else place

    def _inverted(self, order: I64) -> I64:
        """Return where each record, numbered in key order, is in this order; -1: nowhere."""
        if self._inverse is None:
            inverse = np.full(self.entries, -1)
            inverse[order] = np.arange(self.count)
            self._inverse = inverse
        return self._inverse

    @property
    def insertion(self) -> I64:
        """The records as they were put, by their numbers in key order; int64."""
        return np.arange(self.count) if self._order is None else self._order

    @property
    def groups(self) -> Sequence[range]:
        """The records of each key, in key order; the samples, where some records are samples."""
        if self._keys.groups is not None:
            return self._keys.groups
        if self._order is None:
            return Single(self.count, None)
        places = self._inverted(self._order)
        return Single(self.count, places[places >= 0] // self.columns)

    def guard(self) -> None:
        """Make sure of what was read, by one quick look where that can say it (``OpenDatabase``).

        Raises:
            MovedError: the file has moved on.
        """
        if not (self._pages.is_open and self._snapshot().is_intact_now()):
            OpenDatabase.guard(self)

    def _snapshot(self) -> _core.Snapshot:
        """Return the state this was opened in, for readers in C, which ask it holding the GIL."""
        found = self._vouching
        if found is None:
            pages = _core.Pages(self._pages, self.meta.layout, 0)
            found = self._vouching = _core.Snapshot(pages, self.meta, held=False)
            if not self._pages.is_open:  # another thread has closed it meanwhile
                self._vouching = None
        return found

    def fetcher(
        self, engine: _core.Engine, waited: Callable[[int], None] | None
    ) -> Callable[[int, int], bytes] | None:
        """Return a quick call for the bytes of one extent, guarded (``_core.fetcher``)."""
        return _core.fetcher(engine, self._snapshot(), self.guard, waited)

    def gatherer(self, engine: _core.Engine) -> _core.Gatherer | None:
        """Return quick copies of what the page cache holds, guarded; None as for ``fetcher``."""
        if engine.alignment > 1:
            return None
        return _core.Gatherer(engine, self._snapshot())

    def values(
        self, engine: _core.Engine, extents: _core.Extents, *, waits: bool = True
    ) -> _core.Values:
        """Return the values at some extents of the file, guarded (``_core.Values``)."""
        return _core.Values.of_file(
            engine, extents, self._snapshot(), verify=self.guard, waits=waits
        )

    def value_getter(
        self, engine: _core.Engine
    ) -> Callable[[list[int]], _core.Values | None] | None:
        """Return a quick call for values that nobody need wait for (``_core.value_getter``).

        None where there is no table of all extents, or as for ``fetcher``.
        """
        if self._table is None or engine.alignment > 1:
            return None
        return _core.value_getter(engine, self._table, self._snapshot(), self.guard)

    def close(self) -> None:
        """Close the data file and the provenance file. May be called twice."""
        self._pages.close()
        self._vouching = None  # it keeps the file open
        self._keys.close()
        if self._provenance is not None:
            self._provenance.close()
