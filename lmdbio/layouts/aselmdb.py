"""Rows of ase's LMDB databases (``.aselmdb``), as OMat24 and OMol25 come in.

    nextid, deleted_ids: JSON, compressed    -> ids from 1 on, without the deleted ones
    keys that are ids, in decimal            -> the record of each id

Source: ase-db-backends, ``aselmdb.py``.
"""

from __future__ import annotations

import json
import zlib
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from lmdbio.layouts.layout import Keys, Selection, refuse
from lmdbio.layouts.numbered import Numbers, find_numbers
from lmdbio.system.frozen import dataclass

__all__ = ["Aselmdb"]

I64 = npt.NDArray[np.int64]

NEXT, DELETED, METADATA = b"nextid", b"deleted_ids", b"metadata"
#: Bytes of what is in one of these, decompressed: a list of millions of ids.
DECODED_BYTES_MAX = 1 << 28


@dataclass(frozen=True, slots=True)
class Aselmdb:
    """The layout of these databases: rows in the order of their ids."""

    name: str = "ase"

    @property
    def wants(self) -> str:
        """The keys by which it is known, in words."""
        return f"which has the key {NEXT!r}, compressed JSON, and decimal numbers"

    def find(self, keys: Keys) -> Selection | None:
        """Return the rows of a database; None: it has another layout."""
        following = _decoded(keys.value(NEXT)) if keys.has(NEXT) else None
        if not isinstance(following, int) or following < 1:
            return None
        metadata = (NEXT, *filter(keys.has, (DELETED, METADATA)))
        rows = keys.count - len(metadata)
        if rows and Numbers().number(keys.first) is None:
            return None
        return Selection(self.name, rows, metadata, order=partial(self._order, nextid=following))

    def _order(self, keys: Keys, nextid: int) -> I64:
        """Return the records of all rows.

        Raises:
            IncompatibleError: the keys are other ids than the file says.
        """
        deleted = _decoded(keys.value(DELETED))
        if not (deleted is None or isinstance(deleted, list)):
            raise refuse(keys.path, self.name, f"{DELETED!r} is no list of ids")
        ids_gone = (one for one in deleted or () if isinstance(one, int) and 0 < one < nextid)
        gone = np.unique(np.array([*ids_gone], np.int64))
        found = find_numbers(keys, [Numbers()])[0]
        if nextid - 1 > keys.count + len(gone):  # more ids than there can be
            why = (
                f"{NEXT!r} says that ids go up to {nextid - 1:,}, and there are "
                f"{len(found.numbers):,} rows, {len(gone):,} deleted ones"
            )
            raise refuse(keys.path, self.name, why)
        ids = np.setdiff1d(np.arange(1, nextid), gone)
        if np.array_equal(found.numbers, ids):
            return found.records
        missing, more = np.setdiff1d(ids, found.numbers), np.setdiff1d(found.numbers, ids)
        if len(missing):
            why = f"there is no key b'{missing[0]}', and {DELETED!r} does not say so"
        else:
            why = f"there is a key b'{more[0]}', which {NEXT!r} and {DELETED!r} do not tell of"
        raise refuse(keys.path, self.name, why)


def _decoded(value: bytes | None) -> Any:
    """Return what compressed JSON says; None: it is none."""
    if value is None:
        return None
    try:
        return json.loads(zlib.decompressobj().decompress(value, DECODED_BYTES_MAX))
    except (zlib.error, ValueError, RecursionError):
        return None
