"""A file of this system, open for calls of the system."""

from __future__ import annotations

import os
from collections import deque

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.owner import owned

__all__ = ["Descriptor"]


class Descriptor:
    """A file that ``os.open`` has opened; it is closed when nothing refers to this any more.

    Args:
        path, flags, mode: arguments of ``os.open``; no child process inherits the descriptor.

    Raises:
        OSError: it cannot be opened.
    """

    __slots__ = ("_cell",)

    def __init__(self, path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> None:
        self._cell = owned(ffi.new("int *", -1), lib.lio_cell_descriptor_close)
        # The number goes into its cell without a line of Python's between, where a signal's
        # handler may raise.
        opened = map(os.open, (path,), (flags | os.O_CLOEXEC,), (mode,))
        deque(map(self._cell.__setitem__, (0,), opened), 0)

    @property
    def fd(self) -> int:
        """Its number; -1: it is closed."""
        return int(self._cell[0])

    def close(self) -> None:
        """Close it. May be called twice."""
        lib.lio_cell_descriptor_close(self._cell)

    def __enter__(self) -> Descriptor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
