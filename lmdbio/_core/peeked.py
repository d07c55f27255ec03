"""Records looked at one by one, and not further than asked (csrc/cursor.h, format.h).

A cursor's ``item`` brings a whole value, of which there may be gigabytes.
"""

from __future__ import annotations

from typing import NamedTuple

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.cursor import Cursor
from lmdbio._core.engine import Engine
from lmdbio._core.format import Layout, layout_to_c
from lmdbio._core.status import Status
from lmdbio.errors import CorruptedError

__all__ = ["Branch", "Peeked", "read_head", "read_branch", "read_part"]


class Peeked(NamedTuple):
    """A record under a cursor.

    Attributes:
        key: key of the record.
        length: length of its value, bytes.
        data: the value, where it lies in the tree; None: in overflow pages.
        offset: offset of the value in the file, bytes, where it lies in overflow pages.
    """

    key: bytes
    length: int
    data: bytes | None
    offset: int


def read_head(cursor: Cursor) -> Peeked:
    """Return the record that a cursor's last move ended at. For one thread at a time.

    Raises:
        LookupError: the move failed.
    """
    item = lib.lio_cursor_item(cursor.pointer)
    if item == ffi.NULL:
        raise LookupError("the cursor stands at no record")
    key = bytes(ffi.buffer(item.key, item.key_size))
    if item.data != ffi.NULL:
        data = bytes(ffi.buffer(item.data, item.data_size))
        return Peeked(key, len(data), data, 0)
    return Peeked(key, int(item.where.length), None, int(item.where.offset))


def read_part(engine: Engine, layout: Layout, record: Peeked, start: int, stop: int) -> bytes:
    """Return bytes ``start`` to ``stop`` of a value, cut at its end.

    Raises:
        CorruptedError: no value begins there (found when its first bytes are read).
        OSError, ShortReadError: it cannot be read.
    """
    stop = min(stop, record.length)
    if record.data is not None:
        return record.data[start:stop]
    if start >= stop:
        return b""
    if start:
        return engine.read(record.offset + start, stop - start)
    header = layout.header_size
    found = engine.read(record.offset - header, header + stop)
    pgno = record.offset // layout.page_size
    Status(engine.path).call(
        lib.lio_overflow_check, layout_to_c(layout), found, pgno, record.length
    )
    return found[header:]


class Branch(NamedTuple):
    """A page of a tree.

    Attributes:
        children: the pages below it; empty: it is a leaf.
        nodes: number of nodes on the page.
    """

    children: list[int]
    nodes: int


def read_branch(engine: Engine, layout: Layout, pgno: int) -> Branch:
    """Read one page of a tree, and where it leads.

    Raises:
        CorruptedError: it is no such page.
        OSError, ShortReadError: it cannot be read.
    """
    c_layout, status = layout_to_c(layout), Status(engine.path)
    page = engine.read(pgno * layout.page_size, layout.page_size)
    is_branch = bool(lib.lio_page_flags(c_layout, page) & lib.LIO_P_BRANCH)
    kind = lib.LIO_P_BRANCH if is_branch else lib.LIO_P_LEAF
    status.call(lib.lio_page_check, c_layout, page, pgno, kind)
    count = int(lib.lio_page_count(c_layout, page))
    if not is_branch:
        return Branch([], count)
    if not count:
        raise CorruptedError(f"{engine.path}: branch page {pgno} leads nowhere")
    node, children = ffi.new("lio_node *"), []
    for index in range(count):
        status.call(lib.lio_page_node, c_layout, page, pgno, index, node)
        if node.child >= layout.page_limit:
            raise CorruptedError(
                f"{engine.path}: branch page {pgno} leads to page {int(node.child)}, which is none"
            )
        children.append(int(node.child))
    return Branch(children, count)
