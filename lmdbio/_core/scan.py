"""Records read ahead of a cursor, in blocks (csrc/scan.h)."""

from __future__ import annotations

from lmdbio import errors
from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.cursor import Cursor, Failed, Snapshot
from lmdbio._core.engine import Engine
from lmdbio._core.owner import cell_of, held, make_object
from lmdbio._core.status import SLICE_MS, Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Scan:
    """The records from a cursor on, read ahead in blocks (csrc/scan.h)."""

    __slots__ = ("_cursor", "_engines", "_pointer", "_status")

    def __init__(
        self,
        cursor: Cursor,
        move: int,
        *,
        values: bool,
        advised: bool,
        dense: bool,
        block_bytes_max: int,
        sweep_bytes_max: int,
    ) -> None:
        options = ffi.new("lio_scan_options *")
        options.move, options.want_values, options.advised = move, values, advised
        options.dense = dense
        options.block_bytes_max, options.sweep_bytes_max = block_bytes_max, sweep_bytes_max
        self._cursor = cursor
        #: Held as long as the scan is.
        self._engines = [cursor.engine.pointer]
        self._status = Status(cursor.engine.path)
        cell = cell_of("lio_scan", "scan_close", self._engines)
        self._status.call(lib.lio_scan_open, cursor.pointer, options, cell)
        self._pointer = held(cell)

    @property
    def path(self) -> str:
        """The data file."""
        return self._status.path

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

    def bypass(self, engine: Engine | None) -> None:
        """From the next block on ``engine`` reads what large blocks hold; None: as before."""
        pointer = ffi.NULL if engine is None else engine.pointer
        if engine is not None and pointer not in self._engines:
            self._engines.append(pointer)
        lib.lio_scan_bypass(self.pointer, pointer)

    def direct_reads(self) -> tuple[int, float]:
        """Bytes that such engines have read, and the seconds that they took, so far."""
        size, duration = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.lio_scan_bypassed(self.pointer, size, duration)
        return int(size[0]), int(duration[0]) / 1e9

    def record(self, index: int, wanted: int) -> tuple[bytes, bytes]:
        """Key and value of one record of the block; ``b""`` for what is not wanted."""
        cell: list[bytes] = [b"", b""]
        status = self._status
        status.call(lib.lio_glue_record, self.pointer, index, wanted, id(cell))
        return cell[0], cell[1]

    def settle(self, cursor: Cursor, number: int, key: bytes, value: bytes, *, both: bool) -> None:
        """Puts the cursor from which it began on the record last handed out, which has this key.

        Args:
            number: number of this record, counted from 1 since the scan began.
            both: keys may have many values, and this one has ``value``.

        Raises:
            CorruptedError, ShortReadError, OSError: from the file; the cursor stays where it was.
        """
        self._status.call(
            lib.lio_scan_settle,
            self.pointer,
            cursor.pointer,
            number,
            both,
            key,
            len(key),
            value,
            len(value),
        )

    def close(self) -> None:
        self._pointer = None


if TYPE_CHECKING:

    class _Items:
        """The part of ``Items`` that is C."""

        _cursor: Any  #: of ``_walk``
        _move: int
        _wanted: int
        _steps: int  #: since the last scan
        _scan_after: int
        _is_started: bool  #: an item has been handed out
        _has_waited: bool  #: one of the steps had to wait
        _has_stalled: bool  #: at its last step, which is to be made again before a scan begins
        _is_advancing: bool  #: a thread is in ``advance``: the cursor is not stepped meanwhile

        def __iter__(self) -> Iterator[Any]: ...

        def __next__(self) -> Any: ...

        def _walk(self, cursor: Any, move: int, wanted: int, scan_after: int) -> None:
            """Hand out records from ``cursor`` on.

            Args:
                cursor: position (``Stands``); the item where it stands is handed out first.
                move: kind of each step (``Move``).
                wanted: ``WANT_KEY``, ``WANT_VALUE`` or both.
                scan_after: number of steps, with a wait among them, before ``advance`` is called.
            """

else:
    _Items = make_object(lib.lio_items_type)


class Items(_Items):
    """An iterator over the records from a cursor on (lmdbio/_core/glue/items.h).

    ``next`` gives key, value or both in a tuple, from the block of a scan or by a step of the
    cursor; it calls ``advance``, without arguments, where neither can be, and gives what that
    returns.
    """

    __slots__ = ()

    def begin(
        self,
        scan: Scan,
        snapshot: Snapshot,
        *,
        buffers: bool,
        mapping: memoryview | None,
    ) -> None:
        """Hands out records of ``scan``, once there is a block.

        Args:
            scan: Scan to hand out; kept open.
            snapshot: Snapshot, asked after each read.
            buffers, mapping: arguments of ``finder`` of the same names.
        """
        keep = scan.pointer, snapshot.pointer
        failed = Failed(snapshot, Status(scan.path), "mdb_cursor_get")
        verify = snapshot.verify
        lib.lio_items_begin(
            id(self), *keep, id(keep), id(failed), id(verify), id(mapping), buffers
        )

    def block(self, count: int) -> None:
        """Hands out the ``count`` records of the scan's block, which has just become current.

        0, before the scan goes on: what a thread fails to read from now on does not come again.
        """
        lib.lio_items_block(id(self), count)

    def left(self) -> int:
        """How many of them are not yet handed out."""
        return int(lib.lio_items_left(id(self)))

    def end(self) -> None:
        """Hands out nothing more, and lets go of the scan."""
        lib.lio_items_end(id(self))
