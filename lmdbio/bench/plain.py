"""The plain reader: requests of one size, as IOR's POSIX backend makes them."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from threading import Lock

from lmdbio.bench.readers import Lap, Totals

__all__ = ["reading"]


def reading(
    offsets: Iterable[int],
    transfer: int,
    path: str,
    *,
    direct: bool,
    depth: int = 1,
    lap: Lap | None = None,
    lap_requests: int = 1,
) -> Callable[[], Totals]:
    """Do what is not timed; the function returned opens, reads and closes.

    Args:
        offsets: offset of each request, bytes, in order.
        transfer: bytes of a request.
        path: the file.
        direct: whether to read past the page cache (O_DIRECT).
        depth: requests in flight, each by a thread; they begin in order.
        lap, lap_requests: function that is called after every ``lap_requests`` requests.

    Returns:
        A function that gives the number of requests and of bytes.
    """
    waiting, done, lock = deque(offsets), count(1), Lock()
    # Anonymous memory begins at a page, as O_DIRECT wants it; written to, so that it is there.
    memory = [mmap.mmap(-1, transfer) for _ in range(depth)]
    for piece in memory:
        piece.write(bytes(transfer))

    def serve(fd: int, piece: mmap.mmap) -> int:
        """Take one offset after the other until none is left, and return how many."""
        buffers, served = [memoryview(piece)], 0
        try:
            while True:
                with lock:
                    offset = waiting.popleft() if waiting else None
                if offset is None:
                    return served
                got = os.preadv(fd, buffers, offset)
                if got != transfer:
                    raise OSError(f"{path}: {got} of {transfer} bytes at offset {offset}")
                served += 1
                with lock:
                    if next(done) % lap_requests == 0 and lap is not None:
                        lap()
        finally:
            waiting.clear()  # who fails, or is interrupted, ends the others too

    def read() -> Totals:
        fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        try:
            with ThreadPoolExecutor(depth) as threads, ExitStack() as end:
                end.callback(waiting.clear)  # before the pool waits for its threads
                others = [threads.submit(serve, fd, piece) for piece in memory[1:]]
                requests = serve(fd, memory[0]) + sum(other.result() for other in others)
        finally:
            os.close(fd)
        return requests, requests * transfer

    return read
