"""measured: what follows from what ``lmdbio tune`` found out. Pure.

Rates by the number of those who read, for predictions; and how many roots of a job may read at a
time, for which ``reader.phases`` takes the usual number where no job measured it.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmdbio.machine.calibration import Calibration, Staggering, TokenSample
from lmdbio.machine.choice import ENOUGH, Reason, rate_text
from lmdbio.planning.environment import Curve
from lmdbio.system.frozen import dataclass

__all__ = [
    "StoreRates",
    "choose_tokens",
    "file_system_rate",
    "network_rate",
    "request_seconds",
    "store_rates",
    "tier_rate",
]

MIB = float(1 << 20)
#: A job of up to so many times as many roots, or as few, was measured: that counts for this one.
ROOTS_FACTOR = 1.5


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


def choose_tokens(
    measured: Sequence[Staggering],
    *,
    nodes: int,
    roots: int,
    assignment: str,
    may_be_none: bool,
) -> tuple[int, Reason] | None:
    """Choose how many roots may read at a time: the fewest that are fast enough.

    Args:
        measured: measurements of jobs, on the file system that is read.
        nodes, roots: number of this job's nodes, and of its roots.
        assignment: assignment of its Reader.
        may_be_none: whether turns were not asked for by name: there are none where these gain
            nothing. Else there are none only where they cost something.

    Returns:
        The tokens, 0 for no turns, and why; None where no job of about as many roots, and with
        this assignment, was measured.
    """
    near = [
        one
        for one in measured
        if one.assignment == assignment
        and max(one.roots, roots) <= ROOTS_FACTOR * min(one.roots, roots)
    ]
    if not near:
        return None
    # The nearest, and of equals the newest.
    job = min(
        near, key=lambda one: (abs(one.roots - roots), abs(one.nodes - nodes), -one.measured)
    )
    best = max(job.samples, key=lambda sample: sample.rate)
    enough = [sample for sample in job.samples if sample.rate >= ENOUGH * best.rate]
    # Without turns as many read as there are roots; but it saves the waiting.
    most = -1 if may_be_none else job.roots
    taken = min(enough, key=lambda sample: sample.tokens or most)
    rates = [f"{rate_text(taken)} {_turns(taken, job)}"]
    if best is not taken:
        rates.append(f"{rate_text(best)} at best, {_turns(best, job)}")
    none = next((sample for sample in job.samples if not sample.tokens), taken)
    if none not in (taken, best):
        rates.append(f"{rate_text(none)} {_turns(none, job)}")
    return taken.tokens, Reason("tune", f"measured {'; '.join(rates)}")


def _turns(sample: TokenSample, job: Staggering) -> str:
    if not sample.tokens:
        return "without turns"
    return f"with {sample.tokens} of {job.roots} roots at a time"
