"""The columns of a sidecar's blocks, coded and decoded (csrc/provenance.h)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import errors
from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, Extents, dtype_of, pointer_to
from lmdbio._core.format import Layout, layout_to_c
from lmdbio._core.status import Status
from lmdbio.system.frozen import dataclass

BLOCK_RECORDS_MAX = int(lib.LIO_BLOCK_RECORDS_MAX)
BLOCK_RAW_BYTES_MAX = int(lib.LIO_BLOCK_RAW_MAX)


#: Leaves of one block at most.
BLOCK_LEAVES_MAX = int(lib.LIO_BLOCK_LEAVES_MAX)

#: Structured dtype of ``lio_leaf``: a leaf page, and how many records lie on it.
LEAF = dtype_of("lio_leaf")
Leaves = npt.NDArray[Any]  # of dtype LEAF


class BlockForm(IntEnum):
    """How a block of a provenance file holds its extents (csrc/provenance.h)."""

    RUNS = lib.LIO_BLOCK_RUNS
    EXPLICIT = lib.LIO_BLOCK_EXPLICIT
    LEAVES = lib.LIO_BLOCK_LEAVES


@dataclass(frozen=True, slots=True)
class Block:
    """An encoded block: the extents of ``records`` consecutive records, or their leaves.

    Attributes:
        runs: stretches that one jump describes.
    """

    form: BlockForm
    records: int
    runs: int
    raw: bytes


def encode_block(
    layout: Layout, extents: Extents, form: BlockForm | None = None, path: str = ""
) -> Block:
    """Encodes as many leading ``extents`` (1 or more, dtype ``EXTENT``) as one block takes.

    Args:
        form: RUNS or EXPLICIT; None: the smaller one.

    Raises:
        IncompatibleError: RUNS cannot say where one lies.
        ValueError: no extents, or one outside the file that ``layout`` describes.
    """
    extents = np.ascontiguousarray(extents, EXTENT)
    layout_c, size, status = layout_to_c(layout), ffi.new("lio_block_size *"), Status(path)
    at, raw = pointer_to(extents, "lio_extent *"), ffi.new("uint8_t[]", BLOCK_RAW_BYTES_MAX)
    status.call(lib.lio_block_encode, layout_c, at, len(extents), form or 0, size, raw)
    content = bytes(ffi.buffer(raw, size.raw_size))
    return Block(BlockForm(size.form), int(size.count), int(size.runs), content)


def decode_block(layout: Layout, form: int, raw: bytes, records: int, path: str = "") -> Extents:
    """Decodes a block of exactly ``records`` extents (dtype ``EXTENT``).

    Raises:
        ProvenanceError: the bytes are no such block, or name bytes outside the file.
    """
    if not 0 < records <= BLOCK_RECORDS_MAX:
        raise errors.ProvenanceError(f"{path}: a block of {records} records is damaged")
    extents = np.empty(records, EXTENT)
    Status(path).call(
        lib.lio_block_decode,
        layout_to_c(layout),
        form,
        ffi.from_buffer("uint8_t[]", raw),
        len(raw),
        records,
        pointer_to(extents, "lio_extent *"),
    )
    return extents


def encode_leaves(layout: Layout, leaves: Leaves) -> tuple[Block, int]:
    """Encodes as many leading ``leaves`` (1 or more, dtype ``LEAF``) as one block takes.

    Returns:
        The block, and how many leaves it took.

    Raises:
        ValueError: no leaves, or one outside the file that ``layout`` describes.
    """
    leaves = np.ascontiguousarray(leaves, LEAF)
    layout_c, size, status = layout_to_c(layout), ffi.new("lio_block_size *"), Status()
    at, raw = pointer_to(leaves, "lio_leaf *"), ffi.new("uint8_t[]", BLOCK_RAW_BYTES_MAX)
    status.call(lib.lio_leaves_encode, layout_c, at, len(leaves), size, raw)
    taken, content = int(size.count), bytes(ffi.buffer(raw, size.raw_size))
    records = int(leaves["records"][:taken].sum())
    return Block(BlockForm.LEAVES, records, int(size.runs), content), taken


def decode_leaves(layout: Layout, raw: bytes, records: int, path: str = "") -> Leaves:
    """Decodes the leaves of a block of exactly ``records`` records (dtype ``LEAF``).

    Raises:
        ProvenanceError: the bytes are no such block.
    """
    leaves, count, status = np.empty(BLOCK_LEAVES_MAX, LEAF), ffi.new("size_t *"), Status(path)
    status.call(
        lib.lio_leaves_decode,
        layout_to_c(layout),
        ffi.from_buffer("uint8_t[]", raw),
        len(raw),
        records,
        pointer_to(leaves, "lio_leaf *"),
        count,
    )
    made: Leaves = leaves[: int(count[0])].copy()
    return made


def check_leaves(layout: Layout, pages: npt.NDArray[np.uint8], leaves: Leaves, path: str) -> None:
    """Checks that ``pages``, shape (n, page size), are these leaves (dtype ``LEAF``, shape (n,)).

    Raises:
        CorruptedError: one is not.
    """
    Status(path).call(
        lib.lio_leaves_check,
        layout_to_c(layout),
        pointer_to(pages, "uint8_t *"),
        pointer_to(np.ascontiguousarray(leaves, LEAF), "lio_leaf *"),
        len(leaves),
    )
