"""Checksums of pages of a file (csrc/checksum.h). Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.brief import BYTES_MAX, brief_up_to
from lmdbio._core.plan import Plan
from lmdbio._core.status import REQUEST, U64, pointer_to

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
        seed: of the file's state.
        address: of the first page; the caller owns it.
        first: number of the first page in the file.
        count: pages.
    """
    sums = np.empty(count, np.uint32)
    memory = ffi.cast("uint8_t *", address)
    lib.lio_checksum_pages(seed, memory, first, count, pointer_to(sums, "uint32_t *"))
    return sums


def compare_sums(
    seed: int, plan: Plan, address: int, shift: int, sums: U32, first: int
) -> tuple[int, U64]:
    """Compares pages that a plan has read with their sums.

    Args:
        seed: of the file's state.
        plan: its offsets are ``shift`` larger than those of the pages.
        address: of its buffer.
        sums: of pages from number ``first`` on; 0: there is none.

    Returns:
        How many differ, and the numbers of the first of them, uint64.
    """
    requests = np.ascontiguousarray(plan.requests, REQUEST)
    differ = np.empty(DIFFER_MAX, np.uint64)
    compare = brief_up_to("lio_checksum_compare", plan.totals.buffer_bytes, BYTES_MAX)
    found = compare(
        seed,
        pointer_to(requests, "lio_request *"),
        len(requests),
        address,
        shift,
        pointer_to(sums, "uint32_t *"),
        first,
        len(sums),
        pointer_to(differ, "uint64_t *"),
        DIFFER_MAX,
    )
    return int(found), differ[: min(int(found), DIFFER_MAX)]
