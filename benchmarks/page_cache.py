"""Files that stay in the page cache for as long as a ``with`` lasts."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

__all__ = ["held_in_memory"]


@contextlib.contextmanager
def held_in_memory(files: Iterable[Path]) -> Iterator[bool]:
    """Keep files in the page cache, mapped and locked, whatever drops it meanwhile.

    Kernels also put out what was idle for a while (DAMON).

    Args:
        files: files to keep, none of them empty.

    Yields:
        Whether they could be locked (``ulimit -l``); if not, being mapped keeps most of them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    locked = True
    with contextlib.ExitStack() as stack:
        for file in files:
            opened = stack.enter_context(file.open("rb"))
            mapped = mmap.mmap(opened.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
            array = np.frombuffer(stack.enter_context(mapped), np.uint8)
            address, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(len(array))
            del array  # or the mapping could not be closed
            locked &= libc.mlock(address, size) == 0
        yield locked
