"""zstd: the standard library's ``compression.zstd``, or its backport below Python 3.14."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        DecompressionParameter,
        ZstdDecompressor,
        ZstdError,
        compress,
        get_frame_info,
    )
else:
    from backports.zstd import (
        CompressionParameter,
        DecompressionParameter,
        ZstdDecompressor,
        ZstdError,
        compress,
        get_frame_info,
    )

__all__ = [
    "CompressionParameter",
    "DecompressionParameter",
    "ZstdDecompressor",
    "ZstdError",
    "compress",
    "get_frame_info",
]
