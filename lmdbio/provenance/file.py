"""Read an open provenance file: its directory at once, its blocks as they are needed.

    preamble -> directory -> facts, sections;   block -> checked, decompressed, decoded, cached

    record index  ->  block  ->  extent            blocks of extents, decoded when needed
                  ->  block  ->  leaf  ->  extent  blocks of leaves, which the data holds
                  ->  table  ->  extent            a history, replayed once

The file reads, checks and caches blocks; a section knows which records are in which of them.

Invariant: every byte is compared with its checksum, and bounded, before it is decoded.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import BlockForm, Extents, History, Leaves
from lmdbio.errors import Error, ProvenanceError
from lmdbio.provenance.contents import LocalContents, RemoteContents, open_contents
from lmdbio.provenance.directory import BLOCKS_AT, parse_directory, parse_preamble
from lmdbio.provenance.entry import Entry, Facts, Name, Rows, name_text, stored_bytes
from lmdbio.provenance.frames import decompress, extents_crc, from_zigzag, unpack_numbers
from lmdbio.provenance.keys import KeyPattern
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.writer_model import replay
from lmdbio.remote import is_url
from lmdbio.system import fork

__all__ = ["CACHE_BYTES_MAX", "Provenance", "Section", "orders_recorded"]

CACHE_BYTES_MAX = 64 << 20
_OPEN_BYTES = 16384  # read at open: small files come whole
_NAMES_DISPLAYED = 6  # in a message


class Provenance:
    """An open provenance file.

    Opening reads its directory; finding a record reads and decodes one block. Decoded blocks
    are kept, the least recently used going first. Threads may share one; after a fork both
    processes may go on with it.

    Attributes:
        path: path of the file.
        size: bytes.
        facts: the state of the database that it describes.
        sections: sections, one for each database.
        databases: names of the databases, None being the main one.
    """

    def __init__(self, path: str | os.PathLike[str], *, cache_bytes_max: int) -> None:
        self.path: Path | str = path if isinstance(path, str) and is_url(path) else Path(path)
        self._cache: OrderedDict[tuple[int, int], Extents | Leaves] = OrderedDict()
        self._cache_bytes = 0
        self._cache_bytes_max = cache_bytes_max
        self.lock = threading.Lock()
        self._reader: LeafReader | None = None
        self._head = b""
        contents = open_contents(self.path)
        self._contents: LocalContents | RemoteContents | None = contents
        self.path, self.size = contents.path, contents.size
        try:
            self._head = self._read(0, min(self.size, _OPEN_BYTES))
            self.facts, self.sections = self._load()
        except BaseException:
            self.close()
            raise
        fork.register(self)
        self._by_name = {section.name: section for section in self.sections}
        self.databases = list(self._by_name)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, cache_bytes_max: int = CACHE_BYTES_MAX
    ) -> Provenance:
        """Open a provenance file; whether it describes the data, ``freshness.check`` says.

        Args:
            cache_bytes_max: memory for decoded blocks (16 bytes a record).

        Raises:
            FileNotFoundError, PermissionError: it is not there, or not for this user.
            ProvenanceError: damaged, no provenance file, from a later version, or unreadable.
        """
        return cls(path, cache_bytes_max=cache_bytes_max)

    def _read(self, offset: int, length: int) -> bytes:
        contents = self._contents
        if contents is None:
            raise ValueError(f"{self.path}: the provenance file is closed")
        if offset + length <= len(self._head):
            return self._head[offset : offset + length]
        try:
            return contents.read(offset, length)
        except OSError as error:  # which readers treat as damage: the tree is there
            reason = error.strerror or str(error)
            raise ProvenanceError(f"{self.path}: cannot be read: {reason}") from error

    def _load(self) -> tuple[Facts, list[Section]]:
        path = self.path
        head = parse_preamble(self._head[:BLOCKS_AT], self.size, path)
        packed = self._read(head.offset, head.stored)
        if zlib.crc32(packed) != head.crc:
            raise ProvenanceError(f"{path}: is damaged: its directory fails its checksum")
        raw, blocks_bytes = decompress(packed, head.raw, path), head.offset - BLOCKS_AT
        facts, entries = parse_directory(raw, path, head.version, blocks_bytes)
        sections, start = [], BLOCKS_AT
        for number, entry in enumerate(entries):
            sections.append(Section(self, number, entry, start))
            start += entry.stored_bytes
        return facts, sections

    def section(self, name: bytes | str | None = None) -> Section:
        """Return the records of one database; None is the main one.

        Raises:
            KeyError: the file does not describe it.
        """
        wanted = name.encode() if isinstance(name, str) else name
        found = self._by_name.get(wanted)
        if found is None:
            known = ", ".join(map(name_text, self.databases[:_NAMES_DISPLAYED])) or "nothing"
            more = len(self.databases) - _NAMES_DISPLAYED
            names = f"{known} and {more:,} more" if more > 0 else known
            raise KeyError(f"{self.path}: does not describe {name_text(wanted)}, only {names}")
        return found

    def _after_fork(self) -> None:
        self.lock = threading.Lock()
        self._cache_bytes = sum(extents.nbytes for extents in self._cache.values())

    def block(self, section: Section, number: int) -> Extents | Leaves:
        """Return the extents or leaves of one block, decoded, perhaps from the cache."""
        key = (section._number, number)
        with self.lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
        decoded = self._decode(section, number)
        with self.lock:
            if key not in self._cache:
                self._cache[key] = decoded
                self._cache_bytes += decoded.nbytes
            while self._cache_bytes > self._cache_bytes_max and self._cache:
                self._cache_bytes -= self._cache.popitem(last=False)[1].nbytes
        return decoded

    def attach(self, reader: LeafReader) -> None:
        """Have leaves of the data file read by ``reader``, which stays the caller's."""
        self._reader = reader

    def read_leaves(self, leaves: Leaves) -> Extents:
        """Return the extents of the records of some leaves."""
        if self._reader is None:
            raise ValueError(f"{self.path}: names leaves of the data, which is not open")
        return self._reader.extents(leaves)

    def forget_blocks(self) -> None:
        """Free the blocks and tables that are kept."""
        with self.lock:
            self._cache.clear()
            self._cache_bytes = 0
        for section in self.sections:
            section._table = None

    def check_blocks(self) -> None:
        """Read the whole file, and check every part of it.

        Raises:
            ProvenanceError: a block fails its checksum.
        """
        for section in self.sections:
            for number in range(section.blocks):
                self._block(section, number)
            if section.has_groups:
                section.each_key()
            section.order()

    def checked(self, row: Any, at: int, name: str) -> bytes:
        """Return a block, decompressed.

        Args:
            row: row of the directory on the block (dtype ``BLOCK`` or ``NUMBERS``).
            at: offset of the block, bytes.
            name: name of the block, for the message that it is damaged.

        Raises:
            ProvenanceError: it fails its checksum, or cannot be read.
        """
        packed = self._read(at, int(row["stored"]))
        if zlib.crc32(packed) != row["crc"]:
            raise ProvenanceError(f"{self.path}: is damaged: {name} fails its checksum")
        return decompress(packed, int(row["raw"]), self.path)

    def _block(self, section: Section, number: int) -> bytes:
        """Return a block of records, decompressed."""
        row, at = section._entry.blocks[number], int(section._offsets[number])
        return self.checked(row, at, f"block {number} of {name_text(section.name)}")

    def _decode(self, section: Section, number: int) -> Extents | Leaves:
        raw, row = self._block(section, number), section._entry.blocks[number]
        form, records = int(row["form"]), int(row["records"])
        layout, path = self.facts.layout, str(self.path)
        if form == BlockForm.LEAVES:
            decoded = _core.decode_leaves(layout, raw, records, path)
        else:
            decoded = _core.decode_block(layout, form, raw, records, path)
        decoded.flags.writeable = False
        return decoded

    def close(self) -> None:
        """Close the file. May be called twice."""
        contents, self._contents = self._contents, None
        if contents is not None:
            contents.close()

    def __enter__(self) -> Provenance:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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

    def __init__(self, owner: Provenance, number: int, entry: Entry, at: int) -> None:
        self._owner, self._number, self._entry = owner, number, entry
        self.name = entry.name
        self.database = entry.database
        self.count = entry.records
        self.record_bytes = entry.record_bytes
        self.runs = entry.runs
        self._table: Extents | None = None  # of a history
        self._firsts = _starts(entry.blocks["records"], 0)
        self._offsets = _starts(entry.blocks["stored"], at)

    @property
    def blocks(self) -> int:
        return len(self._entry.blocks)

    @property
    def forms(self) -> dict[str, int]:
        """Number of blocks of each form, by its name."""
        counts = np.bincount(self._entry.blocks["form"], minlength=max(BlockForm) + 1)
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
    def has_groups(self) -> bool:
        """Whether keys may have many records, whose counts are written down."""
        return bool(len(self._entry.groups))

    @property
    def has_order(self) -> bool:
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
        at = int(self._offsets[-1]) + stored_bytes(entry.groups)
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

    def _numbers(self, what: str, at: int, blocks: Rows) -> Iterator[npt.NDArray[np.uint64]]:
        """Yield what each of some blocks of numbers holds; they begin at ``at``, end to end."""
        for number, row in enumerate(blocks):
            name = f"block {number} of {what} of {name_text(self.name)}"
            raw = self._owner.checked(row, at, name)
            yield unpack_numbers(raw, row["records"], f"{self._owner.path}: is damaged: {name}")
            at += int(row["stored"])

    def leaves(self) -> Leaves | None:
        """Return all leaves in key order (dtype ``LEAF``); None: the file does not name them."""
        if not self.blocks or not (self._entry.blocks["form"] == BlockForm.LEAVES).all():
            return None
        return np.concatenate([self._owner.block(self, n) for n in range(self.blocks)])

    def _replayed(self, history: History) -> Extents:
        """Return the extents of all records, computed once (dtype ``EXTENT``, read-only)."""
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
        return bool(self._entry.blocks["form"][number] == BlockForm.LEAVES)

    def _within(self, number: int, start: int, stop: int) -> Extents:
        """Return the extents of records ``start`` to ``stop`` (exclusive), counted in a block."""
        decoded = self._owner.block(self, number)
        if not self._names_leaves(number):
            whole: Extents = decoded[start:stop]
            return whole
        # A block of leaves: only those that hold the records are read, as many as there are.
        firsts = _starts(decoded["records"], 0)
        first, last = np.searchsorted(firsts, (start, stop - 1), side="right") - 1
        found = self._owner.read_leaves(decoded[first : last + 1])
        return found[start - firsts[first] : stop - firsts[first]]

    def _some(self, number: int, wanted: npt.NDArray[np.int64]) -> Extents:
        """Return the extents of some records, counted in a block."""
        decoded = self._owner.block(self, number)
        if not self._names_leaves(number):
            found: Extents = decoded[wanted]
            return found
        firsts = _starts(decoded["records"], 0)
        on = np.searchsorted(firsts, wanted, side="right") - 1
        leaves, places = np.unique(on, return_inverse=True)
        begins = _starts(decoded["records"][leaves], 0)
        read = self._owner.read_leaves(decoded[leaves])
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


def orders_recorded(sidecar: str | os.PathLike[str]) -> list[Name]:
    """Return the databases whose records' order a provenance file tells, of whatever state it is.

    None of them where it cannot be read.
    """
    try:
        with Provenance.open(sidecar) as found:
            return [section.name for section in found.sections if section.has_order]
    except (Error, OSError):
        return []
