"""provenance: the file that says where every record of a database lies.

``convert`` walks a database once and writes the sidecar; ``Provenance`` answers index ->
extent from it, reading little; ``check`` decides whether it still describes the data, and
``verify`` reads everything to prove both sound. The file's bytes are drawn in
provenance/FORMAT.md; its columns are decoded by csrc/provenance.c.

Invariants:
  - every byte of the file lies under a checksum and a bound, and is checked before use;
  - a sidecar appears under its name whole, compared with what was walked, or not at all;
  - a sidecar that does not provably describe the data is refused with the reason.

Source: the provenance information of LMDBIO (Pumma et al., ACM TOPC 2019, "provenance
information"), in a form that holds for any insertion history.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import socket
import stat
import struct
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import zstandard

from lmdbio import _core
from lmdbio._core import BlockForm, Database, Engine, Extents, Layout, Meta
from lmdbio.errors import CorruptedError, Error, IncompatibleError, ProvenanceError, StaleError

__all__ = [
    "CheckReport",
    "ConvertReport",
    "DeepCheck",
    "Facts",
    "Hints",
    "Provenance",
    "Section",
    "VerifyReport",
    "check",
    "convert",
    "data_file",
    "deep_check",
    "sidecar_file",
    "verify",
]

Check: TypeAlias = Literal["fast", "deep", "always"]
Progress: TypeAlias = Callable[[int, int, str], None]
Name: TypeAlias = "bytes | None"  # None is the main database

PROVENANCE_DIR = "LMDBIO_PROVENANCE_DIR"
SUFFIX = ".prov"
CACHE_BYTES_MAX = 64 << 20
DEPTH = 16
ATTEMPTS = 3

DUPSORT = 0x04  # enum lio_db_flag (csrc/format.h)
_P_OVERFLOW = 0x04  # enum lio_page_flag


# --- where things lie --------------------------------------------------------------------


def data_file(path: str | os.PathLike[str], subdir: bool | None = None) -> Path:
    """The data file of an environment.

    Args:
        path: the environment's folder, or its one file.
        subdir: as in ``lmdb.open``: True demands a folder, False a file, None takes either.

    Raises:
        FileNotFoundError: nothing there, or a folder without ``data.mdb``.
        NotADirectoryError, IsADirectoryError: the other kind than ``subdir`` says.
    """
    given = Path(path)
    if not given.exists():
        raise FileNotFoundError(errno.ENOENT, "no such LMDB environment", str(given))
    folder = given.is_dir()
    if folder and subdir is False:
        raise IsADirectoryError(errno.EISDIR, "a folder, but subdir=False was asked", str(given))
    if not folder and subdir is True:
        raise NotADirectoryError(
            errno.ENOTDIR, "not a folder, but subdir=True was asked", str(given)
        )
    if not folder:
        return given
    inside = given / "data.mdb"
    if not inside.exists():
        raise FileNotFoundError(
            errno.ENOENT, "this folder is no LMDB environment: it has no data.mdb", str(given)
        )
    return inside


def sidecar_file(
    data: str | os.PathLike[str], provenance: str | os.PathLike[str] | None = None
) -> Path:
    """Where the provenance file of the data file ``data`` is looked for and written.

    ``provenance`` when given (a file, or a folder to hold it), else the folder
    ``$LMDBIO_PROVENANCE_DIR``, else beside the data: ``data.mdb.prov``. In a folder that many
    data sets share, a hash of the data's real path keeps the names apart.
    """
    data = Path(data)
    if provenance is not None:
        given = Path(provenance)
        return given / _shared_name(data) if given.is_dir() else given
    shared = os.environ.get(PROVENANCE_DIR)
    if shared:
        return Path(shared) / _shared_name(data)
    return data.with_name(data.name + SUFFIX)


def _shared_name(data: Path) -> str:
    real = os.path.realpath(data)
    mark = hashlib.blake2b(os.fsencode(real), digest_size=8).hexdigest()
    name = Path(real).name
    if name == "data.mdb":
        name = Path(real).parent.name or name
    return f"{name}-{mark}{SUFFIX}"


# --- the file's parts --------------------------------------------------------------------

MAGIC = b"LMDBIOPV"
VERSION = 1
_BLOCKS_AT = 64  # the preamble's size
_OPEN_BYTES = 65536  # read at open: small sidecars come whole
_DIRECTORY_BYTES_MAX = 64 << 20
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
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Hints:
    """What tells cheaply that a file is still the one that was converted.

    Attributes:
        mtime_ns, ctime_ns: of the data file.
        dev, ino: of the data file, meaningful on ``host`` alone.
        host: 16 bytes that identify the machine.
    """

    mtime_ns: int
    ctime_ns: int
    dev: int
    ino: int
    host: bytes

    @classmethod
    def of(cls, status: os.stat_result) -> Hints:
        return cls(status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino, _host())

    def differences(self, now: Hints) -> tuple[str, ...]:
        """The names of the hints that differ; the device and inode only on the same host."""
        names = ["mtime_ns", "ctime_ns"]
        if self.host == now.host:
            names += ["dev", "ino"]
        return tuple(name for name in names if getattr(self, name) != getattr(now, name))


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
    hints: Hints
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


def _host() -> bytes:
    machine = b""
    with contextlib.suppress(OSError):
        machine = Path("/etc/machine-id").read_bytes().strip()
    mark = machine + b"\0" + os.fsencode(socket.gethostname())
    return hashlib.blake2b(mark, digest_size=16).digest()


def _pack_database(db: Database) -> bytes:
    return _DATABASE.pack(*(getattr(db, name) for name in Database.__dataclass_fields__))


def _name_text(name: Name) -> str:
    return "the main database" if name is None else f"database {name!r}"


@dataclass(slots=True)
class _Entry:
    """One database in the directory. Columns have one item per block."""

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

    def pack(self) -> bytes:
        name = self.name or b""
        columns = (self.block_records, self.block_raw, self.block_stored, self.block_crc)
        return b"".join(
            [
                _SECTION.pack(self.name is not None, len(name), len(self.block_form)),
                name,
                _pack_database(self.database),
                _COUNTS.pack(self.records, self.record_bytes, self.runs),
                *(column.astype("<u4").tobytes() for column in columns),
                self.block_form.tobytes(),
            ]
        )


class _Parser:
    """Takes bounded pieces off the front of the directory."""

    def __init__(self, raw: bytes, path: Path) -> None:
        self._raw, self._at, self._path = raw, 0, path

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
        return np.frombuffer(self.bytes(count * np.dtype(dtype).itemsize), dtype)

    def end(self) -> None:
        if self._at != len(self._raw):
            raise self.error("has bytes left over")

    def error(self, what: str) -> ProvenanceError:
        return ProvenanceError(f"{self._path}: is damaged: its directory {what}")


def _parse_entry(parser: _Parser) -> _Entry:
    kind, name_length, blocks = parser.items(_SECTION)
    name = parser.bytes(name_length)
    if kind > 1 or (kind == 0 and name):
        raise parser.error(f"has a database of unknown kind {kind}")
    database = parser.database()
    records, total, runs = parser.items(_COUNTS)
    return _Entry(
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


def _parse_directory(raw: bytes, path: Path) -> tuple[Facts, list[_Entry]]:
    parser = _Parser(raw, path)
    version, page_size, env_flags, sections, txnid, last_pgno, end = parser.items(_FACTS)
    free_db, main_db = parser.database(), parser.database()
    hints = Hints(*parser.items(_HINTS))
    digest = parser.bytes(_DIGEST_BYTES)
    facts = Facts(
        version, page_size, env_flags, txnid, last_pgno, end, free_db, main_db, hints, digest
    )
    if version not in (1, 3) or page_size not in (256 << i for i in range(9)):
        raise ProvenanceError(f"{path}: describes no database that is read here")
    if last_pgno >= 2**62 // page_size or end > (last_pgno + 1) * page_size:
        raise ProvenanceError(f"{path}: describes records beyond the database's last page")
    entries = []
    for _ in range(sections):  # each takes bytes, so a false count ends with the bytes
        entries.append(_parse_entry(parser))
    parser.end()
    if any(entry.name is None and entry.database != main_db for entry in entries):
        raise parser.error("contradicts itself about the main database")
    return facts, entries


def _check_entries(entries: list[_Entry], blocks_bytes: int, path: Path) -> None:
    """Every block within bounds, and all of them exactly filling the file's blocks."""
    stored = 0
    for entry in entries:
        where = f"{path}: {_name_text(entry.name)}"
        records = int(entry.block_records.sum(dtype=np.uint64))
        if not entry.records == records == entry.database.entries:
            raise ProvenanceError(
                f"{where}: has {entry.records} records, its blocks {records}, "
                f"the database {entry.database.entries}"
            )
        bounds = (
            (entry.block_records, _core.BLOCK_RECORDS_MAX),
            (entry.block_raw, _core.BLOCK_RAW_BYTES_MAX),
        )
        if any(bool(((c == 0) | (c > most)).any()) for c, most in bounds):
            raise ProvenanceError(f"{where}: a block is empty or above the format's limits")
        stored += int(entry.block_stored.sum(dtype=np.uint64))
    if stored != blocks_bytes:
        raise ProvenanceError(f"{path}: holds {blocks_bytes} bytes of blocks, its index {stored}")
    if len({entry.name for entry in entries}) != len(entries):
        raise ProvenanceError(f"{path}: describes one database twice")


