"""open_files: open one file, or several that are read as one, without looking for records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lmdbio.locate.file_set import FileSet
from lmdbio.locate.open_database import OpenDatabase, opening, settled
from lmdbio.locate.touched import touching
from lmdbio.provenance import Paths, data_files, name_bytes

__all__ = ["open_database", "stat_files"]


def stat_files(paths: Sequence[str], db: bytes | None) -> FileSet:
    """Look at the states of several files, without walking their trees.

    Raises:
        OSError, Error, LookupError: as ``open_record_index``, for one of them.
    """
    found = FileSet(paths)

    def look(path: str) -> None:
        with opening(path, db, "pread") as file:
            found.add(file.pages, file.meta, file.database.entries)
            file.pages.close()

    with touching(paths) as opened:
        for path in paths:
            settled(path, partial(look, path))
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
