"""provenance: the file that says where every record of a database lies.

``Provenance`` answers index -> extent from it, reading little. What the file's bytes mean is
drawn in provenance/FORMAT.md and written down here alone; csrc/provenance.c decodes its
columns. Whether it still describes the data, ``staleness`` decides; ``convert`` makes it and
``verify`` proves it.

Invariants:
  - every byte of the file lies under a checksum and a bound, and is checked before use;
  - nothing here reads the data: whether a sidecar fits it is not judged.

Source: the provenance information of LMDBIO (Pumma et al., ACM TOPC 2019, "provenance
information"), in a form that holds for any insertion history.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
import socket
import stat
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
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
    Leaves,
    SplitRule,
)
from lmdbio.errors import Error, ProvenanceError
from lmdbio.history import RECORDS_MAX as REPLAYED_MAX
from lmdbio.history import replay
from lmdbio.items import DUPSORT
from lmdbio.keys import KeyPattern
from lmdbio.leaves import LeafReader

__all__ = [
    "BLOCKS_AT",
    "DIGEST_BYTES",
    "DIRECTORY_BYTES_MAX",
    "GROUP_KEYS_MAX",
    "Entry",
    "Facts",
    "Hints",
    "MAGIC",
    "Name",
    "PROVENANCE_DIR",
    "Provenance",
    "Section",
    "compress",
    "data_file",
    "extents_crc",
    "find_sidecar",
    "name_text",
    "pack_counts",
    "pack_database",
    "pack_directory",
    "pack_preamble",
    "sidecar_file",
]

Name: TypeAlias = "bytes | None"  # None is the main database

PROVENANCE_DIR = "LMDBIO_PROVENANCE_DIR"
SUFFIX = ".prov"
CACHE_BYTES_MAX = 64 << 20


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
    """Where the provenance file of the data file ``data`` is written.

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
    return _beside(data)


def find_sidecar(
    data: str | os.PathLike[str], provenance: str | os.PathLike[str] | None = None
) -> Path:
    """Where the provenance file of the data file ``data`` is read from.

    Where it is written (``sidecar_file``), unless only one beside the data is there: what came
    with a data set is found, too, when ``$LMDBIO_PROVENANCE_DIR`` collects one's own. Whether
    it exists, opening it says.
    """
    first = sidecar_file(data, provenance)
    beside = _beside(Path(data))
    if provenance is None and not _seen(first) and _seen(beside):
        return beside
    return first


def _beside(data: Path) -> Path:
    return data.with_name(data.name + SUFFIX)


def _seen(path: Path) -> bool:
    with contextlib.suppress(OSError):  # a folder that may not be searched
        return path.exists()
    return False


def _shared_name(data: Path) -> str:
    real = os.path.realpath(data)
    mark = hashlib.blake2b(os.fsencode(real), digest_size=8).hexdigest()
    name = Path(real).name
    if name == "data.mdb":
        name = Path(real).parent.name or name
    return f"{name}-{mark}{SUFFIX}"


# --- the file's parts --------------------------------------------------------------------

MAGIC = b"LMDBIOPV"
VERSION = 3
VERSIONS = (1, 2, VERSION)  # that are read
BLOCKS_AT = 64  # the preamble's size
#: Of a block of leaves: no page has more than 2**15.
_LEAVES_RECORDS_MAX = _core.BLOCK_LEAVES_MAX << 15
_OPEN_BYTES = 16384  # read at open: small sidecars come whole
DIRECTORY_BYTES_MAX = 64 << 20
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
#: Number of blocks that tell the values of each key; from format version 3 on
_GROUPS = struct.Struct("<I")
GROUP_KEYS_MAX = 8192  # that one of them tells of
#: Smallest number, and bytes of what others have more
_COUNTS_HEAD = struct.Struct("<QB")
#: Bounds of LMDB for keys and values, in bytes.
_KEY_MAX, _VALUE_MAX = 511, 2**32 - 2
DIGEST_BYTES = 32


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
    #: Of blocks that tell the values of each key: keys, raw and stored size, crc32 in a row
    groups: npt.NDArray[np.uint32] = field(default_factory=lambda: np.empty((0, 4), np.uint32))

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
                self._pack_groups(),
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

    def _pack_groups(self) -> bytes:
        columns: bytes = self.groups.T.astype("<u4").tobytes()
        return _GROUPS.pack(len(self.groups)) + columns


