"""Hold what the directory of a provenance file says; pack and parse the part on one database.

    section | name | database | counts | rows of blocks | history | keys | rows of numbers, twice

Each part is packed and parsed beside its struct, as provenance/FORMAT.md draws it. Every number is
little-endian and of fixed width. Pure.

Invariants:
  - every length and count is compared with what is there, and with the format's bounds, before
    memory or time is spent on it: a file of a few bytes can claim anything;
  - what contradicts itself is refused, and the message says what.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import BlockForm, Database, History, KeyForm, KeyRun, Layout, SplitRule
from lmdbio.errors import ProvenanceError
from lmdbio.provenance.values import DUPSORT
from lmdbio.provenance.writer_model import RECORDS_MAX as REPLAYED_MAX
from lmdbio.system.file_identity import FileIdentity

__all__ = [
    "ALL_KEY_RUNS_MAX",
    "BLOCK",
    "Entry",
    "Facts",
    "NUMBERS",
    "NUMBERS_MAX",
    "Name",
    "Parser",
    "Rows",
    "check_entries",
    "name_bytes",
    "name_text",
    "pack_database",
    "pack_entry",
    "parse_entry",
    "stored_bytes",
]

Rows: TypeAlias = npt.NDArray[Any]
Name: TypeAlias = "bytes | None"  # None is the main database
#: Of a block of leaves: no page has more than 2**15.
LEAVES_RECORDS_MAX = _core.BLOCK_LEAVES_MAX << 15
ALL_KEY_RUNS_MAX = 1 << 14  # of all databases
NUMBERS_MAX = 8192  # that a block of numbers has
#: Bytes that a zstd frame of one byte or more takes.
BLOCK_STORED_MIN = 10
#: Bounds of LMDB for keys and values, in bytes.
KEY_MAX, VALUE_MAX = 511, 2**32 - 2

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
NUMBER_BLOCKS = struct.Struct("<I")

#: A block of numbers: how many, raw and stored size, crc32. Rows are stored column by column.
NUMBERS = np.dtype([("records", "<u4"), ("raw", "<u4"), ("stored", "<u4"), ("crc", "<u4")])
#: A block of records: the same, and its form (``BlockForm``).
BLOCK = np.dtype([*NUMBERS.descr, ("form", "u1")])
NO_BLOCKS, NO_NUMBERS = np.empty(0, BLOCK), np.empty(0, NUMBERS)


def name_bytes(name: bytes | str | None) -> Name:
    """Return the name of a database as LMDB has it; text may have bytes that are no UTF-8."""
    return name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name


def name_text(name: Name) -> str:
    """Return a database's name for a message. Names are bytes in LMDB, mostly text."""
    if name is None:
        return "the main database"
    return f"database '{name.decode(errors='backslashreplace')}'"


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


@dataclass(slots=True)
class Entry:
    """One database in the directory.

    Attributes:
        blocks: a row for each block of records (dtype ``BLOCK``); with a history there is none.
        history, extents_crc: history of the database, and the crc32 of the extents to which it
            leads; None: it has none.
        keys: runs of its keys; none: they follow no pattern.
        groups: blocks of the counts of records of each key (dtype ``NUMBERS``).
        order: blocks of the records as they were put (dtype ``NUMBERS``).
    """

    name: Name
    database: Database
    records: int = 0
    record_bytes: int = 0
    runs: int = 0
    blocks: Rows = field(default_factory=lambda: NO_BLOCKS)
    history: History | None = None
    extents_crc: int = 0
    keys: tuple[KeyRun, ...] = ()
    groups: Rows = field(default_factory=lambda: NO_NUMBERS)
    order: Rows = field(default_factory=lambda: NO_NUMBERS)

    @property
    def stored_bytes(self) -> int:
        """The size of all its blocks, which lie end to end: records, counts, the order."""
        return sum(stored_bytes(rows) for rows in (self.blocks, self.groups, self.order))


def stored_bytes(rows: Rows) -> int:
    """Return the size of some blocks as they are stored."""
    return int(rows["stored"].sum(dtype=np.uint64)) if len(rows) else 0