def _compress(raw: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(
        level=_ZSTD_LEVEL, write_checksum=False, write_content_size=True, write_dict_id=False
    )
    packed: bytes = compressor.compress(raw)
    return packed


def _decompress(stored: bytes, raw_size: int, path: Path) -> bytes:
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


# --- reading -----------------------------------------------------------------------------


class Section:
    """The records of one database, in key order. Made by ``Provenance.section``.

    Attributes:
        name: None for the main database.
        database: its record at the time of conversion.
        count: records.
        record_bytes: the sum of their lengths.
        runs: stretches of records that one jump describes.
    """

    def __init__(self, owner: Provenance, number: int, entry: _Entry, at: int) -> None:
        self._owner, self._number, self._entry = owner, number, entry
        self.name = entry.name
        self.database = entry.database
        self.count = entry.records
        self.record_bytes = entry.record_bytes
        self.runs = entry.runs
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
        return {
            form.name.lower(): int((self._entry.block_form == form).sum()) for form in BlockForm
        }

    def block(self, number: int) -> Extents:
        """The extents of one block (dtype ``EXTENT``, read-only), perhaps from the cache."""
        return self._owner._block(self, number)

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
                f"record {wrong} of {_name_text(self.name)}, which has {self.count} records"
            )
        wanted = asked.astype(np.int64)
        blocks = np.searchsorted(self._firsts, wanted, side="right") - 1
        order = np.argsort(blocks, kind="stable")
        ends = np.flatnonzero(np.diff(blocks[order], append=self.blocks)) + 1
        start = 0
        for end in ends.tolist():
            places = order[start:end]
            number = int(blocks[places[0]])
            out[places] = self.block(number)[wanted[places] - self._firsts[number]]
            start = end
        return out

    def extents(self, start: int = 0, stop: int | None = None) -> Extents:
        """The extents of records ``start`` to ``stop`` (exclusive), dtype ``EXTENT``."""
        stop = self.count if stop is None else stop
        if not 0 <= start <= stop <= self.count:
            raise IndexError(
                f"records {start} to {stop} of {_name_text(self.name)}, "
                f"which has {self.count} records"
            )
        out = np.empty(stop - start, _core.EXTENT)
        number = int(np.searchsorted(self._firsts, start, side="right")) - 1
        at = start
        while at < stop:
            first, end = int(self._firsts[number]), min(int(self._firsts[number + 1]), stop)
            out[at - start : end - start] = self.block(number)[at - first : end - first]
            at, number = end, number + 1
        return out


