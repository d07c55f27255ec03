"""environment: what nodes, tiers, network and file system give, as a value. Pure.

    Curve         rate by how many read at once, as measured, interpolated between
    Tier          memory or disk of a node: capacity, threads, rates
    Environment   nodes of tiers, a network, and the shared file system

Sizes are in M, rates in M per second; 1 G is 1,024 M. Both lie between a millionth and 10**15, so
that no time derived from them is endless or nothing.

Source: the HDMLP thesis, table 3.1, equations 3.4 to 3.7 and 4.1; ``file_request`` is ours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from lmdbio.system.frozen import dataclass

__all__ = ["AMOUNT_MAX", "AMOUNT_MIN", "Curve", "Environment", "Tier"]

#: Of sizes and rates, M.
AMOUNT_MIN, AMOUNT_MAX = 1e-6, 1e15
#: Of a tier; more are a mistake.
THREADS_MAX = 1024
#: Of a request, seconds.
REQUEST_MAX = 1e6
#: Of a cluster.
NODES_MAX = 100_000


def refuse_rate(rate: float, what: str) -> None:
    """Raise ValueError where a rate is none that can be."""
    if not AMOUNT_MIN <= rate <= AMOUNT_MAX:
        raise ValueError(f"{what} must be {AMOUNT_MIN:g} to {AMOUNT_MAX:g} M a second, not {rate}")


@dataclass(frozen=True, slots=True)
class Curve:
    """A rate by the number of those who use it at once.

    Attributes:
        points: (number, M per second), numbers ascending, at least one.

    Raises:
        ValueError: there is none, a number repeats, or a value is not positive.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        numbers = [number for number, _ in self.points]
        if not numbers or numbers != sorted(set(numbers)) or numbers[0] < 1:
            raise ValueError(f"a rate needs numbers from 1 on, ascending, not {numbers}")
        for _, rate in self.points:
            refuse_rate(rate, "a rate")

    @classmethod
    def of(cls, points: Mapping[int, float] | float) -> Curve:
        """A curve of measured points, or the same rate for any number."""
        if isinstance(points, Mapping):
            return cls(tuple(sorted((int(k), float(v)) for k, v in points.items())))
        return cls(((1, float(points)),))

    def at(self, number: int) -> float:
        """Return the rate of so many: measured, or on the line between its neighbours.

        Below the first and beyond the last point the rate is theirs.
        """
        numbers = [n for n, _ in self.points]
        after = bisect_left(numbers, number)
        if after == len(numbers):
            return self.points[-1][1]
        if numbers[after] == number or after == 0:
            return self.points[after][1]
        (n0, r0), (n1, r1) = self.points[after - 1], self.points[after]
        return r0 + (number - n0) * (r1 - r0) / (n1 - n0)


@dataclass(frozen=True, slots=True)
class Tier:
    """Memory or a disk of a node.

    Attributes:
        capacity: M.
        threads: number of threads that bring records there, and read them; at least 1.
        reads: rate of random reads, all threads together; writes are as quick.
    """

    capacity: float
    threads: int
    reads: Curve

    def __post_init__(self) -> None:
        if not 0 <= self.capacity <= AMOUNT_MAX:
            raise ValueError(f"a capacity must be 0 to {AMOUNT_MAX:g} M, not {self.capacity}")
        if not 1 <= self.threads <= THREADS_MAX:
            raise ValueError(f"threads must be 1 to {THREADS_MAX}, not {self.threads}")

    @property
    def read_rate(self) -> float:
        """Of all its threads together."""
        return self.reads.at(self.threads)


@dataclass(frozen=True, slots=True)
class Environment:
    """Nodes, all alike, that share a file system.

    Attributes:
        nodes: number of nodes, at least 1.
        compute: M per second that a node uses up (c).
        preprocess: M per second that a thread makes ready (beta).
        network: M per second between two nodes (b_c).
        file_network: M per second between a node and the file system (b_fs).
        file_system: rate of all its clients together, by their number (t).
        staging: the buffer out of which a node computes (tier 0).
        tiers: others, the fastest first (1 to J).
        file_request: seconds that a request takes the file system beside its bytes.
    """

    nodes: int
    compute: float
    preprocess: float
    network: float
    file_network: float
    file_system: Curve
    staging: Tier
    tiers: tuple[Tier, ...] = ()
    file_request: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX:
            raise ValueError(f"there must be 1 to {NODES_MAX} nodes, not {self.nodes}")
        for name in ("compute", "preprocess", "network", "file_network"):
            refuse_rate(getattr(self, name), name)
        if not 0 <= self.file_request <= REQUEST_MAX:
            raise ValueError(f"a request takes 0 to {REQUEST_MAX:g} s, not {self.file_request}")

    def file_rate(self, clients: int) -> float:
        """M per second that one of so many clients, at least 1, gets from it (equation 3.5)."""
        return min(self.file_network, self.file_system.at(clients) / clients)

    def peer_rate(self, tier: Tier) -> float:
        """M per second that one thread reads from a tier of another node.

        It has all of the tier's rate, as a thread on that node has: so the thesis' figures need
        it, though equations 3.6 and 3.7 divide the rate by the threads.
        """
        return min(self.network, tier.read_rate)

    @property
    def staging_rate(self) -> float:
        """M per second that a thread makes ready in the staging buffer (equation 3.4)."""
        return min(self.preprocess, self.staging.read_rate / self.staging.threads)
