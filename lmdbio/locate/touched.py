"""Touch many files ahead of a thread that opens them one after the other.

Where storage is far, each open and each first read waits for it. Once the first files have shown
that, threads do so for the next ones meanwhile, and their bytes are in memory then. A failure here
comes again there, and is told by that.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from lmdbio import _core
from lmdbio.remote import is_url

__all__ = ["touching"]

#: Of descriptors that a process may have, so many are left for one that a thread takes.
THREADS_MAX, DESCRIPTORS_EACH = 16, 16
#: Of each file: the meta pages of most, and the whole of most provenance files.
BYTES = 32 << 10
#: Files that are opened first, and how long each waits there if it is worth while: of those in
#: memory each takes 0.2 ms, and to touch it as long again.
FILES_TRIED, WAIT_S = 8, 3e-4


@contextlib.contextmanager
def touching(
    paths: Sequence[str], beside: Callable[[str], str | os.PathLike[str]] | None = None
) -> Iterator[Callable[[], None]]:
    """Read the first bytes of files in threads, in order; they end with the body. Of URLs none.

    Args:
        paths: paths of the files.
        beside: function that names a file which is opened with each.

    Yields:
        A function to call when the next file has been opened.
    """
    threads: list[ThreadPoolExecutor] = []
    done, begun = 0, (time.monotonic(), time.thread_time())

    def opened() -> None:
        nonlocal done
        done += 1
        if done != FILES_TRIED:
            return
        waited = time.monotonic() - begun[0] - (time.thread_time() - begun[1])
        count = 0 if is_url(paths[0]) else _threads()
        if waited >= FILES_TRIED * WAIT_S and count:
            threads.append(ThreadPoolExecutor(count, "lmdbio-touch"))
            with contextlib.suppress(RuntimeError):  # no thread can be started
                for path in paths[done:]:
                    threads[0].submit(_touch, path, beside)

    try:
        yield opened
    finally:
        for one in threads:
            one.shutdown(cancel_futures=True)


def _threads() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return THREADS_MAX
    return min(THREADS_MAX, limit // DESCRIPTORS_EACH)


def _touch(path: str, beside: Callable[[str], str | os.PathLike[str]] | None) -> None:
    for one in (path,) if beside is None else (path, beside(path)):
        with contextlib.suppress(OSError), _core.Descriptor(one, os.O_RDONLY) as file:
            os.pread(file.fd, BYTES, 0)
