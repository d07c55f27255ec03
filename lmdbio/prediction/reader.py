"""reader: a data set and a Reader's words -> seconds, waiting and sources of each epoch.

Rates that ``lmdbio tune`` measured of a data set's storage, the network, memory and a disk take
the place of an Environment's usual ones; the model is ``simulate.reader_job``.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lmdbio._core import Engine
from lmdbio.locate.open import open_record_index
from lmdbio.locate.record_index import RecordIndex
from lmdbio.machine import calibration, storage
from lmdbio.machine.budget import available_bytes, budget_bytes
from lmdbio.machine.cache_choice import FOLDER_VARIABLE, auto_memory
from lmdbio.machine.calibration import Calibration
from lmdbio.machine.measured import file_system_rate, network_rate, request_seconds, tier_rate
from lmdbio.machine.overrides import Overrides
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import Job
from lmdbio.planning.environment import Curve, Environment, Tier
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.shuffle import Shuffle
from lmdbio.reader.block_size import BLOCKS_AHEAD, MESSAGE_BYTES, TURN_BLOCK_BYTES_TARGET
from lmdbio.reading.engines import choose_reading, find_calibration
from lmdbio.simulate import Located, run_reader

__all__ = [
    "Epoch",
    "Prediction",
    "cache_here",
    "known_rates",
    "locate",
    "measured_here",
    "predict",
    "predict_job",
    "with_tiers",
]

MIB = float(1 << 20)
#: Faster than anything that is measured, M a second.
FREE = 1e9
#: Where nothing was measured: a gigabyte a second, and memory's four.
USUAL, USUAL_MEMORY = 1024.0, 4096.0


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch of a job, beforehand.

    Attributes:
        seconds: time up to the last rank's last record, from when the epoch before ended.
        stall_seconds: part of ``seconds`` in which ranks wait for records.
        records, bytes: records and bytes by source ("own", "disk", "peer", "file"), of all ranks,
            as ``Reader.sources()`` of all of them tells afterwards.
    """

    seconds: float
    stall_seconds: float
    records: Mapping[str, int]
    bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A job, beforehand.

    Attributes:
        epochs: epochs of the job, in turn.
        init_seconds: time before the first batch, where caches are filled then.
        rates: source of each rate, in words.
    """

    epochs: tuple[Epoch, ...]
    init_seconds: float
    rates: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Of the whole job."""
        return self.init_seconds + sum(one.seconds for one in self.epochs)


def locate(source: RecordIndex) -> Located:
    """Return all records of an open data set, and how a Reader reads them.

    Raises:
        ValueError: it holds no records.
    """
    if not source.count:
        raise ValueError(f"{source.path}: it holds no records")
    way = choose_reading(source.pages, "stream", Overrides())
    extents = source.extents(np.arange(source.count, dtype=np.uint64))
    options = PlanOptions(way.gap_bytes_max, way.request_bytes_max)
    return Located(extents, source.used_bytes, options)


def usual_environment(nodes: int) -> Environment:
    """Return nodes of which nothing is known: a gigabyte a second, and computing takes no time."""
    staged = BLOCKS_AHEAD * TURN_BLOCK_BYTES_TARGET / MIB
    return Environment(
        nodes,
        compute=FREE,
        preprocess=FREE,
        network=USUAL,
        file_network=USUAL,
        file_system=Curve.of(USUAL),
        staging=Tier(staged, 1, Curve.of(USUAL_MEMORY)),
    )


def predict(
    path: str | os.PathLike[str],
    batch_size: int,
    *,
    nodes: int,
    ranks: int | None = None,
    epochs: int = 3,
    shuffle: Shuffle | str | None = None,
    seed: int = 0,
    cache: Cache | str | None = None,
    assignment: str = "strided",
    compute_seconds: float = 0.0,
    db: str | bytes | None = None,
) -> Prediction:
    """Return how long the epochs of a Reader's job will take, and where records will come from.

    Args:
        path: folder or file of the environment.
        batch_size: number of records of all ranks in an iteration.
        nodes, ranks: number of nodes, and of ranks; by default one rank on each node.
        epochs: number of epochs.
        shuffle, seed, cache, assignment, db: arguments of the Reader. "auto", and the size of a
            disk tier, are resolved as on nodes like this machine.
        compute_seconds: time that ranks compute in each iteration.

    Raises:
        ValueError: the arguments describe no job, or the data set holds no records.
        LookupError: there is no such database.
        OSError, Error: the data set cannot be read.
    """
    if not 0 <= compute_seconds < math.inf:
        raise ValueError(f"compute_seconds must be 0 or more, not {compute_seconds}")
    cache = None if cache is None else cache_here(cache)
    with open_record_index(path, db=db) as source:
        found = locate(source)
        if isinstance(shuffle, str):
            shuffle = Shuffle.named(shuffle, found.used_bytes / len(found.extents), batch_size)
        job = Job(
            cache, batch_size, nodes, nodes if ranks is None else ranks, epochs, shuffle,
            ends=True, assignment=assignment, seed=seed,
        )  # fmt: skip
        return predict_job(found, job, source.pages, compute_seconds=compute_seconds)


