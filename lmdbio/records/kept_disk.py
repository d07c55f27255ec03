"""kept_disk: the grains of a file that a process keeps on a disk (``cache.disk_tier``).

    grains in memory -> written, as far as the disk takes them
    rows of a batch  -> read, whole pages, into memory of their own -> compared with their sums
    grains           -> read whole, compared -> memory that keeps them

Threads share it, and wait for what they ask for.
"""

from __future__ import annotations

import weakref
from time import monotonic
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache import CacheFile, DiskTier, GrainPages, NoAnswerError, PageWrite
from lmdbio.errors import Error

__all__ = ["DiskRows", "KeptDisk"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


class DiskRows(NamedTuple):
    """Rows that were read from the disk.

    Attributes:
        memory: memory that has them.
        places: offset of each row in the memory, bytes.
        wrong: mask of the rows that have not arrived as they were written.
    """

    memory: _core.Memory
    places: U64
    wrong: Flags


class KeptDisk:
    """Grains of a file on a disk.

    Threads may share it. After fork a child reads what is there, and writes nothing.

    Args:
        file: cache file, open and locked; owned from now on.
        begins: offset of each grain in the data file, bytes, ascending.
        size: bytes of a grain.
        limit: end of what is kept of the data file.

    Attributes:
        tier: the pages of the grains.
        left: whether an earlier job has left each grain there whole: shape (grains,).

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, file: CacheFile, begins: I64, size: int, limit: int) -> None:
        weakref.finalize(self, file.close)
        self._file, self._pages = file, GrainPages(begins, size, limit)
        sums = file.keep(*self._pages.span())
        self.left = self._pages.present(sums)
        self.tier = DiskTier(file, sums)
        self._stuck_write: PageWrite | None = None  # that was waited for in vain

    def read_rows(self, extents: _core.Extents, pool: _core.MemoryPool) -> DiskRows:
        """Read rows, all requests in flight at once.

        Args:
            extents: places in the data file, inside of grains that are there; none is empty.
            pool: memory for them.
        """
        plan = self.tier.plan(extents)
        memory = pool.take(plan.totals.buffer_bytes)
        try:
            reads = self.tier.read(plan, memory.address, memory)
            with reads.ticket as ticket:
                self.tier.wait(ticket)
        except (OSError, Error) as error:
            self.tier.note_failure(error)
            return DiskRows(memory, plan.slices, np.ones(len(extents), np.bool_))
        return DiskRows(memory, plan.slices, self.tier.damaged(extents, reads)[0])

    def submit(self, grains: I64, addresses: I64, memory: _core.Memory) -> _core.Ticket:
        """Start to read grains whole.

        Args:
            grains: numbers of them, here.
            addresses: address in the memory for each grain.
            memory: memory that is held until the grains have arrived.

        Raises:
            OSError, Error: the engine refuses.
        """
        pages = self._pages
        reads = np.zeros(len(grains), _core.READ)
        reads["offset"], reads["into"] = pages.begins[grains], addresses
        reads["length"] = (pages.ends - pages.firsts)[grains] * _core.CHECKED_PAGE_BYTES
        return self.tier.read_pages(reads, memory)

    def finish(self, ticket: _core.Ticket, grains: I64, addresses: I64) -> Flags:
        """Wait for grains, and return which of them have arrived as they were written.

        Raises:
            NoAnswerError: the disk does not answer.
        """
        try:
            self.tier.wait(ticket)
        except (OSError, Error) as error:
            self.tier.note_failure(error)
            if isinstance(error, NoAnswerError):
                raise
            return np.zeros(len(grains), np.bool_)
        each = zip(grains.tolist(), addresses.tolist(), strict=True)
        right = [self.tier.is_right(address, *self._pages.under(grain)) for grain, address in each]
        return np.array(right, np.bool_)

    def write(self, grains: I64, addresses: I64, memory: _core.Memory) -> Flags:
        """Write grains, and return which of them are there.

        Those that are not: the disk is full, fails, or does not answer.

        Args:
            grains: numbers of them, here, ascending.
            addresses: address of each grain in the memory.
            memory: memory that is held until the grains are written.
        """
        there, writes = np.zeros(len(grains), np.bool_), []
        for part in self._pages.runs(grains, addresses):
            if not self._may_write():
                break
            pages = self._pages.under(int(grains[part[0]]), len(part))
            one = self.tier.write(memory, int(addresses[part[0]]), *pages)
            writes.append((part, one))
        for part, one in writes:
            there[part] = self._has_written(one)
        return there

    def _may_write(self) -> bool:
        """Return whether a write would not wait in vain, behind another one for instance."""
        stuck = self._stuck_write
        is_free = stuck is None or stuck.is_done
        return is_free and not self.tier.is_full and not self.tier.is_away

    def _has_written(self, one: PageWrite) -> bool:
        """Wait for a write, and return whether its grains are there."""
        begun_s = monotonic()
        while not one.poll(_core.SLICE_MS):
            waited_s = monotonic() - max(begun_s, self.tier.moved_s)
            if self.tier.is_away or waited_s > self.tier.limits.stuck_s:
                self._stuck_write = one
                self.tier.note_stuck()
                return False
        return one.has_written

    def close(self) -> None:
        """Give up writes, wait for the one that is under way, if the disk answers, and unlock.

        May be called twice.
        """
        self.tier.close()
        self._file.close()
