"""Pages of a snapshot, and cursors over them (csrc/pages.h, cursor.h)."""

from __future__ import annotations

from lmdbio import errors
from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.engine import Engine
from lmdbio._core.format import (
    Database,
    Layout,
    Meta,
    database_of,
    database_to_c,
    layout_to_c,
    probe,
)
from lmdbio._core.owner import cell_of, held, make_object
from lmdbio._core.status import NEWEST, Status, own
from lmdbio.system import fork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

WANT_KEY = 1
WANT_VALUE = 2


class Move:
    """Where a cursor can be moved (``enum lio_move``), as numbers."""

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


#: Codes of pages that contradict the format, end beyond the file, or are of no kind that is read.
AT_ODDS = (lib.LIO_ERR_CORRUPT, lib.LIO_ERR_SHORT, lib.LIO_ERR_UNSUPPORTED)


class UnplacedError(Exception):
    """The move needs a cursor that stands somewhere."""


class NoDuplicatesError(Exception):
    """The move is for databases with duplicates."""


class EmptyKeyError(Exception):
    """No record has an empty key."""


class Pages:
    """The pages of one snapshot, cached (csrc/pages.h).

    Args:
        engine: Engine of the file; it stays open.
        layout: Layout of the file.
        cache_bytes: bound of the cache.
    """

    __slots__ = ("__weakref__", "_layout", "_pointer", "_status", "engine", "layout")

    def __init__(self, engine: Engine, layout: Layout, cache_bytes: int) -> None:
        self.engine, self.layout = engine, layout
        self._layout = layout_to_c(layout)
        self._status = status = Status(engine.path)
        cell = cell_of("lio_pages", "pages_close", engine.pointer)
        status.call(lib.lio_pages_open, engine.pointer, self._layout, cache_bytes, cell)
        self._pointer = held(cell)
        fork.register(self)

    def _before_fork(self) -> None:
        lib.lio_pages_lock(self._pointer)

    def _after_fork_in_parent(self) -> None:
        lib.lio_pages_unlock(self._pointer)

    def _after_fork(self) -> None:
        lib.lio_pages_forked(self._pointer)

    @property
    def pointer(self) -> Any:
        """The ``lio_pages *``, for other rooms of this file."""
        return self._pointer

    def key_at(self, pgno: int, index: int) -> bytes:
        """The key of record ``index`` on leaf ``pgno``.

        Raises:
            CorruptedError: there is none.
            OSError, ShortReadError: the page cannot be read.
        """
        into, size = ffi.new("uint8_t[]", self.layout.page_size), ffi.new("uint32_t *")
        Status(self.engine.path).call(lib.lio_pages_key, self._pointer, pgno, index, into, size)
        return bytes(ffi.buffer(into, size[0]))

    def parse_database(self, record: bytes) -> Database:
        """Decodes the record under which the main database keeps a named one."""
        out = ffi.new("lio_db *")
        Status(self.engine.path).call(
            lib.lio_db_parse, layout_to_c(self.layout), record, len(record), 0, out
        )
        return database_of(out)


