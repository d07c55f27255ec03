"""The scenario of ``lmdbio simulate``, out of files, measured rates and options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lmdbio import simulate as model
from lmdbio.cli.choices import calibration_status
from lmdbio.cli.plan import open_source
from lmdbio.machine import calibration, storage
from lmdbio.machine.measured import file_system_rate, network_rate, store_rates, tier_rate
from lmdbio.planning.cache import PLACEMENTS, WARM, Cache
from lmdbio.reader.block_size import MESSAGE_BYTES, TURN_BLOCK_BYTES_TARGET

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["changed_by", "is_cluster", "read_values", "scenario_of"]

Changed = TypeVar("Changed")

MIB = float(1 << 20)


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
        nodes, ranks: of the job; None: as the scenario has them.

    Raises:
        ValueError, OSError, Error: one cannot be read, or makes no sense.
    """
    told: list[str] = []
    for path in (path for path in sources if not is_cluster(path)):
        chosen, words = with_data(path, chosen)
        chosen, network = with_network(chosen, nodes or chosen.environment.nodes)
        told = [words, network]  # of the last one, whose records and rates are taken
    measured = chosen.environment
    for path in filter(is_cluster, sources):
        is_given = isinstance(chosen.data, model.Measured)
        without = ("samples", "size", "deviation") if is_given else ()
        chosen = read_values(path, partial(changed_by, chosen), without)
    if chosen.environment.file_system != measured.file_system:
        told = told[1:]
    if chosen.environment.network != measured.network:
        told = told[:-1]
    if nodes is not None:
        chosen = replace(chosen, environment=replace(chosen.environment, nodes=nodes))
    if ranks is not None and ranks < chosen.environment.nodes:
        raise ValueError(f"{ranks} ranks cannot run on {chosen.environment.nodes} nodes")
    if cache is not None:
        chosen, tiers = with_cache(cache, chosen)
        told += tiers
    return chosen, told


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
        changed: takes them.
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


def with_data(path: Path, scenario: model.Scenario) -> tuple[model.Scenario, str]:
    """Return a scenario with the records of a data set, and the measured rates of its storage.

    Raises:
        ValueError: it holds no records.
        OSError, Error: it cannot be read.
    """
    with open_source(path, None, None) as source:
        if not source.count:
            raise ValueError(f"{path}: it holds no records")
        lengths = source.extents(np.arange(source.count, dtype=np.uint64))["length"]
        kept = calibration.find(source.pages)
    scenario = replace(scenario, data=model.Measured(np.asarray(lengths / MIB, np.float64)))
    if kept is None or kept.calibration is None:
        why = kept.note if kept is not None else f"not measured (lmdbio tune {path} does)"
        return scenario, f"file system: {why}"
    rate = file_system_rate(kept.calibration)
    request = store_rates(kept.calibration).out_of_order_seconds
    environment = replace(
        scenario.environment, file_system=rate, file_network=rate.at(1), file_request=request
    )
    points = ", ".join(f"{number}: {one:,.0f}" for number, one in rate.points)
    return (
        replace(scenario, environment=environment),
        f"file system: as lmdbio tune measured, M a second by nodes {points}",
    )


def with_network(scenario: model.Scenario, nodes: int) -> tuple[model.Scenario, str]:
    """Return a scenario with the measured rate between so many nodes, if there is one."""
    kept = calibration_of(calibration.NETWORK)
    if kept is None or kept.calibration is None:
        return scenario, "network: not measured (mpiexec lmdbio tune PATH does, on several nodes)"
    # A root that has read a block sends each of the others its part.
    size = min(MESSAGE_BYTES, TURN_BLOCK_BYTES_TARGET // nodes)
    rate = network_rate(kept.calibration, size)
    environment = replace(scenario.environment, network=rate)
    words = f"network: as lmdbio tune measured, {rate:,.0f} M a second each way of a node"
    return replace(scenario, environment=environment), words


def with_cache(cache: Cache, scenario: model.Scenario) -> tuple[model.Scenario, list[str]]:
    """Return a scenario whose nodes have these tiers, with measured rates where there are some.

    Raises:
        ValueError: the cache asks for a placement, which is a policy's.
        OSError: its folder cannot be looked at.
    """
    if (cache.placement, cache.warm) != (PLACEMENTS[0], WARM[0]):
        raise ValueError("simulate: placement and warm are the policies' (lmdbio plan takes them)")
    environment, tiers, told = scenario.environment, [], []
    known = [*environment.tiers, *[environment.staging] * 2]
    if cache.memory:
        memory = replace(known[0], capacity=int(cache.memory) / MIB)
        memory, words = with_rate("memory", memory, calibration_of(calibration.MEMORY), "FOLDER")
        tiers.append(memory)
        told.append(words)
    if cache.disk is not None:
        disk = replace(known[1], capacity=int(cache.disk_bytes or 0) / MIB)
        kept = calibration_status(storage.look_at_folder(cache.disk))
        disk, words = with_rate("disk", disk, kept, cache.disk)
        tiers.append(disk)
        told.append(words)
    return replace(scenario, environment=replace(environment, tiers=tuple(tiers))), told


def calibration_of(identity: str) -> calibration.Stored | None:
    """Return what was measured of memory or the network; None where there is no place for it."""
    try:
        return calibration.load(identity)
    except RuntimeError:
        return None


def with_rate(
    name: str, tier: model.Tier, kept: calibration.Stored | None, folder: str
) -> tuple[model.Tier, str]:
    """Return a tier with its measured rate, if there is one, and where its rate comes from."""
    if kept is None or kept.calibration is None:
        return tier, f"{name}: not measured (lmdbio tune PATH --cache-dir {folder} does)"
    tier = replace(tier, reads=tier_rate(kept.calibration))
    return tier, f"{name}: as lmdbio tune measured, {tier.read_rate:,.0f} M a second"
