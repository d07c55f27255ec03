"""The scenario of ``lmdbio simulate``, out of files, measured rates and options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lmdbio import simulate as model
from lmdbio.cli.plan import open_source
from lmdbio.placement.cache import Cache
from lmdbio.prediction.reader import locate, measured_here, with_tiers

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["changed_by", "is_cluster", "read_values", "scenario_of"]

Changed = TypeVar("Changed")


def scenario_of(
    chosen: model.Scenario,
    sources: Sequence[Path],
    cache: Cache | None,
    nodes: int | None,
    ranks: int | None,
) -> tuple[model.Scenario, list[str]]:
    """Return what is simulated, and where its rates come from.

    Later ones count more: the scenario, what ``lmdbio tune`` measured of a data set's file system,
    a TOML file, options.

    Args:
        chosen: a scenario to begin with.
        sources: data sets, and files that end in ".toml".
        cache: tiers of each node; None: those of the scenario.
        nodes, ranks: number of nodes and of ranks; None: as the scenario has them.

    Raises:
        ValueError, OSError, Error: one cannot be read, or makes no sense.
    """
    told: list[str] = []
    for path in (path for path in sources if not is_cluster(path)):
        # Of the last one the records and rates are taken.
        chosen, told = with_data(path, chosen, nodes)
    measured = chosen.environment
    for path in filter(is_cluster, sources):
        is_given = isinstance(chosen.data, model.Located)
        without = ("samples", "size", "deviation") if is_given else ()
        chosen = read_values(path, partial(changed_by, chosen), without)
    environment = chosen.environment
    for name in ("file_system", "network"):
        if getattr(environment, name) != getattr(measured, name):
            told = [line for line in told if not line.startswith(name.replace("_", " "))]
    if nodes is not None:
        environment = replace(environment, nodes=nodes)
    if ranks is not None and ranks < environment.nodes:
        raise ValueError(f"{ranks} ranks cannot run on {environment.nodes} nodes")
    if cache is not None:
        environment, tiers = with_tiers(environment, cache)
        told += tiers
    return replace(chosen, environment=environment), told


def changed_by(scenario: model.Scenario, values: Mapping[str, Any]) -> model.Scenario:
    """Return a scenario with other values.

    Raises:
        ValueError: a key or value makes no sense.
    """
    for key, value in values.items():
        scenario = model.changed(scenario, key, value)
    return scenario


def is_cluster(path: Path) -> bool:
    """Whether a source is a file of values, and no data set."""
    return path.suffix == ".toml"


def read_values(
    path: Path, changed: Callable[[Mapping[str, Any]], Changed], without: Sequence[str] = ()
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


def with_data(
    path: Path, scenario: model.Scenario, nodes: int | None
) -> tuple[model.Scenario, list[str]]:
    """Return a scenario with the records of a data set, and the measured rates of its storage.

    Args:
        nodes: number of nodes that share it; None: as the scenario has them.

    Raises:
        ValueError: it holds no records.
        OSError, Error: it cannot be read.
    """
    environment = replace(scenario.environment, nodes=nodes or scenario.environment.nodes)
    with open_source(path, None, None) as source:
        data = locate(source)
        environment, told = measured_here(environment, source.pages, path)
    return replace(scenario, data=data, environment=environment), told
