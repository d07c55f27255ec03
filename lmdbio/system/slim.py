"""slim: parts of ``functools``, ``importlib``, ``operator``, ``threading`` and ``weakref``.

The modules themselves, with what they load in turn, take a third of the time in which Python
starts, and a program that opens a file may use none of them. These parts are compiled into every
CPython, which needs them to start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from functools import partial
    from importlib.machinery import PathFinder
    from operator import attrgetter, index, is_
    from threading import Lock, RLock, get_ident, local
    from weakref import ref
else:
    from _frozen_importlib_external import PathFinder
    from _functools import partial
    from _operator import attrgetter, index, is_
    from _thread import RLock, _local as local, allocate_lock as Lock, get_ident  # noqa: N812
    from _weakref import ref

__all__ = [
    "Lock",
    "PathFinder",
    "RLock",
    "attrgetter",
    "get_ident",
    "index",
    "is_",
    "local",
    "partial",
    "ref",
]
