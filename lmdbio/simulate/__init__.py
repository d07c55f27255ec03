"""simulate: how long a job would take, and where its records would come from, by models. Pure.

Knows no file, clock, MPI or chance: the same values in, the same figures out. Uses ``planning``
and the pure calls of ``_core``.

    loading     closed forms of an epoch's reading
    scenario    what is simulated: a cluster, a data set, a training
    settings    the same with values of one's own
    job         scenario, policy, semantics -> seconds, stalls, sources

    >>> from lmdbio import simulate
    >>> for found in simulate.run(simulate.SCENARIOS[3], simulate.POLICIES):
    ...     print(found.policy, found.seconds)
"""

from __future__ import annotations

from lmdbio.planning.environment import Curve, Environment, Tier
from lmdbio.planning.policy import POLICIES, Policy
from lmdbio.planning.route import SOURCES
from lmdbio.simulate.job import Outcome, run
from lmdbio.simulate.loading import Loading, Makespan, backend_rate, double_buffer
from lmdbio.simulate.scenario import (
    AUTHORS,
    SCENARIOS,
    SEMANTICS,
    TEXT,
    Data,
    Measured,
    Scenario,
    Semantics,
    Training,
)
from lmdbio.simulate.settings import KEYS, changed, flat

__all__ = [
    "AUTHORS",
    "KEYS",
    "POLICIES",
    "SCENARIOS",
    "SEMANTICS",
    "SOURCES",
    "TEXT",
    "Curve",
    "Data",
    "Environment",
    "Loading",
    "Makespan",
    "Measured",
    "Outcome",
    "Policy",
    "Scenario",
    "Semantics",
    "Tier",
    "Training",
    "backend_rate",
    "changed",
    "double_buffer",
    "flat",
    "run",
]
