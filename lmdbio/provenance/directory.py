"""What a provenance file's bytes mean, down to its blocks: drawn in provenance/FORMAT.md.

    preamble -> directory -> facts, entries

Pure: bytes in, values out, and back.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import zstandard

from lmdbio import _core
from lmdbio._core import (
    BlockForm,
    Database,
    Extents,
    History,
    KeyForm,
    KeyRun,
    Layout,
    SplitRule,
)
from lmdbio.errors import ProvenanceError
from lmdbio.provenance.values import DUPSORT
from lmdbio.provenance.writer_model import RECORDS_MAX as REPLAYED_MAX
from lmdbio.system.file_identity import FileIdentity

__all__ = [
    "ALL_KEY_RUNS_MAX",
    "BLOCKS_AT",
    "DATABASES_MAX",
    "DIGEST_BYTES",
    "DIRECTORY_BYTES_MAX",
    "Entry",
    "Facts",
    "MAGIC",
    "NUMBERS_MAX",
    "Name",
    "Preamble",
    "check_entries",
    "compress",
    "decompress",
    "extents_crc",
    "from_zigzag",
    "name_text",
    "pack_database",
    "pack_directory",
    "pack_numbers",
    "pack_preamble",
    "parse_directory",
    "parse_preamble",
    "unpack_numbers",
    "zigzag",
]

U32: TypeAlias = npt.NDArray[np.uint32]
Name: TypeAlias = "bytes | None"  # None is the main database

MAGIC = b"LMDBIOPV"
VERSION = 3
VERSIONS = (1, 2, VERSION)  # that are read
BLOCKS_AT = 64  # the preamble's size
#: Of a block of leaves: no page has more than 2**15.
_LEAVES_RECORDS_MAX = _core.BLOCK_LEAVES_MAX << 15
DIRECTORY_BYTES_MAX = 64 << 20
#: What a few bytes of zstd may say there is: each takes time and memory, before any of it is known
#: to be false. LMDB looks names up one after the other, so that nobody has nearly as many.
DATABASES_MAX = 1 << 14
ALL_KEY_RUNS_MAX = 1 << 14  # of all databases
#: Bytes that a zstd frame of one byte or more takes.
_BLOCK_STORED_MIN = 10
_ZSTD_LEVEL = 19

#: magic, version, features, file size, directory offset, stored and raw size, its crc32, zeros
_PREAMBLE = struct.Struct("<8sIIQQIII16x")
_CRC = struct.Struct("<I")
#: data format, page size, environment flags, sections, txnid, last page, end of the extents
_FACTS = struct.Struct("<IIIIQQQ")
#: mtime and ctime in ns, device, inode, host
_HINTS = struct.Struct("<qqQQ16s")
#: pad, flags, depth, branch, leaf and overflow pages, entries, root: as LMDB stores it
_DATABASE = struct.Struct("<IHHQQQQQ")
#: kind (0 main, 1 named), name's length, blocks
_SECTION = struct.Struct("<HHI")
#: records, their bytes, runs
_COUNTS = struct.Struct("<QQQ")
#: Length of a history, 0 where there is none; from format version 2 on
_HISTORY_BYTES = struct.Struct("<H")
#: split rule, append, apart, order, key size, records a transaction, value length, crc32
_HISTORY = struct.Struct("<BBBBIQQI")
#: Number of key runs, 0 where keys follow no pattern; from format version 3 on
_KEY_RUNS = struct.Struct("<H")
#: form, width, bytes of the stem and of the tail, first number, how many
_KEY_RUN = struct.Struct("<BBHHQQ")
#: Number of blocks of numbers; from format version 3 on
_COLUMNS = struct.Struct("<I")
NUMBERS_MAX = 8192  # that one of them has
_NO_COLUMNS = np.empty((0, 4), np.uint32)
#: Smallest number, and bytes of what others have more
_NUMBERS_HEAD = struct.Struct("<QB")
#: Bounds of LMDB for keys and values, in bytes.
_KEY_MAX, _VALUE_MAX = 511, 2**32 - 2
DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of the database that a provenance file describes.

    Attributes:
        version: LMDB's data format, 1 or 3.
        page_size: bytes.
        env_flags: the persistent environment flags.
        txnid, last_pgno: of the meta page.
        extents_end: bytes; no smaller file can hold every record.
        free_db, main_db: the meta page's two database records.
        hints: of the data file at that time.
        digest: over the branch and leaf pages of the databases described.
    """

    version: int
    page_size: int
    env_flags: int
    txnid: int
    last_pgno: int
    extents_end: int
    free_db: Database
    main_db: Database
    hints: FileIdentity
    digest: bytes

    @property
    def layout(self) -> Layout:
        return Layout(
            self.version,
            self.page_size,
            16 if self.version == 1 else 24,
            self.env_flags,
            self.last_pgno + 1,
        )


