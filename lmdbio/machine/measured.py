"""measured: what ``lmdbio tune`` found out, as rates by the number of those who read. Pure."""

from __future__ import annotations

from lmdbio.machine.calibration import Calibration
from lmdbio.planning.environment import Curve
from lmdbio.system.frozen import dataclass

__all__ = [
    "StoreRates",
    "file_system_rate",
    "network_rate",
    "request_seconds",
    "store_rates",
    "tier_rate",
]

MIB = float(1 << 20)


def file_system_rate(calibration: Calibration) -> Curve:
    """Return M per second of a file system by the nodes that read from it.

    One node gets what its best trial got; several what they got in order at once, or, where that
    was not measured, what the largest job got that measured turns.

    Args:
        calibration: calibration of the file system.
    """
    points = {1: max(sample.rate for sample in calibration.samples) / MIB}
    shared = [one for one in calibration.shared if one.sample.pattern == "stream"]
    for one in shared:
        points[one.readers] = one.sample.rate / MIB
    jobs = sorted(calibration.staggerings, key=lambda job: (job.nodes, job.measured))
    for job in () if shared else jobs[-1:]:
        points[job.nodes] = max(sample.rate for sample in job.samples) / MIB
    return Curve.of(points)


def request_seconds(calibration: Calibration, nodes: int) -> float:
    """Return the seconds of a file system's time that a request at random takes beside its bytes.

    Args:
        calibration: calibration of the file system.
        nodes: number of nodes that ask at once; the largest number measured up to it counts.
    """
    found = max(
        (one for one in calibration.shared if one.sample.pattern == "random"),
        key=lambda one: one.readers if one.readers <= nodes else -one.readers,
        default=None,
    )
    if found is None or found.readers > nodes:
        return store_rates(calibration).out_of_order_seconds
    whole = file_system_rate(calibration).at(found.readers) * MIB
    return max(0.0, found.sample.request_bytes * (1 / found.sample.rate - 1 / whole))


def tier_rate(calibration: Calibration) -> Curve:
    """Return M per second of a disk or memory by its requests in flight or threads.

    These are random and the largest that were measured, as a cache's are.
    """
    random = [one for one in calibration.samples if one.pattern == "random"]
    if not random:
        return Curve.of(max(sample.rate for sample in calibration.samples) / MIB)
    largest = max(sample.request_bytes for sample in random)
    rates: dict[int, float] = {}
    for one in random:
        if one.request_bytes == largest:
            rates[one.depth] = max(rates.get(one.depth, 0.0), one.rate / MIB)
    return Curve.of(rates)


def network_rate(calibration: Calibration, message_bytes: int) -> float:
    """Return M per second that a node sends, while it receives as much.

    Args:
        calibration: calibration of the network.
        message_bytes: size of a message, bytes; beyond those measured the nearest counts.
    """
    return Curve.of({one.request_bytes: one.rate / MIB for one in calibration.samples}).at(
        message_bytes
    )


@dataclass(frozen=True, slots=True)
class StoreRates:
    """A file system as one server that takes requests in turn.

    Attributes:
        one_node, all_nodes: bytes per second in order, by one node and by all that were measured.
        request_seconds: time of a request beside its bytes, where it is the only one.
        out_of_order_seconds: time of a request at random beside its bytes at the rate of all
            nodes, where many are in flight.
        request_bytes, depth: the way of reading in order that was fastest.
    """

    one_node: float
    all_nodes: float
    request_seconds: float
    out_of_order_seconds: float
    request_bytes: int
    depth: int


def store_rates(calibration: Calibration) -> StoreRates:
    """Return what a file system costs, in order and out of order.

    Args:
        calibration: calibration of the file system.
    """
    samples = calibration.samples
    streams = [one for one in samples if one.pattern == "stream"] or list(samples)
    best = max(streams, key=lambda one: one.rate)
    all_nodes = max(rate for _, rate in file_system_rate(calibration).points) * MIB
    alone = min((one for one in streams if one.depth == 1), key=lambda o: o.latency, default=None)
    random = max(
        (one for one in samples if one.pattern == "random"),
        key=lambda one: (one.request_bytes, one.rate),
        default=None,
    )
    every = max(best.rate, all_nodes)
    return StoreRates(
        best.rate,
        every,
        max(0.0, alone.latency - alone.request_bytes / best.rate) if alone else 0.0,
        max(0.0, random.request_bytes * (1 / random.rate - 1 / every)) if random else 0.0,
        best.request_bytes,
        best.depth,
    )
