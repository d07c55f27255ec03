"""Checksums of pages of a file (csrc/checksum.h). Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, U64, Extents, pointer_to
from lmdbio._core.brief import BYTES_MAX, brief_up_to

__all__ = ["CHECKED_PAGE_BYTES", "compare_sums", "crc32c", "sum_pages"]

U32 = npt.NDArray[np.uint32]

#: A sum is of a page of so many bytes.
CHECKED_PAGE_BYTES = int(lib.LIO_CHECKSUM_PAGE_BYTES)
#: Pages that differ are told by number, but no more of them than this.
DIFFER_MAX = 4096


def crc32c(data: bytes, crc: int = 0) -> int:
    """Goes on with a CRC32C over more bytes."""
    return int(lib.lio_crc32c(crc, data, len(data)))


def sum_pages(seed: int, address: int, first: int, count: int) -> U32:
    """Returns the sums of pages in memory, uint32, shape (count,); none of them is 0.

    Args:
        seed: seed of the sums, which stands for the file's state.
        address: address of the first page; the caller owns the memory.
        first: number of the first page in the file.
        count: number of pages.
    """
    sums = np.empty(count, np.uint32)
    memory = ffi.cast("uint8_t *", address)
    lib.lio_checksum_pages(seed, memory, first, count, pointer_to(sums, "uint32_t *"))
    return sums


def compare_sums(
    seed: int, extents: Extents, slices: U64, address: int, sums: U32, first: int
) -> tuple[npt.NDArray[np.bool_], int, U64]:
    """Compares the pages under extents with their sums.

    Args:
        seed: seed of the sums, which stands for the file's state.
        extents: extents in the file, dtype ``EXTENT``, shape (n,).
        slices: offset of each extent's first byte from ``address``, bytes; its pages lie there
            whole. The caller owns the memory.
        sums: sums of the pages from number ``first`` on; 0: the page has none.

    Returns:
        Which extents have a page that differs, or has no sum: bool, shape (n,); how many pages
        differ; and the numbers of the first of these, uint64.
    """
    extents, slices = (
        np.ascontiguousarray(extents, EXTENT),
        np.ascontiguousarray(slices, np.uint64),
    )
    wrong, differ = np.empty(len(extents), np.bool_), np.empty(DIFFER_MAX, np.uint64)
    compare = brief_up_to("lio_checksum_compare", int(extents["length"].sum()), BYTES_MAX)
    found = int(
        compare(
            seed,
            pointer_to(extents, "lio_extent *"),
            pointer_to(slices, "uint64_t *"),
            len(extents),
            address,
            pointer_to(sums, "uint32_t *"),
            first,
            len(sums),
            pointer_to(wrong, "uint8_t *"),
            pointer_to(differ, "uint64_t *"),
            DIFFER_MAX,
        )
    )
    return wrong, found, differ[: min(found, DIFFER_MAX)]
