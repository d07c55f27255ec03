"""Several files, read as one (csrc/engine_joined.c)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import errors
from lmdbio._core._lmdbio import lib
from lmdbio._core.arrays import dtype_of, pointer_to
from lmdbio._core.engine import Engine
from lmdbio._core.status import Status
from lmdbio.system.names import absolute

PART = dtype_of("lio_part")
#: A file begins at a multiple of so many bytes.
PART_ALIGNMENT = int(lib.LIO_PART_ALIGNMENT)


class JoinedEngine(Engine):
    """Several files as one, through the page cache; few of them are open at a time.

    Each is read in the state of one transaction: a read raises ``Error`` once it was overwritten.

    Args:
        paths: names of the files.
        parts: start and state of each file, dtype ``PART``, in the same order.
        open_max: files that are open at a time, besides the first one.
        depth: requests in flight, 1..256.

    Raises:
        OSError: the first file cannot be opened.
        Error: another file has taken its place.
    """

    def __init__(
        self, paths: Sequence[str], parts: npt.NDArray[Any], open_max: int, depth: int = 8
    ) -> None:
        self._name(paths, parts, depth)
        names = b"".join(os.fsencode(absolute(path)) + b"\0" for path in paths)
        first = pointer_to(self._parts, "lio_part *")
        opens = partial(lib.lio_engine_open_joined, names, first, len(paths), open_max, depth)
        self._fill(opens)

    def _name(self, paths: Sequence[str], parts: npt.NDArray[Any], depth: int) -> None:
        if any("\0" in path for path in paths):
            raise ValueError("a path with a NUL byte")
        self._paths, self._parts = paths, np.ascontiguousarray(parts, PART)
        more = len(paths) - 1
        self.path = f"{paths[0]} and {more} more" if more else paths[0]
        self.kind, self.depth = "pread", depth

    @property
    def paths(self) -> Sequence[str]:
        """The files, in order."""
        return self._paths

    @property
    def parts(self) -> npt.NDArray[Any]:
        """Where each file begins, and in which state it is read; dtype ``PART``."""
        return self._parts

    def find(self, offset: int) -> tuple[str, int]:
        """Return the file that has an offset, and where in it that is."""
        bases = self._parts["base"]
        part = max(0, int(np.searchsorted(bases, np.uint64(offset), side="right")) - 1)
        return self._paths[part], offset - int(bases[part])

    def new_status(self) -> Status:
        return Status(self.path, self.find)

    def again(self, kind: str, depth: int) -> Engine:
        """Opens the same files once more; both engines have the same descriptors.

        Raises:
            IncompatibleError: of a kind other than "pread".
        """
        if kind != "pread":
            raise errors.IncompatibleError(
                f'{self.path}: several files as one are read by engine="pread" alone, not "{kind}"'
            )
        other = JoinedEngine.__new__(JoinedEngine)
        other._name(self._paths, self._parts, depth)
        other._fill(partial(lib.lio_engine_reopen, self.pointer, depth))
        return other
