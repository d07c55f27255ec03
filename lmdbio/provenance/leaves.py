"""Read extents off the leaf pages that a provenance file names.

    leaves -> reads, neighbours in one -> pages, checked -> extents

Where values have all lengths, the lengths alone would be most of a provenance file, though a leaf
has them for a hundred records at once.

Invariants:
  - a page that is not the leaf it is to be is an error, never used;
  - all pages of a call are in flight together, ``BATCH`` at most.

Source: LMDB's P_LEAF pages.
"""

from __future__ import annotations

import numpy as np

from lmdbio import _core
from lmdbio._core import Engine, Extents, Layout, Leaves

__all__ = ["LeafReader"]

#: Pages in flight at once, and of one request.
BATCH, TOGETHER = _core.BLOCK_LEAVES_MAX, 64


class LeafReader:
    """Reads leaves of one file.

    Args:
        engine: Engine of the data file; it stays open.
        layout: Layout of the data file.
    """

    def __init__(self, engine: Engine, layout: Layout) -> None:
        self._layout = layout
        aligned = layout.page_size % engine.alignment == 0
        self._engine = engine if aligned else engine.again("pread", engine.depth)

    def extents(self, leaves: Leaves) -> Extents:
        """Read where the records of these leaves (dtype ``LEAF``) lie, one leaf after the other.

        Raises:
            OSError, ShortReadError: pages cannot be read.
            CorruptedError: one is no leaf, or has another number of records.
        """
        parts = [self._some(leaves[at : at + BATCH]) for at in range(0, len(leaves), BATCH)]
        return np.concatenate(parts) if parts else np.empty(0, _core.EXTENT)

    def _some(self, leaves: Leaves) -> Extents:
        size, pgnos = self._layout.page_size, np.ascontiguousarray(leaves["pgno"])
        memory = _core.Memory(len(leaves) * size)
        # A request ends where the next leaf is not the next page, or when it is long enough.
        breaks = np.diff(pgnos, prepend=pgnos[0] - 2) != 1
        breaks[::TOGETHER] = True
        firsts = np.flatnonzero(breaks)
        reads = np.empty(len(firsts), _core.READ)
        reads["offset"] = pgnos[firsts] * np.uint64(size)
        reads["length"] = np.diff(firsts, append=len(leaves)) * size
        reads["needed"] = reads["length"]
        reads["into"] = np.uint64(memory.address) + (firsts * size).astype(np.uint64)
        with self._engine.submit(reads, memory) as ticket:
            ticket.wait()
        lent = _core.lend(memory.address, memory.size, memory)
        pages = np.frombuffer(lent, np.uint8, len(leaves) * size).reshape(len(leaves), size)
        _core.check_leaves(self._layout, pages, leaves, self._engine.path)
        chunk = _core.Chunk(0, 0, pages, pgnos, np.zeros(len(pgnos), np.uint32))
        return _core.leaf_extents(self._layout, chunk, self._engine.path)[0]
