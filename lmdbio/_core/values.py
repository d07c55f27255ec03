"""Values whose places are known, as objects (lmdbio/_glue_values.h)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lmdbio._core.cursor import Failed, Snapshot
from lmdbio._core.engine import Engine
from lmdbio._core.memory import Memory
from lmdbio._core.owner import made_type
from lmdbio._core.status import EXTENT, Extents, pointer_to
from lmdbio._lmdbio import ffi, lib

_Values: Any = made_type(lib.lio_values_type)


class Values(_Values):  # type: ignore[misc]
    """An iterator over values as bytes, made one at a time; for one thread at a time.

    What ``next`` fails to read comes again. Records are counted for the engine.
    """

    __slots__ = ()

    @classmethod
    def of_memory(cls, engine: Engine, memory: Memory, extents: Extents) -> Values:
        """Cut out of memory.

        Args:
            engine: counts.
            extents: bytes from the beginning of the memory, inside it.
        """
        extents = np.ascontiguousarray(extents, EXTENT)
        if len(extents) and int((extents["offset"] + extents["length"]).max()) > memory.size:
            raise ValueError(f"a record ends beyond its buffer of {memory.size} bytes")
        self = cls()
        keep = engine.pointer, memory, extents
        lib.lio_values_of_memory(
            id(self),
            keep[0],
            ffi.cast("uint8_t *", memory.address),
            pointer_to(extents, "lio_extent *"),
            len(extents),
            id(keep),
        )
        return self

    @classmethod
    def of_file(
        cls,
        engine: Engine,
        extents: Extents,
        snapshot: Snapshot,
        *,
        verify: Callable[[], None],
        waits: bool = True,
    ) -> Values:
        """Read from the file: what lies close together at once, large ones by themselves.

        Args:
            engine: reads at any offset.
            extents: of the file.
            snapshot: asked after each read.
            verify: makes sure, and raises, where that cannot say.
            waits: False: end before the first value that the page cache does not hold.
        """
        extents = np.ascontiguousarray(extents, EXTENT)
        self = cls()
        keep = engine.pointer, extents, snapshot.pages, snapshot.pointer
        failed = Failed(snapshot, engine.path, "read")
        lib.lio_values_of_file(
            id(self),
            keep[0],
            pointer_to(extents, "lio_extent *"),
            len(extents),
            snapshot.pages.pointer,
            snapshot.pointer,
            waits,
            id(keep),
            id(failed),
            id(verify),
        )
        return self

    @property
    def left(self) -> int:
        """How many are not yet handed out."""
        return int(lib.lio_values_left(id(self)))