def _starts(sizes: npt.NDArray[np.uint32], base: int) -> npt.NDArray[np.int64]:
    """Where each item begins, and where the last one ends."""
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
        self._cache: OrderedDict[tuple[int, int], Extents] = OrderedDict()
        self._cache_bytes = 0
        self._cache_bytes_max = cache_bytes_max
        self._lock, self._pid = threading.Lock(), os.getpid()
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
        self.databases = [section.name for section in self._sections]

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, cache_bytes_max: int = CACHE_BYTES_MAX
    ) -> Provenance:
        """Opens a provenance file; whether it fits the data, ``check`` says.

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
            piece = os.pread(self._fd, length, offset)
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
        head, path = self._head[:_BLOCKS_AT], self.path
        if head[:8] != MAGIC:
            raise ProvenanceError(f"{path}: is not a provenance file")
        if len(head) < _BLOCKS_AT:
            raise ProvenanceError(f"{path}: is cut: it has {self.size} bytes")
        _, version, features, size, at, stored, raw, crc = _PREAMBLE.unpack(head[:-4])
        if version != VERSION:
            raise ProvenanceError(
                f"{path}: has format version {version}; this lmdbio reads version {VERSION}"
            )
        if zlib.crc32(head[:-4]) != _CRC.unpack(head[-4:])[0]:
            raise ProvenanceError(f"{path}: is damaged: its preamble fails its checksum")
        if features or any(head[44:60]):
            raise ProvenanceError(f"{path}: needs features that this lmdbio does not know")
        if size != self.size:
            how = "is cut" if self.size < size else "has bytes after its end"
            raise ProvenanceError(f"{path}: {how}: it has {self.size} bytes instead of {size}")
        if at < _BLOCKS_AT or at + stored != size or raw > _DIRECTORY_BYTES_MAX:
            raise ProvenanceError(f"{path}: is damaged: its directory lies outside of it")
        packed = self._read(at, stored)
        if zlib.crc32(packed) != crc:
            raise ProvenanceError(f"{path}: is damaged: its directory fails its checksum")
        facts, entries = _parse_directory(_decompress(packed, raw, path), path)
        _check_entries(entries, at - _BLOCKS_AT, path)
        sections, start = [], _BLOCKS_AT
        for number, entry in enumerate(entries):
            sections.append(Section(self, number, entry, start))
            start += int(entry.block_stored.sum(dtype=np.uint64))
        return facts, sections

    def section(self, name: bytes | str | None = None) -> Section:
        """The records of one database; None is the main one.

        Raises:
            KeyError: the file does not describe it.
        """
        wanted = name.encode() if isinstance(name, str) else name
        for section in self._sections:
            if section.name == wanted:
                return section
        known = ", ".join(_name_text(section.name) for section in self._sections) or "nothing"
        raise KeyError(f"{self.path}: does not describe {_name_text(wanted)}, only {known}")

    @property
    def sections(self) -> list[Section]:
        return list(self._sections)

    def _after_fork(self) -> None:
        """In a child, the lock may have been held by a thread that is not there."""
        if self._pid != os.getpid():
            self._lock, self._pid = threading.Lock(), os.getpid()
            self._cache_bytes = sum(extents.nbytes for extents in self._cache.values())

    def _block(self, section: Section, number: int) -> Extents:
        self._after_fork()
        key = (section._number, number)
        with self._lock:
            extents = self._cache.get(key)
            if extents is not None:
                self._cache.move_to_end(key)
                return extents
        extents = self._decode(section, number)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = extents
                self._cache_bytes += extents.nbytes
            while self._cache_bytes > self._cache_bytes_max and self._cache:
                self._cache_bytes -= self._cache.popitem(last=False)[1].nbytes
        return extents

    def _decode(self, section: Section, number: int) -> Extents:
        entry = section._entry
        if self._fd < 0:
            raise ValueError(f"{self.path}: the provenance file is closed")
        stored = self._read(int(section._offsets[number]), int(entry.block_stored[number]))
        if zlib.crc32(stored) != int(entry.block_crc[number]):
            raise ProvenanceError(
                f"{self.path}: is damaged: block {number} of {_name_text(entry.name)} "
                "fails its checksum"
            )
        raw = _decompress(stored, int(entry.block_raw[number]), self.path)
        extents = _core.decode_block(
            self.facts.layout,
            int(entry.block_form[number]),
            raw,
            int(entry.block_records[number]),
            str(self.path),
        )
        extents.flags.writeable = False
        return extents

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


# --- the digest --------------------------------------------------------------------------


class _TreeDigest:
    """Hashes a tree's pages level by level, so that how the walk cuts chunks does not matter."""

    def __init__(self) -> None:
        self._levels: list[Any] = []

    def add(self, chunk: _core.Chunk) -> None:
        while len(self._levels) <= chunk.level:
            self._levels.append(hashlib.blake2b(digest_size=_DIGEST_BYTES))
        self._levels[chunk.level].update(chunk.pages)

    def finish(self, name: Name, db: Database) -> bytes:
        head = struct.pack("<HH", name is not None, len(name or b"")) + (name or b"")
        tree = hashlib.blake2b(head + _pack_database(db), digest_size=_DIGEST_BYTES)
        for level in self._levels:
            tree.update(level.digest())
        return tree.digest()


def _join_digests(trees: Sequence[bytes]) -> bytes:
    return hashlib.blake2b(b"".join(trees), digest_size=_DIGEST_BYTES).digest()


def _tree_pages(db: Database) -> int:
    return db.branch_pages + db.leaf_pages


