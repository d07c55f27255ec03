"""The seam to the C core: the only file that touches ``ffi`` and ``lib``.

Everything here is a thin, typed shape over one room of ``csrc/``: it owns what C hands out,
turns status codes into exceptions that name the file, and passes arrays by address.

Long waits are sliced (at most ``SLICE_MS``) back to Python, so that signals are seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio import errors, forked
from lmdbio._lmdbio import ffi, lib

__all__ = [
    "EXTENT",
    "READ",
    "SLICE_MS",
    "Chunk",
    "Counters",
    "Database",
    "Engine",
    "Layout",
    "Memory",
    "MemoryPool",
    "Meta",
    "Plan",
    "PlanTotals",
    "Ticket",
    "Walk",
    "BLOCK_RAW_BYTES_MAX",
    "BLOCK_RECORDS_MAX",
    "Block",
    "BlockForm",
    "address_of",
    "bytes_list",
    "decode_block",
    "encode_block",
    "Window",
    "detach",
    "find_database",
    "leaf_databases",
    "leaf_extents",
    "lend",
    "make_plan",
    "newest_txnid",
    "populate",
    "read_meta",
]

SLICE_MS = 100
NEWEST = 2**64 - 1

#: Structured dtype of ``lio_extent``.
EXTENT = np.dtype([("offset", "<u8"), ("length", "<u8")])
#: Structured dtype of ``lio_read``: one request and the address it fills.
READ = np.dtype([("offset", "<u8"), ("length", "<u8"), ("needed", "<u8"), ("into", "<u8")])
#: Structured dtype of ``lio_request``.
REQUEST = np.dtype(
    [("offset", "<u8"), ("length", "<u8"), ("needed", "<u8"), ("buffer_offset", "<u8")]
)

Extents = npt.NDArray[Any]  # of dtype EXTENT
U64 = npt.NDArray[np.uint64]


class _Status:
    """A reusable ``lio_error`` and the name of the file its calls are about."""

    __slots__ = ("error", "path")

    def __init__(self, path: str = "") -> None:
        self.error = ffi.new("lio_error *")
        self.path = path

    def exception(self, code: int) -> Exception:
        e = self.error
        reason = ffi.string(e.reason).decode("utf-8", "replace")
        return errors.from_status(code, e.sys_errno, e.offset, e.wanted, e.got, reason, self.path)

    def check(self, code: int) -> None:
        if code != lib.LIO_OK:
            raise self.exception(code)


def _address(array: npt.NDArray[Any], ctype: str) -> Any:
    """The address of a C-contiguous array as a C pointer; the caller keeps the array alive."""
    return ffi.cast(ctype, array.ctypes.data)


# --- memory ------------------------------------------------------------------------------


class Memory:
    """Memory of our own, fit for any engine (csrc/buffer.h).

    Attributes:
        address: of the first byte.
        size: bytes.
    """

    ALIGNMENT = int(lib.LIO_BUFFER_ALIGNMENT)
    HUGE_PAGE = int(lib.LIO_HUGE_PAGE_BYTES)
    #: From here on it has huge pages.
    HUGE_BYTES_MIN = int(lib.LIO_HUGE_BYTES_MIN)

    __slots__ = ("_owner", "address", "size")

    def __init__(self, size: int) -> None:
        pointer = lib.lio_buffer_open(size)
        if pointer == ffi.NULL:
            raise MemoryError(f"no memory for a buffer of {size} bytes")
        self._owner = ffi.gc(pointer, lib.lio_buffer_close, size)
        self.address = int(ffi.cast("uintptr_t", pointer))
        self.size = size


class MemoryPool:
    """Memory that comes back: spares the page faults of fresh memory for every batch.

    ``take`` gives a ``Memory`` that returns to the pool when nobody refers to it any more. At
    most ``SPARES`` pieces wait to be taken again.
    """

    SPARES = 2

    def __init__(self) -> None:
        self._spare: list[Memory] = []

    def take(self, size: int) -> Memory:
        """At least ``size`` bytes; what they hold is undefined."""
        for _ in range(len(self._spare)):
            try:
                found = self._spare.pop(0)
            except IndexError:  # another thread took it
                break
            if size <= found.size <= max(4 * size, 1 << 20):
                return _Taken(found, self)
        # Batches differ in size a little: some room lets the next one fit too.
        return _Taken(Memory(size + size // 4), self)

    def _give(self, memory: Memory) -> None:
        if len(self._spare) < self.SPARES:
            self._spare.append(memory)


class _Taken(Memory):
    """Memory on loan from a pool."""

    __slots__ = ("_memory", "_pool")

    def __init__(self, memory: Memory, pool: MemoryPool) -> None:
        self._memory, self._pool = memory, pool
        self.address, self.size = memory.address, memory.size

    def __del__(self) -> None:
        self._pool._give(self._memory)


def lend(address: int, size: int, keep: object = None) -> Any:
    """An exporter of ``size`` bytes at ``address`` that can be weakly referenced.

    Every memoryview, slice and array made from it keeps it alive, so a dead weak reference
    proves that no view is left. ``keep`` is kept alive by the exporter.
    """
    pointer = ffi.cast("char *", address)
    if keep is not None:
        pointer = ffi.gc(pointer, lambda _pointer, _keep=keep: None)
    return ffi.buffer(pointer, size)


def address_of(buffer: object) -> int:
    """Where the bytes of a writable buffer lie; the caller keeps it alive."""
    return int(ffi.cast("uintptr_t", ffi.from_buffer("uint8_t[]", buffer)))


def bytes_list(buffer: int, size: int, offsets: U64, lengths: U64) -> list[bytes]:
    """Cuts ``bytes`` objects out of ``size`` bytes at address ``buffer``, in one call."""
    count = len(offsets)
    offsets = np.ascontiguousarray(offsets, np.uint64)
    lengths = np.ascontiguousarray(lengths, np.uint64)
    if count and int((offsets + lengths).max()) > size:
        raise ValueError(f"a record ends beyond its buffer of {size} bytes")
    out: list[Any] = [None] * count
    if lib.lio_glue_bytes(
        id(out),
        ffi.cast("uint8_t *", buffer),
        _address(offsets, "uint64_t *"),
        _address(lengths, "uint64_t *"),
        count,
    ):
        raise MemoryError(f"no memory for {count} records")
    return out


# --- engine ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counters:
    """What an engine has read since it was opened."""

    requests: int
    bytes: int


class Ticket:
    """Requests under way. ``wait`` for them, or leave the ``with`` block to drop the rest.

    For one thread at a time. It is made before its requests begin, so that an exception at any
    moment (Ctrl-C) finds them owned: they end before the memory they fill is let go of, and
    before the engine.

    Args:
        engine: reads.
        keep: the owner of the memory that is filled.
    """

    def __init__(self, engine: Engine, keep: object = None) -> None:
        # Held by nothing else, a frame in a traceback included, and first of the attributes,
        # which die in this order; in a cycle __del__ comes before anything dies.
        self._out = ffi.gc(ffi.new("lio_ticket **"), lib.lio_ticket_drop)
        self._engine = engine.pointer
        self._keep = keep
        self._status = _Status(engine.path)

    @property
    def out(self) -> Any:
        """The ``lio_ticket **``, for the engine to fill."""
        if self._out is None:
            raise ValueError(f"{self._status.path}: these reads were given up")
        return self._out

    def poll(self, timeout_ms: int = 0) -> bool:
        """True when every byte is there; raises the first error."""
        code = lib.lio_ticket_wait(self.out[0], timeout_ms, self._status.error)
        if code == lib.LIO_PENDING:
            return False
        self._status.check(code)
        return True

    def wait(self, alive: Callable[[], None] | None = None) -> None:
        """Waits in slices; ``alive`` is called between them and may raise to give up."""
        while not self.poll(SLICE_MS):
            if alive is not None:
                alive()

    @property
    def times(self) -> tuple[float, float]:
        """When it was submitted and had its last byte, by ``time.monotonic``, in seconds.

        The same moment when all was there at once, or is not yet.
        """
        submitted, ended = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.lio_ticket_times(self.out[0], submitted, ended)
        return int(submitted[0]) / 1e9, int(ended[0]) / 1e9

    def close(self) -> None:
        """Drops what has not begun, waits for what has. May be called twice."""
        self._out = None

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Engine:
    """An open file and a way of reading it (csrc/engine.h).

    Args:
        path: the file.
        kind: "pread", "direct", "staged" or "mmap".
        depth: requests in flight, 1..256.
        opened: another name of the file, by which it is opened; errors name ``path``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str = "pread",
        depth: int = 8,
        *,
        opened: str | None = None,
    ) -> None:
        self.path = os.fspath(path)
        if "\0" in self.path:  # C would take the part before it for the whole
            raise ValueError(f"a path with a NUL byte: {self.path!r}")
        self.kind = kind
        self.depth = depth
        self._status = _Status(self.path)
        out = ffi.new("lio_engine **")
        self._status.check(
            lib.lio_engine_open(
                os.fsencode(self.path if opened is None else opened),
                kind.encode(),
                depth,
                out,
                self._status.error,
            )
        )
        self._pointer = ffi.gc(out[0], lib.lio_engine_close)

    @classmethod
    def memory(cls, content: bytes | bytearray, depth: int = 4) -> Engine:
        """The memory engine, for tests."""
        self = cls.__new__(cls)
        self.path, self.kind, self.depth = "<memory>", "memory", depth
        self._status = _Status(self.path)
        out = ffi.new("lio_engine **")
        held = ffi.from_buffer("uint8_t[]", content)
        self._status.check(
            lib.lio_engine_open_memory(held, len(content), depth, out, self._status.error)
        )
        self._pointer = ffi.gc(out[0], lambda p, _held=held: lib.lio_engine_close(p))
        return self

    def script(self, *, fail_every: int = 0, sys_errno: int = 0, delay_us: int = 0) -> None:
        """Memory engine only: make reads fail or dawdle (csrc/engine.h)."""
        lib.lio_engine_memory_script(self._pointer, fail_every, sys_errno, delay_us)

    @property
    def pointer(self) -> Any:
        """The ``lio_engine *``, for other rooms of this file."""
        if self._pointer is None:
            raise ValueError(f"{self.path}: the engine is closed")
        return self._pointer

    @property
    def alignment(self) -> int:
        """Bytes; 1 when any offset will do."""
        return int(lib.lio_engine_alignment(self.pointer))

    @property
    def fd(self) -> int:
        """The descriptor (borrowed)."""
        return int(lib.lio_engine_fd(self.pointer))

    def size(self) -> int:
        """The file's size in bytes, now."""
        out = ffi.new("uint64_t *")
        self._status.check(lib.lio_engine_size(self.pointer, out, self._status.error))
        return int(out[0])

    def cached_bytes(self) -> int | None:
        """Bytes of the file in the page cache now; None where the kernel cannot say."""
        out = ffi.new("uint64_t *")
        code = lib.lio_engine_cached(self.pointer, out, self._status.error)
        if code == lib.LIO_ERR_UNSUPPORTED:
            return None
        self._status.check(code)
        return int(out[0])

    def counters(self) -> Counters:
        out = ffi.new("lio_counters *")
        lib.lio_engine_counters(self.pointer, out)
        return Counters(requests=int(out.requests), bytes=int(out.bytes))

    def again(self, kind: str, depth: int) -> Engine:
        """Opens the same file once more, also when its name stands for another one by now.

        Raises:
            OSError, Error: it cannot be opened.
        """
        pointer = self.pointer  # keeps the descriptor open
        fd = int(lib.lio_engine_fd(pointer))
        try:
            return Engine(self.path, kind, depth, opened=f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # no /proc here
            other = Engine(self.path, kind, depth)
            if not os.path.samestat(os.fstat(fd), os.fstat(other.fd)):
                raise errors.Error(f"{self.path}: was replaced while it was opened") from None
            return other

    def submit(self, reads: npt.NDArray[Any], keep: object = None) -> Ticket:
        """Starts reads (an array of dtype ``READ``).

        Args:
            reads: their memory must outlive the ticket.
            keep: the owner of that memory; the ticket holds it.
        """
        reads = np.ascontiguousarray(reads, READ)
        ticket = Ticket(self, keep)
        status = _Status(self.path)
        status.check(
            lib.lio_engine_submit(
                self.pointer, _address(reads, "lio_read *"), len(reads), ticket.out, status.error
            )
        )
        return ticket

    def submit_plan(self, plan: Plan, address: int, keep: object = None) -> Ticket:
        """Starts the reads of a plan into the buffer at ``address``, owned by ``keep``."""
        reads = np.empty(len(plan.requests), READ)
        for field in ("offset", "length", "needed"):
            reads[field] = plan.requests[field]
        reads["into"] = plan.requests["buffer_offset"] + np.uint64(address)
        return self.submit(reads, keep)

    def populate(self, offset: int, length: int, piece: int = 4 << 20) -> Ticket:
        """Starts bringing bytes into the page cache, in pieces, filling no memory."""
        ticket = Ticket(self)
        ranges = np.array([(offset, length)], EXTENT)
        status = _Status(self.path)
        status.check(
            lib.lio_engine_populate(
                self.pointer,
                _address(ranges, "lio_extent *"),
                1,
                piece,
                ticket.out,
                status.error,
            )
        )
        return ticket

    def read_plan(self, plan: Plan, address: int, keep: object = None) -> tuple[float, float]:
        """Reads a plan and returns when every byte is there. ``keep``: see ``submit``.

        Returns:
            When it was submitted and had its last byte (``Ticket.times``).
        """
        with self.submit_plan(plan, address, keep) as ticket:
            ticket.wait()
            return ticket.times

    def read(self, offset: int, length: int) -> bytes:
        """Reads one range through memory of its own; for small, rare reads."""
        align = self.alignment
        start = offset // align * align
        span = -(-(offset + length - start) // align) * align
        memory = Memory(span)
        request = ffi.new("lio_read *")
        request.offset, request.length = start, span
        request.needed = offset + length - start
        request.into = ffi.cast("uint8_t *", memory.address)
        self._status.check(lib.lio_engine_read(self.pointer, request, 1, self._status.error))
        return bytes(ffi.buffer(ffi.cast("char *", memory.address + offset - start), length))

    def close(self) -> None:
        """Closes the file, or leaves it to the last call or ticket that still uses it.

        May be called twice.
        """
        self._pointer = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- format ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """What must be known of a file before its pages can be read (csrc/format.h)."""

    version: int
    page_size: int
    header_size: int
    env_flags: int
    page_limit: int


@dataclass(frozen=True, slots=True)
class Database:
    """One database record: the root of a tree and its counts (``MDB_db``)."""

    pad: int
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


@dataclass(frozen=True, slots=True)
class Meta:
    """The state of a database at one transaction (``MDB_meta``)."""

    layout: Layout
    free_db: Database
    main_db: Database
    map_size: int
    last_pgno: int
    txnid: int
    slot: int


_LAYOUT_FIELDS = tuple(Layout.__dataclass_fields__)
_DB_FIELDS = tuple(Database.__dataclass_fields__)


def _database(c: Any) -> Database:
    return Database(*(int(getattr(c, name)) for name in _DB_FIELDS))


def _c_layout(layout: Layout) -> Any:
    return ffi.new("lio_layout *", {name: getattr(layout, name) for name in _LAYOUT_FIELDS})


def _c_database(db: Database) -> Any:
    return ffi.new("lio_db *", {name: getattr(db, name) for name in _DB_FIELDS})


def _c_meta(meta: Meta) -> Any:
    return ffi.new(
        "lio_meta *",
        {
            "layout": _c_layout(meta.layout)[0],
            "free_db": _c_database(meta.free_db)[0],
            "main_db": _c_database(meta.main_db)[0],
            "map_size": meta.map_size,
            "last_pgno": meta.last_pgno,
            "txnid": meta.txnid,
            "slot": meta.slot,
        },
    )


def read_meta(engine: Engine, txnid: int | None = None) -> Meta:
    """Reads the meta pages and chooses the newest, or the one of ``txnid``.

    Raises:
        InvalidError, VersionMismatchError, CorruptedError, ShortReadError, OSError.
        LookupError: neither meta page holds ``txnid``.
    """
    out = ffi.new("lio_meta *")
    status = _Status(engine.path)
    wanted = NEWEST if txnid is None else txnid
    code = lib.lio_meta_read(engine.pointer, wanted, out, status.error)
    if code == lib.LIO_NOTFOUND:
        raise LookupError(f"{engine.path}: no meta page holds transaction {txnid}")
    status.check(code)
    return Meta(
        layout=Layout(*(int(getattr(out.layout, name)) for name in _LAYOUT_FIELDS)),
        free_db=_database(out.free_db),
        main_db=_database(out.main_db),
        map_size=int(out.map_size),
        last_pgno=int(out.last_pgno),
        txnid=int(out.txnid),
        slot=int(out.slot),
    )


def newest_txnid(engine: Engine, layout: Layout) -> int:
    """The newest transaction the meta pages know of now."""
    return _newest_txnid(engine, _c_layout(layout), _Status(engine.path))


def _newest_txnid(engine: Engine, layout: Any, status: _Status) -> int:
    out = ffi.new("uint64_t *")
    status.check(lib.lio_meta_newest(engine.pointer, layout, ffi.NULL, out, status.error))
    return int(out[0])


def meta_bytes(engine: Engine, layout: Layout) -> bytes:
    """Both meta pages as they stand now."""
    out = bytearray(2 * layout.page_size)
    status = _Status(engine.path)
    status.check(
        lib.lio_meta_newest(
            engine.pointer, _c_layout(layout), ffi.from_buffer(out), ffi.NULL, status.error
        )
    )
    return bytes(out)


# --- locate ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    """Checked pages of one level of a tree, in key order.

    Attributes:
        level: 0 is the root.
        leaf: these are leaf pages.
        pages: uint8, shape (count, page size); valid until the next step of the walk.
        pgnos: uint64, shape (count,); likewise.
    """

    level: int
    leaf: bool
    pages: npt.NDArray[np.uint8]
    pgnos: U64


class Walk:
    """Walks a database's tree chunk by chunk, all pages of a chunk in flight together."""

    def __init__(self, engine: Engine, meta: Meta, db: Database, chunk_pages: int = 0) -> None:
        self._engine = engine
        self._status = _Status(engine.path)
        self._page_size = meta.layout.page_size
        out = ffi.new("lio_walk **")
        self._status.check(
            lib.lio_walk_open(
                engine.pointer,
                _c_meta(meta),
                _c_database(db),
                chunk_pages,
                out,
                self._status.error,
            )
        )
        self._pointer = _owned(out[0], lib.lio_walk_close, engine.pointer)

    def __iter__(self) -> Iterator[Chunk]:
        chunk = ffi.new("lio_chunk *")
        while True:
            code = lib.lio_walk_next(self._pointer, SLICE_MS, chunk, self._status.error)
            if code == lib.LIO_PENDING:
                continue
            self._status.check(code)
            if not chunk.count:
                return
            count = int(chunk.count)
            pages = np.frombuffer(
                ffi.buffer(chunk.pages, count * self._page_size), np.uint8
            ).reshape(count, self._page_size)
            pgnos = np.frombuffer(ffi.buffer(chunk.pgnos, count * 8), np.uint64)
            yield Chunk(int(chunk.level), bool(chunk.leaf), pages, pgnos)

    def close(self) -> None:
        if self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            ffi.release(pointer)

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def leaf_extents(
    layout: Layout, chunk: Chunk, path: str
) -> tuple[Extents, npt.NDArray[np.uint32]]:
    """Decodes a chunk of leaves.

    Returns:
        The extents (dtype ``EXTENT``, key order), and the overflow pages each value owns
        (uint32; 0: it lies in the leaf).
    """
    c_layout = _c_layout(layout)
    pages = _address(chunk.pages, "uint8_t *")
    count = len(chunk.pgnos)
    entries = int(lib.lio_leaves_entries(c_layout, pages, count))
    extents = np.empty(entries, EXTENT)
    overflow = np.empty(entries, np.uint32)
    made = ffi.new("size_t *")
    status = _Status(path)
    status.check(
        lib.lio_leaves_extents(
            c_layout,
            pages,
            _address(chunk.pgnos, "uint64_t *"),
            count,
            _address(extents, "lio_extent *"),
            _address(overflow, "uint32_t *"),
            entries,
            made,
            status.error,
        )
    )
    return extents[: int(made[0])], overflow[: int(made[0])]


def find_database(engine: Engine, meta: Meta, name: bytes) -> Database:
    """The record of the named database ``name``, read from the main one.

    LMDB 1.0 ends names with a NUL byte, which is added here.

    Raises:
        LookupError: there is none.
        IncompatibleError: ``name`` is the key of a plain record.
        CorruptedError, ShortReadError, OSError.
    """
    out = ffi.new("lio_db *")
    status = _Status(engine.path)
    key = name + _name_end(meta.layout)
    code = lib.lio_db_find(engine.pointer, _c_meta(meta), key, len(key), out, status.error)
    if code == lib.LIO_NOTFOUND:
        text = name.decode(errors="backslashreplace")
        raise LookupError(f"{engine.path}: there is no database named '{text}'")
    status.check(code)
    return _database(out)


def _name_end(layout: Layout) -> bytes:
    """What ends the key of a named database in this data format."""
    return b"" if layout.version == 1 else b"\0"


def leaf_databases(layout: Layout, chunk: Chunk, path: str) -> list[tuple[bytes, Database]]:
    """The named databases whose records lie on a chunk of the main database's leaves.

    Names are as ``find_database`` takes them.
    """
    end = _name_end(layout)
    c_layout = _c_layout(layout)
    pages, pgnos = _address(chunk.pages, "uint8_t *"), _address(chunk.pgnos, "uint64_t *")
    page, index = ffi.new("uint32_t *"), ffi.new("uint32_t *")
    node, db = ffi.new("lio_node *"), ffi.new("lio_db *")
    status = _Status(path)
    found: list[tuple[bytes, Database]] = []
    while True:
        code = lib.lio_leaves_database(
            c_layout, pages, pgnos, len(chunk.pgnos), page, index, node, db, status.error
        )
        if code == lib.LIO_NOTFOUND:
            return found
        status.check(code)
        found.append((bytes(ffi.buffer(node.key, node.key_size)).removesuffix(end), _database(db)))


# --- provenance --------------------------------------------------------------------------

BLOCK_RECORDS_MAX = int(lib.LIO_BLOCK_RECORDS_MAX)
BLOCK_RAW_BYTES_MAX = int(lib.LIO_BLOCK_RAW_MAX)


class BlockForm(IntEnum):
    """How a block of a provenance file holds its extents (csrc/provenance.h)."""

    RUNS = lib.LIO_BLOCK_RUNS
    EXPLICIT = lib.LIO_BLOCK_EXPLICIT


@dataclass(frozen=True, slots=True)
class Block:
    """An encoded block: the extents of ``records`` consecutive records.

    Attributes:
        runs: stretches that one jump describes.
    """

    form: BlockForm
    records: int
    runs: int
    raw: bytes


def encode_block(layout: Layout, extents: Extents) -> Block:
    """Encodes as many leading ``extents`` (1 or more, dtype ``EXTENT``) as one block takes.

    Raises:
        ValueError: no extents, or one outside the file that ``layout`` describes.
    """
    extents = np.ascontiguousarray(extents, EXTENT)
    c_layout, size, status = _c_layout(layout), ffi.new("lio_block_size *"), _Status()
    at = _address(extents, "lio_extent *")
    status.check(lib.lio_block_measure(c_layout, at, len(extents), size, status.error))
    raw = ffi.new("uint8_t[]", int(size.raw_size))
    status.check(lib.lio_block_encode(c_layout, at, size, raw, status.error))
    return Block(BlockForm(size.form), int(size.count), int(size.runs), bytes(ffi.buffer(raw)))


def decode_block(layout: Layout, form: int, raw: bytes, records: int, path: str = "") -> Extents:
    """Decodes a block of exactly ``records`` extents (dtype ``EXTENT``).

    Raises:
        ProvenanceError: the bytes are no such block, or name bytes outside the file.
    """
    if not 0 < records <= BLOCK_RECORDS_MAX:
        raise errors.ProvenanceError(f"{path}: a block of {records} records is damaged")
    extents = np.empty(records, EXTENT)
    status = _Status(path)
    status.check(
        lib.lio_block_decode(
            _c_layout(layout),
            form,
            ffi.from_buffer("uint8_t[]", raw),
            len(raw),
            records,
            _address(extents, "lio_extent *"),
            status.error,
        )
    )
    return extents


# --- cursor ------------------------------------------------------------------------------

WANT_KEY = 1
WANT_VALUE = 2


class Move(IntEnum):
    """Where a cursor can be moved (``enum lio_move``)."""

    FIRST = 0
    FIRST_DUP = 1
    LAST = 2
    LAST_DUP = 3
    NEXT = 4
    NEXT_DUP = 5
    NEXT_NODUP = 6
    PREV = 7
    PREV_DUP = 8
    PREV_NODUP = 9
    CURRENT = 10
    MULTIPLE = 11
    NEXT_MULTIPLE = 12
    SET = 13
    SET_RANGE = 14
    BOTH = 15
    BOTH_RANGE = 16


class UnplacedError(Exception):
    """The move needs a cursor that stands somewhere."""


class NoDuplicatesError(Exception):
    """The move is for databases with duplicates."""


class EmptyKeyError(Exception):
    """No record has an empty key."""


def _owned(pointer: Any, close: Any, engines: Any) -> Any:
    """A pointer that is closed when nobody uses it any more, before its engines are.

    A call under way in another thread counts as use: so ``close()`` below drops the reference
    and leaves the rest to the count.
    """
    return ffi.gc(pointer, lambda p, _engines=engines: close(p))


class Pages:
    """The pages of one snapshot, cached (csrc/pages.h).

    Args:
        engine: kept alive.
        layout: of the file.
        cache_bytes: bound of the cache.
    """

    __slots__ = ("__weakref__", "_layout", "_pointer", "_status", "engine", "layout")

    def __init__(self, engine: Engine, layout: Layout, cache_bytes: int) -> None:
        self.engine, self.layout = engine, layout
        self._layout = _c_layout(layout)
        self._status = status = _Status(engine.path)
        out = ffi.new("lio_pages **")
        status.check(
            lib.lio_pages_open(engine.pointer, self._layout, cache_bytes, out, status.error)
        )
        self._pointer = _owned(out[0], lib.lio_pages_close, engine.pointer)
        forked.register(self)

    def _before_fork(self) -> None:
        lib.lio_pages_lock(self._pointer)

    def _after_fork_in_parent(self) -> None:
        lib.lio_pages_unlock(self._pointer)

    def _after_fork(self) -> None:
        lib.lio_pages_forked(self._pointer)

    def requests(self) -> int:
        """Reads that the engine has issued: unchanged when nothing was read since."""
        return self.engine.counters().requests

    @property
    def pointer(self) -> Any:
        """The ``lio_pages *``, for other rooms of this file."""
        return self._pointer

    def newest(self) -> int:
        """The newest transaction in the file, now."""
        return _newest_txnid(self.engine, self._layout, self._status)

    def parse_database(self, record: bytes) -> Database:
        """Decodes the record under which the main database keeps a named one."""
        out = ffi.new("lio_db *")
        status = _Status(self.engine.path)
        status.check(
            lib.lio_db_parse(_c_layout(self.layout), record, len(record), 0, out, status.error)
        )
        return _database(out)


class Cursor:
    """A position in one tree (csrc/cursor.h)."""

    __slots__ = ("_error", "_pages", "_pointer", "_status")

    def __init__(self, pages: Pages, db: Database) -> None:
        self._pages = pages
        self._status = _Status(pages.engine.path)
        self._error = self._status.error
        out = ffi.new("lio_cursor **")
        self._status.check(
            lib.lio_cursor_open(pages.pointer, _c_database(db), out, self._status.error)
        )
        self._pointer = _owned(out[0], lib.lio_cursor_close, pages.engine.pointer)

    @property
    def engine(self) -> Engine:
        return self._pages.engine

    def _failed(self, code: int) -> Exception:
        found = self._status.exception(code)
        if code == lib.LIO_ERR_UNPLACED:
            return UnplacedError(str(found))
        if code == lib.LIO_ERR_UNSUPPORTED:
            return NoDuplicatesError(str(found))
        if code == lib.LIO_ERR_ARGUMENT:
            return EmptyKeyError(str(found))
        return found

    def move(self, move: int, key: bytes = b"", value: bytes = b"") -> bool:
        """Moves; False when there is no such place.

        Raises:
            UnplacedError, NoDuplicatesError, EmptyKeyError: a move that cannot be.
            CorruptedError, ShortReadError, OSError: from the file.
        """
        code = lib.lio_cursor_move(
            self.pointer, move, key, len(key), value, len(value), ffi.NULL, self._error
        )
        if code == lib.LIO_OK:
            return True
        if code == lib.LIO_NOTFOUND:
            return False
        raise self._failed(code)

    def item(self, wanted: int) -> tuple[bytes, bytes]:
        """Key and value of where the last move ended; ``b""`` for what is not wanted."""
        cell: list[bytes] = [b"", b""]
        code = lib.lio_glue_item(self.pointer, wanted, id(cell), self._error)
        if code not in (lib.LIO_OK, lib.LIO_NOTFOUND):
            raise self._failed(code)
        return cell[0], cell[1]

    def find(self, key: bytes) -> bytes | None:
        """Moves to ``key`` and returns its (first) value, None when there is no such key."""
        cell: list[bytes] = [b"", b""]
        code = lib.lio_glue_move(
            self.pointer,
            lib.LIO_MOVE_SET,
            key,
            len(key),
            b"",
            0,
            WANT_VALUE,
            id(cell),
            self._error,
        )
        if code == lib.LIO_OK:
            return cell[1]
        if code == lib.LIO_NOTFOUND:
            return None
        raise self._failed(code)

    def holds_database(self) -> bool:
        """True when the current record describes a named database."""
        item = lib.lio_cursor_item(self.pointer)
        return bool(item != ffi.NULL and item.node_flags == lib.LIO_N_SUBDATA)

    def holds_duplicates(self) -> bool:
        """True when the current key has a page or tree of duplicates."""
        item = lib.lio_cursor_item(self.pointer)
        return bool(item != ffi.NULL and item.node_flags & lib.LIO_N_DUPDATA)

    def count(self) -> int:
        """Number of values of the current key; 0 when there is no current key."""
        out = ffi.new("uint64_t *")
        code = lib.lio_cursor_count(self.pointer, out, self._error)
        if code == lib.LIO_NOTFOUND:
            return 0
        if code != lib.LIO_OK:
            raise self._failed(code)
        return int(out[0])

    def scan(
        self,
        move: int,
        *,
        values: bool,
        advised: bool,
        dense: bool,
        block_bytes_max: int,
    ) -> Scan:
        """Reads the records from here on, in blocks."""
        options = ffi.new("lio_scan_options *")
        options.move, options.want_values, options.advised = move, values, advised
        options.dense = dense
        options.block_bytes_max = block_bytes_max
        return Scan(self, options)

    @property
    def pointer(self) -> Any:
        """The ``lio_cursor *``, for other rooms of this file."""
        if self._pointer is None:
            raise errors.Error("Attempt to operate on closed/deleted/dropped object.")
        return self._pointer

    def close(self) -> None:
        self._pointer = None


class Scan:
    """Records read ahead in blocks (csrc/scan.h)."""

    __slots__ = ("_cursor", "_engines", "_pointer", "_status")

    def __init__(self, cursor: Cursor, options: Any) -> None:
        self._cursor = cursor
        #: Held as long as the scan is.
        self._engines = [cursor.engine.pointer]
        self._status = _Status(cursor.engine.path)
        out = ffi.new("lio_scan **")
        self._status.check(lib.lio_scan_open(cursor.pointer, options, out, self._status.error))
        self._pointer = _owned(out[0], lib.lio_scan_close, self._engines)

    @property
    def pointer(self) -> Any:
        """The ``lio_scan *``."""
        if self._pointer is None:
            raise errors.Error("Attempt to operate on closed/deleted/dropped object.")
        return self._pointer

    def advance(self) -> int:
        """Makes the next block current; its number of records, 0 at the end."""
        count = ffi.new("size_t *")
        while True:
            code = lib.lio_scan_next(self.pointer, SLICE_MS, count, self._status.error)
            if code == lib.LIO_NOTFOUND:
                return 0
            if code != lib.LIO_PENDING:
                self._status.check(code)
                return int(count[0])

    def go_past(self, engine: Engine | None) -> None:
        """From the next block on ``engine`` reads what large blocks hold; None: as before."""
        pointer = ffi.NULL if engine is None else engine.pointer
        if engine is not None and pointer not in self._engines:
            self._engines.append(pointer)
        lib.lio_scan_go_past(self.pointer, pointer)

    def past(self) -> tuple[int, float]:
        """Bytes that such engines have read, and the seconds that they took, so far."""
        size, duration = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.lio_scan_past(self.pointer, size, duration)
        return int(size[0]), int(duration[0]) / 1e9

    def load(self, first: int, count: int) -> int:
        """Has up to ``count`` records from ``first`` on in memory; how many."""
        loaded = ffi.new("size_t *", count)
        self._status.check(lib.lio_scan_load(self.pointer, first, loaded, self._status.error))
        return int(loaded[0])

    def records(
        self, first: int, count: int, *, keys: bool, values: bool
    ) -> tuple[list[bytes], list[bytes]]:
        """Keys and values (empty lists where not wanted) of some of the loaded records."""
        key_list: list[Any] = [None] * count if keys else []
        value_list: list[Any] = [None] * count if values else []
        self._status.check(
            lib.lio_glue_scan(
                self.pointer,
                first,
                count,
                id(key_list) if keys else 0,
                id(value_list) if values else 0,
                self._status.error,
            )
        )
        return key_list, value_list

    def close(self) -> None:
        self._pointer = None


# --- plan --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanTotals:
    """Sums over a plan, in bytes and items (csrc/plan.h)."""

    buffer_bytes: int
    record_bytes: int
    needed_bytes: int
    waste_bytes: int
    regions: int
    requests: int


_TOTALS_FIELDS = tuple(PlanTotals.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Plan:
    """The reads for some records, and where each record will lie in the buffer.

    Attributes:
        requests: dtype ``REQUEST``.
        slices: uint64, one per extent in the caller's order: its first byte in the buffer.
        totals: sums.
    """

    requests: npt.NDArray[Any]
    slices: U64
    totals: PlanTotals


def make_plan(
    extents: Extents, *, gap_bytes_max: int, request_bytes_max: int, alignment: int
) -> Plan:
    """Plans the reads of ``extents`` (csrc/plan.h). Pure."""
    extents = np.ascontiguousarray(extents, EXTENT)
    options = ffi.new(
        "lio_plan_options *",
        {
            "gap_bytes_max": gap_bytes_max,
            "request_bytes_max": request_bytes_max,
            "alignment": alignment,
        },
    )
    out = ffi.new("lio_plan **")
    status = _Status()
    status.check(
        lib.lio_plan_make(
            _address(extents, "lio_extent *"), len(extents), options, out, status.error
        )
    )
    owner = ffi.gc(out[0], lib.lio_plan_free)
    totals = ffi.new("lio_plan_totals *")
    lib.lio_plan_get_totals(owner, totals)
    count = int(totals.requests)
    requests = np.frombuffer(
        ffi.buffer(lib.lio_plan_requests(owner), count * REQUEST.itemsize), REQUEST
    ).copy()
    slices = np.frombuffer(
        ffi.buffer(lib.lio_plan_slices(owner), len(extents) * 8), np.uint64
    ).copy()
    return Plan(
        requests, slices, PlanTotals(*(int(getattr(totals, name)) for name in _TOTALS_FIELDS))
    )


# --- window ------------------------------------------------------------------------------


class Window:
    """The control area of a window: who has filled, released, left, failed (csrc/window.h).

    Args:
        address: of ``Window.bytes(ranks, roots)`` bytes, 64-byte aligned; borrowed.
        ranks, roots: on this node.
        fresh: format it (one process, once) rather than check it.
    """

    LEFT = int(lib.LIO_WINDOW_LEFT)
    CLOSES = int(lib.LIO_WINDOW_CLOSES)
    FREE = int(lib.LIO_WINDOW_FREE)
    OPEN = int(lib.LIO_WINDOW_OPEN)

    __slots__ = ("_control", "ranks", "roots")

    def __init__(self, address: int, *, ranks: int, roots: int, fresh: bool) -> None:
        self.ranks, self.roots = ranks, roots
        self._control = ffi.cast("void *", address)
        status = _Status("shared window")
        make = lib.lio_window_format if fresh else lib.lio_window_check
        status.check(make(self._control, ranks, roots, status.error))

    @staticmethod
    def bytes(ranks: int, roots: int) -> int:
        """Size of a control area."""
        return int(lib.lio_window_bytes(ranks, roots))

    def publish(self, root: int, published: int) -> None:
        """Blocks [0, ``published``) of ``root`` are filled."""
        lib.lio_window_publish(self._control, root, published)

    def wait_released(
        self, root: int, team: range, released: int, timeout_ms: int = SLICE_MS
    ) -> bool | None:
        """Waits one slice at most for ``team`` (node ranks) to release ``released`` blocks.

        Returns:
            True when it has, False when it has not yet, None when all of the team have left.
        """
        code = lib.lio_window_wait_released(
            self._control, root, team.start, len(team), released, timeout_ms
        )
        return None if code == lib.LIO_NOTFOUND else bool(code == lib.LIO_OK)

    def wait_published(self, root: int, block: int) -> bool:
        """Waits one slice for ``block`` of ``root``; False when it is not there yet."""
        code = lib.lio_window_wait_published(self._control, root, block, SLICE_MS)
        return bool(code == lib.LIO_OK)

    def release(self, root: int, rank: int, released: int) -> None:
        """``rank`` needs blocks [0, ``released``) no more."""
        lib.lio_window_release(self._control, root, rank, released)

    def leave(self, root: int, rank: int, state: int) -> None:
        """``rank`` asks for nothing more. ``state``: ``LEFT`` or ``CLOSES``."""
        lib.lio_window_leave(self._control, root, rank, state)

    def keep(self) -> int:
        """Settles that the memory is not freed, unless the end is settled; returns the end."""
        return int(lib.lio_window_keep(self._control))

    def end(self) -> int:
        """``OPEN``, ``FREE``, or that the memory is kept."""
        return int(lib.lio_window_end(self._control))

    def wait_end(self, *, left: bool) -> bool:
        """Waits one slice until all have left (or, not ``left``, until the end is settled)."""
        code = lib.lio_window_wait_end(self._control, int(left), SLICE_MS)
        return bool(code == lib.LIO_OK)

    def abort(self, rank: int, message: str) -> None:
        """Ends all waits; the first message stays."""
        text = message.encode("utf-8", "replace").replace(b"\0", b"?")
        lib.lio_window_abort(self._control, rank, text)

    def aborted(self) -> tuple[int, str] | None:
        """(node rank, message) of whoever aborted."""
        if not lib.lio_window_aborted(self._control, ffi.NULL, ffi.NULL):
            return None
        rank = ffi.new("uint32_t *")
        message = ffi.new("char[]", int(lib.LIO_WINDOW_MESSAGE_MAX))
        lib.lio_window_aborted(self._control, rank, message)
        return int(rank[0]), ffi.string(message).decode("utf-8", "replace")


def populate(address: int, size: int) -> bool:
    """Backs memory now. False when this kernel cannot; OSError (ENOSPC) when there is none."""
    status = _Status("shared window")
    code = lib.lio_window_populate(ffi.cast("void *", address), size, status.error)
    if code == lib.LIO_ERR_UNSUPPORTED:
        return False
    status.check(code)
    return True


def detach(address: int, size: int, *, alias: bool) -> int:
    """Swaps shared pages for private ones with the same bytes, under whoever looks at them.

    Returns:
        With ``alias``, the address of a second mapping of the shared pages; else 0.
    """
    out = ffi.new("void **") if alias else ffi.NULL
    status = _Status("shared window")
    status.check(lib.lio_window_detach(ffi.cast("void *", address), size, out, status.error))
    return int(ffi.cast("uintptr_t", out[0])) if alias else 0
