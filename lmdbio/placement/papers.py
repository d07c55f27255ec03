"""papers: which node holds which records, in which tier, from the values alone. Pure.

    home        each node a part of the file, in its order, as far as its tiers have room
    first       what a node uses in the first epoch
    frequency   what a node uses most in all epochs, the fastest tier first

Each gives records by node and tier, in the order in which they are fetched. ``homes`` and
``keepers`` have the same for the roots of a Reader. Nobody asks another one: all nodes compute the
same.

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

__all__ = ["ROUNDING", "Holdings", "first", "frequency", "home"]

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

#: Sums of sizes may be off by so much: a tier of ten records' size holds ten of them.
ROUNDING = 1e-9

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