def extents_crc(parts: Iterable[Extents]) -> int:
    """crc32 over extents, as a history is held to it."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part.tobytes(), crc)
    return crc


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
    if count > _core.KEY_RUNS_MAX:
        raise parser.error("has more runs of keys than the format knows")
    runs = []
    for _ in range(count):
        form, width, stem, tail, first, many = parser.items(_KEY_RUN)
        run = KeyRun(form, first, many, width, parser.bytes(stem), parser.bytes(tail))
        runs.append(run)
        if not _is_sound(run):
            raise parser.error("has a run of keys that cannot be")
    return tuple(dataclasses.replace(run, form=KeyForm(run.form)) for run in runs)


def _parse_groups(parser: _Parser, database: Database) -> npt.NDArray[np.uint32]:
    (count,) = parser.items(_GROUPS)
    groups: npt.NDArray[np.uint32] = parser.column(4 * count, "<u4").reshape(4, count).T
    most = (GROUP_KEYS_MAX, _core.BLOCK_RAW_BYTES_MAX)
    if count and not database.flags & DUPSORT:
        raise parser.error("has keys with many values, where each has one")
    if bool(((groups[:, :2] == 0) | (groups[:, :2] > most)).any()):
        raise parser.error("has a block of keys that is empty or above the format's limits")
    return groups


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
    if format_version > 2:
        entry.keys = _parse_keys(parser)
        entry.groups = _parse_groups(parser, database)
        keys = int(entry.groups[:, 0].sum()) if database.flags & DUPSORT else records
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
    """The directory before compression; ``_parse_directory`` is its inverse."""
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
            _HINTS.pack(*(getattr(facts.hints, name) for name in Hints.__dataclass_fields__)),
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


def _parse_directory(raw: bytes, path: Path, format_version: int) -> tuple[Facts, list[Entry]]:
    parser = _Parser(raw, path)
    version, page_size, env_flags, sections, txnid, last_pgno, end = parser.items(_FACTS)
    free_db, main_db = parser.database(), parser.database()
    hints = Hints(*parser.items(_HINTS))
    digest = parser.bytes(DIGEST_BYTES)
    facts = Facts(
        version, page_size, env_flags, txnid, last_pgno, end, free_db, main_db, hints, digest
    )
    if version not in (1, 3) or page_size not in (256 << i for i in range(9)):
        raise ProvenanceError(f"{path}: describes no database that is read here")
    if last_pgno >= 2**62 // page_size or end > (last_pgno + 1) * page_size:
        raise ProvenanceError(f"{path}: describes records beyond the database's last page")
    entries = []
    for _ in range(sections):  # each takes bytes, so a false count ends with the bytes
        entries.append(_parse_entry(parser, facts, format_version))
    parser.end()
    if any(entry.name is None and entry.database != main_db for entry in entries):
        raise parser.error("contradicts itself about the main database")
    return facts, entries


def _check_entries(entries: list[Entry], blocks_bytes: int, path: Path) -> None:
    """Every block within bounds, and all of them exactly filling the file's blocks."""
    stored = 0
    for entry in entries:
        where = f"{path}: {name_text(entry.name)}"
        records = int(entry.block_records.sum(dtype=np.uint64))
        if entry.history is not None:
            records = entry.history.count
        if not entry.records == records == entry.database.entries:
            raise ProvenanceError(
                f"{where}: has {entry.records} records, its blocks {records}, "
                f"the database {entry.database.entries}"
            )
        in_leaves = entry.block_form == BlockForm.LEAVES
        most = np.where(in_leaves, _LEAVES_RECORDS_MAX, _core.BLOCK_RECORDS_MAX)
        bounds = ((entry.block_records, most), (entry.block_raw, _core.BLOCK_RAW_BYTES_MAX))
        if any(bool(((c == 0) | (c > most)).any()) for c, most in bounds):
            raise ProvenanceError(f"{where}: a block is empty or above the format's limits")
        stored += int(entry.block_stored.sum(dtype=np.uint64))
        stored += int(entry.groups[:, 2].sum(dtype=np.uint64))
    if stored != blocks_bytes:
        raise ProvenanceError(f"{path}: holds {blocks_bytes} bytes of blocks, its index {stored}")
    if len({entry.name for entry in entries}) != len(entries):
        raise ProvenanceError(f"{path}: describes one database twice")


