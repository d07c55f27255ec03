"""A database whose pages lie far apart: sparse, and sound by every rule of LMDB's format.

py-lmdb writes it, close together; then its leaves and the pages of its values move to page numbers
that are far apart, and all that names them with them. Nothing is written in between, so that the
file takes no more room than before, however long it is.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import lmdb

from tests.support.databases import Record, value

PAGE_BYTES = 4096
#: Of data format 1: flags at 10, lower at 12, pages of a value at 12; nodes begin behind 16.
BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8


def spread_out(path: Path, *, records: int, gap_bytes: int) -> list[Record]:
    """Write a database of format 1 whose pages lie apart; return its records.

    Args:
        path: of the file.
        gap_bytes: between two pages (or values) that follow each other, a multiple of the page.
    """
    expected = [(b"%08d" % i, value(i, 5000 if i % 3 == 0 else 300)) for i in range(records)]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        near = Path(folder) / "near.mdb"
        with lmdb.open(str(near), subdir=False, map_size=1 << 26) as env:
            with env.begin(write=True) as txn:
                for key, data in expected:
                    txn.put(key, data, append=True)
        pages = near.read_bytes()
    _move_apart(path, pages, gap_bytes // PAGE_BYTES)
    return expected


def _move_apart(path: Path, pages: bytes, gap: int) -> None:
    count = len(pages) // PAGE_BYTES
    places, starts, number = {}, {}, 2
    while number < count:  # pages of one value stay together
        page = pages[number * PAGE_BYTES :][:PAGE_BYTES]
        (flags,) = struct.unpack_from("<H", page, 10)
        taken = struct.unpack_from("<I", page, 12)[0] if flags & OVERFLOW else 1
        places[number], starts[number] = 2 + len(places) * gap, taken
        number += taken
    last = max(places[number] + starts[number] - 1 for number in places)
    with path.open("wb") as file:
        for number, place in places.items():
            whole = bytearray(pages[number * PAGE_BYTES :][: starts[number] * PAGE_BYTES])
            struct.pack_into("<Q", whole, 0, place)
            if not struct.unpack_from("<H", whole, 10)[0] & OVERFLOW:
                _rename(whole, places)
            file.seek(place * PAGE_BYTES)
            file.write(whole)
        for number in (0, 1):
            meta = bytearray(pages[number * PAGE_BYTES :][:PAGE_BYTES])
            # magic, version, address, map size; two databases of 48 bytes; last page, transaction
            for database in (0, 1):
                at = 16 + 24 + 48 * database + 40
                (root,) = struct.unpack_from("<Q", meta, at)
                if root in places:
                    struct.pack_into("<Q", meta, at, places[root])
            struct.pack_into("<Q", meta, 32, (last + 1) * PAGE_BYTES)
            struct.pack_into("<Q", meta, 16 + 24 + 96, last)
            file.seek(number * PAGE_BYTES)
            file.write(meta)


def _rename(page: bytearray, places: dict[int, int]) -> None:
    """Have the nodes of a branch or leaf page name pages where they are now."""
    flags, lower = struct.unpack_from("<HH", page, 10)
    for at in range(16, lower, 2):
        (node,) = struct.unpack_from("<H", page, at)
        low, high, bits, key = struct.unpack_from("<HHHH", page, node)
        if flags & BRANCH:
            child = places[low | high << 16 | bits << 32]
            struct.pack_into("<HHH", page, node, child & 65535, child >> 16 & 65535, child >> 32)
        elif bits & 1:  # its value lies in overflow pages
            (first,) = struct.unpack_from("<Q", page, node + 8 + key)
            struct.pack_into("<Q", page, node + 8 + key, places[first])
