"""Walks of a tree, level by level, and what its leaves hold (csrc/locate.h, items.h)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, U64, Extents, pointer_to
from lmdbio._core.codec import LEAF, Leaves
from lmdbio._core.cursor import WANT_VALUE, Cursor, Move, Pages
from lmdbio._core.engine import Engine
from lmdbio._core.format import (
    Database,
    Layout,
    Meta,
    database_of,
    database_to_c,
    layout_to_c,
    meta_to_c,
)
from lmdbio._core.owner import cell_of, held
from lmdbio._core.status import SLICE_MS, Status
from lmdbio.errors import IncompatibleError
from lmdbio.system.frozen import dataclass

#: Levels of a tree at most.
DEPTH_MAX = int(lib.LIO_DEPTH_MAX)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Checked pages of one level of a tree, or of several side by side, in key order.

    Attributes:
        level: depth of these pages; 0 is the root of the deepest tree.
        height: number of levels down to the leaves; 0: these are leaf pages.
        pages: bytes of the pages, uint8, shape (count, page size); valid until the next step.
        pgnos: number of each page, uint64, shape (count,); likewise.
        trees: index of the tree that each page is of, uint32, shape (count,); likewise.
    """

    level: int
    height: int
    pages: npt.NDArray[np.uint8]
    pgnos: U64
    trees: npt.NDArray[np.uint32]

    @property
    def leaf(self) -> bool:
        """These are leaf pages."""
        return self.height == 0

    def given_to_c(self, layout: Layout) -> tuple[Any, Any, Any, int]:
        """Return layout, pages, their numbers and their count, as functions of C take them."""
        pages, pgnos = pointer_to(self.pages, "uint8_t *"), pointer_to(self.pgnos, "uint64_t *")
        return layout_to_c(layout), pages, pgnos, len(self.pgnos)


class Trees:
    """Database records of trees, in C's memory: there may be a hundred thousand.

    Args:
        records: ``lio_db`` array.
        count: length of the array.
    """

    def __init__(self, records: Any, count: int) -> None:
        self.records, self.count = records, count

    @classmethod
    def of(cls, db: Database) -> Trees:
        return cls(database_to_c(db), 1)

    def __len__(self) -> int:
        return self.count


class Walk:
    """Walks trees chunk by chunk, all pages of a chunk in flight together.

    Args:
        engine, meta: Engine and meta page of the file.
        trees: a database, or several trees.
        chunk_pages: largest number of pages in a chunk; 0: the default.
        beside: a walk of the same file, whose pages must not be met again.
    """

    def __init__(
        self,
        engine: Engine,
        meta: Meta,
        trees: Database | Trees,
        chunk_pages: int = 0,
        beside: Walk | None = None,
    ) -> None:
        self._engine = engine
        self._status = Status(engine.path)
        self._page_size = meta.layout.page_size
        planted = Trees.of(trees) if isinstance(trees, Database) else trees
        other: Any = ffi.NULL if beside is None else beside._pointer
        cell = cell_of("lio_walk", "walk_close", (engine.pointer, other))
        self._status.call(
            lib.lio_walk_open,
            engine.pointer,
            meta_to_c(meta),
            planted.records,
            planted.count,
            other,
            chunk_pages,
            cell,
        )
        self._pointer: Any = held(cell)

    def __iter__(self) -> Iterator[Chunk]:
        chunk = ffi.new("lio_chunk *")
        while True:
            code = lib.lio_walk_next(self._pointer, SLICE_MS, chunk, self._status.error)
            if code == lib.LIO_PENDING:
                continue
            self._status.check(code)
            if not chunk.count:
                return
            count = int(chunk.count)
            pages = np.frombuffer(
                ffi.buffer(chunk.pages, count * self._page_size), np.uint8
            ).reshape(count, self._page_size)
            pgnos = np.frombuffer(ffi.buffer(chunk.pgnos, count * 8), np.uint64)
            trees = np.frombuffer(ffi.buffer(chunk.trees, count * 4), np.uint32)
            yield Chunk(int(chunk.level), int(chunk.height), pages, pgnos, trees)

    def close(self) -> None:
        if self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            ffi.release(pointer)

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def leaf_extents(
    layout: Layout, chunk: Chunk, path: str
) -> tuple[Extents, npt.NDArray[np.uint32]]:
    """Decodes a chunk of leaves.

    Returns:
        The extents (dtype ``EXTENT``, key order), and the overflow pages each value owns
        (uint32; 0: it lies in the leaf).
    """
    leaves = c_layout, pages, _, count = chunk.given_to_c(layout)
    entries = int(lib.lio_leaves_entries(c_layout, pages, count))
    extents = np.empty(entries, EXTENT)
    overflow = np.empty(entries, np.uint32)
    made = ffi.new("size_t *")
    Status(path).call(
        lib.lio_leaves_extents,
        *leaves,
        pointer_to(extents, "lio_extent *"),
        pointer_to(overflow, "uint32_t *"),
        entries,
        made,
    )
    return extents[: int(made[0])], overflow[: int(made[0])]