def pack_database(db: Database) -> bytes:
    return _DATABASE.pack(*(getattr(db, name) for name in Database.__dataclass_fields__))


def name_text(name: Name) -> str:
    """A database's name in a message. Names are bytes in LMDB, mostly text."""
    if name is None:
        return "the main database"
    return f"database '{name.decode(errors='backslashreplace')}'"


@dataclass(slots=True)
class Entry:
    """One database in the directory. Columns have one item per block; with a history there is
    none.
    """

    name: Name
    database: Database
    records: int
    record_bytes: int
    runs: int
    block_records: npt.NDArray[np.uint32]
    block_raw: npt.NDArray[np.uint32]
    block_stored: npt.NDArray[np.uint32]
    block_crc: npt.NDArray[np.uint32]
    block_form: npt.NDArray[np.uint8]
    history: History | None = None
    extents_crc: int = 0  # of a history
    keys: tuple[KeyRun, ...] = ()  # none: they follow no pattern
    #: Of blocks of numbers: how many, raw and stored size, crc32 in a row. Records of each key
    groups: U32 = field(default_factory=lambda: np.empty((0, 4), np.uint32))
    #: and the records as they were put
    order: U32 = field(default_factory=lambda: np.empty((0, 4), np.uint32))

    @property
    def numbers_bytes(self) -> int:
        """Of the stored blocks of numbers, which follow the others."""
        if not len(self.groups) and not len(self.order):
            return 0
        return int(self.groups[:, 2].sum(dtype=np.uint64) + self.order[:, 2].sum(dtype=np.uint64))

    def pack(self) -> bytes:
        name = self.name or b""
        columns = (self.block_records, self.block_raw, self.block_stored, self.block_crc)
        return b"".join(
            [
                _SECTION.pack(self.name is not None, len(name), len(self.block_form)),
                name,
                pack_database(self.database),
                _COUNTS.pack(self.records, self.record_bytes, self.runs),
                *(column.astype("<u4").tobytes() for column in columns),
                self.block_form.tobytes(),
                self._pack_history(),
                self._pack_keys(),
                _pack_columns(self.groups),
                _pack_columns(self.order),
            ]
        )

    def _pack_history(self) -> bytes:
        history = self.history
        if history is None:
            return _HISTORY_BYTES.pack(0)
        return _HISTORY_BYTES.pack(_HISTORY.size) + _HISTORY.pack(
            history.split,
            history.append,
            history.apart,
            history.numbered is not None,
            history.key_size,
            history.commit_every,
            history.length,
            self.extents_crc,
        )

    def _pack_keys(self) -> bytes:
        parts = [_KEY_RUNS.pack(len(self.keys))]
        for run in self.keys:
            sizes = len(run.stem), len(run.tail)
            parts.append(_KEY_RUN.pack(run.form, run.width, *sizes, run.first, run.count))
            parts += [run.stem, run.tail]
        return b"".join(parts)


def _pack_columns(blocks: U32) -> bytes:
    columns: bytes = blocks.T.astype("<u4").tobytes()
    return _COLUMNS.pack(len(blocks)) + columns


