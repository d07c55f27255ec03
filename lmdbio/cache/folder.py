"""All cache files of a folder: listed, verified, cleared."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from lmdbio import _core
from lmdbio.cache.cache_file import lock
from lmdbio.cache.layout import PAGE_BYTES, SUFFIX, Header, read_sums
from lmdbio.system.frozen import dataclass
from lmdbio.system.posix import OPEN_FLAGS, fcntl

__all__ = ["Entry", "clear", "find", "verify"]

State = Literal["current", "outdated", "damaged"]

#: Pages that are read at a time.
PART = 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """A cache file of a folder.

    Attributes:
        path: path of the cache file.
        source: path of the data file; empty: its header does not say.
        state: "current"; "outdated": the data file is another one by now; "damaged".
        why: reason why it is not current.
        is_open: whether a job has it open.
        kept_bytes: number of bytes that it keeps of the data file.
        disk_bytes: number of bytes that it takes on the disk.
        source_bytes: size of the data file, bytes.
        first, end: range of the data file, bytes, of which it keeps a part.
        used_s: time of its last write, seconds since 1970.
    """

    path: Path
    source: str
    state: State
    why: str
    is_open: bool
    kept_bytes: int
    disk_bytes: int
    source_bytes: int
    first: int
    end: int
    used_s: float


def find(folder: Path) -> list[Entry]:
    """Return the cache files of a folder, by name.

    Raises:
        OSError: the folder cannot be read.
    """
    paths = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    return [entry for path in paths if (entry := _inspect(path)) is not None]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    with _core.Descriptor(path, os.O_RDONLY | OPEN_FLAGS) as file:
        if not stat.S_ISREG(os.fstat(file.fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        yield file.fd


def _inspect(path: Path) -> Entry | None:
    """Return what a file is; None: it was removed meanwhile."""
    try:
        with _opened(path) as fd:
            status = os.fstat(fd)
            is_open = not lock(fd, fcntl.LOCK_SH)
            fcntl.flock(fd, fcntl.LOCK_UN)  # a job that begins wants it
            disk_bytes, used_s = status.st_blocks * 512, status.st_mtime
            try:
                header = Header.read(fd)
            except ValueError as error:
                return Entry(
                    path, "", "damaged", str(error), is_open, 0, disk_bytes, 0, 0, 0, used_s
                )
            intact = sum(int(np.count_nonzero(sums)) for _, sums in _sums(fd, header))
    except FileNotFoundError:
        return None
    except OSError as error:  # another user's, or no file at all
        return Entry(path, "", "damaged", error.strerror or "", False, 0, 0, 0, 0, 0, 0.0)
    source = header.source
    is_current = source.is_current()
    return Entry(
        path,
        source.path,
        "current" if is_current else "outdated",
        "" if is_current else "the data file is not as it was",
        is_open,
        intact * PAGE_BYTES,
        disk_bytes,
        source.size,
        header.first * PAGE_BYTES,
        min(header.end * PAGE_BYTES, source.size),
        used_s,
    )


def _sums(fd: int, header: Header) -> Iterator[tuple[int, npt.NDArray[np.uint32]]]:
    """Yield the sums of all pages that a file may keep, some at a time, and the first's number."""
    for first in range(header.first, header.end, PART):
        yield first, read_sums(fd, first, min(first + PART, header.end))


def verify(path: Path, progress: Callable[[int, int], None] | None = None) -> tuple[int, int]:
    """Compare all pages that a cache file keeps with their sums.

    Args:
        path: path of the file.
        progress: function called with pages done and pages in all.

    Returns:
        Pages that it keeps, and how many of them are damaged; the next job reads these anew.

    Raises:
        ValueError: it is no cache file, or its header is damaged.
        OSError: it cannot be read.
    """
    intact = damaged = 0
    with _opened(path) as fd:
        header = Header.read(fd)
        memory = _core.Memory(PART * PAGE_BYTES)
        view = memoryview(_core.lend(memory.address, memory.size, memory)).cast("B")
        for first, sums in _sums(fd, header):
            if sums.any():
                view[:] = bytes(len(view))
                offset = header.data_offset + first * PAGE_BYTES
                os.preadv(fd, [view[: len(sums) * PAGE_BYTES]], offset)
                found = _core.sum_pages(header.source.seed, memory.address, first, len(sums))
                intact += int(np.count_nonzero(sums))
                damaged += int(np.count_nonzero((sums != 0) & (sums != found)))
            if progress is not None:
                progress(first + len(sums) - header.first, header.end - header.first)
    return intact, damaged


def clear(entry: Entry) -> bool:
    """Remove a cache file; return whether no job has it open, so that it could be removed.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        with _opened(entry.path) as fd:
            if not lock(fd):
                return False
            entry.path.unlink()
    except FileNotFoundError:
        pass
    return True
