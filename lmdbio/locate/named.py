"""Refuse the main database as a source of records where it holds nothing but named databases.

Its records are the headers of those then, which nobody means to read.
"""

from __future__ import annotations

from shlex import quote

from lmdbio import _core
from lmdbio.errors import CorruptedError
from lmdbio.inside.keytext import show_key
from lmdbio.locate.open_database import guard_state
from lmdbio.provenance.values import DUPSORT

__all__ = ["refuse_headers"]

#: Environments have few named databases (``max_dbs``): larger main ones are not looked at.
DATABASES_MAX = 1024
SHOWN_MAX = 8


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
        spelled = [show_key(name) for name in names[:SHOWN_MAX]]
        shown = ", ".join(spelled) + ", ..." * (len(names) > SHOWN_MAX)
        raise LookupError(
            f"{pages.path}: holds only named databases ({shown}): say db={_said(names[0])} "
            f"(on the command line --db {quote(spelled[0])})"
        )


def _said(name: bytes) -> str:
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
