"""The input of ``lmdbio simulate``, out of files, measured rates and options.

    scenario or workload  <  data set, and rates of ``lmdbio tune``  <  TOML file  <  options

Later ones count more.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np

from lmdbio import simulate as model
from lmdbio.cli.options import checked
from lmdbio.cli.plan import open_source
from lmdbio.machine.calibration import Calibration
from lmdbio.machine.measured import store_rates
from lmdbio.placement.cache import Cache
from lmdbio.prediction.reader import known_rates, locate, measured_here, with_tiers

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "Settings",
    "changed_by",
    "combinations",
    "is_cluster",
    "reading_of",
    "scenario_of",
    "setting",
]

Settings = list[tuple[str, list[str]]]
Changed = TypeVar("Changed")

#: Records of an iteration of a data set of one's own.
BATCH = 256
#: Of a store that was measured: where pieces are cut says nothing, for it counts as one server.
STRIPE_BYTES = 1 << 20


@checked
def setting(text: str) -> tuple[str, list[str]]:
    """Return a key and one value or several: ``tier1.capacity=10G,20G``."""
    key, equals, values = text.partition("=")
    parts = [part.strip() for part in values.split(",")]
    if not equals or not all(parts):
        raise ValueError(f"{text!r} is not KEY=VALUE or KEY=VALUE,VALUE")
    return key.strip(), parts


def combinations(settings: Settings) -> list[dict[str, str]]:
    """Return every combination of the values."""
    keys = [key for key, _ in settings]
    if len(set(keys)) < len(keys):
        raise click.UsageError("--set has the same key twice; its values go into one, with commas")
    return [
        dict(zip(keys, one, strict=True)) for one in itertools.product(*(v for _, v in settings))
    ]


def is_cluster(path: Path) -> bool:
    """Whether a source is a file of values, and no data set."""
    return path.suffix == ".toml"


def read_values(
    path: Path, changed: Callable[[Mapping[str, Any]], Changed], without: Sequence[str]
) -> Changed:
    """Return what ``changed`` makes of the keys and values of a TOML file.

    Args:
        path: the file.
        changed: function that takes the values.
        without: keys that are left out: a data set that was given says these.

    Raises:
        ValueError, OSError: it cannot be read, or a value makes no sense; names the file.
    """
    try:
        with path.open("rb") as file:
            values = dict(model.flat(tomllib.load(file)))
        return changed({key: value for key, value in values.items() if key not in without})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    except RecursionError:
        raise ValueError(f"{path}: its tables are nested too deeply") from None


# --- a training ---------------------------------------------------------------------------


def scenario_of(
    chosen: model.Scenario,
    sources: Sequence[Path],
    cache: Cache | None,
    nodes: int | None,
    ranks: int | None,
) -> tuple[model.Scenario, list[str]]:
    """Return the scenario that is simulated, and sentences on where its rates come from.

    Args:
        chosen: a scenario to begin with.
        sources: data sets, and files that end in ".toml".
        cache: tiers of each node; None: those of the scenario.
        nodes, ranks: number of nodes and of ranks; None: as the scenario has them.

    Raises:
        ValueError, OSError, Error: one cannot be read, or makes no sense.
    """
    words: list[str] = []
    for path in itertools.filterfalse(is_cluster, sources):
        environment = chosen.environment
        environment = replace(environment, nodes=nodes or environment.nodes)
        with open_source(path, None, None) as source:
            data = locate(source)
            environment, words = measured_here(environment, source.pages, path)
        chosen = replace(chosen, data=data, environment=environment)
    measured = chosen.environment
    for path in filter(is_cluster, sources):
        is_given = isinstance(chosen.data, model.Located)
        without = ("samples", "size", "deviation") if is_given else ()
        chosen = read_values(path, partial(changed_by, chosen), without)
    environment = chosen.environment
    for name in ("file_system", "network"):
        if getattr(environment, name) != getattr(measured, name):
            words = [line for line in words if not line.startswith(name.replace("_", " "))]
    if nodes is not None:
        environment = replace(environment, nodes=nodes)
    if ranks is not None and ranks < environment.nodes:
        raise ValueError(f"{ranks} ranks cannot run on {environment.nodes} nodes")
    if cache is not None:
        environment, tiers = with_tiers(environment, cache)
        words += tiers
    return replace(chosen, environment=environment), words


def changed_by(scenario: model.Scenario, values: Mapping[str, Any]) -> model.Scenario:
    """Return a scenario with other values.

    Raises:
        ValueError: a key or value makes no sense.
    """
    for key, value in values.items():
        scenario = model.changed(scenario, key, value)
    return scenario


# --- a reading by modes -------------------------------------------------------------------


def reading_of(
    sources: Sequence[Path],
    workload: str,
    store: str | None,
    nodes: int | None,
    ranks: int | None,
) -> tuple[model.Workload, model.Store, str]:
    """Return a workload, the store that it reads, and a sentence on where its rates come from.

    Raises:
        ValueError, OSError, Error: one cannot be read, or makes no sense.
    """
    job, where = model.WORKLOADS[workload], model.STORES[store or "bebop"]
    words = f"store: {store or 'bebop'}"
    for path in itertools.filterfalse(is_cluster, sources):
        with open_source(path, None, None) as source:
            sizes = locate(source).extents["length"].astype(np.int64)
            rates = known_rates(source.pages, path)
        batch, typical = min(BATCH, len(sizes)), max(1, int(np.median(sizes)))
        count = len(sizes)
        job = model.Workload(count, typical, batch, 1, 1, count // batch, lengths=sizes)
        if store is None:
            where, words = measured_store(*rates)
    found = where
    for path in filter(is_cluster, sources):
        without = ("samples", "size") if job.lengths is not None else ()
        job, where = read_values(path, partial(model.changed_reading, job, where), without)
    if where != found:
        words += ", but for values of your own"
    if nodes is not None or ranks is not None:
        job = with_ranks(job, nodes, ranks)
    return job, where, words


def measured_store(found: Calibration | None, why: str) -> tuple[model.Store, str]:
    """Return a store with the measured rates of a file system, and what was measured."""
    if found is None:
        return model.STORES["bebop"], f"store: bebop; its own is {why}"
    rates = store_rates(found)
    store = replace(
        model.STORES["model"],
        servers=1,
        stripe_bytes=STRIPE_BYTES,
        server_rate=rates.all_nodes,
        link_rate=rates.one_node,
        request_seconds=rates.request_seconds,
        out_of_order_seconds=rates.out_of_order_seconds,
        request_bytes=rates.request_bytes,
        depth=rates.depth,
    )
    of_all = "and no more of several (mpiexec -n RANKS lmdbio tune on several nodes measures it)"
    if found.staggerings:
        of_all = f"{rates.all_nodes / 2**20:,.0f} of all"
    one = f"{rates.one_node / 2**20:,.0f} of a node"
    return store, f"store: as lmdbio tune measured, M a second: {one}, {of_all}"


def with_ranks(job: model.Workload, nodes: int | None, ranks: int | None) -> model.Workload:
    """Return a job of so many ranks on so many nodes.

    Raises:
        ValueError: they cannot run so.
    """
    if nodes is None:
        return replace(job, ranks=ranks or job.ranks)
    count = ranks or nodes * job.ranks_per_node
    per_node = -(-count // nodes)
    if -(-count // per_node) != nodes:
        raise ValueError(
            f"{count} ranks cannot run on {nodes} nodes: {per_node} on each are "
            f"{-(-count // per_node)} nodes"
        )
    return replace(job, ranks=count, ranks_per_node=per_node)
