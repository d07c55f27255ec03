"""Lay out a provenance file's bytes, down to its blocks: drawn in provenance/FORMAT.md.

    preamble | blocks ... | directory: facts, entry, entry, ...

Each part is packed and parsed beside its struct, an entry in ``entry``. Every number is
little-endian and of fixed width. Each struct here and each bound stands in FORMAT.md, too. Pure.

Invariant: what contradicts itself is refused, and the message says what.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from lmdbio.errors import ProvenanceError
from lmdbio.provenance.entry import (
    Entry,
    Facts,
    Name,
    Parser,
    check_entries,
    name_text,
    pack_database,
    pack_entry,
    parse_entry,
)
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.frozen import dataclass

__all__ = [
    "BLOCKS_AT",
    "DATABASES_MAX",
    "DIGEST_BYTES",
    "DIRECTORY_BYTES_MAX",
    "MAGIC",
    "pack_directory",
    "pack_preamble",
    "parse_directory",
    "parse_preamble",
]

MAGIC = b"LMDBIOPV"
VERSION = 3
VERSIONS = (1, 2, VERSION)  # that are read
BLOCKS_AT = 64  # the preamble's size
DIRECTORY_BYTES_MAX = 64 << 20
#: A few bytes of zstd may claim as many: each takes time and memory, before any of it is known to
#: be false. LMDB looks names up one after the other, so that nobody has nearly as many.
DATABASES_MAX = 1 << 14
DIGEST_BYTES = 32

#: magic, version, features, file size, directory offset, stored and raw size, its crc32, zeros
PREAMBLE = struct.Struct("<8sIIQQIII16x")
CRC = struct.Struct("<I")
#: data format, page size, environment flags, sections, txnid, last page, end of the extents
FACTS = struct.Struct("<IIIIQQQ")
#: mtime and ctime in ns, device, inode, host
HINTS = struct.Struct("<qqQQ16s")


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


def pack_preamble(directory_at: int, stored: bytes, raw_size: int) -> bytes:
    """Pack the file's first ``BLOCKS_AT`` bytes, for a directory ``stored`` at its end."""
    size = directory_at + len(stored)
    head = PREAMBLE.pack(
        MAGIC, VERSION, 0, size, directory_at, len(stored), raw_size, zlib.crc32(stored)
    )
    return head + CRC.pack(zlib.crc32(head))


def parse_preamble(head: bytes, file_size: int, path: Path | str) -> Preamble:
    """Check the first ``BLOCKS_AT`` bytes of a file, or as many as there are.

    Raises:
        ProvenanceError: no provenance file, of a later version, damaged or cut.
    """
    if head[:8] != MAGIC:
        raise ProvenanceError(f"{path}: is not a provenance file")
    if len(head) < BLOCKS_AT:
        raise ProvenanceError(f"{path}: is cut: it has {file_size} bytes")
    _, version, features, size, at, stored, raw, crc = PREAMBLE.unpack(head[:-4])
    if version not in VERSIONS:
        raise ProvenanceError(
            f"{path}: has format version {version}; this lmdbio reads versions 1 to {VERSION}"
        )
    if zlib.crc32(head[:-4]) != CRC.unpack(head[-4:])[0]:
        raise ProvenanceError(f"{path}: is damaged: its preamble fails its checksum")
    if features or any(head[44:60]):
        raise ProvenanceError(f"{path}: needs features that this lmdbio does not know")
    if size != file_size:
        how = "is cut" if file_size < size else "has bytes after its end"
        raise ProvenanceError(f"{path}: {how}: it has {file_size} bytes instead of {size}")
    if at < BLOCKS_AT or at + stored != size or raw > DIRECTORY_BYTES_MAX:
        raise ProvenanceError(f"{path}: is damaged: its directory lies outside of it")
    return Preamble(version, at, stored, raw, crc)


def pack_directory(facts: Facts, entries: Sequence[Entry]) -> bytes:
    """Pack the directory, before compression; ``parse_directory`` is its inverse."""
    head = facts.version, facts.page_size, facts.env_flags, len(entries)
    hints = facts.hints
    return b"".join(
        [
            FACTS.pack(*head, facts.txnid, facts.last_pgno, facts.extents_end),
            pack_database(facts.free_db),
            pack_database(facts.main_db),
            HINTS.pack(hints.mtime_ns, hints.ctime_ns, hints.dev, hints.ino, hints.host),
            facts.digest,
            *(pack_entry(entry) for entry in entries),
        ]
    )


def parse_directory(
    raw: bytes, path: Path | str, format_version: int, blocks_bytes: int
) -> tuple[Facts, list[Entry]]:
    """Take a directory apart.

    Args:
        blocks_bytes: size of what the file has for blocks.

    Raises:
        ProvenanceError: it is damaged, or says what cannot be.
    """
    parser = Parser(raw, path, blocks_bytes)
    version, page_size, env_flags, sections, txnid, last_pgno, end = parser.items(FACTS)
    free_db, main_db = parser.database(), parser.database()
    hints = FileIdentity(*parser.items(HINTS))
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
        entry = parse_entry(parser, facts, format_version)
        if entry.name in entries:
            raise parser.error(f"describes {name_text(entry.name)} twice")
        entries[entry.name] = entry
    parser.end()
    if None in entries and entries[None].database != main_db:
        raise parser.error("contradicts itself about the main database")
    check_entries(list(entries.values()), blocks_bytes, path)
    return facts, list(entries.values())
