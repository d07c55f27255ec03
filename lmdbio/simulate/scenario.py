"""scenario: what is simulated: a cluster, a data set, a training. Pure.

The four scenarios of the HDMLP thesis (sections 4.1 and 5.2): a data set that fits a node's
memory, its tiers, the tiers of all nodes, and none of these. The thesis prints no numbers of
epochs; 10, 10, 5 and 5 give its lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.planning.environment import AMOUNT_MAX, AMOUNT_MIN, Curve, Environment, Tier
from lmdbio.planning.order import Epoch
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.shuffle import Shuffle

__all__ = ["SCENARIOS", "Data", "Located", "Scenario", "Training"]

F64 = npt.NDArray[np.float64]

#: M in a G; bytes in an M.
G, MIB = 1024.0, float(1 << 20)
#: Of all records in all epochs: the clock takes 16 bytes of memory for each.
USES_MAX = 1 << 30


@dataclass(frozen=True, eq=False, slots=True)
class Located:
    """The records of a file, and how a Reader reads them.

    Attributes:
        extents: extents of all records.
        used_bytes: number of bytes of the file that the records take.
        options: options of the reads.
    """

    extents: _core.Extents
    used_bytes: int
    options: PlanOptions

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.extents)

    @property
    def windows(self) -> Shuffle:
        """The order by windows that a Reader takes where it is told no sizes."""
        return Shuffle.named("window", self.used_bytes / len(self.extents))

    def sizes(self, seed: int) -> F64:  # noqa: ARG002 (as of Data)
        """Return the size of each record, M."""
        return np.asarray(self.extents["length"] / MIB, np.float64)

    def located(self, seed: int) -> Located:  # noqa: ARG002 (as of Data)
        """Return where the records lie."""
        return self


@dataclass(frozen=True, slots=True)
class Data:
    """Records whose sizes follow a normal distribution, of which only the positive part is taken.

    Attributes:
        count: records, at least 1.
        mean, deviation: parameters of the whole distribution, M; where much of it is not positive,
            the mean of the sizes is larger.
    """

    count: int
    mean: float
    deviation: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= USES_MAX:
            raise ValueError(f"there must be 1 to {USES_MAX:,} records, not {self.count:,}")
        if not AMOUNT_MIN <= self.mean <= AMOUNT_MAX:
            raise ValueError(
                f"the size of records must be {AMOUNT_MIN:g} to {AMOUNT_MAX:g} M, not {self.mean}"
            )
        if not 0 <= self.deviation <= AMOUNT_MAX:
            raise ValueError(f"a deviation of {self.deviation} M is none")

    def sizes(self, seed: int) -> F64:
        """Return the size of each record, M: the quantiles, in an order of the seed."""
        if not self.deviation:
            return np.full(self.count, self.mean)
        normal = NormalDist(self.mean, self.deviation)
        below = normal.cdf(0.0)
        knots = np.linspace(0.0, 1.0, min(self.count, 4096) + 1)
        middles = (knots[1:] + knots[:-1]) / 2
        table = np.array([normal.inv_cdf(below + (1 - below) * p) for p in middles.tolist()])
        at = (np.arange(self.count) + 0.5) / self.count
        sizes = np.asarray(np.interp(at, middles, table), np.float64)
        return sizes[Epoch(self.count, seed).samples(range(self.count))]

    def located(self, seed: int) -> Located:
        """Return where the records would lie, one after the other."""
        extents = np.empty(self.count, _core.EXTENT)
        extents["length"] = np.rint(self.sizes(seed) * MIB)
        ends = np.cumsum(extents["length"])
        extents["offset"] = ends - extents["length"]
        return Located(extents, int(ends[-1]), PlanOptions())


@dataclass(frozen=True, slots=True)
class Training:
    """How records are used.

    Attributes:
        epochs: whole ones.
        batch: records of all nodes in an iteration; the last ones of an epoch that make no batch
            are left out.
    """

    epochs: int
    batch: int


@dataclass(frozen=True)
class Scenario:
    """A training on a cluster.

    Attributes:
        environment, data, training: cluster, records and training (see their classes).
        seed: seed of sizes and orders.
    """

    environment: Environment
    data: Data | Located
    training: Training
    seed: int = 0

    def check(self) -> None:
        """Make sure that it can be simulated; its parts may be set in any order before.

        Raises:
            ValueError: it cannot, and why.
        """
        nodes, batch = self.environment.nodes, self.training.batch
        if batch < nodes or batch % nodes:
            raise ValueError(
                f"a batch of {batch} records cannot be shared evenly by {nodes} nodes"
            )
        if self.training.epochs < 1:
            raise ValueError(f"there must be at least 1 epoch, not {self.training.epochs}")
        if self.data.count < batch:
            raise ValueError(f"{self.data.count} records make no batch of {batch}")
        self.check_amounts(self.iterations * batch)

    def check_amounts(self, uses: int) -> None:
        """Make sure that there is something to simulate, and not too much.

        Args:
            uses: number of uses of records, repeats counted.

        Raises:
            ValueError: it is too much, or the records are all empty.
        """
        if uses > USES_MAX:
            raise ValueError(
                f"{uses:,} uses of records are more than can be simulated ({USES_MAX:,}): take "
                "fewer epochs or samples"
            )
        if isinstance(self.data, Located) and not self.data.extents["length"].any():
            raise ValueError(f"the {self.data.count} records have no bytes")

    @cached_property
    def sizes(self) -> F64:
        """The size of each record, M."""
        return self.data.sizes(self.seed)

    @property
    def epoch_iterations(self) -> int:
        """Iterations of an epoch."""
        return self.data.count // self.training.batch

    @property
    def iterations(self) -> int:
        """Iterations of all epochs."""
        return self.training.epochs * self.epoch_iterations

    @cached_property
    def access(self) -> npt.NDArray[np.uint32]:
        """Records that each node uses, one after the other: shape (nodes, uses)."""
        nodes, steps = self.environment.nodes, self.epoch_iterations
        own = self.training.batch // nodes
        access = np.empty((nodes, self.training.epochs, steps, own), np.uint32)
        places = np.arange(steps * self.training.batch)
        for number in range(self.training.epochs):
            found = Epoch(self.data.count, self.seed, number).samples(places)
            access[:, number] = found.reshape(steps, nodes, own).transpose(1, 0, 2)
        return access.reshape(nodes, -1)

    def bound_ends(self) -> F64:
        """Return when each iteration would end if all records were there."""
        nodes = self.environment.nodes
        each = [self.sizes[row].reshape(self.iterations, -1).sum(axis=1) for row in self.access]
        slowest = np.max(np.stack(each), axis=0) if nodes > 1 else each[0]
        return np.cumsum(slowest) / self.environment.compute


def small_cluster() -> Environment:
    """Return the cluster of the thesis' section 5.2.1."""
    memory = Curve.of({1: 16550, 2: 21164, 3: 21186, 4: 21415})
    return Environment(
        nodes=4,
        compute=100,
        preprocess=200,
        network=10_000,
        file_network=2_000,
        file_system=Curve.of({1: 66, 2: 86, 3: 129, 4: 146, 8: 326, 16: 324}),
        staging=Tier(1 * G, 2, memory),
        tiers=(
            Tier(50 * G, 2, memory),
            Tier(100 * G, 2, Curve.of({1: 66, 2: 86, 3: 129, 4: 146})),
        ),
    )


SCENARIOS = {
    1: Scenario(small_cluster(), Data(10_000, 0.027, 0.01), Training(10, 100)),
    2: Scenario(small_cluster(), Data(150_000, 1.0, 0.1), Training(10, 100)),
    3: Scenario(small_cluster(), Data(300_000, 2.0, 0.2), Training(5, 100)),
    4: Scenario(small_cluster(), Data(400_000, 3.0, 0.2), Training(5, 100)),
}
