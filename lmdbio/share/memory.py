"""The memory that the ranks of a node share, and windows that no rank has freed."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lmdbio import _core
from lmdbio.share.transport import NodeGroup, NodeMemory
from lmdbio.system.log import log

__all__ = [
    "SHM",
    "Name",
    "SharedMemory",
    "free_unfreed",
    "hand_over_window",
    "machine_name",
    "shm_free",
    "unfreed_windows",
    "wait_unused",
]

#: Where MPI libraries keep shared windows on Linux.
SHM = "/dev/shm"
#: Bytes populated per call: few enough that Python sees signals between two of them.
POPULATE_BYTES = 256 * 2**20

#: (machine, process, number): no two windows of a job have the same.
Name = tuple[str, int, int]


def machine_name() -> str:
    """Return a name that all ranks that share /dev/shm have, and no others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path(SHM).stat().st_dev}"
    except OSError as error:
        name = os.uname().nodename
        log(f"ranks of hosts named {name} are taken to share {SHM}: {error}")
        return name


def shm_free() -> int | None:
    """Return the bytes that this machine has free for shared windows, None if it does not say."""
    try:
        stat = os.statvfs(SHM)
    except OSError as error:
        log(f"{SHM}: windows are made without a look at the free space: {error.strerror}")
        return None
    return stat.f_bavail * stat.f_frsize


class SharedMemory:
    """One node's shared memory: the parts of its ranks, as this process sees them.

    Attributes:
        parts: address of each node rank's part.
        size: bytes of this rank's part.
        ranks: number of ranks that share it.
        name: the same on all of them, and no other window's; ``attach_window`` sets it.
        private: the memory itself where this process alone has it; None: its node has it.

    Args:
        group: ranks of the node, freed with private memory; None: there is nothing to free.
    """

    def __init__(
        self,
        size: int,
        *,
        shared: NodeMemory | None = None,
        group: NodeGroup | None = None,
        private: _core.Memory | None = None,
    ) -> None:
        parts = shared.parts if shared is not None else [private.address] if private else []
        self.parts, self.size, self.ranks = parts, size, len(parts)
        self.name: Name = "", 0, 0
        self._shared, self._group = shared, group
        self.private = private

    @property
    def is_of_job(self) -> bool:
        """Whether it holds something that only all its ranks together can free."""
        return self._shared is not None or self._group is not None

    @property
    def is_gone(self) -> bool:
        """Whether the window is unmapped: freed here, or by the end of MPI."""
        if self.private is not None:
            return False
        return self._shared is None or self._shared.is_gone()

    def reserve(self, address: int, size: int) -> None:
        """Back some of this rank's part with memory, so that no touch of it can fail.

        Args:
            address, size: address and size of the memory to back, bytes.

        Raises:
            MemoryError: the machine has too little.
        """
        if not self.is_of_job:
            return
        done = 0
        while done < size:
            step = min(POPULATE_BYTES, size - done)
            try:
                if not _core.populate(address + done, step):
                    # ``check_shm`` has compared the free space before.
                    log(f"{SHM}: this kernel backs no window with memory before it is used")
                    return
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
        """Unmap and free the window. Collective over the node."""
        shared, group = self._shared, self._group
        self._shared = self._group = self.private = None
        if shared is not None:
            shared.free()
        if group is not None:
            group.free()


# --- windows that no rank has freed ------------------------------------------------------

#: Memory of Readers that ended without being closed, after an error say, each with a function
#: that returns whether this process has stopped filling it. To free a window is collective, so
#: it waits for the next collective moment of the same ranks.
_unfreed: list[tuple[SharedMemory, Callable[[], bool]]] = []


def hand_over_window(memory: SharedMemory, is_unused: Callable[[], bool]) -> None:
    """Leave a window to be freed when its ranks make their next one.

    Args:
        memory: memory of the window.
        is_unused: returns whether this process has stopped filling it.
    """
    _unfreed.append((memory, is_unused))


def wait_unused() -> None:
    """Wait until this process has stopped filling the windows that were handed over.

    A root fills a window on until all ranks of its team have left.
    """
    while not all(is_unused() for memory, is_unused in _unfreed):
        time.sleep(_core.SLICE_MS / 1000)


def unfreed_windows() -> dict[Name, SharedMemory]:
    """Return the windows that were handed over and that this rank has stopped using, by name."""
    _unfreed[:] = [one for one in _unfreed if not one[0].is_gone]
    return {memory.name: memory for memory, is_unused in _unfreed if is_unused()}


def free_unfreed(own: dict[Name, SharedMemory], unused: Sequence[Sequence[Any]]) -> None:
    """Free the windows whose ranks are all here and have stopped using them. Collective.

    Args:
        own: ``unfreed_windows`` of this rank.
        unused: names of these windows on each rank; the same list on all ranks.
    """
    ranks = Counter(name for names in unused for name in names)
    for name in sorted(own):
        if ranks[name] == own[name].ranks:
            own[name].free()
