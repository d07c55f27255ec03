"""Find the records of one database by what its section of a provenance file says.

    record index  ->  block  ->  extent            blocks of extents, decoded when needed
                  ->  block  ->  leaf  ->  extent  blocks of leaves, which the data holds
                  ->  table  ->  extent            a history, replayed once

The file reads, checks and keeps blocks; a section knows which records are in which of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import BlockForm, Extents, History, Leaves
from lmdbio.errors import Error, ProvenanceError
from lmdbio.provenance.keys import KeyPattern
from lmdbio.provenance.layout import Entry, extents_crc, name_text
from lmdbio.provenance.parse import from_zigzag, unpack_numbers
from lmdbio.provenance.writer_model import replay

__all__ = ["Section"]


class Blocks(Protocol):
    """The provenance file, as far as its sections ask it: blocks, decoded and kept."""

    lock: Lock

    @property
    def path(self) -> Any:
        """Path of it, for messages."""

    def checked(self, offset: int, stored: int, raw: int, crc: int, where: str) -> bytes:
        """Return a part of the file, decompressed; ``where`` names it when it is damaged."""

    def block(self, section: Any, number: int) -> Any:
        """Return the extents or leaves of one block, decoded, perhaps from the cache."""

    def read_leaves(self, leaves: Any) -> Extents:
        """Return the extents of the records of some leaves."""

    def renew_lock(self) -> None:
        """Make a new lock in a child: a thread that is not there may have held the old one."""


class Section:
    """The records of one database, in key order. Made by ``Provenance.section``.

    Threads may share one, as they may share its file, which decodes blocks and keeps them.

    Attributes:
        name: name of the database; None: the main one.
        database: record of the database at the time of conversion.
        count: records.
        record_bytes: the sum of their lengths.
        runs: stretches of records that one jump describes.
    """

    def __init__(self, owner: Blocks, number: int, entry: Entry, at: int) -> None:
        self._owner, self._number, self._entry = owner, number, entry
        self.name = entry.name
        self.database = entry.database
        self.count = entry.records
        self.record_bytes = entry.record_bytes
        self.runs = entry.runs
        self._table: Extents | None = None  # of a history
        self._firsts = _starts(entry.block_records, 0)
        self._offsets = _starts(entry.block_stored, at)

    def __len__(self) -> int:
        return self.count

    @property
    def blocks(self) -> int:
        return len(self._entry.block_form)

    @property
    def forms(self) -> dict[str, int]:
        """Number of blocks of each form, by its name."""
        counts = np.bincount(self._entry.block_form, minlength=max(BlockForm) + 1)
        return {form.name.lower(): int(counts[form]) for form in BlockForm}

    @property
    def history(self) -> History | None:
        """How the database was made, if its records are found by replaying that; else None."""
        return self._entry.history

    @property
    def keys(self) -> KeyPattern | None:
        """Pattern of the keys; None: they follow none."""
        return KeyPattern(self._entry.keys) if self._entry.keys else None

    def each_key(self) -> npt.NDArray[np.uint64]:
        """Return how many records each key has, where keys may have many; uint64, in key order.

        Raises:
            ProvenanceError: that part of the file is damaged.
        """
        at = int(self._offsets[-1])
        each = np.concatenate(
            [np.empty(0, np.uint64), *self._numbers("keys", at, self._entry.groups)]
        )
        # Compared before they are added up, which could wrap.
        if not each.all() or (len(each) and int(each.max()) > self.count):
            raise self.damaged("a key has no record, or more than there are")
        if int(each.sum(dtype=np.uint64)) != self.count:
            raise self.damaged("the keys have another number of records")
        return each

    @property
    def tells_order(self) -> bool:
        """Whether the order in which the records were put is written down."""
        return bool(len(self._entry.order))

    def order(self) -> npt.NDArray[np.int64] | None:
        """Return the records as they were put, int64, shape (count,); None: not written down.

        Raises:
            ProvenanceError: that part of the file is damaged.
        """
        entry = self._entry
        if not len(entry.order):
            return None
        at = int(self._offsets[-1]) + int(entry.groups[:, 2].sum(dtype=np.uint64))
        parts = [
            np.cumsum(from_zigzag(some) + 1) - 1
            for some in self._numbers("order", at, entry.order)
        ]
        order: npt.NDArray[np.int64] = np.concatenate(parts)
        inside = ((order >= 0) & (order < self.count)).all()
        if not inside or (np.bincount(order, minlength=self.count) != 1).any():
            raise self.damaged("its order does not have each record once")
        return order

    def damaged(self, what: str) -> ProvenanceError:
        """Return the error that says what is wrong with this section."""
        return ProvenanceError(f"{self._owner.path}: is damaged: {name_text(self.name)}: {what}")

    def _numbers(
        self, what: str, at: int, blocks: npt.NDArray[np.uint32]
    ) -> Iterator[npt.NDArray[np.uint64]]:
        """Yield what each of some blocks of numbers holds; they begin at ``at``, end to end."""
        for number, (count, raw, stored, crc) in enumerate(blocks.tolist()):
            where = (
                f"{self._owner.path}: is damaged: block {number} of {what} of "
                f"{name_text(self.name)}"
            )
            yield unpack_numbers(self._owner.checked(at, stored, raw, crc, where), count, where)
            at += stored

    def leaves(self) -> Leaves | None:
        """Return all leaves in key order (dtype ``LEAF``); None: the file does not name them."""
        if not self.blocks or not (self._entry.block_form == BlockForm.LEAVES).all():
            return None
        return np.concatenate([self._owner.block(self, n) for n in range(self.blocks)])

    def _replayed(self, history: History) -> Extents:
        """Return the extents of all records, computed once (dtype ``EXTENT``, read-only)."""
        self._owner.renew_lock()
        with self._owner.lock:
            if self._table is None:
                self._table = self._replay(history)
            return self._table

    def _replay(self, history: History) -> Extents:
        where = f"{self._owner.path}: {name_text(self.name)}"
        try:
            extents = replay(history).extents
        except (ValueError, Error) as e:
            raise ProvenanceError(f"{where}: its history is damaged: {e}") from e
        assert extents is not None
        if extents_crc([extents]) != self._entry.extents_crc:
            raise ProvenanceError(f"{where}: its history is damaged: it leads to other records")
        extents.flags.writeable = False
        return extents

    def parts(self) -> Iterator[Extents]:
        """Yield the extents of all records, in order, in parts of bounded size."""
        if self.history is not None:
            yield self._replayed(self.history)
        for number in range(self.blocks):
            yield self.block(number)

    def block(self, number: int) -> Extents:
        """Return the extents of one block (dtype ``EXTENT``, read-only); it may be cached."""
        return self._within(number, 0, int(self._firsts[number + 1] - self._firsts[number]))

    def _names_leaves(self, number: int) -> bool:
        return bool(self._entry.block_form[number] == BlockForm.LEAVES)

    def _within(self, number: int, start: int, stop: int) -> Extents:
        """Return the extents of records ``start`` to ``stop`` (exclusive), counted in a block."""
        held = self._owner.block(self, number)
        if not self._names_leaves(number):
            whole: Extents = held[start:stop]
            return whole
        # A block of leaves: only those that hold the records are read, as many as there are.
        firsts = _starts(held["records"], 0)
        first, last = np.searchsorted(firsts, (start, stop - 1), side="right") - 1
        found = self._owner.read_leaves(held[first : last + 1])
        return found[start - firsts[first] : stop - firsts[first]]

    def _some(self, number: int, wanted: npt.NDArray[np.int64]) -> Extents:
        """Return the extents of some records, counted in a block."""
        held = self._owner.block(self, number)
        if not self._names_leaves(number):
            found: Extents = held[wanted]
            return found
        firsts = _starts(held["records"], 0)
        on = np.searchsorted(firsts, wanted, side="right") - 1
        leaves, places = np.unique(on, return_inverse=True)
        begins = _starts(held["records"][leaves], 0)
        read = self._owner.read_leaves(held[leaves])
        some: Extents = read[begins[places] + wanted - firsts[on]]
        return some

    def locate(self, indices: npt.ArrayLike) -> Extents:
        """Find where records lie.

        Args:
            indices: integers, shape (n,), in any order, repeats allowed.

        Returns:
            Array of dtype ``EXTENT``, shape (n,), in the caller's order.

        Raises:
            IndexError: an index below 0 or not below ``count``.
            ProvenanceError: a block that is needed is damaged.
        """
        asked = np.asarray(indices)
        if asked.ndim != 1:
            raise ValueError(f"indices must have one dimension, not {asked.ndim}")
        out = np.empty(len(asked), _core.EXTENT)
        if not len(asked):
            return out
        if not np.issubdtype(asked.dtype, np.integer):
            raise TypeError(f"indices must be integers, not {asked.dtype}")
        low, high = int(asked.min()), int(asked.max())
        if low < 0 or high >= self.count:
            wrong = low if low < 0 else high
            raise IndexError(
                f"record {wrong} of {name_text(self.name)}, which has {self.count} records"
            )
        wanted = asked.astype(np.int64)
        if self.history is not None:
            found: Extents = self._replayed(self.history)[wanted]
            return found
        blocks = np.searchsorted(self._firsts, wanted, side="right") - 1
        order = np.argsort(blocks, kind="stable")
        ends = np.flatnonzero(np.diff(blocks[order], append=self.blocks)) + 1
        start = 0
        for end in ends.tolist():
            places = order[start:end]
            number = int(blocks[places[0]])
            out[places] = self._some(number, wanted[places] - self._firsts[number])
            start = end
        return out

    def blocks_between(self, first: int, last: int) -> int:
        """Return how many blocks hold records ``first`` to ``last`` (inclusive); history: 1."""
        if self.history is not None:
            return 1
        low, high = np.searchsorted(self._firsts, (first, last), side="right")
        return int(high - low) + 1

    def extents(self, start: int = 0, stop: int | None = None) -> Extents:
        """Return the extents of records ``start`` to ``stop`` (exclusive), dtype ``EXTENT``."""
        stop = self.count if stop is None else stop
        if not 0 <= start <= stop <= self.count:
            raise IndexError(
                f"records {start} to {stop} of {name_text(self.name)}, "
                f"which has {self.count} records"
            )
        if self.history is not None:
            return self._replayed(self.history)[start:stop]
        out = np.empty(stop - start, _core.EXTENT)
        number = int(np.searchsorted(self._firsts, start, side="right")) - 1
        at = start
        while at < stop:
            first, end = int(self._firsts[number]), min(int(self._firsts[number + 1]), stop)
            out[at - start : end - start] = self._within(number, at - first, end - first)
            at, number = end, number + 1
        return out


def _starts(sizes: npt.NDArray[Any], base: int) -> npt.NDArray[np.int64]:
    """Return where each item begins, and where the last one ends; int64, from ``base`` on."""
    if not len(sizes):
        return np.array([base], np.int64)
    starts = np.empty(len(sizes) + 1, np.int64)
    starts[0] = base
    np.cumsum(sizes, dtype=np.int64, out=starts[1:])
    starts[1:] += base
    return starts