def extents_crc(parts: Iterable[Extents]) -> int:
    """crc32 over extents, as a history is held to it."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part.tobytes(), crc)
    return crc


_NOTHING = {dtype: np.empty(0, dtype) for dtype in ("<u4", "u1")}


class _Parser:
    """Takes bounded pieces off the front of the directory.

    Args:
        blocks_bytes: that the file has for blocks.
    """

    def __init__(self, raw: bytes, path: Path, blocks_bytes: int) -> None:
        self._raw, self._at, self._path = raw, 0, path
        self._blocks_left = blocks_bytes // _BLOCK_STORED_MIN
        self._runs_left = ALL_KEY_RUNS_MAX

    def bytes(self, length: int) -> bytes:
        if length > len(self._raw) - self._at:
            raise self.error("ends too early")
        self._at += length
        return self._raw[self._at - length : self._at]

    def items(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.bytes(layout.size))

    def database(self) -> Database:
        return Database(*self.items(_DATABASE))

    def column(self, count: int, dtype: str) -> npt.NDArray[Any]:
        if not count:
            return _NOTHING[dtype]
        return np.frombuffer(self.bytes(count * np.dtype(dtype).itemsize), dtype)

    def blocks(self, count: int) -> int:
        """So many blocks more, for which the file must have room."""
        self._blocks_left -= count
        if self._blocks_left < 0:
            raise self.error("has more blocks than its file has room for")
        return count

    def key_runs(self, count: int) -> int:
        """So many runs of keys more."""
        self._runs_left -= count
        if count > _core.KEY_RUNS_MAX or self._runs_left < 0:
            raise self.error("has more runs of keys than the format knows")
        return count

    def end(self) -> None:
        if self._at != len(self._raw):
            raise self.error("has bytes left over")

    def error(self, what: str) -> ProvenanceError:
        return ProvenanceError(f"{self._path}: is damaged: its directory {what}")


def _parse_history(
    parser: _Parser, facts: Facts, records: int, *, named: bool, by_number: bool
) -> tuple[History | None, int]:
    (length,) = parser.items(_HISTORY_BYTES)
    if length == 0:
        return None, 0
    if length != _HISTORY.size:
        raise parser.error("has a history of unknown length")
    split, append, apart, order, key_size, commit_every, value_length, crc = parser.items(_HISTORY)
    if split not in list(SplitRule) or append > 1 or apart > named or order > by_number:
        raise parser.error("has a history of unknown kind")
    if (
        not 0 < records <= REPLAYED_MAX
        or not commit_every
        or not (key_size == 0 if order else 0 < key_size <= _KEY_MAX)
        or value_length > _VALUE_MAX
    ):
        raise parser.error("has a history that cannot be replayed")
    if -(-records // commit_every) + apart != facts.txnid:
        raise parser.error("has a history of other transactions than the database's")
    history = History(
        version=facts.version,
        page_size=facts.page_size,
        count=records,
        commit_every=commit_every,
        key_size=key_size,
        length=value_length,
        split=SplitRule(split),
        append=bool(append),
        named=named,
        apart=bool(apart),
    )
    return history, crc


#: Bytes of the numbers of keys.
_WIDTHS = {
    KeyForm.LITERAL: range(1),
    KeyForm.DECIMAL: range(1, 19),
    KeyForm.PLAIN: range(1),
    KeyForm.BIG: range(1, 9),
    KeyForm.LITTLE: range(1, 9),
}


def _parse_keys(parser: _Parser) -> tuple[KeyRun, ...]:
    (count,) = parser.items(_KEY_RUNS)
    runs = []
    for _ in range(parser.key_runs(count)):
        form, width, stem, tail, first, many = parser.items(_KEY_RUN)
        run = KeyRun(form, first, many, width, parser.bytes(stem), parser.bytes(tail))
        runs.append(run)
        if not _is_sound(run):
            raise parser.error("has a run of keys that cannot be")
    return tuple(dataclasses.replace(run, form=KeyForm(run.form)) for run in runs)


def _parse_columns(parser: _Parser) -> U32:
    (count,) = parser.items(_COLUMNS)
    if not parser.blocks(count):
        return _NO_COLUMNS
    blocks: U32 = parser.column(4 * count, "<u4").reshape(4, count).T
    most = (NUMBERS_MAX, _core.BLOCK_RAW_BYTES_MAX)
    if bool(((blocks[:, :2] == 0) | (blocks[:, :2] > most)).any()):
        raise parser.error("has a block of numbers that is empty or above the format's limits")
    return blocks


def _is_sound(run: KeyRun) -> bool:
    if run.form not in list(KeyForm) or run.width not in _WIDTHS[KeyForm(run.form)]:
        return False
    last = run.first + run.count - 1
    if run.form == KeyForm.LITERAL:
        largest, fits = 0, run.first == 0 and run.count == 1 and not run.tail
    elif run.form == KeyForm.PLAIN:
        largest, fits = len(str(last)), run.first <= 1 and last < 10**18
    elif run.form == KeyForm.DECIMAL:
        largest, fits = run.width, last < 10**run.width
    else:
        largest, fits = run.width, last < 256**run.width
    return run.count > 0 and fits and 0 < len(run.stem) + largest + len(run.tail) <= _KEY_MAX


def _parse_entry(parser: _Parser, facts: Facts, format_version: int) -> Entry:
    kind, name_length, blocks = parser.items(_SECTION)
    name = parser.bytes(name_length)
    if kind > 1 or (kind == 0 and name):
        raise parser.error(f"has a database of unknown kind {kind}")
    if name_length > _KEY_MAX:
        raise parser.error("has a name that no database has")
    parser.blocks(blocks)
    database = parser.database()
    records, total, runs = parser.items(_COUNTS)
    entry = Entry(
        name=name if kind else None,
        database=database,
        records=records,
        record_bytes=total,
        runs=runs,
        block_records=parser.column(blocks, "<u4"),
        block_raw=parser.column(blocks, "<u4"),
        block_stored=parser.column(blocks, "<u4"),
        block_crc=parser.column(blocks, "<u4"),
        block_form=parser.column(blocks, "u1"),
    )
    if format_version > 1:
        entry.history, entry.extents_crc = _parse_history(
            parser, facts, records, named=kind == 1, by_number=format_version > 2
        )
    elif (entry.block_form == BlockForm.LEAVES).any():
        raise parser.error("names leaves, which format version 1 does not have")
    if entry.history is not None and blocks:
        raise parser.error("has a history and blocks")
    if database.flags & DUPSORT and (
        entry.history or (entry.block_form == BlockForm.LEAVES).any()
    ):
        raise parser.error("has duplicates, of which neither leaves nor a history tell")
    if format_version > 2:
        entry.keys = _parse_keys(parser)
        entry.groups, entry.order = _parse_columns(parser), _parse_columns(parser)
        if len(entry.groups) and not database.flags & DUPSORT:
            raise parser.error("has keys with many values, where each has one")
        if len(entry.order) and int(entry.order[:, 0].sum()) != records:
            raise parser.error("has an order of another number of records")
        keys = int(entry.groups[:, 0].sum()) if database.flags & DUPSORT else records
        if keys > records:
            raise parser.error("has more keys than records")
        if entry.keys and sum(run.count for run in entry.keys) != keys:
            raise parser.error("has another number of keys than of records")
    elif database.flags & DUPSORT:
        raise parser.error("has duplicates, which format versions 1 and 2 do not have")
    if entry.history is not None and not entry.history.key_size:
        if [run.form for run in entry.keys] != [KeyForm.PLAIN]:
            raise parser.error("has a history by numbers, and keys that are none")
        entry.history = dataclasses.replace(entry.history, numbered=entry.keys[0])
    return entry


def pack_directory(facts: Facts, entries: Sequence[Entry]) -> bytes:
    """The directory before compression; ``parse_directory`` is its inverse."""
    hints = facts.hints
    return b"".join(
        [
            _FACTS.pack(
                facts.version,
                facts.page_size,
                facts.env_flags,
                len(entries),
                facts.txnid,
                facts.last_pgno,
                facts.extents_end,
            ),
            pack_database(facts.free_db),
            pack_database(facts.main_db),
            _HINTS.pack(hints.mtime_ns, hints.ctime_ns, hints.dev, hints.ino, hints.host),
            facts.digest,
            *(entry.pack() for entry in entries),
        ]
    )


def pack_preamble(directory_at: int, stored: bytes, raw_size: int) -> bytes:
    """The file's first ``BLOCKS_AT`` bytes, for a directory ``stored`` at its end."""
    size = directory_at + len(stored)
    head = _PREAMBLE.pack(
        MAGIC, VERSION, 0, size, directory_at, len(stored), raw_size, zlib.crc32(stored)
    )
    return head + _CRC.pack(zlib.crc32(head))


