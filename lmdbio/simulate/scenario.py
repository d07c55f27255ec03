"""scenario: what is simulated: a cluster, a data set, a training; and how papers are read. Pure.

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

from lmdbio.planning.environment import AMOUNT_MAX, AMOUNT_MIN, Curve, Environment, Tier
from lmdbio.planning.order import Epoch

__all__ = [
    "AUTHORS",
    "PHYSICAL",
    "SCENARIOS",
    "SEMANTICS",
    "Data",
    "Measured",
    "Scenario",
    "Semantics",
    "Training",
]

F64 = npt.NDArray[np.float64]

#: M in a G.
G = 1024.0
#: Of all records in all epochs: the clock takes 16 bytes of memory for each.
USES_MAX = 1 << 30


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


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """The records of a real data set.

    Attributes:
        given: the size of each, M, float64 of shape (count,).
    """

    given: F64

    @property
    def count(self) -> int:
        """Records."""
        return len(self.given)

    def sizes(self, seed: int) -> F64:  # noqa: ARG002 (as of Data)
        """Return the size of each record, M."""
        return self.given


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


@dataclass(frozen=True, slots=True)
class Semantics:
    """How a paper is read where its text leaves a choice, or its figures need another one.

    Attributes:
        name: name by which users ask for it.
        divided: threads share a tier's rate, as equations 3.6 and 3.7 print; else each has all.
        all_are_clients: whether all threads are clients of the file system, at any moment; else
            those whose latest known read began then or later.
        locality_tier: tier where locality-aware loading holds records: "memory" or "disk".
        shared: whether nothing that nodes and threads share gives more than it has; else each
            thread has a client's whole share of the file system.
        checks: whether all that is shared is held, with ``shared``, against what it has at each
            event; this is slow.
    """

    name: str
    divided: bool
    all_are_clients: bool
    locality_tier: str
    shared: bool = False
    checks: bool = False


#: The figures of the HDMLP thesis need this: each thread has all of t(clients)/clients.
AUTHORS = Semantics("authors", divided=False, all_are_clients=False, locality_tier="disk")
#: A real cluster could do this: those that use file system, links, networks and tiers at a moment
#: share them. A record comes from where it would take least by the rates of the thesis' text.
PHYSICAL = Semantics(
    "physical", divided=True, all_are_clients=True, locality_tier="memory", shared=True
)
SEMANTICS = {one.name: one for one in (AUTHORS, PHYSICAL)}


@dataclass(frozen=True)
class Scenario:
    """A training on a cluster.

    Attributes:
        environment, data, training: cluster, records and training (see their classes).
        seed: seed of sizes and orders.
    """

    environment: Environment
    data: Data | Measured
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
        uses = self.iterations * batch
        if uses > USES_MAX:
            raise ValueError(
                f"{uses:,} uses of records are more than can be simulated ({USES_MAX:,}): take "
                "fewer epochs or samples"
            )
        if isinstance(self.data, Measured) and not self.data.given.any():
            raise ValueError(f"the {self.data.count} records have no bytes")
        if isinstance(self.data, Data):
            if not AMOUNT_MIN <= self.data.mean <= AMOUNT_MAX:
                raise ValueError(
                    f"the size of records must be {AMOUNT_MIN:g} to {AMOUNT_MAX:g} M, "
                    f"not {self.data.mean}"
                )
            if not 0 <= self.data.deviation <= AMOUNT_MAX:
                raise ValueError(f"a deviation of {self.data.deviation} M is none")

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
