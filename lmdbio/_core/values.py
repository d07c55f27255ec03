"""Values whose places are known, as objects or in memory (lmdbio/_core/glue/values.h)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, Extents, pointer_to
from lmdbio._core.cursor import Failed, Snapshot
from lmdbio._core.engine import Engine
from lmdbio._core.extents import Packed
from lmdbio._core.owner import make_object

_Values: Any = make_object(lib.lio_values_type)


class Held(Protocol):
    """Memory that does not change, ``size`` bytes at ``address``, as long as it lives."""

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int: ...


class Values(_Values):  # type: ignore[misc]
    """An iterator over values as bytes, made one at a time; for one thread at a time.

    A value that ``next`` fails to read comes again. Records are counted for the engine.
    """

    __slots__ = ()

    @classmethod
    def of_memory(cls, engine: Engine, memory: Held, extents: Extents) -> Values:
        """Cut out of memory.

        Args:
            engine: Engine that counts the reads.
            memory: owner of the memory; kept alive.
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
            engine: Engine that reads at any offset.
            extents: extents of the values in the file.
            snapshot: Snapshot, asked after each read.
            verify: function that makes sure, and raises, where the snapshot cannot say.
            waits: whether to wait; False: end before the first value that is not cached.
        """
        extents = np.ascontiguousarray(extents, EXTENT)
        self = cls()
        keep = engine.pointer, extents, snapshot.pages, snapshot.pointer
        failed = Failed(snapshot, engine.new_status(), "read")
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

    if TYPE_CHECKING:

        def take(self) -> list[bytes]:
            """Return those that are left, at once: a list of all that ``next`` would give.

            Out of memory they are copied while other threads run.
            """

    @property
    def left(self) -> int:
        """How many are not yet handed out."""
        return int(lib.lio_values_left(id(self)))

    def rest(self) -> Extents:
        """Where those lie, dtype ``EXTENT``, shape (left,)."""
        rest = np.empty(self.left, EXTENT)
        lib.lio_values_rest(id(self), pointer_to(rest, "lio_extent *"))
        return rest


def value_getter(
    engine: Engine, table: Extents, snapshot: Snapshot, verify: Callable[[], None]
) -> Callable[[list[int]], Values | None]:
    """A quick call: of a list of indices, these records' values, if nobody need wait for any.

    Args:
        engine: Engine of the file; it stays open as long as the call is kept.
        table: extents of all records, dtype ``EXTENT``.
        snapshot: Snapshot, asked after each read.
        verify: function that makes sure, and raises, where the snapshot cannot say.

    Returns:
        A call that gives None where there is more to do, or one is no index of a record; an
        index may count from the end. The values end before the first that the page cache has let
        go of meanwhile (``Values.left``).
    """
    table = np.ascontiguousarray(table, EXTENT)
    keep = engine.pointer, table, snapshot.pages, snapshot.pointer
    failed = Failed(snapshot, engine.new_status(), "read")
    found: Callable[[list[int]], Values | None] = make_object(
        lib.lio_values_getter,
        keep[0],
        pointer_to(table, "lio_extent *"),
        len(table),
        snapshot.pages.pointer,
        keep[3],
        id(Values),
        id(keep),
        id(failed),
        id(verify),
    )
    return found


class Gatherer:
    """Copies what the page cache holds of an engine's file, guarded.

    Args:
        engine: Engine of the file; it stays open.
        snapshot: Snapshot, asked after the copies.
    """

    __slots__ = ("_keep",)

    def __init__(self, engine: Engine, snapshot: Snapshot) -> None:
        self._keep = engine.pointer, snapshot.pages.pointer, snapshot.pointer

    def copy(self, packed: Packed, address: int) -> bool:
        """Copies records to their places in memory, if nobody need wait.

        Args:
            packed: extents of the records in the file, and offsets in the memory.
            address: address of ``packed.room`` bytes, which the caller owns.

        Returns:
            Whether all of it is there, and belongs to the snapshot. If not, nothing is said about
            what the memory holds.
        """
        return bool(
            lib.lio_glue_gather(
                *self._keep,
                pointer_to(packed.extents, "lio_extent *"),
                pointer_to(packed.offsets, "uint64_t *"),
                len(packed.extents),
                ffi.cast("uint8_t *", address),
                packed.room,
            )
        )
