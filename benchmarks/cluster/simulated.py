"""Expectations of a Reader in a cell: by the store's constants, or by what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmdbio._core import Extents
from lmdbio.placement.cache import Cache
from lmdbio.placement.forecast import Job
from lmdbio.planning.environment import Curve, Environment, Tier
from lmdbio.planning.reads import GAP_BYTES_MAX, PlanOptions
from lmdbio.planning.shuffle import Shuffle
from lmdbio.prediction.reader import predict_job
from lmdbio.provenance import find_data
from lmdbio.remote import open_data
from lmdbio.simulate import Located, run_reader

__all__ = ["environment_of", "predict", "simulate"]

MIB, MB = float(1 << 20), 1e6
#: Between processes of one machine, M a second, as roots exchange rows there.
NETWORK = 1000.0
#: Copied out of memory, M a second.
MEMORY = 4000.0
#: Of a root's slots, M: the blocks that it reads ahead (lmdbio/reader/block_size.py).
STAGED = 48.0
#: More than anything needs, M a second.
FREE = 1e9


def environment_of(
    constants: Mapping[str, float], nodes: int, compute: float, tiers: int
) -> Environment:
    """Return the modelled store and its nodes.

    Args:
        constants: of the store.
        nodes: how many.
        compute: M a second that each node uses up.
        tiers: of a cache.
    """
    link = constants["client_mb_s"] * MB / MIB
    servers = constants["servers"] * constants["server_mb_s"] * MB / MIB
    memory = Tier(0, 1, Curve.of(MEMORY))
    return Environment(
        nodes,
        compute=compute,
        preprocess=FREE,
        network=NETWORK,
        file_network=link,
        file_system=Curve.of({n: min(n * link, servers) for n in range(1, nodes + 1)}),
        staging=Tier(STAGED, 1, Curve.of(FREE)),
        tiers=(memory,) * tiers,
        # A server moves while the others serve.
        file_request=constants["out_of_order_ms"] / 1e3 / constants["servers"],
    )


def job_of(lane: Mapping[str, Any], cell: Mapping[str, Any], extents: Extents) -> Job:
    """Return the job of a lane in a cell, over the records of its data set."""
    end = int((extents["offset"] + extents["length"]).max())
    shape = cell["shape"]
    return Job(
        Cache.parse(lane["cache"]) if lane["cache"] else None,
        cell["batch"],
        shape["nodes"],
        shape["ranks"],
        cell["epochs"],
        Shuffle.named(lane["shuffle"], end / len(extents), cell["batch"]),
        ends=True,
        assignment=lane["assignment"] or cell["assignment"],
        seed=cell["seed"] + lane["seed"],
    )


def predict(
    lane: Mapping[str, Any],
    cell: Mapping[str, Any],
    extents: Extents,
    path: str,
    request_bytes_max: int,
) -> dict[str, Any]:
    """Return what is predicted of a lane in a cell, by the rates that ``lmdbio tune`` measured.

    Args:
        path: of the data set, through a mount, for whose storage they were measured.
        lane, cell, extents, request_bytes_max: as of ``simulate``.
    """
    job, used = job_of(lane, cell, extents), int(extents["length"].sum())
    located = Located(extents, used, PlanOptions(GAP_BYTES_MAX, request_bytes_max))
    with open_data(find_data(path)) as engine:
        found = predict_job(located, job, engine, compute_seconds=cell["compute_ms"] / 1e3)
    return {
        "seconds": found.seconds,
        "init_seconds": found.init_seconds,
        "epochs": [(one.seconds, one.stall_seconds) for one in found.epochs],
        "records": [one.records for one in found.epochs],
        "bytes": [one.bytes for one in found.epochs],
        "rates": found.rates,
    }


def simulate(
    lane: Mapping[str, Any],
    cell: Mapping[str, Any],
    extents: Extents,
    constants: Mapping[str, float],
    request_bytes_max: int,
) -> dict[str, Any]:
    """Return what is simulated of a lane in a cell, as JSON has it.

    Args:
        lane, cell: as ``sweep`` has them.
        extents: of all records.
        constants: of the store.
        request_bytes_max: of the Reader.
    """
    job, lengths = job_of(lane, cell, extents), extents["length"]
    # Ranks sleep as long for each iteration, whatever it holds.
    size = float(lengths.sum()) / len(extents) * job.batch / job.nodes / MIB
    compute = size / (cell["compute_ms"] / 1e3) if cell["compute_ms"] else FREE
    cache = job.cache
    tiers = 0 if cache is None else bool(cache.memory) + (cache.disk is not None)
    environment = environment_of(constants, job.nodes, compute, tiers)
    found = run_reader(extents, job, environment, PlanOptions(GAP_BYTES_MAX, request_bytes_max))
    return {
        "seconds": found.seconds,
        "init_seconds": found.init_seconds,
        "epochs": found.epochs,
        "records": found.reads,
        "bytes": found.bytes,
    }