def predict_job(
    found: Located, job: Job, engine: Engine, *, compute_seconds: float = 0.0
) -> Prediction:
    """Return the same of records that were located.

    Args:
        found: records that were located.
        job: job over the records.
        engine: engine of the data set, under which rates were measured.
        compute_seconds: time that ranks compute in each iteration.

    Raises:
        OSError: the folder of the cache's disk cannot be looked at.
    """
    environment, rates = measured_here(usual_environment(job.nodes), engine, engine.path)
    if job.cache is not None:
        environment, tiers = with_tiers(environment, job.cache)
        rates += tiers
    made = run_reader(
        found.extents, job, environment, found.options, compute_seconds=compute_seconds
    )
    rows = zip(made.epochs or (), made.reads or (), made.bytes or (), strict=True)
    return Prediction(
        tuple(Epoch(*times, records, sizes) for times, records, sizes in rows),
        made.init_seconds,
        tuple(rates),
    )


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


def known_rates(engine: Engine, path: object) -> tuple[Calibration | None, str]:
    """Return what was measured of the storage under a data set; None, and why there is nothing.

    Args:
        engine: engine of the data set.
        path: path of the data set, as people named it.
    """
    stored = find_calibration(engine)
    if stored is None:
        return None, f"not measured (lmdbio tune {path} does)"
    return stored.calibration, stored.note


def measured_here(
    environment: Environment, engine: Engine, path: object
) -> tuple[Environment, list[str]]:
    """Take the rates of the storage under a data set, and of the network between several nodes.

    Args:
        environment: environment whose rates are taken where nothing was measured.
        engine: engine of the data set.
        path: path of the data set, as people named it.

    Returns:
        The environment, and in words where each rate comes from.
    """
    found, why = known_rates(engine, path)
    if found is None:
        texts = [f"file system: {why}"]
    else:
        rate = file_system_rate(found)
        environment = replace(
            environment,
            file_system=rate,
            file_network=rate.at(1),
            file_request=request_seconds(found, environment.nodes),
        )
        points = ", ".join(f"{number}: {one:,.0f}" for number, one in rate.points)
        texts = [f"file system: as lmdbio tune measured, M a second by nodes {points}"]
    if environment.nodes > 1:
        environment, words = _with_network(environment)
        texts.append(f"network: {words}")
    return environment, texts


def _with_network(environment: Environment) -> tuple[Environment, str]:
    """Take the rate between nodes."""
    found = calibration.load(calibration.NETWORK).calibration
    if found is None:
        return environment, "not measured (mpiexec lmdbio tune PATH does, on several nodes)"
    # A root that has read a block sends each of the others its part.
    size = min(MESSAGE_BYTES, TURN_BLOCK_BYTES_TARGET // environment.nodes)
    rate = network_rate(found, size)
    words = f"as lmdbio tune measured, {rate:,.0f} M a second each way of a node"
    return replace(environment, network=rate), words


def with_tiers(environment: Environment, cache: Cache) -> tuple[Environment, list[str]]:
    """Take a cache's tiers, as large as it says, with the rates of memory and its disk.

    Args:
        environment: environment that gets the tiers. Where nothing was measured, they have the
            rates of those that it has had, and after these of its staging buffer.
        cache: cache of each root.

    Raises:
        OSError: the folder of its disk cannot be looked at.
    """
    tiers, texts = [], []
    known = [*environment.tiers, *[environment.staging] * 2]
    if cache.memory:
        memory = replace(known[0], capacity=int(cache.memory) / MIB)
        found = calibration.load(calibration.MEMORY).calibration
        memory, words = _with_rate("memory", memory, found, "FOLDER")
        tiers.append(memory)
        texts.append(words)
    if cache.disk is not None:
        disk = replace(known[1], capacity=int(cache.disk_bytes or 0) / MIB)
        under = storage.inspect_folder(cache.disk)
        found = calibration.load(calibration.identity(under)).calibration
        disk, words = _with_rate("disk", disk, found, cache.disk)
        tiers.append(disk)
        texts.append(words)
    return replace(environment, tiers=tuple(tiers)), texts


def _with_rate(name: str, tier: Tier, found: Calibration | None, folder: str) -> tuple[Tier, str]:
    """Take the measured rate of a tier, if there is one."""
    if found is None:
        return tier, f"{name}: not measured (lmdbio tune PATH --cache-dir {folder} does)"
    tier = replace(tier, reads=tier_rate(found))
    return tier, f"{name}: as lmdbio tune measured, {tier.read_rate:,.0f} M a second"
