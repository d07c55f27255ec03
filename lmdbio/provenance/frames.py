"""Compress the parts of a provenance file, and pack numbers into blocks. Pure."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lmdbio._core import Extents
from lmdbio.errors import ProvenanceError
from lmdbio.system.zstd import zstd

__all__ = [
    "compress",
    "decompress",
    "extents_crc",
    "from_zigzag",
    "pack_numbers",
    "unpack_numbers",
    "zigzag",
]

#: The highest of zstd's levels that takes no more memory to decompress than those below it.
ZSTD_LEVEL = 19
#: Smallest number, and bytes of what others have more
NUMBERS_HEAD = struct.Struct("<QB")


def compress(raw: bytes, level: int = ZSTD_LEVEL) -> bytes:
    """Compress by zstd, with the size that ``decompress`` compares, and no checksum of its own."""
    parameter = zstd.CompressionParameter
    options: dict[int, int] = {
        parameter.compression_level: level,
        parameter.checksum_flag: 0,
        parameter.content_size_flag: 1,
        parameter.dict_id_flag: 0,
    }
    packed: bytes = zstd.compress(raw, options=options)
    return packed


def decompress(stored: bytes, raw_size: int, path: Path | str) -> bytes:
    """Decompress to exactly ``raw_size`` bytes; the caller has bounded it, so nothing can blow up.

    Raises:
        ProvenanceError: the bytes are damaged, or of another size.
    """
    try:
        # The decoder makes room for what a frame says that it holds.
        if zstd.get_frame_info(stored).decompressed_size == raw_size:
            decoder = zstd.ZstdDecompressor()
            raw: bytes = decoder.decompress(stored, raw_size + 1)
            if decoder.eof and not decoder.unused_data and len(raw) == raw_size:
                return raw
    except zstd.ZstdError as e:
        raise ProvenanceError(f"{path}: is damaged: {e}") from e
    raise ProvenanceError(f"{path}: is damaged: a part does not have the size recorded for it")


def pack_numbers(numbers: npt.NDArray[np.uint64]) -> bytes:
    """Pack one number or more: the smallest, and byte by byte how much larger the others are.

    First all lowest bytes, then all second ones: they are alike, which zstd makes use of.
    """
    smallest = int(numbers.min())
    above = numbers - np.uint64(smallest)
    width = (int(above.max()).bit_length() + 7) // 8
    planes: bytes = above.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()
    return NUMBERS_HEAD.pack(smallest, width) + planes


def unpack_numbers(raw: bytes, count: int, where: str) -> npt.NDArray[np.uint64]:
    """Undo ``pack_numbers``.

    Args:
        where: name of the block, for errors.

    Raises:
        ProvenanceError: these bytes do not hold ``count`` numbers.
    """
    if len(raw) < NUMBERS_HEAD.size:
        raise ProvenanceError(f"{where} is cut")
    smallest, width = NUMBERS_HEAD.unpack_from(raw)
    planes = np.frombuffer(raw, np.uint8, offset=NUMBERS_HEAD.size)
    if width > 7 or len(planes) != width * count:
        raise ProvenanceError(f"{where} does not hold its numbers")
    above = np.zeros((count, 8), np.uint8)
    above[:, :width] = planes.reshape(width, count).T
    numbers: npt.NDArray[np.uint64] = above.view("<u8")[:, 0] + np.uint64(smallest)
    return numbers


def zigzag(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Map numbers near zero, negative ones too, to small ones that are not negative."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def from_zigzag(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Undo ``zigzag``."""
    one = np.uint64(1)
    signs: npt.NDArray[np.int64] = -(numbers & one).view(np.int64)
    found: npt.NDArray[np.int64] = (numbers >> one).view(np.int64) ^ signs
    return found


def extents_crc(parts: Iterable[Extents]) -> int:
    """Return the crc32 over extents, to which a history is held."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part.tobytes(), crc)
    return crc