@dataclass(frozen=True, slots=True)
class Preamble:
    """Where the directory lies.

    Attributes:
        version: format version.
        offset, stored, raw: of the directory; bytes as stored, and decompressed.
        crc: crc32 of it as stored.
    """

    version: int
    offset: int
    stored: int
    raw: int
    crc: int


def parse_preamble(head: bytes, file_size: int, path: Path) -> Preamble:
    """Checks the first ``BLOCKS_AT`` bytes of a file, or as many as there are.

    Raises:
        ProvenanceError: no provenance file, of a later version, damaged or cut.
    """
    if head[:8] != MAGIC:
        raise ProvenanceError(f"{path}: is not a provenance file")
    if len(head) < BLOCKS_AT:
        raise ProvenanceError(f"{path}: is cut: it has {file_size} bytes")
    _, version, features, size, at, stored, raw, crc = _PREAMBLE.unpack(head[:-4])
    if version not in VERSIONS:
        raise ProvenanceError(
            f"{path}: has format version {version}; this lmdbio reads versions 1 to {VERSION}"
        )
    if zlib.crc32(head[:-4]) != _CRC.unpack(head[-4:])[0]:
        raise ProvenanceError(f"{path}: is damaged: its preamble fails its checksum")
    if features or any(head[44:60]):
        raise ProvenanceError(f"{path}: needs features that this lmdbio does not know")
    if size != file_size:
        how = "is cut" if file_size < size else "has bytes after its end"
        raise ProvenanceError(f"{path}: {how}: it has {file_size} bytes instead of {size}")
    if at < BLOCKS_AT or at + stored != size or raw > DIRECTORY_BYTES_MAX:
        raise ProvenanceError(f"{path}: is damaged: its directory lies outside of it")
    return Preamble(version, at, stored, raw, crc)


