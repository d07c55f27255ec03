"""memory: measure how fast threads copy, as a root copies records of its cache into a slot.

Each thread copies chunks at random places of memory larger than any processor's cache into a place
of its own, one at a time.
"""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import numpy.typing as npt

from lmdbio.machine import calibration
from lmdbio.machine.calibration import Calibration, Sample

__all__ = ["SECONDS", "measure_memory"]

#: For all numbers of threads together.
SECONDS = 0.5
#: The memory that is read, and that is copied at a time: some records of a batch.
SOURCE_BYTES, CHUNK_BYTES = 256 << 20, 1 << 20

Bytes = npt.NDArray[np.uint8]


def measure_memory(*, seconds: float = SECONDS) -> Calibration:
    """Measure the rate of copying, with 1, 2, 4 and so on threads and one for each processor.

    Args:
        seconds: time for all of them together, seconds.

    Raises:
        ValueError: ``seconds`` is not positive.
        MemoryError: there is no room for the copies.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, not {seconds}")
    source = np.ones(SOURCE_BYTES, np.uint8)  # touched, so that all of it is there
    most = len(os.sched_getaffinity(0))
    counts = sorted({*(1 << i for i in range(most.bit_length()) if 1 << i <= most), most})
    samples = tuple(_run(source, count, seconds / len(counts)) for count in counts)
    return Calibration(calibration.MEMORY, time.time(), samples)


def _run(source: Bytes, threads: int, seconds: float) -> Sample:
    """Let so many threads copy for a while."""
    copies = [0] * threads
    targets = [np.ones(CHUNK_BYTES, np.uint8) for _ in range(threads)]
    workers = [
        threading.Thread(target=_copy, args=(source, target, number, copies, seconds))
        for number, target in enumerate(targets)
    ]
    begun = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    spent = time.monotonic() - begun
    return Sample("memory", "random", CHUNK_BYTES, threads, sum(copies), spent)


def _copy(source: Bytes, target: Bytes, number: int, copies: list[int], seconds: float) -> None:
    places = len(source) // CHUNK_BYTES
    order = np.random.default_rng(number).permutation(places).tolist()
    until = time.monotonic() + seconds
    while time.monotonic() < until or not copies[number]:
        at = order[copies[number] % places] * CHUNK_BYTES
        np.copyto(target, source[at : at + CHUNK_BYTES])
        copies[number] += 1
