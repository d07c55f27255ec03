"""Gather what says how a database was made: the order that the caller gives, and its own traces.

order=  ->  GivenOrders  ->  PutOrder of a database --+
a walk  ->  keys, leaves, extents --------------------+->  Clues  ->  history, order, leaves
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio._core import Database, Extents, History, KeyFinder, Leaves, Meta
from lmdbio.errors import IncompatibleError
from lmdbio.provenance import Name
from lmdbio.provenance.put_order import KeyLog, KnownOrder, PutOrder, Settled
from lmdbio.provenance.values import DUPSORT
from lmdbio.provenance.writer_model import RECORDS_MAX, Evidence, find_history

__all__ = ["Clues", "GivenOrders"]

I64 = npt.NDArray[np.int64]


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


class Clues:
    """Gathers on a walk over a database what says how it was made.

    While there is hope for a history extents are held back: with one no table is made.

    Args:
        keys: KeyFinder, which follows all keys.
        order: order of the keys, where the caller gave it.
        hopeful: a history is wanted.
        many: keys may have many values.
    """

    def __init__(
        self, keys: KeyFinder, order: PutOrder | KnownOrder | None, *, hopeful: bool, many: bool
    ) -> None:
        self.keys, self.order = keys, order
        self._many, self._each = many, [np.empty(0, np.uint64)]
        self._hopeful = hopeful and not many
        self._extents: list[Extents] = []
        self._leaves: list[Leaves] = []
        self._count, self._length = 0, 0
        self._reason = "keys may have many values" if many else ""  # why there is no hope

    def add_leaves(self, leaves: Leaves, each: npt.NDArray[np.uint64]) -> None:
        """Add the next leaves of keys, and the values of each (empty: one)."""
        self._leaves.append(leaves)
        self._each.append(each)

    def each(self) -> npt.NDArray[np.uint64] | None:
        """Return how many values each key has; None: they have one each."""
        return np.concatenate(self._each) if self._many else None

    def add(self, extents: Extents) -> None:
        """Add the next records."""
        if not len(extents):
            return
        if not self._count:
            self._length = int(extents["length"][0])
        self._count += len(extents)
        self._extents.append(extents)
        shortest, longest = self.keys.sizes
        if self._count > RECORDS_MAX:
            self._reason = self._reason or f"more than {RECORDS_MAX:,} records"
        elif shortest != longest and not self.keys.may_count:
            self._reason = self._reason or "keys of different lengths"
        elif (extents["length"] != self._length).any():
            self._reason = self._reason or "values of different lengths"
        self._hopeful = self._hopeful and not self._reason

    def take(self, *, all_of_them: bool = False) -> list[Extents]:
        """Hand over the extents held back, once there is no hope any more; none are kept."""
        if self._hopeful and not all_of_them:
            return []
        taken, self._extents = self._extents, []
        return taken

    def leaves(self) -> Leaves | None:
        """Return all leaves; None: they do not tell where the records lie, or one is empty."""
        if self._many:
            return None
        every = np.concatenate(self._leaves) if self._leaves else np.empty(0, _core.LEAF)
        return every if every["records"].all() else None

    def history(self, meta: Meta, *, named: bool) -> tuple[History | None, str]:
        """Find how these records came to be where they are; or None, and why that is not known."""
        if named and meta.main_db.entries != 1:
            return None, "it is not the only database"
        if not self._hopeful or not self._count:
            return None, self._reason or "no records"
        extents = np.concatenate(self._extents)
        shortest, longest = self.keys.sizes
        size = shortest if shortest == longest else None
        return find_history(Evidence(meta, extents, size, named, self.keys.end()))
