"""route: where each row of a block comes from, by predicted cost, without a clock. Pure.

    who holds it, in which tier -> own tier, a peer's tier, or the file: whichever takes least

The prediction knows only rates, all nodes being clients of the file system at once (the worst case
of equations 3.5 to 3.7): so it is the same on all nodes and in every run, and what is counted
before a job is what the job does.

Source: the HDMLP thesis, equations 3.5 to 3.7, section 4.3.6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lmdbio._core import SOURCES
from lmdbio.planning.environment import Environment

__all__ = ["FILE", "OWN", "PEER", "SOURCES", "Routes"]

I64 = npt.NDArray[np.int64]

#: Sources, in the order of all counts.
OWN, PEER, FILE = range(len(SOURCES))


@dataclass(frozen=True, slots=True)
class Routes:
    """Seconds that a M takes from each source.

    Attributes:
        own: seconds by tier, the fastest tier first.
        peer: the same, from another node.
        file: seconds from the file system.
    """

    own: tuple[float, ...]
    peer: tuple[float, ...]
    file: float

    @classmethod
    def of(cls, environment: Environment) -> Routes:
        """Return what the equations say of an environment."""
        tiers = range(1, len(environment.tiers) + 1)
        return cls(
            tuple(1 / environment.own_rate(tier) for tier in tiers),
            tuple(1 / environment.peer_rate(tier) for tier in tiers),
            1 / environment.file_rate(environment.nodes),
        )

    def choose(self, own_tier: npt.ArrayLike, peer_tier: npt.ArrayLike) -> I64:
        """Return the source of each row: ``OWN``, ``PEER`` or ``FILE``.

        Where two take as long, the nearer one is taken.

        Args:
            own_tier: the tier in which the node itself holds the row, from 0; -1: in none.
            peer_tier: the same of the best other node.

        Raises:
            IndexError: there is no such tier.
        """
        # -1 picks the last one: a tier that nobody has.
        own = np.array([*self.own, np.inf])[np.asarray(own_tier, np.int64)]
        peer = np.array([*self.peer, np.inf])[np.asarray(peer_tier, np.int64)]
        file = np.full(np.broadcast(own, peer).shape, self.file)
        seconds = np.stack(np.broadcast_arrays(own, peer, file))
        return np.asarray(seconds.argmin(axis=0), np.int64)
