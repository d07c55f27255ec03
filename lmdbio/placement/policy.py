"""policy: how a job loads its data, as a value. Pure.

| policy | placement | tiers | preloads | reads ahead from | else |
|---|---|---|---|---|---|
| lower_bound | none | - | - | - | records are always there |
| naive | none | - | - | - | each is read when it is asked for |
| staging_pool | none | - | - | file | |
| deepio_ordered | home | memory | yes | own, peers | others when they are asked for |
| deepio_opportunistic | home | memory | yes | own | uses what is there, in another order |
| parallel_data_staging | home, copies | disk | yes | own | uses its own part alone |
| lbann_dynamic | first | memory | - | own, peers, file | refuses what memory cannot hold |
| lbann_preloading | home | memory | yes | own, peers | refuses what memory cannot hold |
| locality_aware | home | either | yes | own, peers, file | |
| hdmlp | frequency | all | - | own, file | peers when they are quicker |
| lmdbio | home | all | - | own, peers, file | the first use fills; each record is read once |
| lmdbio_mixed | home | memory | - | own, peers, file | what no node holds comes in windows |

"memory" is the first tier that has room, "disk" the last one. ``Policy.words`` tells a Reader how
to follow a policy, where it can.

Source: the papers' loaders, as the HDMLP thesis compares them in sections 2.3 and 4.1.4; the last
rows are this project's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from lmdbio.placement.base import NONE, Placement
from lmdbio.placement.cache import PLACEMENTS, Cache
from lmdbio.planning.shuffle import Shuffle
from lmdbio.system.amounts import refuse_unknown

__all__ = ["POLICIES", "READERS", "Policy", "Words"]


class Words(NamedTuple):
    """The keywords of a Reader, or of a ``forecast.Job``, by which it follows a policy.

    Attributes:
        cache: cache of each root; None: it caches nothing.
        assignment: "strided" or "local".
        shuffle: shuffle of each epoch.
    """

    cache: Cache | None
    assignment: str
    shuffle: Shuffle | None


class _Reader(NamedTuple):
    """The part of ``Words`` that a policy says.

    Attributes:
        placement: placement of the cache; None: there is no cache.
        assignment: assignment of the Reader.
        windows: whether the order has windows, of which each root reads a slice.
    """

    placement: str | None = None
    assignment: str = "strided"
    windows: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """How a job loads its data.

    Attributes:
        name: name by which it is asked for.
        placement: "none", "home", "first" or "frequency" (``base``).
        tiers: "memory", "disk", "all" or "none"; "either": the disk by the thesis' model, memory
            in a Reader.
        preloads: whether tiers are filled before the first iteration.
        keeps_staged: whether the first node that reads a record gives it to those that are to hold
            it; until the first epoch ends all nodes are clients of the file system.
        stages: sources of what is read ahead into the staging buffer: "own", "peer", "file".
        on_demand: whether what is missing comes from the quickest source when it is asked for.
        reorders: whether nothing is waited for: what is there is used, in whatever order.
        copies: whether tiers that have room take parts of other nodes, too.
        fits: whether the data set must fit the memory of all nodes.
    """

    name: str
    placement: str = "none"
    tiers: str = "none"
    preloads: bool = False
    keeps_staged: bool = False
    stages: tuple[str, ...] = ()
    on_demand: bool = False
    reorders: bool = False
    copies: bool = False
    fits: bool = False

    @classmethod
    def named(cls, name: str) -> Policy:
        """Return a policy of the table.

        Raises:
            ValueError: there is none of that name.
        """
        for policy in POLICIES:
            if policy.name == name.casefold().replace("-", "_"):
                return policy
        raise ValueError(
            f"no policy is called {name!r}; known: {', '.join(p.name for p in POLICIES)}"
        )

    def words(
        self, cache: Cache | None, shuffle: Shuffle | None, windows: Shuffle
    ) -> Words | None:
        """Return the words of a Reader that loads its data so; None: no Reader does.

        Args:
            cache: tiers of each root, of which the policy takes what it uses; None: there are
                none.
            shuffle: shuffle of each epoch.
            windows: the same where the policy needs an order by windows.
        """
        reader = READERS.get(self.name)
        if reader is None:
            return None
        order = windows if reader.windows else shuffle
        if reader.placement is None or cache is None:
            return Words(None, reader.assignment, order)
        keeps_in_memory = not PLACEMENTS[reader.placement].is_static
        if keeps_in_memory and not cache.memory:
            return None
        if keeps_in_memory or (self.tiers in ("memory", "either") and cache.memory):
            cache = replace(cache, disk=None, disk_bytes=None)
        elif self.tiers == "disk" and cache.disk is not None:
            cache = replace(cache, memory=0)
        warm = "preload" if self.preloads else "demand"
        cache = replace(cache, placement=reader.placement, warm=warm)
        return Words(cache, reader.assignment, order)

    def __post_init__(self) -> None:
        for name, value, known in (
            ("placement", self.placement, (str(NONE), *PLACEMENTS)),
            ("tiers", self.tiers, ("none", "memory", "disk", "all", "either")),
        ):
            refuse_unknown(name, value, known)

    @property
    def rule(self) -> Placement:
        """The placement, as a value that others ask."""
        return PLACEMENTS.get(self.placement, NONE)

    def refusal(self, size: float, memory: float, room: float) -> str | None:
        """Return why it cannot load a data set; None: it can.

        Args:
            size: size of the data set, M.
            memory: memory of all nodes together, M.
            room: capacity of the tiers that it uses, of all nodes together, M.
        """
        if self.rule.must_hold and not room:
            return "it holds records in a tier of each node, and no tier has room"
        if self.fits and size > memory:
            return (
                f"it holds the whole data set in memory: {size:,.0f} M exceed the {memory:,.0f} M "
                "of all nodes"
            )
        return None


POLICIES = (
    Policy("lower_bound", reorders=True),
    Policy("naive"),
    Policy("staging_pool", stages=("file",)),
    Policy("deepio_ordered", "home", "memory", preloads=True, stages=("own", "peer")),
    Policy("deepio_opportunistic", "home", "memory", preloads=True, reorders=True),
    Policy("parallel_data_staging", "home", "disk", preloads=True, reorders=True, copies=True),
    Policy(
        "lbann_dynamic",
        "first",
        "memory",
        keeps_staged=True,
        stages=("own", "peer", "file"),
        fits=True,
    ),
    Policy("lbann_preloading", "home", "memory", preloads=True, stages=("own", "peer"), fits=True),
    Policy("locality_aware", "home", "either", preloads=True, stages=("own", "peer", "file")),
    Policy("hdmlp", "frequency", "all", stages=("own", "file"), on_demand=True),
    Policy("lmdbio", "home", "all", keeps_staged=True, stages=("own", "peer", "file")),
    Policy("lmdbio_mixed", "home", "memory", keeps_staged=True, stages=("own", "peer", "file")),
)

#: The policies that a Reader runs. ``Policy`` has their tiers, and whether they preload.
READERS = {
    "naive": _Reader(),
    "staging_pool": _Reader(),
    "deepio_ordered": _Reader("home"),
    "deepio_opportunistic": _Reader(windows=True),
    "lbann_dynamic": _Reader("first"),
    "lbann_preloading": _Reader("home"),
    "locality_aware": _Reader("home", "local"),
    "hdmlp": _Reader("frequency"),
    "lmdbio": _Reader("home"),
    "lmdbio_mixed": _Reader("mixed", windows=True),
}
