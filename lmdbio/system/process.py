"""process: calls at the end of a process, and what happens once in it and all that it forks.

A page of memory, which all processes forked from one share, has a byte for each of some thousand
marks; the first of them makes it, before it forks. Few things may have one mark in common: of two
that do, the later one passes for a repetition. So this is for hints, of which one may be lost.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap

__all__ = ["at_end", "is_first", "processors"]

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


def at_end(call: Callable[[], None]) -> None:
    """Have something called when this process ends by itself; it may be called twice.

    multiprocessing's processes run no exit functions. A process that this one forks must ask anew.
    """
    atexit.register(call)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing import util

        util.Finalize(None, call, exitpriority=0)


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(before=_made)
