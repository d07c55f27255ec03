"""Objects of C, which are closed when nothing refers to them any more."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

from lmdbio._core._lmdbio import ffi, lib


def owned(pointer: Any, close: Callable[[Any], object], keep: object = None) -> Any:
    """A pointer that is closed when nothing refers to it any more, and only then.

    A call under way in another thread counts as use: a thread that is done with it drops its
    reference and leaves the rest to the count.

    The garbage collector must not know it. In a cycle (at the interpreter's end a script's
    globals are one) the collector calls the destructors of ``ffi.gc`` in the order of
    creation: an engine is older than the ticket whose reads it carries, and so is the memory
    that they fill.

    Args:
        pointer: from C.
        close: gives it back; called without the GIL where it is a function of ``lib``. To be of
            C, or a ``partial`` of such: Ctrl-C comes between two steps of Python's, and in a
            destructor it would be lost.
        keep: what must be there until then. It must not refer back: nobody would see the
            cycle.
    """
    closes: Any = partial(close)
    closes.keep = keep
    held = ffi.gc(pointer, closes)
    if gc.is_tracked(held):
        lib.lio_glue_untrack(ffi.cast("uintptr_t", id(held)))
    return held


def made_type(make: Callable[[int], int]) -> Any:
    """A type that C has made, to derive from."""
    cell: list[Any] = [None]
    if make(id(cell)):
        raise MemoryError("no memory for a type")
    return cell[0]
