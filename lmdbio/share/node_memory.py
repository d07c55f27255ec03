"""Memory of a node's ranks without MPI: a file without a name.

The first rank of the node makes it, and others map it by way of /proc. So nothing is left, whoever
is killed, and no file system limits it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any, Protocol

from lmdbio import _core

__all__ = ["SocketNodeGroup"]

#: Tag of what ranks of a node send each other about its memory.
MEMORY = (1 << 20) + 5


class Messages(Protocol):
    """The transport of a job's ranks (``share.sockets``)."""

    rank: int

    def count_step(self) -> int:
        """Return the number of the next step, the same on all ranks."""

    def near_ranks(self) -> list[int]:
        """Return the ranks that share memory with this one, itself among them."""

    def send(self, to: int, tag: int, what: Any) -> None:
        """Send an object to a rank; return at once."""

    def take_from(self, sender: int, tag: int, number: Any) -> Any:
        """Wait for what a rank sends to a numbered step; return what follows the number."""


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
    """The ranks that share memory with this one."""

    def __init__(self, transport: Messages) -> None:
        self._transport, self._number = transport, transport.count_step()
        self._members = transport.near_ranks()
        self.shared = self._members[0]
        self.rank, self.size = self._members.index(transport.rank), len(self._members)

    def split(self, ranks_per_node: int) -> None:
        """Split it into nodes of so many neighbours."""
        first = self.rank // ranks_per_node * ranks_per_node
        self._members = self._members[first : first + ranks_per_node]

    def allocate(self, size: int) -> _NodeMemory:
        """Allocate the memory: the node's first rank makes it of what all need."""
        transport, leader = self._transport, self._members[0]
        if transport.rank != leader:
            transport.send(leader, MEMORY, (self._number, size))
            process, descriptor, sizes, problem = transport.take_from(leader, MEMORY, self._number)
            if problem:
                raise MemoryError(problem)
            path = f"/proc/{process}/fd/{descriptor}"
            return self._map(os.open(path, os.O_RDWR | os.O_CLOEXEC), sizes)
        sizes = [size]
        for rank in self._members[1:]:
            sizes += transport.take_from(rank, MEMORY, self._number)
        sizes = [-(-each // mmap.PAGESIZE) * mmap.PAGESIZE for each in sizes]
        try:
            descriptor = os.memfd_create("lmdbio-window", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, sum(sizes))
            memory = self._map(descriptor, sizes)
        except OSError as error:
            problem = f"no shared memory of {sum(sizes)} bytes: {error}"
            self._answer((0, 0, [], problem))
            raise MemoryError(problem) from error
        self._answer((os.getpid(), descriptor, sizes, ""))
        return memory

    def _map(self, descriptor: int, sizes: Sequence[int]) -> _NodeMemory:
        try:
            return _NodeMemory(descriptor, sizes)
        except BaseException:
            os.close(descriptor)
            raise

    def _answer(self, answer: tuple[int, int, list[int], str]) -> None:
        for rank in self._members[1:]:
            self._transport.send(rank, MEMORY, (self._number, *answer))

    def memory_free(self) -> int | None:
        """Return None: no file system limits it."""
        return None  # no file system limits it

    def free(self) -> None:
        """Do nothing: it holds nothing."""
