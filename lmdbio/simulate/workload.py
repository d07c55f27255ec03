"""workload: what a job reads: records of a file, in batches, by ranks on nodes. Pure.

    count, value sizes -> offsets in the file -> ranges of bytes that a team reads for a block

Records lie in the file one after the other. A value of more than ``NODE_BYTES_MAX`` has pages of
its own, a smaller one lies inside a leaf.

Source: LMDBIO (ACM TOPC 2019), sections 3.1, 5.1 and 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.mode import AUTO, Mode
from lmdbio.planning.order import split_share
from lmdbio.planning.reads import PAGE_BYTES
from lmdbio.planning.schedule import ASSIGNMENTS, Assignment, Schedule
from lmdbio.system.amounts import refuse_unknown

__all__ = ["WORKLOADS", "Workload"]

I64 = npt.NDArray[np.int64]

#: A larger node has its value in pages of its own (LMDB's me_nodemax with pages of 4 KiB).
NODE_BYTES_MAX = 2038
#: The first of these pages has a header; so has each record inside a leaf a node and a pointer.
PAGE_HEADER_BYTES, NODE_HEADER_BYTES = 16, 10
#: The largest value inside a leaf.
INSIDE_BYTES_MAX = NODE_BYTES_MAX - NODE_HEADER_BYTES
#: Of job and data set; more are a mistake.
COUNT_MAX, RANKS_MAX = 10**12, 10**6
#: Iterations times nodes: a walk takes some 100 bytes of memory for each.
STEPS_MAX = 1 << 24
#: Bytes of all records: offsets are int64.
OFFSET_MAX = 1 << 63


@dataclass(frozen=True)
class Workload:
    """A job that reads and does not compute.

    Attributes:
        count: records in the data set.
        record_bytes: size of each value; ``lengths`` are given instead where they differ.
        batch: records of an iteration, over all ranks.
        ranks: number of ranks of the job.
        ranks_per_node: number of ranks on a node; the last node may have fewer.
        iterations: number of iterations.
        roots_per_node: number of roots, of modes that leave it to the job; ``AUTO``: by
            ``Mode.roots``.
        assignment: "blocked" or "strided" (``planning.schedule``).
        barrier: ranks wait for one another after each block, as training makes them.
        leaf_records: records whose values have pages of their own, to a leaf page.
        lengths: size of each value, bytes, shape (count,).

    Raises:
        ValueError: a value out of range; names it.
    """

    count: int
    record_bytes: int
    batch: int
    ranks: int
    ranks_per_node: int
    iterations: int
    roots_per_node: int = AUTO
    assignment: str = "blocked"
    barrier: bool = True
    #: Caffe's keys leave room for 115 to 155 in a leaf of 4 KiB.
    leaf_records: int = 128
    lengths: I64 | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, least, most in (
            ("count", 1, COUNT_MAX),
            ("record_bytes", 1, COUNT_MAX),
            ("batch", 1, COUNT_MAX),
            ("ranks", 1, RANKS_MAX),
            ("ranks_per_node", 1, RANKS_MAX),
            ("iterations", 1, COUNT_MAX),
            ("roots_per_node", AUTO, RANKS_MAX),
            ("leaf_records", 1, COUNT_MAX),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} must be {least} to {most:,}, not {value}")
        refuse_unknown("assignment", self.assignment, ASSIGNMENTS)
        if self.iterations * self.nodes > STEPS_MAX:
            raise ValueError(
                f"{self.iterations:,} iterations of {self.nodes:,} nodes are more than can be "
                f"simulated ({STEPS_MAX:,} together)"
            )
        largest = self.record_bytes if self.lengths is None else int(self.lengths.max(initial=0))
        if 2 * max(self.count, self.records) * (largest + PAGE_BYTES) > OFFSET_MAX:
            raise ValueError(
                f"{max(self.count, self.records):,} records of up to {largest:,} bytes are more "
                "than can be simulated"
            )
        if self.lengths is not None and len(self.lengths) != self.count:
            raise ValueError(f"{len(self.lengths)} lengths are not those of {self.count} records")

    @property
    def records(self) -> int:
        """Records that the job reads in all."""
        return self.batch * self.iterations

    @property
    def nodes(self) -> int:
        """Nodes of the job."""
        return -(-self.ranks // self.ranks_per_node)

    def weak(self, ranks: int, share: int) -> Workload:
        """Return the same records read by so many ranks, each with ``share`` of a batch.

        Source: LMDBIO, section 5.3.
        """
        batch = ranks * share
        return replace(self, ranks=ranks, batch=batch, iterations=max(1, self.records // batch))

    def roots(self, mode: Mode) -> int:
        """Return how many roots a full node has."""
        on_node = min(self.ranks, self.ranks_per_node)
        if mode.roots_per_node == AUTO and self.roots_per_node != AUTO:
            return min(self.roots_per_node, on_node)
        return mode.roots(on_node)

    def teams(self, roots: int) -> tuple[tuple[int, ...], ...]:
        """Return the ranks that each root reads for, node by node."""
        teams: list[tuple[int, ...]] = []
        for first in range(0, self.ranks, self.ranks_per_node):
            here = min(self.ranks_per_node, self.ranks - first)
            parts = min(roots, here)
            shares = (split_share(here, parts, part) for part in range(parts))
            teams += [tuple(first + rank for rank in share) for share in shares]
        return tuple(teams)

    def schedule(self, roots: int, block_iterations: int) -> Schedule:
        """Return who reads which records, by blocks of so many iterations."""
        return Schedule(
            self.count,
            self.batch,
            self.teams(roots),
            Assignment(self.assignment),
            block_iterations,
            iterations=self.iterations,
        )

    @cached_property
    def _size(self) -> int:
        """Bytes that each record takes up, where all have one size."""
        return int(_stored(np.array([self.record_bytes]))[0])

    @cached_property
    def _begins(self) -> I64:
        """Offsets of the records of several sizes, and where the last one ends."""
        assert self.lengths is not None
        return np.concatenate(([0], np.cumsum(_stored(self.lengths))))

    @property
    def total_bytes(self) -> int:
        """Bytes that all records take up."""
        return int(self.offsets(self.count))

    @property
    def needed_bytes(self) -> int:
        """Bytes of all records that the job reads, each as often as it reads it."""
        return int(self.offsets(self.records))

    def offsets(self, places: npt.ArrayLike) -> I64:
        """Return the bytes before each place of the endless sequence of records."""
        numbers = np.asarray(places, np.int64)
        if self.lengths is None:  # whatever the round
            return np.asarray(numbers * self._size, np.int64)
        rounds, numbers = np.divmod(numbers, self.count)
        return np.asarray(rounds * self._begins[-1] + self._begins[numbers], np.int64)

    def extents(self, records: npt.NDArray[np.uint64]) -> _core.Extents:
        """Return where some records lie in the file."""
        numbers = records.astype(np.int64)
        table = np.empty(len(numbers), _core.EXTENT)
        table["offset"] = begins = self.offsets(numbers)
        table["length"] = self.offsets(numbers + 1) - begins
        return table

    def scanned(self) -> _core.Extents:
        """Return what one process reads that finds all records of the job.

        Leaf pages, in which small values lie themselves: of large ones only every so many.
        """
        found = self.extents(np.arange(min(self.count, self.records), dtype=np.uint64))
        is_inside = np.full(len(found), self.record_bytes <= INSIDE_BYTES_MAX)
        if self.lengths is not None:
            is_inside = self.lengths[: len(found)] <= INSIDE_BYTES_MAX
        leaves = found[~is_inside][:: self.leaf_records].copy()
        leaves["length"] = 1
        return np.concatenate((found[is_inside], leaves))


def _stored(lengths: npt.NDArray[np.int64]) -> I64:
    """Return the bytes that values of these lengths take up in the file."""
    pages = -(-(lengths + PAGE_HEADER_BYTES) // PAGE_BYTES) * PAGE_BYTES
    inside = lengths + NODE_HEADER_BYTES
    return np.asarray(np.where(lengths <= INSIDE_BYTES_MAX, inside, pages), np.int64)


#: The paper's microbenchmark (section 5.1) on 128 nodes, with one root on each; and the same with
#: its larger images (section 3.2).
WORKLOADS = {
    "cifar10-large": Workload(512 * 18_432, 3_088, 18_432, 4_608, 36, 512, 1),
    "imagenet-large": Workload(128 * 18_432, 196_608, 18_432, 4_608, 36, 128, 1),
}
