"""Open a database whose extents another process has found in the same file.

One root of a job walks the tree and shares what it found; the others take its word for it and
read no page of the tree but the metas, by which each guards its own reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import moved_error
from lmdbio.locate.open_database import OpenDatabase
from lmdbio.locate.open_files import open_database
from lmdbio.provenance import Paths

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
    path: Paths,
    table: _core.Extents,
    *,
    db: bytes | str | None = None,
    some: bool = False,
) -> SharedExtents:
    """Open a database of which all extents are known.

    Args:
        path: an environment's folder or its one file, or several (``provenance.data_files``).
        table: dtype ``EXTENT``, shape (records,), in the order in which records are numbered.
        db: a named database, None for the main one.
        some: the table has some of its records, the samples.

    Raises:
        OSError, Error, LookupError: as for ``open_record_index``.
        MovedError: the database has another number of records now.
    """
    found = open_database(path, db=db)
    if len(table) != found.count and not (some and len(table) < found.count):
        found.close()
        raise moved_error(
            f"{found.path}: was committed to while it was opened: {found.count} records, and "
            f"{len(table)} extents were found before; open it again"
        )
    return SharedExtents(
        found.path,
        found.db,
        found.meta,
        len(table),
        found.pages,
        found.pages.size(),
        table,
        file_set=found.file_set,
    )