def leaves_of(layout: Layout, chunk: Chunk) -> Leaves:
    """The pages of a chunk of leaves, and how many records lie on each (dtype ``LEAF``)."""
    found = np.empty(len(chunk.pgnos), LEAF)
    lib.lio_leaves_of(*chunk.given_to_c(layout), pointer_to(found, "lio_leaf *"))
    return found


def find_database(engine: Engine, meta: Meta, name: bytes) -> Database:
    """The record of the named database ``name``, read from the main one.

    LMDB 1.0 ends names with a NUL byte, which is added here.

    Raises:
        LookupError: there is none.
        IncompatibleError: ``name`` is the key of a plain record.
        CorruptedError, ShortReadError, OSError.
    """
    key = database_key(meta.layout, name)
    pages = Pages(engine, meta.layout, 0)
    cursor = Cursor(pages, meta.main_db)
    try:
        if not key or not cursor.move(Move.SET, key):
            text = name.decode(errors="backslashreplace")
            raise LookupError(f"{engine.path}: there is no database named '{text}'")
        if not cursor.holds_database():
            raise IncompatibleError(
                f"{engine.path}: the name is the key of a record, not of a database"
            )
        return pages.parse_database(cursor.item(WANT_VALUE)[1])
    finally:
        cursor.close()
        del cursor, pages  # an exception that is kept keeps this frame, and would keep the file


def database_key(layout: Layout, name: bytes) -> bytes:
    """The key in the main database under which a named one is found."""
    return name + _name_end(layout)


def _name_end(layout: Layout) -> bytes:
    """Return the bytes that end the key of a named database in this data format."""
    return b"" if layout.version == 1 else b"\0"


def leaf_databases(layout: Layout, chunk: Chunk, path: str) -> list[tuple[bytes, Database]]:
    """The named databases whose records lie on a chunk of the main database's leaves.

    Names are as ``find_database`` takes them.
    """
    end = _name_end(layout)
    leaves = chunk.given_to_c(layout)
    page, index = ffi.new("uint32_t *"), ffi.new("uint32_t *")
    node, db = ffi.new("lio_node *"), ffi.new("lio_db *")
    status = Status(path)
    found: list[tuple[bytes, Database]] = []
    while True:
        code = lib.lio_leaves_database(*leaves, page, index, node, db, status.error)
        if code == lib.LIO_NOTFOUND:
            return found
        status.check(code)
        found.append(
            (bytes(ffi.buffer(node.key, node.key_size)).removesuffix(end), database_of(db))
        )


@dataclass(frozen=True, slots=True)
class LeafItems:
    """The items of a chunk of leaves, in key order.

    Attributes:
        extents: extents of the items on the leaves themselves (dtype ``EXTENT``).
        each: items of each key, uint64.
        keys: indices of the keys whose items are in a tree beside, uint64.
        trees: the records of these trees.
    """

    extents: Extents
    each: U64
    keys: U64
    trees: Trees


def leaf_items(layout: Layout, chunk: Chunk, path: str) -> LeafItems:
    """Decodes a chunk of leaves of a database with duplicates."""
    status, counts = Status(path), ffi.new("lio_item_counts *")
    leaves = chunk.given_to_c(layout)
    status.call(lib.lio_items_count, *leaves, counts)
    extents = np.empty(counts.items, EXTENT)
    each, keys = np.empty(counts.keys, np.uint64), np.empty(counts.trees, np.uint64)
    records = ffi.new("lio_db[]", max(int(counts.trees), 1))
    status.call(
        lib.lio_items_find,
        *leaves,
        pointer_to(extents, "lio_extent *"),
        pointer_to(each, "uint64_t *"),
        pointer_to(keys, "uint64_t *"),
        records,
    )
    return LeafItems(extents, each, keys, Trees(records, len(keys)))


def leaf_keys(layout: Layout, chunk: Chunk, path: str) -> list[bytes]:
    """The keys on a chunk of leaves."""
    places = key_places(layout, chunk, path)
    starts, ends = places["offset"], places["offset"] + places["length"]
    content = chunk.pages.tobytes()  # a slice of bytes takes a third of one of a view made bytes
    return [content[at:end] for at, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def key_places(layout: Layout, chunk: Chunk, path: str) -> Extents:
    """Where the keys on a chunk of leaves lie: bytes from the first of its pages on."""
    places = tree_items(layout, chunk, path)  # in trees of duplicates items are keys
    each = leaves_of(layout, chunk)["records"].astype(np.int64)
    page = np.repeat(np.arange(len(each)), each)
    # As unsigned numbers wrap, this is right also for pages that move towards the beginning.
    places["offset"] += ((page - chunk.pgnos.astype(np.int64)[page]) * layout.page_size).astype(
        np.uint64
    )
    return places


def tree_items(layout: Layout, chunk: Chunk, path: str) -> Extents:
    """The items on a chunk of leaves of the tree that holds those of one key."""
    leaves = c_layout, pages, _, count = chunk.given_to_c(layout)
    capacity = int(lib.lio_leaves_entries(c_layout, pages, count))
    extents, made, status = np.empty(capacity, EXTENT), ffi.new("size_t *"), Status(path)
    into = pointer_to(extents, "lio_extent *")
    status.call(lib.lio_items_of_tree, *leaves, into, capacity, made)
    return extents[: int(made[0])]
