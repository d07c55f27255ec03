"""readers: measure how fast several nodes read at once, in order and at random.

    mpiexec -n 16 lmdbio tune PATH

The first ranks of 1, 2, 4 and so on nodes read the same file, each from a place of its own, as
roots do; all others sleep meanwhile.
"""

from __future__ import annotations

import os
from typing import Any

from lmdbio import _core, share
from lmdbio.errors import IncompatibleError
from lmdbio.machine import storage
from lmdbio.machine.calibration import Kind, Sample, SharedSample
from lmdbio.machine.choice import FAR_STREAM_DEPTH, FAR_STREAM_REQUEST_BYTES_MAX
from lmdbio.provenance import find_data
from lmdbio.remote.data import open_data
from lmdbio.tuning.tune import (
    FLIGHT_BYTES_MAX,
    NotColdError,
    Part,
    Progress,
    Trial,
    run_trial,
)

__all__ = ["counts_of", "measure_readers"]

#: In order as a Reader's blocks are read, and at random as records of a common size are.
STREAM, RANDOM = (FAR_STREAM_REQUEST_BYTES_MAX, FAR_STREAM_DEPTH), (128 << 10, 32)

#: Requests that each reads in order at least, of a small file.
PLACES_MIN = 4


def counts_of(nodes: int) -> tuple[int, ...]:
    """Return the numbers of readers to measure: 2, 4 and so on below ``nodes``, and all.

    One reader is what ``tune.measure`` measures.
    """
    return (*(1 << i for i in range(1, (nodes - 1).bit_length())), nodes)


def measure_readers(
    path: str | os.PathLike[str], comm: Any, *, seconds: float, progress: Progress | None = None
) -> tuple[SharedSample, ...]:
    """Measure the rate of several nodes together. Collective over ``comm``; keeps nothing.

    Args:
        path: the environment's folder, or its file; may differ between nodes.
        comm: an mpi4py intracommunicator.
        seconds: time for all runs together.
        progress: function of (runs done, runs, name).

    Returns:
        Two samples, in order and at random, for each number of readers; none where all ranks are
        on one node, or nothing can be measured on cold data.

    Raises:
        OSError, Error: the file cannot be read, on some rank.
    """
    job = share.connect(comm)
    try:
        per_node = job.together(share.ranks_per_node)
        job.compare([{share.RANKS_PER_NODE: number} for number in per_node])
        job.settle_nodes(per_node[0])
        if len(job.nodes) < 2:
            return ()
        runs = _Runs(path, job)
        try:
            return runs.measure(seconds, progress)
        finally:
            runs.close()
    finally:
        job.free()


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
            found = storage.look(self._engine, cached=False, thorough=True)
            kind: Kind = "pread" if found.direct is False else "direct"
            return kind, self._engine.size()

        told = [one for one in job.together(begin) if one is not None]
        is_direct = all(kind == "direct" for kind, _ in told)
        self._kind: Kind = "direct" if is_direct else "pread"
        self._size = min(size for _, size in told)

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
            size, part = self._size, Part(self._place, count)
            if 2 * trial.request_bytes > size:
                return None
            try:
                return run_trial(
                    self._engine, trial, size, seconds, self._memory, seed=self._place, part=part
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
