"""Slots of shared memory, handed over (csrc/window.h)."""

from __future__ import annotations

from typing import Any

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.owner import owned
from lmdbio._core.status import SLICE_MS, Status


class Window:
    """The control area of a window: which roots have filled, which ranks
    have released, left or failed (csrc/window.h).

    Args:
        address: address of ``Window.bytes(ranks, roots)`` bytes, 64-byte aligned; borrowed.
        ranks, roots: numbers of ranks and of roots on this node.
        fresh: format it (one process, once) rather than check it.
    """

    LEFT = int(lib.LIO_WINDOW_LEFT)
    CLOSES = int(lib.LIO_WINDOW_CLOSES)
    FREE = int(lib.LIO_WINDOW_FREE)
    OPEN = int(lib.LIO_WINDOW_OPEN)

    __slots__ = ("_control", "ranks", "roots")

    def __init__(self, address: int, *, ranks: int, roots: int, fresh: bool) -> None:
        self.ranks, self.roots = ranks, roots
        self._control = ffi.cast("void *", address)
        make = lib.lio_window_format if fresh else lib.lio_window_check
        Status("shared window").call(make, self._control, ranks, roots)

    @staticmethod
    def bytes(ranks: int, roots: int) -> int:
        """Size of a control area."""
        return int(lib.lio_window_bytes(ranks, roots))

    def publish(self, root: int, published: int) -> None:
        """Blocks [0, ``published``) of ``root`` are filled."""
        lib.lio_window_publish(self._control, root, published)

    def wait_released(
        self, root: int, team: range, released: int, timeout_ms: int = SLICE_MS
    ) -> bool | None:
        """Waits one slice at most for ``team`` (node ranks) to release ``released`` blocks.

        Returns:
            True when it has, False when it has not yet, None when all of the team have left.
        """
        given = self._control, root, team.start, len(team), released
        if timeout_ms:
            code = lib.lio_window_wait_released(*given, timeout_ms)
        else:
            code = lib.lio_window_is_released(*given)
        return None if code == lib.LIO_NOTFOUND else bool(code == lib.LIO_OK)

    def wait_published(self, root: int, block: int) -> bool:
        """Waits one slice for ``block`` of ``root``; False when it is not there yet."""
        code = lib.lio_window_wait_published(self._control, root, block, SLICE_MS)
        return bool(code == lib.LIO_OK)

    def release(self, root: int, rank: int, released: int) -> None:
        """``rank`` needs blocks [0, ``released``) no more."""
        lib.lio_window_release(self._control, root, rank, released)

    def leave(self, root: int, rank: int, state: int) -> None:
        """``rank`` asks for nothing more. ``state``: ``LEFT`` or ``CLOSES``."""
        lib.lio_window_leave(self._control, root, rank, state)

    def keep(self) -> int:
        """Settles that the memory is not freed, unless the end is settled; returns the end."""
        return int(lib.lio_window_retain(self._control))

    def end(self) -> int:
        """``OPEN``, ``FREE``, or that the memory is kept."""
        return int(lib.lio_window_end(self._control))

    def wait_end(self, *, left: bool, timeout_ms: int = SLICE_MS) -> bool:
        """Waits a slice until all have left (or, not ``left``, until the end is settled)."""
        code = lib.lio_window_wait_end(self._control, int(left), timeout_ms)
        return bool(code == lib.LIO_OK)

    def abort(self, rank: int, message: str) -> None:
        """Ends all waits; the first rank (of the job) and message stay."""
        text = message.encode("utf-8", "replace").replace(b"\0", b"?")
        lib.lio_window_abort(self._control, rank, text)

    def aborted(self) -> tuple[int, str] | None:
        """Rank in the job and message of the process that aborted."""
        if not lib.lio_window_aborted(self._control, ffi.NULL, ffi.NULL):
            return None
        rank = ffi.new("uint32_t *")
        message = ffi.new("char[]", int(lib.LIO_WINDOW_MESSAGE_MAX))
        lib.lio_window_aborted(self._control, rank, message)
        return int(rank[0]), ffi.string(message).decode("utf-8", "replace")


def populate(address: int, size: int) -> bool:
    """Backs memory now. False when this kernel cannot; OSError (ENOSPC) when there is none."""
    status = Status("shared window")
    code = lib.lio_window_populate(ffi.cast("void *", address), size, status.error)
    if code == lib.LIO_ERR_UNSUPPORTED:
        return False
    status.check(code)
    return True


class Mapping:
    """A second mapping of shared pages; unmapped when nobody refers to it any more.

    Attributes:
        address: address of the first byte.
        size: bytes.
    """

    __slots__ = ("_owner", "address", "size")

    def __init__(self, pages: Any) -> None:
        self._owner = pages
        self.address, self.size = int(ffi.cast("uintptr_t", pages.at)), int(pages.size)

    def detach(self, address: int, size: int) -> None:
        """Swaps some pages for private ones with the same bytes, under whoever looks at them."""
        self._check(address, size)
        Status("shared window").call(lib.lio_window_detach, ffi.cast("void *", address), size)

    def vacate(self, address: int, size: int) -> None:
        """Gives back some pages, at which nobody looks or will look."""
        self._check(address, size)
        lib.lio_window_vacate(ffi.cast("void *", address), size)

    def _check(self, address: int, size: int) -> None:
        if not self.address <= address <= address + size <= self.address + self.size:
            raise ValueError(f"{size} bytes at {address:#x} are none of this mapping")


def map_again(address: int, size: int) -> Mapping | None:
    """A second mapping of shared pages; None where the kernel or these pages allow none."""
    pages = owned(ffi.new("lio_mapped_pages *", {"size": size}), lib.lio_cell_window_unmap)
    status, at = Status("shared window"), ffi.addressof(pages, "at")
    code = lib.lio_window_map(ffi.cast("void *", address), size, at, status.error)
    if code == lib.LIO_ERR_UNSUPPORTED:
        return None
    status.check(code)
    return Mapping(pages)