# --- staleness ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeepCheck:
    """Whether a deep check is due, why, and what it costs.

    Attributes:
        due: pages would be read and hashed now.
        reasons: the hints that differ, or the check that was asked for.
        remembered: this user's earlier deep check of this very file still counts.
        bytes: read by a deep check.
    """

    due: bool
    reasons: tuple[str, ...]
    remembered: bool
    bytes: int


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How a provenance file was found to describe the data.

    Attributes:
        how: "fast", "deep" (pages were hashed) or "remembered" (they were, earlier).
        reasons: why fast was not enough.
        bytes: hashed.
        seconds: taken.
    """

    how: str
    reasons: tuple[str, ...]
    bytes: int
    seconds: float


def deep_check(engine: Engine, provenance: Provenance, check: Check = "fast") -> DeepCheck:
    """Whether ``check`` would hash pages now. Reads nothing of the data but its status."""
    if check not in ("fast", "deep", "always"):
        raise ValueError(f"check must be 'fast', 'deep' or 'always', not {check!r}")
    status = _status(engine)
    if check != "fast":
        reasons: tuple[str, ...] = (f"check={check!r}",)
    elif status is None:
        reasons = ("no file status",)
    else:
        reasons = provenance.facts.hints.differences(Hints.of(status))
    known = (
        bool(reasons)
        and check != "always"
        and status is not None
        and _remembered(provenance.facts.digest, status)
    )
    cost = sum(_tree_pages(s.database) for s in provenance.sections) * provenance.facts.page_size
    return DeepCheck(bool(reasons) and not known, reasons, known, cost)


def check(
    engine: Engine,
    meta: Meta,
    provenance: Provenance,
    check: Check = "fast",
    *,
    progress: Progress | None = None,
) -> CheckReport:
    """Makes sure that ``provenance`` describes the state ``meta`` of the file in ``engine``.

    The meta page's facts must be equal. When only hints differ (another mount, a copy), or
    ``check`` asks for it, every branch and leaf page of the databases described is hashed.

    Args:
        check: "fast"; "deep": hash unless remembered; "always": hash each time.
        progress: called with (pages done, pages in all, "hash").

    Raises:
        StaleError: it does not, naming what differs.
        CorruptedError, ShortReadError, OSError: the data could not be walked.
    """
    began = time.monotonic()
    _check_facts(engine, meta, provenance)
    before = _status(engine)
    due = deep_check(engine, provenance, check)
    how = "remembered" if due.remembered else "deep" if due.due else "fast"
    if due.due:
        _check_digest(engine, meta, provenance, progress)
        after = _status(engine)
        if before is not None and after is not None and Hints.of(before) == Hints.of(after):
            _remember(provenance.facts.digest, after)
    return CheckReport(how, due.reasons, due.bytes if due.due else 0, time.monotonic() - began)


def _status(engine: Engine) -> os.stat_result | None:
    return os.fstat(engine.fd) if engine.fd >= 0 else None


def _stale(provenance: Provenance, data: str, what: str, now: object, then: object) -> StaleError:
    return StaleError(
        f"{provenance.path}: does not describe this state of {data}: "
        f"{what} is {now}, recorded was {then}"
    )


def _check_facts(engine: Engine, meta: Meta, provenance: Provenance) -> None:
    facts = provenance.facts
    pairs: list[tuple[str, object, object]] = [
        ("data format", meta.layout.version, facts.version),
        ("page size", meta.layout.page_size, facts.page_size),
        ("environment flags", meta.layout.env_flags, facts.env_flags),
        ("txnid", meta.txnid, facts.txnid),
        ("last page", meta.last_pgno, facts.last_pgno),
    ]
    for label, now, then in (
        ("free database", meta.free_db, facts.free_db),
        ("main database", meta.main_db, facts.main_db),
    ):
        pairs += _database_pairs(label, now, then)
    for what, current, recorded in pairs:
        if current != recorded:
            raise _stale(provenance, engine.path, what, current, recorded)
    size = engine.size()
    if size < facts.extents_end:
        raise StaleError(
            f"{provenance.path}: does not describe this state of {engine.path}: the file has "
            f"{size} bytes, its records end at byte {facts.extents_end}"
        )


def _database_pairs(label: str, now: Database, then: Database) -> list[tuple[str, object, object]]:
    names = Database.__dataclass_fields__
    return [(f"{label}: {name}", getattr(now, name), getattr(then, name)) for name in names]


def _check_digest(
    engine: Engine, meta: Meta, provenance: Provenance, progress: Progress | None
) -> None:
    total = sum(_tree_pages(section.database) for section in provenance.sections)
    steps = _Steps(progress, total, "hash")
    trees = []
    for section in provenance.sections:
        db = meta.main_db
        if section.name is not None:
            try:
                db = _core.find_database(engine, meta, section.name)
            except LookupError as e:
                raise StaleError(f"{provenance.path}: describes what is gone: {e}") from e
        for what, now, then in _database_pairs(_name_text(section.name), db, section.database):
            if now != then:
                raise _stale(provenance, engine.path, what, now, then)
        digest = _TreeDigest()
        with _core.Walk(engine, meta, db) as walk:
            for chunk in walk:
                digest.add(chunk)
                steps.add(len(chunk.pgnos))
        trees.append(digest.finish(section.name, db))
    now_digest = _join_digests(trees)
    if now_digest != provenance.facts.digest:
        raise _stale(
            provenance,
            engine.path,
            "digest of the branch and leaf pages",
            now_digest.hex(),
            provenance.facts.digest.hex(),
        )


# Deep checks passed, one small file each, so that a job hashes a copied data set once.

_REMEMBERED_MAX = 1024


def _memory_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "lmdbio" / "checked"


def _memory_file(digest: bytes, status: os.stat_result) -> Path:
    identity = struct.pack(
        "<QQQqq",
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
    mark = hashlib.blake2b(digest + identity + _host(), digest_size=24).hexdigest()
    return _memory_folder() / mark


def _remembered(digest: bytes, status: os.stat_result) -> bool:
    with contextlib.suppress(OSError, RuntimeError):
        return _memory_file(digest, status).exists()
    return False


def _remember(digest: bytes, status: os.stat_result) -> None:
    # Nothing is lost but time when this user has no place to write to.
    with contextlib.suppress(OSError, RuntimeError):
        file = _memory_file(digest, status)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        old = sorted(file.parent.iterdir(), key=lambda other: other.stat().st_mtime)
        for other in old[: max(0, len(old) - _REMEMBERED_MAX + 1)]:
            other.unlink(missing_ok=True)
        file.touch(mode=0o600)


class _Steps:
    """Counts towards a progress callback."""

    def __init__(self, progress: Progress | None, total: int, stage: str) -> None:
        self._progress, self.total, self._stage = progress, total, stage
        self.done = 0

    def add(self, count: int) -> None:
        self.done += count
        if self._progress is not None:
            self._progress(self.done, max(self.total, self.done), self._stage)


# --- writing -----------------------------------------------------------------------------


class _Draft:
    """A temporary file in the target's folder that becomes the target, or vanishes.

    It is locked as long as its maker lives; a draft that can be locked is a dead run's, and
    is removed by the next run for the same target.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        mark = hashlib.blake2b(os.fsencode(target.name), digest_size=8).hexdigest()
        self._prefix = f".lmdbio-{mark}-"
        try:
            self._sweep()
            while True:
                self.path = target.parent / f"{self._prefix}{secrets.token_hex(8)}.tmp"
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self.fd = os.open(self.path, flags, 0o666)
                # A sweeper may have come between the two calls.
                if _lock(self.fd) is not False and os.fstat(self.fd).st_nlink:
                    break
                os.close(self.fd)
        except OSError as e:
            raise _unwritable(e, target) from e

    def _sweep(self) -> None:
        pattern = re.compile(re.escape(self._prefix) + r"[0-9a-f]{16}\.tmp")
        for left in self.target.parent.iterdir():
            if pattern.fullmatch(left.name) is None:
                continue
            with contextlib.suppress(OSError):
                fd = os.open(left, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    if _lock(fd):
                        left.unlink()
                finally:
                    os.close(fd)

    def restart(self) -> None:
        os.ftruncate(self.fd, 0)

    def write(self, content: bytes, offset: int) -> None:
        view = memoryview(content)
        while view:
            written = os.pwrite(self.fd, view, offset)
            view, offset = view[written:], offset + written

    def publish(self, overwrite: bool) -> None:
        """Gives the file its name. Before this returns, the old one, if any, still has it."""
        if overwrite:
            self.path.replace(self.target)
        else:
            _link(self.path, self.target)
        folder = os.open(self.target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Some network file systems know no fsync of folders; the rename is still atomic.
            with contextlib.suppress(OSError):
                os.fsync(folder)
        finally:
            os.close(folder)

    def __enter__(self) -> _Draft:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self.fd)


def _lock(fd: int) -> bool | None:
    """True: locked. False: another holds it. None: this file system has no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _link(source: Path, target: Path) -> None:
    """Renames, but fails when the target exists."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError(errno.EEXIST, "exists already", str(target)) from None
        source.replace(target)


def _unwritable(e: OSError, target: Path) -> OSError:
    return OSError(
        e.errno,
        f"cannot write the provenance file here ({os.strerror(e.errno or 0)}); name another "
        f"place with --output or {PROVENANCE_DIR}",
        str(target),
    )


@dataclass(slots=True)
class _Made:
    """A database as far as it is written: one item per block in each column."""

    name: Name
    database: Database
    records: int = 0
    record_bytes: int = 0
    runs: int = 0
    rows: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    def entry(self) -> _Entry:
        columns = np.array(self.rows, np.uint32).reshape(-1, 5).T
        return _Entry(
            self.name,
            self.database,
            self.records,
            self.record_bytes,
            self.runs,
            columns[0],
            columns[1],
            columns[2],
            columns[3],
            columns[4].astype(np.uint8),
        )


class _Writer:
    """Turns extents into blocks, and blocks into a draft. Memory: one block's records."""

    def __init__(self, draft: _Draft, layout: Layout) -> None:
        draft.restart()
        self._draft, self._layout = draft, layout
        self._at = _BLOCKS_AT
        self._pending = np.empty(0, _core.EXTENT)
        self.made: list[_Made] = []
        self.extents_end = 0

    def begin(self, name: Name, db: Database) -> None:
        self.made.append(_Made(name, db))

    def add(self, extents: Extents) -> None:
        self._pending = np.concatenate([self._pending, extents])
        while len(self._pending) >= _core.BLOCK_RECORDS_MAX:
            self._block()

    def end(self) -> None:
        while len(self._pending):
            self._block()

    def _block(self) -> None:
        made = self.made[-1]
        block = _core.encode_block(self._layout, self._pending)
        extents = self._pending[: block.records]
        again = _core.decode_block(self._layout, block.form, block.raw, block.records)
        if again.tobytes() != extents.tobytes():
            raise ProvenanceError(f"{self._draft.target}: a block does not decode to its records")
        stored = _compress(block.raw)
        self._draft.write(stored, self._at)
        self._at += len(stored)
        made.rows.append(
            (block.records, len(block.raw), len(stored), zlib.crc32(stored), block.form)
        )
        made.digests.append(_extents_digest(extents))
        made.records += block.records
        made.record_bytes += int(extents["length"].sum(dtype=np.uint64))
        made.runs += block.runs
        self.extents_end = max(
            self.extents_end, int((extents["offset"] + extents["length"]).max())
        )
        self._pending = self._pending[block.records :]

    def finish(self, meta: Meta, hints: Hints, digest: bytes) -> int:
        """Writes the directory and the preamble; returns the file's size."""
        raw = b"".join(
            [
                _FACTS.pack(
                    meta.layout.version,
                    meta.layout.page_size,
                    meta.layout.env_flags,
                    len(self.made),
                    meta.txnid,
                    meta.last_pgno,
                    self.extents_end,
                ),
                _pack_database(meta.free_db),
                _pack_database(meta.main_db),
                _HINTS.pack(hints.mtime_ns, hints.ctime_ns, hints.dev, hints.ino, hints.host),
                digest,
                *(made.entry().pack() for made in self.made),
            ]
        )
        if len(raw) > _DIRECTORY_BYTES_MAX:
            raise IncompatibleError(f"{self._draft.target}: too many records for this format")
        stored = _compress(raw)
        size = self._at + len(stored)
        head = _PREAMBLE.pack(
            MAGIC, VERSION, 0, size, self._at, len(stored), len(raw), zlib.crc32(stored)
        )
        self._draft.write(stored, self._at)
        self._draft.write(head + _CRC.pack(zlib.crc32(head)), 0)
        os.fsync(self._draft.fd)
        return size


def _extents_digest(extents: Extents) -> bytes:
    return hashlib.blake2b(extents.tobytes(), digest_size=_DIGEST_BYTES).digest()


# --- converting --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What ``convert`` did.

    Attributes:
        data, sidecar: the two files.
        databases: names, None being the main database.
        records, record_bytes: over all of them.
        runs: stretches of records that one jump describes.
        blocks_runs, blocks_explicit: blocks of each form.
        pages_read: branch and leaf pages read.
        bytes_read, requests: what the engine read.
        sidecar_bytes: size of the provenance file.
        attempts: above 1 when the database was committed to meanwhile.
        seconds: taken.
    """

    data: Path
    sidecar: Path
    databases: tuple[Name, ...]
    records: int
    record_bytes: int
    runs: int
    blocks_runs: int
    blocks_explicit: int
    pages_read: int
    bytes_read: int
    requests: int
    sidecar_bytes: int
    attempts: int
    seconds: float


def convert(
    path: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    databases: Sequence[str | bytes | None] | Literal["all"] | None = None,
    overwrite: bool = True,
    subdir: bool | None = None,
    engine: str = "pread",
    depth: int = DEPTH,
    progress: Progress | None = None,
) -> ConvertReport:
    """Writes the provenance file of a database. Only branch and leaf pages are read.

    The file appears whole: it is written under another name, read back, every record decoded
    and compared with what was walked, and then renamed. A commit during the walk starts it
    again.

    Args:
        path: the environment's folder or file.
        output: a file, or a folder; None: as ``sidecar_file`` says.
        databases: names, None in the list being the main database; "all"; or None: the main
            database, or all named ones when it holds nothing else.
        overwrite: replace an existing provenance file.
        subdir: as in ``data_file``.
        engine, depth: how pages are read, and how many reads are in flight.
        progress: called with (done, in all, stage); stage "walk" counts pages, "compare"
            records.

    Raises:
        IncompatibleError: a database holds duplicates (``dupsort``).
        FileExistsError: with ``overwrite=False``; or the target is no provenance file.
        PermissionError, OSError: the target's folder can't be written to; the message says
            what to do.
        LookupError: no database of a name given.
        Error: commits came faster than the database could be walked.
        InvalidError, VersionMismatchError, CorruptedError, ShortReadError: the data.
    """
    began = time.monotonic()
    data = data_file(path, subdir)
    with Engine(data, engine, depth) as reader:
        target = sidecar_file(data, output)
        _check_target(target, data, overwrite, output is None)
        with _Draft(target) as draft:
            attempts, converter = _settle(reader, draft, databases, progress)
            made = converter.writer.made
            size = converter.finish()
            _compare(draft, made, progress)
            draft.publish(overwrite)
        counters = reader.counters()
    forms = [row[4] for one in made for row in one.rows]
    return ConvertReport(
        data=data,
        sidecar=target,
        databases=tuple(one.name for one in made),
        records=sum(one.records for one in made),
        record_bytes=sum(one.record_bytes for one in made),
        runs=sum(one.runs for one in made),
        blocks_runs=forms.count(BlockForm.RUNS),
        blocks_explicit=forms.count(BlockForm.EXPLICIT),
        pages_read=converter.steps.done,
        bytes_read=counters.bytes,
        requests=counters.requests,
        sidecar_bytes=size,
        attempts=attempts,
        seconds=time.monotonic() - began,
    )


def _check_target(target: Path, data: Path, overwrite: bool, own_place: bool) -> None:
    """A provenance file may be replaced; nothing else may."""
    if own_place and os.environ.get(PROVENANCE_DIR):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise _unwritable(e, target) from e
    if not target.exists():
        return
    if target.samefile(data):
        raise FileExistsError(errno.EEXIST, "this is the database itself", str(target))
    if not overwrite:
        raise FileExistsError(errno.EEXIST, "there is a provenance file already", str(target))
    if not target.is_file():
        raise FileExistsError(errno.EEXIST, "exists, and is no provenance file", str(target))
    with target.open("rb") as file:
        head = file.read(len(MAGIC))
    if head and head != MAGIC:
        raise FileExistsError(errno.EEXIST, "exists, and is no provenance file", str(target))


def _settle(
    engine: Engine,
    draft: _Draft,
    databases: Sequence[str | bytes | None] | Literal["all"] | None,
    progress: Progress | None,
) -> tuple[int, _Converter]:
    """Walks until nothing was committed during a walk; the number of walks, and the last."""
    for attempt in range(1, ATTEMPTS + 1):
        converter = _Converter(engine, draft, progress)
        try:
            converter.run(databases)
        except (CorruptedError, IncompatibleError, LookupError):
            # Pages of this state may have been overwritten: then it is not damage.
            if not converter.moved():
                raise
        else:
            if not converter.moved():
                return attempt, converter
    raise Error(
        f"{engine.path}: was committed to during each of {ATTEMPTS} walks (now transaction "
        f"{_core.read_meta(engine).txnid}): convert it when its writer rests"
    )


class _Converter:
    """One walk of the newest state's databases into the draft."""

    def __init__(self, engine: Engine, draft: _Draft, progress: Progress | None) -> None:
        self._engine = engine
        self._hints = Hints.of(os.fstat(engine.fd))
        self._meta = _core.read_meta(engine)
        self.writer = _Writer(draft, self._meta.layout)
        self.trees: list[bytes] = []
        self.steps = _Steps(progress, 0, "walk")

    def run(self, databases: Sequence[str | bytes | None] | Literal["all"] | None) -> None:
        if databases is None or databases == "all":
            named = self._main(always=False)
            for found, db in [] if databases is None and self.writer.made else named:
                self._tree(found, db)
            return
        if isinstance(databases, (str, bytes)):
            raise TypeError("databases must be a sequence of names, 'all' or None")
        names = [name.encode() if isinstance(name, str) else name for name in databases]
        for name in dict.fromkeys(names):
            if name is None:
                self._main(always=True)
            else:
                self._tree(name, _core.find_database(self._engine, self._meta, name))

    def moved(self) -> bool:
        """True when something was committed since this walk began.

        Stricter than safety asks for (pages of a state last until the second commit after
        it), because what describes an older state would be refused by ``check`` at once.
        """
        newest = _core.newest_txnid(self._engine, self._meta.layout)
        now = Hints.of(os.fstat(self._engine.fd))
        return newest != self._meta.txnid or now != self._hints

    def finish(self) -> int:
        return self.writer.finish(self._meta, self._hints, _join_digests(self.trees))

    def _chunks(self, db: Database, digest: _TreeDigest) -> Iterator[_core.Chunk]:
        """The leaves of a tree; every page goes through the digest."""
        self.steps.total += _tree_pages(db)
        with _core.Walk(self._engine, self._meta, db) as walk:
            for chunk in walk:
                digest.add(chunk)
                self.steps.add(len(chunk.pgnos))
                if chunk.leaf:
                    yield chunk

    def _refuse_duplicates(self, name: Name, db: Database) -> None:
        if db.flags & DUPSORT:
            raise IncompatibleError(
                f"{self._engine.path}: {_name_text(name)} is dupsort: one key may have many "
                "values, which have no record index; iterate with lmdbio.open, or name other "
                "databases"
            )

    def _tree(self, name: Name, db: Database) -> None:
        self._refuse_duplicates(name, db)
        digest = _TreeDigest()
        self.writer.begin(name, db)
        for chunk in self._chunks(db, digest):
            self.writer.add(self._extents(chunk))
        self.writer.end()
        self.trees.append(digest.finish(name, db))

    def _main(self, always: bool) -> list[tuple[bytes, Database]]:
        """Walks the main database, written unless it holds named databases alone."""
        db = self._meta.main_db
        self._refuse_duplicates(None, db)
        digest = _TreeDigest()
        named: list[tuple[bytes, Database]] = []
        held: list[Extents] = []  # while all of them are named databases
        seen = 0
        wanted = always or not db.entries
        if wanted:
            self.writer.begin(None, db)
        for chunk in self._chunks(db, digest):
            named += _core.leaf_databases(self._meta.layout, chunk, self._engine.path)
            held.append(self._extents(chunk))
            seen += len(held[-1])
            if not wanted and seen > len(named):
                wanted = True
                self.writer.begin(None, db)
            if wanted:
                for extents in held:
                    self.writer.add(extents)
                held.clear()
        if wanted:
            self.writer.end()
            self.trees.append(digest.finish(None, db))
        return named

    def _extents(self, chunk: _core.Chunk) -> Extents:
        return _core.leaf_extents(self._meta.layout, chunk, self._engine.path)[0]


def _compare(draft: _Draft, made: list[_Made], progress: Progress | None) -> None:
    """Reads the draft back as a reader would, and compares every record with the walk's."""
    with Provenance.open(draft.path, cache_bytes_max=0) as written:
        steps = _Steps(progress, sum(section.count for section in written.sections), "compare")
        same = [section.name for section in written.sections] == [m.name for m in made]
        for section, walked in zip(written.sections, made, strict=False):
            same = same and section.blocks == len(walked.digests)
            for number, digest in enumerate(walked.digests):
                extents = section.block(number)
                same = same and _extents_digest(extents) == digest
                steps.add(len(extents))
    if not same:
        raise ProvenanceError(f"{draft.target}: what was written does not read back as walked")


# --- verifying ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What ``verify`` read and found sound.

    Attributes:
        data: the data file.
        sidecar: the provenance file, None when there is none.
        databases: names walked, None being the main database.
        duplicates: those of them with duplicates, of which only the tree was walked.
        records, record_bytes: over all others.
        tree_pages, overflow_pages: pages of all trees, the free list's included.
        headers: overflow headers read.
        sidecar_records: records compared with the provenance file.
        bytes_read, requests: what the engine read.
        seconds: taken.
    """

    data: Path
    sidecar: Path | None
    databases: tuple[Name, ...]
    duplicates: tuple[Name, ...]
    records: int
    record_bytes: int
    tree_pages: int
    overflow_pages: int
    headers: int
    sidecar_records: int
    bytes_read: int
    requests: int
    seconds: float


def verify(
    path: str | os.PathLike[str],
    provenance: str | os.PathLike[str] | None = None,
    *,
    subdir: bool | None = None,
    engine: str = "pread",
    depth: int = DEPTH,
    progress: Progress | None = None,
) -> VerifyReport:
    """Reads a whole database, and its provenance file when there is one, for damage.

    Every page of every tree (the free list's too) is read and checked, counts are compared
    with the database records, every overflow value's header is read, no page may have two
    owners; then every record of the provenance file is compared with the walk, and its
    digest with the pages. Memory: one byte per page of the file.

    Args:
        provenance: a provenance file that must be there; None: the one at its usual place,
            if any.
        progress: called with (tree pages done, in all, "walk").

    Raises:
        CorruptedError, ShortReadError, InvalidError, VersionMismatchError: the database.
        ProvenanceError, StaleError: the provenance file.
        Error: the database was committed to meanwhile.
    """
    began = time.monotonic()
    data = data_file(path, subdir)
    sidecar: Path | None = sidecar_file(data, provenance)
    if provenance is None and sidecar is not None and not sidecar.exists():
        sidecar = None
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(Engine(data, engine, depth))
        meta = _core.read_meta(reader)
        opened = None
        if sidecar is not None:
            opened = stack.enter_context(Provenance.open(sidecar))
            _check_facts(reader, meta, opened)
        verifier = _Verifier(reader, meta, opened, progress)
        try:
            verifier.run()
        except (CorruptedError, StaleError) as e:
            newest = _core.newest_txnid(reader, meta.layout)
            if newest == meta.txnid:
                raise
            raise Error(
                f"{data}: was committed to while it was verified (transaction {meta.txnid} "
                f"became {newest}): verify it when its writer rests"
            ) from e
        counters = reader.counters()
    return VerifyReport(
        data=data,
        sidecar=sidecar,
        databases=tuple(verifier.names),
        duplicates=tuple(verifier.duplicates),
        records=verifier.records,
        record_bytes=verifier.record_bytes,
        tree_pages=verifier.steps.done,
        overflow_pages=verifier.overflow_pages,
        headers=verifier.headers,
        sidecar_records=verifier.sidecar_records,
        bytes_read=counters.bytes,
        requests=counters.requests,
        seconds=time.monotonic() - began,
    )


class _Verifier:
    """Walks everything, each page once."""

    # 2,048 headers with gaps of 16 KiB need at most 40 MiB of buffer.
    _HEADERS_AT_ONCE = 2048
    _GAP_BYTES_MAX = 16384
    _REQUEST_BYTES_MAX = 4 << 20

    def __init__(
        self,
        engine: Engine,
        meta: Meta,
        provenance: Provenance | None,
        progress: Progress | None,
    ) -> None:
        self._engine, self._meta, self._layout = engine, meta, meta.layout
        self._provenance = provenance
        self._trees: dict[Name, bytes] = {}
        pages_there = -(-engine.size() // meta.layout.page_size)
        self._owned = np.zeros(min(meta.layout.page_limit, pages_there), np.uint8)
        self._owned[:2] = 1
        self.steps = _Steps(progress, _tree_pages(meta.free_db), "walk")
        self.names: list[Name] = []
        self.duplicates: list[Name] = []
        self.records = self.record_bytes = 0
        self.overflow_pages = self.headers = self.sidecar_records = 0

    def run(self) -> None:
        self._tree(None, self._meta.free_db, "the free list")
        named = self._database(None, self._meta.main_db)
        for name, db in named:
            self._database(name, db)
        self._finish_sidecar()

    def _database(self, name: Name, db: Database) -> list[tuple[bytes, Database]]:
        self.names.append(name)
        self.steps.total += _tree_pages(db)
        section = None
        if self._provenance is not None and name in self._provenance.databases:
            section = self._provenance.section(name)
            for what, now, then in _database_pairs(_name_text(name), db, section.database):
                if now != then:
                    raise _stale(self._provenance, self._engine.path, what, now, then)
        if db.flags & DUPSORT:
            self.duplicates.append(name)
        records, size, named = self._tree(name, db, _name_text(name), section)
        self.records += records
        self.record_bytes += size
        return named

    def _tree(
        self, name: Name, db: Database, label: str, section: Section | None = None
    ) -> tuple[int, int, list[tuple[bytes, Database]]]:
        """Records, their bytes, and the named databases found among them."""
        digest = _TreeDigest()
        named: list[tuple[bytes, Database]] = []
        records = size = pages = 0
        with _core.Walk(self._engine, self._meta, db) as walk:
            for chunk in walk:
                digest.add(chunk)
                self.steps.add(len(chunk.pgnos))
                self._own(chunk.pgnos.astype(np.int64), label)
                if not chunk.leaf or db.flags & DUPSORT:
                    continue
                if db is self._meta.main_db:
                    named += _core.leaf_databases(self._layout, chunk, self._engine.path)
                extents, overflow = _core.leaf_extents(self._layout, chunk, self._engine.path)
                if section is not None:
                    self._compare(section, records, extents)
                records += len(extents)
                size += int(extents["length"].sum(dtype=np.uint64))
                pages += self._overflow(extents[overflow > 0], overflow[overflow > 0], label)
        if not db.flags & DUPSORT:
            self._count(label, "records", records, db.entries)
            self._count(label, "overflow pages", pages, db.overflow_pages)
            self.overflow_pages += pages
        if section is not None:
            self._trees[name] = digest.finish(name, db)
        return records, size, named

    def _count(self, label: str, what: str, found: int, recorded: int) -> None:
        if found != recorded:
            raise CorruptedError(
                f"{self._engine.path}: {label} has {found} {what}, its record says {recorded}"
            )

    def _own(self, pages: npt.NDArray[np.int64], label: str) -> None:
        if len(pages) and int(pages.max()) >= len(self._owned):
            raise CorruptedError(
                f"{self._engine.path}: page {int(pages.max())} of {label} lies outside the file"
            )
        twice = pages[self._owned[pages] != 0]
        if not len(twice):
            self._owned[pages] = 1
            if int(self._owned[pages].sum()) == len(np.unique(pages)) == len(pages):
                return
            twice = pages
        raise CorruptedError(
            f"{self._engine.path}: page {int(twice[0])} has two owners, one is {label}"
        )

    def _overflow(self, extents: Extents, needed: npt.NDArray[np.uint32], label: str) -> int:
        """Checks the headers of values with overflow pages; how many pages they own.

        A value may own more pages than it needs: LMDB writes a shorter one in its place.
        """
        total = 0
        for start in range(0, len(extents), self._HEADERS_AT_ONCE):
            some = slice(start, start + self._HEADERS_AT_ONCE)
            first = extents["offset"][some].astype(np.int64) // self._layout.page_size
            each = self._headers(first, needed[some].astype(np.int64), label)
            if int(each.sum()) > len(self._owned):  # before memory is taken for them
                raise CorruptedError(f"{self._engine.path}: {label}: pages have two owners")
            within = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
            self._own(np.repeat(first, each) + within, label)
            total += len(within)
        return total

    def _headers(
        self, first: npt.NDArray[np.int64], needed: npt.NDArray[np.int64], label: str
    ) -> npt.NDArray[np.int64]:
        """Reads and checks overflow headers; the pages that each says it owns."""
        wanted = np.empty(len(first), _core.EXTENT)
        wanted["offset"] = first * self._layout.page_size
        wanted["length"] = header_size = self._layout.header_size
        plan = _core.make_plan(
            wanted,
            gap_bytes_max=self._GAP_BYTES_MAX,
            request_bytes_max=self._REQUEST_BYTES_MAX,
            alignment=self._engine.alignment,
        )
        memory = _core.Memory(plan.totals.buffer_bytes)
        self._engine.read_plan(plan, memory.address)
        content = np.frombuffer(_core.lend(memory.address, memory.size, memory), np.uint8)
        heads = content[plan.slices.astype(np.int64)[:, None] + np.arange(header_size)]
        pgno = heads[:, :8].copy().view("<u8")[:, 0]
        flags = heads[:, header_size - 6 : header_size - 4].copy().view("<u2")[:, 0]
        pages: npt.NDArray[np.int64] = (
            heads[:, header_size - 4 :].copy().view("<u4")[:, 0].astype(np.int64)
        )
        # Overflow pages are flagged so and nothing else, but for a writer's dirty bit.
        bad = (
            (pgno != first.astype(np.uint64))
            | ((flags & ~np.uint16(0x10)) != _P_OVERFLOW)
            | (pages < needed)
            | (pages > len(self._owned) - first)
        )
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise CorruptedError(
                f"{self._engine.path}: {label}: page {int(first[i])} should begin "
                f"{int(needed[i])} overflow pages, but its header says page {int(pgno[i])}, "
                f"flags {int(flags[i]):#x}, {int(pages[i])} pages"
            )
        self.headers += len(first)
        return pages

    def _compare(self, section: Section, start: int, extents: Extents) -> None:
        stop = start + len(extents)
        same = stop <= section.count and (
            section.extents(start, stop).tobytes() == extents.tobytes()
        )
        if not same:
            assert self._provenance is not None
            raise StaleError(
                f"{self._provenance.path}: records {start} to {stop} of "
                f"{_name_text(section.name)} lie elsewhere in {self._engine.path}"
            )
        self.sidecar_records += len(extents)

    def _finish_sidecar(self) -> None:
        if self._provenance is None:
            return
        for section in self._provenance.sections:
            if section.name not in self._trees:
                raise StaleError(
                    f"{self._provenance.path}: describes {_name_text(section.name)}, "
                    f"which {self._engine.path} does not have"
                )
            lengths = (int(section.block(n)["length"].sum()) for n in range(section.blocks))
            if sum(lengths) != section.record_bytes:
                raise ProvenanceError(f"{self._provenance.path}: records a false sum of lengths")
        digest = _join_digests(
            [self._trees[section.name] for section in self._provenance.sections]
        )
        if digest != self._provenance.facts.digest:
            raise _stale(
                self._provenance,
                self._engine.path,
                "digest of the branch and leaf pages",
                digest.hex(),
                self._provenance.facts.digest.hex(),
            )
