"""open_files: open one file, or several that are read as one, without looking for records.

One root of a job walks the tree and shares what it found; the others take its word for it and read
no page of the tree but the metas, by which each guards its own reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.errors import moved_error
from lmdbio.locate.file_set import FileSet, prefetching
from lmdbio.locate.open_database import OpenDatabase, opening, settled
from lmdbio.provenance import Paths, data_files, name_bytes

__all__ = ["SharedExtents", "open_database", "open_shared_extents", "stat_files"]


def stat_files(paths: Sequence[str], db: bytes | None) -> FileSet:
    """Look at the states of several files, without walking their trees.

    Raises:
        OSError, Error, LookupError: as ``open_record_index``, for one of them.
    """
    found = FileSet(paths)

    def probe(path: str) -> None:
        with opening(path, db, "pread") as file:
            found.add(file.pages, file.meta, file.database.entries)
            file.pages.close()

    with prefetching(paths) as opened:
        for path in paths:
            settled(path, partial(probe, path))
            opened()
    return found


def open_database(path: Paths, *, db: bytes | str | None = None) -> OpenDatabase:
    """Open a database without asking where its records lie.

    Args:
        path: an environment's folder or its one file, or several (``provenance.data_files``).
        db: a named database, None for the main one.

    Raises:
        OSError, Error, LookupError: as for ``open_record_index``.
    """
    files = data_files(path)
    name = name_bytes(db)
    if len(files) == 1:
        return settled(files[0], partial(_open_one, files[0], name))
    seen = stat_files(files, name)
    joined = seen.open()
    count, size = int(seen.counts.sum()), joined.size()
    return OpenDatabase(joined.path, name, seen.meta, count, joined, size, file_set=seen)


def _open_one(path: str, name: bytes | None) -> OpenDatabase:
    with opening(path, name, "pread") as (pages, meta, found):
        return OpenDatabase(path, name, meta, found.entries, pages, pages.size())


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
