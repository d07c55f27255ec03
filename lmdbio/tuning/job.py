"""Job: measure how fast several nodes read at once, and send to each other.

    mpiexec -n 16 lmdbio tune PATH
    torchrun --nproc-per-node 16 -m lmdbio tune PATH

The first ranks of 1, 2, 4 and so on nodes read the same file, in order and at random, each from a
place of its own, as roots do. Then the first rank of each node sends to the next one's and
receives from the one before, all at once, as they do when they exchange rows. All others sleep
meanwhile.
"""

from __future__ import annotations

import os
import statistics
import time
from fractions import Fraction
from typing import Any

from lmdbio import _core, share
from lmdbio.errors import IncompatibleError
from lmdbio.machine import calibration, storage
from lmdbio.machine.calibration import Calibration, Kind, Sample, SharedSample
from lmdbio.machine.choice import FAR_STREAM_DEPTH, FAR_STREAM_REQUEST_BYTES_MAX
from lmdbio.provenance import find_data
from lmdbio.remote import open_data
from lmdbio.tuning.tune import FLIGHT_BYTES_MAX, NotColdError, Progress, Trial, run_trial

__all__ = ["MESSAGES_BYTES", "counts_of", "measure_nodes", "settled"]

#: In order as a Reader's blocks are read, and at random as records of a common size are.
STREAM, RANDOM = (FAR_STREAM_REQUEST_BYTES_MAX, FAR_STREAM_DEPTH), (128 << 10, 32)
#: Requests that each reads in order at least, of a small file.
PLACES_MIN = 4
#: Rows for one root of many, up to what an exchange sends in one piece, and more.
MESSAGES_BYTES = tuple(16 * 1024 * 4**i for i in range(6))
#: On their way from each root, as an exchange has them; of small messages no more than so many.
FLIGHT_BYTES, FLIGHT_MAX = 32 << 20, 64
#: Runs of each size, of which the median counts, after one that says how long they may be.
RUNS = 3
#: Of a run.
MESSAGES_MAX = 1 << 14


def measure_nodes(
    path: str | os.PathLike[str], comm: Any, *, seconds: float, progress: Progress | None = None
) -> tuple[tuple[SharedSample, ...], Calibration | None]:
    """Measure how fast several nodes read at once, and send. Collective; keeps nothing.

    Args:
        path: the environment's folder, or its file; may differ between nodes.
        comm: communicator, or transport, of the ranks (``share.world``).
        seconds: time, half of which is for reading, and a quarter for sending.
        progress: function of (runs done, runs, name).

    Returns:
        Two samples, in order and at random, for each number of readers, none where nothing can be
        measured on cold data; and a sample for each size of messages, whose depth is the number of
        nodes (256 at most). Where all ranks are on one node, none and None.

    Raises:
        OSError, Error: the file cannot be read on some rank, or a rank does not answer, or has
            another environment.
    """
    job = share.connect(comm)
    try:
        settled(job)
        if len(job.nodes) < 2:
            return (), None
        runs = _Runs(path, job)
        try:
            readers = runs.measure(seconds / 2, progress)
        finally:
            runs.close()
        return readers, _measure_network(job, seconds / 4, progress)
    finally:
        job.free()


def settled(job: share.Job) -> int | None:
    """Settle which ranks are a node's; return how many a node has, where the environment says.

    Raises:
        Error: a rank does not answer, or has another environment.
    """
    per_node = job.together(share.ranks_per_node)
    job.compare([{share.RANKS_PER_NODE: number} for number in per_node])
    job.settle_nodes(per_node[0])
    return per_node[0]


# --- reading ------------------------------------------------------------------------------


def counts_of(nodes: int) -> tuple[int, ...]:
    """Return the numbers of readers to measure: 2, 4 and so on below ``nodes``, and all.

    One reader is what ``tune.measure`` measures.
    """
    return (*(1 << i for i in range(1, (nodes - 1).bit_length())), nodes)


class _Runs:
    """The runs of one job: each rank has one, and all ranks take the same steps."""

    def __init__(self, path: str | os.PathLike[str], job: share.Job) -> None:
        self._job = job
        self._engine: _core.Engine | None = None
        firsts = [node[0] for node in job.nodes]
        self._place = firsts.index(job.rank) if job.rank in firsts else None

        def begin() -> tuple[Kind, int] | None:
            if self._place is None:
                return None
            self._engine = open_data(find_data(path))
            self._memory = _core.Memory(2 * FLIGHT_BYTES_MAX)
            found = storage.inspect(self._engine, cached=False, thorough=True)
            kind: Kind = "pread" if found.direct is False else "direct"
            return kind, self._engine.size()

        begun = [one for one in job.together(begin) if one is not None]
        is_direct = all(kind == "direct" for kind, _ in begun)
        self._kind: Kind = "direct" if is_direct else "pread"
        self._size = min(size for _, size in begun)

    def measure(self, seconds: float, progress: Progress | None) -> tuple[SharedSample, ...]:
        """Make all runs."""
        counts, found = counts_of(len(self._job.nodes)), list[SharedSample]()
        request_bytes, depth = STREAM
        while PLACES_MIN * counts[-1] * request_bytes > self._size and request_bytes > RANDOM[0]:
            request_bytes //= 2  # each reads something of its own
        trials = [
            Trial(self._kind, "stream", request_bytes, depth),
            Trial(self._kind, "random", *RANDOM),
        ]
        runs = len(counts) * len(trials)
        for number, (count, trial) in enumerate((n, one) for n in counts for one in trials):
            if progress is not None:
                progress(number, runs, f"{count} nodes: {trial}")
            made = self._run(trial, count, seconds / runs)
            if made is not None:
                found.append(SharedSample(count, made))
        return tuple(found)

    def _run(self, trial: Trial, count: int, seconds: float) -> Sample | None:
        """Let so many nodes read; None: they cannot."""

        def step() -> Sample | None:
            if self._place is None or self._place >= count or self._engine is None:
                return None
            if 2 * trial.request_bytes > self._size:
                return None
            try:
                return run_trial(
                    self._engine,
                    trial,
                    self._size,
                    seconds,
                    self._memory,
                    seed=self._place,
                    begins=Fraction(self._place, count),
                )
            except (IncompatibleError, NotColdError):
                return None

        made = [one for one in self._job.together(step) if one is not None]
        if len(made) < count:
            return None
        # Rates add up: not all begin and end at the same moment.
        rate = sum(one.rate for one in made)
        requests = sum(one.requests for one in made)
        taken = requests * trial.request_bytes / rate
        return Sample(trial.kind, trial.pattern, trial.request_bytes, trial.depth, requests, taken)

    def close(self) -> None:
        """Close the file."""
        if self._engine is not None:
            self._engine.close()


# --- sending ------------------------------------------------------------------------------


def _measure_network(job: share.Job, seconds: float, progress: Progress | None) -> Calibration:
    """Measure the rate of each node, sending and receiving at once."""
    ring = job.together_local(lambda: share.Ring(job, FLIGHT_BYTES))
    try:
        each, samples = seconds / len(MESSAGES_BYTES), []
        for done, size in enumerate(MESSAGES_BYTES):
            if progress is not None:
                progress(done, len(MESSAGES_BYTES), "network")
            samples.append(_sample(job, ring, size, each))
    finally:
        ring.close()
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