def parse_directory(
    raw: bytes, path: Path, format_version: int, blocks_bytes: int
) -> tuple[Facts, list[Entry]]:
    """Takes a directory apart.

    Args:
        blocks_bytes: that the file has for blocks.

    Raises:
        ProvenanceError: it is damaged, or says what cannot be.
    """
    parser = _Parser(raw, path, blocks_bytes)
    version, page_size, env_flags, sections, txnid, last_pgno, end = parser.items(_FACTS)
    free_db, main_db = parser.database(), parser.database()
    hints = FileIdentity(*parser.items(_HINTS))
    digest = parser.bytes(DIGEST_BYTES)
    facts = Facts(
        version, page_size, env_flags, txnid, last_pgno, end, free_db, main_db, hints, digest
    )
    if version not in (1, 3) or page_size not in (256 << i for i in range(9)):
        raise ProvenanceError(f"{path}: describes no database that is read here")
    if last_pgno >= 2**62 // page_size or end > (last_pgno + 1) * page_size:
        raise ProvenanceError(f"{path}: describes records beyond the database's last page")
    if sections > min(DATABASES_MAX, main_db.entries + 1):
        raise parser.error(f"describes {sections:,} databases, more than there can be")
    entries: dict[Name, Entry] = {}
    for _ in range(sections):
        entry = _parse_entry(parser, facts, format_version)
        if entry.name in entries:
            raise parser.error(f"describes {name_text(entry.name)} twice")
        entries[entry.name] = entry
    parser.end()
    if None in entries and entries[None].database != main_db:
        raise parser.error("contradicts itself about the main database")
    return facts, list(entries.values())


