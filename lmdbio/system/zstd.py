"""zstd: the standard library's ``compression.zstd``, or its backport below Python 3.14."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