class Snapshot:
    """Vouches for what is read of the pages of one snapshot (csrc/pages.h).

    Args:
        pages, meta: page cache and meta page of the snapshot.
        held: a reader slot keeps its pages from being overwritten.
    """

    __slots__ = ("_c", "_meta", "_pages")

    def __init__(self, pages: Pages, meta: Meta, *, held: bool) -> None:
        self._pages, self._meta = pages, meta
        self._c = ffi.new("lio_snapshot *")
        self._c.txnid, self._c.mark = meta.txnid, meta.mark
        self._c.seen, self._c.is_held = NEWEST, held

    @property
    def pointer(self) -> Any:
        """The ``lio_snapshot *``."""
        return self._c

    @property
    def pages(self) -> Pages:
        return self._pages

    def lose(self) -> None:
        """No slot holds it from now on."""
        self._c.is_held = 0

    def check(self, *, doubt: bool = False) -> None:
        """Makes sure that what was read up to now belongs to the snapshot.

        Args:
            doubt: whether something was read that the engine has not counted.

        Raises:
            MovedError: a writer may have overwritten it.
        """
        if doubt:
            lib.lio_snapshot_doubt(self._c)
        if not lib.lio_snapshot_intact(self._c, self._pages.pointer, False, True):
            self.verify()

    def is_intact_now(self) -> bool:
        """Whether one quick look shows that what was read up to now belongs to the snapshot.

        False: ``verify`` has to say.
        """
        return bool(lib.lio_snapshot_intact(self._c, self._pages.pointer, True, True))

    def judge(self) -> None:
        """Asks the same as ``verify`` of a read that failed; says nothing where it cannot."""
        try:
            self.verify()
        except errors.MovedError:
            raise
        except (OSError, errors.Error):  # what the read said is what is to be told
            pass

    def verify(self) -> None:
        """Asks both meta pages whether what was read up to now belongs to the snapshot.

        Raises:
            MovedError: a writer may have overwritten it.
        """
        txnid = int(self._c.txnid)
        newest, is_there = probe(self._pages.engine, self._meta)
        if newest <= txnid + 1 and not (is_there and newest >= txnid):
            raise errors.moved_error(
                f"{self._pages.engine.path}: snapshot {txnid} is gone: another file, of "
                f"transaction {newest}, was written over it; begin a new transaction"
            )
        if newest > txnid + 1:
            raise errors.moved_error(
                f"{self._pages.engine.path}: snapshot {txnid} is no longer protected: "
                f"transaction {newest} may have overwritten its pages; begin a new transaction"
                + (" (or open with lock=True)" if self._pages.engine.remote_file is None else "")
            )


class Cursor:
    """A position in one tree (csrc/cursor.h)."""

    __slots__ = ("_keep", "_pages", "_pointer", "_status")
    _keep: Any

    def __init__(self, pages: Pages, db: Database) -> None:
        self._pages = pages
        self._status = Status(pages.engine.path)
        cell = cell_of("lio_cursor", "cursor_close", pages.engine.pointer)
        self._status.call(lib.lio_cursor_open, pages.pointer, database_to_c(db), cell)
        self._pointer = held(cell)

    @classmethod
    def of(cls, pages: Pages, lookup: Any) -> Cursor:
        """The cursor of a position (``Stands._lookup``), which closes it."""
        self = cls.__new__(cls)
        self._pages, self._keep = pages, lookup
        self._status = Status(pages.engine.path)
        self._pointer = lib.lio_glue_lookup_cursor(id(lookup))
        return self

    @property
    def engine(self) -> Engine:
        return self._pages.engine

    def _failed(self, code: int) -> BaseException:
        found = self._status.exception(code)
        if code == lib.LIO_ERR_UNPLACED:
            return UnplacedError(str(found))
        if code == lib.LIO_ERR_UNSUPPORTED:
            return NoDuplicatesError(str(found))
        if code == lib.LIO_ERR_ARGUMENT:
            return EmptyKeyError(str(found))
        return found

    def place(self) -> tuple[int, int]:
        """The number of the leaf it stands on, and of the node on it.

        Raises:
            UnplacedError: it stands nowhere.
        """
        pgno, index = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        code = lib.lio_cursor_place(self._pointer, pgno, index, self._status.error)
        if code != lib.LIO_OK:
            raise self._failed(code)
        return int(pgno[0]), int(index[0])

    def move(self, move: int, key: bytes = b"", value: bytes = b"") -> bool:
        """Moves; False when there is no such place.

        Raises:
            UnplacedError, NoDuplicatesError, EmptyKeyError: a move that cannot be.
            CorruptedError, ShortReadError, OSError: from the file.
        """
        code = lib.lio_glue_move(self.pointer, move, key, len(key), value, len(value), own.error)
        if code == lib.LIO_OK:
            return True
        if code == lib.LIO_NOTFOUND:
            return False
        raise self._failed(code)

    def item(self, wanted: int) -> tuple[bytes, bytes]:
        """Key and value of where the last move ended; ``b""`` for what is not wanted."""
        cell: list[bytes] = [b"", b""]
        code = lib.lio_glue_item(self.pointer, wanted, id(cell), own.error)
        if code not in (lib.LIO_OK, lib.LIO_NOTFOUND):
            raise self._failed(code)
        return cell[0], cell[1]

    def find(self, key: bytes) -> bytes | None:
        """Moves to ``key`` and returns its (first) value, None when there is no such key."""
        return self.item(WANT_VALUE)[1] if self.move(Move.SET, key) else None

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
        code = lib.lio_cursor_count(self.pointer, out, own.error)
        if code == lib.LIO_NOTFOUND:
            return 0
        if code != lib.LIO_OK:
            raise self._failed(code)
        return int(out[0])

    @property
    def pointer(self) -> Any:
        """The ``lio_cursor *``, for other rooms of this file."""
        if self._pointer is None:
            raise errors.Error("Attempt to operate on closed/deleted/dropped object.")
        return self._pointer

    def close(self) -> None:
        self._pointer = None


