"""Refuse files that end before their records, and databases that hold none that anybody means.

A file may be shorter than its state says: nothing was ever written to its last free pages. It may
have holes, where LMDB maps it for writing. So the records and the pages of trees are what counts.

The records of a main database that holds nothing but named ones are their headers.
"""

from __future__ import annotations

from shlex import quote

from lmdbio import _core
from lmdbio.errors import CorruptedError, ShortReadError, cut_error
from lmdbio.inside.keytext import show_key
from lmdbio.locate.open_database import guard_state, judged
from lmdbio.provenance import values
from lmdbio.provenance.values import DUPSORT

__all__ = ["extents_end", "only_named", "refuse_cut", "refuse_end", "refuse_headers"]

#: Environments have few named databases (``max_dbs``): larger main ones are not looked at.
DATABASES_MAX = 1024
NAMES_MAX = 8


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


def refuse_headers(
    pages: _core.Engine, meta: _core.Meta, name: bytes | None, db: _core.Database
) -> None:
    """Refuse to read records of a main database that only holds named ones.

    Reads at most the first leaves of a database whose entries are few and lie on its leaves.

    Args:
        name: name of the database ``db``; None for the main one.

    Raises:
        LookupError: it holds named databases alone; the message names them.
        ShortReadError, OSError: its leaves cannot be read.
        Error: the file has moved on meanwhile.
    """
    few = 0 < db.entries <= DATABASES_MAX and not db.overflow_pages
    if name is not None or not few or db.flags & DUPSORT:
        return
    names = _headers(pages, meta, db)
    if names:
        raise only_named(pages.path, names)


def only_named(path: str, names: list[bytes]) -> LookupError:
    """Return the error for a main database that holds named ones alone."""
    spelled = [show_key(name) for name in names[:NAMES_MAX]]
    listed = ", ".join(spelled) + ", ..." * (len(names) > NAMES_MAX)
    return LookupError(
        f"{path}: holds only named databases ({listed}): say db={_quoted(names[0])} "
        f"(on the command line --db {quote(spelled[0])})"
    )


def _quoted(name: bytes) -> str:
    """Return the name of a database as Python writes it."""
    try:
        return repr(name.decode())
    except UnicodeDecodeError:
        return repr(name)


def _headers(pages: _core.Engine, meta: _core.Meta, db: _core.Database) -> list[bytes]:
    """Return the named databases where there is nothing else; else none of them.

    Raises:
        Error: the file has moved on, so that what was found are pages of another state.
    """
    names: list[bytes] = []
    try:
        with _core.Walk(pages, meta, db) as walk:
            for chunk in (chunk for chunk in walk if chunk.leaf):
                found = _core.leaf_databases(meta.layout, chunk, pages.path)
                names += [name for name, _ in found]
                if len(found) < int(_core.leaves_of(meta.layout, chunk)["records"].sum()):
                    names = []
                    break
    except CorruptedError:  # the reader of these pages will say it
        names = []
    if not names:
        guard_state(pages, meta)  # what was no header may be a page of another state
    return names
