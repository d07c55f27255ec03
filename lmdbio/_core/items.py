"""The values of keys that may have many, found on leaves (csrc/items.h)."""

from __future__ import annotations

import numpy as np

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, U64, Extents, pointer_to
from lmdbio._core.format import Layout, layout_to_c
from lmdbio._core.locate import Chunk, Trees, leaves_of
from lmdbio._core.status import Status
from lmdbio.system.frozen import dataclass


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
    leaves = (
        layout_to_c(layout),
        pointer_to(chunk.pages, "uint8_t *"),
        pointer_to(chunk.pgnos, "uint64_t *"),
        len(chunk.pgnos),
    )
    status.check(lib.lio_items_count(*leaves, counts, status.error))
    extents = np.empty(counts.items, EXTENT)
    each, keys = np.empty(counts.keys, np.uint64), np.empty(counts.trees, np.uint64)
    records = ffi.new("lio_db[]", max(int(counts.trees), 1))
    status.check(
        lib.lio_items_find(
            *leaves,
            pointer_to(extents, "lio_extent *"),
            pointer_to(each, "uint64_t *"),
            pointer_to(keys, "uint64_t *"),
            records,
            status.error,
        )
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
    c_layout, pages = layout_to_c(layout), pointer_to(chunk.pages, "uint8_t *")
    capacity = int(lib.lio_leaves_entries(c_layout, pages, len(chunk.pgnos)))
    extents, made, status = np.empty(capacity, EXTENT), ffi.new("size_t *"), Status(path)
    status.check(
        lib.lio_items_of_tree(
            c_layout,
            pages,
            pointer_to(chunk.pgnos, "uint64_t *"),
            len(chunk.pgnos),
            pointer_to(extents, "lio_extent *"),
            capacity,
            made,
            status.error,
        )
    )
    return extents[: int(made[0])]
