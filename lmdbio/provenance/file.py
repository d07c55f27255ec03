"""A provenance file that is open: from the index of a record to its extent, reading little."""

from __future__ import annotations

import os
import stat
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
from lmdbio.provenance.directory import (
    BLOCKS_AT,
    Entry,
    Facts,
    Name,
    check_entries,
    decompress,
    extents_crc,
    from_zigzag,
    name_text,
    parse_directory,
    parse_preamble,
    unpack_numbers,
)
from lmdbio.provenance.keys import KeyPattern
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.writer_model import replay

__all__ = ["CACHE_BYTES_MAX", "Provenance", "Section", "orders_told"]

CACHE_BYTES_MAX = 64 << 20
_OPEN_BYTES = 16384  # read at open: small sidecars come whole
_NAMES_SHOWN = 6  # in a message


class Section:
    """The records of one database, in key order. Made by ``Provenance.section``.

    Attributes:
        name: None for the main database.
        database: its record at the time of conversion.
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
        self._firsts = _starts(entry.block_records, 0)
        self._offsets = _starts(entry.block_stored, at)

    def __len__(self) -> int:
        return self.count

    @property
    def blocks(self) -> int:
        return len(self._entry.block_form)

    @property
    def forms(self) -> dict[str, int]:
        """How many blocks have each form."""
        counts = np.bincount(self._entry.block_form, minlength=max(BlockForm) + 1)
        return {form.name.lower(): int(counts[form]) for form in BlockForm}

    @property
    def history(self) -> History | None:
        """How the database was made, where its records are found by replaying that."""
        return self._entry.history

    @property
    def keys(self) -> KeyPattern | None:
        """What its keys look like; None: they follow no pattern."""
        return KeyPattern(self._entry.keys) if self._entry.keys else None

    def each_key(self) -> npt.NDArray[np.uint64]:
        """How many records each key has, where keys may have many."""
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
        """The order in which the records were put is written down."""
        return bool(len(self._entry.order))

    def order(self) -> npt.NDArray[np.int64] | None:
        """The records as they were put, int64, shape (count,); None: that is not written down."""
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
        """The error that says what is wrong with what is told of this database."""
        return ProvenanceError(f"{self._owner.path}: is damaged: {name_text(self.name)}: {what}")

    def _numbers(
        self, what: str, at: int, blocks: npt.NDArray[np.uint32]
    ) -> Iterator[npt.NDArray[np.uint64]]:
        """What blocks of numbers hold, which lie one after the other from ``at`` on."""
        for number, (count, raw, stored, crc) in enumerate(blocks.tolist()):
            where = (
                f"{self._owner.path}: is damaged: block {number} of {what} of "
                f"{name_text(self.name)}"
            )
            yield unpack_numbers(self._owner._checked(at, stored, raw, crc, where), count, where)
            at += stored

    def leaves(self) -> Leaves | None:
        """All leaves in key order (dtype ``LEAF``); None: it does not name them."""
        if not self.blocks or not (self._entry.block_form == BlockForm.LEAVES).all():
            return None
        return np.concatenate([self._owner._block(self, n) for n in range(self.blocks)])

    def _replayed(self, history: History) -> Extents:
        """The extents of all records, computed once (dtype ``EXTENT``, read-only)."""
        self._owner._after_fork()
        with self._owner._lock:
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
        """The extents of all records, in order, in parts of bounded size."""
        if self.history is not None:
            yield self._replayed(self.history)
        for number in range(self.blocks):
            yield self.block(number)

    def block(self, number: int) -> Extents:
        """The extents of one block (dtype ``EXTENT``, read-only), perhaps from the cache."""
        return self._within(number, 0, int(self._firsts[number + 1] - self._firsts[number]))

    def _names_leaves(self, number: int) -> bool:
        return bool(self._entry.block_form[number] == BlockForm.LEAVES)

    def _within(self, number: int, start: int, stop: int) -> Extents:
        """The extents of records ``start`` to ``stop`` (exclusive), counted in a block."""
        held = self._owner._block(self, number)
        if not self._names_leaves(number):
            return held[start:stop]
        firsts = _starts(held["records"], 0)
        first, last = np.searchsorted(firsts, (start, stop - 1), side="right") - 1
        found = self._owner._read_leaves(held[first : last + 1])
        return found[start - firsts[first] : stop - firsts[first]]

    def _some(self, number: int, wanted: npt.NDArray[np.int64]) -> Extents:
        """The extents of some records, counted in a block."""
        held = self._owner._block(self, number)
        if not self._names_leaves(number):
            found: Extents = held[wanted]
            return found
        firsts = _starts(held["records"], 0)
        on = np.searchsorted(firsts, wanted, side="right") - 1
        leaves, places = np.unique(on, return_inverse=True)
        begins = _starts(held["records"][leaves], 0)
        read = self._owner._read_leaves(held[leaves])
        some: Extents = read[begins[places] + wanted - firsts[on]]
        return some

    def locate(self, indices: npt.ArrayLike) -> Extents:
        """Where records lie.

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
        """How many blocks hold records ``first`` to ``last`` (inclusive); a history is one."""
        if self.history is not None:
            return 1
        low, high = np.searchsorted(self._firsts, (first, last), side="right")
        return int(high - low) + 1

    def extents(self, start: int = 0, stop: int | None = None) -> Extents:
        """The extents of records ``start`` to ``stop`` (exclusive), dtype ``EXTENT``."""
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
    """Where each item begins, and where the last one ends."""
    if not len(sizes):
        return np.array([base], np.int64)
    starts = np.empty(len(sizes) + 1, np.int64)
    starts[0] = base
    np.cumsum(sizes, dtype=np.int64, out=starts[1:])
    starts[1:] += base
    return starts


