"""Meta pages and database records (csrc/format.h)."""

from __future__ import annotations

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.engine import Engine
from lmdbio._core.owner import make_object
from lmdbio._core.status import NEWEST, Status
from lmdbio.system.frozen import dataclass
from lmdbio.system.slim import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@dataclass(frozen=True, slots=True)
class Layout:
    """The facts of a file that reading its pages takes (csrc/format.h)."""

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
    mark: int = 0  #: tells states of one number apart (lio_meta_mark)


_LAYOUT_FIELDS: tuple[str, ...] = Layout.__match_args__
_DB_FIELDS: tuple[str, ...] = Database.__match_args__
# Each opening reads them all.
_layout_values, _db_values = attrgetter(*_LAYOUT_FIELDS), attrgetter(*_DB_FIELDS)


def database_of(c: Any) -> Database:
    return Database(*_db_values(c))


#: Made of values lately, and only read: each look at the meta pages asks for the one, and each
#: cursor that is opened for the other.
_layouts: dict[Layout, Any] = {}
_dbs: dict[Database, Any] = {}
MADE_MAX = 64


def layout_to_c(layout: Layout) -> Any:
    made = _layouts.get(layout)
    if made is None:
        if len(_layouts) >= MADE_MAX:
            _layouts.clear()
        made = ffi.new("lio_layout *", {name: getattr(layout, name) for name in _LAYOUT_FIELDS})
        _layouts[layout] = made
    return made


def database_to_c(db: Database) -> Any:
    made = _dbs.get(db)
    if made is None:
        if len(_dbs) >= MADE_MAX:
            _dbs.clear()
        made = _dbs[db] = ffi.new("lio_db *", {name: getattr(db, name) for name in _DB_FIELDS})
    return made


def meta_to_c(meta: Meta) -> Any:
    return ffi.new(
        "lio_meta *",
        {
            "layout": layout_to_c(meta.layout)[0],
            "free_db": database_to_c(meta.free_db)[0],
            "main_db": database_to_c(meta.main_db)[0],
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
    status = Status(engine.path)
    wanted = NEWEST if txnid is None else txnid
    code = lib.lio_meta_read(engine.pointer, wanted, out, status.error)
    if code == lib.LIO_NOTFOUND:
        raise LookupError(f"{engine.path}: no meta page holds transaction {txnid}")
    status.check(code)
    return Meta(
        layout=Layout(*_layout_values(out.layout)),
        free_db=database_of(out.free_db),
        main_db=database_of(out.main_db),
        map_size=int(out.map_size),
        last_pgno=int(out.last_pgno),
        txnid=int(out.txnid),
        slot=int(out.slot),
        mark=int(out.mark),
    )


def _metas(engine: Engine, layout: Layout, txnid: Any = ffi.NULL) -> bytearray:
    """Both meta pages as they stand now, and, in ``txnid``, the newest transaction by them."""
    pages, status = bytearray(2 * layout.page_size), Status(engine.path)
    into = ffi.from_buffer(pages)
    status.call(lib.lio_meta_newest, engine.pointer, layout_to_c(layout), into, txnid)
    return pages


def newest_txnid(engine: Engine, layout: Layout) -> int:
    """The newest transaction the meta pages know of now."""
    out = ffi.new("uint64_t *")
    _metas(engine, layout, out)
    return int(out[0])


def probe(engine: Engine, meta: Meta) -> tuple[int, bool]:
    """The newest transaction the meta pages know of now, and whether ``meta`` is still there:
    another file that has counted as far may have been written over it.
    """
    if engine.keeps_state:
        return meta.txnid, True
    return probe_whole(engine, meta)[:2]


class Probe:
    """The same as ``probe``, without waiting for it.

    Attributes:
        ticket: ticket of the read of both meta pages.
    """

    def __init__(self, engine: Engine, meta: Meta) -> None:
        import numpy as np

        from lmdbio._core.arrays import READ
        from lmdbio._core.memory import Memory

        self._path, self._meta = engine.path, meta
        size = 2 * meta.layout.page_size
        span = -(-size // engine.alignment) * engine.alignment
        self._memory = Memory(span)
        self._is_known = engine.keeps_state
        reads = np.array([(0, span, size, self._memory.address)], READ)
        if self._is_known:
            reads = reads[:0]
        self.ticket = engine.submit(reads, self._memory)

    def found(self) -> tuple[int, bool]:
        """Return what ``probe`` does, once the ticket has ended."""
        if self._is_known:
            return self._meta.txnid, True
        meta, out, status = self._meta, ffi.new("uint64_t *"), Status(self._path)
        pages = ffi.cast("uint8_t *", self._memory.address)
        layout = layout_to_c(meta.layout)
        status.call(lib.lio_meta_txnid, layout, pages, out)
        at = meta.slot * meta.layout.page_size + meta.layout.header_size
        return int(out[0]), int(lib.lio_meta_mark(pages + at)) == meta.mark


def probe_whole(engine: Engine, meta: Meta) -> tuple[int, bool, bytes]:
    """Return what ``probe`` does, and both meta pages."""
    layout, out = meta.layout, ffi.new("uint64_t *")
    pages = bytes(_metas(engine, layout, out))
    at = meta.slot * layout.page_size + layout.header_size
    body = ffi.from_buffer("uint8_t[]", pages)
    return int(out[0]), int(lib.lio_meta_mark(body + at)) == meta.mark, pages


def meta_bytes(engine: Engine, layout: Layout) -> bytes:
    """Both meta pages as they stand now."""
    return bytes(_metas(engine, layout))


#: Of a meta page, its header included: all that a commit changes there (csrc/format.h). As many as
#: C compares of each.
META_BYTES = int(lib.LIO_MONITOR_BYTES)


def monitor(engine: Engine, layout: Layout, raw: bytes) -> Callable[[], bool]:
    """Return a call that is quick: whether the meta pages are still as they were.

    Args:
        engine: Engine of the file; it stays open as long as the call is kept.
        layout: Layout of the file.
        raw: bytes of both meta pages, as ``meta_bytes`` gave them.

    Returns:
        A call that also says False where it would have to wait for the answer.
    """
    if engine.alignment > 1:
        return bool  # which is False
    known = raw[: layout.page_size + META_BYTES]
    keep = engine.pointer, known
    found: Callable[[], bool] = make_object(
        lib.lio_glue_monitor, keep[0], known, len(known), id(keep)
    )
    return found
