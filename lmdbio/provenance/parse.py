"""Parse the bytes of a provenance file. Pure; ``pack`` is the inverse.

Invariants:
  - every length and count is compared with what is there, and with the format's bounds, before
    memory or time is spent on it: a file of a few bytes can claim anything;
  - what contradicts itself is refused, and the message says what.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from lmdbio import _core
from lmdbio._core import BlockForm, Database, History, KeyForm, KeyRun, SplitRule
from lmdbio.errors import ProvenanceError
from lmdbio.provenance.layout import (
    ALL_KEY_RUNS_MAX,
    BLOCK_STORED_MIN,
    BLOCKS_AT,
    COLUMNS,
    COUNTS,
    CRC,
    DATABASE,
    DATABASES_MAX,
    DIGEST_BYTES,
    DIRECTORY_BYTES_MAX,
    FACTS,
    HINTS,
    HISTORY,
    HISTORY_BYTES,
    KEY_MAX,
    KEY_RUN,
    KEY_RUNS,
    LEAVES_RECORDS_MAX,
    MAGIC,
    NUMBERS_HEAD,
    NUMBERS_MAX,
    PREAMBLE,
    SECTION,
    U32,
    VALUE_MAX,
    VERSION,
    VERSIONS,
    Entry,
    Facts,
    Name,
    Preamble,
    name_text,
)
from lmdbio.provenance.values import DUPSORT
from lmdbio.provenance.writer_model import RECORDS_MAX as REPLAYED_MAX
from lmdbio.system.file_identity import FileIdentity

__all__ = [
    "check_entries",
    "decompress",
    "from_zigzag",
    "parse_directory",
    "parse_preamble",
    "unpack_numbers",
]

_NO_COLUMNS = np.empty((0, 4), np.uint32)
_NOTHING = {dtype: np.empty(0, dtype) for dtype in ("<u4", "u1")}


class _Parser:
    """Takes bounded pieces off the front of the directory.

    Args:
        blocks_bytes: size of what the file has for blocks.
    """

    def __init__(self, raw: bytes, path: Path | str, blocks_bytes: int) -> None:
        self._raw, self._at, self._path = raw, 0, path
        self._blocks_left = blocks_bytes // BLOCK_STORED_MIN
        self._runs_left = ALL_KEY_RUNS_MAX

    def bytes(self, length: int) -> bytes:
        if length > len(self._raw) - self._at:
            raise self.error("ends too early")
        self._at += length
        return self._raw[self._at - length : self._at]

    def items(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.bytes(layout.size))

    def database(self) -> Database:
        return Database(*self.items(DATABASE))

    def column(self, count: int, dtype: str) -> npt.NDArray[Any]:
        if not count:
            return _NOTHING[dtype]
        return np.frombuffer(self.bytes(count * np.dtype(dtype).itemsize), dtype)

    def blocks(self, count: int) -> int:
        """Count blocks, for which the file must have room; returns ``count``."""
        self._blocks_left -= count
        if self._blocks_left < 0:
            raise self.error("has more blocks than its file has room for")
        return count

    def key_runs(self, count: int) -> int:
        """Count runs of keys, of which a file has a bounded number; returns ``count``."""
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
    (length,) = parser.items(HISTORY_BYTES)
    if length == 0:
        return None, 0
    if length != HISTORY.size:
        raise parser.error("has a history of unknown length")
    split, append, apart, order, key_size, commit_every, value_length, crc = parser.items(HISTORY)
    if split not in list(SplitRule) or append > 1 or apart > named or order > by_number:
        raise parser.error("has a history of unknown kind")
    if (
        not 0 < records <= REPLAYED_MAX
        or not commit_every
        or not (key_size == 0 if order else 0 < key_size <= KEY_MAX)
        or value_length > VALUE_MAX
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
    (count,) = parser.items(KEY_RUNS)
    runs = []
    for _ in range(parser.key_runs(count)):
        form, width, stem, tail, first, many = parser.items(KEY_RUN)
        run = KeyRun(form, first, many, width, parser.bytes(stem), parser.bytes(tail))
        runs.append(run)
        if not _is_sound(run):
            raise parser.error("has a run of keys that cannot be")
    return tuple(dataclasses.replace(run, form=KeyForm(run.form)) for run in runs)


def _parse_columns(parser: _Parser) -> U32:
    (count,) = parser.items(COLUMNS)
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
    return run.count > 0 and fits and 0 < len(run.stem) + largest + len(run.tail) <= KEY_MAX


def _parse_entry(parser: _Parser, facts: Facts, format_version: int) -> Entry:
    kind, name_length, blocks = parser.items(SECTION)
    name = parser.bytes(name_length)
    if kind > 1 or (kind == 0 and name):
        raise parser.error(f"has a database of unknown kind {kind}")
    if name_length > KEY_MAX:
        raise parser.error("has a name that no database has")
    parser.blocks(blocks)
    database = parser.database()
    records, total, runs = parser.items(COUNTS)
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


def parse_directory(
    raw: bytes, path: Path | str, format_version: int, blocks_bytes: int
) -> tuple[Facts, list[Entry]]:
    """Take a directory apart.

    Args:
        blocks_bytes: size of what the file has for blocks.

    Raises:
        ProvenanceError: it is damaged, or says what cannot be.
    """
    parser = _Parser(raw, path, blocks_bytes)
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
        entry = _parse_entry(parser, facts, format_version)
        if entry.name in entries:
            raise parser.error(f"describes {name_text(entry.name)} twice")
        entries[entry.name] = entry
    parser.end()
    if None in entries and entries[None].database != main_db:
        raise parser.error("contradicts itself about the main database")
    return facts, list(entries.values())


def check_entries(entries: list[Entry], blocks_bytes: int, path: Path | str) -> None:
    """Check that every block is within bounds, and that all of them exactly fill the file.

    Raises:
        ProvenanceError: they do not, or the counts of records differ.
    """
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
        most = np.where(in_leaves, LEAVES_RECORDS_MAX, _core.BLOCK_RECORDS_MAX)
        bounds = ((entry.block_records, most), (entry.block_raw, _core.BLOCK_RAW_BYTES_MAX))
        if any(bool(((c == 0) | (c > most)).any()) for c, most in bounds):
            raise ProvenanceError(
                f"{path}: {name_text(entry.name)}: a block is empty or above the format's limits"
            )
        stored += int(entry.block_stored.sum(dtype=np.uint64))
    if stored != blocks_bytes:
        raise ProvenanceError(f"{path}: holds {blocks_bytes} bytes of blocks, its index {stored}")


def unpack_numbers(raw: bytes, count: int, where: str) -> npt.NDArray[np.uint64]:
    """Undo ``pack_numbers``.

    Args:
        where: name of the block, for errors.

    Raises:
        ProvenanceError: these bytes do not hold ``count`` numbers.
    """
    if len(raw) < NUMBERS_HEAD.size:
        raise ProvenanceError(f"{where} is cut")
    smallest, width = NUMBERS_HEAD.unpack_from(raw)
    planes = np.frombuffer(raw, np.uint8, offset=NUMBERS_HEAD.size)
    if width > 7 or len(planes) != width * count:
        raise ProvenanceError(f"{where} does not hold its numbers")
    above = np.zeros((count, 8), np.uint8)
    above[:, :width] = planes.reshape(width, count).T
    numbers: npt.NDArray[np.uint64] = above.view("<u8")[:, 0] + np.uint64(smallest)
    return numbers


def from_zigzag(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Undo ``zigzag``."""
    one = np.uint64(1)
    signs: npt.NDArray[np.int64] = -(numbers & one).view(np.int64)
    found: npt.NDArray[np.int64] = (numbers >> one).view(np.int64) ^ signs
    return found


def decompress(stored: bytes, raw_size: int, path: Path | str) -> bytes:
    """Decompress to exactly ``raw_size`` bytes; the caller has bounded it, so nothing can blow up.

    Raises:
        ProvenanceError: the bytes are damaged, or of another size.
    """
    try:
        # Looked at first, because the decoder trusts the frame's own size above any limit.
        if zstandard.get_frame_parameters(stored).content_size == raw_size:
            raw: bytes = zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
            if len(raw) == raw_size:
                return raw
    except zstandard.ZstdError as e:
        raise ProvenanceError(f"{path}: is damaged: {e}") from e
    raise ProvenanceError(f"{path}: is damaged: a part does not have the size recorded for it")
