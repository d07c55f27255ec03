"""The columns of a sidecar's blocks, coded and decoded (csrc/provenance.h)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from lmdbio import errors
from lmdbio._core.format import Layout, layout_to_c
from lmdbio._core.status import EXTENT, Extents, Status, pointer_to
from lmdbio._lmdbio import ffi, lib

BLOCK_RECORDS_MAX = int(lib.LIO_BLOCK_RECORDS_MAX)
BLOCK_RAW_BYTES_MAX = int(lib.LIO_BLOCK_RAW_MAX)


class BlockForm(IntEnum):
    """How a block of a provenance file holds its extents (csrc/provenance.h)."""

    RUNS = lib.LIO_BLOCK_RUNS
    EXPLICIT = lib.LIO_BLOCK_EXPLICIT


@dataclass(frozen=True, slots=True)
class Block:
    """An encoded block: the extents of ``records`` consecutive records.

    Attributes:
        runs: stretches that one jump describes.
    """

    form: BlockForm
    records: int
    runs: int
    raw: bytes


def encode_block(layout: Layout, extents: Extents) -> Block:
    """Encodes as many leading ``extents`` (1 or more, dtype ``EXTENT``) as one block takes.

    Raises:
        ValueError: no extents, or one outside the file that ``layout`` describes.
    """
    extents = np.ascontiguousarray(extents, EXTENT)
    c_layout, size, status = layout_to_c(layout), ffi.new("lio_block_size *"), Status()
    at = pointer_to(extents, "lio_extent *")
    status.check(lib.lio_block_measure(c_layout, at, len(extents), size, status.error))
    raw = ffi.new("uint8_t[]", int(size.raw_size))
    status.check(lib.lio_block_encode(c_layout, at, size, raw, status.error))
    return Block(BlockForm(size.form), int(size.count), int(size.runs), bytes(ffi.buffer(raw)))


def decode_block(layout: Layout, form: int, raw: bytes, records: int, path: str = "") -> Extents:
    """Decodes a block of exactly ``records`` extents (dtype ``EXTENT``).

    Raises:
        ProvenanceError: the bytes are no such block, or name bytes outside the file.
    """
    if not 0 < records <= BLOCK_RECORDS_MAX:
        raise errors.ProvenanceError(f"{path}: a block of {records} records is damaged")
    extents = np.empty(records, EXTENT)
    status = Status(path)
    status.check(
        lib.lio_block_decode(
            layout_to_c(layout),
            form,
            ffi.from_buffer("uint8_t[]", raw),
            len(raw),
            records,
            pointer_to(extents, "lio_extent *"),
            status.error,
        )
    )
    return extents
