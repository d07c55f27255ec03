"""Open a database whose extents another process has found in the same file.

One root of a job walks the tree and shares what it found; the others take its word for it and
read no page of the tree but the metas, by which each guards its own reads.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.locate.open_database import OpenDatabase, opening
from lmdbio.provenance import find_data

__all__ = ["SharedExtents", "open_shared_extents"]


@dataclass(slots=True, eq=False)
class SharedExtents(OpenDatabase):
    """A database whose extents another process has found in the same file."""

    _table: _core.Extents

    def extents(self, indices: npt.NDArray[np.uint64]) -> _core.Extents:
        """Return the extents (dtype ``EXTENT``) of records, in the order asked."""
        return _core.take_extents(self._table, indices, self.path)

    def run(self, start: int, stop: int) -> _core.Extents:
        """Return the extents of records ``start`` to ``stop`` (exclusive); never write to them."""
        return self._table[start:stop]


def open_shared_extents(
    path: str | os.PathLike[str], table: _core.Extents, *, db: bytes | str | None = None
) -> SharedExtents:
    """Open a database of which all extents are known.

    Args:
        path: an environment's folder or its one file.
        table: dtype ``EXTENT``, shape (records,), in the order in which records are numbered.
        db: a named database, None for the main one.

    Raises:
        OSError, Error, LookupError: as for ``open_record_index``.
        ValueError: the database has another number of records.
    """
    data = os.fspath(find_data(path, None))
    name = db.encode() if isinstance(db, str) else db
    with opening(data, name, "pread") as (pages, meta, found):
        if found.entries != len(table):
            raise ValueError(f"{pages.path}: {found.entries} records, and {len(table)} extents")
        return SharedExtents(pages.path, name, meta, found.entries, pages, pages.size(), table)