class Failed:
    """Raises the exception of a failed search.

    Args:
        snapshot: Snapshot, asked first where pages seem damaged: they may be another's.
        status: Status that names the file, for messages.
        call: LMDB's name for the search, for messages.
    """

    __slots__ = ("_call", "_snapshot", "_status")

    def __init__(self, snapshot: Snapshot, status: Status, call: str) -> None:
        self._snapshot, self._status, self._call = snapshot, status, call

    def __call__(
        self, code: int, sys_errno: int, offset: int, wanted: int, got: int, reason: bytes
    ) -> None:
        if code == lib.LIO_ERR_ARGUMENT:  # an empty key
            raise errors.lmdb_error(self._call, errors.MDB_BAD_VALSIZE)
        if code in AT_ODDS and not self._snapshot.pointer.is_held:
            self._snapshot.judge()
        text = reason.decode("utf-8", "replace")
        raise self._status.exception_of(code, sys_errno, offset, wanted, got, text)


def fetcher(
    engine: Engine,
    snapshot: Snapshot,
    verify: Callable[[], None],
    waited: Callable[[int], None] | None = None,
) -> Callable[[int, int], bytes] | None:
    """A call that is quick while nothing waits: of (offset, length), the bytes there.

    Args:
        engine: Engine of the file; it stays open as long as the call is kept.
        snapshot: Snapshot, asked after each read.
        verify: function that makes sure, and raises, where the snapshot cannot say.
        waited: called after each read that waited for the storage, with its offset. None: nobody
            asks.

    Returns:
        None for an engine that does not take any offset.
    """
    if engine.alignment > 1:
        return None
    keep = engine.pointer, snapshot.pointer, snapshot.pages.pointer
    failed = Failed(snapshot, engine.new_status(), "read")
    addresses = id(keep), id(failed), id(verify), id(waited)
    found: Callable[[int, int], bytes] = make_object(
        lib.lio_glue_fetch, keep[0], keep[2], keep[1], *addresses
    )
    return found


def finder(
    cursor: Cursor,
    snapshot: Snapshot,
    *,
    as_key: Callable[[Any], bytes],
    buffers: bool,
    mapping: memoryview | None = None,
    waited: Callable[[int], None] | None = None,
) -> Callable[[Any, Any], Any]:
    """A search by key in one call that is quick while nothing waits, as ``Transaction.get``.

    Args:
        cursor: Cursor to move, kept open; positions (``Stands``) in its database come from it.
        snapshot: Snapshot, asked after each read.
        as_key: function that makes bytes of a key that is none, or raises.
        buffers: keys and values are read-only memoryviews.
        mapping: mapping of the engine (``Engine.mapping``), of which such views of large values
            are slices. None: each owns its bytes.
        waited: called after each search that waited for the storage, with the offset of the
            value, 0 if it is not known; what it raises, the search raises. None: nobody asks.

    Returns:
        Of (key, default): the first value of the key, or the default.
    """
    keep = cursor.pointer, snapshot.pointer
    failed = Failed(snapshot, cursor.engine.new_status(), "mdb_get")
    verify = snapshot.verify
    addresses = id(keep), id(as_key), id(failed), id(verify), id(mapping), id(waited)
    found: Callable[[Any, Any], Any] = make_object(lib.lio_glue_lookup, *keep, *addresses, buffers)
    return found
