"""Refuse the main database as a source of records where it holds nothing but named databases.

Its records are the headers of those then, which nobody means to read.
"""

from __future__ import annotations

from lmdbio import _core
from lmdbio.errors import CorruptedError
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
        name: of the database ``db``; None for the main one.

    Raises:
        LookupError: it holds named databases alone; the message names them.
        ShortReadError, OSError: its leaves cannot be read.
    """
    few = 0 < db.entries <= DATABASES_MAX and not db.overflow_pages
    if name is not None or not few or db.flags & DUPSORT:
        return
    names = _headers(pages, meta, db)
    if names:
        first = names[0]
        shown = ", ".join(names[:SHOWN_MAX]) + ", ..." * (len(names) > SHOWN_MAX)
        raise LookupError(
            f"{pages.path}: holds only named databases ({shown}): say db={first!r} "
            f"(on the command line --db {first})"
        )


def _headers(pages: _core.Engine, meta: _core.Meta, db: _core.Database) -> list[str]:
    """Return the named databases where there is nothing else; else none of them."""
    names: list[str] = []
    try:
        with _core.Walk(pages, meta, db) as walk:
            for chunk in (chunk for chunk in walk if chunk.leaf):
                found = _core.leaf_databases(meta.layout, chunk, pages.path)
                if len(found) < int(_core.leaves_of(meta.layout, chunk)["records"].sum()):
                    return []
                names += [name.decode("utf-8", "backslashreplace") for name, _ in found]
    except CorruptedError:  # the reader of these pages will say it
        return []
    return names
