"""Grain states: which grains of a home are in memory, on the disk, on their way, or lost to it.

ABSENT -> COMING -> PRESENT      in each tier
                 -> LOST         the disk has not taken it: its rows come from the data file
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio.reader.home_store import HomeStore

__all__ = ["ABSENT", "COMING", "LOST", "PRESENT", "GrainStates"]

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

ABSENT, COMING, PRESENT, LOST = range(4)


class GrainStates:
    """The states of the grains of one home, by their places in it.

    Args:
        store: says which tier has room for which.

    Attributes:
        kept: number of grains that the root keeps.
        in_memory: number of grains that have a place in memory, the first ones.
        both: first grain that is needed on the disk: a record that begins in memory may end behind
            it, and is read on the disk as a whole.
    """

    def __init__(self, store: HomeStore) -> None:
        begins, self._size = store.begins, store.grain_bytes
        self.kept, self.in_memory = len(begins), len(store.tiers.memory)
        self.both = max(0, self.in_memory - store.span_max + 1) if store.is_split else self.kept
        self._memory: U8 = np.full(self.in_memory, ABSENT, np.uint8)
        self._disk: U8 = np.full(self.kept, LOST, np.uint8)
        if store.file is not None:
            self._disk[store.tiers.disk.start :] = ABSENT
            self._disk[store.left] = PRESENT
        # Behind it lie parts of records that another root keeps.
        is_behind = begins >= store.limit
        self._memory[is_behind[: self.in_memory]] = PRESENT
        self._disk[is_behind] = PRESENT
        self._missing: Flags | None = None  # to be looked at

    def memory(self, grains: I64) -> U8:
        """Return the states of grains in memory."""
        return self._memory[grains]

    def disk(self, grains: I64) -> U8:
        """Return the states of grains on the disk."""
        return self._disk[grains]

    def note_memory(self, grains: I64, state: int) -> None:
        """Note the state of grains in memory."""
        self._memory[grains], self._missing = state, None

    def note_disk(self, grains: I64, state: int) -> None:
        """Note the state of grains on the disk."""
        self._disk[grains], self._missing = state, None

    @property
    def missing(self) -> Flags:
        """The grains that are to be read, or are on their way: shape (kept,)."""
        if self._missing is None:
            missing = self._disk < PRESENT
            missing[: self.both] = False
            missing[: self.in_memory] |= self._memory < PRESENT
            self._missing = np.asarray(missing)
        return self._missing

    @property
    def warmth(self) -> tuple[int, int]:
        """Bytes of grains that are there, or cannot be; and of all of them."""
        missing = int(np.count_nonzero(self.missing))
        return (self.kept - missing) * self._size, self.kept * self._size

    @property
    def is_full(self) -> bool:
        """Whether all grains are there, or cannot be."""
        return not self.missing.any()

    @property
    def lost(self) -> Flags:
        """The grains that only the data file has: shape (kept,)."""
        lost = self._disk == LOST
        lost[: self.both] = False
        return np.asarray(lost)
