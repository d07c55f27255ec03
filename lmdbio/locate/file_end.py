"""Where the records of a file end, and whether the file reaches so far.

A file may be shorter than its state says: nothing was ever written to its last free pages. It may
have holes, where LMDB maps it for writing. So the records and the pages of trees are what counts.
"""

from __future__ import annotations

from lmdbio import _core
from lmdbio.errors import ShortReadError, cut_error
from lmdbio.locate.open_database import judged
from lmdbio.provenance import values

__all__ = ["extents_end", "refuse_cut", "refuse_end"]


def extents_end(extents: _core.Extents) -> int:
    """Return where the last of these extents ends; 0: there are none."""
    return int((extents["offset"] + extents["length"]).max()) if len(extents) else 0


def refuse_end(path: str, size: int, needed: int) -> None:
    """Refuse a file that ends before its records.

    Raises:
        ShortReadError: it does.
    """
    if needed > size:
        raise cut_error(path, size, needed)


def refuse_cut(pages: _core.Engine, meta: _core.Meta) -> None:
    """Refuse a file that ends before its records or the pages of its trees.

    Nothing is read unless the file lacks pages of its state: then all its trees are walked, to
    find out whether these are free ones.

    Raises:
        ShortReadError: it does.
        OSError, Error: its trees cannot be read.
    """
    size = pages.size()
    if size >= (meta.last_pgno + 1) * meta.layout.page_size:
        return
    with judged(pages, meta):
        try:
            needed = _needed_bytes(pages, meta)
        except ShortReadError as e:
            raise cut_error(pages.path, size, e) from e
        refuse_end(pages.path, size, needed)


def _needed_bytes(pages: _core.Engine, meta: _core.Meta) -> int:
    """Return where the last record of any database ends. Walks all their trees."""
    named: list[_core.Database] = []
    needed = 0
    for part in values.walk(pages, meta, meta.main_db):
        needed = max(needed, extents_end(part.extents))
        if part.chunk is not None and part.keys:
            named += [db for _, db in _core.leaf_databases(meta.layout, part.chunk, pages.path)]
    for db in named:
        for part in values.walk(pages, meta, db):
            needed = max(needed, extents_end(part.extents))
    return needed
