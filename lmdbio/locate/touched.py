"""Touch many files ahead of who opens them one after the other.

Where storage is far, each open and each first read waits for it. Threads do so for the next files
meanwhile, and what they have read is in memory then. Whatever fails here fails again there, and is
told by that.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from lmdbio.remote import is_url

__all__ = ["touching"]

#: Of descriptors that a process may have, so many are left for one that a thread takes.
THREADS_MAX, DESCRIPTORS_EACH = 16, 16
#: Of each file: the meta pages of most, and the whole of most provenance files.
BYTES = 32 << 10
#: Fewer files are opened sooner without.
FILES_MIN = 8


@contextlib.contextmanager
def touching(paths: Sequence[str | os.PathLike[str]]) -> Iterator[None]:
    """Read the first bytes of files in threads, which end with the body; of URLs none."""
    threads = None
    if len(paths) >= FILES_MIN and not is_url(paths[0]):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        count = THREADS_MAX
        if limit != resource.RLIM_INFINITY:
            count = min(count, limit // DESCRIPTORS_EACH)
        if count > 0:
            threads = ThreadPoolExecutor(count, "lmdbio-touch")
    try:
        if threads is not None:
            with contextlib.suppress(RuntimeError):  # no thread can be started
                for path in paths:
                    threads.submit(_touch, path)
        yield
    finally:
        if threads is not None:
            threads.shutdown(cancel_futures=True)


def _touch(path: str | os.PathLike[str]) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.pread(fd, BYTES, 0)
        finally:
            os.close(fd)
