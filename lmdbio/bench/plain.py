"""The plain reader: requests of one size, as IOR's POSIX backend makes them."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator

from lmdbio.bench.readers import Lap, Totals

__all__ = ["reading"]


class Requests:
    """Requests of one size on a file, one after the other or several in flight.

    Args:
        offsets: offset of each request, bytes, in order.
        transfer: bytes of each.
        path: the file.
        lap: function that is called after every ``lap_requests`` requests.
        lap_requests: number of requests that hold a batch.
    """

    def __init__(
        self, offsets: Iterable[int], transfer: int, path: str, lap: Lap | None, lap_requests: int
    ) -> None:
        self.offsets: Iterator[int] = iter(offsets)
        self.transfer, self.path = transfer, path
        self.lap, self.lap_requests = lap, lap_requests
        self.lock = threading.Lock()
        self.requests = 0
        self.failed: OSError | None = None

    def serve(self, fd: int, memory: mmap.mmap) -> None:
        """Take one offset after the other until none is left; requests begin in order."""
        buffers = [memoryview(memory)]
        try:
            while True:
                with self.lock:
                    offset = next(self.offsets, None)
                if offset is None or self.failed is not None:
                    return
                got = os.preadv(fd, buffers, offset)
                if got != self.transfer:
                    raise OSError(
                        f"{self.path}: {got} of {self.transfer} bytes at offset {offset}"
                    )
                with self.lock:
                    self.requests += 1
                    if self.lap is not None and self.requests % self.lap_requests == 0:
                        self.lap()
        except OSError as error:
            self.failed = error


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
        depth: requests in flight, each by a thread.
        lap, lap_requests: function that is called after every ``lap_requests`` requests.

    Returns:
        A function that gives the number of requests and of bytes.
    """
    todo = Requests(list(offsets), transfer, path, lap, lap_requests)
    # Anonymous memory begins at a page, as O_DIRECT wants it; written to, so that it is there.
    memory = [mmap.mmap(-1, transfer) for _ in range(depth)]
    for piece in memory:
        piece.write(bytes(transfer))

    def read() -> Totals:
        fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        try:
            threads = [
                threading.Thread(target=todo.serve, args=(fd, piece)) for piece in memory[1:]
            ]
            for thread in threads:
                thread.start()
            todo.serve(fd, memory[0])
            for thread in threads:
                thread.join()
        finally:
            os.close(fd)
        if todo.failed is not None:
            raise todo.failed
        return todo.requests, todo.requests * transfer

    return read
