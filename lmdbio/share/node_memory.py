"""Memory of a node's ranks without MPI: a file without a name.

The first rank of the node makes it, and others map it by way of /proc. So nothing is left, whoever
is killed, and no file system limits it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence

from lmdbio import _core
from lmdbio.errors import PeerError

__all__ = ["SocketNodeGroup"]


class _NodeMemory:
    """A file without a name that the ranks of a node have mapped."""

    def __init__(self, descriptor: int, sizes: Sequence[int]) -> None:
        self._descriptor = descriptor
        self._mapping: mmap.mmap | None = mmap.mmap(descriptor, sum(sizes))
        address = _core.address_of(self._mapping)
        self.parts = [address + sum(sizes[:rank]) for rank in range(len(sizes))]

    def is_gone(self) -> bool:
        """Return whether it is unmapped."""
        return self._mapping is None

    def free(self) -> None:
        """Unmap it."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            mapping.close()
            os.close(self._descriptor)


class SocketNodeGroup:
    """The ranks that share memory with this one.

    Args:
        members: their job ranks, ascending.
        own: job rank of this process.
        send: function that sends an object to one of them; it returns at once.
        take: function that waits for what one of them has sent, and returns it.
    """

    def __init__(
        self,
        members: Sequence[int],
        own: int,
        *,
        send: Callable[[int, tuple[str, str]], None],
        take: Callable[[int], tuple[str, str]],
    ) -> None:
        self._members = members
        self.shared = members[0]
        self.rank, self.size = members.index(own), len(members)
        self._own, self._send, self._take = own, send, take
        self._made: int | None = None  # the descriptor of a file that this rank has not mapped yet

    def split(self, ranks_per_node: int) -> None:
        """Split it into nodes of so many neighbours."""
        first = self.rank // ranks_per_node * ranks_per_node
        self._members = self._members[first : first + ranks_per_node]

    def allocate(self, sizes: Sequence[int]) -> _NodeMemory:
        """Map the memory of the node.

        Raises:
            MemoryError: there is no room.
            PeerError: the first rank has found none.
            OSError: it cannot be opened, or mapped.
        """
        parts = [-(-sizes[rank] // mmap.PAGESIZE) * mmap.PAGESIZE for rank in self._members]
        first, *others = self._members
        if self._own == first:
            descriptor = self._make(sum(parts), others)
        else:
            path, why = self._take(first)
            if why:
                raise PeerError(f"rank {first} failed: {why}")
            descriptor = self._made = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        memory = _NodeMemory(descriptor, parts)
        self._made = None
        return memory

    def _make(self, size: int, others: Sequence[int]) -> int:
        """Make the file, and tell the other ranks where it is, or why there is none.

        It stays open until all of them have opened it, or know of an error.
        """
        path = why = ""
        try:
            self._made = os.memfd_create("lmdbio-window", os.MFD_CLOEXEC)
            os.ftruncate(self._made, size)
            path = f"/proc/{os.getpid()}/fd/{self._made}"
        except OSError as error:
            why = f"no shared memory of {size} bytes: {error}"
            raise MemoryError(why) from error
        finally:
            for other in others:
                self._send(other, (path, why))
        return self._made

    def memory_free(self) -> int | None:
        """Return None: no file system limits it."""
        return None

    def free(self) -> None:
        """Close the file, unless it is mapped."""
        made, self._made = self._made, None
        if made is not None:
            os.close(made)
