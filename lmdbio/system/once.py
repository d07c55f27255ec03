"""once: tells whether something happens for the first time, in this process and all it forks.

A page of memory, which all processes forked from one share, has a byte for each of some thousand
marks; the first of them makes it, before it forks. Few things may have one mark in common: of two
that do, the later one passes for a repetition. So this is for hints, of which one may be lost.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap

__all__ = ["is_first"]

_marks: mmap | None = None


def _made() -> mmap:
    global _marks
    if _marks is None:
        from mmap import mmap

        _marks = mmap(-1, 4096)
    return _marks


def is_first(what: str) -> bool:
    """Return whether nobody has asked this before."""
    marks = _made()
    mark = hash(what) % len(marks)  # forked processes hash alike
    seen, marks[mark] = marks[mark], 1
    return not seen


os.register_at_fork(before=_made)