def check_entries(entries: list[Entry], blocks_bytes: int, path: Path) -> None:
    """Every block within bounds, and all of them exactly filling the file's blocks."""
    stored = 0
    for entry in entries:
        records = int(entry.block_records.sum(dtype=np.uint64))
        if entry.history is not None:
            records = entry.history.count
        if not entry.records == records == entry.database.entries:
            raise ProvenanceError(
                f"{path}: {name_text(entry.name)}: has {entry.records} records, its blocks "
                f"{records}, the database {entry.database.entries}"
            )
        stored += entry.numbers_bytes
        if not len(entry.block_form):
            continue
        in_leaves = entry.block_form == BlockForm.LEAVES
        most = np.where(in_leaves, _LEAVES_RECORDS_MAX, _core.BLOCK_RECORDS_MAX)
        bounds = ((entry.block_records, most), (entry.block_raw, _core.BLOCK_RAW_BYTES_MAX))
        if any(bool(((c == 0) | (c > most)).any()) for c, most in bounds):
            raise ProvenanceError(
                f"{path}: {name_text(entry.name)}: a block is empty or above the format's limits"
            )
        stored += int(entry.block_stored.sum(dtype=np.uint64))
    if stored != blocks_bytes:
        raise ProvenanceError(f"{path}: holds {blocks_bytes} bytes of blocks, its index {stored}")


def pack_numbers(numbers: npt.NDArray[np.uint64]) -> bytes:
    """At least one number: the smallest, and byte by byte what the others have more."""
    smallest = int(numbers.min())
    above = numbers - np.uint64(smallest)
    width = (int(above.max()).bit_length() + 7) // 8
    planes: bytes = above.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()
    return _NUMBERS_HEAD.pack(smallest, width) + planes


def unpack_numbers(raw: bytes, count: int, where: str) -> npt.NDArray[np.uint64]:
    if len(raw) < _NUMBERS_HEAD.size:
        raise ProvenanceError(f"{where} is cut")
    smallest, width = _NUMBERS_HEAD.unpack_from(raw)
    planes = np.frombuffer(raw, np.uint8, offset=_NUMBERS_HEAD.size)
    if width > 7 or len(planes) != width * count:
        raise ProvenanceError(f"{where} does not hold its numbers")
    above = np.zeros((count, 8), np.uint8)
    above[:, :width] = planes.reshape(width, count).T
    numbers: npt.NDArray[np.uint64] = above.view("<u8")[:, 0] + np.uint64(smallest)
    return numbers


def zigzag(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Small numbers, below zero too, as small ones that are not."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def from_zigzag(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The inverse."""
    one = np.uint64(1)
    signs: npt.NDArray[np.int64] = -(numbers & one).view(np.int64)
    found: npt.NDArray[np.int64] = (numbers >> one).view(np.int64) ^ signs
    return found


def compress(raw: bytes, level: int = _ZSTD_LEVEL) -> bytes:
    compressor = zstandard.ZstdCompressor(
        level=level, write_checksum=False, write_content_size=True, write_dict_id=False
    )
    packed: bytes = compressor.compress(raw)
    return packed


def decompress(stored: bytes, raw_size: int, path: Path) -> bytes:
    """Exactly ``raw_size`` bytes; the caller has bounded it, so nothing can blow up."""
    try:
        # Looked at first, because the decoder trusts the frame's own size above any limit.
        if zstandard.get_frame_parameters(stored).content_size == raw_size:
            raw: bytes = zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
            if len(raw) == raw_size:
                return raw
    except zstandard.ZstdError as e:
        raise ProvenanceError(f"{path}: is damaged: {e}") from e
    raise ProvenanceError(f"{path}: is damaged: a part does not have the size recorded for it")