class Parser:
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

    def blocks(self, count: int) -> None:
        """Count blocks, for which the file must have room."""
        self._blocks_left -= count
        if self._blocks_left < 0:
            raise self.error("has more blocks than its file has room for")

    def rows(self, count: int, nothing: Rows) -> Rows:
        """Return the rows of blocks that were counted, of the same dtype as ``nothing``."""
        if not count:
            return nothing
        rows = np.empty(count, nothing.dtype)
        for name in rows.dtype.names or ():
            column = rows[name]
            column[:] = np.frombuffer(self.bytes(count * column.itemsize), column.dtype)
        return rows

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


def pack_database(db: Database) -> bytes:
    """Pack a database's record as LMDB stores it."""
    return DATABASE.pack(*dataclasses.astuple(db))


def _pack_rows(rows: Rows) -> bytes:
    return b"".join(rows[name].tobytes() for name in rows.dtype.names or ())


def pack_entry(entry: Entry) -> bytes:
    """Pack one database of the directory."""
    name = entry.name or b""
    return b"".join(
        [
            SECTION.pack(entry.name is not None, len(name), len(entry.blocks)),
            name,
            pack_database(entry.database),
            COUNTS.pack(entry.records, entry.record_bytes, entry.runs),
            _pack_rows(entry.blocks),
            _pack_history(entry),
            _pack_keys(entry.keys),
            NUMBER_BLOCKS.pack(len(entry.groups)) + _pack_rows(entry.groups),
            NUMBER_BLOCKS.pack(len(entry.order)) + _pack_rows(entry.order),
        ]
    )


def parse_entry(parser: Parser, facts: Facts, format_version: int) -> Entry:
    kind, name_length, blocks = parser.items(SECTION)
    name = parser.bytes(name_length)
    if kind > 1 or (kind == 0 and name):
        raise parser.error(f"has a database of unknown kind {kind}")
    if name_length > KEY_MAX:
        raise parser.error("has a name that no database has")
    parser.blocks(blocks)
    database = parser.database()
    records, size, runs = parser.items(COUNTS)
    rows = parser.rows(blocks, NO_BLOCKS)
    entry = Entry(name if kind else None, database, records, size, runs, rows)
    names_leaves = bool((entry.blocks["form"] == BlockForm.LEAVES).any())
    if format_version > 1:
        _parse_history(parser, facts, entry, by_number=format_version > 2)
    elif names_leaves:
        raise parser.error("names leaves, which format version 1 does not have")
    if entry.history is not None and blocks:
        raise parser.error("has a history and blocks")
    if database.flags & DUPSORT and (entry.history or names_leaves):
        raise parser.error("has duplicates, of which neither leaves nor a history tell")
    if format_version > 2:
        entry.keys = _parse_keys(parser)
        entry.groups, entry.order = _parse_numbers(parser), _parse_numbers(parser)
        _check_keys(parser, entry)
    elif database.flags & DUPSORT:
        raise parser.error("has duplicates, which format versions 1 and 2 do not have")
    if entry.history is not None and not entry.history.key_size:
        if [run.form for run in entry.keys] != [KeyForm.PLAIN]:
            raise parser.error("has a history by numbers, and keys that are none")
        entry.history = dataclasses.replace(entry.history, numbered=entry.keys[0])
    return entry


def _parse_numbers(parser: Parser) -> Rows:
    (count,) = parser.items(NUMBER_BLOCKS)
    parser.blocks(count)
    rows = parser.rows(count, NO_NUMBERS)
    if not _are_bounded(rows, NUMBERS_MAX):
        raise parser.error("has a block of numbers that is empty or above the format's limits")
    return rows


def _are_bounded(rows: Rows, records_max: int | npt.NDArray[np.int64]) -> bool:
    """Return whether each block has a record, and no more of records and bytes than it may."""
    records, raw = rows["records"], rows["raw"]
    below = (records <= records_max) & (raw <= _core.BLOCK_RAW_BYTES_MAX)
    return bool((below & (records > 0) & (raw > 0)).all())


