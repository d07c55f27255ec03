"""Memory of a node's ranks without MPI: a file without a name.

The first rank of the node makes it, and others map it by way of /proc. So nothing is left, whoever
is killed, and no file system limits it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from lmdbio import _core
from lmdbio.share.transport import NodeFile

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
    """

    def __init__(self, members: Sequence[int], own: int) -> None:
        self._members = members
        self.shared = members[0]
        self.rank, self.size = members.index(own), len(members)
        self._own = own
        self._made: int | None = None  # the descriptor of a file that nobody has mapped yet

    def split(self, ranks_per_node: int) -> None:
        """Split it into nodes of so many neighbours."""
        first = self.rank // ranks_per_node * ranks_per_node
        self._members = self._members[first : first + ranks_per_node]

    def create(self, sizes: Sequence[int]) -> NodeFile | None:
        """Make the file, on the first rank of the node; return where it is. Elsewhere: None.

        Args:
            sizes: size of each job rank's part, bytes.

        Raises:
            MemoryError: there is no room.
        """
        if self._own != self._members[0]:
            return None
        parts = [-(-sizes[rank] // mmap.PAGESIZE) * mmap.PAGESIZE for rank in self._members]
        try:
            self._made = os.memfd_create("lmdbio-window", os.MFD_CLOEXEC)
            os.ftruncate(self._made, sum(parts))
        except OSError as error:
            raise MemoryError(f"no shared memory of {sum(parts)} bytes: {error}") from error
        return NodeFile(os.getpid(), self._made, parts)

    def allocate(self, size: int, made: NodeFile | None) -> _NodeMemory:
        """Map the memory of the node.

        Raises:
            OSError: it cannot be opened, or mapped.
        """
        assert made is not None
        assert made.sizes[self._members.index(self._own)] >= size
        if self._made is not None:
            memory = _NodeMemory(self._made, made.sizes)
            self._made = None
            return memory
        path = f"/proc/{made.process}/fd/{made.descriptor}"
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return _NodeMemory(descriptor, made.sizes)
        except BaseException:
            os.close(descriptor)
            raise

    def memory_free(self) -> int | None:
        """Return None: no file system limits it."""
        return None

    def free(self) -> None:
        """Close the file, unless it is mapped."""
        made, self._made = self._made, None
        if made is not None:
            os.close(made)
