"""once: tells whether something happens for the first time, in this process and all it forks.

A page of memory, made when lmdbio is imported and shared by all processes forked since, has a byte
for each of some thousand marks. Few things may have one mark in common: of two that do, the later
one passes for a repetition. So this is for hints, of which one may be lost.
"""

from __future__ import annotations

import mmap
import zlib

__all__ = ["is_first"]

_marks = mmap.mmap(-1, 4096)


def is_first(what: str) -> bool:
    """Return whether nobody has asked this before."""
    mark = zlib.crc32(what.encode("utf-8", "surrogateescape")) % len(_marks)
    seen, _marks[mark] = _marks[mark], 1
    return not seen
