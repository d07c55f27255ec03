"""Pack what a provenance file says into its bytes. Pure; ``parse`` is the inverse."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import zstandard

from lmdbio._core import Database
from lmdbio.provenance.layout import (
    COLUMNS,
    COUNTS,
    CRC,
    DATABASE,
    FACTS,
    HINTS,
    HISTORY,
    HISTORY_BYTES,
    KEY_RUN,
    KEY_RUNS,
    MAGIC,
    NUMBERS_HEAD,
    PREAMBLE,
    SECTION,
    U32,
    VERSION,
    Entry,
    Facts,
)

__all__ = [
    "compress",
    "pack_database",
    "pack_directory",
    "pack_entry",
    "pack_numbers",
    "pack_preamble",
    "zigzag",
]

#: The highest of zstd's levels that takes no more memory to decompress than those below it.
ZSTD_LEVEL = 19


def pack_database(db: Database) -> bytes:
    """Pack a database's record as LMDB stores it."""
    return DATABASE.pack(*(getattr(db, name) for name in Database.__dataclass_fields__))


def pack_directory(facts: Facts, entries: Sequence[Entry]) -> bytes:
    """Pack the directory, before compression; ``parse_directory`` is its inverse."""
    hints = facts.hints
    return b"".join(
        [
            FACTS.pack(
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
            HINTS.pack(hints.mtime_ns, hints.ctime_ns, hints.dev, hints.ino, hints.host),
            facts.digest,
            *(pack_entry(entry) for entry in entries),
        ]
    )


def pack_entry(entry: Entry) -> bytes:
    """Pack one database of the directory."""
    name = entry.name or b""
    columns = (entry.block_records, entry.block_raw, entry.block_stored, entry.block_crc)
    return b"".join(
        [
            SECTION.pack(entry.name is not None, len(name), len(entry.block_form)),
            name,
            pack_database(entry.database),
            COUNTS.pack(entry.records, entry.record_bytes, entry.runs),
            *(column.astype("<u4").tobytes() for column in columns),
            entry.block_form.tobytes(),
            _pack_history(entry),
            _pack_keys(entry),
            _pack_columns(entry.groups),
            _pack_columns(entry.order),
        ]
    )


def _pack_history(entry: Entry) -> bytes:
    history = entry.history
    if history is None:
        return HISTORY_BYTES.pack(0)
    return HISTORY_BYTES.pack(HISTORY.size) + HISTORY.pack(
        history.split,
        history.append,
        history.apart,
        history.numbered is not None,
        history.key_size,
        history.commit_every,
        history.length,
        entry.extents_crc,
    )


def _pack_keys(entry: Entry) -> bytes:
    parts = [KEY_RUNS.pack(len(entry.keys))]
    for run in entry.keys:
        sizes = len(run.stem), len(run.tail)
        parts.append(KEY_RUN.pack(run.form, run.width, *sizes, run.first, run.count))
        parts += [run.stem, run.tail]
    return b"".join(parts)


def _pack_columns(blocks: U32) -> bytes:
    columns: bytes = blocks.T.astype("<u4").tobytes()
    return COLUMNS.pack(len(blocks)) + columns


def pack_preamble(directory_at: int, stored: bytes, raw_size: int) -> bytes:
    """Pack the file's first ``BLOCKS_AT`` bytes, for a directory ``stored`` at its end."""
    size = directory_at + len(stored)
    head = PREAMBLE.pack(
        MAGIC, VERSION, 0, size, directory_at, len(stored), raw_size, zlib.crc32(stored)
    )
    return head + CRC.pack(zlib.crc32(head))


def pack_numbers(numbers: npt.NDArray[np.uint64]) -> bytes:
    """Pack one number or more: the smallest, and byte by byte how much larger the others are.

    First all lowest bytes, then all second ones: they are alike, which zstd makes use of.
    """
    smallest = int(numbers.min())
    above = numbers - np.uint64(smallest)
    width = (int(above.max()).bit_length() + 7) // 8
    planes: bytes = above.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()
    return NUMBERS_HEAD.pack(smallest, width) + planes


def zigzag(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Map numbers near zero, negative ones too, to small ones that are not negative."""
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def compress(raw: bytes, level: int = ZSTD_LEVEL) -> bytes:
    """Compress by zstd, with the size that ``decompress`` compares, and no checksum of its own."""
    compressor = zstandard.ZstdCompressor(
        level=level, write_checksum=False, write_content_size=True, write_dict_id=False
    )
    packed: bytes = compressor.compress(raw)
    return packed
