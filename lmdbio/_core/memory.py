"""Memory for engines to fill, and the views and bytes made of it (csrc/buffer.h)."""

from __future__ import annotations

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.brief import BYTES_MAX, brief_up_to
from lmdbio._core.owner import owned
from lmdbio.system.slim import is_, partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt


class Memory:
    """Memory of our own, fit for any engine (csrc/buffer.h).

    Attributes:
        address: address of the first byte.
        size: bytes.
    """

    ALIGNMENT = int(lib.LIO_BUFFER_ALIGNMENT)
    HUGE_PAGE = int(lib.LIO_HUGE_PAGE_BYTES)
    #: From here on it has huge pages.
    HUGE_BYTES_MIN = int(lib.LIO_HUGE_BYTES_MIN)

    __slots__ = ("_owner", "address", "size")

    def __init__(self, size: int) -> None:
        self._owner = cell = owned(ffi.new("uint8_t **"), lib.lio_cell_buffer_close)
        brief_up_to("lio_cell_buffer_open", size, BYTES_MAX)(size, cell)
        self.address = int(ffi.cast("uintptr_t", cell[0]))
        if not self.address:
            raise MemoryError(f"no memory for a buffer of {size} bytes")
        self.size = size


class MappedMemory(Memory):
    """Memory of our own that goes back to the system as a whole.

    For pieces that a Reader takes once: an allocator cannot use freed memory anew for another
    aligned piece, so that a process that makes many Readers would grow. To map takes longer, and
    each page is made when it is first touched.

    Raises:
        MemoryError: there is none.
    """

    __slots__ = ()

    def __init__(self, size: int) -> None:
        import contextlib
        import mmap

        alignment = self.ALIGNMENT if size < self.HUGE_BYTES_MIN else self.HUGE_PAGE
        rounded = -(-max(size, 1) // alignment) * alignment
        try:
            # Private: a child that is forked must not write to it.
            mapping = mmap.mmap(-1, rounded + alignment, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON)
        except (OSError, ValueError, OverflowError) as error:
            raise MemoryError(f"no memory for a buffer of {size} bytes") from error
        if alignment == self.HUGE_PAGE:
            with contextlib.suppress(OSError):  # else small pages do
                mapping.madvise(mmap.MADV_HUGEPAGE)
        self._owner = ffi.from_buffer("uint8_t[]", mapping)  # it keeps the mapping
        base = int(ffi.cast("uintptr_t", self._owner))
        self.address = -(-base // alignment) * alignment
        self.size = size


def copy_rows(
    sources: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.uint64],
    targets: npt.NDArray[np.uint64],
) -> None:
    """Copies rows of memory, without the interpreter's lock.

    Args:
        sources, targets: addresses of each row's first byte, shape (n,); the caller owns both.
        lengths: length of each row, bytes, shape (n,).
    """
    import numpy as np

    from lmdbio._core.arrays import pointer_to

    if not len(sources) == len(lengths) == len(targets):
        raise ValueError(f"{len(sources)} sources, {len(lengths)} lengths, {len(targets)} targets")
    arrays = [np.ascontiguousarray(one, np.uint64) for one in (sources, lengths, targets)]
    lib.lio_copy_rows(*(pointer_to(one, "uint64_t *") for one in arrays), len(lengths))


class MemoryPool:
    """Memory that comes back: spares the page faults of fresh memory for every batch.

    ``take`` gives a ``Memory`` that returns to the pool when nobody refers to it any more. At
    most ``SPARES`` pieces wait to be taken again; what is more of them ends with the next taking.
    """

    SPARES = 2

    def __init__(self) -> None:
        self._spare: dict[Memory, Any] = {}

    def take(self, size: int) -> Memory:
        """At least ``size`` bytes; what they hold is undefined."""
        try:
            while len(self._spare) > self.SPARES:
                self._spare.popitem()
            while self._spare:
                found, _ = self._spare.popitem()
                if size <= found.size <= max(4 * size, 1 << 20):
                    return _Taken(found, self)
        except KeyError:  # another thread took it
            pass
        # Batches differ in size a little: some room lets the next one fit too.
        return _Taken(Memory(size + size // 4), self)


class _Taken(Memory):
    """Memory on loan from a pool."""

    __slots__ = ()

    def __init__(self, memory: Memory, pool: MemoryPool) -> None:
        self.address, self.size = memory.address, memory.size
        pointer = ffi.cast("char *", memory.address)
        self._owner = owned(pointer, partial(pool._spare.setdefault, memory))


def lend(address: int, size: int, keep: object = None) -> Any:
    """An exporter of ``size`` bytes at ``address`` that can be weakly referenced.

    Every memoryview, slice and array made from it keeps it alive, so a dead weak reference
    proves that no view is left. ``keep`` is kept alive by the exporter.
    """
    pointer = ffi.cast("char *", address)
    if keep is not None:
        pointer = ffi.gc(pointer, partial(is_, keep))  # as in ``owned``: no step of Python's
    return ffi.buffer(pointer, size)


def address_of(buffer: object) -> int:
    """Where the bytes of a writable buffer lie; the caller keeps it alive."""
    return int(ffi.cast("uintptr_t", ffi.from_buffer("uint8_t[]", buffer)))


def keep_heap() -> None:
    """Spares the page faults of lists of large objects that come and go (csrc/buffer.h)."""
    lib.lio_heap_retain()