def pack_counts(counts: npt.NDArray[np.uint64]) -> bytes:
    """Numbers above 0, at least one: the smallest, and byte by byte what the others have more."""
    smallest = int(counts.min())
    above = counts - np.uint64(smallest)
    width = (int(above.max()).bit_length() + 7) // 8
    planes: bytes = above.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()
    return _COUNTS_HEAD.pack(smallest, width) + planes


def _unpack_counts(raw: bytes, count: int, where: str) -> npt.NDArray[np.uint64]:
    if len(raw) < _COUNTS_HEAD.size:
        raise ProvenanceError(f"{where} is cut")
    smallest, width = _COUNTS_HEAD.unpack_from(raw)
    planes = np.frombuffer(raw, np.uint8, offset=_COUNTS_HEAD.size)
    if not smallest or width > 7 or len(planes) != width * count:
        raise ProvenanceError(f"{where} does not hold the numbers of its keys")
    above = np.zeros((count, 8), np.uint8)
    above[:, :width] = planes.reshape(width, count).T
    counts: npt.NDArray[np.uint64] = above.view("<u8")[:, 0] + np.uint64(smallest)
    return counts


def compress(raw: bytes) -> bytes:
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
        return {
            form.name.lower(): int((self._entry.block_form == form).sum()) for form in BlockForm
        }

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
        entry, owner = self._entry, self._owner
        at = int(self._offsets[-1])
        parts = [np.empty(0, np.uint64)]
        for number, (keys, raw, stored, crc) in enumerate(entry.groups.tolist()):
            where = f"{owner.path}: is damaged: keys {number} of {name_text(entry.name)}"
            parts.append(_unpack_counts(owner._checked(at, stored, raw, crc, where), keys, where))
            at += stored
        each = np.concatenate(parts)
        if int(each.sum(dtype=np.uint64)) != self.count:
            raise ProvenanceError(
                f"{owner.path}: is damaged: the keys of {name_text(entry.name)} have another "
                "number of records"
            )
        return each

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
        self.databases = [section.name for section in self._sections]

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
        head, path = self._head[:BLOCKS_AT], self.path
        if head[:8] != MAGIC:
            raise ProvenanceError(f"{path}: is not a provenance file")
        if len(head) < BLOCKS_AT:
            raise ProvenanceError(f"{path}: is cut: it has {self.size} bytes")
        _, version, features, size, at, stored, raw, crc = _PREAMBLE.unpack(head[:-4])
        if version not in VERSIONS:
            raise ProvenanceError(
                f"{path}: has format version {version}; this lmdbio reads versions 1 to {VERSION}"
            )
        if zlib.crc32(head[:-4]) != _CRC.unpack(head[-4:])[0]:
            raise ProvenanceError(f"{path}: is damaged: its preamble fails its checksum")
        if features or any(head[44:60]):
            raise ProvenanceError(f"{path}: needs features that this lmdbio does not know")
        if size != self.size:
            how = "is cut" if self.size < size else "has bytes after its end"
            raise ProvenanceError(f"{path}: {how}: it has {self.size} bytes instead of {size}")
        if at < BLOCKS_AT or at + stored != size or raw > DIRECTORY_BYTES_MAX:
            raise ProvenanceError(f"{path}: is damaged: its directory lies outside of it")
        packed = self._read(at, stored)
        if zlib.crc32(packed) != crc:
            raise ProvenanceError(f"{path}: is damaged: its directory fails its checksum")
        facts, entries = _parse_directory(_decompress(packed, raw, path), path, version)
        _check_entries(entries, at - BLOCKS_AT, path)
        sections, start = [], BLOCKS_AT
        for number, entry in enumerate(entries):
            sections.append(Section(self, number, entry, start))
            start += int(entry.block_stored.sum(dtype=np.uint64))
            start += int(entry.groups[:, 2].sum(dtype=np.uint64))
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
        known = ", ".join(name_text(section.name) for section in self._sections) or "nothing"
        raise KeyError(f"{self.path}: does not describe {name_text(wanted)}, only {known}")

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

    def _checked(self, offset: int, stored: int, raw: int, crc: int, where: str) -> bytes:
        """A compressed part, decompressed; ``where`` says which, when it is damaged."""
        if self._fd < 0:
            raise ValueError(f"{self.path}: the provenance file is closed")
        packed = self._read(offset, stored)
        if zlib.crc32(packed) != crc:
            raise ProvenanceError(f"{where} fails its checksum")
        return _decompress(packed, raw, self.path)

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
