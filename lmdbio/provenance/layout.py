"""Lay out a provenance file's bytes, down to its blocks: drawn in provenance/FORMAT.md.

    preamble | blocks ... | directory: facts, entry, entry, ...

``pack`` writes it, ``parse`` reads it. Every number is little-endian and of fixed width. Each
struct here and each bound stands in FORMAT.md, too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import Database, Extents, History, KeyRun, Layout
from lmdbio.system.file_identity import FileIdentity

__all__ = [
    "ALL_KEY_RUNS_MAX",
    "BLOCKS_AT",
    "BLOCK_STORED_MIN",
    "COLUMNS",
    "COUNTS",
    "CRC",
    "DATABASE",
    "DATABASES_MAX",
    "DIGEST_BYTES",
    "DIRECTORY_BYTES_MAX",
    "Entry",
    "FACTS",
    "Facts",
    "HINTS",
    "HISTORY",
    "HISTORY_BYTES",
    "KEY_MAX",
    "KEY_RUN",
    "KEY_RUNS",
    "LEAVES_RECORDS_MAX",
    "MAGIC",
    "NUMBERS_HEAD",
    "NUMBERS_MAX",
    "Name",
    "PREAMBLE",
    "Preamble",
    "SECTION",
    "U32",
    "VALUE_MAX",
    "VERSION",
    "VERSIONS",
    "extents_crc",
    "name_bytes",
    "name_text",
]

U32: TypeAlias = npt.NDArray[np.uint32]
Name: TypeAlias = "bytes | None"  # None is the main database
MAGIC = b"LMDBIOPV"
VERSION = 3
VERSIONS = (1, 2, VERSION)  # that are read
BLOCKS_AT = 64  # the preamble's size
#: Of a block of leaves: no page has more than 2**15.
LEAVES_RECORDS_MAX = _core.BLOCK_LEAVES_MAX << 15
DIRECTORY_BYTES_MAX = 64 << 20
#: A few bytes of zstd may claim as many: each takes time and memory, before any of it is known to
#: be false. LMDB looks names up one after the other, so that nobody has nearly as many.
DATABASES_MAX = 1 << 14
ALL_KEY_RUNS_MAX = 1 << 14  # of all databases
#: Bytes that a zstd frame of one byte or more takes.
BLOCK_STORED_MIN = 10

#: magic, version, features, file size, directory offset, stored and raw size, its crc32, zeros
PREAMBLE = struct.Struct("<8sIIQQIII16x")
CRC = struct.Struct("<I")
#: data format, page size, environment flags, sections, txnid, last page, end of the extents
FACTS = struct.Struct("<IIIIQQQ")
#: mtime and ctime in ns, device, inode, host
HINTS = struct.Struct("<qqQQ16s")
#: pad, flags, depth, branch, leaf and overflow pages, entries, root: as LMDB stores it
DATABASE = struct.Struct("<IHHQQQQQ")
#: kind (0 main, 1 named), name's length, blocks
SECTION = struct.Struct("<HHI")
#: records, their bytes, runs
COUNTS = struct.Struct("<QQQ")
#: Length of a history, 0 where there is none; from format version 2 on
HISTORY_BYTES = struct.Struct("<H")
#: split rule, append, apart, order, key size, records a transaction, value length, crc32
HISTORY = struct.Struct("<BBBBIQQI")
#: Number of key runs, 0 where keys follow no pattern; from format version 3 on
KEY_RUNS = struct.Struct("<H")
#: form, width, bytes of the stem and of the tail, first number, how many
KEY_RUN = struct.Struct("<BBHHQQ")
#: Number of blocks of numbers; from format version 3 on
COLUMNS = struct.Struct("<I")
NUMBERS_MAX = 8192  # that one of them has
#: Smallest number, and bytes of what others have more
NUMBERS_HEAD = struct.Struct("<QB")

#: Bounds of LMDB for keys and values, in bytes.
KEY_MAX, VALUE_MAX = 511, 2**32 - 2
DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of the database that a provenance file describes.

    Attributes:
        version: LMDB's data format, 1 or 3.
        page_size: bytes.
        env_flags: the persistent environment flags.
        txnid, last_pgno: numbers of the transaction and of the last page, of the meta page.
        extents_end: bytes; no smaller file can hold every record.
        free_db, main_db: the meta page's two database records.
        hints: FileIdentity of the data file at that time.
        digest: digest over the branch and leaf pages of the databases described.
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


def name_bytes(name: bytes | str | None) -> Name:
    """Return the name of a database as LMDB has it; text may have bytes that are no UTF-8."""
    return name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name


def name_text(name: Name) -> str:
    """Return a database's name for a message. Names are bytes in LMDB, mostly text."""
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


@dataclass(frozen=True, slots=True)
class Preamble:
    """Where the directory lies.

    Attributes:
        version: format version.
        offset, stored, raw: offset of the directory; its size as stored, and decompressed, bytes.
        crc: crc32 of it as stored.
    """

    version: int
    offset: int
    stored: int
    raw: int
    crc: int


def extents_crc(parts: Iterable[Extents]) -> int:
    """Return the crc32 over extents, to which a history is held."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part.tobytes(), crc)
    return crc
