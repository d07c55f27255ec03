"""measured: what ``lmdbio tune`` found out, as rates by the number of those who read. Pure."""

from __future__ import annotations

from lmdbio.machine.calibration import Calibration
from lmdbio.planning.environment import Curve

__all__ = ["disk_rate", "file_system_rate"]

MIB = float(1 << 20)


def file_system_rate(calibration: Calibration) -> Curve:
    """Return M per second of a file system by the nodes that read from it.

    One node gives what its best trial gave; several, what the largest job that ``tune`` ran in
    gave with so many roots at a time.

    Args:
        calibration: of the file system.
    """
    points = {1: max(sample.rate for sample in calibration.samples) / MIB}
    for job in sorted(calibration.staggerings, key=lambda job: (job.nodes, job.measured)):
        for sample in job.samples:
            points[sample.tokens or job.roots] = sample.rate / MIB
    return Curve.of(points)


def disk_rate(calibration: Calibration) -> Curve:
    """Return M per second of a disk by the random requests in flight, the largest requests."""
    random = [one for one in calibration.samples if one.pattern == "random"]
    if not random:
        return Curve.of(max(sample.rate for sample in calibration.samples) / MIB)
    largest = max(sample.request_bytes for sample in random)
    rates: dict[int, float] = {}
    for one in random:
        if one.request_bytes == largest:
            rates[one.depth] = max(rates.get(one.depth, 0.0), one.rate / MIB)
    return Curve.of(rates)
