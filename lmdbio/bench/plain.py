"""The plain reader: one synchronous request after the other, as IOR's POSIX backend makes them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

from lmdbio.bench.layout import Layout
from lmdbio.bench.readers import Lap, Totals

__all__ = ["reading"]


def reading(
    layout: Layout,
    path: str,
    rank: int,
    *,
    direct: bool,
    lap: Lap | None = None,
    lap_requests: int = 1,
) -> Callable[[], Totals]:
    """What is not timed is done here; the function returned opens, reads and closes.

    Args:
        layout: what to read.
        path: the file.
        rank: which process this is.
        direct: O_DIRECT, past the page cache.
        lap: called after every ``lap_requests`` requests.
        lap_requests: as many as hold a batch.

    Returns:
        A function that gives the number of requests and of bytes.
    """
    offsets = list(layout.offsets(rank))
    # Anonymous memory begins at a page, as O_DIRECT wants it; written to, so that it is there.
    memory = mmap.mmap(-1, layout.transfer)
    memory.write(bytes(layout.transfer))
    buffers = [memoryview(memory)]

    def read() -> Totals:
        total = 0
        fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        try:
            for number, offset in enumerate(offsets, 1):
                got = os.preadv(fd, buffers, offset)
                if got != layout.transfer:
                    raise OSError(f"{path}: {got} of {layout.transfer} bytes at offset {offset}")
                total += got
                if lap is not None and number % lap_requests == 0:
                    lap()
        finally:
            os.close(fd)
        return len(offsets), total

    return read