def _check_keys(parser: Parser, entry: Entry) -> None:
    """Refuse an entry whose keys are not as many as its database has."""
    has_many = bool(entry.database.flags & DUPSORT)
    if len(entry.groups) and not has_many:
        raise parser.error("has keys with many values, where each has one")
    if len(entry.order) and int(entry.order["records"].sum()) != entry.records:
        raise parser.error("has an order of another number of records")
    keys = int(entry.groups["records"].sum()) if has_many else entry.records
    if keys > entry.records:
        raise parser.error("has more keys than records")
    if entry.keys and sum(run.count for run in entry.keys) != keys:
        raise parser.error("has another number of keys than of records")


def _pack_history(entry: Entry) -> bytes:
    one = entry.history
    if one is None:
        return HISTORY_BYTES.pack(0)
    kind = one.split, one.append, one.apart, one.numbered is not None
    sizes = one.key_size, one.commit_every, one.length
    return HISTORY_BYTES.pack(HISTORY.size) + HISTORY.pack(*kind, *sizes, entry.extents_crc)


def _parse_history(parser: Parser, facts: Facts, entry: Entry, *, by_number: bool) -> None:
    """Give an entry its history, if there is one."""
    (length,) = parser.items(HISTORY_BYTES)
    if length == 0:
        return
    if length != HISTORY.size:
        raise parser.error("has a history of unknown length")
    split, append, apart, order, key_size, commit_every, value_length, crc = parser.items(HISTORY)
    named, records = entry.name is not None, entry.records
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
    entry.extents_crc = crc
    entry.history = History(
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


def _pack_keys(runs: Sequence[KeyRun]) -> bytes:
    parts = [KEY_RUNS.pack(len(runs))]
    for run in runs:
        sizes = len(run.stem), len(run.tail)
        parts.append(KEY_RUN.pack(run.form, run.width, *sizes, run.first, run.count))
        parts += [run.stem, run.tail]
    return b"".join(parts)


def _parse_keys(parser: Parser) -> tuple[KeyRun, ...]:
    (count,) = parser.items(KEY_RUNS)
    runs = []
    for _ in range(parser.key_runs(count)):
        form, width, stem, tail, first, many = parser.items(KEY_RUN)
        run = KeyRun(form, first, many, width, parser.bytes(stem), parser.bytes(tail))
        if not _is_sound(run):
            raise parser.error("has a run of keys that cannot be")
        runs.append(dataclasses.replace(run, form=KeyForm(form)))
    return tuple(runs)


#: Bytes of the numbers of keys.
_WIDTHS = {
    KeyForm.LITERAL: range(1),
    KeyForm.DECIMAL: range(1, 19),
    KeyForm.PLAIN: range(1),
    KeyForm.BIG: range(1, 9),
    KeyForm.LITTLE: range(1, 9),
}


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


def check_entries(entries: list[Entry], blocks_bytes: int, path: Path | str) -> None:
    """Check that every block is within bounds, and that all of them exactly fill the file.

    Raises:
        ProvenanceError: they do not, or the counts of records differ.
    """
    for entry in entries:
        records = int(entry.blocks["records"].sum(dtype=np.uint64))
        if entry.history is not None:
            records = entry.history.count
        if not entry.records == records == entry.database.entries:
            raise ProvenanceError(
                f"{path}: {name_text(entry.name)}: has {entry.records} records, its blocks "
                f"{records}, the database {entry.database.entries}"
            )
        if not len(entry.blocks):
            continue
        in_leaves = entry.blocks["form"] == BlockForm.LEAVES
        most = np.where(in_leaves, LEAVES_RECORDS_MAX, _core.BLOCK_RECORDS_MAX)
        if not _are_bounded(entry.blocks, most):
            raise ProvenanceError(
                f"{path}: {name_text(entry.name)}: a block is empty or above the format's limits"
            )
    stored = sum(entry.stored_bytes for entry in entries)
    if stored != blocks_bytes:
        raise ProvenanceError(f"{path}: holds {blocks_bytes} bytes of blocks, its index {stored}")
