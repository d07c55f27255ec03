"""Objects of C, which are closed when nothing refers to them any more.

    cell_of("lio_engine", "engine_close")  ->  a call fills it  ->  held(cell), the pointer

The cell is owned before the call: a signal's handler may raise between the end of a call and the
line that takes what it opened.
"""

from __future__ import annotations

import gc

from lmdbio._core._lmdbio import ffi, lib
from lmdbio.system.slim import is_, partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Whether this cffi lets the garbage collector know of pointers that are closed.
_ARE_TRACKED = gc.is_tracked(ffi.gc(ffi.new("int *"), bool))


def owned(pointer: Any, close: Callable[[Any], object], keep: object = None) -> Any:
    """A pointer that is closed when nothing refers to it any more, and only then.

    A call under way in another thread counts as use: a thread that is done with it drops its
    reference and leaves the rest to the count.

    The garbage collector must not know it. In a cycle (at the interpreter's end a script's
    globals are one) the collector calls the destructors of ``ffi.gc`` in the order of
    creation: an engine is older than the ticket whose reads it carries, and so is the memory
    that they fill.

    Args:
        pointer: pointer of C's to the object.
        close: function that gives it back; called without the GIL where it is one of ``lib``. To
            be of C, or a ``partial`` of such: Ctrl-C comes between two steps of Python's, and in a
            destructor it would be lost.
        keep: object that must be there until then. It must not refer back: nobody would see the
            cycle.
    """
    made = ffi.gc(pointer, _closer(close, keep))
    if _ARE_TRACKED:
        lib.lio_glue_untrack(id(made))
    return made


def _closer(close: Callable[[Any], object], keep: object) -> Any:
    if keep is None:
        return close
    closes: Any = partial(close)
    closes.keep = keep
    return closes


def cell_of(kind: str, close: str, keep: object = None) -> Any:
    """Return an empty cell for a call that opens; what is in it is closed with the cell.

    It is for ``held``, or for a local variable: the garbage collector knows it.

    Args:
        kind: type of C of what it holds.
        close: name of what closes that (csrc/build_extension.py makes the function of the cell).
        keep: object that the cell needs (``owned``).
    """
    return ffi.gc(ffi.new(f"{kind} **"), _closer(getattr(lib, f"lio_cell_{close}"), keep))


def held(cell: Any) -> Any:
    """Return the pointer in a cell, which stays open as long as that is referred to."""
    return owned(cell[0], partial(is_, cell))  # it does nothing, and keeps the cell


def make_object(make: Callable[..., int], *given: object) -> Any:
    """A type, or a callable, that C makes.

    Args:
        make: function of ``lib``, whose last argument is the address of the list that it fills.
        given: its other arguments.
    """
    cell: list[Any] = [None]
    if make(*given, id(cell)):
        raise MemoryError("no memory for an object")
    return cell[0]
