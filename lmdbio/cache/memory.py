"""MemoryTier: grains in memory, one behind the other, which are lent from where they lie."""

from __future__ import annotations

from lmdbio import _core

__all__ = ["MemoryTier"]


class MemoryTier:
    """Grains in memory: each is read to its place there, and never written again.

    Args:
        count: number of grains, the first ones of the shard.
        size: size of a grain, bytes.

    Attributes:
        memory: memory of the grains; None after ``close``.
    """

    def __init__(self, count: int, size: int) -> None:
        self.memory: _core.Memory | None = _core.MappedMemory(max(1, count * size))

    @property
    def kept_bytes(self) -> int:
        """Bytes of the memory; 0 after ``close``."""
        return 0 if self.memory is None else self.memory.size

    def close(self) -> None:
        """Let the memory go, unless somebody holds it."""
        self.memory = None
