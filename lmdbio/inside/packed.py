"""packed: zlib, gzip, zstd, lz4, bz2 and xz, unpacked as far as a bound. Pure.

A compressed value says nothing of its kind, but what is inside does. No more than a bound is
ever made of it, however much it claims to hold.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from lmdbio.inside.excerpt import Excerpt
from lmdbio.system.zstd import zstd

__all__ = ["find_packing", "unpack"]

_Unpack = Callable[[bytes, int], Excerpt]
_ERRORS = (
    ValueError, OSError, EOFError, MemoryError, zlib.error, lzma.LZMAError, zstd.ZstdError,
)  # fmt: skip

#: Of zstd's window, its binary logarithm, and of what xz may take while it unpacks, bytes.
WINDOW_LOG_MAX = 27
MEMORY_BYTES_MAX = 1 << WINDOW_LOG_MAX
_ZLIB_FIRST = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: WINDOW_LOG_MAX}
_LZ4_LENGTHS = 15  # a nibble of ones: more bytes of the length follow


def find_packing(head: bytes) -> str | None:
    """Return the name of a compression by the first bytes of a value; None: it has none.

    Two bytes are all that zlib begins with, so ``unpack`` has the last word.
    """
    for name, (firsts, _) in _PACKINGS.items():
        if head.startswith(firsts):
            return name
    return None


def unpack(name: str, head: bytes, bytes_max: int) -> Excerpt | None:
    """Unpack the beginning of a value.

    Args:
        name: name of the compression, as ``find_packing`` gave it.
        head: the value, or its first bytes.
        bytes_max: largest size of what is unpacked.

    Returns:
        Its excerpt; None where these bytes are not so compressed, or are too few.
    """
    try:
        found = _PACKINGS[name][1](head, bytes_max)
    except _ERRORS:
        return None
    return found if found.head or found.is_whole else None


def _excerpt(made: bytes, *, is_whole: bool) -> Excerpt:
    return Excerpt(made, len(made) if is_whole else None)


def _stream(make: Callable[[], Any]) -> _Unpack:
    """Return what unpacks by a decompressor of the standard library."""

    def unpacked(head: bytes, bytes_max: int) -> Excerpt:
        stream = make()
        made = stream.decompress(head, bytes_max)
        return _excerpt(made, is_whole=stream.eof)

    return unpacked


# --- lz4 frames ---------------------------------------------------------------------------
#
# magic, flags, block size, [content size], [dictionary], checksum of these; then blocks, each a
# length (its top bit: not compressed) and bytes; a length of 0 ends them.
# Source: lz4_Frame_format.md and lz4_Block_format.md of the reference implementation.


def _unlz4(head: bytes, bytes_max: int) -> Excerpt:
    if len(head) < 7 or (flags := head[4]) >> 6 != 1:
        raise ValueError("no lz4 frame, or of another version")
    at = 7 + 8 * bool(flags & 8) + 4 * bool(flags & 1)
    made = bytearray()
    while len(made) < bytes_max:
        length = int.from_bytes(head[at : at + 4], "little")
        if at + 4 > len(head):
            break
        if not length:
            return _excerpt(bytes(made[:bytes_max]), is_whole=len(made) <= bytes_max)
        is_plain, length = bool(length >> 31), length & 0x7FFFFFFF
        block = head[at + 4 : at + 4 + length]
        begun = len(made) if flags & 0x20 else 0  # else blocks look back at earlier ones
        if is_plain:
            made += block[: bytes_max + 1]
        else:
            _unlz4_block(block, made, begun, bytes_max)
        at += 4 + length + 4 * bool(flags & 0x10)
    return _excerpt(bytes(made[:bytes_max]), is_whole=False)


def _unlz4_block(block: bytes, made: bytearray, begun: int, bytes_max: int) -> None:
    """Append what a block holds, as far as it is there."""
    at = 0
    while at < len(block) and len(made) < bytes_max:
        token = block[at]
        at += 1
        literals, at = _lz4_length(block, at, token >> 4)
        made += block[at : at + literals]
        at += literals
        if at + 2 > len(block):
            return
        back = int.from_bytes(block[at : at + 2], "little")
        length, at = _lz4_length(block, at + 2, token & 15)
        start = len(made) - back
        if back == 0 or start < begun:
            raise ValueError("an lz4 block looks back beyond its beginning")
        length = min(length + 4, bytes_max - len(made) + 4)
        piece = made[start : start + length]
        while len(piece) < length:  # it overlaps what it makes
            piece += piece[: length - len(piece)]
        made += piece


def _lz4_length(block: bytes, at: int, nibble: int) -> tuple[int, int]:
    length = nibble
    if nibble == _LZ4_LENGTHS:
        while at < len(block):
            more = block[at]
            at += 1
            length += more
            if more != 255:
                break
    return length, at


#: First bytes, and what unpacks; zlib comes last, for it has the least to go by.
_PACKINGS: dict[str, tuple[tuple[bytes, ...], _Unpack]] = {
    "zstd": (
        (b"\x28\xb5\x2f\xfd",),
        _stream(partial(zstd.ZstdDecompressor, options=_ZSTD_OPTIONS)),
    ),
    "gzip": ((b"\x1f\x8b\x08",), _stream(partial(zlib.decompressobj, 31))),
    "lz4": ((b"\x04\x22\x4d\x18",), _unlz4),
    "xz": (
        (b"\xfd7zXZ\0",),
        _stream(partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=MEMORY_BYTES_MAX)),
    ),
    "bz2": (tuple(b"BZh%d1AY&SY" % level for level in range(1, 10)), _stream(bz2.BZ2Decompressor)),
    "zlib": (_ZLIB_FIRST, _stream(partial(zlib.decompressobj, 15))),
}
