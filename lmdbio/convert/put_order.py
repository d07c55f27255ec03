"""Find the order in which the records of a database were put.

    puts and deletions -> KeyLog --+
    a list of keys -------^        +-> PutOrder -> records, as they were put
    keys of a walk ----------------+

    order= of convert -> GivenOrders -> the PutOrder of each database

LMDB keeps no such order. The program that wrote the keys can tell it, and is believed when its
puts and deletions leave every key of the tree, and no other.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import Database, Layout
from lmdbio.errors import IncompatibleError
from lmdbio.provenance import Name
from lmdbio.provenance.values import DUPSORT

__all__ = ["GivenOrders", "KeyLog", "KnownOrder", "PutOrder"]

I64 = npt.NDArray[np.int64]


class KeyLog:
    """Keys of one database that were put and deleted, one after the other.

    Some 4 bytes an event more than the keys themselves, once they are packed; some 50 until then.
    """

    __slots__ = ("_gone", "_is_cleared", "_keys", "_latest", "_sizes", "put")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._keys, self._sizes = bytearray(), array("I")
        self._gone = array("Q")  # the events that are deletions
        self._is_cleared = False
        self._latest: list[bytes] = []
        #: Notes that a key is there, put now or left as it was. Called with each record.
        self.put = self._latest.append
        for key in keys:
            self.put(key)
        self.pack()

    def pack(self) -> None:
        """Pack the latest keys, which take the room of their bytes from now on."""
        self._keys += b"".join(self._latest)
        self._sizes.extend(map(len, self._latest))
        self._latest.clear()

    def __len__(self) -> int:
        return len(self._sizes) + len(self._latest)

    def delete(self, key: bytes) -> None:
        """Note that a key is gone."""
        self._gone.append(len(self))
        self.put(key)

    def clear(self) -> None:
        """Note that all keys are gone."""
        self._keys, self._sizes, self._gone = bytearray(), array("I"), array("Q")
        self._latest.clear()
        self._is_cleared = True

    def extend(self, later: KeyLog) -> None:
        """Append the events of a log that was written after this one."""
        if later._is_cleared:
            self.clear()
        self.pack()
        later.pack()
        events = len(self)
        self._gone.extend(events + event for event in later._gone)
        self._keys += later._keys
        self._sizes.extend(later._sizes)

    def key(self, event: int) -> bytes:
        """Return the key of an event."""
        start = sum(self._sizes[:event])
        return bytes(self._keys[start : start + self._sizes[event]])

    def settle(self, db_flags: int) -> Settled:
        """Return the keys that are left, in the order of a database with ``db_flags``."""
        self.pack()
        ends = np.cumsum(np.array(self._sizes, np.uint32), dtype=np.uint64)
        gone = np.zeros(len(ends), np.uint8)
        gone[np.array(self._gone, np.int64)] = 1
        left, repeat = _core.settle_keys(db_flags, self._keys, ends, gone)
        repeated = None if repeat is None else self.key(repeat)
        return Settled(self._keys, ends, left.astype(np.int64), repeated)


class Settled:
    """Keys in the order of their database, and when each was put.

    Args:
        keys: keys of all events, one after the other.
        ends: offset of the end of each event's key.
        events: number of the event in which each was put, int64.
        repeated: a key that was put when it was there; None: there is none.
    """

    def __init__(
        self,
        keys: bytearray,
        ends: npt.NDArray[np.uint64],
        events: I64,
        repeated: bytes | None,
    ) -> None:
        self._keys, self.events, self.repeated = keys, events, repeated
        self._stops = ends[events].astype(np.int64)
        begins = np.concatenate([np.zeros(1, np.uint64), ends])
        self._starts = begins[events].astype(np.int64)

    def __len__(self) -> int:
        return len(self.events)

    def keys(self, start: int, stop: int) -> list[bytes]:
        """Return keys ``start`` to ``stop`` (exclusive); fewer, where there are fewer."""
        pairs = zip(
            self._starts[start:stop].tolist(), self._stops[start:stop].tolist(), strict=True
        )
        return [bytes(self._keys[at:end]) for at, end in pairs]


class PutOrder:
    """Holds the keys that were put against those of a walk, and gives their order.

    Args:
        settled: the keys that should be there.
        db_flags: flags of the database.
        where: file and database, for messages.
    """

    def __init__(self, settled: Settled, db_flags: int, where: str) -> None:
        self._settled, self._db_flags, self._where = settled, db_flags, where
        self._seen = 0
        self._why = ""

    def add(self, layout: Layout, chunk: _core.Chunk, path: str) -> None:
        """Compare the next keys of the database."""
        found = _core.leaf_keys(layout, chunk, path)
        wanted = self._settled.keys(self._seen, self._seen + len(found))
        self._seen += len(found)
        if found != wanted and not self._why:
            pairs = enumerate(zip(found, wanted, strict=False))
            self._differs(found, wanted, next((i for i, (a, b) in pairs if a != b), len(wanted)))

    def _differs(self, found: list[bytes], wanted: list[bytes], at: int) -> None:
        if at < len(wanted) and _core.compare_keys(self._db_flags, wanted[at], found[at]) < 0:
            self._why = f"has no key {wanted[at]!r}, which the order names"
        else:
            self._why = f"has a key {found[at]!r}, which the order does not name"

    def end(self) -> I64:
        """Return the records as they were put, int64; all keys were added.

        Raises:
            IncompatibleError: the order does not name each key, and no other.
        """
        if self._seen < len(self._settled) and not self._why:
            more = self._settled.keys(self._seen, self._seen + 1)[0]
            self._why = f"has no key {more!r}, which the order names"
        if self._why:
            raise IncompatibleError(f"{self._where} {self._why}")
        return np.argsort(self._settled.events).astype(np.int64)


class KnownOrder:
    """Records as they were put, given by their numbers; used as ``PutOrder``.

    Args:
        order: int64, shape (count,).
        where: file and database, for messages.
    """

    def __init__(self, order: I64, where: str) -> None:
        self._order, self._where, self._seen = order, where, 0

    def add(self, layout: Layout, chunk: _core.Chunk, path: str) -> None:
        """Count the next keys of the database."""
        self._seen += int(_core.leaves_of(layout, chunk)["records"].sum())

    def end(self) -> I64:
        """Return the order.

        Raises:
            IncompatibleError: it is not one of so many records.
        """
        if self._seen != len(self._order):
            raise IncompatibleError(
                f"{self._where} has {self._seen:,} keys, and the order {len(self._order):,}"
            )
        return self._order


class GivenOrders:
    """The order in which records were put, as far as the caller of ``convert`` gives it.

    Args:
        order: argument ``order`` of ``convert``.
    """

    def __init__(self, order: Iterable[bytes] | Mapping[Name, KeyLog | I64] | None) -> None:
        self._logs = order if isinstance(order, Mapping) else {}
        #: Of the one database that is described, whichever that is.
        self.log = None if order is None or isinstance(order, Mapping) else KeyLog(order)
        self._settled: dict[int, Settled] = {}

    def of(self, name: Name, db: Database, where: str) -> PutOrder | KnownOrder | None:
        """Return the order of one database's records; None: the caller gives none.

        Raises:
            IncompatibleError: it names a key twice.
        """
        if self.log is None:
            # Where keys have many values a log of puts does not tell the order of their values.
            log = None if db.flags & DUPSORT else self._logs.get(name)
            if log is None or isinstance(log, KeyLog):
                return None if log is None else PutOrder(log.settle(db.flags), db.flags, where)
            return KnownOrder(log, where)
        if db.flags not in self._settled:  # the main database's, and that of the one in it
            self._settled[db.flags] = self.log.settle(db.flags)
        settled = self._settled[db.flags]
        if settled.repeated is not None:
            raise IncompatibleError(f"{where}: the order names key {settled.repeated!r} twice")
        return PutOrder(settled, db.flags, where)
