"""Read an open provenance file: its directory at once, its blocks as they are needed.

    preamble -> directory -> facts, sections;   block -> checked, decompressed, decoded, kept

Invariant: every byte is compared with its checksum, and bounded, before it is decoded.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from pathlib import Path

import numpy as np

from lmdbio import _core
from lmdbio._core import BlockForm, Extents, Leaves
from lmdbio.errors import Error, ProvenanceError
from lmdbio.provenance.contents import Contents, open_contents
from lmdbio.provenance.layout import BLOCKS_AT, Facts, Name, name_text
from lmdbio.provenance.leaves import LeafReader
from lmdbio.provenance.parse import (
    check_entries,
    decompress,
    parse_directory,
    parse_preamble,
)
from lmdbio.provenance.section import Section
from lmdbio.remote import is_url

__all__ = ["CACHE_BYTES_MAX", "Provenance", "orders_told"]

CACHE_BYTES_MAX = 64 << 20
_OPEN_BYTES = 16384  # read at open: small files come whole
_NAMES_SHOWN = 6  # in a message


class Provenance:
    """An open provenance file.

    Opening reads its directory; finding a record reads and decodes one block. Decoded blocks
    are kept, the least recently used going first. Threads may share one; after a fork both
    processes may go on with it.

    Attributes:
        path: path of the file.
        size: bytes.
        facts: the state of the database that it describes.
        databases: names of the databases, None being the main one.
    """

    def __init__(self, path: str | os.PathLike[str], *, cache_bytes_max: int) -> None:
        self.path: Path | str = path if isinstance(path, str) and is_url(path) else Path(path)
        self._cache: OrderedDict[tuple[int, int], Extents | Leaves] = OrderedDict()
        self._cache_bytes = 0
        self._cache_bytes_max = cache_bytes_max
        self.lock, self._pid = threading.Lock(), os.getpid()
        self._reader: LeafReader | None = None
        self._contents: Contents | None = open_contents(self.path)
        self.path, self.size = self._contents.path, self._contents.size
        try:
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
        """Open a provenance file; whether it describes the data, ``freshness.check`` says.

        Args:
            cache_bytes_max: memory for decoded blocks (16 bytes a record).

        Raises:
            FileNotFoundError, PermissionError: it is not there, or not for this user.
            ProvenanceError: damaged, no provenance file, from a later version, or unreadable.
        """
        return cls(path, cache_bytes_max=cache_bytes_max)

    def _pread(self, offset: int, length: int) -> bytes:
        contents = self._contents
        if contents is None:
            raise ValueError(f"{self.path}: the provenance file is closed")
        try:
            return contents.read(offset, length)
        except OSError as error:  # which readers treat as damage: the tree is there
            reason = error.strerror or str(error)
            raise ProvenanceError(f"{self.path}: cannot be read: {reason}") from error

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
        """Return the records of one database; None is the main one.

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

    def renew_lock(self) -> None:
        """Make a new lock in a child: a thread that is not there may have held the old one."""
        if self._pid != os.getpid():
            self.lock, self._pid = threading.Lock(), os.getpid()
            self._cache_bytes = sum(extents.nbytes for extents in self._cache.values())

    def block(self, section: Section, number: int) -> Extents | Leaves:
        """Return the extents or leaves of one block, decoded, perhaps from the cache."""
        self.renew_lock()
        key = (section._number, number)
        with self.lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
        held = self._decode(section, number)
        with self.lock:
            if key not in self._cache:
                self._cache[key] = held
                self._cache_bytes += held.nbytes
            while self._cache_bytes > self._cache_bytes_max and self._cache:
                self._cache_bytes -= self._cache.popitem(last=False)[1].nbytes
        return held

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
        self.renew_lock()
        with self.lock:
            self._cache.clear()
            self._cache_bytes = 0
        for section in self._sections:
            section._table = None

    def check_blocks(self) -> None:
        """Read the whole file, and check every part of it.

        Raises:
            ProvenanceError: a block fails its checksum.
        """
        for section in self._sections:
            entry = section._entry
            where = f"{self.path}: is damaged: block %d of {name_text(entry.name)}"
            for number in range(section.blocks):
                offset, stored = int(section._offsets[number]), int(entry.block_stored[number])
                raw, crc = int(entry.block_raw[number]), int(entry.block_crc[number])
                self.checked(offset, stored, raw, crc, where % number)
            if len(entry.groups):
                section.each_key()
            section.order()

    def checked(self, offset: int, stored: int, raw: int, crc: int, where: str) -> bytes:
        """Return a part of the file, decompressed; ``where`` names it when it is damaged."""
        if self._contents is None:
            raise ValueError(f"{self.path}: the provenance file is closed")
        packed = self._read(offset, stored)
        if zlib.crc32(packed) != crc:
            raise ProvenanceError(f"{where} fails its checksum")
        return decompress(packed, raw, self.path)

    def _decode(self, section: Section, number: int) -> Extents | Leaves:
        entry = section._entry
        raw = self.checked(
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
        """Close the file. May be called twice."""
        contents, self._contents = self._contents, None
        if contents is not None:
            contents.close()

    def __enter__(self) -> Provenance:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def orders_told(sidecar: str | os.PathLike[str]) -> list[Name]:
    """Return the databases whose records' order a provenance file tells, of whatever state it is.

    None of them where it cannot be read.
    """
    try:
        with Provenance.open(sidecar) as found:
            return [section.name for section in found.sections if section.tells_order]
    except (Error, OSError):
        return []
