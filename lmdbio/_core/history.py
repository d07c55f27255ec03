"""Where LMDB puts what is put to it, and in which order (csrc/replay.h, keys.h)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio._core._lmdbio import ffi, lib
from lmdbio._core.arrays import EXTENT, U64, Extents, pointer_to
from lmdbio._core.format import Database, database_of
from lmdbio._core.keys import KeyRun
from lmdbio._core.owner import cell_of
from lmdbio._core.status import Status
from lmdbio.system.frozen import dataclass


class SplitRule(IntEnum):
    """The pages that LMDB splits by the sizes of their nodes; its versions differ in it."""

    BY_PAGE = lib.LIO_SPLIT_BY_PAGE
    BY_TWENTY = lib.LIO_SPLIT_BY_TWENTY
    OLDEST = lib.LIO_SPLIT_OLDEST


@dataclass(frozen=True, slots=True)
class History:
    """How a database was made: every record put once, in transactions of one size.

    Attributes:
        version: LMDB's data format, 1 or 3.
        page_size: bytes.
        count: records.
        commit_every: records in each transaction; the last may have less.
        key_size, length: bytes of each key and value, where they are all equal.
        split: rule of the LMDB that wrote.
        append: whether records were put with ``MDB_APPEND``.
        named: whether the records are in a named database, the only one.
        apart: whether a transaction of its own made the named database.
        numbered: the keys, which were put in the order of their numbers (``KeyForm.PLAIN``,
            ``count`` of them); None: put in key order.
    """

    version: int
    page_size: int
    count: int
    commit_every: int
    key_size: int = 0
    length: int = 0
    split: SplitRule = SplitRule.BY_PAGE
    append: bool = False
    named: bool = False
    apart: bool = False
    numbered: KeyRun | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    Attributes:
        extents: extents of the records in key order (dtype ``EXTENT``); None where they are known
            to differ from those expected.
        right: records, as they were put, before the first that was seen not to be where it was
            expected: a value in overflow pages at once, one in a leaf when all was put.
        txnid, last_pgno: transaction and last page of the meta page, numbers.
        free_db, main_db: records of these databases; page counts, entries and roots only.
        db: the same of the database with the records.
    """

    extents: Extents | None
    right: int
    txnid: int
    last_pgno: int
    free_db: Database
    main_db: Database
    db: Database


_NEVER = 2**64 - 1
#: Records replayed in one call, some 20 ms: signals are looked at in between.
SLICE = 1 << 18
_NUMBERS = [name for name in History.__slots__ if name != "numbered"]
#: Of what kind the arrays of a history are, here and in C.
_ARRAYS: dict[str, tuple[type[np.unsignedinteger[Any]], str]] = {
    "key_sizes": (np.uint16, "uint16_t *"),
    "lengths": (np.uint64, "uint64_t *"),
    "order": (np.uint32, "uint32_t *"),
}


def replay(
    history: History,
    *,
    expected: Extents | None = None,
    key_sizes: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
    order: npt.ArrayLike | None = None,
) -> Replayed:
    """Computes where LMDB put the records of a database that was made in this way.

    ``key_sizes`` and ``order`` are what ``history.numbered`` returns.

    Args:
        expected: extents of the same records in the file, dtype ``EXTENT``, in key order; the
            replay ends as soon as it differs.
        key_sizes, lengths: bytes, in key order, shape (count,), where they are not all equal.
        order: the records by their places in key order, as they were put, shape (count,);
            None: None: they were put in key order.

    Raises:
        IncompatibleError: the history is one that is not modelled.
        ValueError: it is none; an array of another shape; an order that is no permutation.
    """
    count = history.count
    out = np.empty(max(count, 1), EXTENT)
    asked = _asked(history)
    arrays = {  # kept alive here
        name: _array(name, given, count)
        for name, given in (("key_sizes", key_sizes), ("lengths", lengths), ("order", order))
        if given is not None
    }
    for name, array in arrays.items():
        setattr(asked, name, pointer_to(array, _ARRAYS[name][1]))
    wanted = ffi.NULL
    if expected is not None:
        expected = np.ascontiguousarray(expected, EXTENT)
        if expected.shape != (count,):
            raise ValueError(f"expected must have shape ({count},), not {expected.shape}")
        wanted = pointer_to(expected, "lio_extent *")
    cell, status = cell_of("lio_replay", "replay_close"), Status()
    left, into = ffi.new("uint64_t *", count), pointer_to(out, "lio_extent *")
    status.call(lib.lio_replay_open, asked, wanted, into, cell)
    while left[0]:
        status.call(lib.lio_replay_run, cell[0], SLICE, left)
    end = ffi.new("lio_replayed *")
    lib.lio_replay_end(cell[0], end)
    right = int(end.right)
    return Replayed(
        out if right == count else None,
        right,
        int(end.txnid),
        int(end.last_pgno),
        database_of(end.free_db),
        database_of(end.main_db),
        database_of(end.db),
    )


def capacities(history: History) -> tuple[int, int]:
    """How many records of ``key_size`` and ``length`` a leaf page can hold, and how many children
    a branch page.
    """
    leaf, branch = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    lib.lio_replay_capacities(_asked(history), leaf, branch)
    return int(leaf[0]), int(branch[0])


def _asked(history: History) -> Any:
    return ffi.new("lio_history *", {name: getattr(history, name) for name in _NUMBERS})


def _array(name: str, given: npt.ArrayLike, count: int) -> npt.NDArray[Any]:
    array = np.ascontiguousarray(given, _ARRAYS[name][0])
    if array.shape != (count,):
        raise ValueError(f"{name} must have shape ({count},), not {array.shape}")
    return array


def settle_keys(
    db_flags: int, keys: bytes | bytearray, ends: U64, gone: npt.NDArray[np.uint8]
) -> tuple[U64, int | None]:
    """Reduce events of a database with ``db_flags`` to those that count.

    Args:
        keys: keys of all events, one after the other.
        ends: offset of the end of each event's key, bytes, uint64.
        gone: flag of each event, uint8: 1 where the key was deleted, 0 where it was put.

    Returns:
        Of each key that is left, in key order, the event in which it was put since it was last
        deleted (uint64); and one that puts a key that is there, None: none does.
    """
    settled, status = np.empty(len(ends), np.uint64), Status()
    count, again = ffi.new("size_t *"), ffi.new("uint64_t *")
    status.call(
        lib.lio_keys_settle,
        db_flags,
        ffi.from_buffer("uint8_t[]", keys),
        len(keys),
        pointer_to(ends, "uint64_t *"),
        pointer_to(gone, "uint8_t *"),
        len(ends),
        pointer_to(settled, "uint64_t *"),
        count,
        again,
    )
    return settled[: int(count[0])], None if again[0] == _NEVER else int(again[0])


def compare_keys(db_flags: int, a: bytes, b: bytes) -> int:
    """Below, at or above 0 as ``a`` comes before, is or comes after ``b`` in a database."""
    return int(lib.lio_key_compare(db_flags, a, len(a), b, len(b)))
