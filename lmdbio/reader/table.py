"""The table at the head of each slot: where each record of a block lies in the slot's data.

    row 0: offset, length | row 1: offset, length | ...

Both are uint64, bytes; offsets count from the first byte of the data. The root writes the table
before it publishes a block; every rank of its team reads its own rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lmdbio import _core

__all__ = ["ROW_BYTES", "write_table"]

#: Bytes of a row: offset and length, uint64 each.
ROW_BYTES = 16


def write_table(
    address: int, offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64]
) -> None:
    """Write the table of a slot.

    Args:
        address: of the slot.
        offsets: of each record in the slot's data, bytes.
        lengths: of each record, bytes.
    """
    rows = len(lengths)
    if not rows:
        return
    memory = _core.lend(address, rows * ROW_BYTES)
    table = np.frombuffer(memory, np.uint64).reshape(rows, 2)
    table[:, 0] = offsets
    table[:, 1] = lengths
