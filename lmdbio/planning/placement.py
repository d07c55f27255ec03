"""placement: which node holds which records, in which tier, from the values alone. Pure.

    home        each node a part of the file, in its order, as far as its tiers have room
    first       what a node uses in the first epoch
    frequency   what a node uses most in all epochs, the fastest tier first

The first three give records by node and tier, in the order in which they are fetched; ``bounds``
are those of even parts by room, as ``homes`` gives them to the roots of a Reader, and ``keepers``
gives roots what they use first, and most. Nobody asks another one: all nodes compute the same.
``rounds`` has those that stream.

Over all nodes together no choice finds more than ``home``, not even what is used again soonest: in
an epoch each record is used once, so what is used in the next one has to be held while the epoch
ends, where no more than the capacity can be.

Source: DeepIO (home), LBANN's data store (home, first), locality-aware loading (home), the HDMLP
thesis, sections 3.2.2 and 4.3.7 (frequency).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["NOBODY", "ROUNDING", "Holdings", "bounds", "first", "frequency", "home"]

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

#: Sums of sizes may be off by so much: a tier of ten records' size holds ten of them.
ROUNDING = 1e-9

#: The holder of a record that no node holds.
NOBODY = -1

#: Records of each node, by tier, in the order in which they are fetched.
Holdings = list[list[I64]]


def home(sizes: F64, nodes: int, capacities: Sequence[float]) -> Holdings:
    """Give each node an even part of the records, in their order.

    Args:
        sizes: size of each record.
        nodes: number of nodes.
        capacities: capacities of a node's tiers, in the unit of the sizes.
    """
    count = len(sizes)
    bounds = [node * count // nodes for node in range(nodes + 1)]
    return [_split(np.arange(bounds[i], bounds[i + 1]), sizes, capacities) for i in range(nodes)]


def first(access: npt.NDArray[np.uint32], sizes: F64, capacities: Sequence[float]) -> Holdings:
    """Give each node what it uses in the first epoch, in that order.

    Args:
        access: records of the first epoch, shape (nodes, uses).
    """
    return [_split(row.astype(np.int64), sizes, capacities) for row in access]


def frequency(access: npt.NDArray[np.uint32], sizes: F64, capacities: Sequence[float]) -> Holdings:
    """Give each node what it uses most often, the fastest tier first.

    Records that are used as often are taken in their own order; each tier fetches its records in
    the order of their first use.

    Args:
        access: records of all epochs, shape (nodes, uses).
    """
    held: Holdings = []
    for row in access:
        records, used_first, uses = np.unique(row, return_index=True, return_counts=True)
        by_uses = np.lexsort((records, -uses))
        parts = _split(by_uses, sizes[records], capacities)
        held.append([records[p[np.argsort(used_first[p])]].astype(np.int64) for p in parts])
    return held


def bounds(size: int, capacities: Sequence[int], alignment: int) -> I64:
    """Return where the parts of a file end that nodes hold as they are, byte for byte.

    Node n holds bytes [bounds[n], bounds[n + 1]): each as much as its tiers have room for, or
    where all have more than enough, as large a share.

    Args:
        size: size of the file, bytes.
        capacities: capacity of each node, all its tiers together, bytes.
        alignment: bytes; all bounds but the file's end are multiples of it.
    """
    parts = -(-size // alignment)
    rooms = np.cumsum([0, *(capacity // alignment for capacity in capacities)]).tolist()
    # In whole units of the alignment, so that rounding exceeds no room.
    held = [parts * end // rooms[-1] if rooms[-1] > parts else end for end in rooms]
    return np.array([min(size, end * alignment) for end in held], np.int64)


def _split(records: I64, sizes: F64, capacities: Sequence[float]) -> list[I64]:
    """Cut a list where tiers are full; what is left is not held."""
    ends = np.cumsum(sizes[records])
    parts, at, before = [], 0, 0.0
    for capacity in capacities:
        end = int(np.searchsorted(ends, before + capacity * (1 + ROUNDING), side="right"))
        parts.append(records[at:end])
        before = float(ends[end - 1]) if end else 0.0
        at = end
    return parts
