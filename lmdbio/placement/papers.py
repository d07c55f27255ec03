"""papers: which node of a simulated cluster holds which records, in which tier. Pure.

    home        each node a part of the file, in its order, as far as its tiers have room
    first       what a node uses in the first epoch
    frequency   what a node uses most in all epochs, the fastest tier first

Each gives records by node and tier, in the order in which they are fetched. The rules by which
records are ranked, and tiers filled, are those of ``owners``. Nobody asks another one: all nodes
compute the same.

Over all nodes together no choice finds more than ``home``, not even what is used again soonest: in
an epoch each record is used once, so what is used in the next one has to be held while the epoch
ends, where no more than the capacity can be.

Source: DeepIO (home), LBANN's data store (home, first), locality-aware loading (home), the HDMLP
thesis, sections 3.2.2 and 4.3.7 (frequency).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lmdbio.placement.owners import cut, rank_by_uses

__all__ = ["ROUNDING", "Holdings", "NodeUses", "NodesRule", "first", "frequency", "home"]

I64 = npt.NDArray[np.int64]

#: Sums of sizes may be off by so much: a tier of ten records' size holds ten of them.
ROUNDING = 1e-9

#: Records of each node, by tier, in the order in which they are fetched.
Holdings = list[list[I64]]


class NodeUses(NamedTuple):
    """The records that the nodes of a cluster use.

    Attributes:
        access: records of all epochs, uint32 of shape (nodes, uses).
        epochs: number of epochs.
        sizes: size of each record.
    """

    access: npt.NDArray[np.uint32]
    epochs: int
    sizes: npt.NDArray[np.float64]


#: Rule from uses, and the capacities of a node's tiers in the unit of the sizes.
NodesRule: TypeAlias = "Callable[[NodeUses, Sequence[float]], Holdings]"


def home(uses: NodeUses, capacities: Sequence[float]) -> Holdings:
    """Give each node an even part of the records, in their order."""
    count, nodes = len(uses.sizes), len(uses.access)
    parts = (np.arange(i * count // nodes, (i + 1) * count // nodes) for i in range(nodes))
    return [_filled(part, uses, capacities) for part in parts]


def first(uses: NodeUses, capacities: Sequence[float]) -> Holdings:
    """Give each node what it uses in the first epoch, in that order."""
    of_epoch = uses.access[:, : uses.access.shape[1] // uses.epochs].astype(np.int64)
    return [_filled(row, uses, capacities) for row in of_epoch]


def frequency(uses: NodeUses, capacities: Sequence[float]) -> Holdings:
    """Give each node what it uses most often, the fastest tier first.

    Records that are used as often are taken in their own order; each tier fetches its records in
    the order of their first use.
    """
    held: Holdings = []
    for row in uses.access:
        used_first = np.zeros(len(uses.sizes), np.int64)
        used_first[row[::-1]] = np.arange(len(row))[::-1]  # of several, the earliest comes last
        ranked = rank_by_uses(np.bincount(row, minlength=len(uses.sizes)))
        parts = _filled(ranked, uses, capacities)
        held.append([part[np.argsort(used_first[part])] for part in parts])
    return held


def _filled(records: I64, uses: NodeUses, capacities: Sequence[float]) -> list[I64]:
    """Fill tiers with records; those that are left over are not held."""
    return cut(records, uses.sizes, [capacity * (1 + ROUNDING) for capacity in capacities])
