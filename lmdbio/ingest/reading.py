"""Runs of samples, read by threads, in order: what several kinds of source have in common."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["BATCH_BYTES", "BATCH_SAMPLES_MAX", "THREADS", "in_order"]

Done = TypeVar("Done")

#: Of the samples that are handed on together; so many batches are in memory as threads read.
BATCH_BYTES, BATCH_SAMPLES_MAX = 4 << 20, 1024
#: Reads in flight: a disk wants several, and more of them wait for Python's lock alone.
THREADS = 8


def in_order(tasks: Iterable[Callable[[], Done]], threads: int) -> Iterator[Done]:
    """Yield the results of tasks in their order; so many threads are ahead."""
    with ThreadPoolExecutor(threads) as pool:
        flying: deque[Future[Done]] = deque()
        try:
            for task in tasks:
                flying.append(pool.submit(task))
                if len(flying) > threads:
                    yield flying.popleft().result()
            while flying:
                yield flying.popleft().result()
        finally:
            for future in flying:
                future.cancel()
