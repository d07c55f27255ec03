"""network: measure how fast roots of several nodes send to each other, by the size of messages.

    mpiexec -n 16 lmdbio tune PATH

The first rank of each node sends to the next one's and receives from the one before, all at once,
as they do when they exchange rows; the others sleep meanwhile.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from lmdbio import share
from lmdbio.machine import calibration
from lmdbio.machine.calibration import Calibration, Sample
from lmdbio.tuning.tune import Progress

__all__ = ["MESSAGES_BYTES", "SECONDS", "measure_network"]

#: For all sizes together.
SECONDS = 2.0
#: Rows for one root of many, up to what an exchange sends in one piece, and more.
MESSAGES_BYTES = tuple(16 * 1024 * 4**i for i in range(6))
#: On their way from each root, as an exchange has them; of small messages no more than so many.
FLIGHT_BYTES, FLIGHT_MAX = 32 << 20, 64
#: Runs of each size, of which the median counts, after one that says how long they may be.
RUNS = 3
#: Of a run.
MESSAGES_MAX = 1 << 14


def measure_network(
    comm: Any, *, seconds: float = SECONDS, progress: Progress | None = None
) -> Calibration | None:
    """Measure the rate of each node, sending and receiving at once. Collective; keeps nothing.

    Args:
        comm: an mpi4py intracommunicator.
        seconds: time for all sizes of messages together.
        progress: function of (sizes done, sizes, name).

    Returns:
        A sample for each size of messages, whose depth is the number of nodes (256 at most); None
        where all ranks are on one node.

    Raises:
        ValueError: ``seconds`` is not positive.
        Error: a rank does not answer.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, not {seconds}")
    job = share.connect(comm)
    try:
        per_node = job.together(share.ranks_per_node)
        job.compare([{share.RANKS_PER_NODE: number} for number in per_node])
        job.settle_nodes(per_node[0])
        if len(job.nodes) < 2:
            return None
        ring = job.together_local(lambda: share.Ring(job, FLIGHT_BYTES))
        try:
            each, samples = seconds / len(MESSAGES_BYTES), []
            for done, size in enumerate(MESSAGES_BYTES):
                if progress is not None:
                    progress(done, len(MESSAGES_BYTES), "network")
                samples.append(_sample(job, ring, size, each))
        finally:
            ring.close()
    finally:
        job.free()
    return Calibration(calibration.NETWORK, time.time(), tuple(samples))


def _sample(job: share.Job, ring: share.Ring, size: int, seconds: float) -> Sample:
    """Let all nodes send messages of a size."""
    flight = min(FLIGHT_BYTES // size, FLIGHT_MAX)

    def run(messages: int) -> float:
        found = job.together(lambda: ring.run(size, messages, flight))
        return max(one for one in found if one is not None)

    # The first messages make connections.
    took = min(run(flight) for _ in range(2))
    # Of the slowest rank, which all ranks know alike.
    messages = int(seconds / (RUNS + 1) / max(took, 1e-6) * flight)
    messages = max(flight, min(messages, MESSAGES_MAX))
    took = statistics.median(run(messages) for _ in range(RUNS))
    return Sample("network", "stream", size, min(len(job.nodes), 256), messages, max(took, 1e-9))
