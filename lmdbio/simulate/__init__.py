"""simulate: how long a job would take, and where its records would come from, by models. Pure.

Knows no file, clock, MPI or chance: the same values in, the same figures out. Uses ``placement``,
``planning`` and the pure calls of ``_core``.

Each of the models alone gives some figures:

    job         the thesis' model: the figures that the HDMLP thesis prints, of any policy
    reader_job  a Reader's job: what ``reader.sources()`` will tell, to the byte, and seconds in
                which nothing gives more than it has
    modes       LMDBIO's modes on a striped file system, to 9,216 ranks

    scenario    what is simulated: a cluster, a data set, a training
    job         scenario, policy -> seconds, stalls, sources

    reader_job  extents of a file, a Reader's job -> seconds, stalls, sources

    store       a striped file system and its clients, as a value
    servers     when it has answered reads, event by event
    workload    what a job reads, in batches, by ranks on nodes
    roots       how long roots take to read their blocks
    modes       workload, modes, store -> seconds, bytes, requests

    settings    a scenario, a workload, a store with values of one's own

    >>> from lmdbio import simulate
    >>> for found in simulate.run(simulate.SCENARIOS[3], simulate.POLICIES):
    ...     print(found.policy, found.seconds)
    >>> workload, store = simulate.WORKLOADS["cifar10-large"], simulate.STORES["bebop"]
    >>> for found in simulate.run_modes(workload, ["lmdb", "stag"], store):
    ...     print(found.mode, found.seconds, found.bytes)
"""

from __future__ import annotations

from lmdbio._core import SOURCES
from lmdbio.placement.forecast import ROW_SOURCES
from lmdbio.placement.policy import POLICIES, Policy
from lmdbio.planning.environment import Curve, Environment, Tier
from lmdbio.planning.mode import Mode
from lmdbio.simulate.job import Outcome, run
from lmdbio.simulate.modes import ModeOutcome, run_modes
from lmdbio.simulate.reader_job import run_reader, run_readers
from lmdbio.simulate.scenario import SCENARIOS, Data, Located, Scenario, Training
from lmdbio.simulate.settings import changed, changed_reading, flat
from lmdbio.simulate.store import STORES, Store
from lmdbio.simulate.workload import WORKLOADS, Workload

__all__ = [
    "POLICIES",
    "SCENARIOS",
    "ROW_SOURCES",
    "SOURCES",
    "STORES",
    "WORKLOADS",
    "Curve",
    "Data",
    "Environment",
    "Located",
    "Mode",
    "ModeOutcome",
    "Outcome",
    "Policy",
    "Scenario",
    "Store",
    "Tier",
    "Training",
    "Workload",
    "changed",
    "changed_reading",
    "flat",
    "run",
    "run_modes",
    "run_reader",
    "run_readers",
]
