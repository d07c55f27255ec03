"""file_set: several files that are read as one (csrc/engine_joined.c): their states and places.

Each file is closed when it was looked at. The engine opens them again, few at a time, and refuses
one that was replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from lmdbio import _core
from lmdbio.errors import Error
from lmdbio.remote import absolute, is_url, label
from lmdbio.system.file_identity import FileIdentity
from lmdbio.system.posix import resource

__all__ = ["FILES_OPEN_MAX", "FileSet", "prefetching"]

#: Files that are open at a time, besides the first one, at most; and one in so many of the
#: descriptors that the process may have, for it has other uses of them, and other data sets.
FILES_OPEN_MAX, LIMIT_SHARE = 64, 8
#: Requests in flight, of the engine that reads samples.
DEPTH = 32
#: Of descriptors that a process may have, so many are left for one that a thread takes.
THREADS_MAX, DESCRIPTORS_EACH = 16, 16
#: Of each file: the meta pages of most, and the whole of most provenance files.
PREFETCH_BYTES = 32 << 10
#: Files that are opened first, and how long each waits there if it is worth while: of those in
#: memory each takes 0.2 ms, and to prefetch it as long again.
FILES_TRIED, WAIT_S = 8, 3e-4


class FileSet:
    """The states of several files, and their places as parts of one.

    Args:
        paths: paths of the data files.

    Attributes:
        meta: the state of the first file.
        locations: names by which they are opened again, from any folder.
        counts: records of each file that was added, int64.
        used_bytes: size of all files together, as one.
    """

    meta: _core.Meta

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths, self.locations = paths, [absolute(path) for path in paths]
        self.counts = np.zeros(len(paths), np.int64)
        self._parts: Any = np.zeros(len(paths), _core.PART)
        self._identities: list[FileIdentity] = []
        self._elsewhere: list[Any] = []  # files on servers, which stay open
        self.used_bytes = 0

    def add(self, pages: _core.Engine, meta: _core.Meta, count: int) -> int:
        """Add the next file while it is open, and return where its bytes begin.

        Args:
            pages: engine that reads it.
            meta: newest meta page of the file.
            count: number of its records.
        """
        number, base, identity = len(self._identities), self.used_bytes, pages.identity()
        if number == 0:
            self.meta = meta
        layout = meta.layout
        at = meta.slot * layout.page_size + layout.header_size
        size = min((meta.last_pgno + 1) * layout.page_size, pages.size())
        self._parts[number] = (
            *(base, size, identity.dev, identity.ino),
            *(layout.version, at, meta.txnid, meta.mark),
        )
        self.counts[number] = count
        self._identities.append(identity)
        if pages.remote_file is not None:
            self._elsewhere.append(pages.remote_file)
        self.used_bytes += -(-size // _core.PART_ALIGNMENT) * _core.PART_ALIGNMENT
        return base

    def refuse_other(self, number: int, pages: _core.Engine, meta: _core.Meta) -> None:
        """Refuse a file that was opened again, if it is another one or in another state.

        Raises:
            Error: it is.
        """
        known, identity = self._parts[number], pages.identity()
        then, now = int(known["txnid"]), meta.txnid
        if (known["device"], known["inode"]) != (identity.dev, identity.ino):
            why = "another file has taken its place since it was opened"
        elif (then, known["mark"]) != (now, meta.mark):
            why = f"was written to since it was opened (transaction {then} then, {now} now)"
        else:
            return
        raise Error(f"{pages.path}: {why}; open it again")

    def file_of(self, index: int) -> tuple[str, int]:
        """Return the file that has a record, and the record's number in it."""
        ends = np.cumsum(self.counts)
        file = int(np.searchsorted(ends, index, side="right"))
        return label(self.paths[file]), index - int(ends[file] - self.counts[file])

    def open(self) -> _core.Engine:
        """Open all files as one.

        Raises:
            OSError, Error: the first one cannot be opened, or was replaced.
            ValueError: the server of one tells no state that reads are held against.
        """
        if self._elsewhere:
            from lmdbio.remote.joined import JoinedFile  # others begin sooner without it

            bases, sizes = self._parts["base"].tolist(), self._parts["size"].tolist()
            return _core.Engine.remote(JoinedFile(self._elsewhere, bases, sizes), DEPTH)
        return _core.JoinedEngine(self.paths, self._parts, files_open_max(), DEPTH)

    @property
    def txnid(self) -> int:
        """The sum of the files' transactions: one of another state of theirs is another."""
        return int(self._parts["txnid"].sum())

    @property
    def state(self) -> bytes:
        """Bytes that stand for the states of all files, as the meta pages do for that of one."""
        fields = np.column_stack([self._parts[name] for name in ("size", "txnid", "mark")])
        return hashlib.blake2b(np.ascontiguousarray(fields).tobytes()).digest()

    @property
    def identity(self) -> FileIdentity:
        """The identity of all files as one, which has the size of these as one."""
        return replace(FileIdentity.joined(self._identities), size=self.used_bytes)


def files_open_max() -> int:
    """Return how many files of a data set may be open at a time (``ulimit -n``)."""
    return max(1, _bounded(FILES_OPEN_MAX, LIMIT_SHARE))


def _bounded(most: int, descriptors_each: int) -> int:
    """Return ``most``, or as many as the process has descriptors for."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if limit == resource.RLIM_INFINITY else min(most, limit // descriptors_each)


# --- ahead of a thread that opens them ------------------------------------------------------


@contextlib.contextmanager
def prefetching(
    paths: Sequence[str], beside: Callable[[str], str | os.PathLike[str]] | None = None
) -> Iterator[Callable[[], None]]:
    """Read the first bytes of files ahead of a thread that opens them one after the other.

    Where storage is far, each open and each first read waits for it. Once the first files have
    shown that, threads do so for the next ones, in order, whose bytes are in memory then. That
    thread meets a failure here again, and reports it. Threads end with the body; no URL is read.

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
        count = 0 if is_url(paths[0]) else _bounded(THREADS_MAX, DESCRIPTORS_EACH)
        if waited >= FILES_TRIED * WAIT_S and count:
            threads.append(ThreadPoolExecutor(count, "lmdbio-prefetch"))
            with contextlib.suppress(RuntimeError):  # no thread can be started
                for path in paths[done:]:
                    threads[0].submit(_prefetch, path, beside)

    try:
        yield opened
    finally:
        for one in threads:
            one.shutdown(cancel_futures=True)


def _prefetch(path: str, beside: Callable[[str], str | os.PathLike[str]] | None) -> None:
    for one in (path,) if beside is None else (path, beside(path)):
        with contextlib.suppress(OSError), _core.Descriptor(one, os.O_RDONLY) as file:
            os.pread(file.fd, PREFETCH_BYTES, 0)
