"""The memory that the ranks of a node share, and what becomes of it when nobody frees it."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lmdbio import _core

#: Where MPI libraries keep shared windows on Linux.
SHM = "/dev/shm"
#: Populated per call, bytes: so that signals are seen between.
POPULATE_BYTES = 256 * 2**20

#: (machine, process, number): no two windows of a job have the same.
Name = tuple[str, int, int]


class SharedMemory:
    """This node's memory: the parts of its ranks, as this process sees them.

    Attributes:
        parts: address of each node rank's part.
        size: bytes of this rank's part.
        ranks: how many share it.
        name: the same on all of them, and no other window's there; set by ``take_seat``.
        keep: what it is, where it belongs to this process alone; None: a window of MPI's.
    """

    def __init__(
        self,
        parts: list[int],
        size: int,
        *,
        window: Any = None,
        comm: Any = None,
        finalized: Callable[[], bool] = lambda: False,
        keep: object = None,
    ) -> None:
        self.parts, self.size, self.ranks = parts, size, len(parts)
        self.name: Name = "", 0, 0
        self._finalized = finalized
        self._window, self._comm = window, comm
        self.keep = keep

    @property
    def is_of_job(self) -> bool:
        """Whether there is something that only all its ranks together can free."""
        return self._comm is not None

    @property
    def gone(self) -> bool:
        """True once the window is unmapped: freed here, or MPI was finalized."""
        if self.keep is not None:
            return False
        return self._window is None or self._finalized()

    def reserve(self, address: int, size: int) -> None:
        """Backs some of this rank's part with memory, so that no touch can fail.

        Raises:
            MemoryError: there is not enough.
        """
        if not self.is_of_job:
            return
        done = 0
        while done < size:
            step = min(POPULATE_BYTES, size - done)
            try:
                if not _core.populate(address + done, step):
                    return  # an old kernel; the free space was compared before
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                    raise
                raise MemoryError(
                    f"shared memory ran out while reserving {size} bytes for the window of this "
                    f"rank ({os.strerror(error.errno)}); take a smaller batch_size, fewer slots "
                    f"or a smaller memory_bytes_max, or enlarge {SHM}"
                ) from error
            done += step

    def free(self) -> None:
        """Unmaps the window. Collective over the node."""
        window, comm = self._window, self._comm
        self._window = self._comm = self.keep = None
        if window is not None:
            window.Unlock_all()
            window.Free()
        if comm is not None and not self._finalized():
            comm.Free()


# --- windows that nobody freed -----------------------------------------------------------

#: Windows of Readers that ended without being closed, after an error say, and when their memory
#: is used no more. To free one is collective, so it waits for the next collective moment.
_left: list[tuple[SharedMemory, Callable[[], bool]]] = []


def leave_window(memory: SharedMemory, is_unused: Callable[[], bool]) -> None:
    """Leaves a window to whoever makes the next one with its ranks.

    Args:
        memory: of the window.
        is_unused: says whether this process fills it no more.
    """
    _left.append((memory, is_unused))


def wait_unused() -> None:
    """Waits until this process fills none of them any more: until all have left them."""
    while not all(is_unused() for memory, is_unused in _left):
        time.sleep(_core.SLICE_MS / 1000)


def left_windows() -> dict[Name, SharedMemory]:
    """Those that this rank uses no more, by name."""
    _left[:] = [one for one in _left if not one[0].gone]
    return {memory.name: memory for memory, is_unused in _left if is_unused()}


def free_left(own: dict[Name, SharedMemory], told: Sequence[Sequence[Any]]) -> None:
    """Frees the windows that all their ranks are here for. Collective.

    Args:
        told: names of the windows that each rank uses no more.
    """
    ranks = Counter(name for names in told for name in names)
    for name in sorted(own):
        if ranks[name] == own[name].ranks:
            own[name].free()
