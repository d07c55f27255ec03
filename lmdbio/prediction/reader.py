"""reader: a data set and a Reader's words -> seconds, waiting and sources of each epoch."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lmdbio._core import Engine
from lmdbio.locate.open import open_record_index
from lmdbio.locate.record_index import RecordIndex
from lmdbio.machine.overrides import Overrides
from lmdbio.planning.cache import Cache
from lmdbio.planning.environment import Curve, Environment, Tier
from lmdbio.planning.forecast import Job
from lmdbio.planning.reads import PlanOptions
from lmdbio.planning.shuffle import Shuffle
from lmdbio.prediction.rates import (
    MIB,
    cache_here,
    with_file_system,
    with_network,
    with_tiers,
)
from lmdbio.reader.block_size import BLOCKS_AHEAD, TURN_BLOCK_BYTES_TARGET
from lmdbio.reading.engines import choose_reading
from lmdbio.simulate import Located, run_reader

__all__ = ["Epoch", "Prediction", "locate", "predict", "predict_job"]

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
    environment, told = with_file_system(usual_environment(job.nodes), engine, engine.path)
    rates = [told]
    if job.nodes > 1:
        environment, told = with_network(environment)
        rates.append(told)
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
