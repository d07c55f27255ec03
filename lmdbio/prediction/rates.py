"""rates: what ``lmdbio tune`` measured, in the place of an Environment's usual rates.

Each function returns the environment, and in words where its rate comes from.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

from lmdbio._core import Engine
from lmdbio.machine import calibration, storage, tuned
from lmdbio.machine.budget import available_bytes, budget_bytes
from lmdbio.machine.cache_choice import FOLDER_VARIABLE, auto_memory
from lmdbio.machine.calibration import Stored
from lmdbio.machine.measured import file_system_rate, network_rate, request_seconds, tier_rate
from lmdbio.planning.cache import Cache
from lmdbio.planning.environment import Environment, Tier
from lmdbio.reader.block_size import MESSAGE_BYTES, TURN_BLOCK_BYTES_TARGET

__all__ = ["cache_here", "is_measured", "with_file_system", "with_network", "with_tiers"]

MIB = float(1 << 20)


def cache_here(given: Cache | str) -> Cache:
    """Return a cache with the sizes that it would have on nodes like this machine.

    Args:
        given: cache, its words, or "auto".

    Raises:
        TypeError: it is neither.
        ValueError: it is no cache, or "auto" finds no memory.
        OSError: the folder of its disk is not there, or cannot be written to.
    """
    if not isinstance(given, Cache | str):
        raise TypeError(f"cache must be a Cache or words, not {given!r}")
    asker = "cache"
    if isinstance(given, str) and given.strip().casefold() == "auto":
        memory = auto_memory(available_bytes(), budget_bytes(None))
        asker, given = FOLDER_VARIABLE, Cache(memory, os.environ.get(FOLDER_VARIABLE) or None)
    cache = Cache.parse(given) if isinstance(given, str) else given
    if cache.disk is not None and cache.disk_bytes is None:
        cache = replace(cache, disk_bytes=_free_bytes(cache.disk, asker) // 2)
    return cache


def _free_bytes(folder: str, asker: str) -> int:
    """Return the free bytes of a disk's folder.

    Raises:
        OSError: cache files cannot be written there; it tells who asked for it.
    """
    try:
        if not stat.S_ISDIR(Path(folder).stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is no folder", folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "cache files cannot be written there", folder)
        return shutil.disk_usage(folder).free
    except OSError as error:
        raise type(error)(error.errno, f"{asker}: {error.strerror}", folder) from error


def is_measured(engine: Engine) -> bool:
    """Whether rates of the storage under a data set are known."""
    kept = tuned.find(engine)
    return kept is not None and kept.calibration is not None


def with_file_system(
    environment: Environment, engine: Engine, path: object
) -> tuple[Environment, str]:
    """Take the rates of the storage under a data set.

    Args:
        environment: environment whose rates are taken where nothing was measured.
        engine: engine of the data set.
        path: path of the data set, as people named it.
    """
    kept = tuned.find(engine)
    if kept is None or kept.calibration is None:
        why = kept.note if kept is not None else f"not measured (lmdbio tune {path} does)"
        return environment, f"file system: {why}"
    rate = file_system_rate(kept.calibration)
    environment = replace(
        environment,
        file_system=rate,
        file_network=rate.at(1),
        file_request=request_seconds(kept.calibration, environment.nodes),
    )
    points = ", ".join(f"{number}: {one:,.0f}" for number, one in rate.points)
    return environment, f"file system: as lmdbio tune measured, M a second by nodes {points}"


def with_network(environment: Environment) -> tuple[Environment, str]:
    """Take the rate between nodes."""
    kept = _stored(calibration.NETWORK)
    if kept is None or kept.calibration is None:
        words = "not measured (mpiexec lmdbio tune PATH does, on several nodes)"
        return environment, f"network: {words}"
    # A root that has read a block sends each of the others its part.
    size = min(MESSAGE_BYTES, TURN_BLOCK_BYTES_TARGET // environment.nodes)
    rate = network_rate(kept.calibration, size)
    words = f"as lmdbio tune measured, {rate:,.0f} M a second each way of a node"
    return replace(environment, network=rate), f"network: {words}"


def with_tiers(environment: Environment, cache: Cache) -> tuple[Environment, list[str]]:
    """Take a cache's tiers, as large as it says, with the rates of memory and its disk.

    Args:
        environment: environment that gets the tiers. Where nothing was measured, they have the
            rates of those that it has had, and after these of its staging buffer.
        cache: cache of each root.

    Raises:
        OSError: the folder of its disk cannot be looked at.
    """
    tiers, told = [], []
    known = [*environment.tiers, *[environment.staging] * 2]
    if cache.memory:
        memory = replace(known[0], capacity=int(cache.memory) / MIB)
        memory, words = _with_rate("memory", memory, _stored(calibration.MEMORY), "FOLDER")
        tiers.append(memory)
        told.append(words)
    if cache.disk is not None:
        disk = replace(known[1], capacity=int(cache.disk_bytes or 0) / MIB)
        kept = _stored(calibration.identity(storage.look_at_folder(cache.disk)))
        disk, words = _with_rate("disk", disk, kept, cache.disk)
        tiers.append(disk)
        told.append(words)
    return replace(environment, tiers=tuple(tiers)), told


def _with_rate(name: str, tier: Tier, kept: Stored | None, folder: str) -> tuple[Tier, str]:
    """Take the measured rate of a tier, if there is one."""
    if kept is None or kept.calibration is None:
        return tier, f"{name}: not measured (lmdbio tune PATH --cache-dir {folder} does)"
    tier = replace(tier, reads=tier_rate(kept.calibration))
    return tier, f"{name}: as lmdbio tune measured, {tier.read_rate:,.0f} M a second"


def _stored(identity: str) -> Stored | None:
    """Return a calibration; None where there is no place for it."""
    try:
        return calibration.load(identity)
    except OSError:
        return None
