"""field: the same bytes of every record of a batch, wanted one row after another in given memory.

record | offset | field | rest |      ->      | field of record 0 | field of record 1 | ...
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lmdbio import _core

__all__ = ["Field"]


class Field(NamedTuple):
    """A field, and the memory for it, which the caller owns until the batch is over.

    Attributes:
        offset: offset of the field, bytes from the start of each record.
        size: size of the field, bytes.
        address, room: address and size of the memory, bytes.
    """

    offset: int
    size: int
    address: int
    room: int

    def packed(self, extents: _core.Extents) -> _core.Packed | None:
        """Return where the fields of records lie in the file, and in the memory.

        Args:
            extents: extents of the records, dtype ``EXTENT``.

        Returns:
            None: a record is too short, or the memory is.
        """
        count = len(extents)
        total = count * self.size
        if not total or total > self.room:
            return None
        if int(extents["length"].min()) < self.offset + self.size:
            return None
        fields = np.empty(count, _core.EXTENT)
        fields["offset"] = extents["offset"] + np.uint64(self.offset)
        fields["length"] = self.size
        places = np.arange(0, total, self.size, dtype=np.uint64)
        lengths = np.full(count, self.size, np.uint64)
        return _core.Packed(fields, lengths, places, total, total)