class Provenance:
    """An open provenance file.

    Opening reads its directory; finding a record reads and decodes one block. Decoded blocks
    are kept, the least recently used going first. Threads may share one; after a fork both
    processes may go on with it.

    Attributes:
        path: of the file.
        size: bytes.
        facts: the state of the database that it describes.
        databases: names, None being the main database.
    """

    def __init__(self, path: str | os.PathLike[str], *, cache_bytes_max: int) -> None:
        self.path = Path(path)
        self._cache: OrderedDict[tuple[int, int], Extents | Leaves] = OrderedDict()
        self._cache_bytes = 0
        self._cache_bytes_max = cache_bytes_max
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._reader: LeafReader | None = None
        # Non-blocking, so that a FIFO under this name is refused instead of waited for.
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                raise ProvenanceError(f"{self.path}: is not a regular file")
            self.size = status.st_size
            self._head = self._pread(0, min(self.size, _OPEN_BYTES))
            self.facts, self._sections = self._load()
        except BaseException:
            self.close()
            raise
        self._by_name = {section.name: section for section in self._sections}
        self.databases = list(self._by_name)

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, cache_bytes_max: int = CACHE_BYTES_MAX
    ) -> Provenance:
        """Opens a provenance file; whether it fits the data, ``staleness.check`` says.

        Args:
            cache_bytes_max: memory for decoded blocks (16 bytes a record).

        Raises:
            FileNotFoundError, OSError.
            ProvenanceError: damaged, no provenance file, or from a later version.
        """
        return cls(path, cache_bytes_max=cache_bytes_max)

    def _pread(self, offset: int, length: int) -> bytes:
        pieces = []
        while length:
            try:
                piece = os.pread(self._fd, length, offset)
            except OSError as e:
                told = (
                    f"{os.strerror(e.errno or 0)}: cannot read ({length} bytes at offset {offset})"
                )
                raise OSError(e.errno, told, os.fspath(self.path)) from e
            if not piece:
                raise ProvenanceError(
                    f"{self.path}: is cut: {length} bytes are missing at offset {offset}"
                )
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return b"".join(pieces)

    def _read(self, offset: int, length: int) -> bytes:
        if offset + length <= len(self._head):
            return self._head[offset : offset + length]
        return self._pread(offset, length)

    def _load(self) -> tuple[Facts, list[Section]]:
        path = self.path
        head = parse_preamble(self._head[:BLOCKS_AT], self.size, path)
        packed = self._read(head.offset, head.stored)
        if zlib.crc32(packed) != head.crc:
            raise ProvenanceError(f"{path}: is damaged: its directory fails its checksum")
        raw, blocks_bytes = decompress(packed, head.raw, path), head.offset - BLOCKS_AT
        facts, entries = parse_directory(raw, path, head.version, blocks_bytes)
        check_entries(entries, blocks_bytes, path)
        sections, start = [], BLOCKS_AT
        for number, entry in enumerate(entries):
            sections.append(Section(self, number, entry, start))
            start += int(entry.block_stored.sum(dtype=np.uint64))
            start += entry.numbers_bytes
        return facts, sections

    def section(self, name: bytes | str | None = None) -> Section:
        """The records of one database; None is the main one.

        Raises:
            KeyError: the file does not describe it.
        """
        wanted = name.encode() if isinstance(name, str) else name
        found = self._by_name.get(wanted)
        if found is None:
            known = ", ".join(map(name_text, self.databases[:_NAMES_SHOWN])) or "nothing"
            more = len(self.databases) - _NAMES_SHOWN
            told = f"{known} and {more:,} more" if more > 0 else known
            raise KeyError(f"{self.path}: does not describe {name_text(wanted)}, only {told}")
        return found

    @property
    def sections(self) -> list[Section]:
        return list(self._sections)

    def _after_fork(self) -> None:
        """In a child, the lock may have been held by a thread that is not there."""
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
            self._cache_bytes = sum(extents.nbytes for extents in self._cache.values())

    def _block(self, section: Section, number: int) -> Extents | Leaves:
        """What one block holds, decoded: extents, or leaves."""
        self._after_fork()
        key = (section._number, number)
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
        held = self._decode(section, number)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = held
                self._cache_bytes += held.nbytes
            while self._cache_bytes > self._cache_bytes_max and self._cache:
                self._cache_bytes -= self._cache.popitem(last=False)[1].nbytes
        return held

    def attach(self, reader: LeafReader) -> None:
        """Has leaves of the data file read by ``reader``; it is the caller's."""
        self._reader = reader

    def _read_leaves(self, leaves: Leaves) -> Extents:
        if self._reader is None:
            raise ValueError(f"{self.path}: names leaves of the data, which is not open")
        return self._reader.extents(leaves)

    def forget_blocks(self) -> None:
        """Lets go of the blocks and tables that are kept."""
        self._after_fork()
        with self._lock:
            self._cache.clear()
            self._cache_bytes = 0
        for section in self._sections:
            section._table = None

    def check_blocks(self) -> None:
        """Reads all of it.

        Raises:
            ProvenanceError: a block fails its checksum.
        """
        for section in self._sections:
            entry = section._entry
            where = f"{self.path}: is damaged: block %d of {name_text(entry.name)}"
            for number in range(section.blocks):
                offset, stored = int(section._offsets[number]), int(entry.block_stored[number])
                raw, crc = int(entry.block_raw[number]), int(entry.block_crc[number])
                self._checked(offset, stored, raw, crc, where % number)
            if len(entry.groups):
                section.each_key()
            section.order()

    def _checked(self, offset: int, stored: int, raw: int, crc: int, where: str) -> bytes:
        """A compressed part, decompressed; ``where`` says which, when it is damaged."""
        if self._fd < 0:
            raise ValueError(f"{self.path}: the provenance file is closed")
        packed = self._read(offset, stored)
        if zlib.crc32(packed) != crc:
            raise ProvenanceError(f"{where} fails its checksum")
        return decompress(packed, raw, self.path)

    def _decode(self, section: Section, number: int) -> Extents | Leaves:
        entry = section._entry
        raw = self._checked(
            int(section._offsets[number]),
            int(entry.block_stored[number]),
            int(entry.block_raw[number]),
            int(entry.block_crc[number]),
            f"{self.path}: is damaged: block {number} of {name_text(entry.name)}",
        )
        form, records = int(entry.block_form[number]), int(entry.block_records[number])
        layout, path = self.facts.layout, str(self.path)
        if form == BlockForm.LEAVES:
            held = _core.decode_leaves(layout, raw, records, path)
        else:
            held = _core.decode_block(layout, form, raw, records, path)
        held.flags.writeable = False
        return held

    def close(self) -> None:
        """Closes the file. May be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Provenance:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()


def orders_told(sidecar: str | os.PathLike[str]) -> list[Name]:
    """The databases whose records' order a provenance file tells, of whatever state it is; none
    where it cannot be read.
    """
    try:
        with Provenance.open(sidecar) as found:
            return [section.name for section in found.sections if section.tells_order]
    except (Error, OSError):
        return []
